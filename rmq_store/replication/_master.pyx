"""The master's side of replication: the HA thread of native/ha over the log of an open store (RocketMQ: DefaultHAService).

Slaves get what readers may see: bytes that are committed, and, where only durable messages are visible, flushed. A put that
waits for slaves sends by itself. For the others the dispatcher sends before it dispatches, or wakes the HA thread where it is
much.
"""
import os
import threading
import weakref

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from rmq_store.access.writer._put cimport TELLS, WAIT_IN_SYNC, WAIT_REPLICA, Replicas, StorePut
from rmq_store.base.io._io cimport rmq_lost_any
from rmq_store.base.io._sync cimport EIO, rmq_count, rmq_event_wake, rmq_fence, rmq_load, rmq_load32, rmq_publish32
from rmq_store.base.segment._file cimport FileRow, LogFile, log_file_release, row_end, row_find, row_start
from rmq_store.log.commitlog._log cimport PIN_SEND, Log, log_pin, log_shown, log_unpin
from rmq_store.log.dispatch._dispatch cimport Dispatcher, dispatch_ahead
from rmq_store.log.flush._flush cimport flush_commit, flush_wait
from rmq_store.log.pool._pool cimport pool_at
from rmq_store.replication._ha cimport (RMQ_HA_SLAVES, rmq_ha, rmq_ha_acked, rmq_ha_child, rmq_ha_fork_lock,
                                        rmq_ha_fork_unlock, rmq_ha_free, rmq_ha_heard, rmq_ha_in_sync, rmq_ha_limits,
                                        rmq_ha_log, rmq_ha_new, rmq_ha_note, rmq_ha_notes_of, rmq_ha_push, rmq_ha_replica,
                                        rmq_ha_replicas, rmq_ha_sent, rmq_ha_start, rmq_ha_stop, rmq_ha_usable, rmq_ha_wait)

cdef int64_t MS = 1_000_000
_masters = weakref.WeakSet()


cdef struct Source:
    # What the HA thread knows of the store. Freed when it has ended.
    Log *log
    FileRow *row
    Dispatcher *dispatcher
    rmq_ha *ha
    Replicas *replicas          # the store's
    int total, in_sync, least   # replicas: that there are, that a put waits for, and at least
    bint all, less
    bint called                 # by the dispatcher
    int stop


cdef int64_t _end(void *ctx) noexcept nogil:
    return log_shown((<Source *> ctx).log)


cdef int64_t _begin(void *ctx) noexcept nogil:
    cdef Source *s = <Source *> ctx
    cdef int64_t start = row_start(s.row)
    return start if start >= 0 else rmq_load(&s.log.wrote)


cdef int64_t _last_file(void *ctx) noexcept nogil:
    # A file that has no byte yet which may be sent is not the last one.
    cdef Source *s = <Source *> ctx
    cdef int64_t end = _end(ctx)
    cdef int64_t start = row_end(s.row) - s.row.file_size
    while start > end:
        start -= s.row.file_size
    return max(start, _begin(ctx))


cdef const unsigned char *_hold(void *ctx, int64_t offset, int64_t *n, void **held) noexcept nogil:
    # What went around the page cache would have to be read back from the device: it is taken from the pool. Not of a file that
    # is full: behind its last record the pool has something else.
    cdef Source *s = <Source *> ctx
    cdef Log *log = s.log
    cdef int64_t left = s.row.file_size - offset % s.row.file_size
    cdef int error = 0
    cdef LogFile *f
    if log.direct and _end(s) < offset + left and log_pin(log, PIN_SEND, offset):
        held[0] = log
        n[0] = left
        return pool_at(log.pool, offset)
    f = row_find(s.row, offset, &error)
    n[0] = 0
    if f == NULL:
        n[0] = error            # 0: there is no such file
        return NULL
    if rmq_lost_any(&f.lost):       # the zeros of a page that could not be read are no messages
        log_file_release(f)
        n[0] = -EIO
        return NULL
    held[0] = f
    n[0] = f.start + f.size - offset
    return f.map + (offset - f.start)


cdef void _release(void *ctx, void *held) noexcept nogil:
    cdef Log *log = (<Source *> ctx).log
    if held == log:
        log_unpin(log, PIN_SEND)
    else:
        log_file_release(<LogFile *> held)


