# The bytes of one CommitLog record: the encoder that writes it once, straight into its destination, and the parser that
# never reads past the bound it was given. Pure functions: no clock, no I/O, no allocation, no Python; any thread.
#
#   # field                     bytes          # field                     bytes
#   1 totalSize                 4             11 storeTimestamp            8
#   2 magicCode                 4             12 storeHostAddress          8 or 20
#   3 bodyCRC                   4             13 reconsumeTimes            4
#   4 queueId                   4             14 preparedTransactionOffset 8
#   5 flag                      4             15 bodyLength                4
#   6 queueOffset               8             16 body                      n
#   7 physicalOffset            8             17 topicLength               1 (v1) or 2 (v2)
#   8 sysFlag                   4             18 topic                     n
#   9 bornTimestamp             8             19 propertiesLength          2
#  10 bornHost                  8 or 20       20 properties                n
#
# Source: CommitLog.java (4.9.8), MessageExtEncoder.java and MessageDecoder.java (5.3.3). Offsets and sizes: _layout.pxd.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy

from rmq_store.base.io._sync cimport rmq_prefetch
from rmq_store.codec._layout cimport (CRC_PROPERTY_SIZE, FLAG_BORN_V6, FLAG_STORE_V6, HOST_V4_SIZE, HOST_V6_MORE, HOST_V6_SIZE,
                                      MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_AT_BODY, RECORD_AT_BODY_CRC, RECORD_AT_BODY_SIZE,
                                      RECORD_AT_BORN_HOST, RECORD_AT_BORN_TIMESTAMP, RECORD_AT_FLAG, RECORD_AT_MAGIC,
                                      RECORD_AT_PHYSICAL_OFFSET, RECORD_AT_PREPARED_OFFSET, RECORD_AT_QUEUE_ID,
                                      RECORD_AT_QUEUE_OFFSET, RECORD_AT_RECONSUME_TIMES, RECORD_AT_SIZE, RECORD_AT_STORE_HOST,
                                      RECORD_AT_STORE_TIMESTAMP, RECORD_AT_SYS_FLAG, RECORD_FIXED_SIZE, RECORD_HEAD_SIZE,
                                      TOPIC_SIZE_V1_MAX)
from rmq_store.codec._text cimport Property, property_next

cdef enum:
    TOPIC_NAME_MAX = 255        # bytes of a topic that has queues: NAME_MAX of Linux


cdef extern from "rmq_bytes.h" nogil:
    void rmq_put16(unsigned char *p, int16_t v)
    void rmq_put32(unsigned char *p, int32_t v)
    void rmq_put64(unsigned char *p, int64_t v)
    void rmq_put64_last(unsigned char *p, int64_t v)
    int16_t rmq_get16(const unsigned char *p)
    int32_t rmq_get32(const unsigned char *p)
    int64_t rmq_get64(const unsigned char *p)

cdef extern from "libdeflate.h" nogil:
    uint32_t libdeflate_crc32(uint32_t crc, const void *data, size_t n)

cdef enum RecordStatus:
    RECORD_OK = 0
    RECORD_BLANK = 1            # end of file; view.size is the whole rest of the file
    RECORD_BAD_MAGIC = -1
    RECORD_BAD_SIZE = -2        # a length is negative or leads past the bound
    RECORD_SIZE_MISMATCH = -3   # the parts add up to something else than totalSize (RocketMQ skips such a record)

