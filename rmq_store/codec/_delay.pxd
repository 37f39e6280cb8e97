# Delay levels in C: which level a message asks for, and when it is due. Pure functions over a table of levels in milliseconds
# (delay_ms[level - 1]) that the caller owns; no clock, no Python; any thread. The rewriting itself is in delay.py.
from libc.stdint cimport INT64_MIN, int32_t, int64_t
from libc.string cimport memcmp

from rmq_store.codec._record cimport PropertyView, RecordView
from rmq_store.codec._text cimport java_hash

cdef enum:
    SCHEDULE_TOPIC_SIZE = 19


cdef inline int64_t delay_level(const char *text, int32_t size) noexcept nogil:
    # Integer.parseInt of the property DELAY, ASCII digits only; INT64_MIN where RocketMQ would throw.
    cdef int64_t level = 0
    cdef bint negative = size > 0 and text[0] == 45
    cdef int32_t at = 1 if size > 0 and (text[0] == 45 or text[0] == 43) else 0
    if at == size:
        return INT64_MIN
    while at < size:
        if text[at] < 48 or text[at] > 57:
            return INT64_MIN
        level = level * 10 + text[at] - 48
        if level > <int64_t> 2147483647 + negative:
            return INT64_MIN
        at += 1
    return -level if negative else level


cdef inline int64_t delay_deliver_timestamp(int64_t level, int64_t store_timestamp, const int64_t *delay_ms,
                                            int32_t levels) noexcept nogil:
    # ScheduleMessageService.computeDeliverTimestamp: a level that is not in the table waits one second.
    if level < 1 or level > levels:
        return store_timestamp + 1000
    return store_timestamp + delay_ms[level - 1]


cdef inline int64_t delay_tags_code(const RecordView *v, const PropertyView *p, const int64_t *delay_ms,
                                    int32_t levels) noexcept nogil:
    # The tagsCode of a record's queue entry: the delivery time of a message that waits in SCHEDULE_TOPIC_XXXX, else the hash of
    # TAGS (CommitLog.checkMessageAndReturnSize). A DELAY that is no number counts as none.
    cdef int64_t level
    if (p.delay != NULL and v.topic_size == SCHEDULE_TOPIC_SIZE
            and memcmp(v.topic, b"SCHEDULE_TOPIC_XXXX", SCHEDULE_TOPIC_SIZE) == 0):
        level = delay_level(p.delay, p.delay_size)
        if level > levels:
            level = levels
        if level > 0:
            return delay_deliver_timestamp(level, v.store_timestamp, delay_ms, levels)
    return 0 if p.tags == NULL else java_hash(p.tags, p.tags_size)
