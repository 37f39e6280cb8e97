"""The CommitLog's append path (RocketMQ: CommitLog.asyncPutMessage, DefaultAppendMessageCallback). Contract in _log.pxd."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from rmq_store.base.histogram._histogram cimport rmq_histogram_add
from rmq_store.base.io._io cimport rmq_io, rmq_lost_any
from rmq_store.base.io._sync cimport (EIO, ETIMEDOUT, rmq_add, rmq_cas32, rmq_count, rmq_cpu, rmq_cpu_leave, rmq_event_ticket,
                                      rmq_event_wait, rmq_event_wake, rmq_fence, rmq_load, rmq_load32, rmq_mutex_lock,
                                      rmq_mutex_unlock, rmq_new_lines, rmq_pause, rmq_prefetch_to_write, rmq_put_lock_acquire,
                                      rmq_put_lock_release, rmq_put_lock_try, rmq_publish, rmq_publish32, rmq_waiters_pass)
from rmq_store.base.io._want cimport rmq_is_want
from rmq_store.base.segment._allocator cimport (Allocator, allocator_follow, allocator_pass, allocator_take, allocator_wait)
from rmq_store.base.segment._file cimport FileRow, LogFile, log_file_hold, log_file_release, row_push
from rmq_store.codec._layout cimport BLANK_SIZE, FLAG_TRANSACTION, TRANSACTION_COMMIT
from rmq_store.codec._record cimport RecordArgs, blank_encode, record_encode
from rmq_store.log.pool._pool cimport Pool, pool_at
from rmq_store.queues.consumequeue._queue cimport Queue


cdef enum:
    TIMED_EVERY = 63            # mask: one append in 64 is timed
    ROOM_SHARE = 4
    STREAM_BYTES = 64 << 10     # less is done before another core has taken it up
    NEXT_RECORD = 512           # bytes behind a record, fetched while it is encoded: a page's first lines are far away
    TRIES = 32                  # of a caller with the GIL: some 2 us
    DIRECT_BLOCK = 4096         # a direct write of the log's end repeats the block it begins in: its bytes stay in the pool

cdef int64_t MAKE_WAY_NS = 500_000      # moving takes some 20 us, which a machine without an idle core would pay each time


cdef Log *log_new(const rmq_io *io, FileRow *row, Pool *pool, int put_lock_spins) noexcept nogil:
    cdef int i
    cdef Log *log = <Log *> rmq_new_lines(sizeof(Log))
    if log == NULL:
        return NULL
    log.io = io
    log.row = row
    log.pool = pool
    log.lock.spins = put_lock_spins
    log.confirm = INT64_MAX
    for i in range(PINS):
        log.pinned[i] = INT64_MAX
    return log


cdef void _sync_failed(void *of, int error) noexcept nogil:
    log_fence(<Log *> of, error, FENCE_SYNC)


cdef void log_use_allocator(Log *log, Allocator *alloc) noexcept nogil:
    log.alloc = alloc
    alloc.wrote = &log.wrote
    alloc.flushes = &log.flushes
    alloc.unflushed.flushed, alloc.unflushed.wanted = &log.flushed, &log.flush_wanted
    alloc.fence = &log.fence
    alloc.sync_failed = _sync_failed
    alloc.sync_failed_of = log


cdef void log_free(Log *log) noexcept nogil:
    if log != NULL:
        log_file_release(log.tail)
        free(log)


cdef void log_begin(Log *log, int64_t end, LogFile *tail, int64_t timestamp) noexcept nogil:
    log.tail = tail
    log.position = end
    log.last_timestamp = timestamp
    log.wrote_timestamp = timestamp
    log.flushed_timestamp = timestamp
    rmq_publish(&log.wrote, end)
    rmq_publish(&log.committed, end)
    rmq_publish(&log.reusable, end & ~(<int64_t> DIRECT_BLOCK - 1) if log.direct else end)
    rmq_publish(&log.flushed, end)


cdef bint log_busy(Log *log) noexcept nogil:
    cdef int64_t since = rmq_load(&log.lock_since_ms)
    return since != 0 and log.io.wall_ms(log.io.ctx) - since > log.busy_after_ms


cdef inline int64_t _locked(Log *log) noexcept nogil:
    # Under the lock: one clock reading is the store time and the beginning of the lock's watch.
    cdef int64_t now = log.io.wall_ms(log.io.ctx)
    rmq_publish32(&log.lock_phase, PHASE_ENCODE)
    rmq_publish(&log.lock_since_ms, now)
    if now < log.last_timestamp:
        now = log.last_timestamp
    if log.puts & TIMED_EVERY == 0:
        log.timed_since = log.io.mono_ns(log.io.ctx)
        rmq_publish32(&log.put_cpu, rmq_cpu())
    return now


cdef int64_t log_lock_begin(Log *log) noexcept nogil:
    cdef int64_t begun
    if not rmq_put_lock_try(&log.lock):
        begun = log.io.mono_ns(log.io.ctx)
        rmq_put_lock_acquire(&log.lock)
        rmq_histogram_add(&log.lock_times, log.io.mono_ns(log.io.ctx) - begun)
    return _locked(log)


cdef bint log_lock_try(Log *log, int64_t *now) noexcept nogil:
    # Whoever has the lock places one message, as a rule, in less time than it takes to give the GIL away and to get it back.
    cdef int tries = TRIES
    cdef int64_t begun
    if not rmq_put_lock_try(&log.lock):
        begun = log.io.mono_ns(log.io.ctx)
        while True:
            if tries == 0:
                return False
            tries -= 1
            rmq_pause()
            if rmq_load32(&log.lock.mutex.state) == 0 and rmq_put_lock_try(&log.lock):
                break
        rmq_histogram_add(&log.lock_times, log.io.mono_ns(log.io.ctx) - begun)
    now[0] = _locked(log)
    return True


cdef inline void _release(Log *log) noexcept nogil:
    if log.timed_since != 0:
        rmq_histogram_add(&log.append_times, log.io.mono_ns(log.io.ctx) - log.timed_since)
        log.timed_since = 0
    rmq_publish(&log.lock_since_ms, 0)
    rmq_put_lock_release(&log.lock)


cdef inline bint _wake_sleepers(Log *log) noexcept nogil:
    # The release was a full fence: either the sleeper saw the new position, or we see that it sleeps.
    cdef bint here = False
    if log.pool != NULL:
        if rmq_load32(&log.commit_asleep) != 0:
            rmq_event_wake(&log.commit_wanted)
    elif rmq_load32(&log.dispatch_asleep) != 0 and not log.durable_only:
        if rmq_load32(&log.readers) > 0:
            here = True
        else:
            rmq_event_wake(&log.dispatch_wanted)
    if rmq_load32(&log.flush_eager) and rmq_load32(&log.flush_asleep) != 0:
        rmq_event_wake(&log.flush_wanted)
    return here


cdef bint log_lock_end_quick(Log *log) noexcept nogil:
    _release(log)
    return _wake_sleepers(log)


cdef void log_lock_end(Log *log) noexcept nogil:
    if log_lock_end_quick(log):
        log_dispatch(log)


cdef void log_lock_leave(Log *log) noexcept nogil:
    _release(log)


cdef void log_lock_left(Log *log) noexcept nogil:
    if _wake_sleepers(log):
        log_dispatch(log)


cdef void log_make_way(Log *log, int64_t pending, int64_t *moved) noexcept nogil:
    cdef int cpu = rmq_load32(&log.put_cpu)
    cdef int64_t now
    if pending >= STREAM_BYTES and cpu == rmq_cpu():
        now = log.io.mono_ns(log.io.ctx)
        if now - moved[0] >= MAKE_WAY_NS:
            moved[0] = now
            rmq_cpu_leave(cpu)


cdef void log_dispatch_wake(Log *log) noexcept nogil:
    if rmq_load32(&log.dispatch_asleep) != 0:
        rmq_event_wake(&log.dispatch_wanted)


cdef void log_commit_seen(Log *log) noexcept nogil:
    if not log.durable_only:
        log_dispatch_wake(log)


cdef void log_dispatch(Log *log) noexcept nogil:
    if rmq_load32(&log.dispatch_asleep) != 0 and rmq_load32(&log.readers) > 0 and log.dispatch_here != NULL:
        log.dispatch_here(log.dispatcher)
    else:
        log_dispatch_wake(log)


cdef inline AppendStatus _stored(Log *log, LogFile *f) noexcept nogil:
    # What was encoded into a page that the file does not have any more is nowhere.
    if log.pool == NULL and rmq_lost_any(&f.lost):
        log_fence(log, -EIO, FENCE_WRITE)
        return APPEND_FENCED
    return APPEND_OK


cdef AppendStatus _roll(Log *log, LogFile *next) noexcept nogil:
    # Closes the tail with the end-of-file record and continues in `next`, whose hold is taken over.
    cdef LogFile *f = log.tail
    cdef int64_t rest
    cdef unsigned char *at
    cdef AppendStatus status = APPEND_OK
    rmq_publish32(&log.lock_phase, PHASE_ROLL)
    if row_push(log.row, next) < 0:
        log_file_release(next)
        return APPEND_ERROR
    log_file_hold(next)
    if f != NULL and f.start + f.size - log.position < BLANK_SIZE:
        rmq_publish(&f.data_end, f.start + f.size)        # no store of this format leaves so little; a log may
        log_file_release(f)
    elif f != NULL:
        rest = f.start + f.size - log.position
        if log.pool != NULL:
            at = pool_at(log.pool, log.position)
        else:
            at = f.map + (log.position - f.start)
            if log.position - f.start + BLANK_SIZE > rmq_load(&f.zeroed_to):
                allocator_pass(log.alloc, f, log.position - f.start + BLANK_SIZE)
        blank_encode(at, <int32_t> rest)
        if log.pool == NULL and log.io.map_store != NULL:
            log.io.map_store(log.io.ctx, f.fd, log.position - f.start, at, BLANK_SIZE)
        rmq_publish(&f.data_end, log.position + BLANK_SIZE)
        status = _stored(log, f)
        log_file_release(f)
    log.tail = next
    log.position = next.start
    rmq_publish(&log.wrote, next.start)
    if log.pool == NULL:
        rmq_publish(&log.committed, next.start)
    allocator_follow(log.alloc, next)
    return status


cdef inline bint _fits(Log *log, int64_t size) noexcept nogil:
    # The record and the end-of-file record behind it lie in the file that is being written.
    return log.tail != NULL and log.position + size + BLANK_SIZE <= log.tail.start + log.tail.size


cdef inline int64_t _next_start(Log *log) noexcept nogil:
    # Without a tail the log is empty, or its last file is full to the last byte.
    return log.position if log.tail == NULL else log.tail.start + log.tail.size


cdef inline int64_t _kept(const Log *log) noexcept nogil:
    # Bytes of the pool, at most, that are not given back although the file has them: of the block in which the log ends.
    return DIRECT_BLOCK - 1 if log.direct else 0


cdef int64_t log_reserve_max(const Log *log) noexcept nogil:
    # It lies in one file; and the pool must hold it behind the rest of a file that it does not fit into.
    cdef int64_t of_file = log.row.file_size - BLANK_SIZE
    cdef int64_t of_pool
    if log.pool == NULL:
        return of_file
    of_pool = (log.pool.size - BLANK_SIZE - _kept(log)) // 2
    return of_pool if of_pool < of_file else of_file


cdef AppendStatus log_reserve(Log *log, int64_t size) noexcept nogil:
    cdef LogFile *f = log.tail
    cdef LogFile *next
    cdef int64_t end = log.position + size
    cdef int64_t next_start
    cdef AppendStatus status
    if rmq_load32(&log.fence) != 0:
        return APPEND_FENCED
    if not _fits(log, size):
        next_start = _next_start(log)
        # The pool must hold the jump over the rest of this file as well: offsets and places in the pool go together.
        if log.pool != NULL and next_start + size - rmq_load(&log.reusable) > log.pool.size:
            return APPEND_NEED_ROOM
        next = allocator_take(log.alloc, next_start)
        if next == NULL:
            return APPEND_NEED_FILE
        status = _roll(log, next)
        rmq_publish32(&log.lock_phase, PHASE_ENCODE)
        if status != APPEND_OK:
            return status
        f = next
        end = log.position + size
    elif log.pool != NULL and end - rmq_load(&log.reusable) > log.pool.size:
        return APPEND_NEED_ROOM
    if log.pool == NULL and end - f.start > rmq_load(&f.zeroed_to):
        allocator_pass(log.alloc, f, end - f.start)
    return APPEND_OK


cdef AppendStatus log_append(Log *log, RecordArgs *a, Queue *q, int64_t now, Appended *out) noexcept nogil:
    cdef unsigned char *at
    cdef int64_t queue_offset = 0
    cdef int kind = a.sys_flag & FLAG_TRANSACTION
    cdef bint queued = kind == 0 or kind == TRANSACTION_COMMIT
    cdef AppendStatus status = log_reserve(log, a.size)
    if status != APPEND_OK:
        return status
    if queued:
        queue_offset = q.next_offset
        rmq_count(&q.next_offset, 1)        # readers of a pool look at it without the lock
    if log.pool != NULL:
        at = pool_at(log.pool, log.position)
    else:
        at = log.tail.map + (log.position - log.tail.start)
    rmq_prefetch_to_write(at + a.size, NEXT_RECORD)
    record_encode(at, a, queue_offset, log.position, now)
    if _stored(log, log.tail) != APPEND_OK:
        return APPEND_FENCED
    if log.pool == NULL and log.io.map_store != NULL:
        log.io.map_store(log.io.ctx, log.tail.fd, log.position - log.tail.start, at, a.size)
    out.offset = log.position
    out.queue_offset = queue_offset
    out.store_timestamp = now
    log.last_timestamp = now
    log.position += a.size
    rmq_publish(&log.wrote_timestamp, now)
    rmq_publish(&log.wrote, log.position)
    if log.pool == NULL:
        rmq_publish(&log.committed, log.position)
    rmq_count(&log.puts, 1)
    rmq_count(&log.put_bytes, a.size)
    return APPEND_OK


cdef void log_committed(Log *log, int64_t at) noexcept nogil:
    rmq_publish(&log.committed, at)
    if rmq_load32(&log.want) != 0:
        rmq_publish32(&log.want, 0)
    if log.direct:
        log_reclaim(log, False)
    else:
        rmq_publish(&log.reusable, at)


cdef void log_flushed(Log *log, int64_t to, int64_t timestamp, int64_t begun_ns) noexcept nogil:
    rmq_publish(&log.flushed_timestamp, timestamp)
    rmq_publish(&log.flushed, to)
    rmq_add(&log.flushes, 1)
    rmq_histogram_add(&log.flush_times, log.io.mono_ns(log.io.ctx) - begun_ns)


cdef void log_reclaim(Log *log, bint wanted) noexcept nogil:
    cdef int64_t to, recent
    cdef int i
    if not log.direct:
        return
    rmq_mutex_lock(&log.reclaim_lock)
    to = rmq_load(&log.committed) & ~(<int64_t> DIRECT_BLOCK - 1)
    recent = rmq_load(&log.wrote) - log.pool.size // 2
    if not wanted and recent < to:
        to = recent
    for i in range(PINS):
        to = min(to, log.pinned[i])
    if to > log.reusable:
        rmq_publish(&log.reusable, to)
    rmq_mutex_unlock(&log.reclaim_lock)


cdef bint log_pin(Log *log, int reader, int64_t at) noexcept nogil:
    cdef bint there
    rmq_mutex_lock(&log.reclaim_lock)
    there = log.reusable <= at
    if there:
        rmq_publish(&log.pinned[reader], at)
    rmq_mutex_unlock(&log.reclaim_lock)
    return there


cdef void log_unpin(Log *log, int reader) noexcept nogil:
    rmq_mutex_lock(&log.reclaim_lock)
    rmq_publish(&log.pinned[reader], INT64_MAX)
    rmq_mutex_unlock(&log.reclaim_lock)
    rmq_event_wake(&log.room)


cdef bint log_copy(Log *log, int64_t offset, int64_t size, unsigned char *to) noexcept nogil:
    # Producers may write over the bytes meanwhile: then `reusable` had moved first, and what was copied is thrown away.
    if offset < rmq_load(&log.reusable) or offset + size > rmq_load(&log.committed):
        return False
    memcpy(to, pool_at(log.pool, offset), size)
    rmq_fence()
    return offset >= rmq_load(&log.reusable)


cdef inline bint _all_free(Log *log) noexcept nogil:
    # As much as there will ever be: all is in the file, and nobody reads it here any more.
    cdef int64_t committed = rmq_load(&log.committed)
    return rmq_load(&log.wrote) == committed and rmq_load(&log.reusable) >= committed - _kept(log)


cdef int log_wait_room(Log *log, int64_t size, int64_t timeout_ns) noexcept nogil:
    # Until a good part of the pool is free: who continues with the first bytes waits again for the next ones, put after put.
    cdef int64_t deadline = log.io.mono_ns(log.io.ctx) + timeout_ns
    cdef int64_t now, before = rmq_load(&log.reusable)
    cdef int64_t enough = before + log.pool.size // ROOM_SHARE
    cdef int ticket
    rmq_add(&log.room_waits, 1)
    while True:
        ticket = rmq_event_ticket(&log.room)
        if rmq_load32(&log.fence) != 0:
            return -rmq_load32(&log.fence)
        log_reclaim(log, True)
        if rmq_load(&log.reusable) >= enough or _all_free(log):
            return 0
        if rmq_load32(&log.want) != 0:
            return -rmq_load32(&log.want)       # nobody knows how long: the caller tells
        now = log.io.mono_ns(log.io.ctx)
        if now >= deadline:
            return 0 if rmq_load(&log.reusable) > before else -ETIMEDOUT
        rmq_event_wake(&log.commit_wanted)
        rmq_event_wait(&log.room, ticket, deadline - now)


cdef int log_wait_file(Log *log, int64_t size, int64_t timeout_ns) noexcept nogil:
    cdef int64_t start
    cdef bint fits
    rmq_add(&log.file_waits, 1)
    rmq_put_lock_acquire(&log.lock)
    fits = _fits(log, size)     # somebody else rolled meanwhile: the file behind that one is not needed
    start = _next_start(log)
    rmq_put_lock_release(&log.lock)
    return 0 if fits else allocator_wait(log.alloc, start, timeout_ns)


cdef int log_unwritable(Log *log, int error) noexcept nogil:
    if not rmq_is_want(error):
        log_fence(log, error, FENCE_WRITE)
    elif rmq_load32(&log.want) != -error:
        rmq_publish32(&log.want, -error)
        rmq_event_wake(&log.room)
    return error


cdef void log_fence(Log *log, int error, int step) noexcept nogil:
    # The first error stays; everybody who waits for room or for the device learns of it at once. Its step is there before it.
    if rmq_cas32(&log.fence_step, FENCE_NONE, step):
        rmq_publish32(&log.fence, -error if error < 0 else error)
    while rmq_load32(&log.fence) == 0:
        rmq_pause()         # another thread was first, and is between the two
    rmq_event_wake(&log.room)
    rmq_waiters_pass(&log.durable, INT64_MAX)
    rmq_event_wake(&log.commit_wanted)
    rmq_event_wake(&log.flush_wanted)
    rmq_event_wake(&log.dispatch_wanted)
    if log.alloc != NULL:
        rmq_event_wake(&log.alloc.done)         # who waits for a file
