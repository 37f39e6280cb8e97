# Following the log (RocketMQ: ReputMessageService): every whole record below the visible position becomes a ConsumeQueue entry
# and index entries. One native thread; the opening thread uses the same code to catch up before that thread starts.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.histogram._histogram cimport rmq_histogram
from rmq_store.base.io._sync cimport pthread_t, rmq_event, rmq_mutex
from rmq_store.base.segment._file cimport LogFile
from rmq_store.codec._record cimport RecordView
from rmq_store.filter._bitmap cimport BIT_MAP_SIZE_MAX, FilterSet
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable
from rmq_store.queues.index._index cimport Index

cdef enum:
    QUEUE_CACHE_SIZE = 256
    ANEW = 1                        # of dispatch_to: it waits at anew_at

cdef struct Dispatcher:
    Log *log
    QueueTable *queues
    Index *index                    # NULL: messageIndexEnable = false
    LogFile *file                   # the file being read, held
    int64_t *delay_ms               # delay_ms[level - 1]
    int32_t delay_levels
    bint queues_with_log            # on one disk: what is freed there is theirs before the log takes it for its next file
    bint index_with_log
    const FilterSet *filters        # under round_lock: of the bit maps; NULL: none are made
    bint light                      # entries for light queues, too (enable_lmq and enable_multi_dispatch)
    bint index_failed               # under round_lock: whose error a round ended with
    int64_t indexed                 # under round_lock: the keys of records below this log offset are in the index ...
    int64_t counted                 # ... and these are in the figures of their queues
    bint mirrors                    # of a slave: queues may begin anew in the log, also of the other kind (_anew.pxd)
    int64_t anew_at                 # atomic: dispatch waits here, as a queue begins anew with this record; -1: it does not
    int64_t not_anew                # under round_lock: place of a record that seems to begin its queue anew, and cannot
    rmq_event anew                  # anew_at was set, or the waiting is over
    Queue *cache[QUEUE_CACHE_SIZE]
    int64_t last_timestamp          # atomic: store time of the last record whose entry is in its file (logicsMsgTimestamp)
    int64_t put_timestamp           # of the last one that got an entry, written or not
    int64_t bad_records             # rmq_count: records whose parts do not add up, skipped as RocketMQ does
    int64_t nameless_at             # atomic: place of the first record that has no queue, as no queue has such a name; -1 none
    int64_t stopped_at              # position of a record that cannot be read at all; -1 none
    int64_t records                 # rmq_count
    rmq_histogram lag_times         # ns from the store time of a round's last record to its being readable; in whole ms
    int error                       # first error of the queue or index files; 0 none
    int want                        # atomic: errno of what the last round lacked, and dispatch pauses for; 0 nothing
    pthread_t thread
    rmq_event moved                 # `dispatched` moved
    int waiters                     # readers that wait for a message: atomic
    int waits                       # how often one began to: atomic
    rmq_mutex round_lock            # a round is under way: in this thread, or in that of an append (log_dispatch)
    int64_t here_ns                 # under round_lock: when an append's thread last dispatched
    void (*ahead)(void *of) noexcept nogil      # under round_lock: called before a round, for slaves, which wait for no queue
    void *ahead_of                  # NULL: there is nobody to call
    bint running
    int stop
    unsigned char[BIT_MAP_SIZE_MAX] bit_map     # of the record at hand

cdef Dispatcher *dispatcher_new(Log *log, QueueTable *queues, Index *index) noexcept nogil
cdef void dispatcher_free(Dispatcher *d) noexcept nogil
cdef int64_t dispatch_limit(Dispatcher *d) noexcept nogil       # how far records may be dispatched now
cdef int64_t dispatch_behind(const Queue *q, const RecordView *v) noexcept nogil    # the queue offset behind the record
# Of a slave: whether the queue, which may be an empty one, is not of the kind that this record begins it with.
cdef bint dispatch_other_kind(Dispatcher *d, const Queue *q, const RecordView *v) noexcept nogil
# Dispatches from log.dispatched to `limit` in rounds; 0, ANEW, or -errno of the queue or index files. One dispatcher at a time.
cdef int dispatch_to(Dispatcher *d, int64_t limit) noexcept nogil
# Before the first put: the queue offsets of the records in [log.dispatched, end), which are not dispatched yet, are taken.
cdef int dispatch_reserve(Dispatcher *d, int64_t end) noexcept nogil
# From here on the records are evaluated with `filters`; the ones before are not used any more. Returns the log offset of the
# first such record, and in *newest the latest store time there is so far.
cdef int64_t dispatch_filters(Dispatcher *d, const FilterSet *filters, int64_t *newest) noexcept nogil
# Sets what is called before a round, of = NULL: nothing. When this returns the one before is not under way any more.
cdef void dispatch_ahead(Dispatcher *d, void (*ahead)(void *of) noexcept nogil, void *of) noexcept nogil
cdef int dispatcher_start(Dispatcher *d) noexcept nogil
cdef int dispatcher_stop(Dispatcher *d) noexcept nogil          # joins the thread; what is behind stays behind
# A reader begins, or ends, to wait for messages. While one does, and for a while after, every append wakes the dispatcher.
cdef void dispatch_waiter(Dispatcher *d, int change) noexcept nogil
# The same for a thread that sleeps: while one does, an append may dispatch for itself (log_dispatch).
cdef void dispatch_sleeper(Dispatcher *d, int change) noexcept nogil
# Until everything below `position` is dispatched: 0; -ETIMEDOUT; -errno.
cdef int dispatch_wait(Dispatcher *d, int64_t position, int64_t timeout_ns) noexcept nogil