cdef struct RecordArgs:
    # What is to be stored; pointers are borrowed for the call. record_prepare fills the fields in the last group.
    const unsigned char *body
    const char *topic
    const char *properties      # stored first, as given (no separator at its end is added unless needed)
    const char *more_properties     # stored behind them, as given (the properties of a batch as a whole); size 0: none
    const char *tags            # TAGS, NULL: none
    const char *keys            # KEYS, NULL: none
    int64_t born_timestamp
    int64_t prepared_transaction_offset
    int32_t body_size
    int32_t topic_size
    int32_t properties_size
    int32_t more_properties_size
    int32_t tags_size
    int32_t keys_size
    int32_t queue_id
    int32_t flag
    int32_t sys_flag            # bits 0x10 and 0x20 decide the width of the hosts below
    int32_t reconsume_times
    int32_t body_crc            # CRC-32 & 0x7fffffff, or -1: taken over the copied bytes (mutable bodies)
    int32_t trailing_separator  # 5.x ends the properties with 0x02, 4.9 does not
    int32_t crc_property        # append __CRC32# (enabledAppendPropCRC)
    uint8_t born_host[HOST_V6_SIZE]     # address 4 or 16, then port 4
    uint8_t store_host[HOST_V6_SIZE]
    # computed
    int32_t properties_total
    int32_t size

cdef struct RecordView:
    # One parsed record; pointers lead into the caller's bytes.
    const unsigned char *start
    const unsigned char *body
    const char *topic
    const char *properties
    const unsigned char *born_host
    const unsigned char *store_host
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_transaction_offset
    int32_t size
    int32_t magic
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t body_size
    int32_t topic_size
    int32_t properties_size

cdef struct PropertyView:
    # The properties the store itself looks at; NULL where absent. Last one of a name wins, as in Java's map.
    const char *tags
    const char *keys
    const char *uniq_key
    const char *delay
    const char *light_names     # INNER_MULTI_DISPATCH
    const char *light_offsets   # INNER_MULTI_QUEUE_OFFSET
    int32_t tags_size
    int32_t keys_size
    int32_t uniq_key_size
    int32_t delay_size
    int32_t light_names_size
    int32_t light_offsets_size


cdef inline int32_t body_crc32(const void *body, int32_t size) noexcept nogil:
    # UtilAll.crc32; 0 for an empty body.
    return <int32_t> (libdeflate_crc32(0, body, size) & 0x7FFFFFFF) if size > 0 else 0


cdef inline int host_size(bint v6) noexcept nogil:
    return HOST_V6_SIZE if v6 else HOST_V4_SIZE


cdef inline int born_host_size(int32_t sys_flag) noexcept nogil:
    return host_size(sys_flag & FLAG_BORN_V6)


cdef inline int store_host_size(int32_t sys_flag) noexcept nogil:
    return host_size(sys_flag & FLAG_STORE_V6)


cdef inline bint _ends_open(const char *properties, int32_t size) noexcept nogil:
    # True if something stored behind these properties needs a separator first.
    return size > 0 and properties[size - 1] != 2


cdef inline int32_t record_prepare(RecordArgs *a) noexcept nogil:
    # Sizes everything that does not depend on the position. Returns the record's size (64-bit safe: the caller has checked
    # each part against its limit, so the sum fits).
    cdef int32_t total = a.properties_size
    cdef bint open_end = _ends_open(a.properties, a.properties_size)
    if a.more_properties_size > 0:
        total += a.more_properties_size + open_end
        open_end = _ends_open(a.more_properties, a.more_properties_size)
    if a.tags != NULL:
        total += 5 + a.tags_size + open_end
        open_end = True
    if a.keys != NULL:
        total += 5 + a.keys_size + open_end
        open_end = True
    if open_end and (a.trailing_separator or a.crc_property):
        total += 1
    if a.crc_property:
        total += CRC_PROPERTY_SIZE
    a.properties_total = total
    a.size = RECORD_FIXED_SIZE + a.body_size + a.topic_size + total
    if a.sys_flag & FLAG_BORN_V6:
        a.size += HOST_V6_MORE
    if a.sys_flag & FLAG_STORE_V6:
        a.size += HOST_V6_MORE
    if a.topic_size > TOPIC_SIZE_V1_MAX:
        a.size += 1
    return a.size


