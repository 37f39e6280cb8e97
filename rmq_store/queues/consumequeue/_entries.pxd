# The dispatch side of all queues. entries_put and entries_publish: the dispatcher's thread. All return 0 or -errno; what failed
# can be repeated.
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._state cimport QueueState, TableState
from rmq_store.queues.consumequeue._structs cimport Queue


cdef bint entries_have_place(TableState *t, int64_t cq_offset, int64_t physical) noexcept nogil    # queues_have_place
# One entry that is not known to be repeated; queue_put handles the plain case itself.
cdef int entries_put(TableState *t, Queue *q, int64_t physical, int32_t size, int64_t tags_code, int64_t store_timestamp,
                     int64_t cq_offset) noexcept nogil
# The store opens, and all is dispatched: what waits is put where it says. Publishes.
cdef int entries_decide(TableState *t) noexcept nogil
cdef int entries_publish(TableState *t) noexcept nogil
# Deletes the files of a queue that was removed (queue_empty), under run_lock; before the queue gets an entry it is called here.
cdef int entries_delete_files(TableState *t, QueueState *s) noexcept nogil
cdef void entries_note_unsynced(TableState *t, Queue *q) noexcept nogil     # the next sync has to look at its files
