"""Subscriptions: messages of some queues of a topic as they arrive, each queue in its order, the queues in turns."""
import math
import select
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType

from rmq_store.access.reader._checked import whole
from rmq_store.access.reader._message import Message
from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.access.waiting._wait import wait_ns
from rmq_store.errors import illegal
from rmq_store.filter._program import SqlFilter
from rmq_store.opened.walking import StoreWalks
from rmq_store.services.consumer.light_offsets import offset_in

__all__ = ["LOOK_ENTRIES", "Offsets", "Subscription", "Turns", "queue_ids"]

LOOK_ENTRIES = 8192     # of a queue, that a look in a loop's thread goes through at most: a fraction of a millisecond
Offsets = int | Mapping[int, int] | None


def queue_ids(queue_id: int | Iterable[int] | None) -> list[int] | None:
    """The queues that a subscription names; None: all. Raises ArgumentIllegal."""
    if queue_id is None:
        return None
    if isinstance(queue_id, str | bytes) or not isinstance(queue_id, int | Iterable):
        raise illegal("queue_id", queue_id, "give a queue id, several, or None for all queues of the topic")
    return [whole(one, "queue_id", 0, (1 << 31) - 1) for one in ([queue_id] if isinstance(queue_id, int) else queue_id)]


class Turns:
    """Where each queue is to be read, and what was read and not handed out yet. `offsets` has the next offset of each queue."""

    def __init__(self, store: StoreWalks, topic: str, offset: Offsets, tags: str | None, max_count: int,
                 sql: SqlFilter | None) -> None:
        self._store, self._topic, self._offset = store, topic, offset
        self._tags, self._max_count, self._sql = tags, max_count, sql
        self._ready: deque[tuple[int, Message]] = deque()
        self._read: dict[int, int] = {}         # where the next look begins, beyond what waits in _ready
        self._due: dict[int, None] = {}         # queues to look at, the next one first
        self.offsets: dict[int, int] = {}

    def _begin(self, queue_id: int) -> None:
        low, end = max(self._store.min_offset(self._topic, queue_id), 0), self._store.max_offset(self._topic, queue_id)
        at = self._offset.get(queue_id) if isinstance(self._offset, Mapping) else self._offset
        if at is None:
            at = low
        elif isinstance(at, bool) or not isinstance(at, int):
            raise illegal("offset", at, "give a queue offset, -1 for the end, None for the oldest message, or a mapping")
        elif at == -1:
            at = end
        if not 0 <= at <= end:
            raise illegal("offset", at, f"queue {queue_id} of {self._topic} has offsets {low} to {end}")
        self.offsets[queue_id] = self._read[queue_id] = at
        self._due[queue_id] = None

    def _arrived(self, queue_id: int) -> None:
        if queue_id not in self._read:          # a queue that came after the subscription: from its beginning
            self.offsets[queue_id] = self._read[queue_id] = 0
        self._due[queue_id] = None

    def _hand_out(self) -> Message:
        queue_id, message = self._ready.popleft()
        place = offset_in(message, self._topic)         # a light queue has another one than the message
        self.offsets[queue_id] = (message.queue_offset if place is None else place) + 1
        return message

    def _look(self) -> int:
        # One batch of one queue; a queue with nothing more is not due until the dispatcher says so. Returns how many entries
        # the filter left out where it left out all.
        queue_id = next(iter(self._due))
        self._due[queue_id] = self._due.pop(queue_id)       # last in turn: one that is full, or fails, leaves the others theirs
        begin, passed = self._read[queue_id], 0
        result = self._store.get(self._topic, queue_id, begin, self._max_count, sql=self._sql, tags=self._tags,
                                 _scan_max=LOOK_ENTRIES)
        self._read[queue_id] = result.next_offset
        if result.messages:
            self._ready.extend((queue_id, message) for message in result.messages)
        else:
            self.offsets[queue_id] = result.next_offset
            passed = result.next_offset - begin
        if result.next_offset >= result.max_offset:         # not before: a look that failed is taken again
            del self._due[queue_id]
        return passed


class Subscription(Turns):
    """An iteration over messages that ends with `close`. `offsets` has the next offset of each queue to hand out.

    An iteration that ends by its timeout, or by an exception of the thread, is continued by a later one, without a gap. Several
    threads may iterate: each message goes to one of them, and one at a time waits. `close`: any thread, a signal handler too.
    """

    def __init__(self, store: StoreWalks, topic: str, queue_id: int | Iterable[int] | None, offset: Offsets,
                 tags: str | None, max_count: int, sql: SqlFilter | None, timeout: float | None) -> None:
        super().__init__(store, topic, offset, tags, max_count, sql)
        wait_ns(timeout)                        # raises for what is no time
        self._timeout = timeout
        self._closed = False
        self._lock = threading.Lock()           # whose turn it is to look or to wait
        ids = queue_ids(queue_id)
        self._arrivals = Arrivals(store, everything=ids is None)
        self._poll = select.poll()
        try:
            self._poll.register(self._arrivals.fileno(), select.POLLIN)
            for one in ids or ():
                self._arrivals.watch(topic, one)
            for one in store.queues(topic) if ids is None else ids:
                self._begin(one)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            end = None if self._timeout is None else time.monotonic() + self._timeout
            with self._lock:
                while not self._ready:
                    self._more(end)
                self._check()
                return self._hand_out()
        finally:
            if self._closed:
                self._release()

    def _more(self, end: float | None) -> None:
        """Waits for messages, or looks for some, once. Who waits began where there was nothing to look at, and is woken by what
        came since."""
        self._check()
        if not self._due:
            self._store._may_wait()
            rest = None if end is None else max(math.ceil((end - time.monotonic()) * 1000), 0)
            if not self._poll.poll(rest):
                raise StopIteration
            self._check()
            for topic, queue_id, _ in self._arrivals.take():
                if topic == self._topic:
                    self._arrived(queue_id)
        if self._due:
            self._look()

    def _check(self) -> None:
        self._store._check_open()           # in a child of fork nobody would wake it
        if self._closed:
            raise StopIteration

    def _release(self) -> None:
        # The eventfd goes when nobody waits on it: its number may be another's at once. Whoever has the lock comes here too.
        if self._lock.acquire(blocking=False):
            try:
                self._ready.clear()
                self._arrivals.close()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Ends the iteration, also in a thread that waits. The end of `with` calls it too. Idempotent."""
        self._closed = True
        self._arrivals.wake()
        self._release()

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
