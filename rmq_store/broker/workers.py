"""Threads that run what may wait: a few, begun when they are needed, behind a queue with a bound."""
import logging
import queue
import threading
from collections.abc import Callable

from rmq_store.base.io.threads import start_thread

__all__ = ["Workers"]

THREADS_MAX = 8
WAITING_MAX = 10_000
BYTES_MAX = 256 << 20         # of the requests that wait


class Workers:
    """submit may be called in any thread."""

    def __init__(self) -> None:
        self._jobs: queue.Queue[tuple[Callable[[], object], int] | None] = queue.Queue(WAITING_MAX)
        self._lock = threading.Lock()
        self._unfinished = self._bytes = 0
        self._stopped = False
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], object], size: int = 0) -> bool:
        """size: bytes that the job holds. False: too much waits, or the broker closes."""
        with self._lock:
            if self._stopped or (self._bytes and self._bytes + size > BYTES_MAX):
                return False
            try:
                self._jobs.put_nowait((job, size))
            except queue.Full:
                return False
            self._bytes += size
            self._unfinished += 1           # not what is in the queue: a thread may have taken a job, and not begun it
            if len(self._threads) < min(self._unfinished, THREADS_MAX):
                self._threads.append(start_thread(self._run, "rmq-broker-worker"))
        return True

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    def stop(self) -> None:
        """Runs what was submitted, then ends the threads."""
        with self._lock:
            self._stopped = True
            threads = list(self._threads)
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while (found := self._jobs.get()) is not None:
            try:
                found[0]()
            except BaseException:       # sys.exit() of a put hook, too: the others need the thread
                logging.getLogger("rmq_store.broker").exception("a job of the broker failed")
            with self._lock:
                self._bytes -= found[1]
                self._unfinished -= 1
            del found           # what the job holds
