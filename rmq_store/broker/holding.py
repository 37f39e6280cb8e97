"""Requests that wait for a message of a queue: kept until the queue grows, their time is over, or their connection ends
(RocketMQ: PullRequestHoldService).

One thread waits for the store's arrivals of the queues that somebody waits for, and for the earliest deadline; while nothing
happens it costs nothing. Thread-safety: add, drop and count from any thread.
"""
import heapq
import itertools
import logging
import select
import threading
import time
from collections.abc import Callable

from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import StoreStateError
from rmq_store.events import told
from rmq_store.store import MessageStore

__all__ = ["Held", "HeldPulls"]

HELD_MAX = 200_000
HELD_OF_ONE_MAX = 20_000     # of one connection
TRIES_MAX = 4
_order = itertools.count()


class Held:
    """One request. run(last) tries it again and returns whether it is answered; `last`: its time is over."""

    __slots__ = ("busy", "connection_id", "deadline", "done", "last", "offset", "queue_id", "run", "seen", "topic")

    def __init__(self, connection_id: int, topic: str, queue_id: int, offset: int, deadline: float,
                 run: Callable[[bool], bool]) -> None:
        self.connection_id, self.topic, self.queue_id, self.offset = connection_id, topic, queue_id, offset
        self.deadline, self.run, self.seen = deadline, run, 0
        self.done = self.busy = self.last = False


class HeldPulls:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._hub = Arrivals(store)
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, int], set[Held]] = {}
        self._of: dict[int, set[Held]] = {}                 # by connection
        self._due: list[tuple[float, int, Held]] = []
        self._count = 0
        self._stopped = False
        self._again: list[Held] = []            # to be tried again by this object's thread
        self.thread = start_thread(self._run, "rmq-broker-held")

    @property
    def count(self) -> int:
        """Requests that wait."""
        return self._count

    def add(self, held: Held) -> bool:
        """Keeps a request. False: there are too many. A message that came meanwhile is found."""
        key = held.topic, held.queue_id
        with self._lock:
            mine = self._of.get(held.connection_id, ())
            if self._count >= HELD_MAX or len(mine) >= HELD_OF_ONE_MAX or self._stopped:
                return False
            self._count += 1
            waiting = self._queues.get(key)
            if waiting is None:
                waiting = self._queues[key] = set()
                self._hub.watch(*key)
            waiting.add(held)
            self._of.setdefault(held.connection_id, set()).add(held)
            sooner = not self._due or held.deadline < self._due[0][0]
            heapq.heappush(self._due, (held.deadline, next(_order), held))
        if sooner:
            self._hub.wake()
        if self._store.max_offset(*key) > held.offset:
            self._try(held, last=False)
        return True

    def drop(self, connection_id: int) -> None:
        """Its connection has ended."""
        with self._lock:
            for held in list(self._of.get(connection_id, ())):
                self._remove(held)

    def stop(self) -> None:
        """Answers nothing more."""
        self._stopped = True
        self._hub.wake()
        self.thread.join()
        with self._lock:
            for held in [held for waiting in self._of.values() for held in waiting]:
                self._remove(held)
        self._hub.close()

    def _remove(self, held: Held) -> None:
        """Takes it out, unless it is out. The lock is held."""
        if held.done:
            return
        held.done = True
        self._count -= 1
        key = held.topic, held.queue_id
        waiting = self._queues[key]
        waiting.discard(held)
        if not waiting:
            del self._queues[key]
            self._hub.unwatch(*key)
        mine = self._of[held.connection_id]
        mine.discard(held)
        if not mine:
            del self._of[held.connection_id]
        if len(self._due) > 1024 and len(self._due) > 4 * self._count:      # answered ones whose time is not over
            self._due = [one for one in self._due if not one[2].done]
            heapq.heapify(self._due)

    def _try(self, held: Held, last: bool) -> None:
        """Runs it again, outside of the lock and in one thread at a time: who meets it running leaves it to that thread."""
        with self._lock:
            held.last = held.last or last
            if held.done or held.busy:
                return
            held.busy = True
        try:
            for _ in range(TRIES_MAX):
                ending, before = held.last, held.offset
                held.seen = self._store.max_offset(held.topic, held.queue_id)
                if held.run(ending):
                    break
                with self._lock:
                    if held.done or (held.last == ending and not self._grown(held, before)):
                        held.busy = False
                        return
            else:               # more comes than this thread should look through
                with self._lock:
                    held.busy = False
                    self._again.append(held)
                self._hub.wake()
                return
        except StoreStateError:
            return              # the store closes, and every connection with it
        except Exception as error:
            logging.getLogger("rmq_store.broker").error("a held request failed", exc_info=told(error))
        with self._lock:
            held.busy = False
            self._remove(held)

    def _grown(self, held: Held, before: int) -> bool:
        """Whether its queue has more than the last try looked at. A try that did not get on waits for the next arrival."""
        end = self._store.max_offset(held.topic, held.queue_id)
        return end > held.offset and (held.offset > before or end > held.seen)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._hub.fileno(), select.POLLIN)
        while not self._stopped:
            try:
                poll.poll(self._timeout_ms())
                for topic, queue_id, end in self._hub.take():
                    with self._lock:
                        ready = [held for held in self._queues.get((topic, queue_id), ()) if held.offset < end]
                    for held in ready:
                        self._try(held, last=False)
                with self._lock:
                    again, self._again = self._again, []
                for held in again:
                    self._try(held, last=False)
                for held in self._over(time.monotonic()):
                    self._try(held, last=True)
            except StoreStateError:
                return

    def _timeout_ms(self) -> int | None:
        with self._lock:
            while self._due and self._due[0][2].done:
                heapq.heappop(self._due)
            return max(0, int((self._due[0][0] - time.monotonic()) * 1000) + 1) if self._due else None

    def _over(self, now: float) -> list[Held]:
        found = []
        with self._lock:
            while self._due and self._due[0][0] <= now:
                found.append(heapq.heappop(self._due)[2])
        return found
