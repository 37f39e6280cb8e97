# The put methods of a store: from Python arguments to RecordArgs, through the lock, to a result.
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from rmq_store.access.core._core cimport StoreCore
from rmq_store.access.writer._light cimport LightQueues, LightRules
from rmq_store.base.io._sync cimport rmq_event, rmq_load, rmq_load32
from rmq_store.codec._record cimport RecordArgs
from rmq_store.log.commitlog._log cimport (APPEND_OK, Appended, Log, log_busy, log_lock_begin, log_lock_end, log_lock_end_quick,
                                           log_lock_try, log_shown)
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum:
    QUEUES_INLINE = 16
    PLACE_LIGHT = 2
    TOPIC_NAME_MAX = 255            # bytes: a directory has the name
    GIL_RELEASE_BYTES_MIN = 32768   # copying and checking so much takes longer than giving the GIL away and back
    # What _put is told by *wants: put_checks is through with it; it is a copy that the store itself makes of a message, which
    # was put under limits that may be lower now, so that only those of the format count.
    PUT_CHECKED = 1
    PUT_COPY = 2


cdef class Topic:
    # A topic that passed the checks once: its bytes and its queues.
    cdef bytes name
    cdef const char *text
    cdef int32_t size
    cdef Queue *inline_queues[QUEUES_INLINE]


cdef class PutResult:
    cdef readonly int64_t offset
    cdef readonly int64_t queue_offset
    cdef readonly int64_t store_timestamp
    cdef readonly int32_t size
    cdef int code
    cdef bytes host


cdef extern from "<strings.h>" nogil:
    int strncasecmp(const char *a, const char *b, size_t n)


cdef inline bint find_property(const char *text, Py_ssize_t size, const char *name, Py_ssize_t name_size, const char **value,
                               Py_ssize_t *value_size) noexcept nogil:
    # The last value of `name` in stored properties, by RocketMQ's parser.
    cdef const char *end = text + size
    cdef const char *stop
    cdef bint found = False
    while text < end:
        stop = <const char *> memchr(text, 2, end - text)
        if stop == NULL:
            stop = end
        if stop - text > name_size + 1 and text[name_size] == 1 and memcmp(text, name, name_size) == 0:
            value[0] = text + name_size + 1
            value_size[0] = stop - value[0]
            found = True
        text = stop + 1
    return found


cdef inline bint asks_to_wait(const RecordArgs *a) noexcept nogil:
    # Message.isWaitStoreMsgOK: true unless the property WAIT in a.properties says something else than "true".
    cdef const char *value = NULL
    cdef Py_ssize_t size = 0
    if not find_property(a.properties, a.properties_size, b"WAIT", 4, &value, &size):
        return True
    return size == 4 and strncasecmp(value, b"true", 4) == 0


# What a put waits for: bits, and from WAIT_ACKS on how many slaves have to acknowledge it, 0: one, if one is usable.
cdef enum:
    WAIT_DEVICE = 1
    WAIT_REPLICA = 2        # role=sync_master: a slave has acknowledged it
    WAIT_IN_SYNC = 4        # how many is asked before it is stored (StorePut._in_sync)
    WAIT_ACKS = 8

# Who is told when slaves have acknowledged more: the completer of futures, and the network thread of a broker.
cdef enum:
    TELLS_COMPLETER = 0
    TELLS_NETWORK = 1
    TELLS = 2

# How to wait for slaves; `of` NULL: there is no such thing here. Filled in by replication/_master.pyx.
cdef struct Replicas:
    void *of
    int64_t timeout_ns
    bint (*usable)(void *of, int64_t end) noexcept nogil        # a slave is there that is not too far behind `end`
    # How many slaves have to acknowledge what is put behind `end`; -1: too few are in sync, of which *in_sync says how many.
    int (*needed)(void *of, int64_t end, int *in_sync) noexcept nogil
    int64_t (*acked)(void *of, int acks) noexcept nogil         # the highest offset that so many slaves have acknowledged
    # 0; -ETIMEDOUT; -ECANCELED: no slave will acknowledge anything any more. timeout_ns 0: does not wait.
    int (*wait)(void *of, int64_t end, int acks, int64_t timeout_ns) noexcept nogil
    void (*push)(void *of, int64_t end) noexcept nogil          # slaves may have the log up to `end`; may wait for the device
    int64_t moves               # atomic: how often slaves have acknowledged more
    rmq_event more[TELLS]       # woken when slaves have acknowledged more, where `watched` is not 0
    int watched[TELLS]          # atomic


