# Queues that another process writes, where its cleaning has deleted what they begin with. The control thread, under round_lock.
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._structs cimport QueueTable

# The log begins at `physical` now: so do the queues. moved: since the last call; else only those are asked that could not tell
# then, as the writer's recovery was about to bring an entry back, or the queue began anew. 0 or -errno: of one queue, which is
# asked again.
cdef int queues_follow_min(QueueTable *t, int64_t physical, bint moved) noexcept nogil
# Records before `physical` were deleted that nobody has walked over: any queue may have entries of them, or have begun anew.
# So may one that has a directory (queue_was_cleaned: 1 or -errno).
cdef void queues_were_cleaned(QueueTable *t, int64_t physical) noexcept nogil
cdef int queue_was_cleaned(QueueTable *t, const char *topic, int32_t topic_size, int32_t queue_id, bint inner,
                           int64_t physical) noexcept nogil
