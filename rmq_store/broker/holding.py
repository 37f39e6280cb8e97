"""Requests that wait for a message of a queue: kept until one comes that they may be for, their time is over, or their
connection ends (RocketMQ: PullRequestHoldService).

One thread waits for the store's arrivals of the queues that somebody waits for, and for the earliest deadline; while nothing
happens it costs nothing. Requests of one connection with the same filter are one group: a message is looked at once for the
group, and its requests are tried where it matches. Connections take turns at this thread, a look or a try each.
Thread-safety: add, drop and count from any thread.
"""
import collections
import heapq
import itertools
import logging
import select
import threading
import time
from collections.abc import Callable, Hashable

from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import StoreStateError
from rmq_store.events import told
from rmq_store.store import MessageStore

__all__ = ["Held", "HeldPulls"]

HELD_MAX = 200_000
HELD_OF_ONE_MAX = 20_000     # of one connection
STEPS_AT_ONCE = 64           # of looks and tries, before arrivals and deadlines are looked at
_order = itertools.count()
Look = Callable[[int], tuple[int | None, int]]


class Held:
    """One request. run(last) tries it again, from `offset` on, and returns whether it is answered; `last`: its time is over.

    wants, look: the filter, by which requests are one group, and how to look for a message that matches it from a queue offset
    on: an offset with none before it, or None where none is near, and the offset behind what was looked at. None, None: every
    message.
    """

    __slots__ = ("connection_id", "deadline", "done", "due", "group", "last", "look", "offset", "queue_id", "run",
                 "topic", "wants")

    def __init__(self, connection_id: int, topic: str, queue_id: int, offset: int, deadline: float,
                 run: Callable[[bool], bool], wants: Hashable = None, look: Look | None = None) -> None:
        self.connection_id, self.topic, self.queue_id, self.offset = connection_id, topic, queue_id, offset
        self.deadline, self.run, self.wants, self.look = deadline, run, wants, look
        self.done = self.due = self.last = False
        self.group: _Group | None = None


class _Group:
    """Requests of one connection for one queue by one filter."""

    __slots__ = ("connection_id", "due", "look", "pulls", "queue", "scanned")

    def __init__(self, held: Held) -> None:
        self.connection_id, self.queue, self.look = held.connection_id, (held.topic, held.queue_id), held.look
        self.pulls: set[Held] = set()
        self.scanned = held.offset      # messages below have been looked at
        self.due = False                # it stands in a lane


