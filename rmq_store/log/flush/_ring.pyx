"""Commit by io_uring (RocketMQ has no such back end; nearest: CommitRealTimeService). Contract in _ring.pxd."""
from libc.errno cimport EINTR
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

from rmq_store.base.io._sync cimport (EIO, ENOMEM, rmq_add, rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_fence,
                                      rmq_load, rmq_load32, rmq_mutex_try, rmq_mutex_unlock, rmq_publish, rmq_publish32,
                                      rmq_swap32, rmq_thread_join, rmq_thread_start, rmq_waiters_pass)
from rmq_store.base.io._want cimport RMQ_WANT_RETRY_NS, rmq_is_want
from rmq_store.base.segment._allocator cimport allocator_pass
from rmq_store.base.segment._file cimport LogFile, log_file_open_direct, log_file_release, row_find
from rmq_store.log.commitlog._log cimport (FENCE_SYNC, FENCE_WRITE, Backend, Log, log_commit_seen, log_committed, log_dispatch,
                                           log_fence, log_flushed, log_make_way, log_unwritable)
from rmq_store.log.pool._pool cimport pool_at

cdef enum:
    PIECES_MAX = 4              # requests of the device that make one write, at most
    PIECES_OF_POOL = 32         # and no larger share of the pool than this part: room comes in such steps
    BOUNCE = 512 << 10          # what is shorter goes as one write, copied: dearer is a second write for the last block

cdef int64_t POLL_FAST_NS = 500_000         # between looks while producers are busy: each one costs them a turn of the core
cdef int64_t POLL_SLOW_NS = 1_000_000       # while there is little to commit
cdef int64_t IDLE_BEFORE_SLEEP = 10         # empty rounds before the thread waits to be woken
cdef int64_t GATHER_NS = 2_000_000          # sync mode: unwaited puts are made durable this long after the first,
cdef int64_t GATHER_BYTES = 64 << 10        # or when there is so much
cdef int64_t GOAL_LOOK_NS = 10_000_000


# ---- life

cdef void _choose_sizes(RingWriter *w, int64_t request) noexcept nogil:
    # Into new blocks each write ends in a turn of a kernel's worker, which takes a producer's core as soon as another.
    cdef int64_t n = w.log.pool.size // PIECES_OF_POOL // request
    w.piece = request * (1 if n < 1 else PIECES_MAX if n > PIECES_MAX else n)


cdef RingWriter *ring_writer_new(Log *log, bint direct, bint durable, int64_t request, unsigned depth, unsigned wishes,
                                 int *error) noexcept nogil:
    cdef int i
    cdef RingWriter *w = <RingWriter *> calloc(1, sizeof(RingWriter))
    error[0] = -ENOMEM
    if w == NULL:
        return NULL
    if posix_memalign(<void **> &w.bounce, RMQ_RING_BLOCK, BOUNCE) != 0:
        free(w)
        return NULL
    error[0] = rmq_ring_new(log.io, depth, wishes, 0, &w.ring)
    if error[0] < 0:
        free(w.bounce)
        free(w)
        return NULL
    rmq_ring_pool(w.ring, log.pool.base, log.pool.size, w.bounce, BOUNCE)
    w.log = log
    _choose_sizes(w, request)
    w.direct = direct
    w.durable = durable
    w.polled = (wishes & RMQ_RING_IOPOLL) != 0
    w.block = RMQ_RING_BLOCK if direct else 1
    w.bounce_end = -1
    for i in range(RMQ_RING_SLOTS):
        w.slot_file[i] = -1
    log.direct = direct
    log.backend = &_RING
    log.backend_state = w
    return w


cdef void _free(Log *log) noexcept nogil:
    cdef RingWriter *w = <RingWriter *> log.backend_state
    log.backend_state = NULL
    if w != NULL:
        rmq_ring_free(w.ring)
        free(w.bounce)
        free(w)


cdef int _prime(Log *log) noexcept nogil:
    cdef RingWriter *w = <RingWriter *> log.backend_state
    cdef int64_t end = rmq_load(&log.committed)
    cdef int64_t begin = end & ~(w.block - 1)
    cdef int64_t got
    cdef LogFile *f = log.tail
    cdef int rc
    w.submitted = end
    if f == NULL:
        return 0
    if w.direct:
        rc = log_file_open_direct(f)
        if rc < 0:
            return rc
    while begin < end:
        got = log.io.pread(log.io.ctx, f.fd, pool_at(log.pool, begin), end - begin, begin - f.start)
        if got == -EINTR:
            continue
        if got <= 0:
            return <int> got if got < 0 else -EIO
        begin += got
    return 0


