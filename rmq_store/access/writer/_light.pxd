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
    cdef int reserve(self, QueueTable *table, list names, bint named) except -1


cdef class LightRules:
    # What a store takes: of its options, and how many light queues there are.
    cdef readonly bint on       # enable_lmq and enable_multi_dispatch
    cdef bint compat5
    cdef int64_t count_max
    cdef int64_t seen           # queues of the table that are counted
    cdef int64_t count          # light ones among them
    # None: the message is in no light queue. Else its properties are in *a as they will be at most.
    cdef LightPut take(self, StoreCore store, RecordArgs *a, object topic, object names, bytes kept)
    cdef list _wanted(self, str topic, object names, bytes kept)
    cdef int _refuse_many(self, QueueTable *table, list names) except -1


# log_append for such a message: the put lock is held, so what it writes is each queue's next place.
cdef AppendStatus light_append(Log *log, RecordArgs *a, Queue *q, int64_t now, Appended *out, LightQueues *l) noexcept nogil
