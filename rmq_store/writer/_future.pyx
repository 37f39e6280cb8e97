"""Light futures of asynchronous puts, completed in batches (upstream: CompletableFuture<PutMessageResult>).

One daemon Python thread per store leads a flush for everything that waits, then completes all that it covered: one wake-up a
flush, one call into each event loop. It starts with the first future that has to wait and ends with the store.
"""
import asyncio
import logging
import threading
from collections import deque
from queue import SimpleQueue

cimport cython
from libc.stdint cimport int64_t

from rmq_store.io._sync cimport ETIMEDOUT

from rmq_store.status import PutStatus

cdef int64_t MS = 1_000_000


@cython.final
@cython.freelist(256)
cdef class PutFuture:
    """The outcome of a put_async. Any thread may ask; callbacks run in the store's completion thread and must be short."""

    cdef object _result
    cdef object _error
    cdef object _callbacks          # list of functions, and of (loop, asyncio future) pairs; None once completed
    cdef object _owner
    cdef int64_t _end
    cdef bint _done

    def done(self):
        """True once the outcome is known: bool."""
        return self._done

    def result(self, timeout=None):
        """The PutResult; waits up to `timeout` seconds (None: as long as it takes), then raises TimeoutError.

        Raises DurabilityError where a write or sync failed before the message was durable.
        """
        if not self._done:
            self._owner.wait(self, timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self, timeout=None):
        """The error of result(), or None; waits as result() does."""
        if not self._done:
            self._owner.wait(self, timeout)
        return self._error

    def add_done_callback(self, callback):
        """Calls callback(future) when it is done, at once if it is. Exceptions of a callback are logged, not raised."""
        if self._done or not self._owner.subscribe(self, callback):
            _call(callback, self)

    def __await__(self):
        if not self._done:
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()
            if self._owner.subscribe(self, (loop, waiter)):
                yield from waiter.__await__()
        return self.result()


def _resolve(waiters):
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _call(callback, f):
    try:
        callback(f)
    except Exception:
        logging.getLogger("rmq_store.flush").exception("a callback of put_async raised")


class Completer:
    """Completes futures of one store. Thread-safety: all methods may be called from any thread, and from a signal handler.

    No locks: a handler that closes the store may run anywhere in the main thread, also inside these methods. Steps that belong
    together are compiled code without a call into Python, which the GIL makes one.
    """

    def __init__(self, flush_some, fence_error, timeout_ms, set_status):
        self._flush_some = flush_some
        self._fence_error = fence_error
        self._timeout_ns = timeout_ms * MS
        self._set_status = set_status
        self._waiting = deque()
        self._wakeups = SimpleQueue()
        self._starting = threading.Lock()       # only ever tried
        self._thread = None
        self._closing = False
        self._idle = False

    def deadline(self, timeout_ms):
        """From now on an acknowledgement may take so long."""
        self._timeout_ns = timeout_ms * MS

    def completed(self, result):
        """A future that is done already."""
        cdef PutFuture f = PutFuture.__new__(PutFuture)
        f._result = result
        f._done = True
        return f

    def pending(self, result, int64_t end):
        """A future that is done when the log is durable up to `end`."""
        cdef PutFuture f = PutFuture.__new__(PutFuture)
        f._result = result
        f._end = end
        f._owner = self
        self._waiting.append(f)
        if self._closing:
            self._drain()       # the thread is gone, or going
        elif self._idle:
            self._idle = False
            self._wakeups.put(None)
        elif self._thread is None:
            self._start()
        return f

    def _start(self):
        if not self._starting.acquire(blocking=False):
            return              # who starts the thread will find all that waits
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="rmq-complete", daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:    # no more threads: the caller waits in the thread's place
            self._drain()
        finally:
            self._starting.release()

    def subscribe(self, PutFuture f, callback):
        """Adds a callback; False if the future is done by now."""
        first = [callback]      # made before the question: an allocation may let others run
        if f._done:
            return False
        if f._callbacks is None:
            f._callbacks = first
        else:
            f._callbacks.append(callback)
        return True

    def wait(self, PutFuture f, timeout):
        done = threading.Event()
        if self.subscribe(f, lambda _: done.set()) and not done.wait(timeout):
            raise TimeoutError(f"the message at offset {f._result.offset} is stored, but not durable after {timeout} s: "
                               "wait on")

    def _run(self):
        while True:
            while not self._waiting:
                if self._closing:
                    return
                self._idle = True
                if not self._waiting and not self._closing:
                    self._wakeups.get()
                self._idle = False
            self._turn()

    def _drain(self):
        while self._waiting:
            self._turn()

    def _turn(self):
        # Under the GIL from the question to the answer: the last one is there.
        cdef int64_t flushed, end
        cdef int rc
        if not self._waiting:
            return
        end = (<PutFuture> self._waiting[len(self._waiting) - 1])._end
        flushed, rc = self._flush_some(end, self._timeout_ns)
        self._complete(flushed, rc, end)

    def _complete(self, int64_t flushed, int rc, int64_t asked):
        # Futures stand nearly in the order of their ends: two threads may have appended in one order and queued in the other.
        # A deadline that has passed concerns those that were there when it began.
        cdef PutFuture f
        cdef Py_ssize_t _n
        batch = []
        later = []
        for _n in range(len(self._waiting)):
            f = self._waiting.popleft()
            if f._end <= flushed or (rc < 0 and (f._end <= asked or rc != -ETIMEDOUT)):
                batch.append(f)
            else:
                later.append(f)
        self._waiting.extendleft(reversed(later))
        error = None
        loops = {}
        for item in batch:
            f = item
            if f._end > flushed:
                error = error or self._fence_error()
                if error is not None:
                    f._error = error
                else:
                    self._set_status(f._result, PutStatus.FLUSH_DISK_TIMEOUT)
            f._done = True
        for item in batch:
            f = item
            callbacks = f._callbacks
            f._callbacks = None
            for callback in callbacks or ():
                if type(callback) is tuple:
                    loops.setdefault(callback[0], []).append(callback[1])
                else:
                    _call(callback, f)
        for loop, waiters in loops.items():
            try:
                loop.call_soon_threadsafe(_resolve, waiters)
            except RuntimeError:
                pass        # the loop is closed: nobody awaits there any more

    def close(self):
        """Completes what waits and ends the thread; in a callback, which is that thread, it only completes."""
        self._closing = True
        self._wakeups.put(None)
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            self._drain()
        else:
            thread.join()
