"""Following a store that another process writes (RocketMQ: none; the part of ReputMessageService). Contract in _follow.pxd.

A record counts as there when a queue entry leads to it: the writer makes entries of whole records only, and in the log's order,
so one entry vouches for everything before it. What the log seems to have beyond that may be half written, and is only looked
for: which queues have to be read on, and how far. So every record is walked over at least three times: twice where it seems
to be, for the entry that comes soon, and once more when it is vouched for. What is long without an entry, as the records of a
topic that was deleted, is walked over again now and then.

No other process can wake this one (a mapped file tells nobody that it is written), so the thread looks: 2,000 times a second
while messages come or somebody waits for one, seldom when nothing happens. A look at a log that stands still is one load.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from rmq_store.base.io._io cimport rmq_pread_all
from rmq_store.base.io._sync cimport (EINVAL, EIO, ENOENT, rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_load,
                                      rmq_load32, rmq_mutex_lock, rmq_mutex_unlock, rmq_publish, rmq_publish32,
                                      rmq_thread_start)
from rmq_store.base.segment._descriptors cimport log_file_drop_fd
from rmq_store.base.segment._file cimport (LogFile, log_file_lost, log_file_release, row_count, row_end, row_find, row_open,
                                           row_pop, row_push, row_shift, row_start)
from rmq_store.codec._inner cimport BATCH_UNIT_SIZE
from rmq_store.codec._layout cimport (BLANK_SIZE, FLAG_INNER_BATCH, FLAG_TRANSACTION, TRANSACTION_PREPARED,
                                      TRANSACTION_ROLLBACK)
from rmq_store.codec._light cimport Light, light_next, light_topic, lights_of
from rmq_store.codec._record cimport (RECORD_BLANK, RECORD_OK, PropertyView, RecordStatus, RecordView, properties_scan,
                                      record_in_place, record_of_queue, record_parse, record_prefetch_next, topic_fits)
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.queues.consumequeue._begins cimport LEADS_ON, LED, queues_follow_min, queues_were_cleaned
from rmq_store.queues.consumequeue._follow cimport queue_expect, queue_was_cleaned, queues_read_on, queues_show
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum:
    RECORDS_MAX = 8192          # in one look
    AGAIN_BYTES = 1048576       # that are walked over again, for as many looks as are between
    LOOKS_BETWEEN = 64          # before queues that wait in vain have their turn

cdef int64_t SOON_NS = 500_000, LATER_NS = 2_000_000, SELDOM_NS = 10_000_000, FAILED_NS = 100_000_000
cdef int64_t SOON_LOOKS = 2000


cdef Follower *follower_new(Dispatcher *d, int64_t settled) noexcept nogil:
    cdef Follower *f = <Follower *> calloc(1, sizeof(Follower))
    if f != NULL:
        f.d, f.settled = d, min(settled, rmq_load(&d.log.dispatched))
    return f


cdef void follower_let_go_ahead(Follower *f) noexcept nogil:
    cdef Log *log = f.d.log
    while row_count(log.row) > 0 and row_end(log.row) - log.row.file_size >= log.dispatched:
        log_file_release(row_pop(log.row))
    log_file_release(log.tail)
    log.tail = NULL


cdef void follower_free(Follower *f) noexcept nogil:
    free(f)


cdef int _begun(LogFile *f) noexcept nogil:
    # Whether the writer has put anything into it. A file that was made ahead it may take away again, and make another one.
    cdef int64_t head = 0, got = rmq_pread_all(f.io, f.fd, &head, sizeof(head), 0)
    return <int> got if got < 0 else head != 0


cdef int _file(Dispatcher *d, int64_t at) noexcept nogil:
    # d.file becomes the file that holds `at`. 1; 0: it is not there yet, not whole, or not begun; -errno.
    cdef Log *log = d.log
    cdef LogFile *f
    cdef int error = 0, rc
    if d.file != NULL and d.file.start <= at < d.file.start + d.file.size:
        return 1
    if row_count(log.row) == 0 or at == row_end(log.row):
        f = row_open(log.row, at, &error)
        if f == NULL:
            return 0 if error == -ENOENT or error == -EINVAL else error
        rc = _begun(f)
        if rc > 0:
            rc = row_push(log.row, f)
            if rc == 0:
                log_file_drop_fd(log.row, f)
                rc = 1
        if rc <= 0:
            log_file_release(f)
            return rc
    f = row_find(log.row, at, &error)
    if f == NULL:
        return error
    log_file_release(d.file)
    d.file = f
    return 1


cdef bint _record(Dispatcher *d, int64_t at, RecordView *v, int64_t *next_at, int *rc) noexcept nogil:
    # Whether there seems to be a record at `at`; v.size 0: the end of its file, the log continues at next_at.
    cdef RecordStatus status
    cdef int64_t end
    rc[0] = _file(d, at)
    if rc[0] <= 0:
        return False
    end = d.file.start + d.file.size
    if end - at < BLANK_SIZE:
        v.size = 0
        next_at[0] = end
        return True
    status = record_parse(d.file.map + (at - d.file.start), end - at, v)
    if log_file_lost(d.file, at, v.size if status == RECORD_OK else 0):
        rc[0] = -EIO
        return False
    if status == RECORD_BLANK:
        v.size = 0
        next_at[0] = end
        return True
    next_at[0] = at + v.size
    if status != RECORD_OK or v.physical_offset != at:
        return False
    record_prefetch_next(v, end - at)
    return True


cdef int _leads(void *dispatcher, const Queue *q, int64_t index, int64_t physical, int32_t size) noexcept nogil:
    cdef Dispatcher *d = <Dispatcher *> dispatcher
    cdef RecordView v
    cdef LogFile *f
    cdef int error = 0
    cdef bint found, placed
    if physical < row_start(d.log.row):
        return LED
    f = row_find(d.log.row, physical, &error)
    if f == NULL:
        return error
    found = (record_parse(f.map + (physical - f.start), f.start + f.size - physical, &v) == RECORD_OK
             and v.physical_offset == physical and v.size == size)
    placed = found and record_in_place(&v, q.topic, q.topic_size, q.queue_id, index)
    found = placed or (found and v.queue_offset > index and record_of_queue(&v, q.topic, q.topic_size, q.queue_id))
    if log_file_lost(f, physical, size if found else 0):
        error = -EIO
    if found and v.store_timestamp > d.put_timestamp:
        d.put_timestamp = v.store_timestamp
    log_file_release(f)
    return error if error < 0 else LEADS_ON if found and not placed else found


cdef int _expect_in(Follower *f, const char *topic, int32_t size, int32_t queue_id, int64_t index, const RecordView *v,
                    bint whole) noexcept nogil:
    # That queue expects an entry at `index`. 0 or -errno.
    cdef Missing *m
    cdef int rc
    if not topic_fits(topic, size) or queue_id < 0 or not 0 <= index < INT64_MAX // BATCH_UNIT_SIZE:
        return 0
    m = &f.missing[(<uint32_t> queue_id + <unsigned char> topic[size - 1] * 7u + <uint32_t> size) % MISSING]
    if (not whole and m.topic != NULL and m.queue_id == queue_id and m.topic_size == size
            and memcmp(m.topic, topic, size) == 0):
        return 0
    rc = queue_expect(f.d.queues, topic, size, queue_id, index, (v.sys_flag & FLAG_INNER_BATCH) != 0, v.physical_offset, whole)
    if rc == 0:
        m.topic, m.topic_size, m.queue_id = topic, size, queue_id
    return min(rc, 0)


cdef int _expect(Follower *f, const RecordView *v, bint whole) noexcept nogil:
    # Its own queue and its light queues expect entries. 0 or -errno: the first error.
    cdef int kind = v.sys_flag & FLAG_TRANSACTION
    cdef PropertyView p
    cdef Light light
    cdef int rc, error
    if v.size == 0 or kind == TRANSACTION_PREPARED or kind == TRANSACTION_ROLLBACK:
        return 0
    error = _expect_in(f, v.topic, v.topic_size, v.queue_id, v.queue_offset, v, whole)
    if light_topic(v.topic, v.topic_size):
        properties_scan(v.properties, v.properties_size, &p)
        light = lights_of(&p)
        while light_next(&light):
            rc = _expect_in(f, light.name, light.size, 0, light.queue_offset, v, whole)
            error = rc if error == 0 else error
    return error


cdef int64_t _walk(Follower *f, int64_t at, int64_t stop, int *error) noexcept nogil:
    # Over the records from `at` on that begin before `stop`, or all that seem to be there. Returns where it ends. *error: the
    # first one; what it was about is met again.
    cdef RecordView v
    cdef int64_t next_at = 0
    cdef int n = 0, rc = 0
    cdef bint whole = stop < INT64_MAX
    f.cut = False
    while at < stop and _record(f.d, at, &v, &next_at, &rc):
        if n == RECORDS_MAX:
            f.cut = True
            break
        n += 1
        rc = _expect(f, &v, whole)
        if rc < 0 and error[0] == 0:
            error[0] = rc
        if rc < 0 and whole:
            f.cut = True
            break
        rc = 0
        at = next_at
    if rc < 0 and error[0] == 0:
        error[0] = rc
    return at


cdef void _settle(Follower *f, int *error) noexcept nogil:
    # Over what entries vouch for since the last look.
    cdef int64_t known = f.d.log.dispatched
    f.settled = max(f.settled, row_start(f.d.log.row))
    if f.settled < known:
        f.settled = _walk(f, f.settled, known, error)
        if not f.cut and error[0] == 0:
            f.settled = known           # what cannot be read as a record has no entry


cdef void _see(Follower *f, bint all, int *error) noexcept nogil:
    # Over what the log seems to have beyond.
    cdef int64_t known = f.d.log.dispatched
    if all:
        f.due += AGAIN_BYTES
        if f.due > f.seen - known:
            f.at, f.due = known, 0
    f.at = _walk(f, max(f.at, known), INT64_MAX, error)
    f.seen = max(f.seen, f.at)
    if not f.cut:
        f.at, f.end_before = f.end_before, f.at


cdef int _look(Follower *f, bint whole) noexcept nogil:
    cdef Dispatcher *d = f.d
    cdef Log *log = d.log
    cdef int64_t furthest = -1
    cdef int rc, error = 0
    cdef bint all, cut
    f.looks += 1
    all = whole or f.looks % LOOKS_BETWEEN == 0
    if whole:
        f.due = f.seen
    memset(f.missing, 0, sizeof(f.missing))
    _settle(f, &error)
    cut = f.cut
    _see(f, all, &error)
    rc = queues_read_on(d.queues, max(f.seen, log.dispatched), all, whole, _leads, d, &furthest)
    if furthest > log.dispatched:
        rmq_publish(&log.wrote_timestamp, d.put_timestamp)
        rmq_publish(&d.last_timestamp, d.put_timestamp)
        rmq_publish(&log.wrote, furthest)
        rmq_publish(&log.committed, furthest)
        rmq_publish(&log.flushed, furthest)
        rmq_publish(&log.dispatched, furthest)
    queues_show(d.queues, row_start(log.row))
    if error < 0 or rc < 0:
        return error if error < 0 else rc
    if furthest >= 0:
        return 1
    return 2 if cut or f.cut else 0


cdef int follower_look(Follower *f, bint whole) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&f.d.round_lock)
    rc = _look(f, whole)
    rmq_mutex_unlock(&f.d.round_lock)
    rmq_publish32(&f.error, -rc if rc < 0 else 0)
    if rc != 0:
        rmq_event_wake(&f.d.moved)
    return rc


cdef int follower_begins(Follower *f, int64_t start) noexcept nogil:
    cdef Log *log = f.d.log
    cdef int64_t low, dispatched
    cdef int rc
    rmq_mutex_lock(&f.d.round_lock)
    low = row_start(log.row)
    while row_count(log.row) > 0 and row_start(log.row) < start:
        log_file_release(row_shift(log.row))
    dispatched = log.dispatched
    if dispatched < start:
        rmq_publish(&log.wrote, start)
        rmq_publish(&log.committed, start)
        rmq_publish(&log.flushed, start)
        rmq_publish(&log.dispatched, start)
    if f.settled < start:
        f.settled = f.cleaned = start
        queues_were_cleaned(f.d.queues, start)
    rc = queues_follow_min(f.d.queues, start, start > (low if low >= 0 else dispatched))
    rmq_mutex_unlock(&f.d.round_lock)
    return rc


cdef int follower_meets(Follower *f, const char *topic, int32_t topic_size, int32_t queue_id, bint inner) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&f.d.round_lock)
    rc = queue_was_cleaned(f.d.queues, topic, topic_size, queue_id, inner, f.cleaned)
    rmq_mutex_unlock(&f.d.round_lock)
    return min(rc, 0)


cdef void *_run(void *arg) noexcept nogil:
    cdef Follower *f = <Follower *> arg
    cdef Dispatcher *d = f.d
    cdef int64_t pause, idle = 0
    cdef int ticket, rc
    while rmq_load32(&d.stop) == 0:
        ticket = rmq_event_ticket(&d.log.dispatch_wanted)
        rc = follower_look(f, False)
        if rc > 0:
            idle = idle if rc > 1 else 0
            continue
        idle += 1
        pause = SOON_NS
        if rc < 0:
            pause = FAILED_NS
        elif idle > SOON_LOOKS:
            pause = LATER_NS if rmq_load32(&d.waiters) > 0 else SELDOM_NS
        rmq_event_wait(&d.log.dispatch_wanted, ticket, pause)
    return NULL


cdef int follower_start(Follower *f) noexcept nogil:
    cdef int rc = rmq_thread_start(&f.d.thread, _run, f, b"rmq-follow")
    f.d.running = rc == 0
    return rc