cdef inline void _put_crc_property(unsigned char *record, int32_t size, int64_t head) noexcept nogil:
    # MessageDecoder.createCrc32: ten digits, the least significant first. `head`: the first eight bytes, not there yet.
    cdef unsigned char *p = record + size - CRC_PROPERTY_SIZE
    cdef unsigned char first[RECORD_HEAD_SIZE]
    cdef uint32_t crc
    cdef int i
    rmq_put64(first, head)
    crc = libdeflate_crc32(0, first, RECORD_HEAD_SIZE)
    crc = libdeflate_crc32(crc, record + RECORD_HEAD_SIZE, size - CRC_PROPERTY_SIZE - RECORD_HEAD_SIZE) & 0x7FFFFFFF
    memcpy(p, b"__CRC32#\x01", 9)
    for i in range(9, 19):
        p[i] = 48 + crc % 10
        crc = crc // 10
    p[19] = 2


cdef inline int64_t _head(int32_t size, int32_t magic) noexcept nogil:
    return <int64_t> size << 32 | <uint32_t> magic


cdef inline unsigned char *_put_property(unsigned char *p, bint open_end, const char *name, const char *value,
                                         int32_t size) noexcept nogil:
    # `name`: of four letters, with its separator. open_end: what is before it wants one. Returns the end.
    if open_end:
        p[0] = 2
        p += 1
    memcpy(p, name, 5)
    memcpy(p + 5, value, size)
    return p + 5 + size


cdef inline void _put_properties(unsigned char *p, const RecordArgs *a) noexcept nogil:
    cdef bint open_end
    if a.properties_size > 0:           # else there may be none at all, and C knows no copy from NULL, not even of nothing
        memcpy(p, a.properties, a.properties_size)
        p += a.properties_size
    open_end = _ends_open(a.properties, a.properties_size)
    if a.more_properties_size > 0:
        if open_end:
            p[0] = 2
            p += 1
        memcpy(p, a.more_properties, a.more_properties_size)
        p += a.more_properties_size
        open_end = _ends_open(a.more_properties, a.more_properties_size)
    if a.tags != NULL:
        p = _put_property(p, open_end, b"TAGS\x01", a.tags, a.tags_size)
        open_end = True
    if a.keys != NULL:
        p = _put_property(p, open_end, b"KEYS\x01", a.keys, a.keys_size)
        open_end = True
    if open_end and (a.trailing_separator or a.crc_property):
        p[0] = 2


cdef inline void record_encode(unsigned char *to, const RecordArgs *a, int64_t queue_offset, int64_t physical_offset,
                               int64_t store_timestamp) noexcept nogil:
    # Writes a.size bytes at `to`, the first eight, without which it is no record, with one store after all others: `to` may
    # lie in a mapped file, and a process that is killed in the middle leaves nothing of it. a went through record_prepare.
    cdef int64_t head = _head(a.size, MAGIC_V1 if a.topic_size <= TOPIC_SIZE_V1_MAX else MAGIC_V2)
    cdef unsigned char *p = to      # moved on by each IPv6 host, so that the fields behind it are where the layout says
    rmq_put32(to + RECORD_AT_BODY_CRC, a.body_crc)
    rmq_put32(to + RECORD_AT_QUEUE_ID, a.queue_id)
    rmq_put32(to + RECORD_AT_FLAG, a.flag)
    rmq_put64(to + RECORD_AT_QUEUE_OFFSET, queue_offset)
    rmq_put64(to + RECORD_AT_PHYSICAL_OFFSET, physical_offset)
    rmq_put32(to + RECORD_AT_SYS_FLAG, a.sys_flag)
    rmq_put64(to + RECORD_AT_BORN_TIMESTAMP, a.born_timestamp)
    if a.sys_flag & FLAG_BORN_V6:
        memcpy(to + RECORD_AT_BORN_HOST, a.born_host, HOST_V6_SIZE)
        p += HOST_V6_MORE
    else:
        memcpy(to + RECORD_AT_BORN_HOST, a.born_host, HOST_V4_SIZE)
    rmq_put64(p + RECORD_AT_STORE_TIMESTAMP, store_timestamp)
    if a.sys_flag & FLAG_STORE_V6:
        memcpy(p + RECORD_AT_STORE_HOST, a.store_host, HOST_V6_SIZE)
        p += HOST_V6_MORE
    else:
        memcpy(p + RECORD_AT_STORE_HOST, a.store_host, HOST_V4_SIZE)
    rmq_put32(p + RECORD_AT_RECONSUME_TIMES, a.reconsume_times)
    rmq_put64(p + RECORD_AT_PREPARED_OFFSET, a.prepared_transaction_offset)
    rmq_put32(p + RECORD_AT_BODY_SIZE, a.body_size)
    p += RECORD_AT_BODY
    memcpy(p, a.body, a.body_size)
    if a.body_crc < 0:
        rmq_put32(to + RECORD_AT_BODY_CRC, body_crc32(p, a.body_size))
    p += a.body_size
    if a.topic_size <= TOPIC_SIZE_V1_MAX:
        p[0] = <unsigned char> a.topic_size
        p += 1
    else:
        rmq_put16(p, <int16_t> a.topic_size)
        p += 2
    memcpy(p, a.topic, a.topic_size)
    p += a.topic_size
    rmq_put16(p, <int16_t> a.properties_total)
    p += 2
    if a.properties_total > 0:
        _put_properties(p, a)
        if a.crc_property:
            _put_crc_property(to, a.size, head)
    rmq_put64_last(to, head)


