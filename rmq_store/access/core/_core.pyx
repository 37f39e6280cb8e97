"""The native state of a store and its life. Contract in _core.pxd.

The opening thread builds the parts (_building.pyx), close takes them down in reverse. Nothing here decides: store.py does.
"""
import os
import time
from mmap import PAGESIZE

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT64_MAX, int64_t
from libc.stdlib cimport free

from rmq_store.base.io._sync cimport (ETIMEDOUT, rmq_event_ticket, rmq_event_wait, rmq_event_wake, rmq_load, rmq_load32,
                                      rmq_publish, rmq_publish32)
from rmq_store.base.io._want cimport RMQ_WANT_RETRY_NS
from rmq_store.base.segment._allocator cimport allocator_free, allocator_stop
from rmq_store.base.segment._file cimport row_count, row_free, row_start
from rmq_store.log.commitlog._log cimport FENCE_WRITE, Log, log_busy, log_fence, log_free, log_shown
from rmq_store.log.commitlog._unwritten cimport Unwritten, unwritten_count
from rmq_store.log.dispatch._dispatch cimport dispatch_wait, dispatcher_free, dispatcher_stop
from rmq_store.log.dispatch._follow cimport follower_free
from rmq_store.log.flush._flush cimport flush_all, flush_commit, flusher_stop
from rmq_store.log.pool._pool cimport pool_free
from rmq_store.log.recovery._checkpoint cimport checkpoint_now, checkpointer_stop
from rmq_store.queues.consumequeue._queue cimport queues_count

from rmq_store import errors
from rmq_store.base.io.wants import disk_is_full, unwritten, want


cdef enum:      # status.RunningFlags
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64

cdef extern from "rmq_fork.h" nogil:
    int *rmq_fork_word_new()
    void rmq_fork_word_free(int *word)

cdef int64_t MS = 1_000_000, SLICE_NS = 100_000_000
WANT_MAX_S = 5          # that a call without a bound waits while dispatch stands for want of something
cdef tuple _PHASES = ("none", "encode", "roll")


cdef struct Notes:
    int64_t fence, fence_step, slow_locks, slow_lock_ms, slow_lock_phase, flushed, allocate_error, lock_error, behind
    int64_t nameless_at, want


cdef struct Stats:
    int64_t min_log_offset, wrote, committed, flushed, dispatched, fence, dispatch_behind_bytes, log_files, puts, put_bytes
    int64_t commits, flushes, pool_waits, file_waits, dispatched_records, message_view_leases, unreadable_records, queues
    int64_t pool_bytes, slow_put_locks, waiting_readers, released_maps


cdef int _check(int rc, object path) except -1:
    if rc < 0:
        raise OSError(-rc, os.strerror(-rc), path)
    return rc


