"""Counting the messages of a queue that pass a filter (RocketMQ: ConsumeQueue.estimateMessageCount)."""
import os

from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from rmq_store.access.reader._batches cimport unwrapped
from rmq_store.access.reader._checked cimport utf8, whole
from rmq_store.access.reader._get cimport StoreGet, entry_missed, entry_tagged
from rmq_store.access.reader._look cimport record_next
from rmq_store.access.reader._message cimport Message
from rmq_store.access.reader._request cimport Found, GetRequest, request_passes
from rmq_store.base.io._sync cimport rmq_load
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._inner cimport BATCH_UNIT_SIZE
from rmq_store.codec._layout cimport UNIT_SIZE
from rmq_store.codec._record cimport RecordView
from rmq_store.codec._text cimport java_hash
from rmq_store.codec._unit cimport unit_bytes, unit_code, unit_physical
from rmq_store.filter._bitmap cimport FilterTable, GroupFilter
from rmq_store.filter._program cimport SqlFilter, chosen_filter
from rmq_store.log.commitlog._log cimport Log
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._queue cimport ExtWindow, Queue, QueueTable, queue_read, queues_find

from rmq_store import errors

cdef enum:
    UNITS_AT_ONCE = 64
    BATCHED_AT_ONCE = 256
    BYTES_AT_ONCE = 1 << 20
    CODES_MAX = 64


cdef int64_t _count(GetRequest *r, Log *log, QueueTable *queues, Queue *q, int64_t end, int64_t scan_max, int64_t match_max,
                    int64_t *matched) noexcept nogil:
    # How many entries from r.offset on were looked at, or -errno.
    cdef unsigned char[UNITS_AT_ONCE * UNIT_SIZE] units
    cdef const unsigned char *unit
    cdef int64_t n, i, scanned = 0
    cdef LogFile *f = NULL
    cdef ExtWindow window
    cdef RecordView v
    cdef bint held = False
    cdef int rc, error = 0
    window.at = window.size = 0
    matched[0] = 0
    while error == 0 and r.offset + scanned < end and scanned < scan_max and matched[0] <= match_max:
        n = queue_read(queues, q, r.offset + scanned, units,
                       min(end - r.offset - scanned, scan_max - scanned, <int64_t> UNITS_AT_ONCE))
        if n <= 0:
            error = <int> n
            break
        for i in range(n):
            if error < 0 or matched[0] > match_max:
                break
            unit = units + i * UNIT_SIZE
            scanned += 1
            if r.codes != NULL and not entry_tagged(r, queues, q, &window, unit_code(unit)):
                continue
            if r.filter != NULL:
                if r.bits != NULL and entry_missed(r.bits, queues, q, &window, unit):
                    continue
                rc = record_next(log, unit_physical(unit), unit_bytes(unit), &f, &held, &v)
                if rc < 0:
                    error = rc
                if rc <= 0 or not request_passes(r, &v):
                    continue
            matched[0] += 1
    if held:
        log_file_release(f)
    return error if error < 0 else scanned


cdef int64_t _count_batched(StoreGet store, GetRequest *r, int64_t end, int64_t match_max, int64_t *matched) except -1:
    # As _count, of a batch queue with a filter of the properties: each message of a record has its own.
    cdef int64_t begin = r.offset, next
    cdef Message m
    r.unwraps = True
    r.bytes_max = r.bytes_max_memory = r.bytes_max_disk = BYTES_AT_ONCE
    r.count_max_memory = r.count_max_disk = BATCHED_AT_ONCE
    r.memory_bytes = INT64_MAX
    r.scan_bytes_max = BATCHED_AT_ONCE * BATCH_UNIT_SIZE
    r.found = <Found *> malloc(BATCHED_AT_ONCE * sizeof(Found))
    if r.found == NULL:
        raise MemoryError("count")
    try:
        while r.offset < end and matched[0] <= match_max:
            store._enter()
            r.count_max = min(<int64_t> BATCHED_AT_ONCE, end - r.offset)
            store.calls += 1
            with nogil:
                store._get(r)
            store.calls -= 1
            found, next, _ = unwrapped(store._views(r, None), r, None)
            if r.error < 0:
                raise OSError(-r.error, os.strerror(-r.error), store.path)
            for m in found:
                matched[0] += m.v.queue_offset < end
            if next <= r.offset:
                break                   # truncated meanwhile
            r.offset = next
    finally:
        free(r.found)
    return min(r.offset, end) - begin


def count_matches(StoreGet store not None, topic, queue_id, begin, end, tags, sql, scan_max, match_max):
    """Looks at the entries of a queue from offset `begin` to before `end`, at most scan_max, until more than match_max pass the
    filter. Returns (how many passed, how many it has looked at, how many there are). Tags are compared by hash code. Raises
    ArgumentIllegal, FilterIllegal, OSError."""
    cdef GetRequest r
    cdef int32_t[CODES_MAX] codes
    cdef int64_t matched = 0, scanned, last = whole(end, "end", INT64_MIN, INT64_MAX), first
    cdef int64_t scans = whole(scan_max, "scan_max", 1, INT64_MAX), matches = whole(match_max, "match_max", 0, INT64_MAX)
    cdef bytes name = utf8(topic, "topic"), text
    cdef int32_t number = <int32_t> whole(queue_id, "queue_id", 0, INT32_MAX)
    cdef SqlFilter chosen
    cdef GroupFilter known = None
    cdef Queue *q
    memset(&r, 0, sizeof(GetRequest))
    r.offset = whole(begin, "begin", INT64_MIN, INT64_MAX)
    store._enter()
    chosen = chosen_filter(sql, tags)       # imports the parser: not in a child of fork
    if chosen is not None:
        r.filter = &chosen.program
        if store.filter_table is not None:
            known = (<FilterTable> store.filter_table).find(topic, chosen.sql)
            r.bits = NULL if known is None else &known.bits
    wanted = {tag.strip() for tag in tags.split("||") if tag.strip()} if tags is not None and tags != "*" else set()
    if len(wanted) > CODES_MAX:
        raise ValueError(errors.exceeds("number of tags", len(wanted), CODES_MAX, "ask for fewer, or for all"))
    for tag in wanted:
        text = utf8(tag, "tags")
        codes[r.codes_count] = java_hash(text, <int32_t> len(text))
        r.codes_count += 1
    r.codes = codes if wanted else NULL
    store._enter()
    r.ext_enabled = store.ext_enabled
    q = queues_find(store.queues, name, <int32_t> len(name), number, False)
    if q == NULL:
        return 0, 0, 0
    first = rmq_load(&q.min_offset)
    if r.offset < first:
        r.offset = first
    first = rmq_load(&q.max_offset)
    if last > first:
        last = first
    if r.offset >= last:
        return 0, 0, 0
    if r.filter == NULL and r.codes == NULL:
        return last - r.offset, last - r.offset, last - r.offset
    if r.filter != NULL and queue_batched(q):
        r.topic, r.topic_size, r.queue_id, first = name, <int32_t> len(name), number, r.offset
        scanned = _count_batched(store, &r, min(last, first + scans), matches, &matched)
        return matched, scanned, last - first
    store.calls += 1
    with nogil:
        scanned = _count(&r, store.log, store.queues, q, last, scans, matches, &matched)
    store.calls -= 1
    if scanned < 0:
        raise OSError(-scanned, os.strerror(-scanned), f"{store.path}: {topic}, queue {queue_id}")
    return matched, scanned, last - r.offset