cdef void _ahead(void *of) noexcept nogil:
    rmq_ha_push((<Source *> of).ha, 0)


# ---- puts that wait for slaves

cdef bint _usable(void *of, int64_t end) noexcept nogil:
    return rmq_ha_usable((<Source *> of).ha, end)


cdef int64_t _acked(void *of, int acks) noexcept nogil:
    return rmq_ha_acked((<Source *> of).ha, acks)


cdef int _needed(void *of, int64_t end, int *in_sync) noexcept nogil:
    # RocketMQ: CommitLog.calcNeedAckNums. The master is one of the replicas, and its own put no acknowledgement.
    cdef Source *s = <Source *> of
    cdef int there = min(rmq_ha_in_sync(s.ha, end), s.total), wanted = s.in_sync
    in_sync[0] = there
    if s.all:
        return there - 1 if there >= s.least else -1
    if s.less:
        wanted = max(min(wanted, there), s.least)
    return wanted - 1 if wanted <= there else -1


cdef void _push_for(Source *s, int64_t end, int64_t timeout_ns, bint waits) noexcept nogil:
    # What slaves may not have yet is made so: nobody else may be in a hurry.
    if rmq_load32(&s.stop) != 0:
        return
    if _end(s) < end:
        if s.log.durable_only:
            flush_wait(s.log, end, timeout_ns)
        else:
            flush_commit(s.log, end)
    rmq_ha_push(s.ha, waits)


cdef void _push(void *of, int64_t end) noexcept nogil:
    cdef Source *s = <Source *> of
    _push_for(s, end, s.replicas.timeout_ns, False)


cdef int _wait(void *of, int64_t end, int acks, int64_t timeout_ns) noexcept nogil:
    cdef Source *s = <Source *> of
    if timeout_ns > 0 and rmq_ha_acked(s.ha, acks) < end:
        _push_for(s, end, timeout_ns, True)
    return rmq_ha_wait(s.ha, end, acks, timeout_ns)


cdef void _moved(void *ctx) noexcept nogil:
    # Slaves have acknowledged more; one thread at a time. Whoever watches has set `watched` before his last look.
    cdef Replicas *r = (<Source *> ctx).replicas
    cdef int i
    rmq_count(&r.moves, 1)
    rmq_fence()
    for i in range(TELLS):
        if rmq_load32(&r.watched[i]) != 0:
            rmq_event_wake(&r.more[i])


