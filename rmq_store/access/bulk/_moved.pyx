"""Records of one store on their way into another: appended as new messages, or as they are, and found again after a crash.

The bytes are whole CommitLog records, one behind the other, as they lie in the log they come from. As new: place, queue offset,
store time and store host are the target's, as of a put. As they are: only the place in the log is; queue offset, store time,
hosts, transaction and all flags stay, so a record has to continue its queue, and the log's time.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from rmq_store.access.writer._put cimport StorePut, Topic
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.codec._record cimport (CRC_PROPERTY_SIZE, FLAG_BORN_V6, FLAG_STORE_V6, FLAG_TRANSACTION, RECORD_OK,
                                      TRANSACTION_COMMIT, RecordArgs, RecordView, record_crc_check, record_parse,
                                      record_prepare)
from rmq_store.log.commitlog._log cimport APPEND_OK, Appended, Log, log_append, log_lock_begin, log_lock_end
from rmq_store.queues.consumequeue._queue cimport Queue

from rmq_store.errors import CorruptionError, StoreNotWriteable, StoreStateError

cdef enum:
    SYS_FLAG_KEPT = 0x703           # compression and its type, multi tags; the rest says what the other store did
    MANY_PER_LOCK = 1024
    BYTES_PER_LOCK = 1 << 20
    NOT_NEXT = -1                   # beside AppendStatus: the record does not continue its queue
    TOO_OLD = -2                    # it is older than the log's end

cdef struct Checked:
    Queue **queues                  # of each record, in order; freed by whoever checks
    int64_t count


cdef inline bint _queued(int32_t sys_flag) noexcept nogil:
    return sys_flag & FLAG_TRANSACTION == 0 or sys_flag & FLAG_TRANSACTION == TRANSACTION_COMMIT


cdef inline int32_t _properties_size(const RecordView *v) noexcept nogil:
    # Without the checksum of the record, which holds for one place only.
    return v.properties_size - CRC_PROPERTY_SIZE if record_crc_check(v) >= 0 else v.properties_size


cdef void _arguments(const RecordView *v, RecordArgs *a, bint as_is, bint crc) noexcept nogil:
    # `a` comes as a plain put has it: with the store's own hosts.
    cdef int32_t born_v6 = v.sys_flag & FLAG_BORN_V6
    a.body = v.body
    a.body_size = v.body_size
    a.body_crc = v.body_crc
    a.properties = v.properties
    a.properties_size = _properties_size(v)
    a.trailing_separator = False        # stored as it was
    a.crc_property = crc
    a.topic = v.topic
    a.topic_size = v.topic_size
    a.queue_id = v.queue_id
    a.flag = v.flag
    a.born_timestamp = v.born_timestamp
    a.reconsume_times = v.reconsume_times
    memcpy(a.born_host, v.born_host, 20 if born_v6 else 8)
    if as_is:
        a.sys_flag = v.sys_flag
        a.prepared_transaction_offset = v.prepared_transaction_offset
        memcpy(a.store_host, v.store_host, 20 if v.sys_flag & FLAG_STORE_V6 else 8)
        a.crc_property = a.properties_size != v.properties_size
    else:
        a.sys_flag = (v.sys_flag & SYS_FLAG_KEPT) | born_v6 | (a.sys_flag & FLAG_STORE_V6)
    record_prepare(a)


cdef Queue *_queue(StorePut store, dict known, const RecordView *v) except NULL:
    cdef Topic topic
    name = PyBytes_FromStringAndSize(v.topic, v.topic_size)
    found = known.get(name)
    topic = store._topic(name.decode("utf-8", "surrogateescape")) if found is None else <Topic> found
    if found is None:
        known[name] = topic
    return store._queue(topic, v.queue_id)


cdef int _check(StorePut store, const unsigned char *p, int64_t size, bint as_is, path, Checked *out) except -1:
    # Raises for what could not be appended, whatever the queues' ends are.
    cdef int64_t at = 0, n = 0, capacity = 0
    cdef RecordView v
    cdef RecordArgs a
    cdef Queue **grown
    cdef Queue *q = NULL
    known = {}
    store._enter()
    if store.readonly:
        raise StoreNotWriteable(store.path)
    while at < size:
        if record_parse(p + at, size - at, &v) != RECORD_OK or v.queue_id < 0:
            raise CorruptionError(path, at, "a record of a log", "something else")
        if n == capacity:
            capacity = max(4096, 2 * n)
            grown = <Queue **> realloc(out.queues, capacity * sizeof(Queue *))
            if grown == NULL:
                raise MemoryError("records")
            out.queues = grown
        if q == NULL or v.queue_id != q.queue_id or v.topic_size != q.topic_size or \
                memcmp(v.topic, q.topic, v.topic_size) != 0:
            q = _queue(store, known, &v)
        out.queues[n] = q
        a = store.plain
        _arguments(&v, &a, as_is, store.record_crc)
        store._check_size(&a)
        n += 1
        at += v.size
    out.count = n
    return 0


cdef inline int _continues(Log *log, Queue *q, const RecordView *v) noexcept nogil:
    # Under the put lock. A queue that never had a message begins where its first record says.
    if v.store_timestamp < log.last_timestamp:
        return TOO_OLD
    if not _queued(v.sys_flag):
        return APPEND_OK
    if q.next_offset == 0 and rmq_load(&q.max_offset) == 0 and v.queue_offset > 0:
        q.next_offset = v.queue_offset
    return APPEND_OK if q.next_offset == v.queue_offset else NOT_NEXT


cdef _refuse(StorePut store, const RecordView *v, Queue *q, int status):
    topic = PyBytes_FromStringAndSize(v.topic, v.topic_size).decode("utf-8", "replace")
    if status == TOO_OLD:
        raise StoreStateError(f"message {v.queue_offset} of {topic}/{v.queue_id} was stored at {v.store_timestamp}, and "
                              f"{store.path} has "
                              f"newer ones ({store.log.last_timestamp}): store times never run backwards in a log. As they "
                              "are, messages go into a store that nobody else puts to: copy into a new one, or as new messages")
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
    cdef int64_t size = data.shape[0], at = 0, done = 0, room, stop, first = -1, end = 0
    cdef RecordView v
    cdef RecordArgs a
    cdef Appended out
    cdef Checked checked
    cdef Log *log
    cdef int64_t now
    cdef int status = APPEND_OK
    cdef const unsigned char *p
    cdef bint crc = store.record_crc
    checked.queues = NULL
    checked.count = 0
    if size == 0:
        store._enter()
        return 0, None, None
    p = &data[0]
    try:
        _check(store, p, size, as_is, path, &checked)
        while done < checked.count:
            store._enter()
            log = store.log
            store.calls += 1
            with nogil:
                now = log_lock_begin(log)
                stop = done + MANY_PER_LOCK
                room = BYTES_PER_LOCK
                while done < checked.count and done < stop and room > 0:
                    record_parse(p + at, size - at, &v)
                    a = store.plain
                    _arguments(&v, &a, as_is, crc)
                    status = _continues(log, checked.queues[done], &v) if as_is else APPEND_OK
                    if status == APPEND_OK:
                        status = log_append(log, &a, checked.queues[done], v.store_timestamp if as_is else now, &out)
                    if status != APPEND_OK:
                        break
                    if first < 0:
                        first = out.offset
                    end = out.offset + a.size
                    room -= a.size
                    at += v.size
                    done += 1
                log_lock_end(log)
            store.calls -= 1
            if status < 0:
                _refuse(store, &v, checked.queues[done], status)
            elif status != APPEND_OK:
                store._wait_for(status, a.size)
    finally:
        free(checked.queues)
    return checked.count, first, end


cdef bint _same(const RecordView *a, const RecordView *b, bint as_is) noexcept nogil:
    # All that an append keeps. A checksum of the record may have wanted a separator before it.
    cdef int32_t n = _properties_size(a), more = _properties_size(b) - n
    if (a.body_crc != b.body_crc or a.body_size != b.body_size or a.queue_id != b.queue_id or a.flag != b.flag
            or a.born_timestamp != b.born_timestamp or a.reconsume_times != b.reconsume_times
            or a.topic_size != b.topic_size or more < 0 or more > 1 or (more == 1 and b.properties[n] != 2)
            or memcmp(a.topic, b.topic, a.topic_size) != 0 or memcmp(a.properties, b.properties, n) != 0
            or memcmp(a.body, b.body, a.body_size) != 0):
        return False
    if not as_is:
        return a.sys_flag & SYS_FLAG_KEPT == b.sys_flag & SYS_FLAG_KEPT
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
