"""Light futures of asynchronous puts (RocketMQ: CompletableFuture<PutMessageResult>). Contract in _future.pxd.

No locks that wait, but one for making a thread (io/_lock.pyx): a signal handler that closes the store may run anywhere in the
main thread, also inside these methods. Steps that belong together are compiled code without a call into Python, which the GIL
makes one.
"""
import threading

cimport cython
from cpython.contextvars cimport PyContext_Enter, PyContext_Exit
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject, PyTypeObject
from cpython.pystate cimport PyThreadState_Get
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from rmq_store.access.writer._ahead cimport ahead_add, ahead_remove, ahead_replicate, ahead_signal, ahead_start, ahead_stop
from rmq_store.access.writer._put cimport (TELLS_COMPLETER, WAIT_ACKS, WAIT_DEVICE, WAIT_REPLICA, PutResult, StorePut,
                                           never_sent, patience_ns)
from rmq_store.base.io._sync cimport (ECANCELED, ETIMEDOUT, rmq_event_wake, rmq_fence, rmq_load, rmq_load32, rmq_publish,
                                      rmq_publish32)
from rmq_store.log.flush._flush cimport flush_all, flush_wait

from rmq_store import errors
from rmq_store.access.writer.callbacks import Callbacks, call_now
from rmq_store.base.io._lock import StoreLock
from rmq_store.status import PutStatus

cdef extern from "rmq_awaited.h":
    int PYGEN_RETURN, PYGEN_NEXT
    void rmq_send_by(PyTypeObject *type, int (*send)(PyObject *, PyObject *, PyObject **) except -1)

cdef int64_t SLICE_NS = 100_000_000
cdef double LIMIT_S = 1e8       # of a caller's wait: no patience of a store's is as long
cdef int _TIMEOUT = PutStatus.FLUSH_DISK_TIMEOUT, _SLAVE_TIMEOUT = PutStatus.FLUSH_SLAVE_TIMEOUT
cdef int _NO_SLAVE = PutStatus.SLAVE_NOT_AVAILABLE
cdef object _running_loop = None    # asyncio.get_running_loop, once a task has waited: most programs have no event loop


cdef int _find_running_loop() except -1:
    global _running_loop
    from asyncio import get_running_loop
    _running_loop = get_running_loop
    return 0


cdef PutFuture future_new(StorePut store, PutResult result, int wants):
    cdef PutFuture f = PutFuture.__new__(PutFuture)
    f._result = result
    if wants:
        f._end = result.offset + result.size
        if wants & WAIT_REPLICA and wants >> WAIT_ACKS == 0 and not store.replicas.usable(store.replicas.of, f._end):
            wants &= ~WAIT_REPLICA
            result.code = _NO_SLAVE
        f._wants = wants
        if wants:
            f._store = store
            (<Completer> store._completer)._want(f._end, wants)
    return f


