"""Light futures of asynchronous puts, completed in batches (upstream: CompletableFuture<PutMessageResult>).

One daemon Python thread per store leads a flush for everything that waits, then completes all that it covered: one wake-up a
flush, one call into each event loop. It starts with the first future that has to wait and ends with the store.
"""
import asyncio
import threading
from collections import deque

cimport cython
from libc.stdint cimport int64_t

from rmq_store import errors
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
        if not self._done and self._owner.subscribe(self, callback):
            return
        callback(self)

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


class Completer:
    """Completes futures of one store. Thread-safety: all methods may be called from any thread."""

    def __init__(self, flush_some, fence_error, timeout_ms, set_status):
        self._flush_some = flush_some
        self._fence_error = fence_error
        self._timeout_ns = timeout_ms * MS
        self._set_status = set_status
        self._waiting = deque()
        self._changed = threading.Condition()
        self._thread = None
        self._closing = False
        self._idle = False

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
        if self._thread is None or self._idle:
            self._wake()
        return f

    def _wake(self):
        with self._changed:
            if self._closing:
                raise errors.StoreClosed()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rmq-complete", daemon=True)
                self._thread.start()
            self._idle = False
            self._changed.notify_all()

    def subscribe(self, PutFuture f, callback):
        """Adds a callback; False if the future is done by now."""
        with self._changed:
            if f._done:
                return False
            if f._callbacks is None:
                f._callbacks = []
            f._callbacks.append(callback)
            return True

    def wait(self, PutFuture f, timeout):
        done = threading.Event()
        if self.subscribe(f, lambda _: done.set()) and not done.wait(timeout):
            raise TimeoutError(f"the message at offset {f._result.offset} is stored, but not durable after {timeout} s: "
                               "wait on")

    def _run(self):
        cdef int64_t flushed, end
        cdef int rc
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closing:
                        return
                    self._idle = True
                    if not self._waiting:
                        self._changed.wait()
                    self._idle = False
            end = (<PutFuture> self._waiting[len(self._waiting) - 1])._end
            flushed, rc = self._flush_some(end, self._timeout_ns)
            self._complete(flushed, rc)

    def _complete(self, int64_t flushed, int rc):
        # Futures stand nearly in the order of their ends: two threads may have appended in one order and queued in the other.
        cdef PutFuture f
        batch = []
        later = []
        for _ in range(len(self._waiting)):
            f = self._waiting.popleft()
            if f._end <= flushed or rc < 0:
                batch.append(f)
            else:
                later.append(f)
        self._waiting.extendleft(reversed(later))
        error = None
        loops = {}
        with self._changed:
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
            if f._callbacks is None:
                continue
            for callback in f._callbacks:
                if type(callback) is tuple:
                    loops.setdefault(callback[0], []).append(callback[1])
                else:
                    self._call(callback, f)
            f._callbacks = None
        for loop, waiters in loops.items():
            try:
                loop.call_soon_threadsafe(_resolve, waiters)
            except RuntimeError:
                pass        # the loop is closed: nobody awaits there any more

    def _call(self, callback, f):
        try:
            callback(f)
        except Exception:
            import logging

            logging.getLogger("rmq_store.flush").exception("a callback of put_async raised")

    def close(self):
        """Completes what waits and ends the thread. The log has been flushed or fenced before."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
