"""The native state of a store and its life. Contract in _core.pxd.

The opening thread builds the parts in the order of a message's way and starts their threads last; close takes them down in
reverse. Nothing here decides: store.py does.
"""
import os
import time
from mmap import PAGESIZE

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport calloc, free

from rmq_store.base.io._io cimport IoTable
from rmq_store.base.io._sync cimport ETIMEDOUT, rmq_event_wake, rmq_load, rmq_load32, rmq_store, rmq_store32
from rmq_store.base.segment._allocator cimport (PREZERO_FULL, PREZERO_OFF, PREZERO_WINDOW, TOUCH_CACHE, TOUCH_MAP, TOUCH_OFF,
                                                allocator_follow, allocator_free, allocator_new, allocator_settle,
                                                allocator_start, allocator_stop)
from rmq_store.base.segment._file cimport (LogFile, log_file_open, log_file_release, row_count, row_end, row_find, row_free,
                                           row_new, row_push, row_start)
from rmq_store.log.commitlog._log cimport FENCE_WRITE, Log, log_begin, log_free, log_new, log_use_allocator
from rmq_store.log.dispatch._dispatch cimport (dispatch_reserve, dispatch_to, dispatch_wait, dispatcher_free, dispatcher_new,
                                               dispatcher_start, dispatcher_stop)
from rmq_store.log.dispatch._follow cimport follower_free
from rmq_store.log.flush._flush cimport (BACKEND_FDATASYNC, BACKEND_MSYNC, flush_all, flush_commit, flush_use, flusher_new,
                                         flusher_start, flusher_stop)
from rmq_store.log.flush._ring cimport (RMQ_RING_IOPOLL, RMQ_RING_SQPOLL, ring_writer_facts, ring_writer_free, ring_writer_new,
                                        ring_writer_prime)
from rmq_store.log.pool._pool cimport pool_free, pool_new
from rmq_store.log.recovery._checkpoint cimport checkpoint_now, checkpointer_new, checkpointer_start, checkpointer_stop
from rmq_store.log.recovery._queues cimport QueueRecovery
from rmq_store.log.recovery._scan cimport LogRecovery
from rmq_store.queues.consumequeue._owner cimport QueueTableOwner
from rmq_store.queues.consumequeue._queue cimport queues_count, queues_fill, queues_filled, queues_make_ahead, queues_placeless
from rmq_store.queues.index._index cimport index_destroy, index_drop_after, index_end_physical, index_truncate
from rmq_store.queues.index._owner cimport IndexOwner

from rmq_store import errors
from rmq_store.base.machine.limits import huge_pages
from rmq_store.events import Event, emit
from rmq_store.log.flush.backend import say_ready
from rmq_store.log.pool.memory import lock_error, lock_refused


cdef extern from "rmq_fork.h" nogil:
    int *rmq_fork_word_new()
    void rmq_fork_word_free(int *word)

cdef enum:
    SPINS_MUTEX = 100
    SPINS_SPIN = 20000

cdef int64_t MS = 1_000_000, SLICE_NS = 100_000_000
cdef tuple _PHASES = ("none", "encode", "roll")
_PREZERO = {"off": PREZERO_OFF, "window": PREZERO_WINDOW, "full": PREZERO_FULL}


cdef int _check(int rc, object path) except -1:
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), path)
    return rc


cdef int _check_thread(int rc, name, object path) except -1:
    if rc < 0:
        raise errors.no_thread(-rc, name, path)
    return rc


