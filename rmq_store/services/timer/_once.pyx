"""Which copies of timer messages the log has already. Contract in _once.pxd."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memset

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._sync cimport ENOMEM, rmq_load
from rmq_store.base.segment._file cimport LogFile, log_file_release, row_find, row_start
from rmq_store.codec._record cimport RECORD_BLANK, RecordArgs, RecordView, record_parse
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.recovery._scan cimport scan_next_good

cdef enum:
    PLACES_MIN = 1024

cdef uint64_t HASH_BEGIN = 0xCBF29CE484222325U          # FNV-1a


cdef uint64_t _hash(uint64_t h, const void *bytes, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        h = (h ^ (<const unsigned char *> bytes)[i]) * <uint64_t> 0x100000001B3U
    return h


cdef uint64_t _number(uint64_t h, int64_t n) noexcept nogil:
    return _hash(h, &n, sizeof(n))


cdef uint64_t _properties(uint64_t h, const char *text, int64_t size) noexcept nogil:
    # Without those that each delivery of one message sets anew, and however they end.
    cdef const char *end = text + size
    cdef const char *stop
    while text < end:
        stop = <const char *> memchr(text, 2, end - text)
        if stop == NULL:
            stop = end
        if not ((stop - text >= 17 and (memcmp(text, b"TIMER_ENQUEUE_MS\x01", 17) == 0
                                        or memcmp(text, b"TIMER_DEQUEUE_MS\x01", 17) == 0))
                or (stop - text >= 9 and memcmp(text, b"__CRC32#\x01", 9) == 0)):
            h = _hash(_hash(h, text, stop - text), b"\x02", 1)
        text = stop + 1
    return h


cdef uint64_t _content(const char *topic, int32_t topic_size, int32_t queue_id, int32_t flag, int64_t born_timestamp,
                       const unsigned char *body, int32_t body_size, const char *properties,
                       int32_t properties_size) noexcept nogil:
    cdef uint64_t h = _number(_hash(HASH_BEGIN, topic, topic_size), queue_id)
    h = _number(_number(_number(h, flag), born_timestamp), body_size)
    h = _properties(_hash(h, body, body_size), properties, properties_size)
    return h if h != 0 else 1


cdef Copies *_find(Once *o, uint64_t content) noexcept nogil:
    # Its place, or the free one where it belongs.
    cdef int64_t at = <int64_t> (content % <uint64_t> o.places)
    while o.table[at].content != 0 and o.table[at].content != content:
        at = (at + 1) % o.places
    return &o.table[at]


cdef int _grow(Once *o) noexcept nogil:
    cdef Once more = o[0]
    cdef int64_t i
    more.places = 2 * o.places if o.places > 0 else PLACES_MIN
    more.table = <Copies *> calloc(more.places, sizeof(Copies))
    if more.table == NULL:
        return -ENOMEM
    for i in range(o.places):
        if o.table[i].content != 0:
            _find(&more, o.table[i].content)[0] = o.table[i]
    free(o.table)
    o[0] = more
    return 0


cdef int once_add(Once *o, const RecordView *v) noexcept nogil:
    cdef const char *text = NULL
    cdef Py_ssize_t size = 0
    cdef uint64_t content
    cdef Copies *known
    if not find_property(v.properties, v.properties_size, b"TIMER_DEQUEUE_MS", 16, &text, &size):
        return 0
    if 2 * (o.used + 1) > o.places and _grow(o) < 0:
        return -ENOMEM
    content = _content(v.topic, v.topic_size, v.queue_id, v.flag, v.born_timestamp, v.body, v.body_size, v.properties,
                       v.properties_size)
    known = _find(o, content)
    if known.content == 0:
        known.content = content
        o.used += 1
    known.count += 1
    o.left += 1
    # Its slot was over when it was stored. The property says when, too, but anybody may have put it.
    if v.store_timestamp >= o.until_ms:
        o.until_ms = v.store_timestamp + 1
    return 0


cdef int _behind(Log *log, int64_t at, int64_t end, int64_t *next) noexcept nogil:
    # Where the record behind that begins which cannot be read at `at`: in its file, or where the next one begins. 0 or -errno.
    cdef RecordView v
    cdef int error = 0
    cdef LogFile *f = row_find(log.row, at, &error)
    cdef int64_t found = -1
    cdef int64_t first = row_start(log.row)
    next[0] = first + ((at - first) // log.row.file_size + 1) * log.row.file_size
    if f == NULL:
        return error if error < -1 else 0
    if next[0] < end:
        end = next[0]
    if record_parse(f.map + (at - f.start), f.start + f.size - at, &v) != RECORD_BLANK:
        found = scan_next_good(f, at + 1, end, False)
    if found >= 0:
        next[0] = found
    log_file_release(f)
    return 0


cdef int once_learn(Once *o, Log *log, int64_t begin, int64_t most) noexcept nogil:
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef int64_t first = row_start(log.row)
    cdef int64_t at = begin if begin > first else first
    cdef int rc
    memset(o, 0, sizeof(Once))
    o.until = rmq_load(&log.committed)
    if begin < 0 or first < 0:
        return 0
    if o.until - at > most:
        return 1
    while at < o.until:
        rc = record_at(log, at, 0, &v, &f)
        if rc == 0:
            rc = once_add(o, &v)
            at += v.size
            log_file_release(f)
            f = NULL
        elif rc == -1:              # the end of a file, or damage
            rc = _behind(log, at, o.until, &at)
        if rc < 0:
            once_forget(o)
            return rc
    return 0


cdef bint once_claim(Once *o, const RecordArgs *a) noexcept nogil:
    cdef Copies *known
    if o.left == 0:
        return False
    known = _find(o, _content(a.topic, a.topic_size, a.queue_id, a.flag, a.born_timestamp, a.body, a.body_size, a.properties,
                              a.properties_size))
    if known.count == 0:
        return False
    known.count -= 1
    o.left -= 1
    if o.left == 0:
        once_forget(o)
    return True


cdef void once_forget(Once *o) noexcept nogil:
    free(o.table)
    o.table = NULL
    o.places = o.used = o.left = 0