@cython.final
@cython.freelist(1024)
cdef class PutFuture:
    """The outcome of a put_async. Thread-safety: any. Callbacks run in the store's completion thread and must be short."""

    cdef bint _peek(self) except -1:
        # True where the outcome is known. Under the GIL: close() frees the log under it, too.
        cdef StorePut s = self._store
        cdef int fence
        if s is None:
            return True
        if s.alive[0] != 1:
            raise errors.ForkedProcess(s.path)
        if (self._wants & WAIT_DEVICE == 0
                or (rmq_load(&s.log.flushed) if s.log != NULL else s.last_flushed) >= self._end):
            if self._wants & WAIT_REPLICA and not self._acknowledged():
                return False
            self._store = None
            return True
        fence = rmq_load32(&s.log.fence) if s.log != NULL else s.last_fence
        if fence != 0:
            self._error = s._fence_error()
        elif s.log == NULL:
            self._error = errors.StoreClosed(s.path)
        else:
            return False
        self._store = None
        return True

    cdef bint _acknowledged(self) except -1:
        # By a slave; or none ever will, as the store closes, or has failed.
        cdef StorePut s = self._store
        cdef int rc = s.replicas.wait(s.replicas.of, self._end, max(self._wants >> WAIT_ACKS, 1), 0)
        if rc != 0 and never_sent(s, self._end):
            self._error = s._fence_error()
            return True
        if rc == -ECANCELED and self._result is not None:
            self._result.code = _SLAVE_TIMEOUT
        return rc != -ETIMEDOUT

    cdef int _settle(self, object timeout) except -1:
        # Waits without the GIL, and leads the flush where nobody else does. Beyond the store's deadline it is late.
        cdef StorePut s = self._store
        cdef int64_t now, due = 0, left = 0, stored = 0, slice_ns, limit = 0
        cdef int lacks = -1, phase = SLAVES_NOW
        if s is None:
            return 0
        cdef Completer c = s._completer
        cdef double given = LIMIT_S if timeout is None else min(max(0, timeout), LIMIT_S)
        while not self._peek():
            now = s.io.mono_ns(s.io.ctx)
            limit = limit or now + <int64_t> (given * 1e9)      # the caller's own, however long the store waits
            if lacks_of(self) != lacks:     # it begins; or the device has it now: slaves have their time from here on
                lacks = lacks_of(self)
                if lacks & (WAIT_DEVICE | WAIT_REPLICA) == 0:
                    continue
                phase = phase_of(self, lacks)
                left = left_of(self, c, phase, lacks)
                due, stored = now + left, stored_for(self, phase) if left > 0 else 0
            if now >= min(due, limit):
                if limit < due:
                    raise TimeoutError(f"message at {self._result.offset}: stored, not "
                                       f"{'durable' if lacks & WAIT_DEVICE else 'with a slave'} after {timeout} s: wait on")
                note_late(c, phase, stored, left)
                self._late()
                due = now + s.flush_deadline_ns
                continue
            slice_ns, s.calls = min(min(due, limit) - now, SLICE_NS), s.calls + 1
            with nogil:
                if lacks & WAIT_DEVICE:
                    flush_wait(s.log, self._end, slice_ns)
                elif lacks & WAIT_REPLICA:
                    s.replicas.wait(s.replicas.of, self._end, max(self._wants >> WAIT_ACKS, 1), slice_ns)
            s.calls -= 1
            PyErr_CheckSignals()
        return 0

    def _late(self):
        """Stored, and not known to be durable: an outcome, too, where there is something that can carry it."""
        cdef int lacks
        if self._store is not None and self._result is not None:
            lacks = lacks_of(self)
            if lacks & (WAIT_DEVICE | WAIT_REPLICA):
                self._result.code = _TIMEOUT if lacks & WAIT_DEVICE else _SLAVE_TIMEOUT
            self._store = None

    def done(self):
        """True once the outcome is known: bool. Of one that somebody polls, lateness counts from the first call on."""
        cdef StorePut s = self._store
        if not self._peek() and is_late(self, s.io.mono_ns(s.io.ctx)):
            self._late()
        return self._store is None

    def result(self, timeout=None):
        """Returns the PutResult. Waits up to `timeout` seconds (None: without limit), then raises TimeoutError.

        The status is FLUSH_DISK_TIMEOUT if the message was not durable flush_deadline_ms after the wait began,
        FLUSH_SLAVE_TIMEOUT if too few slaves had it slave_timeout_ms after that. A result() that ended so was the wait of all
        messages stored when it began, but for those that may wait longer. If no other thread makes a sync, the call makes it,
        and returns when it ends, however late; a task never does. Raises DurabilityError if a write or a sync failed before.
        """
        return self._outcome(timeout)

    cdef PutResult _outcome(self, object timeout):
        if self._store is not None:
            self._settle(timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self, timeout=None):
        """Returns the error that result() would raise, or None. Waits as result() does."""
        self._settle(timeout)
        return self._error

    def add_done_callback(self, callback):
        """Calls callback(future) when the future is done, or at once if it is. The store logs what a callback raises."""
        cdef StorePut s = self._store
        if self._peek() or not (<Completer> s._completer)._call(self, callback):
            call_now(callback, self)

    def __reduce__(self):
        raise TypeError("a PutFuture cannot be pickled or copied: send its result()")

    def __await__(self):
        cdef Awaited a = Awaited.__new__(Awaited)
        a._future = self
        return a