cdef int _start(Log *log, bint sync_mode) noexcept nogil:
    cdef RingWriter *w = <RingWriter *> log.backend_state
    cdef int ticket
    cdef int rc
    w.sync_mode = sync_mode
    rc = rmq_thread_start(&w.thread, _run, w, b"rmq-ring")
    if rc < 0:
        return rc
    w.running = True
    while True:
        ticket = rmq_event_ticket(&w.started_event)
        rc = rmq_load32(&w.started)
        if rc != 0:
            return 0 if rc > 0 else rc
        rmq_event_wait(&w.started_event, ticket, -1)


cdef int _stop(Log *log) noexcept nogil:
    cdef RingWriter *w = <RingWriter *> log.backend_state
    cdef int rc = 0
    rmq_publish32(&w.stop, 1)
    rmq_event_wake(&w.log.commit_wanted)
    if w.running:
        rc = rmq_thread_join(&w.thread)
        w.running = False
    return rc


# ---- where a stretch of the log goes

cdef struct Place:
    LogFile *file
    int64_t begin       # log position of the first byte to write: of the block that holds `at`
    int64_t end         # behind the last byte of this file to write now; <= begin of the jump: nothing
    int64_t next        # log position reached when that is written: `end`, or the start of the next file
    bint last           # nothing more comes into this file

cdef int _place(RingWriter *w, int64_t at, int64_t to, Place *p) noexcept nogil:
    # What of [at, to) lies in the file that holds `at`, which is held for the caller. Behind a file's end-of-file record
    # nothing is written: the ring of memory holds old bytes there.
    cdef int rc = 0
    cdef int64_t data_end, file_end
    p.file = row_find(w.log.row, at, &rc)
    if p.file == NULL:
        return rc if rc < 0 else -EIO
    file_end = p.file.start + p.file.size
    p.begin = at & ~(w.block - 1)
    p.end = to if to < file_end else file_end
    p.next = p.end
    data_end = rmq_load(&p.file.data_end)
    p.last = p.end == file_end
    if data_end >= 0 and p.end > data_end:
        p.end = data_end if data_end > at else at
        p.next = file_end
        p.last = True
    return 0


cdef inline void _pass(RingWriter *w, LogFile *f, int64_t end) noexcept nogil:
    # Zeros written ahead must not land on what is written now.
    if end - f.start > rmq_load(&f.zeroed_to):
        allocator_pass(w.log.alloc, f, end - f.start)


cdef inline int64_t _fill_bounce(RingWriter *w, int64_t begin, int64_t end) noexcept nogil:
    # [begin, end) copied and padded with zeros to whole blocks, as producers write behind `end` meanwhile. Returns the length.
    cdef int64_t whole = (end - begin + w.block - 1) & ~(w.block - 1)
    memcpy(w.bounce, pool_at(w.log.pool, begin), end - begin)
    memset(w.bounce + (end - begin), 0, whole - (end - begin))
    return whole


cdef inline int _descriptor(RingWriter *w, const LogFile *f) noexcept nogil:
    return f.direct_fd if w.direct else f.fd


# ---- commit in the thread of whoever leads

cdef int _write_here(RingWriter *w, const Place *p) noexcept nogil:
    cdef LogFile *f = p.file
    cdef int fd = _descriptor(w, f)
    cdef int64_t begin = p.begin
    cdef int64_t full = p.end & ~(w.block - 1)
    cdef int64_t whole
    cdef bint durable = w.durable and p.end - begin <= BOUNCE
    cdef int rc = 0
    _pass(w, f, (p.end + w.block - 1) & ~(w.block - 1))
    if w.block == 1:
        rc = rmq_pwrite_blocks(w.log.io, fd, pool_at(w.log.pool, begin), p.end - begin, begin - f.start, 1, durable)
        begin = p.end
    elif p.end - begin > BOUNCE and full > begin:
        rc = rmq_pwrite_blocks(w.log.io, fd, pool_at(w.log.pool, begin), full - begin, begin - f.start, w.block, durable)
        begin = full
    if rc == 0 and p.end > begin:
        whole = _fill_bounce(w, begin, p.end)
        rc = rmq_pwrite_blocks(w.log.io, fd, w.bounce, whole, begin - f.start, w.block, durable)
    if not durable:
        rmq_publish32(&f.unsynced, 1)         # not when it begins: see _ring.pxd
    return rc


