# The queues of a store: look-up from any thread, insertion under a lock. Source: ConsumeQueueStore.findOrCreateConsumeQueue.
from libc.stdint cimport int32_t, int64_t

from rmq_store.base.io._io cimport rmq_io
from rmq_store.queues.consumequeue._state cimport BatchStep, TableState
from rmq_store.queues.consumequeue._structs cimport Queue


# `t` is zeroed memory. -ENOMEM: table_done is still due.
cdef int table_init(TableState *t, const rmq_io *io, const char *dir, const char *ext_dir, const char *tmp_dir,
                    int64_t file_size, int64_t ext_file_size, int fd_max, bint readonly) noexcept nogil
cdef void table_done(TableState *t) noexcept nogil
cdef Queue *table_find(TableState *t, const char *topic, int32_t topic_size, int32_t queue_id, bint create) noexcept nogil
cdef Queue *table_at(TableState *t, int64_t i) noexcept nogil
cdef Queue *table_of_topic(TableState *t, const char *topic, int32_t topic_size) noexcept nogil
# Whether new queues of this topic are batch queues, as BatchTopic.has; any thread.
cdef int table_batched(const TableState *t, const char *topic, int32_t topic_size) noexcept nogil
# The step to it, a BatchStep. Under insert_lock. 0 or -ENOMEM.
cdef int table_set_batched(TableState *t, const char *topic, int32_t topic_size, BatchStep step) noexcept nogil
# A queue without messages and files becomes one of the other kind. Under round_lock, run_lock, put lock and insert_lock. 0 or
# -ENOMEM.
cdef int table_change_kind(TableState *t, Queue *q) noexcept nogil
