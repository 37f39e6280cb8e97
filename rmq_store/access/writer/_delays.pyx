"""Where a message waits that is to be delivered later. Contract in _delays.pxd.

Source: HookUtils.handleScheduleMessage (5.3.3).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t

from rmq_store.access.core._core cimport StoreCore
from rmq_store.access.writer._plain cimport plain_queue
from rmq_store.codec._layout cimport FLAG_TRANSACTION, TRANSACTION_COMMIT
from rmq_store.queues.consumequeue._batches cimport topic_batched

from rmq_store import errors
from rmq_store.codec.delay import SCHEDULE_TOPIC, delay_rewrite
from rmq_store.codec.timer import TIMER_TOPIC, timer_rewrite

cdef frozenset _NEVER = frozenset(("RMQ_SYS_TRANS_HALF_TOPIC", SCHEDULE_TOPIC, TIMER_TOPIC))    # nothing is delivered there


cdef tuple delays_rewrite(StoreCore store, str topic, int32_t queue_id, bytes properties, int32_t sys_flag):
    # Until something delivers the message, it must be asked for: there are options that say that nothing does. What is
    # delivered to a batch queue no reader finds.
    cdef bytes name = topic.encode("utf-8", "surrogatepass")
    if topic_batched(store.queues, PyBytes_AS_STRING(name), <int32_t> PyBytes_GET_SIZE(name)):
        plain_queue(store.queues, name, queue_id)
    options = store.options
    found = delay_rewrite(topic, queue_id, properties, sys_flag=sys_flag, levels=options.delay_levels, compat=options.compat)
    if found is None:
        if b"TIMER_DEL" in properties and (sys_flag & FLAG_TRANSACTION) in (0, TRANSACTION_COMMIT):
            return _timed(store, topic, queue_id, properties)
        return topic, queue_id, properties
    if topic in _NEVER:
        raise errors.MessageIllegal(f"topic is {topic!r}: RocketMQ's own, a delayed message is never delivered to it; put "
                                    "it without a delay level")
    if options.delay == "refuse":
        raise errors.ServiceNotAvailable(
            "the message has a delay level, and this store is open with delay='refuse': open it without, or with "
            "delay='store_only' to store it for a broker that delivers")
    return tuple(found)


cdef tuple _timed(StoreCore store, str topic, int32_t queue_id, bytes properties):
    options = store.options
    found = timer_rewrite(topic, queue_id, properties, now=store.log.io.wall_ms(store.log.io.ctx),
                          precision_ms=options.timer_precision_ms, max_delay_sec=options.timer_max_delay_sec,
                          enabled=options.timer_wheel_enable, compat=options.compat)
    if found is None:
        return topic, queue_id, properties
    if topic in _NEVER:
        raise errors.MessageIllegal(f"topic is {topic!r}: RocketMQ's own, a timer message is never delivered to it; put it "
                                    "without a time of delivery")
    store._admit_timer(found[1], b"TIMER_DEL_UNIQKEY\x01" in properties)
    return TIMER_TOPIC, 0, found[0]
