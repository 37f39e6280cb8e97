"""The checkpoint file and the thread that keeps it. Contract in _checkpoint.pxd.

    offset  0 physicMsgTimestamp   8 logicsMsgTimestamp   16 indexMsgTimestamp   24 masterFlushedOffset   32 confirmPhyOffset
           40 flushed offset       48 its seal

The last two are ours; RocketMQ leaves these bytes alone. A time tells badly how far the log is flushed: many records may have
the same, and a clock that once was a day ahead lends its time to a day of them. The seal ties the offset to physicMsgTimestamp:
where a Java broker has written the checkpoint since, it no longer fits.
"""
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc

from rmq_store.base.io._io cimport rmq_io, rmq_pwrite_all
from rmq_store.base.io._sync cimport (rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_load, rmq_load32, rmq_publish,
                                      rmq_publish32, rmq_thread_join, rmq_thread_start)
from rmq_store.base.io._want cimport rmq_is_want
from rmq_store.codec._layout cimport (CHECKPOINT_AT_CONFIRM, CHECKPOINT_AT_FLUSHED, CHECKPOINT_AT_INDEX, CHECKPOINT_AT_LOGICS,
                                      CHECKPOINT_AT_MASTER_FLUSHED, CHECKPOINT_AT_PHYSICAL, CHECKPOINT_AT_SEAL,
                                      CHECKPOINT_FIELDS_SIZE, CHECKPOINT_SEAL_HIGH, CHECKPOINT_SEAL_LOW)
from rmq_store.codec._record cimport rmq_put64
from rmq_store.log.commitlog._log cimport FENCE_SYNC, Log, log_fence
from rmq_store.log.dispatch._dispatch cimport Dispatcher
from rmq_store.queues.consumequeue._queue cimport queues_sync, queues_sync_failed
from rmq_store.queues.index._index cimport index_sync

cdef int64_t TICK_NS = 250_000_000
cdef int64_t FLUSHED_EVERY_NS = 1_000_000_000       # what lies behind it a recovery writes again
cdef int64_t LOCK_WARN_MS = 500


cdef int checkpoint_write(const rmq_io *io, int fd, const CheckpointTimes *times, bint *synced) noexcept nogil:
    # All inside one sector: a power cut leaves the old or the new ones.
    cdef unsigned char[CHECKPOINT_FIELDS_SIZE] data
    cdef int64_t seal = <int64_t> CHECKPOINT_SEAL_HIGH << 32 | CHECKPOINT_SEAL_LOW
    cdef int rc
    rmq_put64(data + CHECKPOINT_AT_PHYSICAL, times.physical)
    rmq_put64(data + CHECKPOINT_AT_LOGICS, times.logics)
    rmq_put64(data + CHECKPOINT_AT_INDEX, times.index)
    rmq_put64(data + CHECKPOINT_AT_MASTER_FLUSHED, times.master_flushed)
    rmq_put64(data + CHECKPOINT_AT_CONFIRM, times.confirm)
    rmq_put64(data + CHECKPOINT_AT_FLUSHED, times.flushed)
    rmq_put64(data + CHECKPOINT_AT_SEAL, times.physical ^ times.flushed ^ seal)
    rc = rmq_pwrite_all(io, fd, data, CHECKPOINT_FIELDS_SIZE, 0)
    synced[0] = rc >= 0
    return rc if rc < 0 else io.fdatasync(io.ctx, fd)


cdef int _write(Checkpointer *c, const CheckpointTimes *next) noexcept nogil:
    cdef bint synced = False
    cdef int rc = checkpoint_write(c.io, c.fd, next, &synced)
    c.final = synced or not rmq_is_want(rc)
    if rc >= 0:
        c.times = next[0]
    return rc


cdef int _sync_queues(Checkpointer *c, int64_t pages_min) noexcept nogil:
    cdef int rc = queues_sync(c.d.queues, pages_min)
    c.final = queues_sync_failed(c.d.queues) or not rmq_is_want(rc)
    return rc