cdef int _commit_here(Log *log, int64_t to) noexcept nogil:
    # commit_lock is held and nothing is in flight.
    cdef RingWriter *w = <RingWriter *> log.backend_state
    cdef int64_t at = rmq_load(&log.committed)
    cdef Place p
    cdef int rc = 0
    while at < to:
        rc = _place(w, at, to, &p)
        if rc < 0:
            return log_unwritable(log, rc)
        if p.end > at:
            rc = _write_here(w, &p)
        log_file_release(p.file)
        if rc < 0:
            if w.durable and p.end - p.begin <= BOUNCE:     # as _write_here: its sync may have failed
                log_fence(log, rc, FENCE_WRITE)
            return log_unwritable(log, rc)
        at = p.next
        w.submitted = at
        log_committed(log, at)
    rmq_add(&log.commits, 1)
    return 0


cdef int _reach(Log *log, int64_t to) noexcept nogil:
    cdef RingWriter *w = <RingWriter *> log.backend_state
    cdef int ticket, rc
    while True:
        ticket = rmq_event_ticket(&log.room)
        if rmq_load32(&log.fence) != 0:
            return -rmq_load32(&log.fence)
        if rmq_load(&log.committed) >= to:
            return 0
        if rmq_mutex_try(&log.commit_lock):
            rc = -rmq_load32(&log.fence)
            if rc == 0 and rmq_load(&log.committed) < to:
                rc = _commit_here(log, to)
            rmq_mutex_unlock(&log.commit_lock)
            if rc < 0:
                return rc
            rmq_event_wake(&log.room)
            log_commit_seen(log)
            return 0
        # The ring, or another leader, is writing.
        if rmq_load(&w.goal) < to:
            rmq_publish(&w.goal, to)      # two at once: the lower one may stay, and looks again below
        rmq_event_wake(&log.commit_wanted)
        rmq_event_wait(&log.room, ticket, GOAL_LOOK_NS)


cdef int _sync(Log *log, LogFile *f, int64_t begin, int64_t end) noexcept nogil:
    # sync_lock is held. Each write below `committed` has set the mark before; one that ends from here on sets it again.
    cdef RingWriter *w = <RingWriter *> log.backend_state
    if rmq_swap32(&f.unsynced, 0) == 0:
        return 0                        # all of it went by RWF_DSYNC
    return log.io.fdatasync(log.io.ctx, _descriptor(w, f))


# ---- the ring's thread

