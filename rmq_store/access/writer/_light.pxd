# Light queues of a put: which ones a message names, and the append that gives it a place in each (RocketMQ: MultiDispatch).
from libc.stdint cimport int32_t, int64_t

from rmq_store.access.core._core cimport StoreCore
from rmq_store.codec._record cimport RecordArgs
from rmq_store.log.commitlog._log cimport Appended, AppendStatus, Log
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable

cdef enum:
    NUMBER_SIZE_MAX = 20        # of an offset and its comma

cdef struct LightQueues:
    Queue **queues
    char *text          # the properties: INNER_MULTI_DISPATCH where it is not among the message's, then
    int32_t named       # INNER_MULTI_QUEUE_OFFSET from here on,
    int32_t fixed       # and its value from here on
    int32_t count


cdef class LightPut:
    # The light queues of one message: for the time of its put.
    cdef LightQueues light
    cdef bytes kept             # the message's own properties
    cdef list new               # names of those that no message has yet
    cdef LightRules rules
    cdef StoreCore store
    cdef int reserve(self, QueueTable *table, list names, bint named) except -1


cdef class LightRules:
    # What a store takes: of its options, and how many light queues there are. A row of the table that no message has got to is
    # no queue: a put was refused, or the queue was removed. The GIL guards all of it.
    cdef readonly bint on       # enable_lmq and enable_multi_dispatch
    cdef bint compat5
    cdef int64_t count_max
    cdef int64_t seen           # queues of the table that were looked at
    cdef int64_t count          # light ones; it may be too high, see _recount
    cdef int64_t removed        # StoreCore.queues_removed when they were counted
    cdef bint unsure            # a row without a message may have been counted twice
    cdef bint doubt             # the put that is being looked at may count one twice
    cdef dict putting           # name -> how many puts are under way that may be its first one
    # None: the message is in no light queue. Else its properties are in *a as they will be at most.
    # copy: of a message that was put: lmq_count_max may be lower now.
    cdef LightPut take(self, StoreCore store, RecordArgs *a, object topic, object names, bytes kept, bint copy)
    cdef list _wanted(self, str topic, object names, bytes kept)
    # The queues of a message whose names are checked: refuses what would be too many, and makes those that are new.
    cdef int hold(self, StoreCore store, LightPut put, list names, bint named, bint copy) except -1
    cdef list _new_among(self, QueueTable *table, list names)
    cdef int _refuse_many(self, StoreCore store, list new) except -1
    cdef void _count_rows(self, QueueTable *table, const LightQueues *but) noexcept
    cdef void _recount(self, QueueTable *table) noexcept
    cdef int _over(self, LightPut put) except -1


# log_append for such a message: the put lock is held, so what it writes is each queue's next place.
cdef AppendStatus light_append(Log *log, RecordArgs *a, Queue *q, int64_t now, Appended *out, LightQueues *l) noexcept nogil
