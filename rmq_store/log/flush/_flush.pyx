"""Commit, sync and group commit (RocketMQ: CommitRealTimeService, FlushRealTimeService, GroupCommitService). See _flush.pxd."""
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc

from rmq_store.base.histogram._histogram cimport rmq_histogram_add
from rmq_store.base.io._io cimport rmq_lost_in
from rmq_store.base.io._sync cimport (EIO, ETIMEDOUT, rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_fence, rmq_load,
                                      rmq_load32, rmq_mutex_lock, rmq_mutex_try, rmq_mutex_unlock, rmq_publish, rmq_publish32,
                                      rmq_thread_join, rmq_thread_start, rmq_waiter, rmq_waiter_enter, rmq_waiter_leave,
                                      rmq_waiter_sleep, rmq_waiters_pass)
from rmq_store.base.io._want cimport RMQ_WANT_RETRY_NS, rmq_is_want
from rmq_store.base.segment._descriptors cimport UNFLUSHED_FILES
from rmq_store.base.segment._file cimport LogFile, log_file_release, row_find
from rmq_store.log.commitlog._log cimport (FENCE_SYNC, Log, log_commit_seen, log_dispatch, log_fence, log_flushed, log_make_way,
                                           log_unwritable)

cdef int64_t POLL_FAST_NS = 500_000         # between commits while producers are busy: each one costs them a turn of the core
cdef int64_t POLL_SLOW_NS = 1_000_000       # while there is little to commit
cdef int64_t IDLE_BEFORE_SLEEP = 10         # empty rounds before the committer waits to be woken
cdef int64_t FLUSH_EARLY_BYTES = 64 << 20   # asynchronous flush does not wait for its interval with so much to do ...
cdef int64_t FLUSH_LOOK_NS = 50_000_000     # ... for which it looks this often
cdef int64_t GATHER_NS = 2_000_000          # sync mode: unwaited puts are flushed this long after the first


# ---- one owner of commit, one of sync

cdef int _commit_locked(Log *log, int64_t to) noexcept nogil:
    cdef int64_t begun
    cdef int rc
    if rmq_load32(&log.fence) != 0:
        return -rmq_load32(&log.fence)
    if log.backend.commit == NULL or rmq_load(&log.committed) >= to:
        return 0
    begun = log.io.mono_ns(log.io.ctx)
    rc = log.backend.commit(log, to)
    if rc < 0:
        return log_unwritable(log, rc)
    rmq_histogram_add(&log.commit_times, log.io.mono_ns(log.io.ctx) - begun)
    rmq_event_wake(&log.room)
    return 0


cdef int _commit(Log *log, int64_t to) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&log.commit_lock)
    rc = _commit_locked(log, to)
    rmq_mutex_unlock(&log.commit_lock)
    return rc


cdef int flush_commit(Log *log, int64_t to) noexcept nogil:
    cdef int rc
    if log.backend.reach != NULL:
        return log.backend.reach(log, to)
    rc = _commit(log, to)
    log_commit_seen(log)
    return rc


cdef bint flush_commit_try(Log *log) noexcept nogil:
    if log.backend.reach != NULL or log.backend.commit == NULL or not rmq_mutex_try(&log.commit_lock):
        return False
    _commit_locked(log, rmq_load(&log.wrote))
    rmq_mutex_unlock(&log.commit_lock)
    return True


cdef int _flush_locked(Log *log) noexcept nogil:
    # The caller holds sync_lock. The time is read before the position, so the records that the time covers lie below the
    # position. A few records were being appended meanwhile; recovery's margin of three seconds covers them.
    cdef int64_t timestamp = rmq_load(&log.wrote_timestamp)
    cdef int64_t to = rmq_load(&log.wrote)
    cdef int64_t at = rmq_load(&log.flushed)
    cdef int64_t end, begun
    cdef LogFile *f
    cdef int rc
    if rmq_load32(&log.fence) != 0:
        return -rmq_load32(&log.fence)
    if at >= to:
        return 0
    begun = log.io.mono_ns(log.io.ctx)
    rc = flush_commit(log, to)
    if rc < 0:
        return rc               # fenced, or it lacks something
    while rc >= 0 and at < to:
        f = row_find(log.row, at, &rc)
        if f == NULL:
            if rmq_is_want(rc):
                return rc       # to map the file: no sync of it was tried
            rc = rc if rc < 0 else -EIO
            break
        end = f.start + f.size
        if to < end:
            end = to
        rc = log.backend.sync(log, f, at, end)
        if rc >= 0 and rmq_lost_in(&f.lost, at - f.start, end - f.start):
            rc = -EIO           # a reader met a page that the file does not have any more, and the sync covered what is left
        log_file_release(f)
        if rc >= 0:
            at = end
            if at < to:
                rmq_publish(&log.flushed, at)
    if rc < 0:
        log_fence(log, rc, FENCE_SYNC)
        return rc
    log_flushed(log, to, timestamp, begun)
    return 0


