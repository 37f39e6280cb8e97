"""Records on their way into a log. Contract in _rows.pxd."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp

from rmq_store.access.writer._put cimport StorePut, Topic, Turn, place_locked
from rmq_store.codec._record cimport RECORD_OK, RecordView, record_parse
from rmq_store.log.commitlog._log cimport APPEND_OK, Log, log_append
from rmq_store.queues.consumequeue._queue cimport Queue

from rmq_store.errors import StoreNotWriteable

cdef enum:
    MANY_PER_LOCK = 1024            # records, or so many bytes, that are appended before others are let in
    BYTES_PER_LOCK = 1 << 20


cdef int rows_begin(Rows *r, StorePut store, const unsigned char[::1] data, Fill fill, Continues continues) except -1:
    r.size = data.shape[0]
    r.p = &data[0] if r.size > 0 else NULL
    r.fill = fill
    r.continues = continues
    r.plain = store.plain
    r.crc = store.record_crc
    r.queues = NULL
    r.count = r.done = r.at = r.end = 0
    r.first = -1
    r.refused = 0
    r.turn = Turn(args=&r.args, queue=NULL, out=&r.out, size=0, born_now=False)
    store._enter()
    return 0


cdef Queue *_queue(StorePut store, dict known, const RecordView *v) except NULL:
    name = PyBytes_FromStringAndSize(v.topic, v.topic_size)
    found = known.get(name)
    if found is None:
        found = known[name] = store._topic(name.decode("utf-8", "surrogateescape"))
    return store._queue(<Topic> found, v.queue_id)


cdef int rows_check(Rows *r, StorePut store) except? -2:
    cdef int64_t capacity = 0
    cdef Queue **grown
    cdef Queue *q = NULL
    cdef int wrong
    cdef RecordView *v = &r.v
    known = {}
    if store.readonly:
        raise StoreNotWriteable(store.path)
    r.at = 0
    while r.at < r.size:
        if record_parse(r.p + r.at, r.size - r.at, v) != RECORD_OK or v.queue_id < 0:
            return ROW_NO_RECORD
        r.args = r.plain
        wrong = r.fill(v, &r.args, r.crc)
        if wrong != 0:
            return wrong
        store._check_size(&r.args)
        if r.count == capacity:
            capacity = max(4096, 2 * r.count)
            grown = <Queue **> realloc(r.queues, capacity * sizeof(Queue *))
            if grown == NULL:
                raise MemoryError("records")
            r.queues = grown
        if q == NULL or v.queue_id != q.queue_id or v.topic_size != q.topic_size or \
                memcmp(v.topic, q.topic, v.topic_size) != 0:
            q = _queue(store, known, v)
        r.queues[r.count] = q
        r.count += 1
        r.at += v.size
    r.at = 0
    return 0


cdef int _place_some(Log *log, Turn *t, int64_t now) noexcept nogil:
    # So many that others get their turn, too.
    cdef Rows *r = <Rows *> t
    cdef int64_t stop = r.done + MANY_PER_LOCK
    cdef int64_t room = BYTES_PER_LOCK
    cdef int status
    while r.done < r.count and r.done < stop and room > 0:
        record_parse(r.p + r.at, r.size - r.at, &r.v)
        r.args = r.plain
        r.fill(&r.v, &r.args, r.crc)
        t.size = r.args.size
        if r.continues != NULL:
            r.refused = r.continues(log, r.queues[r.done], &r.v)
            if r.refused != 0:
                break
            now = r.v.store_timestamp
        status = log_append(log, &r.args, r.queues[r.done], now, &r.out)
        if status != APPEND_OK:
            return status
        if r.first < 0:
            r.first = r.out.offset
        r.end = r.out.offset + r.args.size
        room -= r.args.size
        r.at += r.v.size
        r.done += 1
    return APPEND_OK


cdef int rows_append(Rows *r, StorePut store) except? -2:
    while r.done < r.count and r.refused == 0:
        place_locked(store, _place_some, &r.turn, True, True)
    return r.refused


cdef void rows_end(Rows *r) noexcept:
    free(r.queues)
    r.queues = NULL
