"""Plain messages and batch queues do not meet. Contract in _plain.pxd.

RocketMQ stores a plain message of a topic with batch queues, and no queue leads to it. Here the put is refused.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t

from rmq_store.codec._layout cimport FLAG_BORN_V6, FLAG_INNER_BATCH, FLAG_STORE_V6
from rmq_store.queues.consumequeue._kinds cimport queue_keep_plain
from rmq_store.queues.consumequeue._queue cimport Queue, QueueTable, queues_find

from rmq_store import errors


cdef Queue *plain_queue(QueueTable *t, bytes topic, int32_t queue_id) except NULL:
    cdef Queue *q = queues_find(t, PyBytes_AS_STRING(topic), <int32_t> PyBytes_GET_SIZE(topic), queue_id, True)
    if q == NULL:
        raise MemoryError("queue")
    if not queue_keep_plain(t, q):
        raise errors.MessageIllegal(f"{topic.decode('utf-8', 'replace')} has batch queues (queue.type=BatchCQ), in which "
                                    "readers find inner batches alone: use put_inner_batch, or another topic")
    return q


cdef int32_t plain_flags(int32_t sys_flag) except -1:
    if sys_flag & FLAG_INNER_BATCH:
        raise errors.MessageIllegal(f"sys_flag is {sys_flag:#x}, which says that the message is an inner batch (0x80): put the "
                                    "batch by put_inner_batch")
    return sys_flag & ~(FLAG_BORN_V6 | FLAG_STORE_V6)
