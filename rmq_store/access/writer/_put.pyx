"""The put methods of a store (RocketMQ: DefaultMessageStore.asyncPutMessage). Contract in _put.pxd.

Under the GIL the put lock is only ever tried; whoever has to wait, for it, for room in the pool, for a file or for the device,
gives the GIL up first. Everything that does not depend on the position happens before the lock.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_FromObject
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from rmq_store.access.core._core cimport StoreCore
from rmq_store.access.writer._arguments cimport (ARGUMENTS, BODY, BORN_HOST, BORN_TIMESTAMP, DELAY, DELAY_LEVEL, DELIVER_AT,
                                                 FLAG, KEYS, LIGHT_QUEUES, PREPARED_TRANSACTION_OFFSET, PROPERTIES, QUEUE_ID,
                                                 RECONSUME_TIMES, SYS_FLAG, TAGS, TOPIC, WAIT, arguments_bare,
                                                 arguments_method, arguments_parse, arguments_plain, checked_wait, delay_given,
                                                 integer_of, joined_keys, text_of, without_crc)
from rmq_store.access.writer._delays cimport DELIVERY_ROOM, delay_asked, delays_rewrite
from rmq_store.access.writer._hooks cimport hooks_run
from rmq_store.access.writer._light cimport LightPut, LightRules, light_append
from rmq_store.access.writer._plain cimport plain_flags, plain_queue
from rmq_store.base.io._sync cimport ETIMEDOUT, rmq_event_wake, rmq_load, rmq_load32
from rmq_store.codec._layout cimport BLANK_SIZE, FLAG_BORN_V6, FLAG_STORE_V6, PROPERTIES_SIZE_MAX, TOPIC_SIZE_V1_MAX
from rmq_store.codec._record cimport RecordArgs, body_crc32, record_prepare, topic_spelt
from rmq_store.log.commitlog._log cimport (APPEND_ERROR, APPEND_FENCED, APPEND_NEED_ROOM, Appended, Log, log_append,
                                           log_dispatch, log_wait_file, log_wait_room)
from rmq_store.log.flush._flush cimport flush_wait
from rmq_store.queues.consumequeue._queue cimport Queue

from rmq_store import errors
from rmq_store.base.io.wants import lacking
from rmq_store.codec._properties import encode_properties
from rmq_store.codec.message_id import host_bytes
from rmq_store.codec.timer import with_delay
from rmq_store.status import PutStatus

cdef int64_t SLICE_NS = 100_000_000, MS = 1_000_000, COPY_ROOM = 200      # for a dead letter's topic, a checksum, an IPv6 host
cdef tuple _STATUS = tuple(PutStatus)
cdef int _OK = PutStatus.PUT_OK, _NO_SLAVE = PutStatus.SLAVE_NOT_AVAILABLE
cdef int _TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT, _SLAVE_TIMEOUT = PutStatus.FLUSH_SLAVE_TIMEOUT
cdef object _ZERO = 0
cdef str _LESS = "name fewer light queues, or store less in properties and more in the body"
cdef str _SPLIT = "split or compress it, or raise message_size_max_bytes"


@cython.final
@cython.freelist(256)
cdef class PutResult:
    """The result of a put: the message is stored, and `status` says whether it is as durable as requested.

    RocketMQ: PutMessageResult with its AppendMessageResult. Immutable; any thread.
    """

    @property
    def status(self):
        """PutStatus: PUT_OK, or FLUSH_DISK_TIMEOUT if the device did not confirm in time. With role=sync_master also
        FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE."""
        return _STATUS[self.code]

    @property
    def msg_id(self):
        """Offset message id: store host and physical offset, 32 (IPv4) or 56 (IPv6) upper-case hex digits."""
        return (self.host + self.offset.to_bytes(8, "big")).hex().upper()

    def __repr__(self):
        return (f"PutResult({self.status.name}, offset={self.offset}, queue_offset={self.queue_offset}, size={self.size}, "
                f"store_timestamp={self.store_timestamp})")


@cython.final
cdef class Topic:
    def __cinit__(self):
        memset(self.inline_queues, 0, sizeof(self.inline_queues))


cdef int _place_odd(Log *log, Turn *t, int64_t now) noexcept nogil:
    if t.born_now & 1:
        t.args.born_timestamp = now
    if t.born_now & PLACE_LIGHT:
        return light_append(log, t.args, t.queue, now, t.out, (<One *> t).light)
    return log_append(log, t.args, t.queue, now, t.out)


cdef int _place_one(Log *log, Turn *t, int64_t now) noexcept nogil:
    if t.born_now != 1:
        return _place_odd(log, t, now)
    t.args.born_timestamp = now
    return log_append(log, t.args, t.queue, now, t.out)


cdef inline PutResult _result_of(const Appended *out, int32_t size, bytes host):
    cdef PutResult r = PutResult.__new__(PutResult)
    r.offset = out.offset
    r.queue_offset = out.queue_offset
    r.store_timestamp = out.store_timestamp
    r.size, r.code, r.host = size, _OK, host
    return r


cdef Topic _topic_of(str topic, int32_t limit):
    cdef Topic t = Topic.__new__(Topic)
    if not topic:
        raise errors.MessageIllegal("topic is empty: name one")
    t.name = topic.encode("utf-8", "surrogatepass")
    t.text = PyBytes_AS_STRING(t.name)
    t.size = <int32_t> PyBytes_GET_SIZE(t.name)
    if not topic_spelt(t.text, t.size):
        raise errors.MessageIllegal(f"topic is {topic!r}: only the characters % | A-Z a-z 0-9 _ - can be stored")
    if t.size > limit:
        raise errors.MessageIllegal(errors.exceeds("topic size", f"{t.size} bytes", limit, "shorten its name"))
    return t


cdef class StorePut(StoreCore):
    """The writing half of a store."""

    def __cinit__(self):
        self.topics = {}

    def _setup_put(self):
        options = self.options
        self.host = host_bytes(options.store_host)
        self.host_v6 = len(self.host) == 20
        self.record_crc = options.record_crc
        self.lights = LightRules(options)
        self.waits = WAIT_DEVICE if self.sync_mode else 0
        self._properties(&self.plain, None, None, None)
        self._arguments(&self.plain, _ZERO, _ZERO, None, None, _ZERO, _ZERO)

    def _apply(self, options):
        StoreCore._apply(self, options)
        self.body_size_max = options.message_size_max_bytes
        self.copy_size_max = options.segment_size_bytes - BLANK_SIZE
        self.record_size_max = min(options.message_size_max_bytes + 65536, self.copy_size_max - COPY_ROOM)
        self.topic_size_max = options.topic_size_max_bytes
        self.topics.clear()         # those that passed the check of their size
        self.pool_fails = options.pool_empty == "fail"

    cdef Topic _topic(self, object topic):
        cdef Topic t
        cdef int32_t limit = self.topic_size_max
        if not isinstance(topic, str):
            raise errors.MessageIllegal(f"topic is a {type(topic).__name__}: give a str")
        topic = PyUnicode_FromObject(topic)     # what a subclass says of its hash and of being equal does not count
        if (found := self.topics.get(topic)) is not None:
            return <Topic> found
        if not self.compat5:
            limit = min(limit, TOPIC_SIZE_V1_MAX)       # 4.9 cannot read a record of version 2
        elif topic.startswith("%RETRY%"):
            limit = TOPIC_NAME_MAX
        self.topics[topic] = t = _topic_of(topic, limit)
        return t

    cdef Topic _copied_topic(self, str topic):
        return self.topics.get(topic) or _topic_of(topic, TOPIC_NAME_MAX if self.compat5 else TOPIC_SIZE_V1_MAX)

    cdef Queue *_queue(self, Topic t, object queue_id) except NULL:
        cdef int64_t n = 0
        cdef Queue *q
        if queue_id is not _ZERO:
            n = integer_of(queue_id, "queue_id", 0, 0x7FFFFFFF)
        self._enter()
        if n < QUEUES_INLINE and t.inline_queues[n] != NULL:
            return t.inline_queues[n]
        q = plain_queue(self.queues, t.name, <int32_t> n)      # asked once for each queue that is kept below
        if n < QUEUES_INLINE:
            t.inline_queues[n] = q
        return q

    cdef int _arguments(self, RecordArgs *a, flag, sys_flag, born_timestamp, born_host, reconsume_times,
                        prepared_transaction_offset) except -1:
        # Everything but body, topic, queue and properties.
        cdef bytes host
        a.flag = 0 if flag is _ZERO else <int32_t> integer_of(flag, "flag", -0x80000000, 0x7FFFFFFF)
        a.sys_flag = 0 if sys_flag is _ZERO else <int32_t> integer_of(sys_flag, "sys_flag", 0, 0x7FFFFFFF)
        a.sys_flag = plain_flags(a.sys_flag)
        a.reconsume_times = 0 if reconsume_times is _ZERO else <int32_t> integer_of(
            reconsume_times, "reconsume_times", 0, 0x7FFFFFFF)
        a.prepared_transaction_offset = 0
        if prepared_transaction_offset is not _ZERO:
            a.prepared_transaction_offset = integer_of(prepared_transaction_offset, "prepared_transaction_offset", 0,
                                                       0x7FFFFFFFFFFFFFFF)
        a.born_timestamp = 0
        if born_timestamp is not None:
            a.born_timestamp = integer_of(born_timestamp, "born_timestamp", 0, 0x7FFFFFFFFFFFFFFF)
        a.crc_property = self.record_crc
        host = self.host
        memcpy(a.store_host, PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host))
        if self.host_v6:
            a.sys_flag |= FLAG_STORE_V6
        if born_host is not None:
            host = host_bytes(born_host)
        memcpy(a.born_host, PyBytes_AS_STRING(host), PyBytes_GET_SIZE(host))
        if PyBytes_GET_SIZE(host) == 20:
            a.sys_flag |= FLAG_BORN_V6
        return 0

    cdef object _properties(self, RecordArgs *a, properties, tags, keys):
        # Fills the property pieces. Returns the bytes they point into (to be kept), or None.
        cdef Py_ssize_t size = 0
        cdef const char *value = NULL
        a.properties = a.more_properties = a.tags = a.keys = NULL
        a.properties_size = a.more_properties_size = a.tags_size = a.keys_size = 0
        a.trailing_separator = self.compat5
        if tags is not None:
            a.tags = text_of(tags, "tags", &size)
            a.tags_size = <int32_t> size
            if size == 0:
                a.tags = NULL
        if keys is not None:
            a.keys = text_of(keys, "keys", &size)
            a.keys_size = <int32_t> size
            if size == 0:
                a.keys = NULL
        if properties is None:
            return None
        if type(properties) is bytes:
            kept = properties
            if a.tags == NULL and a.keys == NULL:
                a.trailing_separator = False        # stored as given
        else:
            kept = encode_properties(properties, compat="5.x" if self.compat5 else "4.9")
        kept = without_crc(kept, self.record_crc)
        size = PyBytes_GET_SIZE(kept)
        if size > PROPERTIES_SIZE_MAX:
            raise errors.PropertiesSizeExceeded(errors.exceeds("properties size", f"{size} bytes", PROPERTIES_SIZE_MAX, _LESS))
        a.properties = PyBytes_AS_STRING(kept)
        a.properties_size = <int32_t> size
        if a.tags != NULL and find_property(a.properties, size, b"TAGS", 4, &value, &size):
            raise errors.MessageIllegal("tags and the property TAGS are two names for one field: give one of them")
        if a.keys != NULL and find_property(a.properties, a.properties_size, b"KEYS", 4, &value, &size):
            raise errors.MessageIllegal("keys and the property KEYS are two names for one field: give one of them")
        return kept

    cdef int _check_size(self, RecordArgs *a, bint copy) except -1:
        # record_prepare has run. RocketMQ's order: properties, body, record. copy: of a message that was put, see PUT_COPY.
        cdef int64_t body_max = self.copy_size_max if copy else self.body_size_max
        cdef int64_t record_max = self.copy_size_max if copy else self.record_size_max
        if a.properties_total > PROPERTIES_SIZE_MAX:
            return self._failed(errors.PropertiesSizeExceeded(errors.exceeds(
                "properties size", f"{a.properties_total} bytes", PROPERTIES_SIZE_MAX, _LESS)))
        if a.body_size > body_max:
            return self._failed(errors.MessageIllegal(errors.exceeds("body size", f"{a.body_size} bytes", body_max, _SPLIT)))
        if a.size > record_max:
            return self._failed(errors.MessageIllegal(errors.exceeds(
                "record size", f"{a.size} bytes", record_max,
                "split the body, or use larger commit-log files (segment_size_bytes)")))
        return 0

    cdef int _failed(self, error) except -1:
        # A message that the log does not take. RocketMQ: putMessageFailedTimes.
        self.failed_puts += 1
        raise error

    cdef int _check_delivered(self, const RecordArgs *waiting, Topic real, bint copy) except -1:
        # As _check_size, for the record as it will be delivered: with the name of its real topic, and what delivery adds.
        cdef RecordArgs a = waiting[0]
        a.topic, a.topic_size = real.text, real.size
        record_prepare(&a)
        a.size += DELIVERY_ROOM
        return self._check_size(&a, copy)

    cdef int _wait_for(self, int status, int64_t size) except -1:
        # The put lock is free. Waits for what the append lacked; raises what makes waiting useless.
        cdef int64_t waited = 0
        cdef int rc = -ETIMEDOUT
        if status == APPEND_FENCED:
            return self._failed(self._fence_error())
        if status == APPEND_ERROR:
            return self._failed(MemoryError("rolling to the next commit-log file"))
        if status == APPEND_NEED_ROOM and self.pool_fails and rmq_load32(&self.log.want) == 0:
            return self._failed(errors.PoolExhausted(
                f"the pool of {self.pool.size} bytes is full: the device does not keep up, put again later, or set "
                "pool_empty='wait' or a larger pool_window_count"))
        while rc == -ETIMEDOUT and waited < self.flush_deadline_ns:
            self.calls += 1
            with nogil:
                if status == APPEND_NEED_ROOM:
                    rc = log_wait_room(self.log, size, SLICE_NS)
                else:
                    rc = log_wait_file(self.log, size, SLICE_NS)
            self.calls -= 1
            waited += SLICE_NS
            PyErr_CheckSignals()
            self._enter()
            if rmq_load32(&self.log.fence) != 0:
                return self._failed(self._fence_error())
        if rc == 0:
            return 0
        if status == APPEND_NEED_ROOM:
            return self._failed(self._failed_with(rc, "writing the log of") if rc != -ETIMEDOUT else errors.PoolExhausted(
                f"no room in the pool of {self.pool.size} bytes after {waited // MS} ms: the device is too slow, put the "
                "message again later"))
        if -rc in errors.DiskFull.codes:
            return self._failed(errors.DiskFull(-rc, "making the next commit-log file of", self.path))
        reason = "it was not made in time" if rc == -ETIMEDOUT else lacking(-rc)
        return self._failed(errors.CreateMappedFileFailed(f"the next commit-log file could not be made: {reason}"))

    cdef int _refuse_busy(self) except -1:
        return self._failed(errors.OsPageCacheBusy(f"another put has held the put lock for more than {self.log.busy_after_ms} "
                                                   "ms: the device does not keep up, put the message again later"))

    cdef void _dispatch(self) noexcept:
        # A reader waits for what was just put.
        self.calls += 1
        with nogil:
            log_dispatch(self.log)
        self.calls -= 1

    cdef int _until(self, int64_t end, int what, int acks) except -1:
        # Waits for the device or for slaves, a WAIT_ bit; returns a PutStatus. The message is stored: a close() that came
        # between has flushed it, or says why not.
        cdef int64_t left = self.flush_deadline_ns if what == WAIT_DEVICE else self.replicas.timeout_ns
        cdef int64_t slice_ns
        cdef int rc
        while self.log != NULL:
            slice_ns = left if left < SLICE_NS else SLICE_NS
            self.calls += 1
            with nogil:
                rc = flush_wait(self.log, end, slice_ns) if what == WAIT_DEVICE else self.replicas.wait(
                    self.replicas.of, end, acks, slice_ns)
            self.calls -= 1
            if rc == 0:
                return _OK
            if never_sent(self, end) if what == WAIT_REPLICA else rc != -ETIMEDOUT:
                raise self._fence_error()
            left -= slice_ns
            if left <= 0 or rc != -ETIMEDOUT:
                return _TIMEOUT if what == WAIT_DEVICE else _SLAVE_TIMEOUT
            PyErr_CheckSignals()
        if what == WAIT_REPLICA and not never_sent(self, end):
            return _SLAVE_TIMEOUT
        if what == WAIT_DEVICE and self.last_flushed >= end:
            return _OK
        raise self._fence_error() if self.last_fence != 0 else errors.StoreClosed(self.path)

    cdef int _awaited(self, int64_t end, int wants) except -1:
        # As RocketMQ: whether there is a slave is asked before the flush, and what slaves say counts for more than it.
        cdef int code = _OK, replicated = _OK, acks = wants >> WAIT_ACKS
        if wants & WAIT_REPLICA and acks == 0 and not self.replicas.usable(self.replicas.of, end):
            wants, replicated = wants & ~WAIT_REPLICA, _NO_SLAVE
        if wants & WAIT_DEVICE:
            code = self._until(end, WAIT_DEVICE, 0)
        if wants & WAIT_REPLICA:
            replicated = self._until(end, WAIT_REPLICA, max(acks, 1))
        return code if replicated == _OK else replicated

    cdef int _in_sync(self, int wants) except -1:
        # RocketMQ: CommitLog.calcNeedAckNums, before the message is stored.
        cdef int in_sync = 0, acks
        self._enter()
        acks = self.replicas.needed(self.replicas.of, rmq_load(&self.log.wrote), &in_sync)
        if acks < 0:
            return self._failed(errors.InSyncReplicasNotEnough.of(self.path, in_sync, self.options))
        return (wants | acks << WAIT_ACKS if acks > 0 else wants & ~WAIT_REPLICA) & ~WAIT_IN_SYNC

    cdef void _nudge(self) noexcept:
        # Under synchronous flush what nobody waits for is on the device within 10 ms all the same.
        if self.sync_mode and self.log != NULL and rmq_load32(&self.log.flush_asleep) != 0:
            rmq_event_wake(&self.log.flush_wanted)

    cdef PutResult _put(self, PyObject **v, int *wants):
        # Appends; *wants tells what the caller waits for, in WAIT_ bits. Beforehand it has PUT_ bits.
        cdef RecordArgs a
        cdef Appended out
        cdef One one
        cdef int lit = 0
        cdef Py_buffer view
        cdef bint viewed = False, copy = wants[0] & PUT_COPY
        cdef Topic t
        cdef Topic real = None
        cdef Queue *q
        cdef Py_ssize_t size = 0
        topic, queue_id, body, kept = <object> v[TOPIC], <object> v[QUEUE_ID], <object> v[BODY], None
        self._enter()
        if self.put_checks != 0 and not wants[0] & PUT_CHECKED:
            return self._put_checked(v, wants)
        a = self.plain
        if not arguments_bare(v):
            kept = <object> v[PROPERTIES]
            if delay_given(v):
                kept = with_delay(kept, <object> v[DELAY_LEVEL], <object> v[DELIVER_AT], <object> v[DELAY])
            keys = <object> v[KEYS]
            if keys is not None and type(keys) is not str:
                keys = joined_keys(keys)        # held here: what is placed points into it
            kept = self._properties(&a, kept, <object> v[TAGS], keys)
            if v[LIGHT_QUEUES] != <PyObject *> None or (self.lights.on and kept is not None):
                light = self.lights.take(self, &a, topic, <object> v[LIGHT_QUEUES], kept, copy)   # held here, as keys are
                if light is not None:
                    one.light, lit = &(<LightPut> light).light, PLACE_LIGHT
        wants[0] = self.waits
        if kept is not None:
            if delay_asked(a.properties, a.properties_size):
                real = self._copied_topic(topic) if copy else self._topic(topic)
                topic, queue_id, kept = self._delayed(real, queue_id, kept, <object> v[SYS_FLAG])
                a.properties = PyBytes_AS_STRING(kept)
                a.properties_size = <int32_t> PyBytes_GET_SIZE(kept)
            if wants[0] != 0 and not asks_to_wait(&a):
                wants[0] = 0
        if v[WAIT] != <PyObject *> None:
            wants[0] = WAIT_DEVICE | self.waits if checked_wait(<object> v[WAIT]) else 0
        t = self._copied_topic(topic) if copy else self._topic(topic)
        q = self._queue(t, queue_id)
        a.topic = t.text
        a.topic_size = t.size
        a.queue_id = q.queue_id
        if not arguments_plain(v):
            self._arguments(&a, <object> v[FLAG], <object> v[SYS_FLAG], <object> v[BORN_TIMESTAMP], <object> v[BORN_HOST],
                            <object> v[RECONSUME_TIMES], <object> v[PREPARED_TRANSACTION_OFFSET])
        if type(body) is bytes:
            a.body = <const unsigned char *> PyBytes_AS_STRING(body)
            size = PyBytes_GET_SIZE(body)
        else:
            try:
                PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            except (TypeError, BufferError):
                raise errors.MessageIllegal(f"body is a {type(body).__name__}: give bytes or a contiguous buffer "
                                            "(encode text first)") from None
            viewed = True
            a.body = <const unsigned char *> view.buf
            size = view.len
        try:
            if size > (self.copy_size_max if copy else self.body_size_max):
                self._failed(errors.MessageIllegal(errors.exceeds("body size", f"{size} bytes", self.body_size_max, _SPLIT)))
            a.body_size = <int32_t> size
            if real is not None:
                self._check_delivered(&a, real, copy)
            record_prepare(&a)
            self._check_size(&a, copy)
            if viewed:
                a.body_crc = -1     # taken over the copied bytes: somebody may change them while they are copied
            elif size < GIL_RELEASE_BYTES_MIN:
                a.body_crc = body_crc32(a.body, a.body_size)
            else:
                with nogil:
                    a.body_crc = body_crc32(a.body, a.body_size)
            one.turn.args, one.turn.queue, one.turn.out, one.turn.size = &a, q, &out, a.size
            if wants[0] & WAIT_IN_SYNC:
                wants[0] = self._in_sync(wants[0])
            one.turn.born_now = (v[BORN_TIMESTAMP] == <PyObject *> None) | lit
            place_locked(self, _place_one, &one.turn, size >= GIL_RELEASE_BYTES_MIN, False)
        finally:
            if viewed:
                PyBuffer_Release(&view)
        return _result_of(&out, a.size, self.host)

    cdef tuple _delayed(self, Topic topic, queue_id, bytes properties, sys_flag):
        return delays_rewrite(self, topic.name.decode("utf-8"), integer_of(queue_id, "queue_id", 0, 0x7FFFFFFF), properties,
                              integer_of(sys_flag, "sys_flag", 0, 0x7FFFFFFF))

    cdef PutResult _put_checked(self, PyObject **v, int *wants):
        # put_checks is set: the put is refused, or asked of the hooks first. They may have closed the store.
        cdef PyObject *changed[ARGUMENTS]
        if self.refuses_puts:
            self._refuse_put()
        _kept = hooks_run(self.hooks, self.keyed, v, changed, self.compat5)     # what `changed` points into
        wants[0] |= PUT_CHECKED
        return self._put(changed, wants)


# ---- put, as Python calls it

cdef PyObject *_put_method(PyObject *me, PyObject *const *args, Py_ssize_t given, PyObject *names) except NULL:
    cdef StorePut store = <StorePut> me
    cdef PyObject *v[ARGUMENTS]
    cdef int wants = 0
    cdef PutResult r
    arguments_parse("put", v, args, given, names)
    r = store._put(v, &wants)
    if wants:
        r.code = store._awaited(r.offset + r.size, wants)
    else:
        store._nudge()
    Py_INCREF(r)
    return <PyObject *> r


arguments_method(StorePut, "put", _put_method, """Stores one message. Returns a PutResult.