cdef class Master:
    """Serves slaves of an open store, which stops it before it closes. Listens from the construction on; any thread."""

    cdef Source *source
    cdef object _stopping       # Lock
    cdef readonly object address    # "ip:port"
    cdef object __weakref__

    def __cinit__(self):
        self._stopping = threading.Lock()

    def __init__(self, StorePut store not None, options):
        """Raises OSError if the address cannot be had."""
        cdef rmq_ha_log log
        cdef rmq_ha_limits limits
        cdef int rc
        import socket  # no other store pays for it

        store._enter()
        host, _, port = options.ha_listen.rpartition(":")
        host = host.strip("[]")
        self.source = <Source *> calloc(1, sizeof(Source))
        if self.source == NULL:
            raise MemoryError("replication")
        self.source.log, self.source.row, self.source.dispatcher = store.log, store.row, store.dispatcher
        log.ctx, log.end, log.begin, log.last_file = self.source, _end, _begin, _last_file
        log.hold, log.release, log.acked = _hold, _release, _moved
        self._take_rule(store, options)
        limits.heartbeat_ns = options.ha_send_heartbeat_interval_ms * MS
        limits.silence_ns = options.ha_housekeeping_interval_ms * MS
        limits.frame_bytes = options.ha_transfer_batch_size_bytes
        limits.behind_bytes = options.ha_slave_fallbehind_max_bytes
        limits.rate = options.ha_transfer_rate_max_bytes if options.ha_flow_control_enabled else 0
        listener = socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET,
                                        backlog=64)
        listener.setblocking(False)
        ip, bound = listener.getsockname()[:2]
        self.address = f"[{ip}]:{bound}" if ":" in ip else f"{ip}:{bound}"
        rc = rmq_ha_new(&log, &limits, listener.fileno(), &self.source.ha)
        if rc < 0:
            listener.close()
            raise OSError(-rc, os.strerror(-rc), "the HA thread")
        listener.detach()
        _masters.add(self)
        rc = rmq_ha_start(self.source.ha)
        if rc < 0:
            self.stop()
            raise OSError(-rc, os.strerror(-rc), "the HA thread")
        self.source.called = True
        with nogil:             # a round may be under way
            dispatch_ahead(self.source.dispatcher, _ahead, self.source)
        if options.role == "sync_master":
            store.replicas.of, store.replicas.timeout_ns = self.source, options.slave_timeout_ms * MS
            store.replicas.usable, store.replicas.needed, store.replicas.acked = _usable, _needed, _acked
            store.replicas.wait, store.replicas.push = _wait, _push
            store.waits |= WAIT_REPLICA
            if options.in_sync_replicas > 1 or options.all_ack_in_sync_state_set:
                store.waits |= WAIT_IN_SYNC

    cdef void _take_rule(self, StorePut store, options):
        cdef Source *s = self.source
        s.replicas = &store.replicas
        s.total, s.in_sync, s.least = options.total_replicas, options.in_sync_replicas, options.min_in_sync_replicas
        s.all, s.less = options.all_ack_in_sync_state_set, options.auto_in_sync_replicas_enabled

    def __dealloc__(self):
        if self.source != NULL:
            self._free()

    cdef void _free(self):
        with nogil:
            _end_threads(self.source)
            if self.source.ha != NULL:
                rmq_ha_free(self.source.ha)
        free(self.source)
        self.source = NULL

    def stop(self):
        """Closes every connection and ends the thread. Idempotent. What replicas() says is then empty."""
        with self._stopping:
            if self.source != NULL:
                with nogil:
                    _end_threads(self.source)

    def replicas(self):
        """What each slave has said: list of dict."""
        cdef rmq_ha_replica found[RMQ_HA_SLAVES]
        cdef int i, n = 0
        if self.source != NULL and self.source.ha != NULL:
            with nogil:
                n = rmq_ha_replicas(self.source.ha, found, RMQ_HA_SLAVES)
        return [{"address": (<bytes> found[i].peer).decode(), "offset": found[i].acked, "lag_bytes": found[i].lag_bytes,
                 "lag_ms": found[i].lag_ms, "sent_bytes": found[i].sent_bytes, "connected_ms": found[i].connected_ms}
                for i in range(n)]

    def acknowledged(self):
        """The highest offset that a slave has acknowledged, -1: none has: int."""
        return rmq_ha_acked(self.source.ha, 1) if self.source != NULL and self.source.ha != NULL else -1

    def sent_bytes(self):
        """Bytes of the log that were sent, to all slaves together: int."""
        return rmq_ha_sent(self.source.ha) if self.source != NULL and self.source.ha != NULL else 0

    def notes(self):
        """What happened since the last call: list of (what, error, a, b, peer)."""
        cdef rmq_ha_note note
        found = []
        while self.source != NULL and self.source.ha != NULL and rmq_ha_heard(rmq_ha_notes_of(self.source.ha), &note):
            found.append((note.what, note.error, note.a, note.b, (<bytes> note.peer).decode()))
        return found

    def _lock_for_fork(self):
        if self.source == NULL or self.source.ha == NULL:
            return False
        rmq_ha_fork_lock(self.source.ha)        # for as long as an accept or a close takes
        return True

    def _unlock_after_fork(self):
        rmq_ha_fork_unlock(self.source.ha)

    def _forked(self):
        # The threads and their locks did not come along; the sockets did, and a slave must see them closed by its master.
        if self.source != NULL and self.source.ha != NULL:
            rmq_ha_child(self.source.ha)
            self.source = NULL


cdef void _end_threads(Source *s) noexcept nogil:
    rmq_publish32(&s.stop, 1)
    if s.called:                # the store, which stops this before it ends, still has its dispatcher
        dispatch_ahead(s.dispatcher, NULL, NULL)
        s.called = False
    if s.ha != NULL:
        rmq_ha_stop(s.ha)


_locked = []


def _before_fork():
    _locked[:] = [master for master in list(_masters) if (<Master> master)._lock_for_fork()]


def _in_parent():
    while _locked:
        (<Master> _locked.pop())._unlock_after_fork()


def _in_child():
    _locked.clear()
    for master in list(_masters):
        (<Master> master)._forked()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