class HeldPulls:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._hub = Arrivals(store)
        self._lock = threading.Lock()
        self._queues: dict[tuple[str, int], dict[tuple[int, Hashable], _Group]] = {}
        self._of: dict[int, set[Held]] = {}                 # by connection
        self._deadlines: list[tuple[float, int, Held]] = []
        self._lanes: dict[int, collections.deque[_Group | Held]] = {}    # what is to be done, by connection
        self._turns: collections.deque[int] = collections.deque()       # connections with a lane
        self._count = 0
        self._stopped = False
        self.thread = start_thread(self._run, "rmq-broker-held")

    @property
    def count(self) -> int:
        """Requests that wait."""
        return self._count

    def add(self, held: Held) -> bool:
        """Keeps a request. False: there are too many. A message that came meanwhile is found."""
        queue = held.topic, held.queue_id
        with self._lock:
            mine = self._of.get(held.connection_id, ())
            if self._count >= HELD_MAX or len(mine) >= HELD_OF_ONE_MAX or self._stopped:
                return False
            if queue not in self._queues:
                self._hub.watch(*queue)         # first: for want of memory it raises, and nothing is to be undone
            groups = self._queues.setdefault(queue, {})
            self._count += 1
            group = held.group = groups.setdefault((held.connection_id, held.wants), _Group(held))
            group.scanned = min(group.scanned, held.offset)
            group.pulls.add(held)
            self._of.setdefault(held.connection_id, set()).add(held)
            sooner = not self._deadlines or held.deadline < self._deadlines[0][0]
            heapq.heappush(self._deadlines, (held.deadline, next(_order), held))
            came = self._store.max_offset(*queue) > held.offset
            if came:
                self._due(group)
        if sooner or came:
            self._hub.wake()
        return True

    def drop(self, connection_id: int) -> None:
        """Its connection has ended."""
        with self._lock:
            for held in list(self._of.get(connection_id, ())):
                self._remove(held)
            if connection_id in self._lanes:
                del self._lanes[connection_id]
                self._turns.remove(connection_id)

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
        queue, group = (held.topic, held.queue_id), held.group
        assert group is not None
        group.pulls.discard(held)
        if not group.pulls:
            groups = self._queues[queue]
            del groups[held.connection_id, held.wants]
            if not groups:
                del self._queues[queue]
                self._hub.unwatch(*queue)
        mine = self._of[held.connection_id]
        mine.discard(held)
        if not mine:
            del self._of[held.connection_id]
        if len(self._deadlines) > 1024 and len(self._deadlines) > 4 * self._count:      # answered ones whose time is not over
            self._deadlines = [one for one in self._deadlines if not one[2].done]
            heapq.heapify(self._deadlines)

    # ---- what is to be done

    def _due(self, one: "_Group | Held") -> None:
        """The lock is held."""
        if one.due:
            return
        one.due = True
        lane = self._lanes.get(one.connection_id)
        if lane is None:
            lane = self._lanes[one.connection_id] = collections.deque()
            self._turns.append(one.connection_id)
        lane.append(one)

    def _next(self) -> "_Group | Held | None":
        """What the connection has to be done whose turn it is."""
        with self._lock:
            if not self._turns:
                return None
            connection = self._turns.popleft()
            lane = self._lanes[connection]
            one = lane.popleft()
            one.due = False
            if lane:
                self._turns.append(connection)
            else:
                del self._lanes[connection]
            return one

    def _look(self, group: _Group) -> None:
        """For the next message that is one for this group: those who wait for it are tried."""
        end = self._store.max_offset(*group.queue)
        at = group.scanned
        if at > end:                    # emptied, or they wait for what is put and not dispatched: a try tells
            with self._lock:
                for held in group.pulls:
                    self._due(held)
            return
        if at == end:
            return
        found, following = (at, end) if group.look is None else self._looked(group.look, at, end)
        with self._lock:
            for held in group.pulls:
                if found is not None and held.offset < following:
                    if group.look is not None:      # what lies before is not for them
                        held.offset = max(held.offset, found)
                    self._due(held)
            if group.scanned == at:         # else somebody has come who begins before
                group.scanned = following
            if group.pulls and group.scanned < end:
                self._due(group)

    @staticmethod
    def _looked(look: Look, at: int, end: int) -> tuple[int | None, int]:
        try:
            found, following = look(at)
        except StoreStateError:
            raise
        except Exception:           # a request that is tried tells its client
            return at, end
        return (found, following) if following > at else (at, end)

    def _try(self, held: Held) -> None:
        """Outside of the lock, and in this object's thread alone."""
        if held.done:
            return
        before = held.offset
        try:
            if not held.run(held.last):
                with self._lock:
                    if not held.done and before < held.offset < self._store.max_offset(held.topic, held.queue_id):
                        self._due(held)         # the search continues behind what did not match
                return
        except StoreStateError:
            raise                   # the store closes, and every connection with it
        except Exception as error:
            logging.getLogger("rmq_store.broker").error("a held request failed", exc_info=told(error))
        with self._lock:
            self._remove(held)

    def _work(self) -> None:
        for _ in range(STEPS_AT_ONCE):
            one = self._next()
            if one is None or self._stopped:
                return
            if isinstance(one, Held):
                self._try(one)
            else:
                self._look(one)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._hub.fileno(), select.POLLIN)
        while not self._stopped:
            try:
                poll.poll(0 if self._turns else self._timeout_ms())
                with self._lock:
                    for topic, queue_id, _end in self._hub.take():
                        for group in self._queues.get((topic, queue_id), {}).values():
                            self._due(group)
                    self._over(time.monotonic())
                self._work()
            except StoreStateError:
                return
            except MemoryError:         # whoever waits is tried again, at the latest when the time is over
                time.sleep(0.1)

    def _timeout_ms(self) -> int | None:
        with self._lock:
            while self._deadlines and self._deadlines[0][2].done:
                heapq.heappop(self._deadlines)
            return max(0, int((self._deadlines[0][0] - time.monotonic()) * 1000) + 1) if self._deadlines else None

    def _over(self, now: float) -> None:
        """The lock is held."""
        while self._deadlines and self._deadlines[0][0] <= now:
            held = heapq.heappop(self._deadlines)[2]
            if not held.done:
                held.last = True
                self._due(held)
