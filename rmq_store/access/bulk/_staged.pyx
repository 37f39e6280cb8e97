"""Records on their way into a store: encoded by tasks without a place, and appended by whoever holds the store's lock.

A staged record is a CommitLog record whose queueOffset, physicalOffset and storeTimestamp are zero; a staging file is nothing
but such records. Appending gives each its place, time and host under the put lock, exactly as a put does.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from rmq_store.access.bulk._rows cimport ROW_NO_RECORD, Rows, rows_append, rows_begin, rows_check, rows_end
from rmq_store.access.writer._put cimport StorePut
from rmq_store.codec._delay cimport delay_level
from rmq_store.codec._layout cimport (BLANK_SIZE, CRC_PROPERTY_SIZE, FLAG_BORN_V6, FLAG_STORE_V6, FLAG_TRANSACTION,
                                      HOST_V4_SIZE, PROPERTIES_SIZE_MAX)
from rmq_store.codec._record cimport (RECORD_OK, PropertyView, RecordArgs, RecordView, body_crc32, born_host_size, head_size,
                                      properties_scan, record_crc_check, record_encode, record_parse, record_prepare,
                                      topic_fits)

from rmq_store.errors import CorruptionError, MessageIllegal, PropertiesSizeExceeded, exceeds

cdef enum:
    SYS_FLAG_KEPT = 0x703           # compression and its type, multi tags; the rest says what the store did
    BODY_MAX = 1 << 30

cdef struct Column:
    # One Arrow column: validity bits (NULL: no nulls), int32 ends (NULL: fixed width), data.
    const uint8_t *valid
    const int32_t *ends
    const unsigned char *data

cdef enum:
    TOPIC = 0
    BODY = 1
    TAGS = 2
    KEYS = 3
    QUEUE = 4
    FLAG = 5
    BORN = 6
    SYS_FLAG = 7
    RECONSUME = 8
    MAP = 9
    NAMES = 10
    VALUES = 11
    COLUMNS = 12

COLUMN_ORDER = ("topic", "body", "tags", "keys", "queueId", "flag", "bornTimestamp", "sysFlag", "reconsumeTimes", "properties",
                "names", "values")


cdef class _Held:
    # Columns of a batch, and the buffers they point into.
    cdef Column[COLUMNS] at
    cdef bint[COLUMNS] there
    cdef list views

    def __cinit__(self, columns):
        cdef const unsigned char[::1] view
        cdef int i
        self.views = []
        memset(self.at, 0, sizeof(self.at))
        for i, name in enumerate(COLUMN_ORDER):
            buffers = columns.get(name)
            self.there[i] = buffers is not None
            if buffers is None:
                continue
            validity, ends, data = buffers
            if validity is not None and len(validity):
                view = memoryview(validity).cast("B")
                self.views.append(view)
                self.at[i].valid = &view[0]
            if ends is not None and len(ends):
                view = memoryview(ends).cast("B")
                self.views.append(view)
                self.at[i].ends = <const int32_t *> &view[0]
            if data is not None and len(data):
                view = memoryview(data).cast("B")
                self.views.append(view)
                self.at[i].data = &view[0]


cdef inline bint _null(const Column *c, int64_t i) noexcept nogil:
    return c.valid != NULL and not (c.valid[i >> 3] >> (i & 7)) & 1


cdef const char *_EMPTY = b""
cdef unsigned char[8] _NO_HOST    # rows have none: the store's own is taken, as a put does


cdef inline const char *_text(const Column *c, int64_t i, int32_t *size) noexcept nogil:
    size[0] = 0
    if c.ends == NULL or _null(c, i):
        return NULL
    size[0] = c.ends[i + 1] - c.ends[i]
    return <const char *> c.data + c.ends[i] if c.data != NULL else _EMPTY


cdef inline int32_t _int32(const Column *c, int64_t i) noexcept nogil:
    return 0 if c.data == NULL or _null(c, i) else (<const int32_t *> c.data)[i]


cdef inline bint _separated(const char *text, int32_t size) noexcept nogil:
    return memchr(text, 1, size) != NULL or memchr(text, 2, size) != NULL


cdef enum:
    ROW_OK = 0
    ROW_NO_TOPIC = 1
    ROW_TOPIC = 2
    ROW_BODY = 3
    ROW_SEPARATOR = 4
    ROW_QUEUE = 5
    ROW_PROPERTIES = 6
    ROW_DELAY = 7

ROW_ERRORS = {
    ROW_NO_TOPIC: "topic is null or empty: fill the column, or give the option topic",
    ROW_TOPIC: "topic is longer than 255 bytes or has other characters than % | A-Z a-z 0-9 _ -",
    ROW_BODY: "body is null or longer than 1 GiB: give an empty one where there is none, and leave out or shorten others",
    ROW_SEPARATOR: "tags, keys or a property holds the character 0x01 or 0x02, which separates properties in a record",
    ROW_QUEUE: "queueId is negative",
    ROW_DELAY: "the property DELAY asks for a delay, which only a put can arrange, or is no number: drop it, or make it 0",
}


cdef int _map_row(const Column *at, int64_t i, char *properties, RecordArgs *a) noexcept nogil:
    # The map of properties of one row, written to `properties`; a.properties_size says how many bytes. a.tags, a.keys are set.
    cdef int32_t name_size = 0, value_size = 0, used = 0
    cdef const char *text
    cdef const char *value
    cdef int64_t k
    if at[MAP].ends == NULL or _null(&at[MAP], i):
        return ROW_OK
    for k in range(at[MAP].ends[i], at[MAP].ends[i + 1]):
        text = _text(&at[NAMES], k, &name_size)
        value = _text(&at[VALUES], k, &value_size)
        if text == NULL or value == NULL or name_size == 0 or value_size == 0:
            continue
        if name_size == 4 and ((a.tags != NULL and memcmp(text, b"TAGS", 4) == 0)
                               or (a.keys != NULL and memcmp(text, b"KEYS", 4) == 0)):
            continue            # the columns say it
        if name_size == 8 and memcmp(text, b"__CRC32#", 8) == 0:
            continue            # of another record
        if name_size == 5 and memcmp(text, b"DELAY", 5) == 0 and _delays(value, value_size) and not _scheduled(a):
            return ROW_DELAY
        if _separated(text, name_size) or _separated(value, value_size):
            return ROW_SEPARATOR
        if <int64_t> used + name_size + value_size + 2 > PROPERTIES_SIZE_MAX:
            return ROW_PROPERTIES
        memcpy(properties + used, text, name_size)
        used += name_size
        properties[used] = 1
        memcpy(properties + used + 1, value, value_size)
        used += 1 + value_size
        properties[used] = 2
        used += 1
    a.properties_size = used
    return ROW_OK


cdef int _row(_Held h, int64_t i, const char *topic, int32_t topic_size, int32_t queue_id, int64_t now,
              char *properties, RecordArgs *a) noexcept nogil:
    # One row as arguments; its properties are written to `properties` (room for PROPERTIES_SIZE_MAX).
    cdef const Column *at = &h.at[0]
    cdef int32_t size = 0
    cdef int rc
    cdef const char *text
    memset(a, 0, sizeof(RecordArgs))
    a.topic = topic
    a.topic_size = topic_size
    if h.there[TOPIC]:
        text = _text(&at[TOPIC], i, &size)
        if text != NULL:
            a.topic = text
            a.topic_size = size
    if a.topic == NULL or a.topic_size == 0:
        return ROW_NO_TOPIC
    if a.topic_size > 255 or not topic_fits(a.topic, a.topic_size):
        return ROW_TOPIC
    a.body = <const unsigned char *> _text(&at[BODY], i, &size)
    if a.body == NULL or size > BODY_MAX:
        return ROW_BODY
    a.body_size = size
    a.body_crc = body_crc32(a.body, size)
    a.queue_id = _int32(&at[QUEUE], i) if h.there[QUEUE] else queue_id
    if a.queue_id < 0:
        return ROW_QUEUE
    a.flag = _int32(&at[FLAG], i)
    a.sys_flag = _int32(&at[SYS_FLAG], i) & SYS_FLAG_KEPT
    a.reconsume_times = _int32(&at[RECONSUME], i)
    a.born_timestamp = now
    if at[BORN].data != NULL and not _null(&at[BORN], i):
        a.born_timestamp = (<const int64_t *> at[BORN].data)[i]
    a.tags = _text(&at[TAGS], i, &a.tags_size)
    a.keys = _text(&at[KEYS], i, &a.keys_size)
    if a.tags_size == 0:
        a.tags = NULL
    if a.keys_size == 0:
        a.keys = NULL
    if (a.tags != NULL and _separated(a.tags, a.tags_size)) or (a.keys != NULL and _separated(a.keys, a.keys_size)):
        return ROW_SEPARATOR
    rc = _map_row(at, i, properties, a)
    if rc != ROW_OK:
        return rc
    a.properties = properties
    a.trailing_separator = True
    record_prepare(a)
    return ROW_PROPERTIES if a.properties_total > PROPERTIES_SIZE_MAX else ROW_OK


cdef inline bint _delays(const char *value, int32_t size) noexcept nogil:
    # Level 0 and below is no delay, and stored as it is. What is no number a put refuses.
    cdef int64_t level = delay_level(value, size)
    return level > 0 or level == INT64_MIN


cdef inline bint _scheduled(const RecordArgs *a) noexcept nogil:
    return a.topic_size == 19 and memcmp(a.topic, b"SCHEDULE_TOPIC_XXXX", 19) == 0


def encode_rows(columns, int64_t count, *, bytes topic=None, int32_t queue_id=0, int64_t now=0, str of="",
                int64_t first=0):
    """Rows of Arrow columns as staged records, one behind the other: bytes.

    columns: {name: (validity or None, int32 ends or None, data)} with the names of COLUMN_ORDER: topic, body, tags, keys as
    text or bytes, queueId, flag, sysFlag, reconsumeTimes as int32, bornTimestamp as int64 ms, properties as a map (its ends,
    then names and values). topic, queue_id: for rows without. now: born time of rows without, ms. Raises MessageIllegal and
    PropertiesSizeExceeded with the number of the row, from `first` on; of: words behind it, for whose rows these are. Any
    thread; the GIL is released.
    """
    cdef _Held held = _Held(columns)
    cdef RecordArgs a
    cdef char *properties = <char *> malloc(PROPERTIES_SIZE_MAX + 1)
    cdef unsigned char *out = NULL
    cdef unsigned char *grown
    cdef int64_t used = 0, capacity = 0, i = 0
    cdef int error = ROW_OK
    cdef const char *text = NULL
    cdef int32_t text_size = 0
    cdef bint full = properties == NULL
    if topic is not None:
        text = topic
        text_size = <int32_t> len(topic)
    try:
        with nogil:
            while i < count and not full:
                error = _row(held, i, text, text_size, queue_id, now, properties, &a)
                if error != ROW_OK:
                    break
                if used + a.size > capacity:
                    capacity = (used + a.size) * 2 if i == 0 else (used + a.size) * (count + 1) // i * 9 // 8 + 4096
                    grown = <unsigned char *> realloc(out, capacity)
                    full = grown == NULL
                    if full:
                        break
                    out = grown
                record_encode(out + used, &a, 0, 0, 0)
                used += a.size
                i += 1
        if full:
            raise MemoryError("staged records")
        if error == ROW_PROPERTIES:
            raise PropertiesSizeExceeded(exceeds(f"properties of row {first + i}{of}", "larger", f"{PROPERTIES_SIZE_MAX} bytes",
                                                 "put what is long into the body"))
        if error != ROW_OK:
            raise MessageIllegal(f"row {first + i}{of}: {ROW_ERRORS[error]}")
        return PyBytes_FromStringAndSize(<char *> out, used)
    finally:
        free(out)
        free(properties)


cdef int _place(const RecordView *v, RecordArgs *a, bint record_crc) noexcept nogil:
    # Arguments of a put that stores what a staged record holds. 0, ROW_DELAY, or ROW_NO_RECORD.
    cdef PropertyView p
    if v.sys_flag & FLAG_TRANSACTION:
        return ROW_NO_RECORD
    a.body = v.body
    a.body_size = v.body_size
    a.body_crc = v.body_crc
    a.properties = v.properties
    a.properties_size = v.properties_size
    if record_crc_check(v) >= 0:        # another record's; ours is made anew
        a.properties_size -= CRC_PROPERTY_SIZE
    a.flag = v.flag
    a.born_timestamp = v.born_timestamp
    a.reconsume_times = v.reconsume_times
    a.sys_flag = (v.sys_flag & SYS_FLAG_KEPT) | (a.sys_flag & (FLAG_STORE_V6 | FLAG_BORN_V6))
    if v.sys_flag & FLAG_BORN_V6 or memcmp(v.born_host, _NO_HOST, HOST_V4_SIZE) != 0:
        a.sys_flag = (a.sys_flag & ~FLAG_BORN_V6) | (v.sys_flag & FLAG_BORN_V6)
        memcpy(a.born_host, v.born_host, born_host_size(v.sys_flag))
    a.trailing_separator = False        # stored as it was staged
    a.crc_property = record_crc
    a.topic = v.topic
    a.topic_size = v.topic_size
    a.queue_id = v.queue_id
    record_prepare(a)
    properties_scan(a.properties, a.properties_size, &p)
    return ROW_DELAY if p.delay != NULL and _delays(p.delay, p.delay_size) and not _scheduled(a) else ROW_OK


cdef int _check(Rows *r, StorePut store, path) except -1:
    # Raises for what could not be appended.
    cdef int wrong = rows_check(r, store)
    if wrong == ROW_NO_RECORD:
        raise CorruptionError(path, r.at, "a staged record", "something else")
    if wrong != ROW_OK:
        raise MessageIllegal(f"{path}: record {r.count}: {ROW_ERRORS[wrong]}")
    return 0


def check_staged(StorePut store not None, const unsigned char[::1] data not None, path="staged records"):
    """How many staged records these bytes are. Raises what append_staged would raise before it appends the first of them."""
    cdef Rows r
    rows_begin(&r, store, data, _place, NULL)
    try:
        _check(&r, store, path)
        return r.count
    finally:
        rows_end(&r)


def append_staged(StorePut store not None, const unsigned char[::1] data not None, path="staged records"):
    """Appends staged records to an open store, in their order: (records, first physical offset, end).

    Not one is appended before all were checked; others may put in between. path: named in errors. Durability: as a put with
    wait=False: flush() makes it durable. Raises CorruptionError (no staged records), MessageIllegal (larger than this store
    takes, or another reason that a put has), PutError, StoreNotWriteable.
    """
    cdef Rows r
    rows_begin(&r, store, data, _place, NULL)
    try:
        _check(&r, store, path)
        rows_append(&r, store)
        return (r.count, r.first, r.end) if r.count else (0, None, None)
    finally:
        rows_end(&r)


def places_before(StorePut store not None, const unsigned char[::1] data not None, int64_t at, int64_t stop):
    """Where these staged records would lie if they were appended from log offset `at` on: how many begin in front of `stop`,
    and where the one behind those does, or they end. Appends nothing. Raises CorruptionError."""
    cdef int64_t i = 0, n = 0, size = data.shape[0], file_size, place
    cdef RecordView v
    cdef RecordArgs a
    cdef bint good = True
    store._enter()
    file_size = store.log.row.file_size
    with nogil:
        while i < size:
            good = record_parse(&data[i], size - i, &v) == RECORD_OK
            if not good:
                break
            a = store.plain
            _place(&v, &a, store.record_crc)
            place = at - at % file_size         # as _log.pyx does: the end-of-file record goes behind it in the same file
            if at + a.size + BLANK_SIZE > place + file_size:
                at = place + file_size
            if at >= stop:
                break
            at += a.size
            i += v.size
            n += 1
    if not good:
        raise CorruptionError("staged records", i, "a staged record", "something else")
    return n, at


def matching(const unsigned char[::1] data not None, int64_t at, const unsigned char[::1] stored not None, int64_t place):
    """Whether the staged record at `at` is what the stored record at `place` of other bytes was made of: the sizes of both
    (staged, stored), or None. Compares all that an append keeps."""
    cdef RecordView a, b
    cdef int64_t n
    if at >= data.shape[0] or place >= stored.shape[0]:
        return None
    if record_parse(&data[at], data.shape[0] - at, &a) != RECORD_OK:
        return None
    if record_parse(&stored[place], stored.shape[0] - place, &b) != RECORD_OK:
        return None
    n = a.properties_size - CRC_PROPERTY_SIZE if record_crc_check(&a) >= 0 else a.properties_size
    if (a.body_crc != b.body_crc or a.body_size != b.body_size or a.queue_id != b.queue_id or a.flag != b.flag
            or a.born_timestamp != b.born_timestamp or a.topic_size != b.topic_size or n > b.properties_size
            or memcmp(a.topic, b.topic, a.topic_size) != 0 or memcmp(a.properties, b.properties, n) != 0
            or memcmp(a.body, b.body, a.body_size) != 0):
        return None
    return a.size, b.size


def whole_records(const unsigned char[::1] data not None):
    """How many bytes at the front are whole staged records, by the lengths that they begin with."""
    cdef int64_t at = 0, size = data.shape[0], length
    with nogil:
        while size - at >= 4:
            length = head_size(&data[at])
            if length <= 0 or length > size - at:
                break
            at += length
    return at


def staged_count(const unsigned char[::1] data not None):
    """How many staged records these bytes are; -1 if they are something else."""
    cdef int64_t at = 0, n = 0, size = data.shape[0]
    cdef RecordView v
    with nogil:
        while at < size:
            if record_parse(&data[at], size - at, &v) != RECORD_OK:
                n = -1
                break
            at += v.size
            n += 1
    return n
