"""What an open that reads entries of the queue a second time knows of them. Contract in _again.pxd."""
from libc.stdint cimport int64_t
from libc.stdlib cimport free, qsort, realloc

from rmq_store.access.reader._look cimport record_at
from rmq_store.access.writer._put cimport find_property
from rmq_store.base.io._io cimport rmq_pread_all
from rmq_store.base.io._sync cimport EIO, ENOMEM, rmq_load
from rmq_store.base.segment._file cimport LogFile, log_file_release
from rmq_store.codec._layout cimport UNIT_FILLER, UNIT_SIZE
from rmq_store.codec._record cimport RecordView
from rmq_store.codec._unit cimport unit_bytes, unit_physical
from rmq_store.queues.consumequeue._queue cimport queue_read
from rmq_store.services.delivery._deliverer cimport deliver_number
from rmq_store.services.timer._once cimport once_add, once_forget
from rmq_store.services.timer._timerlog cimport (AT_ENTERED, AT_PHYSICAL, LOG_TAIL, LOG_UNIT, Wheel, be64, timerlog_fd,
                                                 timerlog_good)

cdef enum:
    UNITS_AT_ONCE = 1260        # of the timer log
    ENTRIES_AT_ONCE = 64        # of the queue


# ---- units of the timer log

cdef struct Walk:
    int64_t position            # of the next unit
    int64_t at                  # bytes of `some` before it
    int64_t got
    unsigned char[UNITS_AT_ONCE * LOG_UNIT] some


cdef const unsigned char *_next(Wheel *t, Walk *w, int *rc) noexcept nogil:
    # The next unit; NULL: the end, or rc is -errno.
    cdef int64_t at = 0, left
    cdef int fd
    cdef const unsigned char *u
    rc[0] = 0
    if w.at + LOG_UNIT > w.got:
        left = t.file_size - (w.position - t.first) % t.file_size
        if left < LOG_UNIT + LOG_TAIL:
            w.position += left
            left = t.file_size
        if w.position >= t.end:
            return NULL
        fd = timerlog_fd(t, w.position, &at)
        if fd < 0:
            rc[0] = fd
            return NULL
        left = (left - LOG_TAIL) // LOG_UNIT * LOG_UNIT
        if left > UNITS_AT_ONCE * LOG_UNIT:
            left = UNITS_AT_ONCE * LOG_UNIT
        if left > t.end - w.position:
            left = t.end - w.position
        w.at, w.got = 0, rmq_pread_all(t.io, fd, w.some, left, at)
        if w.got < LOG_UNIT:
            rc[0] = <int> w.got if w.got < 0 else -EIO
            return NULL
    u = w.some + w.at
    if not timerlog_good(t, u, w.position):
        rc[0] = -EIO            # it was good when the log was loaded
        return NULL
    w.at += LOG_UNIT
    w.position += LOG_UNIT
    return u


cdef int _compare(const void *a, const void *b) noexcept nogil:
    cdef int64_t one = (<const int64_t *> a)[0], other = (<const int64_t *> b)[0]
    return (one > other) - (one < other)


cdef int again_units(Wheel *t, int64_t begin, int64_t last) noexcept nogil:
    cdef unsigned char[UNIT_SIZE] entry
    cdef int64_t room = 0, from_physical
    cdef int64_t *more
    cdef bint ordered = True
    cdef const unsigned char *u
    cdef Walk w
    cdef int rc = 0
    cdef int64_t n = queue_read(t.d.queues, t.queue, begin, entry, 1)
    if n <= 0:
        return <int> n
    from_physical = unit_physical(entry)
    w.position, w.at, w.got = t.first, 0, 0
    u = _next(t, &w, &rc) if last >= from_physical else NULL
    while u != NULL:
        if be64(u + AT_PHYSICAL) >= from_physical:
            if t.having_count == room:
                room = 2 * room + 1024
                more = <int64_t *> realloc(t.having, room * sizeof(int64_t))
                if more == NULL:
                    return -ENOMEM
                t.having = more
            ordered = ordered and (t.having_count == 0 or t.having[t.having_count - 1] <= be64(u + AT_PHYSICAL))
            t.having[t.having_count] = be64(u + AT_PHYSICAL)
            t.having_count += 1
        u = _next(t, &w, &rc)
    if not ordered:
        qsort(t.having, t.having_count, sizeof(int64_t), _compare)
    return rc


