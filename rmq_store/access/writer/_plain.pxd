# What tells a plain message from an inner batch, and its queue from a batch queue.
from libc.stdint cimport int32_t

from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable


# The queue, made if need be. Raises MessageIllegal for a batch queue.
cdef Queue *plain_queue(QueueTable *t, bytes topic, int32_t queue_id) except NULL
# sysFlag without what the hosts decide. Raises MessageIllegal for that of an inner batch.
cdef int32_t plain_flags(int32_t sys_flag) except -1