@cython.final
@cython.freelist(1024)
cdef class Awaited:
    """One task's wait for a PutFuture. To the task it is a future of its loop's: what asyncio.Task asks of one is here.

    An asyncio.Future has to be made for each wait, and wakes its task by a turn of the loop of its own, which costs more than
    the put: the loop's reader wakes the tasks of a flush itself, one behind the other. Owner: the loop's thread.
    """

    def __iter__(self):
        return self

    def __next__(self):
        if self._waits():
            return self
        raise StopIteration(self._future._outcome(None))

    cdef bint _waits(self) except -1:
        # True where the task has to: the first time, unless the outcome is known.
        cdef PutFuture f = self._future
        cdef StorePut s = f._store
        if self._begun or f._peek():
            return False
        self._begun = True
        if not (<Completer> s._completer)._loop_here(self):
            return False            # the store closes: result() waits in its place
        self._asyncio_future_blocking = True
        return True

    def add_done_callback(self, callback, *, context=None):
        """For the task: calls callback(self) in `context` when the put is durable, or late, or the wait is cancelled."""
        self._callback = callback
        self._context = context
        if not self._waited._add(self._future, self):
            self._later()

    def get_loop(self):
        """The loop whose task waits."""
        return self._loop

    def cancel(self, msg=None):
        """For the task that is cancelled: False where it is being woken already. What was put stays put."""
        if self._callback is None:
            return False
        from asyncio import CancelledError

        self._cancelled = CancelledError() if msg is None else CancelledError(msg)
        self._later()
        return True

    def result(self):
        """For the task when it wakes: raises CancelledError if the wait was cancelled."""
        if self._cancelled is not None:
            raise self._cancelled

    cdef int _later(self) except -1:
        callback, self._callback = self._callback, None
        if callback is not None:
            self._loop.call_soon(callback, self, context=self._context)
        return 0


cdef int _send(PyObject *me, PyObject *nothing, PyObject **out) except -1:
    cdef Awaited a = <Awaited> me
    if a._waits():
        outcome, how = a, PYGEN_NEXT
    else:
        outcome, how = a._future._outcome(None), PYGEN_RETURN
    Py_INCREF(outcome)
    out[0] = <PyObject *> outcome
    return how


rmq_send_by(<PyTypeObject *> Awaited, _send)


cdef int _wake(PutFuture f, done) except -1:
    # The task looks only at what it is given for an error, and takes the outcome from the Awaited: a finished future of
    # asyncio's own, which it need not ask through method calls, will do.
    cdef Awaited a = f._waiter
    f._waiter = None
    callback, a._callback = a._callback, None
    if callback is not None:        # None: cancelled
        PyContext_Enter(a._context)
        try:
            callback(done)
        finally:
            PyContext_Exit(a._context)
    return 0