cdef inline void blank_encode(unsigned char *to, int32_t rest) noexcept nogil:
    # The end-of-file record: `rest` is all that is left of the file, only its head is written, with one store.
    rmq_put64_last(to, _head(rest, MAGIC_BLANK))


cdef inline int32_t head_size(const unsigned char *head) noexcept nogil:
    # The fields that a look at a record's first bytes needs: totalSize, and below magicCode and physicalOffset.
    return rmq_get32(head + RECORD_AT_SIZE)


cdef inline int32_t head_magic(const unsigned char *head) noexcept nogil:
    return rmq_get32(head + RECORD_AT_MAGIC)


cdef inline int64_t head_physical(const unsigned char *head) noexcept nogil:
    return rmq_get64(head + RECORD_AT_PHYSICAL_OFFSET)


cdef inline int64_t head_store_timestamp(const unsigned char *head) noexcept nogil:
    # storeTimestamp of a record of which the first RECORD_TIMED_SIZE bytes are there.
    cdef int more = HOST_V6_MORE if rmq_get32(head + RECORD_AT_SYS_FLAG) & FLAG_BORN_V6 else 0
    return rmq_get64(head + more + RECORD_AT_STORE_TIMESTAMP)


cdef inline void record_prefetch_next(const RecordView *v, int64_t available) noexcept nogil:
    # Of `available` bytes from this record on, begins to fetch what record_parse will read: the head of the record behind this
    # one, and head and end of the fourth behind it, which lies there where records are as long as this one. Without, a walk
    # over bodies of 1 KiB mostly waits for memory. What is not there yet, a producer may be writing just now.
    cdef int64_t ahead = 4 * <int64_t> v.size
    if available > v.size:
        rmq_prefetch(v.start + v.size)
        rmq_prefetch(v.start + v.size + 64)
    if available < ahead + v.size:
        return
    rmq_prefetch(v.start + ahead)
    rmq_prefetch(v.start + ahead + 64)
    rmq_prefetch(v.body + v.body_size + ahead)
    rmq_prefetch(v.body + v.body_size + ahead + 64)