cdef int checkpoint_now(Checkpointer *c) noexcept nogil:
    # Times are read before the syncs that make them true.
    cdef CheckpointTimes next = c.times
    cdef Log *log = c.d.log
    cdef int64_t logics = rmq_load(&c.d.last_timestamp)
    cdef int64_t flushed = rmq_load(&log.flushed)
    cdef int64_t physical = rmq_load(&log.flushed_timestamp)
    cdef int64_t index = 0
    cdef int rc = _sync_queues(c, 0)
    if rc < 0:
        return rc
    if c.d.index != NULL:
        c.final = True
        rc = index_sync(c.d.index, True, &index)
        if rc < 0:
            return rc
    if logics > physical:
        logics = physical       # a time ahead of what the device has of the log would not be believed
    if index > physical:
        index = physical
    if physical > next.physical:
        next.physical = physical
    if logics > next.logics:
        next.logics = logics
    if index > next.index:
        next.index = index
    next.flushed = flushed
    if rmq_load(&log.confirm) != INT64_MAX:
        next.confirm = rmq_load(&log.confirm)
    return _write(c, &next)


cdef int _flushed_now(Checkpointer *c, int64_t now) noexcept nogil:
    # How far the log is flushed, without a sync of queues and index: their times stay.
    cdef CheckpointTimes next = c.times
    cdef int64_t physical
    next.flushed = rmq_load(&c.d.log.flushed)
    if next.flushed == c.times.flushed or now - c.flushed_ns < FLUSHED_EVERY_NS:
        return 0
    c.flushed_ns = now
    physical = rmq_load(&c.d.log.flushed_timestamp)
    if physical > next.physical:
        next.physical = physical
    return _write(c, &next)


cdef void _watch_lock(Log *log) noexcept nogil:
    cdef int64_t since = rmq_load(&log.lock_since_ms)
    cdef int64_t held
    if since == 0:
        return
    held = log.io.wall_ms(log.io.ctx) - since
    if held > LOCK_WARN_MS and held < 10_000_000:
        rmq_publish(&log.slow_lock_ms, held)
        rmq_publish(&log.slow_lock_phase, rmq_load32(&log.lock_phase))
        if log.slow_lock_since != since:
            log.slow_lock_since = since
            rmq_publish(&log.slow_locks, log.slow_locks + 1)


cdef void *_run(void *arg) noexcept nogil:
    cdef Checkpointer *c = <Checkpointer *> arg
    cdef Log *log = c.d.log
    cdef int64_t now = c.io.mono_ns(c.io.ctx)
    cdef int64_t last = now, thorough = now
    cdef int64_t written = -1
    cdef int rc = 0
    cdef int ticket
    while rmq_load32(&c.stop) == 0:
        ticket = rmq_event_ticket(&c.wanted)
        _watch_lock(log)
        now = c.io.mono_ns(c.io.ctx)
        rc = 0
        if now - thorough >= rmq_load(&c.interval_max_ns):
            thorough = last = now
            if rmq_load(&c.d.last_timestamp) != written:
                written = rmq_load(&c.d.last_timestamp)
                rc = checkpoint_now(c)
        elif now - last >= rmq_load(&c.interval_ns):
            last = now
            rc = _sync_queues(c, rmq_load(&c.pages_min))
            if rc >= 0:
                rc = _flushed_now(c, now)
        if rc < 0 and c.final:
            rmq_publish32(&c.error, -rc)
            log_fence(log, rc, FENCE_SYNC)
            break
        if rc < 0:
            written = -1        # for want of something: the checkpoint stays as it is, which is true, until the next look
        rmq_event_wait(&c.wanted, ticket, TICK_NS)
    return NULL


cdef Checkpointer *checkpointer_new(Dispatcher *d, int fd) noexcept nogil:
    cdef Checkpointer *c = <Checkpointer *> calloc(1, sizeof(Checkpointer))
    if c != NULL:
        c.io = d.log.io
        c.d = d
        c.fd = fd
    return c


cdef int checkpointer_start(Checkpointer *c) noexcept nogil:
    cdef int rc = rmq_thread_start(&c.thread, _run, c, b"rmq-checkpoint")
    c.running = rc == 0
    return rc


cdef int checkpointer_stop(Checkpointer *c) noexcept nogil:
    cdef int rc = 0
    rmq_publish32(&c.stop, 1)
    rmq_event_wake(&c.wanted)
    if c.running:
        rc = rmq_thread_join(&c.thread)
        c.running = False
    return rc