topic: str of % | A-Z a-z 0-9 _ -. body: bytes-like. tags: str; keys: str, several keys separated by spaces, or an iterable
of str. properties: a mapping of str to str, which may have RocketMQ's reserved names, or bytes that are stored as given.
born_timestamp: ms since 1970, default now. born_host: "ip:port", default the store's own. delay_level: deliver the message
after the delay of this level of delay_levels; the first level is 1, 0 means no delay, and a number beyond the last level
means the last level. deliver_at: an aware datetime, or ms since 1970: deliver the message at this time, or at once if it is
past. delay: the same in seconds from now; see docs/timers.md. The returned offsets are then those of the waiting message.
light_queues: names of light queues, with or without %LMQ%, that have the message as well; see docs/light-queues.md. wait: None
= as flush_mode and the property WAIT say, True = return when the message is on the device, False = do not wait for the device.

Durability: after return the message survives as flush_mode and write_path promise. The status FLUSH_DISK_TIMEOUT means that
the message is stored, but the device did not confirm it within flush_deadline_ms. One of the waiting puts makes the sync in
its own thread. It cannot leave the sync, and returns when the sync ends, however late. Raises errors.PutError (the message
is not stored, `.status` says why), DurabilityError (a write or a sync failed; the store acknowledges no more messages),
StoreStateError.
Thread-safety: any number of threads. RocketMQ: MessageStore.putMessage.
""")