cdef inline RecordStatus record_parse(const unsigned char *at, int64_t available, RecordView *v) noexcept nogil:
    # Reads one record out of `available` bytes. Every length is checked against them before it is used; the view is whole only
    # with RECORD_OK. As RocketMQ (checkMessageAndReturnSize): a negative body or properties length counts as none, and only
    # where a part cannot be read at all is it BAD_SIZE, else a wrong sum is SIZE_MISMATCH, which dispatch steps over.
    cdef int64_t pos, size
    cdef int32_t n
    v.start = at
    v.size = 0
    if available < RECORD_HEAD_SIZE:
        return RECORD_BAD_SIZE
    v.size = rmq_get32(at + RECORD_AT_SIZE)
    v.magic = rmq_get32(at + RECORD_AT_MAGIC)
    if v.magic == MAGIC_BLANK:
        return RECORD_BLANK
    if v.magic != MAGIC_V1 and v.magic != MAGIC_V2:
        return RECORD_BAD_MAGIC
    size = v.size
    if size < RECORD_FIXED_SIZE or size > available:
        return RECORD_BAD_SIZE
    v.body_crc = rmq_get32(at + RECORD_AT_BODY_CRC)
    v.queue_id = rmq_get32(at + RECORD_AT_QUEUE_ID)
    v.flag = rmq_get32(at + RECORD_AT_FLAG)
    v.queue_offset = rmq_get64(at + RECORD_AT_QUEUE_OFFSET)
    v.physical_offset = rmq_get64(at + RECORD_AT_PHYSICAL_OFFSET)
    v.sys_flag = rmq_get32(at + RECORD_AT_SYS_FLAG)
    v.born_timestamp = rmq_get64(at + RECORD_AT_BORN_TIMESTAMP)
    v.born_host = at + RECORD_AT_BORN_HOST
    pos = HOST_V6_MORE if v.sys_flag & FLAG_BORN_V6 else 0
    v.store_timestamp = rmq_get64(at + pos + RECORD_AT_STORE_TIMESTAMP)
    v.store_host = at + pos + RECORD_AT_STORE_HOST
    if v.sys_flag & FLAG_STORE_V6:
        pos += HOST_V6_MORE
    if pos + RECORD_AT_BODY > available:
        return RECORD_BAD_SIZE
    v.reconsume_times = rmq_get32(at + pos + RECORD_AT_RECONSUME_TIMES)
    v.prepared_transaction_offset = rmq_get64(at + pos + RECORD_AT_PREPARED_OFFSET)
    n = rmq_get32(at + pos + RECORD_AT_BODY_SIZE)
    pos += RECORD_AT_BODY
    if n < 0:
        n = 0
    if n > size or pos + n + 2 > available:
        return RECORD_BAD_SIZE
    v.body = at + pos
    v.body_size = n
    pos += n
    if v.magic == MAGIC_V1:
        n = <signed char> at[pos]
        pos += 1
    else:
        n = rmq_get16(at + pos)
        pos += 2
    if n < 0 or n > size or pos + n + 2 > available:
        return RECORD_BAD_SIZE
    v.topic = <const char *> (at + pos)
    v.topic_size = n
    pos += n
    n = rmq_get16(at + pos)
    pos += 2
    if n < 0:
        n = 0
    if n > size or pos + n > available:
        return RECORD_BAD_SIZE
    v.properties = <const char *> (at + pos)
    v.properties_size = n
    if pos + n != size:
        return RECORD_SIZE_MISMATCH
    return RECORD_OK


cdef inline int record_crc_check(const RecordView *v) noexcept nogil:
    # The whole-record checksum (forceVerifyPropCRC): 1 right, 0 wrong, -1 the record does not end with a __CRC32# property.
    cdef const unsigned char *p = v.start + v.size - CRC_PROPERTY_SIZE
    cdef int64_t expected = 0
    cdef int i
    if v.properties_size < CRC_PROPERTY_SIZE or memcmp(p, b"__CRC32#\x01", 9) != 0 or p[19] != 2:
        return -1
    if v.properties_size > CRC_PROPERTY_SIZE and (p - 1)[0] != 2:
        return -1
    for i in range(18, 8, -1):
        if p[i] < 48 or p[i] > 57:
            return 0
        expected = expected * 10 + p[i] - 48
    return expected == (libdeflate_crc32(0, v.start, v.size - CRC_PROPERTY_SIZE) & 0x7FFFFFFF)


