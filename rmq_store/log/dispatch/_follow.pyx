"""Following a store that another process writes (RocketMQ: none; the part of ReputMessageService). Contract in _follow.pxd.

A record counts as there when a queue entry leads to it: the writer makes entries of whole records only, and in the log's order,
so one entry vouches for everything before it. What the log seems to have beyond that may be half written, and is only looked
for: which queues have to be read on, and how far.

No other process can wake this one (a mapped file tells nobody that it is written), so the thread looks: 2,000 times a second
while messages come or somebody waits for one, seldom when nothing happens. A look at a log that stands still is one load.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from rmq_store.base.io._io cimport rmq_pread_all
from rmq_store.base.io._sync cimport (EINVAL, EIO, ENOENT, rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_load32,
                                      rmq_mutex_lock, rmq_mutex_unlock, rmq_publish, rmq_publish32, rmq_thread_start)
from rmq_store.base.segment._file cimport (LogFile, log_file_lost, log_file_release, row_count, row_end, row_find, row_open,
                                           row_pop, row_push, row_shift, row_start)
from rmq_store.codec._layout cimport (BLANK_SIZE, FLAG_INNER_BATCH, FLAG_TRANSACTION, TRANSACTION_PREPARED,
                                      TRANSACTION_ROLLBACK)
from rmq_store.codec._record cimport (RECORD_BLANK, RECORD_OK, RecordStatus, RecordView, record_in_place, record_of_queue,
                                      record_parse, record_prefetch_next, topic_fits)
from rmq_store.log.commitlog._log cimport Log
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.queues.consumequeue._batches cimport queue_batched
from rmq_store.queues.consumequeue._follow cimport LED, queue_expect, queue_that_is, queues_read_on, queues_show
from rmq_store.queues.consumequeue._queue cimport Queue

cdef enum:
    RECORDS_MAX = 8192          # in one look
    RECORDS_MIN = 64            # where the last one found nothing that has an entry, and came to the end of the log
    MISSED = 64                 # records of a queue that was not there, before its file is looked for again
    RECORD = 512                # bytes of a record: as many times that many bytes
    LOOKS_BETWEEN = 64          # before queues that wait in vain have their turn

cdef int64_t SOON_NS = 500_000, LATER_NS = 2_000_000, SELDOM_NS = 10_000_000, FAILED_NS = 100_000_000
cdef int64_t SOON_LOOKS = 2000


cdef Follower *follower_new(Dispatcher *d) noexcept nogil:
    cdef Follower *f = <Follower *> calloc(1, sizeof(Follower))
    if f != NULL:
        f.d = d
        f.unresolved = -1
        f.budget = RECORDS_MAX
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
    cdef bint found
    if physical < row_start(d.log.row):
        return LED
    f = row_find(d.log.row, physical, &error)
    if f == NULL:
        return error
    found = (record_parse(f.map + (physical - f.start), f.start + f.size - physical, &v) == RECORD_OK
             and v.physical_offset == physical and v.size == size
             and (record_in_place(&v, q.topic, q.topic_size, q.queue_id, index)
                  or (v.queue_offset > index and record_of_queue(&v, q.topic, q.topic_size, q.queue_id))))
    if log_file_lost(f, physical, size if found else 0):
        error = -EIO
    if found and v.store_timestamp > d.put_timestamp:
        d.put_timestamp = v.store_timestamp
    log_file_release(f)
    return error if error < 0 else found


cdef int64_t _walk(Follower *f) noexcept nogil:
    # Over what the log seems to have beyond what is known: its queues expect entries. Returns where it ends, or -errno.
    cdef Dispatcher *d = f.d
    cdef int64_t known = d.log.dispatched, at = known, next_at = 0
    cdef int64_t before = f.unresolved, unresolved = -1
    cdef RecordView v, missed           # the last one whose queue was not there; the row holds its file
    cdef Queue *q
    cdef int64_t n = 0
    cdef int rc = 0, kind, left = 0     # how many more records of that queue are passed over
    cdef bint inner
    if 0 <= before < known and before >= row_start(d.log.row):
        at = before
    f.cut = False
    while _record(d, at, &v, &next_at, &rc):
        if n >= f.budget or at - known >= max(f.budget, <int64_t> RECORDS_MAX) * RECORD:
            f.cut = True
            break
        n += 1
        kind = v.sys_flag & FLAG_TRANSACTION
        if v.size > 0 and kind != TRANSACTION_PREPARED and kind != TRANSACTION_ROLLBACK and topic_fits(v.topic, v.topic_size):
            inner = (v.sys_flag & FLAG_INNER_BATCH) != 0
            if left > 0 and record_of_queue(&v, missed.topic, missed.topic_size, missed.queue_id):
                left -= 1       # many of a topic that was deleted; one of them may be in a file that is there
                at = next_at
                continue
            q = queue_that_is(d.queues, v.topic, v.topic_size, v.queue_id, v.queue_offset, inner, &rc)
            if rc < 0:
                break
            if q == NULL:
                missed, left = v, MISSED
                # A second look behind an entry of a later record: its file would be there if it were ever to come.
                if unresolved < 0 and not (before == at < known):
                    unresolved = at
            elif inner or not queue_batched(q):         # a batch queue never leads to a plain message
                rc = queue_expect(d.queues, q, v.queue_offset, at, at >= known, _leads, d)
                if rc < 0:
                    break
        at = next_at
    f.unresolved = unresolved
    return rc if rc < 0 else at


cdef void _go_further(Follower *f) noexcept nogil:
    # Records without an entry, as those of a topic that was deleted, may be many: what has one comes behind them. Where they
    # are all that there is, they are walked over again and again, in case one was half there.
    if f.cut:
        f.budget *= 2
    elif f.budget <= RECORDS_MAX:
        f.budget = RECORDS_MIN
    else:
        f.rest = f.budget // RECORDS_MAX


cdef int _look(Follower *f) noexcept nogil:
    cdef Dispatcher *d = f.d
    cdef Log *log = d.log
    cdef int64_t furthest = -1, to = max(f.seen, log.dispatched)
    cdef int rc
    cdef bint all, walks = f.rest == 0
    if not walks:
        f.rest -= 1
    else:
        to = _walk(f)
        if to < 0:
            return <int> to
        f.seen = to
    f.looks += 1
    all = f.looks % LOOKS_BETWEEN == 0
    rc = queues_read_on(d.queues, to, all, _leads, d, &furthest)
    if furthest > log.dispatched:
        rmq_publish(&log.wrote_timestamp, d.put_timestamp)
        rmq_publish(&d.last_timestamp, d.put_timestamp)
        rmq_publish(&log.wrote, furthest)
        rmq_publish(&log.committed, furthest)
        rmq_publish(&log.flushed, furthest)
        rmq_publish(&log.dispatched, furthest)
    queues_show(d.queues)
    if furthest >= 0:
        f.budget = RECORDS_MAX
        f.rest = 0
    elif walks:
        _go_further(f)
    return rc if rc < 0 else furthest >= 0 or f.cut


cdef int follower_look(Follower *f) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&f.d.round_lock)
    rc = _look(f)
    rmq_mutex_unlock(&f.d.round_lock)
    rmq_publish32(&f.error, -rc if rc < 0 else 0)
    if rc != 0:
        rmq_event_wake(&f.d.moved)
    return rc


cdef void follower_begins(Follower *f, int64_t start) noexcept nogil:
    cdef Log *log = f.d.log
    rmq_mutex_lock(&f.d.round_lock)
    while row_count(log.row) > 0 and row_start(log.row) < start:
        log_file_release(row_shift(log.row))
    if log.dispatched < start:
        rmq_publish(&log.wrote, start)
        rmq_publish(&log.committed, start)
        rmq_publish(&log.flushed, start)
        rmq_publish(&log.dispatched, start)
    rmq_mutex_unlock(&f.d.round_lock)


cdef void *_run(void *arg) noexcept nogil:
    cdef Follower *f = <Follower *> arg
    cdef Dispatcher *d = f.d
    cdef int64_t pause, idle = 0
    cdef int ticket, rc
    while rmq_load32(&d.stop) == 0:
        ticket = rmq_event_ticket(&d.log.dispatch_wanted)
        rc = follower_look(f)
        if rc > 0:
            idle = 0
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