cdef class StorePut(StoreCore):
    cdef int waits                  # what a put waits for unless it is told otherwise: WAIT_ bits
    cdef Replicas replicas
    cdef dict topics
    cdef RecordArgs plain           # a put without optional arguments, but for its body, topic and queue
    cdef bytes host                 # store host: 8 or 20 bytes
    cdef bint host_v6
    cdef int64_t body_size_max
    cdef int64_t record_size_max
    cdef int64_t copy_size_max      # of a record that is a copy, and of its body
    cdef int32_t topic_size_max
    cdef bint pool_fails
    cdef int64_t failed_puts   # messages that the log did not take since the opening
    cdef bint record_crc
    cdef LightRules lights
    cdef public object _completer      # writer._future.Completer, set when the store is open

    cdef Topic _topic(self, object topic)
    cdef Topic _copied_topic(self, str topic)
    cdef Queue *_queue(self, Topic t, object queue_id) except NULL
    cdef int _arguments(self, RecordArgs *a, flag, sys_flag, born_timestamp, born_host, reconsume_times,
                        prepared_transaction_offset) except -1
    cdef object _properties(self, RecordArgs *a, properties, tags, keys)
    cdef int _check_size(self, RecordArgs *a, bint copy) except -1
    cdef int _failed(self, error) except -1
    cdef int _refuse_busy(self) except -1
    cdef int _check_delivered(self, const RecordArgs *waiting, Topic real, bint copy) except -1
    cdef tuple _delayed(self, Topic topic, queue_id, bytes properties, sys_flag)      # (topic, queue id, properties)
    cdef int _wait_for(self, int status, int64_t size) except -1
    cdef void _dispatch(self) noexcept
    cdef int _until(self, int64_t end, int what, int acks) except -1
    cdef int _awaited(self, int64_t end, int wants) except -1     # a PutStatus
    cdef int _in_sync(self, int wants) except -1        # with how many slaves have to acknowledge it
    cdef void _nudge(self) noexcept
    cdef PutResult _put(self, PyObject **v, int *wants)       # the arguments, as _arguments has them
    cdef PutResult _put_checked(self, PyObject **v, int *wants)


cdef inline int wants_of(StorePut store, object wait, bint asks) except -1:
    # WAIT_ bits for the argument `wait`, a bool or None, of a message whose properties ask to wait. Before it is stored.
    cdef int wants = 0
    if wait is None:
        wants = store.waits if asks else 0
    elif wait:
        wants = WAIT_DEVICE | store.waits
    return store._in_sync(wants) if wants & WAIT_IN_SYNC else wants


# What is placed in one turn of the put lock.
cdef struct Turn:
    RecordArgs *args
    Queue *queue
    Appended *out
    int64_t size        # that has to have room for it to continue
    int born_now        # 1: the born timestamp is the store time; 0: it is given. Of put, + PLACE_LIGHT

# Of put: a place in light queues as well.
cdef struct One:
    Turn turn
    LightQueues *light

ctypedef int (*Place)(Log *log, Turn *t, int64_t now) noexcept nogil   # an AppendStatus; the lock is held


# The one loop of everything that puts: takes the lock, under the GIL or, where it is taken or `large`, without it; places;
# waits for what was lacking, and again. begun: a part of it is stored, so it is not refused any more.
# Inline, so that `place` is called directly: it costs a put nothing.
cdef inline int place_locked(StorePut store, Place place, Turn *t, bint large, bint begun) except -1:
    cdef Log *log
    cdef int64_t now = 0
    cdef int status
    while True:
        store._enter()
        log = store.log
        if not large and log_lock_try(log, &now):
            status = place(log, t, now)
            if log_lock_end_quick(log):
                store._dispatch()
        else:
            if not begun and log_busy(log):
                store._refuse_busy()
            store.calls += 1
            with nogil:
                now = log_lock_begin(log)
                status = place(log, t, now)
                log_lock_end(log)
            store.calls -= 1
        if status == APPEND_OK:
            return 0
        store._wait_for(status, t.size)


cdef inline bint log_never_sent(Log *log, int64_t end) noexcept nogil:
    # The log has failed before slaves may have it up to `end`: they never will.
    return rmq_load32(&log.fence) != 0 and log_shown(log) < end


cdef inline bint never_sent(StorePut store, int64_t end) noexcept:
    # The same, also of a store that was closed meanwhile.
    return log_never_sent(store.log, end) if store.log != NULL else store.last_fence != 0 and store.last_shown < end


cdef inline int64_t patience_ns(StorePut store, int wants) noexcept:
    # How long a put with these WAIT_ bits may wait before it is late.
    return (store.flush_deadline_ns if wants & WAIT_DEVICE else 0) + (store.replicas.timeout_ns if wants & WAIT_REPLICA else 0)