cdef inline void _unlock_and_announce(Log *log) noexcept nogil:
    rmq_mutex_unlock(&log.sync_lock)
    rmq_waiters_pass(&log.durable, rmq_load(&log.flushed))
    log_dispatch(log)


cdef int flush_all(Log *log) noexcept nogil:
    cdef int rc
    rmq_mutex_lock(&log.sync_lock)
    rc = _flush_locked(log)
    _unlock_and_announce(log)
    return rc


cdef int flush_wait(Log *log, int64_t end, int64_t timeout_ns) noexcept nogil:
    # The caller leads if nobody does, else it waits on the list. It looks again between entering the list and sleeping: a sync
    # that ended in between did not see the caller, but has released the lock. While commits lack something nobody leads: the
    # committer tries again, and who waits looks whether that is over. A leader that lacks something calls nobody: whoever came
    # would fail the same at once.
    cdef int64_t deadline = 0
    cdef int64_t now
    cdef rmq_waiter waiter
    cdef bint listed = False, lacks
    cdef int rc
    while True:
        if rmq_load(&log.flushed) >= end or rmq_load32(&log.fence) != 0:
            if listed:
                rmq_waiter_leave(&log.durable, &waiter)
            return 0 if rmq_load(&log.flushed) >= end else -rmq_load32(&log.fence)
        lacks = rmq_load32(&log.want) != 0
        if not lacks and rmq_mutex_try(&log.sync_lock):
            if listed:
                rmq_waiter_leave(&log.durable, &waiter)
                listed = False
            rc = _flush_locked(log)
            if rc >= 0 or rmq_load32(&log.fence) != 0:
                _unlock_and_announce(log)
                continue
            lacks = True
            rmq_mutex_unlock(&log.sync_lock)
            if rmq_load32(&log.flush_asleep) != 0:
                rmq_event_wake(&log.flush_wanted)       # it may last for longer than this caller waits
        now = log.io.mono_ns(log.io.ctx)
        if deadline == 0:
            deadline = now + timeout_ns
        if now >= deadline:
            if listed:
                rmq_waiter_leave(&log.durable, &waiter)
            rmq_waiters_pass(&log.durable, rmq_load(&log.flushed))      # another one looks whether it still lacks it
            return -ETIMEDOUT
        if not listed:
            rmq_waiter_enter(&log.durable, &waiter, end)
            listed = True
            if not lacks:
                continue
        rmq_waiter_sleep(&log.durable, &waiter, min(RMQ_WANT_RETRY_NS, deadline - now) if lacks else deadline - now)
        listed = False


# ---- background threads

cdef void *_commit_run(void *arg) noexcept nogil:
    # While producers are busy, the thread looks every POLL_FAST_NS and commits what has gathered. With nothing to do it sleeps
    # until an append wakes it. So a put makes a system call only for the first record after a pause.
    cdef Flusher *s = <Flusher *> arg
    cdef Log *log = s.log
    cdef int64_t last = log.io.mono_ns(log.io.ctx)
    cdef int64_t pending, now, moved = 0, idle = 0
    cdef int ticket, rc
    while rmq_load32(&s.stop) == 0:
        ticket = rmq_event_ticket(&log.commit_wanted)
        pending = rmq_load(&log.wrote) - rmq_load(&log.committed)
        now = log.io.mono_ns(log.io.ctx)
        if pending >= rmq_load(&log.commit_bytes_min) or (pending > 0 and now - last >= rmq_load(&log.commit_interval_max_ns)):
            log_make_way(log, pending, &moved)
            rc = _commit(log, rmq_load(&log.wrote))
            if rmq_load32(&log.fence) != 0:
                break
            log_dispatch(log)
            last = now
            idle = 0
            rmq_event_wait(&log.commit_wanted, ticket, POLL_FAST_NS if rc >= 0 else RMQ_WANT_RETRY_NS)
        elif pending > 0:
            idle = 0
            rmq_event_wait(&log.commit_wanted, ticket, POLL_SLOW_NS)
            if rmq_event_ticket(&log.commit_wanted) != ticket and rmq_load(&log.wrote) > rmq_load(&log.committed):
                last = now - rmq_load(&log.commit_interval_max_ns)   # somebody asked for it
        elif idle < IDLE_BEFORE_SLEEP:
            idle += 1
            rmq_event_wait(&log.commit_wanted, ticket, POLL_FAST_NS)
        else:
            rmq_publish32(&log.commit_asleep, 1)
            rmq_fence()
            if rmq_load(&log.wrote) == rmq_load(&log.committed) and rmq_load32(&s.stop) == 0:
                rmq_event_wait(&log.commit_wanted, ticket, -1)
            rmq_publish32(&log.commit_asleep, 0)
            last = log.io.mono_ns(log.io.ctx)
            idle = 0
    return NULL