cdef inline void properties_scan(const char *text, int32_t size, PropertyView *out) noexcept nogil:
    # For the names the store needs; the last of a name wins.
    cdef const char *end = text + size
    cdef Property p
    out.tags = out.keys = out.uniq_key = out.delay = out.light_names = out.light_offsets = NULL
    out.tags_size = out.keys_size = out.uniq_key_size = out.delay_size = out.light_names_size = out.light_offsets_size = 0
    while property_next(&text, end, &p):
        if p.name_size == 4:
            if memcmp(p.name, b"TAGS", 4) == 0:
                out.tags = p.value
                out.tags_size = p.value_size
            elif memcmp(p.name, b"KEYS", 4) == 0:
                out.keys = p.value
                out.keys_size = p.value_size
        elif p.name_size == 8:
            if memcmp(p.name, b"UNIQ_KEY", 8) == 0:
                out.uniq_key = p.value
                out.uniq_key_size = p.value_size
        elif p.name_size == 5:
            if memcmp(p.name, b"DELAY", 5) == 0:
                out.delay = p.value
                out.delay_size = p.value_size
        elif p.name_size == 20:
            if memcmp(p.name, b"INNER_MULTI_DISPATCH", 20) == 0:
                out.light_names = p.value
                out.light_names_size = p.value_size
        elif p.name_size == 24:
            if memcmp(p.name, b"INNER_MULTI_QUEUE_OFFSET", 24) == 0:
                out.light_offsets = p.value
                out.light_offsets_size = p.value_size


cdef inline bint topic_spelt(const char *text, int32_t size) noexcept nogil:
    # TopicValidator: one or more of [%|A-Za-z0-9_-].
    cdef int32_t i
    cdef unsigned char c
    for i in range(size):
        c = <unsigned char> text[i]
        if not (97 <= c <= 122 or 65 <= c <= 90 or 48 <= c <= 57 or c == 37 or c == 124 or c == 95 or c == 45):
            return False
    return size > 0


cdef inline bint topic_fits(const char *text, int32_t size) noexcept nogil:
    # Anything else never becomes a directory. A record of version 2 has two bytes for the length of its topic, and no file
    # system takes as much.
    return size <= TOPIC_NAME_MAX and topic_spelt(text, size)


cdef inline bint topic_light(const char *topic, int32_t size) noexcept nogil:
    # A light queue (LmqDispatch) leads to records of other topics, whose queue offsets are those of their own queues.
    return size > 5 and memcmp(topic, b"%LMQ%", 5) == 0


cdef inline bint record_in_light_queue(const RecordView *v, const char *name, int32_t size) noexcept nogil:
    # The property INNER_MULTI_DISPATCH lists, with commas, the light queues that a record is in besides its own.
    cdef const char *text = v.properties
    cdef const char *end = text + v.properties_size
    cdef const char *at
    cdef Property p
    while property_next(&text, end, &p):
        if p.name_size != 20 or memcmp(p.name, b"INNER_MULTI_DISPATCH", 20) != 0:
            continue
        at = p.value
        while p.value + p.value_size - at >= size:
            if memcmp(at, name, size) == 0 and (at + size == p.value + p.value_size or at[size] == c','):
                return True
            at = <const char *> memchr(at, c',', p.value + p.value_size - at)
            if at == NULL:
                break
            at += 1
    return False


cdef inline bint record_of_queue(const RecordView *v, const char *topic, int32_t topic_size, int32_t queue_id) noexcept nogil:
    return v.queue_id == queue_id and v.topic_size == topic_size and memcmp(v.topic, topic, topic_size) == 0


cdef inline bint record_in_place(const RecordView *v, const char *topic, int32_t topic_size, int32_t queue_id,
                                 int64_t queue_offset) noexcept nogil:
    # Whether an entry of that queue, at that queue offset, may lead to this record.
    return ((v.queue_offset == queue_offset and record_of_queue(v, topic, topic_size, queue_id))
            or (topic_light(topic, topic_size) and record_in_light_queue(v, topic, topic_size)))
