# Finding and moving the two ends of a queue: recovery, truncation, the first valid entry. Runs before the dispatcher starts (or
# in the cleaning thread: recover_min and recover_drop only). All return 0 or -errno. Source: ConsumeQueue.java (4.9.8, 5.3.3).
from libc.stdint cimport int64_t

from rmq_store.queues.consumequeue._state cimport QueueState, TableState
from rmq_store.queues.consumequeue._structs cimport Queue


cdef int recover_find(TableState *t, Queue *q, QueueState *s, int64_t safe) noexcept nogil
cdef int recover_back(TableState *t, Queue *q, QueueState *s, int64_t index) noexcept nogil
cdef int recover_truncate(TableState *t, Queue *q, QueueState *s, int64_t physical) noexcept nogil
cdef int recover_drop(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil
cdef int recover_min(TableState *t, Queue *q, QueueState *s, int64_t physical_min) noexcept nogil
