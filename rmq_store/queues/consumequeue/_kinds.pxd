# Which kind the queues of a topic are of: batch queues (_batches.pxd) or others. config/topics.json says it, and a store is not
# opened whose queues are of another kind. So the file is written between two steps. A queue without messages and files has no
# kind of its own: with its topic it becomes one of the other kind.
from libc.stdint cimport int32_t

from rmq_store.queues.consumequeue._state cimport BatchStep
from rmq_store.queues.consumequeue._structs cimport Queue, QueueTable

cdef enum Change:
    CHANGE_NOT = 0
    CHANGE_UNUSED = 1               # queues that no put of plain messages keeps
    CHANGE_ALL = 2                  # all: of a store that nobody puts to

# For a put of plain messages that keeps the queue. False: it is a batch queue; else it never becomes one under CHANGE_UNUSED.
cdef bint queue_keep_plain(QueueTable *table, Queue *q) noexcept nogil
# A step of the topic; BATCH_CLOSE and BATCH_DROP under the put lock. change: with BATCH_TAKE and BATCH_DROP its queues without
# messages and files, of which no record waits for dispatch, change their kind: under round_lock, run_lock and the put lock. 0;
# -ENOMEM; 1, and nothing has changed: it has queues of another kind, or batch queues that have messages.
cdef int topic_set_batched(QueueTable *table, const char *topic, int32_t topic_size, BatchStep step,
                           Change change) noexcept nogil
