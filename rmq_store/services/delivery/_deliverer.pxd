# One native thread that appends copies of messages that are due. Delay levels and timer messages each have one; what is due
# when, and where that is noted, is theirs. Nothing in the thread touches Python.
#
# No put should notice the thread, however much is due at once. It makes a copy ready before it takes the put lock. Before that
# it brings the pages in which the log goes on into memory, as a page fault may wait for the disk. While others put, the thread
# sleeps for a moment after each burst of copies: a put that needs the processor has it then.
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.waiting._wait cimport StoreWait
from rmq_store.base.io._sync cimport pthread_t
from rmq_store.codec._record cimport RecordArgs, RecordView
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._arrivals cimport Hub
from rmq_store.queues.consumequeue._queue cimport QueueTable

cdef enum:
    DELIVER_SKIPPED = 1             # this message can never be delivered
    DELIVER_RETRY_MS = 100          # RocketMQ's DELAY_FOR_A_WHILE

cdef struct Deliverer:
    Log *log
    QueueTable *queues
    Hub *hub                        # arrivals in the queues that are watched
    const bint *refused             # the store takes no puts: the disk is full
    int arrivals_fd                 # eventfd: arrivals, and to wake the thread
    int clock_fd                    # timerfd on the wall clock; ends early when the clock is set
    bint compat5
    bint record_crc
    bint sync_mode
    int64_t delivered               # atomic counters
    int64_t skipped
    int64_t last_skipped            # atomic: physical offset
    int64_t failures                # atomic: tries that will be repeated
    int last_error                  # atomic
    int64_t delivered_end           # atomic: end in the log of what was delivered last
    unsigned char *scratch          # properties of one copy
    int64_t row                     # copies since it last slept
    int64_t ready_to                # log offset up to which pages are in memory
    int64_t rest_end_ns             # when it last rested, by the monotonic clock, and for how long
    int64_t rested_ns
    int64_t others_ns               # when others were last seen to put
    int64_t puts_seen               # of the log, when this burst began
    int32_t burst                   # copies in it
    pthread_t thread
    int stop                        # atomic
    bint running


# A number in decimal digits, as properties have it. -1: it is none.
cdef int deliver_number(const char *text, Py_ssize_t size, int64_t *out) noexcept nogil
# The properties without those whose names, each with the byte 1 behind it, are in `names`. Returns how many bytes `out` has.
cdef int32_t deliver_without(const char *text, int32_t size, const char **names, int32_t count,
                             unsigned char *out) noexcept nogil
# Topic and queue of the copy: those of REAL_TOPIC and REAL_QID. False: there is no place to deliver to.
cdef bint deliver_place(Deliverer *d, const RecordView *v, RecordArgs *a) noexcept nogil
# Everything else of the copy but its properties, as RocketMQ's messageTimeup. False: the body is rotten.
cdef bint deliver_content(Deliverer *d, const RecordView *v, RecordArgs *a) noexcept nogil
# Whether the copy, with its properties, is a record of this store. Then it can be appended.
cdef bint deliver_fits(Deliverer *d, RecordArgs *a) noexcept nogil
# Appends the copy and counts it. 0; -errno: try again later.
cdef int deliver_append(Deliverer *d, RecordArgs *a) noexcept nogil
cdef void deliver_skip(Deliverer *d, int64_t physical) noexcept nogil
cdef void deliver_failed(Deliverer *d, int error) noexcept nogil       # a try that is repeated; error: -errno
# Sleeps until something arrives, delay_ms of the wall clock passed (negative: never), or somebody set the clock.
cdef void deliver_sleep(Deliverer *d, int64_t delay_ms) noexcept nogil


cdef class DeliveryThread:
    cdef object store
    cdef int *alive
    cdef Deliverer *d               # a part of what the subclass frees
    cdef int _prepare(self, StoreWait store, Deliverer *d) except -1
    cdef int _begin(self, void *(*body)(void *) noexcept nogil, void *of, const char *name, str what) except -1
    cdef int _let_go(self) except -1
    cdef bint _may_free(self)