@cython.no_gc_clear     # __dealloc__ frees what works on the I/O table: it must still be there
cdef class StoreCore:
    """The parts of an open store. MessageStore.open makes it; programs do not use it directly."""

    def __cinit__(self):
        self.alive = rmq_fork_word_new()
        if self.alive == NULL:
            raise MemoryError("no page for the fork guard")

    def __dealloc__(self):
        if self.alive == NULL:
            return
        # In a child of fork nothing may be touched: no threads are there, locks may be held, the files are the parent's.
        if self.alive[0] == 1 and not self.started:
            self._free()
        else:
            # What the owners would free is the parent's, or threads still work on it: they live as long as the process.
            Py_INCREF(self.io_owner)
            Py_INCREF(self.queues_owner)
            Py_INCREF(self.index_owner)
        rmq_fork_word_free(self.alive)

    cdef int _refuse(self) except -1:
        if self.alive[0] != 1:
            raise errors.ForkedProcess(self.path)
        if self.state == STATE_CLOSED:
            raise errors.StoreClosed(self.path)
        raise errors.StoreStateError(f"the store at {self.path} is still opening")

    cdef int _refuse_put(self) except -1:
        # Told apart only once a put was refused: the put path looks at one word.
        if self.readonly:
            raise errors.StoreNotWriteable(self.path)
        raise errors.ServiceNotAvailable(
            f"the disk of {self.path} is fuller than disk_full_pct: make room on it, or raise the limit; the store accepts "
            "puts again by itself when usage is at or below disk_force_pct")

    cdef object _fence_error(self):
        # The error every later put gets once a write or a sync failed.
        cdef int code = self.last_fence if self.log == NULL else rmq_load32(&self.log.fence)
        cdef int step = self.last_fence_step if self.log == NULL else rmq_load32(&self.log.fence_step)
        kind = errors.WriteFailed if step == FENCE_WRITE else errors.SyncFailed
        return kind(code, os.strerror(code), self.path)

    # ---- building, in order

    def _setup(self, path, options, bint readonly, IoTable io, str commitlog_dir, str tmp_dir):
        """Takes memory; opens no file."""
        self.path = path
        self.options = options
        self.readonly = self.refuses_puts = readonly
        self.io_owner = io
        self.io = io.table
        self.sync_mode = options.flush_mode == "sync"
        self.compat5 = options.compat == "5.x"
        self.row = row_new(self.io, os.fsencode(commitlog_dir), options.segment_size_bytes, not readonly)
        if self.row == NULL:
            raise MemoryError("commit-log row")
        if not readonly and options.write_path == "pool":
            self._take_pool(options)
        self.log = log_new(self.io, self.row, self.pool,
                           SPINS_SPIN if options.put_lock == "spin" else SPINS_MUTEX)
        if self.log == NULL:
            raise MemoryError("commit log")
        flush_use(self.log, BACKEND_MSYNC if options.flush_backend == "msync" else BACKEND_FDATASYNC)
        if readonly:
            return
        self.alloc = allocator_new(self.io, self.row, os.fsencode(tmp_dir), _PREZERO[options.segment_prezero],
                                   TOUCH_MAP if options.segment_warm else TOUCH_CACHE if self.sync_mode else TOUCH_OFF,
                                   options.segment_mlock)
        if self.alloc == NULL:
            raise MemoryError("allocator")
        log_use_allocator(self.log, self.alloc)

    def _setup_ring(self, how):
        """After _setup, for flush_backend io_uring: the ring, and memory registered with it."""
        cdef int error = 0
        options = self.options
        wishes = (RMQ_RING_SQPOLL if options.uring_sqpoll else 0) | (RMQ_RING_IOPOLL if options.uring_iopoll else 0)
        cdef bint direct = how.direct, durable = how.durable
        cdef unsigned depth = options.uring_depth, wished = wishes
        cdef int64_t request_bytes = how.request_bytes
        with nogil:
            self.ring = ring_writer_new(self.log, direct, durable, request_bytes, depth, wished, &error)
        if self.ring == NULL:
            raise OSError(-error, f"{os.strerror(-error)}: making the ring", self.path)
        self.ring.sync_mode = self.sync_mode
        self.alloc.direct = how.direct
        if how.direct:
            self.alloc.touch = TOUCH_OFF        # the file is written around the page cache
        facts = ring_writer_facts(self.ring)[0]
        say_ready(how, facts.depth, facts.setup_flags, self.pool.size, -facts.buffers_error)

    def _take_pool(self, options):
        """A lock that was asked for and is refused is an error with the cure; what only a profile wants is done without."""
        cdef int error = 0
        cdef int64_t size = self._pool_size(options)
        self.pool = pool_new(size, options.pool_mlock, options.pool_hugepages, &error)
        if self.pool == NULL and options.pool_mlock:
            refusal = lock_refused(options, size, -error)
            if refusal is not None:
                raise refusal
            self.pool = pool_new(size, False, options.pool_hugepages, &error)
        if self.pool == NULL:
            raise OSError(-error, f"{os.strerror(-error)}: pool of {size} bytes: lower pool_window_count or "
                          "pool_window_size_bytes")
        if options.pool_hugepages:
            reason = huge_pages() if self.pool.huge else "madvise refused"     # the advice is taken even where it is of no use
            if reason is not None:
                emit(Event.HUGEPAGES_REFUSED, size=size, reason=reason)

    def _apply(self, options):
        """The live options, at open and for reconfigure(): each a store of one word, read by whoever comes next. Subclasses add
        theirs."""
        self.flush_deadline_ns = options.flush_deadline_ms * MS
        self.log.busy_after_ms = options.busy_after_ms
        rmq_store32(&self.log.flush_eager, options.flush_wake == "eager" and not self.sync_mode)
        if self.flusher != NULL:
            rmq_store(&self.flusher.flush_interval_ns, options.flush_interval_ms * MS)
            rmq_store(&self.flusher.flush_bytes_min, max(options.flush_pages_min * 4096, 1))
            rmq_store(&self.flusher.flush_interval_max_ns, options.flush_interval_max_ms * MS)
            rmq_store(&self.flusher.commit_bytes_min, max(options.commit_pages_min * 4096, 1))
            rmq_store(&self.flusher.commit_interval_max_ns, options.commit_interval_max_ms * MS)
        if self.ring != NULL:
            rmq_store(&self.ring.commit_bytes_min, max(options.commit_pages_min * 4096, 1))
            rmq_store(&self.ring.commit_interval_max_ns, options.commit_interval_max_ms * MS)
        if self.checkpointer != NULL:
            rmq_store(&self.checkpointer.interval_ns, options.consumequeue_flush_interval_ms * MS)
            rmq_store(&self.checkpointer.interval_max_ns, options.consumequeue_flush_interval_max_ms * MS)
            rmq_store(&self.checkpointer.pages_min, options.consumequeue_flush_pages_min)

    def _reconfigure(self, options):
        """Live options change; what sleeps on an old interval is woken."""
        self._enter()
        if self.pool != NULL and self._pool_size(options) > self.pool.size and (
                options.message_size_max_bytes > self.options.message_size_max_bytes):
            raise errors.ConfigError(f"message_size_max_bytes {options.message_size_max_bytes} does not fit twice into the "
                                     f"pool of {self.pool.size} bytes: close the store and reopen it with this size")
        self.options = options
        self._apply(options)
        if self.flusher != NULL:
            rmq_event_wake(&self.log.flush_wanted)
            rmq_event_wake(&self.log.commit_wanted)

    @staticmethod
    def _pool_size(options):
        # Whole windows, no larger than a file each, and room for two of the largest records with their end-of-file jumps.
        window = -(-min(options.pool_window_size_bytes, options.segment_size_bytes) // PAGESIZE) * PAGESIZE
        largest = min(options.message_size_max_bytes + 65536, options.segment_size_bytes)
        least = 2 * largest + 2 * 4096      # direct I/O keeps the block in which the log ends
        return max(options.pool_window_count, -(-least // window)) * window

    def _add_file(self, int64_t start):
        """Opens one existing commit-log file; ascending."""
        cdef int error = 0
        cdef LogFile *f = log_file_open(self.io, self.row.dir, start, self.row.file_size, self.row.writable, &error)
        if f == NULL:
            raise OSError(-error, os.strerror(-error), f"{os.fsdecode(self.row.dir)}/{start:020d}")
        error = row_push(self.row, f)
        if error < 0:
            log_file_release(f)
            raise errors.StoreRefusesToLoad(f"{os.fsdecode(self.row.dir)}/{start:020d}", 0, "files without a gap between them",
                                            f"a gap before offset {start}")

    def _take_queues(self, QueueTableOwner owner not None):
        """The table that consumequeue.loader filled."""
        self.queues_owner = owner
        self.queues = owner.table

    def _take_index(self, IndexOwner owner not None):
        """The index that index.loader filled."""
        self.index_owner = owner
        self.index = owner.index

    def _drop_index_after(self, int64_t index_timestamp):
        """After a crash: index files newer than the checkpoint go; returns how many. Dispatch builds them again."""
        cdef int rc
        with nogil:
            rc = index_drop_after(self.index, index_timestamp)
        return _check(rc, self.path)

    def _index_end(self):
        """Log offset up to which the index has keys, -1: none, or no index."""
        return -1 if self.index == NULL else index_end_physical(self.index)

    def _truncate_index(self, int64_t end):
        cdef int rc = 0
        if self.index != NULL:
            with nogil:
                rc = index_truncate(self.index, end)
        _check(rc, self.path)

    def _destroy_index(self):
        """The log is gone: the index leads nowhere."""
        cdef int rc = 0
        if self.index != NULL:
            with nogil:
                rc = index_destroy(self.index)
        _check(rc, self.path)

    def _recovery(self):
        recovery = LogRecovery()
        (<LogRecovery> recovery).attach(self.io_owner, self.row)
        return recovery

    def _make_dispatcher(self, delays_ms, with_log):
        # with_log: whether queues, and index, lie on the log's disk.
        cdef Py_ssize_t i, n = len(delays_ms)
        self.dispatcher = dispatcher_new(self.log, self.queues, self.index)
        if self.dispatcher == NULL:
            raise MemoryError("dispatcher")
        self.dispatcher.delay_ms = <int64_t *> calloc(n + 1, sizeof(int64_t))
        if self.dispatcher.delay_ms == NULL:
            raise MemoryError("delay levels")
        for i in range(n):
            self.dispatcher.delay_ms[i] = delays_ms[i]
        self.dispatcher.delay_levels = <int> n
        self.log.durable_only = self.options.visibility == "durable" and not self.readonly
        self.dispatcher.queues_with_log, self.dispatcher.index_with_log = with_log

    def _queue_recovery(self):
        queues = QueueRecovery()
        (<QueueRecovery> queues).attach(self.queues_owner, self.row)
        return queues

    def _reserve_offsets(self):
        """The queue offsets of what waits for the confirm offset are taken."""
        _check(dispatch_reserve(self.dispatcher, self.log.wrote), self.path)

    def _placeless(self):
        """(count, log offset of the last one) of records that say a queue offset that no queue can have."""
        cdef int64_t at = 0
        count = queues_placeless(self.queues, &at)
        return count, at

    def _begin(self, int64_t end, int64_t dispatched, int64_t timestamp):
        """Positions after recovery: the log ends at `end`, dispatch goes on at `dispatched`."""
        cdef int error = 0
        cdef LogFile *tail = NULL
        if row_end(self.row) > end:
            tail = row_find(self.row, end, &error)
            if tail == NULL:
                raise OSError(-error, os.strerror(-error), self.path)
            tail.zeroed_to = tail.size
            if self.alloc != NULL and self.alloc.prezero == PREZERO_WINDOW:
                tail.zeroed_to = (end - tail.start + 4095) // 4096 * 4096
        log_begin(self.log, end, tail, timestamp)
        rmq_store(&self.log.dispatched, dispatched)
        if self.ring != NULL:
            _check(ring_writer_prime(self.ring), self.path)
        if self.alloc != NULL and tail != NULL:
            allocator_follow(self.alloc, tail)

    def _confirm(self, int64_t offset):
        rmq_store(&self.log.confirm, offset)

    def _catch_up(self, int64_t end, int64_t begin, bint filling):
        """Dispatches from `begin` to `end`, or to the confirm offset, in this thread. filling: an entry that would leave a gap
        is not made. Returns from where on a queue lacks entries then, 2^63 - 1: none does."""
        cdef int64_t lacking_from = 0
        cdef int rc
        end = min(end, rmq_load(&self.log.confirm))
        rmq_store(&self.log.dispatched, begin)
        queues_fill(self.queues, filling, begin, end)
        with nogil:
            rc = dispatch_to(self.dispatcher, end)
            if rc >= 0:
                rc = queues_filled(self.queues, &lacking_from)
        _check(rc, self.path)
        if self.dispatcher.last_timestamp == 0 and self.log.dispatched == self.log.wrote:
            rmq_store(&self.dispatcher.last_timestamp, self.log.wrote_timestamp)    # of all that is there
        return lacking_from

    def _start(self, int checkpoint_fd, times):
        """Starts the native threads. `times`: what the checkpoint says."""
        options = self.options
        self.flusher = flusher_new(self.log)
        self.checkpointer = checkpointer_new(self.dispatcher, checkpoint_fd)
        if self.flusher == NULL or self.checkpointer == NULL:
            raise MemoryError("threads")
        self.flusher.sync_mode = self.sync_mode
        self._apply(options)
        t = &self.checkpointer.times
        t.physical, t.logics, t.index, t.master_flushed, t.confirm, t.flushed = times
        self.started = True
        queues_make_ahead(self.queues, self.alloc)
        _check_thread(allocator_start(self.alloc), "allocator", self.path)
        _check_thread(flusher_start(self.flusher), "flush", self.path)
        _check_thread(dispatcher_start(self.dispatcher), "dispatch", self.path)
        _check_thread(checkpointer_start(self.checkpointer), "checkpoint", self.path)
        with nogil:
            allocator_settle(self.alloc, row_end(self.row) if self.row.count > 0 else self.log.position, 2000 * MS)
        if rmq_load32(&self.alloc.lock_error) != 0 and options.given("segment_mlock"):
            raise lock_error("segment_mlock", 2 * options.segment_size_bytes, -rmq_load32(&self.alloc.lock_error))

    def _opened(self):
        self.state = STATE_OPEN

    # ---- while it is open

    def _check_open(self):
        self._enter()

    def _forked(self):
        """True in a child of fork: the store is the parent's."""
        return self.alive[0] != 1

    def _fence_error_or_none(self):
        cdef int code = self.last_fence if self.log == NULL else rmq_load32(&self.log.fence)
        return self._fence_error() if code != 0 else None

    def _flush(self, bint commit=False):
        """commit: as far as the kernel, so that a kill takes none of it along; else to the device."""
        cdef int rc
        cdef int64_t flushed
        self._enter()
        if self.readonly:
            raise errors.StoreNotWriteable(self.path)
        self.calls += 1
        with nogil:
            rc = flush_commit(self.log, rmq_load(&self.log.wrote)) if commit else flush_all(self.log)
            flushed = rmq_load(&self.log.flushed)
        self.calls -= 1
        if rc < 0:
            raise self._fence_error()
        return flushed

    def _wait_dispatched(self, timeout):
        cdef int64_t left = INT64_MAX if timeout is None or timeout > 1e9 else <int64_t> (timeout * 1e9)
        cdef int64_t end, slice_ns
        cdef int rc
        self._enter()
        if self.readonly:
            self._look_on()
            return True
        end = rmq_load(&self.log.wrote)
        if rmq_load(&self.log.confirm) < end:
            end = rmq_load(&self.log.confirm)
        while True:
            slice_ns = left if left < SLICE_NS else SLICE_NS
            self.calls += 1
            with nogil:
                rc = self._push(end, slice_ns)
            self.calls -= 1
            if rc != -ETIMEDOUT:
                break
            left -= slice_ns
            if left <= 0:
                return False
            PyErr_CheckSignals()        # a handler may close the store, and nothing else need ever let this call out
            self._enter()
        if rc < 0:
            raise self._fence_error() if rmq_load32(&self.log.fence) != 0 else OSError(-rc, os.strerror(-rc), self.path)
        return True

    cdef int _push(self, int64_t end, int64_t timeout_ns) noexcept nogil:
        # What is not visible yet is made so first: pool bytes are committed, and flushed where only durable bytes are shown.
        cdef int rc = flush_all(self.log) if self.log.durable_only else flush_commit(self.log, end)
        return rc if rc < 0 else dispatch_wait(self.dispatcher, end, timeout_ns)

    def _position(self, str name):
        if self.log == NULL:        # close() came between the caller's look and this
            return self.last_flushed if name == "flushed" else self._refuse()
        at = &self.log.wrote if name == "wrote" else &self.log.flushed if name == "flushed" else &self.log.dispatched
        return rmq_load(at)

    def _notes(self):
        """What native threads noted, for the watch; None where there are none."""
        if self.log == NULL or self.alloc == NULL:
            return None
        return {"fence": rmq_load32(&self.log.fence), "fence_step": rmq_load32(&self.log.fence_step),
                "slow_locks": rmq_load(&self.log.slow_locks), "slow_lock_ms": rmq_load(&self.log.slow_lock_ms),
                "slow_lock_phase": _PHASES[rmq_load(&self.log.slow_lock_phase)], "flushed": rmq_load(&self.log.flushed),
                "allocate_error": -rmq_load32(&self.alloc.error), "lock_error": -rmq_load32(&self.alloc.lock_error),
                "behind": rmq_load(&self.log.wrote) - rmq_load(&self.log.dispatched)}

    def _set_disk_full(self, bint full):
        """Refuses puts from now on, or takes them again (upstream: RunningFlags, DISK_FULL)."""
        self.disk_full = full
        self.refuses_puts = self.readonly or full

    def _stats(self):
        cdef Log *log = self.log
        self._enter()
        return {
            "min_log_offset": max(row_start(self.row), 0), "wrote": rmq_load(&log.wrote), "committed": rmq_load(&log.committed),
            "flushed": rmq_load(&log.flushed), "dispatched": rmq_load(&log.dispatched), "errno": rmq_load32(&log.fence),
            "dispatch_behind_bytes": rmq_load(&log.wrote) - rmq_load(&log.dispatched), "log_files": row_count(self.row),
            "puts": rmq_load(&log.puts), "put_bytes": rmq_load(&log.put_bytes), "commits": rmq_load(&log.commits),
            "flushes": rmq_load(&log.flushes), "pool_waits": rmq_load(&log.room_waits), "file_waits": rmq_load(&log.file_waits),
            "dispatched_records": rmq_load(&self.dispatcher.records), "message_view_leases": self._lease_total(),
            "unreadable_records": rmq_load(&self.dispatcher.bad_records), "queues": queues_count(self.queues),
            "pool_bytes": self.pool.size if self.pool != NULL else 0, "slow_put_locks": rmq_load(&log.slow_locks),
            "waiting_readers": rmq_load32(&self.dispatcher.waiters),
        }

    def _lease_total(self):
        return 0

    def confirm(self, int64_t offset):
        """Moves the confirm offset. With duplication_enabled, dispatch stops at this offset, also in a recovery after a crash.

        offset: log offset, the start of a record or the end of the log. It may move in both directions; dispatched messages
        stay dispatched. The checkpoint keeps the offset, and an open begins with that value (0 in a new store). The log itself
        does not depend on it.
        Raises StoreStateError without duplication_enabled. Upstream: CommitLog.setConfirmOffset.
        """
        self._enter()
        if not self.options.duplication_enabled:
            raise errors.StoreStateError("the confirm offset needs duplication_enabled=True: open the store with it")
        rmq_store(&self.log.confirm, offset)
        rmq_event_wake(&self.log.dispatch_wanted)

    def _look_on(self):
        """For what is built on top: takes in what another process has written by now."""

    def _stop_following(self):
        """For what is built on top: ends the thread that follows another process."""

    # ---- taking down

    def _refuse_calls(self):
        """From here on calls are refused; those that wait without the GIL are let out."""
        self.state = STATE_CLOSED
        self._wake_waiters()
        while self.calls > 0:
            with nogil:
                if not self.readonly:
                    flush_all(self.log)
                rmq_event_wake(&self.log.room)
            time.sleep(0.001)

    def _stop(self, int64_t timeout_ms):
        """Flushes, waits for dispatch, joins every thread. Returns (errors, bytes not dispatched). Nothing is freed."""
        cdef int rc, waited = 0
        cdef int64_t end
        problems = []
        with nogil:
            rc = flush_all(self.log)
            end = rmq_load(&self.log.wrote)
            if rc >= 0:
                waited = dispatch_wait(self.dispatcher, end if end < self.log.confirm else self.log.confirm, timeout_ms * MS)
            dispatcher_stop(self.dispatcher)
            checkpointer_stop(self.checkpointer)
            flusher_stop(self.flusher)
        if rc < 0:
            problems.append(self._fence_error())
        elif waited < 0 and waited != -ETIMEDOUT:
            problems.append(errors.DurabilityError(-waited, "dispatch", self.path))
        with nogil:
            rc = allocator_stop(self.alloc)
        if rc < 0:
            problems.append(errors.DurabilityError(-rc, "removing an unused commit-log file", self.path))
        self.started = False
        return problems, end - rmq_load(&self.log.dispatched)

    def _final_checkpoint(self):
        """Syncs queues and index and writes the checkpoint, after _stop. Returns the five values written."""
        cdef int rc
        with nogil:
            rc = checkpoint_now(self.checkpointer)
        _check(rc, self.path)

    def _wake_waiters(self):
        """For what is built on top: lets those out who wait for messages."""

    def _end(self):
        """Frees what no reader needs; the files themselves go with their last lease."""
        self.state = STATE_CLOSED
        while self.calls > 0:
            time.sleep(0.001)
        self._free()

    def _end_failed_open(self):
        """An open that raised: threads that run are joined, memory and descriptors go."""
        self.state = STATE_CLOSED
        if self.started:
            if self.readonly:
                self._stop_following()
            else:
                with nogil:
                    dispatcher_stop(self.dispatcher)
                    checkpointer_stop(self.checkpointer)
                    flusher_stop(self.flusher)
                    allocator_stop(self.alloc)
        self._free()

    cdef void _free(self):
        self.started = False
        if self.log != NULL:
            self.last_flushed = rmq_load(&self.log.flushed)
            self.last_fence = rmq_load32(&self.log.fence)
            self.last_fence_step = rmq_load32(&self.log.fence_step)
        follower_free(self.follower)
        self.follower = NULL
        dispatcher_free(self.dispatcher)
        free(self.flusher)
        free(self.checkpointer)
        allocator_free(self.alloc)
        ring_writer_free(self.ring)
        log_free(self.log)
        row_free(self.row)
        pool_free(self.pool)
        self.ring = NULL
        self.dispatcher = NULL
        self.flusher = NULL
        self.checkpointer = NULL
        self.alloc = NULL
        self.log = NULL
        self.row = NULL
        self.pool = NULL
        self.queues = NULL
        self.index = NULL
        self.queues_owner = None
        self.index_owner = None

    def _unfinished(self):
        """True from the moment it takes calls until close() is through."""
        return self.state == STATE_OPEN or (self.state == STATE_CLOSED and self.log != NULL)

    @property
    def closed(self):
        """True once close() has begun: bool."""
        return self.state == STATE_CLOSED