@cython.no_gc_clear     # __dealloc__ frees what works on the I/O table: it must still be there
cdef class StoreCore:
    """The parts of an open store. MessageStore.open makes it; programs do not use it directly."""

    def __cinit__(self):
        self.hooks = ()
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
            Py_INCREF(self.backend_owner)
            Py_INCREF(self.filter_table)
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
        if self.options.role == "slave":
            of = f" of {self.options.ha_master}" if self.options.ha_master else ""      # else a name server told it
            raise errors.ServiceNotAvailable(f"the store at {self.path} is a slave{of}: put to the master")
        if self.flags & NOT_WRITEABLE:
            raise errors.ServiceNotAvailable(f"the store at {self.path} is not writeable, because set_writeable(False) was "
                                             "called: call set_writeable(True)")
        if self.flags & FENCED:
            raise errors.ServiceNotAvailable(f"the store at {self.path} is fenced, because set_fenced(True) was called: call "
                                             "set_fenced(False)")
        raise errors.ServiceNotAvailable(disk_is_full(self.path, self.options))

    cdef object _fence_error(self):
        # The error every later put gets once a write or a sync failed.
        cdef int code = self.last_fence if self.log == NULL else rmq_load32(&self.log.fence)
        cdef int step = self.last_fence_step if self.log == NULL else rmq_load32(&self.log.fence_step)
        kind = errors.WriteFailed if step == FENCE_WRITE else errors.SyncFailed
        error, lacks = kind(code, os.strerror(code), self.path), self._unwritten()
        return error if lacks is None else unwritten(error, lacks, self.state == STATE_CLOSED)

    def _unwritten(self, bint last=False):
        """What was put, and the pool alone has, while the log cannot be written: (messages, begin, end), or None."""
        cdef Unwritten n
        cdef bint some
        if self.log != NULL and self.alive[0] == 1 and (last or self.started):     # a child of fork has no pool
            n.count, n.begin, n.end, n.committed, n.wrote = self.unwritten or (0, 0, 0, -1, -1)
            self.calls += 1
            with nogil:
                some = unwritten_count(self.log, &n)
            self.calls -= 1
            # Not before: a tuple can fail, or begin a collection that closes the store, which waits for its calls.
            self.unwritten = (n.count, n.begin, n.end, n.committed, n.wrote) if some else None
        return None if self.unwritten is None or self.unwritten[0] == 0 else self.unwritten[:3]

    def _apply(self, options):
        """The live options, at open and for reconfigure(): each a store of one word, read by whoever comes next. Subclasses add
        theirs."""
        cdef int64_t deadline = options.flush_deadline_ms * MS, busy_after_ms = options.busy_after_ms
        cdef int64_t commit_bytes = max(options.commit_pages_min * 4096, 1), commit_max = options.commit_interval_max_ms * MS
        cdef int64_t flush_interval = options.flush_interval_ms * MS, flush_bytes = max(options.flush_pages_min * 4096, 1)
        cdef int64_t flush_max = options.flush_interval_max_ms * MS
        cdef int64_t queue_interval = options.consumequeue_flush_interval_ms * MS
        cdef int64_t queue_max = options.consumequeue_flush_interval_max_ms * MS
        cdef int64_t queue_pages = options.consumequeue_flush_pages_min
        cdef bint eager = options.flush_wake == "eager" and not self.sync_mode
        if self.log == NULL:        # looking an option up is Python code, in which close() may have come between
            self._refuse()
        self.flush_deadline_ns = deadline
        self.log.busy_after_ms = busy_after_ms
        rmq_publish(&self.log.commit_bytes_min, commit_bytes)
        rmq_publish(&self.log.commit_interval_max_ns, commit_max)
        rmq_publish32(&self.log.flush_eager, eager)
        if self.flusher != NULL:
            rmq_publish(&self.flusher.flush_interval_ns, flush_interval)
            rmq_publish(&self.flusher.flush_bytes_min, flush_bytes)
            rmq_publish(&self.flusher.flush_interval_max_ns, flush_max)
        if self.checkpointer != NULL:
            rmq_publish(&self.checkpointer.interval_ns, queue_interval)
            rmq_publish(&self.checkpointer.interval_max_ns, queue_max)
            rmq_publish(&self.checkpointer.pages_min, queue_pages)

    def _reconfigure(self, options):
        """Live options change; what sleeps on an old interval is woken."""
        cdef int64_t pool_size = self._pool_size(options)
        cdef bint larger = options.message_size_max_bytes > self.options.message_size_max_bytes
        self._enter()
        if self.pool != NULL and pool_size > self.pool.size and larger:
            raise errors.ConfigError(f"message_size_max_bytes {options.message_size_max_bytes} does not fit twice into the "
                                     f"pool of {self.pool.size} bytes: close the store and reopen it with this size")
        self.options = options
        self._apply(options)
        self._enter()
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
            raise self._failed_with(rc, "flushing the log of")
        return flushed

    def _dispatch_want(self):
        """What dispatch stands for at the moment, as an error that names the limit and the cure; None: it does not."""
        cdef int code
        self._enter()
        code = rmq_load32(&self.dispatcher.want) if self.dispatcher != NULL else 0
        return None if code == 0 else want(code, "dispatch to the queues and the index of", self.path)

    def _wait_dispatched(self, timeout):
        """True; False after `timeout` seconds. None: as long as it takes, but DiskFull or OutOfResources where dispatch has
        stood for want of something for WANT_MAX_S."""
        cdef int64_t left = INT64_MAX if timeout is None or timeout > 1e9 else <int64_t> (timeout * 1e9)
        cdef int64_t end, slice_ns, stood = 0, at = -1
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
            stood = stood + slice_ns if at == rmq_load(&self.log.dispatched) and rmq_load32(&self.dispatcher.want) != 0 else 0
            at = rmq_load(&self.log.dispatched)
            error = self._dispatch_want() if timeout is None and stood >= WANT_MAX_S * 1e9 else None
            if error is not None:
                raise error
        if rc < 0:
            raise self._failed_with(rc, "flushing the log of")
        return True

    cdef object _failed_with(self, int rc, str what):
        # Of a call that the log took no further: it is fenced, or pauses for want of something.
        return self._fence_error() if rmq_load32(&self.log.fence) != 0 else want(-rc, what, self.path)

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
        cdef Notes n
        if self.log == NULL or self.alloc == NULL:
            return None
        n = Notes(rmq_load32(&self.log.fence), rmq_load32(&self.log.fence_step), rmq_load(&self.log.slow_locks),
                  rmq_load(&self.log.slow_lock_ms), rmq_load(&self.log.slow_lock_phase), rmq_load(&self.log.flushed),
                  -rmq_load32(&self.alloc.error), -rmq_load32(&self.alloc.lock_error),
                  rmq_load(&self.log.wrote) - rmq_load(&self.log.dispatched),
                  rmq_load(&self.dispatcher.nameless_at) if self.dispatcher != NULL else -1, rmq_load32(&self.log.want))
        found = <dict> n            # all is loaded: making a dict may begin a collection, and that close the store
        found["slow_lock_phase"] = _PHASES[n.slow_lock_phase]
        return found

    def _set_disk_full(self, bint full):
        """Refuses puts from now on, or takes them again (RocketMQ: RunningFlags, DISK_FULL)."""
        self.disk_full = full
        self._check_puts()

    def _set_hooks(self, tuple hooks not None):
        """The put hooks from now on: (name, hook) each."""
        self.hooks = hooks
        self._check_puts()

    def _set_keyed(self, topics):
        """The topics whose messages need KEYS from now on, as those of compaction topics: frozenset of str."""
        self.keyed = topics or None
        self._check_puts()

    def _keyed_topics(self):
        return self.keyed or frozenset()

    def _set_flag(self, int flag, bint on):
        """Sets one of RunningFlags, or takes it back. Returns whether it was set."""
        cdef int before
        self._enter()
        before = self.flags
        self.flags = before | flag if on else before & ~flag
        self._check_puts()
        return before & flag != 0

    def _running_flags(self):
        """The bits of RunningFlags: int."""
        cdef int found
        self._enter()
        found = self.flags | (NOT_WRITEABLE if self.readonly else 0) | (DISK_FULL if self.disk_full else 0)
        if rmq_load32(&self.log.fence) != 0:
            found |= FENCED
        if self.dispatcher != NULL and rmq_load32(&self.dispatcher.error) != 0:
            found |= WRITE_INDEX_FILE_ERROR if self.dispatcher.index_failed else WRITE_LOGICS_QUEUE_ERROR
        if self.alloc != NULL and rmq_load32(&self.alloc.held) != 0:
            found |= LOGIC_DISK_FULL
        return found

    @property
    def page_cache_busy(self):
        """True while a put has held the put lock for longer than busy_after_ms: bool. Other puts that find the lock taken then
        get OS_PAGE_CACHE_BUSY. RocketMQ: isOSPageCacheBusy."""
        self._enter()
        return log_busy(self.log)

    cdef void _check_puts(self) noexcept:
        self.refuses_puts = (self.readonly or self.disk_full or self.options.role == "slave"
                             or self.flags & (NOT_WRITEABLE | FENCED) != 0)
        self.put_checks = self.refuses_puts or len(self.hooks) > 0 or self.keyed is not None

    def _stats(self):
        cdef Log *log
        cdef Stats s
        cdef int64_t leases = self._lease_total()
        self._enter()
        log = self.log
        s = Stats(
            min_log_offset=max(row_start(self.row), 0), wrote=rmq_load(&log.wrote), committed=rmq_load(&log.committed),
            flushed=rmq_load(&log.flushed), dispatched=rmq_load(&log.dispatched), fence=rmq_load32(&log.fence),
            dispatch_behind_bytes=rmq_load(&log.wrote) - rmq_load(&log.dispatched), log_files=row_count(self.row),
            puts=rmq_load(&log.puts), put_bytes=rmq_load(&log.put_bytes), commits=rmq_load(&log.commits),
            flushes=rmq_load(&log.flushes), pool_waits=rmq_load(&log.room_waits), file_waits=rmq_load(&log.file_waits),
            dispatched_records=rmq_load(&self.dispatcher.records), message_view_leases=leases,
            unreadable_records=rmq_load(&self.dispatcher.bad_records), queues=queues_count(self.queues),
            pool_bytes=self.pool.size if self.pool != NULL else 0, slow_put_locks=rmq_load(&log.slow_locks),
            waiting_readers=rmq_load32(&self.dispatcher.waiters), released_maps=self.released_maps)
        found = <dict> s            # as in _notes
        found["errno"] = found.pop("fence")     # a macro of C's has that name
        found["unwritten_messages"] = (self._unwritten() or (0,))[0]
        return found

    def _lease_total(self):
        return 0

    def confirm(self, int64_t offset):
        """Moves the confirm offset. With duplication_enabled, dispatch stops at this offset, also in a recovery after a crash.

        offset: log offset, the start of a record or the end of the log. It may move in both directions; dispatched messages
        stay dispatched. The checkpoint keeps the offset, and an open begins with that value (0 in a new store). The log itself
        does not depend on it.
        Raises StoreStateError without duplication_enabled. RocketMQ: CommitLog.setConfirmOffset.
        """
        self._enter()
        if not self.options.duplication_enabled:
            raise errors.StoreStateError("the confirm offset needs duplication_enabled=True: open the store with it")
        self._enter()
        rmq_publish(&self.log.confirm, offset)
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
        cdef int64_t end, deadline, left_ns = timeout_ms * MS
        problems = []
        with nogil:
            deadline = self.log.io.mono_ns(self.log.io.ctx) + left_ns
            rc = flush_all(self.log)
            while rc < 0 and rmq_load32(&self.log.fence) == 0:      # it lacks something: for so long, and then for good
                left_ns = deadline - self.log.io.mono_ns(self.log.io.ctx)
                if left_ns <= 0:
                    log_fence(self.log, rc, FENCE_WRITE)
                rmq_event_wait(&self.log.room, rmq_event_ticket(&self.log.room), RMQ_WANT_RETRY_NS)
                rc = flush_all(self.log)
            end = rmq_load(&self.log.wrote)
            if rc >= 0:
                waited = dispatch_wait(self.dispatcher, end if end < self.log.confirm else self.log.confirm, left_ns)
            dispatcher_stop(self.dispatcher)
            checkpointer_stop(self.checkpointer)
            flusher_stop(self.flusher)
        if rc >= 0 and waited < 0 and waited != -ETIMEDOUT:
            problems.append(errors.DurabilityError(-waited, "dispatch", self.path))
        with nogil:
            rc = allocator_stop(self.alloc)
        if rmq_load32(&self.log.fence) != 0:
            problems.insert(0, self._fence_error())
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
            self.last_flushed, self.last_shown = rmq_load(&self.log.flushed), log_shown(self.log)
            self.last_fence = rmq_load32(&self.log.fence)
            self.last_fence_step = rmq_load32(&self.log.fence_step)
            self._unwritten(True)
        follower_free(self.follower)
        self.follower = NULL
        dispatcher_free(self.dispatcher)
        free(self.flusher)
        free(self.checkpointer)
        allocator_free(self.alloc)
        if self.log != NULL and self.log.backend != NULL and self.log.backend.free != NULL:
            with nogil:         # another package's may take its time
                self.log.backend.free(self.log)
        log_free(self.log)
        row_free(self.row)
        pool_free(self.pool)
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
        self.backend_owner = None

    def _unfinished(self):
        """True from the moment it takes calls until close() is through."""
        return self.state == STATE_OPEN or (self.state == STATE_CLOSED and self.log != NULL)

    @property
    def closed(self):
        """True once close() has begun: bool."""
        return self.state == STATE_CLOSED