@cython.final
@cython.no_gc_clear     # to let go of the sink the completer is needed
cdef class WaitedFutures:
    """Futures that somebody waits for behind one eventfd. Owner: one event loop, or one thread; add from any thread."""

    def __init__(self, Completer completer not None, int fd):
        cdef Ahead *a = completer._ahead
        self._waiting = []
        self._completer = completer
        self._sink = <Sink *> calloc(1, sizeof(Sink))
        if self._sink == NULL:
            raise MemoryError("sink")
        self._sink.fd = fd
        ahead_add(a, self._sink)

    def __dealloc__(self):
        if self._completer is not None and self._completer._store.alive[0] == 1:
            self._free()

    cdef void _free(self):
        if self._sink != NULL:
            ahead_remove(self._completer._ahead, self._sink)
            free(self._sink)
            self._sink = NULL

    def add(self, PutFuture f, waiter):
        """False where the future is done by now: nobody will be told."""
        return self._add(f, waiter)

    cdef bint _add(self, PutFuture f, waiter) except -1:
        cdef PutFuture g = f
        if self._sink == NULL:
            f._settle(None)
            return False
        if f._waiter is not None:
            g = PutFuture.__new__(PutFuture)
            g._origin, g._store, g._result, g._end, g._wants = f, f._store, f._result, f._end, f._wants
        g._waiter = waiter
        g._since = self._now()
        self._waiting.append(g)
        rmq_publish32(&self._sink.armed, 1)
        rmq_fence()
        if g._peek() and self._waiting and self._waiting[len(self._waiting) - 1] is g:
            self._waiting.pop()
            g._waiter = None
            return False
        if (not self.watched or self._completer._store.flush_deadline_ns < self._deadline_ns) and self.watch is not None:
            self.watch()
        return True             # if done, another thread has come between: it is taken there

    cdef int64_t _now(self):
        cdef StorePut s = self._completer._store
        return s.io.mono_ns(s.io.ctx)

    cdef list _take(self):
        # All that are done, late ones included; the others continue waiting.
        cdef PutFuture f
        cdef list before = self._waiting, kept = [], done = []
        cdef int64_t now
        if not before:
            return done
        now = self._now()
        self._waiting = []
        if self._sink != NULL:
            rmq_publish32(&self._sink.armed, 1)
            rmq_fence()
        try:
            for f in before:
                if not f._peek() and is_late(f, now):
                    f._late()
                    f._since = now      # of a flush that nothing can carry the outcome of
                    if f._origin is not None:
                        f._origin._late()
                (done if f._store is None else kept).append(f)
        except BaseException:       # nobody is told yet, also of those that are done
            self._waiting = before + self._waiting
            raise
        if self._waiting:       # added meanwhile, from other threads
            kept.extend(self._waiting)
        self._waiting = kept
        return done

    def take(self):
        """(future, waiter) of all that are done, late ones included; the others continue waiting."""
        cdef PutFuture f
        found = []
        for f in self._take():
            found.append((f if f._origin is None else f._origin, f._waiter))
            f._waiter = None
        return found

    def resolve(self, done):
        """As take, for waiters that are tasks' (Awaited): wakes them. In their loop's thread, outside of any task.

        done: a future of the loop that has ended without an error.
        """
        cdef PutFuture f
        cdef list ended = self._take()
        cdef Completer c = self._completer
        cdef void *thread = <void *> PyThreadState_Get()
        c._turn_loop, c._turn_waited, c._turn_thread = done.get_loop(), self, thread
        try:
            for i in range(len(ended)):
                _wake(ended[i], done)
        except BaseException:               # a task of the loop raised SystemExit or KeyboardInterrupt
            for f in ended[i + 1:]:
                (<Awaited> f._waiter)._later()
                f._waiter = None
            raise
        finally:
            if c._turn_thread == thread:
                c._turn_loop, c._turn_waited, c._turn_thread = None, None, NULL

    @property
    def waiting(self):
        """How many futures are waited for: int."""
        return len(self._waiting)

    @property
    def overdue_in(self):
        """Seconds until one that waits, or one that comes now, may be late: float, None where nothing waits."""
        cdef PutFuture f
        cdef StorePut s = self._completer._store
        self._deadline_ns = s.flush_deadline_ns
        cdef int64_t now = self._now(), due = now + patience_ns(s, WAIT_DEVICE)
        if s.waits & WAIT_REPLICA:
            due = min(due, now + patience_ns(s, WAIT_REPLICA))
        for f in self._waiting:
            due = min(due, f._since + patience_ns(s, f._wants & ~WAIT_DEVICE if f._on_device else f._wants))
        return max(0.0, (due - now) / 1e9) if self._waiting else None

    def close(self):
        """Nothing is told any more."""
        self.watch = None
        if self._completer._last is not None and self._completer._last[1] is self:
            self._completer._last = None
        if self._completer._turn_waited is self:
            self._completer._turn_thread = NULL
        self._free()