cdef bint again_has(Wheel *t, int64_t physical) noexcept nogil:
    while t.having_at < t.having_count and t.having[t.having_at] < physical:
        t.having_at += 1
    if t.having_at < t.having_count:
        return t.having[t.having_at] == physical
    free(t.having)
    t.having, t.having_at, t.having_count = NULL, 0, 0
    return False


cdef int again_later(Wheel *t, int64_t physical, int64_t entered) noexcept nogil:
    cdef const unsigned char *u
    cdef Walk w
    cdef int rc = 0
    w.position, w.at, w.got = t.first, 0, 0
    u = _next(t, &w, &rc)
    while u != NULL and w.position <= t.loaded_end:
        if be64(u + AT_PHYSICAL) == physical and be64(u + AT_ENTERED) > entered:
            return 1
        u = _next(t, &w, &rc)
    return rc


cdef int again_last_tick(Wheel *t, int64_t *physical, int64_t *entered) noexcept nogil:
    cdef const unsigned char *u
    cdef Walk w
    cdef int rc = 0
    physical[0], entered[0] = -1, 0
    w.position, w.at, w.got = t.first, 0, 0
    u = _next(t, &w, &rc)
    while u != NULL:
        if be64(u + AT_ENTERED) != entered[0]:
            entered[0], physical[0] = be64(u + AT_ENTERED), be64(u + AT_PHYSICAL)
        u = _next(t, &w, &rc)
    return rc


# ---- entries of the queue

cdef int64_t again_entry(Wheel *t, int64_t physical) noexcept nogil:
    cdef unsigned char[UNIT_SIZE] entry
    cdef int64_t low = rmq_load(&t.queue.min_offset), high = rmq_load(&t.queue.max_offset), middle, n
    while low < high:
        middle = low + (high - low) // 2
        n = queue_read(t.d.queues, t.queue, middle, entry, 1)
        if n < 0:
            return n
        if n == 0 or unit_physical(entry) >= physical:
            high = middle
        else:
            low = middle + 1
    return low


cdef int _learn_rolled(Wheel *t, const RecordView *v, int64_t entered) noexcept nogil:
    cdef const char *text = NULL
    cdef Py_ssize_t size = 0
    cdef int64_t its = 0
    if (not find_property(v.properties, v.properties_size, b"TIMER_ROLL_TIMES", 16, &text, &size)
            or not find_property(v.properties, v.properties_size, b"TIMER_ENQUEUE_MS", 16, &text, &size)
            or deliver_number(text, size, &its) < 0 or its < entered):
        return 0
    return once_add(&t.rolled, v)


cdef int again_rolled(Wheel *t, int64_t begin, int64_t entered) noexcept nogil:
    cdef unsigned char[ENTRIES_AT_ONCE * UNIT_SIZE] entries
    cdef const unsigned char *entry
    cdef RecordView v
    cdef LogFile *f = NULL
    cdef int64_t n, i
    cdef int rc
    while True:
        n = queue_read(t.d.queues, t.queue, begin, entries, ENTRIES_AT_ONCE)
        if n <= 0:
            return <int> n
        for i in range(n):
            entry = entries + i * UNIT_SIZE
            if unit_bytes(entry) <= 0 or unit_bytes(entry) == UNIT_FILLER:
                continue
            rc = record_at(t.d.log, unit_physical(entry), unit_bytes(entry), &v, &f)
            if rc == 0:
                rc = _learn_rolled(t, &v, entered)
                log_file_release(f)
                f = NULL
            if rc < -1:
                return rc
        begin += n


cdef void again_free(Wheel *t) noexcept nogil:
    free(t.having)
    t.having, t.having_at, t.having_count = NULL, 0, 0
    once_forget(&t.rolled)