cdef void *_flush_run(void *arg) noexcept nogil:
    cdef Flusher *s = <Flusher *> arg
    cdef Log *log = s.log
    cdef int64_t thorough = log.io.mono_ns(log.io.ctx)
    cdef int64_t last = thorough
    cdef int64_t pending, now, interval, interval_max
    cdef int64_t early = min(FLUSH_EARLY_BYTES, UNFLUSHED_FILES * log.row.file_size)
    cdef int ticket, gather, rc
    cdef bint due
    while rmq_load32(&s.stop) == 0 and rmq_load32(&log.fence) == 0:
        ticket = rmq_event_ticket(&log.flush_wanted)
        pending = rmq_load(&log.wrote) - rmq_load(&log.flushed)
        now = log.io.mono_ns(log.io.ctx)
        if s.sync_mode or rmq_load32(&log.flush_eager):
            # A put that waits flushes for itself. This flush is for puts that do not wait, and for flush_wake=eager.
            if pending > 0:
                if flush_all(log) < 0 and rmq_load32(&log.fence) == 0:
                    rmq_event_wait(&log.flush_wanted, ticket, RMQ_WANT_RETRY_NS)
                continue
            rmq_publish32(&log.flush_asleep, 1)
            rmq_fence()
            if rmq_load(&log.wrote) == rmq_load(&log.flushed) and rmq_load32(&s.stop) == 0:
                rmq_event_wait(&log.flush_wanted, ticket, -1)
            rmq_publish32(&log.flush_asleep, 0)
            if rmq_load32(&s.stop) == 0:
                gather = rmq_event_ticket(&log.flush_wanted)
                rmq_event_wait(&log.flush_wanted, gather, GATHER_NS)
            continue
        interval = rmq_load(&s.flush_interval_ns)
        interval_max = rmq_load(&s.flush_interval_max_ns)
        due = now - last >= interval
        rc = 0
        if (pending >= early or (due and pending >= rmq_load(&s.flush_bytes_min))
                or (pending > 0 and now - thorough >= interval_max)):
            rc = flush_all(log)
            if now - thorough >= interval_max:
                thorough = now
        if due:
            last = now
        rmq_event_wait(&log.flush_wanted, ticket, RMQ_WANT_RETRY_NS if rc < 0 else min(interval, FLUSH_LOOK_NS))
    return NULL


cdef Flusher *flusher_new(Log *log) noexcept nogil:
    cdef Flusher *s = <Flusher *> calloc(1, sizeof(Flusher))
    if s != NULL:
        s.log = log
    return s


cdef int flusher_start(Flusher *s) noexcept nogil:
    cdef int rc = 0
    if s.log.backend.start != NULL:
        rc = s.log.backend.start(s.log, s.sync_mode)
        if s.sync_mode:
            return rc           # its thread flushes as well
    elif s.log.pool != NULL:
        rc = rmq_thread_start(&s.commit_thread, _commit_run, s, b"rmq-commit")
        s.commit_running = rc == 0
    if rc == 0:
        rc = rmq_thread_start(&s.flush_thread, _flush_run, s, b"rmq-flush")
        s.flush_running = rc == 0
    return rc


cdef int flusher_stop(Flusher *s) noexcept nogil:
    cdef int rc = 0
    rmq_publish32(&s.stop, 1)
    rmq_event_wake(&s.log.commit_wanted)
    rmq_event_wake(&s.log.flush_wanted)
    if s.log.backend.stop != NULL:
        rc = s.log.backend.stop(s.log)
    if s.commit_running:
        rc = rmq_thread_join(&s.commit_thread)
        s.commit_running = False
    if s.flush_running:
        rc = rmq_thread_join(&s.flush_thread)
        s.flush_running = False
    return rc
