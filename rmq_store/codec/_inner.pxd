# Inner batches: one record whose body has several messages, and the entry that it has in a batch queue. RocketMQ:
# MessageSysFlag.INNER_BATCH_FLAG, MessageConst.PROPERTY_INNER_NUM and PROPERTY_INNER_BASE, BatchConsumeQueue. Pure functions,
# no allocation; any thread.
#
#   # field              bytes        of a batch unit; a file of a batch queue is a row of them
#   1 commitLogOffset    8
#   2 size               4            of the record
#   3 tagsCode           8            of the record
#   4 storeTime          8
#   5 msgBaseOffset      8            queue offset of the first message of the batch
#   6 batchSize          2            how many messages it has
#   7 compactedOffset    4            -1
#   8 reserved           4            0
from libc.stdint cimport INT16_MAX, INT64_MAX, int16_t, int32_t, int64_t
from libc.string cimport memcmp

from rmq_store.codec._record cimport (RecordView, record_in_place, record_of_queue, rmq_get16, rmq_get32, rmq_get64, rmq_put16,
                                      rmq_put32, rmq_put64)
from rmq_store.codec._text cimport Property, property_next

cdef enum:
    BATCH_AT_PHYSICAL_OFFSET = 0
    BATCH_AT_SIZE = 8
    BATCH_AT_TAGS_CODE = 12
    BATCH_AT_STORE_TIMESTAMP = 20
    BATCH_AT_BASE = 28
    BATCH_AT_COUNT = 36
    BATCH_AT_COMPACTED = 38
    BATCH_AT_RESERVED = 42
    BATCH_UNIT_SIZE = 46
    INNER_DIGITS_MAX = 18           # of a number in a property: so many fit into 64 bits, whatever they are
    INNER_COUNT_MAX = 32767         # RocketMQ reads INNER_NUM as a short

cdef struct Inner:
    # What the properties of a record say of the batch in it.
    int64_t base                    # INNER_BASE: queue offset of its first message
    int32_t count                   # INNER_NUM: how many messages; 0: the record is no batch


cdef inline int64_t inner_number(const char *text, int32_t size) noexcept nogil:
    # Of decimal digits alone; -1: it is none.
    cdef int64_t n = 0
    cdef int32_t i
    if size <= 0 or size > INNER_DIGITS_MAX:
        return -1
    for i in range(size):
        if not c'0' <= text[i] <= c'9':
            return -1
        n = n * 10 + (text[i] - c'0')
    return n


cdef inline Inner inner_scan(const char *properties, int32_t size) noexcept nogil:
    # As RocketMQ's checkMessageAndReturnSize: both properties make a batch. Numbers that none can be make none.
    cdef const char *text = properties
    cdef const char *end = properties + size
    cdef Property p
    cdef Inner found = Inner(-1, 0)
    cdef int64_t count = 0
    while property_next(&text, end, &p):
        if p.name_size == 9 and memcmp(p.name, b"INNER_NUM", 9) == 0:
            count = inner_number(p.value, p.value_size)
        elif p.name_size == 10 and memcmp(p.name, b"INNER_BASE", 10) == 0:
            found.base = inner_number(p.value, p.value_size)
    if found.base >= 0 and 0 < count <= INNER_COUNT_MAX:
        found.count = <int32_t> count
    return found


cdef inline Inner inner_of(const RecordView *v) noexcept nogil:
    return inner_scan(v.properties, v.properties_size)


cdef inline bint inner_in_place(const RecordView *v, const char *topic, int32_t topic_size, int32_t queue_id,
                                int64_t queue_offset) noexcept nogil:
    # Whether a batch queue may lead to this record at that queue offset.
    cdef Inner inner
    if not record_of_queue(v, topic, topic_size, queue_id):
        return False
    inner = inner_of(v)
    return inner.count > 0 and inner.base <= queue_offset < inner.base + inner.count


cdef inline int64_t batch_physical(const unsigned char *u) noexcept nogil:
    return rmq_get64(u + BATCH_AT_PHYSICAL_OFFSET)


cdef inline int32_t batch_bytes(const unsigned char *u) noexcept nogil:
    return rmq_get32(u + BATCH_AT_SIZE)


cdef inline int64_t batch_code(const unsigned char *u) noexcept nogil:
    return rmq_get64(u + BATCH_AT_TAGS_CODE)


cdef inline int64_t batch_time(const unsigned char *u) noexcept nogil:
    return rmq_get64(u + BATCH_AT_STORE_TIMESTAMP)


cdef inline int64_t batch_base(const unsigned char *u) noexcept nogil:
    return rmq_get64(u + BATCH_AT_BASE)


cdef inline int32_t batch_count(const unsigned char *u) noexcept nogil:
    return rmq_get16(u + BATCH_AT_COUNT)


cdef inline bint batch_valid(const unsigned char *u) noexcept nogil:
    # Unwritten space is zeros. What would lead beyond all offsets is no unit.
    cdef int32_t size = batch_bytes(u), count = batch_count(u)
    return (size > 0 and count > 0 and 0 <= batch_physical(u) <= INT64_MAX - size
            and 0 <= batch_base(u) <= INT64_MAX - count)


cdef inline void batch_put(unsigned char *u, int64_t physical, int32_t size, int64_t tags_code, int64_t store_timestamp,
                           int64_t base, int32_t count) noexcept nogil:
    rmq_put64(u + BATCH_AT_PHYSICAL_OFFSET, physical)
    rmq_put32(u + BATCH_AT_SIZE, size)
    rmq_put64(u + BATCH_AT_TAGS_CODE, tags_code)
    rmq_put64(u + BATCH_AT_STORE_TIMESTAMP, store_timestamp)
    rmq_put64(u + BATCH_AT_BASE, base)
    rmq_put16(u + BATCH_AT_COUNT, <int16_t> count)
    rmq_put32(u + BATCH_AT_COMPACTED, -1)
    rmq_put32(u + BATCH_AT_RESERVED, 0)
