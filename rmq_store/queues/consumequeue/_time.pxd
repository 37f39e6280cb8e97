# Which queue offset belongs to a store time: the two rules of RocketMQ, 4.9 (nearest entry, file chosen by modification time)
# and 5.x (lower or upper bound, file chosen by store times). Any thread; reads published entries only. Source:
# ConsumeQueue.getOffsetInQueueByTime, MappedFileQueue.getMappedFileByTime (4.9.8), getConsumeQueueMappedFileByTime (5.3.3).
from libc.stdint cimport int32_t, int64_t

from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable

# Store time of the record there; -1: there is none; -errno: it cannot be read.
ctypedef int64_t (*StoreTime)(void *ctx, int64_t physical, int32_t size) noexcept nogil

cdef enum TimeRule:
    TIME_NEAREST                    # 4.9
    TIME_LOWER                      # 5.x, BoundaryType.LOWER (the default)
    TIME_UPPER                      # 5.x, BoundaryType.UPPER


# The queue offset, or -errno from reading the queue's files. physical_min: where the log begins.
cdef int64_t queue_offset_by_time(QueueTable *t, Queue *q, int64_t timestamp, int64_t physical_min, TimeRule rule,
                                  StoreTime store_time, void *ctx) noexcept nogil
