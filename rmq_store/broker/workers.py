"""Threads that run what may wait: a few, begun when they are needed, behind a queue with bounds. Connections take turns.

Each connection has a queue of its own, so one that asks for much waits for itself. It has a share of the places and of the
threads, and what it asked goes with it.
"""
import collections
import logging
import threading
import time
from collections.abc import Callable

from rmq_store.base.io.threads import start_thread
from rmq_store.events import told

__all__ = ["Workers"]

THREADS_MAX = 8
RUNNING_OF_ONE = THREADS_MAX // 2       # of one connection, at a time
WAITING_MAX = 10_000
WAITING_OF_ONE = 1_000
BYTES_MAX = 256 << 20         # of the requests that wait,
BYTES_OF_ONE = 64 << 20       # of one connection
STOP_S = 2.0                  # for what runs when the broker closes
Job = tuple[Callable[[], object], int, bool]
log = logging.getLogger("rmq_store.broker")


class _Lane:
    """What one connection asked for."""

    __slots__ = ("bytes", "jobs", "running", "waits")

    def __init__(self) -> None:
        self.jobs: collections.deque[Job] = collections.deque()
        self.bytes = self.running = 0
        self.waits = False          # for its turn


class Workers:
    """submit and drop may be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._lanes: dict[object, _Lane] = {}
        self._turns: collections.deque[object] = collections.deque()    # owners of lanes of which a job may run
        self._unfinished = self._bytes = self._waiting = 0
        self._stopped = False
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], object], size: int = 0, owner: object = None, *, stays: bool = False) -> bool:
        """size: bytes that the job holds. owner: whose it is, the id of a connection; None: the broker's. stays: `drop` leaves
        it. False: too much waits, of this owner or of all, or the broker closes."""
        with self._lock:
            lane = self._lanes.get(owner) or _Lane()
            if self._stopped or self._waiting >= WAITING_MAX or len(lane.jobs) >= WAITING_OF_ONE:
                return False
            if (self._bytes and self._bytes + size > BYTES_MAX) or (lane.bytes and lane.bytes + size > BYTES_OF_ONE):
                return False
            self._lanes[owner] = lane
            lane.jobs.append((job, size, stays))
            lane.bytes += size
            self._bytes += size
            self._waiting += 1
            self._unfinished += 1           # not what waits: a thread may have taken a job, and not begun it
            self._wait_for_turn(owner, lane)
            if len(self._threads) < min(self._unfinished, THREADS_MAX):
                self._threads.append(start_thread(self._run, "rmq-broker-worker"))
        return True

    @property
    def waiting(self) -> int:
        return self._waiting

    def drop(self, owner: object) -> None:
        """The connection has ended: nobody waits for what it asked."""
        with self._lock:
            if (lane := self._lanes.get(owner)) is not None:
                self._empty(lane, everything=False)

    def stop(self) -> None:
        """Drops what waits, lets end what runs, and ends the threads. What does not end in time is left to itself: its thread
        is a daemon, and the store refuses it."""
        with self._lock:
            self._stopped = True
            for lane in self._lanes.values():
                self._empty(lane, everything=True)
            threads = list(self._threads)
            self._lock.notify_all()
        end = time.monotonic() + STOP_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        if left := sum(thread.is_alive() for thread in threads):
            log.warning("%d requests still run while the broker closes: they end with an error, or with the process", left)

    def _empty(self, lane: _Lane, everything: bool) -> None:
        """The lock is held."""
        kept = [] if everything else [job for job in lane.jobs if job[2]]
        gone = len(lane.jobs) - len(kept)
        size = lane.bytes - sum(job[1] for job in kept)
        lane.jobs = collections.deque(kept)
        lane.bytes -= size
        self._bytes -= size
        self._waiting -= gone
        self._unfinished -= gone

    def _wait_for_turn(self, owner: object, lane: _Lane) -> None:
        """The lock is held."""
        if lane.jobs and lane.running < RUNNING_OF_ONE and not lane.waits:
            lane.waits = True
            self._turns.append(owner)
            self._lock.notify()
        elif not lane.jobs and not lane.running and not lane.waits:
            del self._lanes[owner]

    def _next(self) -> tuple[object, Job] | None:
        """A job of the owner whose turn it is; None at the end."""
        with self._lock:
            while True:
                while self._turns:
                    owner = self._turns.popleft()
                    lane = self._lanes[owner]
                    lane.waits = False
                    if not lane.jobs:       # dropped
                        self._wait_for_turn(owner, lane)
                        continue
                    job = lane.jobs.popleft()
                    lane.running += 1
                    lane.bytes -= job[1]
                    self._waiting -= 1
                    self._wait_for_turn(owner, lane)
                    return owner, job
                if self._stopped:
                    return None
                self._lock.wait()

    def _done(self, owner: object, size: int) -> None:
        with self._lock:
            lane = self._lanes[owner]
            lane.running -= 1
            self._bytes -= size
            self._unfinished -= 1
            self._wait_for_turn(owner, lane)

    def _run(self) -> None:
        while (found := self._next()) is not None:
            owner, (job, size, _) = found
            try:
                job()
            except BaseException as error:      # sys.exit() of a put hook, too: the others need the thread
                log.error("a job of the broker failed", exc_info=told(error))
            del found, job          # what the job holds
            self._done(owner, size)