cdef int _slot(RingWriter *w, const LogFile *f) noexcept nogil:
    # The registered file that stands for f; -1: it has to be named by its descriptor.
    cdef int slot = <int> (f.start // f.size % RMQ_RING_SLOTS)
    if w.slot_file[slot] != f.start:
        if rmq_ring_file(w.ring, slot, _descriptor(w, f)) < 0:
            return -1
        w.slot_file[slot] = f.start
    return slot


cdef void _fly(RingWriter *w, const Place *p, const void *src, int64_t n, int64_t begin, int64_t end, bint durable,
               bint link) noexcept nogil:
    # Begins one write; the hold on the file goes with it.
    cdef LogFile *f = p.file
    _pass(w, f, begin + n)
    rmq_ring_write(w.ring, _slot(w, f), _descriptor(w, f), src, n, begin - f.start, end, f, durable, link)
    w.submitted = end


cdef int _begin_writes(RingWriter *w, int64_t to, bint all_of_it, int64_t least) noexcept nogil:
    # Begins what is worth it of [submitted, to): whole blocks, `least` bytes of them; the rest where a file ends, or all_of_it.
    cdef Log *log = w.log
    cdef rmq_flight *newest
    cdef Place p
    cdef int64_t n, full, straight
    cdef unsigned flying
    cdef int rc
    while w.submitted < to and rmq_ring_room(w.ring) > 1:
        rc = _place(w, w.submitted, to, &p)
        if rc < 0:
            return rc
        flying = rmq_ring_count(w.ring)
        if p.end <= w.submitted:
            # The end-of-file record is under way already: what lies behind it needs no write.
            newest = rmq_ring_newest(w.ring)
            if newest != NULL:
                newest.end = p.next
            else:
                log_committed(log, p.next)
            if w.bounce_end == w.submitted:
                w.bounce_end = p.next
            w.submitted = p.next
            log_file_release(p.file)
            continue
        full = p.end & ~(w.block - 1)
        n = full - p.begin
        if n > 0 and (p.begin == w.submitted or flying == 0):
            straight = log.pool.size - p.begin % log.pool.size     # registered memory ends where the ring does
            if n > straight:
                n = straight
            elif n > w.piece:
                n = w.piece
            elif not (all_of_it or p.last) and n < least:
                n = 0
            if n > w.piece:
                n = w.piece
        else:
            n = 0
        if n > 0:
            _fly(w, &p, pool_at(log.pool, p.begin), n, p.begin, p.next if p.begin + n == p.end else p.begin + n, False, False)
        elif ((all_of_it or p.last) and full <= p.begin and w.bounce_end < 0 and (p.begin == w.submitted or flying == 0)):
            n = _fill_bounce(w, p.begin, p.end)
            w.bounce_end = p.next
            _fly(w, &p, w.bounce, n, p.begin, p.next, False, False)
        else:
            log_file_release(p.file)
            return 0
    return 0


cdef void _take_complete(RingWriter *w) noexcept nogil:
    # Positions move over what is complete from the front.
    cdef rmq_flight done
    cdef int64_t at = -1
    while rmq_ring_take(w.ring, &done):
        if done.end == w.bounce_end:
            w.bounce_end = -1
        if done.end > at:
            at = done.end
        rmq_publish32(&(<LogFile *> done.owner).unsynced, 1)
        log_file_release(<LogFile *> done.owner)
    if at <= rmq_load(&w.log.committed):
        return
    log_committed(w.log, at)
    rmq_add(&w.log.commits, 1)
    rmq_event_wake(&w.log.room)
    if at < rmq_load(&w.log.wrote):         # else whoever called tells the dispatcher, behind the lock
        log_commit_seen(w.log)


cdef void _give_up(RingWriter *w, int error, bint in_sync, bint synced) noexcept nogil:
    # commit_lock is held. The fence first: whoever waits learns of it now, not when the device has answered. For a want there
    # is none, unless the write was to sync, too.
    cdef rmq_flight rest
    cdef int failed = 0
    cdef bint pauses = rmq_is_want(error) and not in_sync and not synced
    if not pauses:
        log_fence(w.log, error, FENCE_SYNC if in_sync else FENCE_WRITE)
    rmq_ring_drain(w.ring)
    while rmq_ring_abandon(w.ring, &rest):
        if rest.owner != NULL:
            rmq_publish32(&(<LogFile *> rest.owner).unsynced, 1)        # it may have been written all the same
        log_file_release(<LogFile *> rest.owner)
    if not pauses:
        return
    w.submitted, w.bounce_end = rmq_load(&w.log.committed), -1
    w.slot_file[0] = w.slot_file[1] = -1        # the drain lets go of them
    if rmq_ring_again(w.ring) < 0:
        error = rmq_ring_turn(w.ring, 0, &failed)       # that of a sync, if one has failed meanwhile
        log_fence(w.log, error, FENCE_SYNC if failed else FENCE_WRITE)
    else:
        log_unwritable(w.log, error)


cdef int _write_all(RingWriter *w, int64_t to) noexcept nogil:
    # Everything below `to` into the file, several writes in flight; none left. 0 or -errno (fenced).
    cdef int in_sync = 0, rc = 0
    while rc >= 0 and (w.submitted < to or rmq_ring_count(w.ring) > 0):
        rc = _begin_writes(w, to, True, 0)
        if rc >= 0 and rmq_ring_count(w.ring) > 0:
            rc = rmq_ring_turn(w.ring, 1, &in_sync)
            _take_complete(w)
    if rc < 0:
        _give_up(w, rc, in_sync, False)
    return rc


cdef int _sync_by_ring(RingWriter *w, LogFile *f) noexcept nogil:
    cdef int in_sync = 0, rc = 0
    cdef rmq_flight done
    if rmq_swap32(&f.unsynced, 0) == 0:
        return 0
    if w.polled:
        rc = w.log.io.fdatasync(w.log.io.ctx, _descriptor(w, f))
    else:
        rmq_ring_sync(w.ring, _slot(w, f), _descriptor(w, f), 0, NULL)
        while rc == 0 and rmq_ring_count(w.ring) > 0:
            rc = rmq_ring_turn(w.ring, 1, &in_sync)
            rmq_ring_take(w.ring, &done)
    if rc < 0:
        _give_up(w, rc, True, False)
    return rc


cdef int _step_small(RingWriter *w, const Place *p) noexcept nogil:
    # One durable step that fits the bounce buffer: one RWF_DSYNC write, or a write and its linked sync in one submission.
    cdef int64_t n = _fill_bounce(w, p.begin, p.end)
    cdef LogFile *f = p.file
    cdef rmq_flight done
    cdef int in_sync = 0, rc = 0
    cdef bint durable = w.durable and rmq_load32(&f.unsynced) == 0
    _fly(w, p, w.bounce, n, p.begin, p.next, durable, not durable)
    if not durable:
        rmq_publish32(&f.unsynced, 0)     # both locks are held: nothing else is under way
        rmq_ring_sync(w.ring, _slot(w, f), _descriptor(w, f), p.next, NULL)
    while rc == 0 and rmq_ring_count(w.ring) > 0:
        rc = rmq_ring_turn(w.ring, rmq_ring_count(w.ring), &in_sync)
        while rmq_ring_take(w.ring, &done):
            log_file_release(<LogFile *> done.owner)
    if rc < 0:
        _give_up(w, rc, in_sync, durable)
    else:
        log_committed(w.log, p.next)
        rmq_add(&w.log.commits, 1)
    return rc


cdef int _durable_step(RingWriter *w) noexcept nogil:
    # sync_lock and commit_lock are held: everything appended so far becomes durable. 0 or -errno (fenced).
    cdef Log *log = w.log
    cdef int64_t timestamp = rmq_load(&log.wrote_timestamp)
    cdef int64_t to = rmq_load(&log.wrote)
    cdef int64_t at = rmq_load(&log.flushed)
    cdef int64_t begun = log.io.mono_ns(log.io.ctx)
    cdef Place p
    cdef int rc
    if rmq_load32(&log.fence) != 0:
        return -rmq_load32(&log.fence)
    w.submitted = rmq_load(&log.committed)
    rc = _place(w, w.submitted, to, &p)
    if rc < 0:
        _give_up(w, rc, False, False)
        return rc
    if (not w.polled and p.file.start <= at and p.next >= to and p.end > w.submitted and p.end - p.begin <= BOUNCE):
        rc = _step_small(w, &p)     # the hold went with the write
    else:
        log_file_release(p.file)
        rc = _write_all(w, to)
        while rc >= 0 and at < to:
            rc = _place(w, at, to, &p)
            if rc < 0:
                _give_up(w, rc, not rmq_is_want(rc), False)       # no sync was tried
                return rc
            rc = _sync_by_ring(w, p.file)
            at = p.file.start + p.file.size
            log_file_release(p.file)
            if rc >= 0 and at < to:
                rmq_publish(&log.flushed, at)
    if rc < 0:
        return rc
    log_flushed(log, to, timestamp, begun)
    return 0


cdef void _sleep(RingWriter *w, int ticket) noexcept nogil:
    # Until an append wakes it: the put path makes a system call only for the first record after a pause.
    cdef Log *log = w.log
    rmq_publish32(&log.commit_asleep, 1)
    rmq_fence()
    if (rmq_load(&log.wrote) == (rmq_load(&log.flushed) if w.sync_mode else rmq_load(&log.committed))
            and rmq_load32(&w.stop) == 0):
        rmq_event_wait(&log.commit_wanted, ticket, -1)
    rmq_publish32(&log.commit_asleep, 0)


cdef void _run_sync(RingWriter *w) noexcept nogil:
    # Synchronous flush. Waiting puts lead in their own threads; this is for those that did not wait, GATHER_NS after the first.
    cdef Log *log = w.log
    cdef int64_t seen = -1, since = 0, idle = 0
    cdef int64_t flushed, pending, now
    cdef int ticket, rc
    while rmq_load32(&w.stop) == 0 and rmq_load32(&log.fence) == 0:
        ticket = rmq_event_ticket(&log.commit_wanted)
        flushed = rmq_load(&log.flushed)
        pending = rmq_load(&log.wrote) - flushed
        if pending == 0:
            idle += 1
            seen = -1
            if idle < IDLE_BEFORE_SLEEP:
                rmq_event_wait(&log.commit_wanted, ticket, POLL_FAST_NS)
            else:
                _sleep(w, ticket)
                idle = 0
            continue
        idle = 0
        now = log.io.mono_ns(log.io.ctx)
        if flushed != seen:
            seen = flushed
            since = now
        if (pending >= GATHER_BYTES or now - since >= GATHER_NS) and rmq_mutex_try(&log.sync_lock):
            rc = 1          # another thread commits: the caller tries again in a while
            if rmq_mutex_try(&log.commit_lock):
                rc = _durable_step(w)
                rmq_mutex_unlock(&log.commit_lock)
                rmq_event_wake(&log.room)
                log_dispatch(log)
            rmq_mutex_unlock(&log.sync_lock)
            rmq_waiters_pass(&log.durable, rmq_load(&log.flushed))
            if rc == 0:
                seen = -1
                continue
            if rc < 0:
                rmq_event_wait(&log.commit_wanted, ticket, RMQ_WANT_RETRY_NS)
                continue            # which the fence ends
        rmq_event_wait(&log.commit_wanted, ticket, POLL_FAST_NS)


cdef int _fill_and_wait(RingWriter *w, bint hurry) noexcept nogil:
    # commit_lock is held: keeps the device busy until there is nothing worth writing, and nothing in flight.
    cdef Log *log = w.log
    cdef int in_sync = 0
    cdef int64_t goal
    cdef int64_t least = rmq_load(&log.commit_bytes_min)
    cdef int rc = 0
    w.submitted = rmq_load(&log.committed)
    while rc >= 0:
        goal = rmq_load(&w.goal)
        rc = _begin_writes(w, rmq_load(&log.wrote), hurry or goal > rmq_load(&log.committed), least)
        if rc < 0 or rmq_ring_count(w.ring) == 0:
            break
        hurry = False
        least = w.piece // 2        # one behind another waits to be so long
        rc = rmq_ring_turn(w.ring, 1, &in_sync)
        _take_complete(w)
        if rmq_load32(&log.fence) != 0 and rc >= 0:
            rc = -rmq_load32(&log.fence)
    if rc < 0:
        _give_up(w, rc, in_sync, False)
    return rc


cdef void _run_async(RingWriter *w) noexcept nogil:
    # Asynchronous flush: commits what has gathered, as RocketMQ's commit thread does. The flush thread syncs behind it.
    cdef Log *log = w.log
    cdef int64_t last = log.io.mono_ns(log.io.ctx)
    cdef int64_t pending, now, moved = 0, idle = 0
    cdef int ticket, rc
    cdef bint hurry
    while rmq_load32(&w.stop) == 0 and rmq_load32(&log.fence) == 0:
        ticket = rmq_event_ticket(&log.commit_wanted)
        pending = rmq_load(&log.wrote) - rmq_load(&log.committed)
        now = log.io.mono_ns(log.io.ctx)
        hurry = pending > 0 and (now - last >= rmq_load(&log.commit_interval_max_ns)
                                 or rmq_load(&w.goal) > rmq_load(&log.committed))
        if pending >= rmq_load(&log.commit_bytes_min) or hurry:
            idle = 0
            log_make_way(log, pending, &moved)
            if rmq_mutex_try(&log.commit_lock):
                rc = _fill_and_wait(w, hurry)
                rmq_mutex_unlock(&log.commit_lock)
                rmq_event_wake(&log.room)
                log_dispatch(log)
                if rc < 0:
                    rmq_event_wait(&log.commit_wanted, ticket, RMQ_WANT_RETRY_NS)
                    continue        # which the fence ends
            if hurry:
                last = now
            rmq_event_wait(&log.commit_wanted, ticket, POLL_FAST_NS)
        elif pending > 0:
            idle = 0
            rmq_event_wait(&log.commit_wanted, ticket, POLL_SLOW_NS)
            if rmq_event_ticket(&log.commit_wanted) != ticket and rmq_load(&log.wrote) > rmq_load(&log.committed):
                last = now - rmq_load(&log.commit_interval_max_ns)       # somebody asked for it
        elif idle < IDLE_BEFORE_SLEEP:
            idle += 1
            rmq_event_wait(&log.commit_wanted, ticket, POLL_FAST_NS)
        else:
            _sleep(w, ticket)
            last = log.io.mono_ns(log.io.ctx)
            idle = 0


cdef void *_run(void *arg) noexcept nogil:
    cdef RingWriter *w = <RingWriter *> arg
    cdef int rc = rmq_ring_enable(w.ring)
    rmq_publish32(&w.started, rc if rc < 0 else 1)
    rmq_event_wake(&w.started_event)
    if rc >= 0:
        if w.sync_mode:
            _run_sync(w)
        else:
            _run_async(w)
        rmq_ring_drain(w.ring)      # nothing is in flight, unless the device does not answer after an error
    return NULL


cdef Backend _RING = Backend(_commit_here, _sync, _reach, _prime, _start, _stop, _free)
