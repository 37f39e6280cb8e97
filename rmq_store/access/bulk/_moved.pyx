"""Records of one store on their way into another: appended as new messages, or as they are, and found again after a crash.

The bytes are whole CommitLog records, one behind the other, as they lie in the log they come from. As new: place, queue offset,
store time and store host are the target's, as of a put. As they are: only the place in the log is; queue offset, store time,
hosts, transaction and all flags stay, so a record has to continue its queue, and the log's time.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy

from rmq_store.access.bulk._rows cimport (ROW_LIGHT_NOT_NEXT, ROW_NOT_BATCHED, Rows, rows_append, rows_begin, rows_check,
                                          rows_end)
from rmq_store.access.writer._put cimport StorePut
from rmq_store.base.io._sync cimport rmq_load, rmq_publish
from rmq_store.codec._layout cimport (CRC_PROPERTY_SIZE, FLAG_BORN_V6, FLAG_INNER_BATCH, FLAG_NEED_UNWRAP, FLAG_STORE_V6,
                                      FLAG_TRANSACTION, TRANSACTION_COMMIT)
from rmq_store.codec._record cimport (RECORD_OK, PropertyView, RecordArgs, RecordView, born_host_size, properties_scan,
                                      record_crc_check, record_parse, record_prepare, store_host_size)
from rmq_store.codec._text cimport Property, property_next
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._queue cimport Queue

from rmq_store.errors import CorruptionError, StoreStateError

cdef enum:
    SYS_FLAG_KEPT = 0x703           # compression and its type, multi tags; the rest says what the other store did
    INNER_FLAGS = FLAG_INNER_BATCH | FLAG_NEED_UNWRAP
    NOT_NEXT = 1                    # the record does not continue its queue
    TOO_OLD = 2                     # it is older than the log's end


cdef inline bint _queued(int32_t sys_flag) noexcept nogil:
    return sys_flag & FLAG_TRANSACTION == 0 or sys_flag & FLAG_TRANSACTION == TRANSACTION_COMMIT


cdef inline int32_t _properties_size(const RecordView *v) noexcept nogil:
    # Without the checksum of the record, which holds for one place only.
    return v.properties_size - CRC_PROPERTY_SIZE if record_crc_check(v) >= 0 else v.properties_size


cdef inline void _common(const RecordView *v, RecordArgs *a) noexcept nogil:
    a.body = v.body
    a.body_size = v.body_size
    a.body_crc = v.body_crc
    a.properties = v.properties
    a.properties_size = _properties_size(v)
    a.trailing_separator = False        # stored as it was
    a.topic = v.topic
    a.topic_size = v.topic_size
    a.queue_id = v.queue_id
    a.flag = v.flag
    a.born_timestamp = v.born_timestamp
    a.reconsume_times = v.reconsume_times
    memcpy(a.born_host, v.born_host, born_host_size(v.sys_flag))


cdef int _as_new(const RecordView *v, RecordArgs *a, bint crc) noexcept nogil:
    # `a` comes with the store's own host.
    _common(v, a)
    a.crc_property = crc
    a.sys_flag = (v.sys_flag & (SYS_FLAG_KEPT | FLAG_BORN_V6)) | (a.sys_flag & FLAG_STORE_V6)
    if v.sys_flag & FLAG_INNER_BATCH:
        a.sys_flag |= v.sys_flag & INNER_FLAGS
    record_prepare(a)
    return 0


cdef int _as_is(const RecordView *v, RecordArgs *a, bint crc) noexcept nogil:
    _common(v, a)
    a.crc_property = a.properties_size != v.properties_size     # as it had one
    a.sys_flag = v.sys_flag
    a.prepared_transaction_offset = v.prepared_transaction_offset
    memcpy(a.store_host, v.store_host, store_host_size(v.sys_flag))
    record_prepare(a)
    return 0


cdef int _continues(Log *log, Queue *q, const RecordView *v) noexcept nogil:
    # Under the put lock. A queue that never had a message begins where its first record says.
    if v.store_timestamp < log.last_timestamp:
        return TOO_OLD
    if not _queued(v.sys_flag):
        return 0
    if q.next_offset == 0 and rmq_load(&q.max_offset) == 0 and v.queue_offset > 0:
        rmq_publish(&q.next_offset, v.queue_offset)
    return 0 if q.next_offset == v.queue_offset else NOT_NEXT


cdef _refuse(StorePut store, const RecordView *v, Queue *q, int status):
    topic = PyBytes_FromStringAndSize(v.topic, v.topic_size).decode("utf-8", "replace")
    if status == TOO_OLD:
        raise StoreStateError(f"message {v.queue_offset} of {topic}/{v.queue_id} was stored at {v.store_timestamp}, and "
                              f"{store.path} has "
                              f"newer ones ({store.log.last_timestamp}): store times never run backwards in a log. As they "
                              "are, messages go into a store that nobody else puts to: copy into a new one, or as new messages")
    if status == ROW_NOT_BATCHED:
        raise StoreStateError(f"message {v.queue_offset} of {topic}/{v.queue_id} is an inner batch, and somebody has deleted "
                              f"the batch queues of this topic in {store.path}: make it a topic with batch queues again")
    if status == ROW_LIGHT_NOT_NEXT:
        raise StoreStateError(f"message {v.queue_offset} of {topic}/{v.queue_id} does not continue one of its light queues in "
                              f"{store.path}: as they are, messages go into a store that nobody else puts to: copy into a new "
                              "one, or as new messages")
    raise StoreStateError(f"message {v.queue_offset} of {topic}/{v.queue_id} does not continue this queue of {store.path}, "
                          f"whose next offset is {q.next_offset}: as they are, messages go into a store that nobody else puts "
                          "to: copy into a new one, or as new messages")


def append_moved(StorePut store not None, const unsigned char[::1] data not None, *, bint as_is, path="records"):
    """Appends whole records of another log, in their order: (records, first log offset, end).

    Not one is appended before all were checked; a refusal for its place comes at the record, those before it are stored.
    Durability: as a put with wait=False: flush() makes it durable. path: named in errors. The GIL is released. Raises
    CorruptionError (no records), MessageIllegal (larger than this store takes), StoreStateError (as_is: it does not continue
    its queue, or is older than the log's end), PutError, StoreNotWriteable.
    """
    cdef Rows r
    cdef int refused
    if as_is:
        rows_begin(&r, store, data, _as_is, _continues)
    else:
        rows_begin(&r, store, data, _as_new, NULL)
    r.lights, r.batches = store.lights.on, True
    try:
        if rows_check(&r, store) != 0:
            raise CorruptionError(path, r.at, "a record of a log", "something else")
        refused = rows_append(&r, store)
        if refused != 0:
            _refuse(store, &r.v, r.queues[r.done], refused)
        return (r.count, r.first, r.end) if r.count else (0, None, None)
    finally:
        rows_end(&r)


cdef inline bint _next_kept(const char **text, const char *end, Property *p) noexcept nogil:
    # The next property, but for the places in light and batch queues, which a new message gets anew.
    while property_next(text, end, p):
        if ((p.name_size != 24 or memcmp(p.name, b"INNER_MULTI_QUEUE_OFFSET", 24) != 0)
                and (p.name_size != 10 or memcmp(p.name, b"INNER_BASE", 10) != 0)):
            return True
    return False


cdef bint _same_properties(const RecordView *a, const RecordView *b) noexcept nogil:
    # But for their places in light queues, or in a batch queue: of records that are in some.
    cdef const char *one = a.properties
    cdef const char *other = b.properties
    cdef const char *one_end = one + _properties_size(a)
    cdef const char *other_end = other + _properties_size(b)
    cdef Property p, q
    while _next_kept(&one, one_end, &p):
        if (not _next_kept(&other, other_end, &q) or p.name_size != q.name_size or p.value_size != q.value_size
                or memcmp(p.name, q.name, p.name_size) != 0 or memcmp(p.value, q.value, p.value_size) != 0):
            return False
    return not _next_kept(&other, other_end, &q)


cdef bint _same(const RecordView *a, const RecordView *b, bint as_is) noexcept nogil:
    # All that an append keeps. A checksum of the record may have wanted a separator before it.
    cdef PropertyView p
    cdef int32_t n = _properties_size(a), more = _properties_size(b) - n
    if (a.body_crc != b.body_crc or a.body_size != b.body_size or a.queue_id != b.queue_id or a.flag != b.flag
            or a.born_timestamp != b.born_timestamp or a.reconsume_times != b.reconsume_times
            or a.topic_size != b.topic_size or memcmp(a.topic, b.topic, a.topic_size) != 0
            or memcmp(a.body, b.body, a.body_size) != 0):
        return False
    if more < 0 or more > 1 or (more == 1 and b.properties[n] != 2) or memcmp(a.properties, b.properties, n) != 0:
        properties_scan(b.properties, b.properties_size, &p)
        if as_is or (p.light_names == NULL and b.sys_flag & FLAG_INNER_BATCH == 0) or not _same_properties(a, b):
            return False
    if not as_is:
        return a.sys_flag & (SYS_FLAG_KEPT | FLAG_INNER_BATCH) == b.sys_flag & (SYS_FLAG_KEPT | FLAG_INNER_BATCH)
    return (a.sys_flag == b.sys_flag and a.store_timestamp == b.store_timestamp
            and (not _queued(a.sys_flag) or a.queue_offset == b.queue_offset))


def in_common(const unsigned char[::1] data not None, const unsigned char[::1] stored not None, *, bint as_is):
    """How many records at the front of `data` were appended as those at the front of `stored`: (records, bytes of data, bytes
    of stored). Both hold whole records. The GIL is released."""
    cdef int64_t size = data.shape[0], length = stored.shape[0], at = 0, place = 0, n = 0
    cdef RecordView a, b
    if size == 0 or length == 0:
        return 0, 0, 0
    with nogil:
        while at < size and place < length:
            if record_parse(&data[at], size - at, &a) != RECORD_OK:
                break
            if record_parse(&stored[place], length - place, &b) != RECORD_OK or not _same(&a, &b, as_is):
                break
            at += a.size
            place += b.size
            n += 1
    return n, at, place


def batch_topics_of(const unsigned char[::1] data not None):
    """The topics of the inner batches among whole records: set of bytes."""
    cdef int64_t size = data.shape[0], at = 0
    cdef RecordView v
    found = set()
    while at < size and record_parse(&data[at], size - at, &v) == RECORD_OK:
        if v.sys_flag & FLAG_INNER_BATCH:
            found.add(PyBytes_FromStringAndSize(v.topic, v.topic_size))
        at += v.size
    return found