@cython.final
@cython.no_gc_clear     # sinks are let go of after a collection has begun
cdef class Completer:
    """Flushes ahead for one store's futures and tells who waits for them. All methods: any thread, and a signal handler."""

    def __cinit__(self):
        self._ahead = <Ahead *> calloc(1, sizeof(Ahead))
        if self._ahead == NULL:
            raise MemoryError("completer")

    def __init__(self, StorePut store not None):
        self._store = store
        self._ahead.log, self._ahead.replicas, self._ahead.told = store.log, &store.replicas, -1
        self._ahead.gathers = not store.sync_mode
        self._ahead.more, self._ahead.watched = &store.replicas.more[TELLS_COMPLETER], &store.replicas.watched[TELLS_COMPLETER]
        self._starting, self._making = threading.Lock(), StoreLock(store.path, "callbacks")

    def __dealloc__(self):
        if self._ahead != NULL and not self._ahead.running:
            free(self._ahead)

    cdef int _want(self, int64_t end, int wants) except -1:
        cdef Ahead *a = self._ahead
        if wants & WAIT_DEVICE and end > a.wanted:
            rmq_publish(&a.wanted, end)
        if wants & WAIT_REPLICA:
            ahead_replicate(a, end, wants >> WAIT_ACKS)
        rmq_fence()
        if rmq_load32(&a.asleep) != 0:
            rmq_event_wake(a.more)
        elif not a.running and not self._closed:
            self._start()
        return 0

    cdef bint _loop_here(self, Awaited a) except -1:
        # Gives `a` the loop that runs here, and its sink; False: the store closes. A task that resolve() has woken is in that
        # one's loop: asyncio's own answer would cost a system call, getpid, up to Python 3.11.
        cdef tuple last = self._last
        if self._turn_thread == <void *> PyThreadState_Get():
            a._loop, a._waited = self._turn_loop, self._turn_waited
            return True
        if _running_loop is None:
            _find_running_loop()
        a._loop = _running_loop()
        if last is None or last[0] is not a._loop:
            hub = self._store._loop_hub(a._loop)
            if hub is None:
                return False
            self._last = last = (a._loop, <WaitedFutures?> hub.waited)
        a._waited = <WaitedFutures> last[1]
        return True

    def _start(self):
        """Where no thread can be had, who asks for a result flushes for it."""
        if not self._starting.acquire(blocking=False):
            return              # who starts the thread starts it for all
        try:
            if not self._ahead.running and not self._closed:
                ahead_start(self._ahead)
        finally:
            self._starting.release()

    def pending(self, PutResult result, int64_t end):
        """A future that is done when the log is durable up to `end`."""
        cdef PutFuture f = PutFuture.__new__(PutFuture)
        f._store, f._result, f._end, f._wants = self._store, result, end, WAIT_DEVICE
        self._want(end, WAIT_DEVICE)
        return f

    def flushing(self):
        """A future, without a result, that is done when everything appended so far is durable."""
        self._store._enter()
        return self.pending(None, rmq_load(&self._store.log.wrote))

    def _call(self, PutFuture f, callback):
        """Runs callback(f) in the completion thread; False where f is done by now."""
        if self._closed:
            f._settle(None)
            return False
        if self._callbacks is None:
            with self._making:      # a close() in a handler comes behind it: it would not see a thread that is being made
                if self._callbacks is None and not self._closed:
                    self._callbacks = Callbacks(lambda fd: WaitedFutures(self, fd))
        if self._callbacks is None or not self._ahead.running:
            f._settle(None)     # no thread: the caller waits in its place
            return False
        return self._callbacks.waited.add(f, callback)

    def in_callback(self):
        """True in the thread that runs callbacks: bool."""
        return self._callbacks is not None and self._callbacks.thread is threading.current_thread()

    def close(self):
        """Makes all durable that can be, ends the threads, completes what waits. Idempotent."""
        cdef Ahead *a = self._ahead
        self._closed = True
        if self._store.log != NULL:
            with nogil:
                flush_all(a.log)
        if a.running:
            with nogil:
                ahead_stop(a)
        with nogil:
            ahead_signal(a)
        with self._making:
            pass                # whoever makes the thread now is through
        if self._callbacks is not None:
            self._callbacks.close()
