"""One event loop's share of a store: an eventfd that the dispatcher and the flush write to, and the tasks behind it.

Made on first use in the loop, by the store; everything here runs in the loop's thread. However many messages a round of
dispatch or a flush covers, the loop is woken once.
"""
import asyncio
from collections.abc import Iterable
from types import TracebackType

from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.access.waiting._wait import StoreWait
from rmq_store.access.writer._future import Completer, WaitedFutures
from rmq_store.errors import StoreStateError

__all__ = ["ArrivalSubscriber", "LoopHub"]


class ArrivalSubscriber:
    """Hears of messages in some queues of a topic, or (queue_ids None) in all of them. A context manager.

    Any number of tasks may listen: what arrives wakes all of them.
    """

    def __init__(self, hub: "LoopHub", topic: str, queue_ids: Iterable[int] | None) -> None:
        self._hub = hub
        self._topic = topic
        self._ids: list[int | None] = [None] if queue_ids is None else list(queue_ids)
        self._due: set[int] = set()
        self._waiters: set[asyncio.Future[None]] = set()
        self._error: StoreStateError | None = None

    def __enter__(self) -> "ArrivalSubscriber":
        for i, queue_id in enumerate(self._ids):
            try:
                self._hub.join(self, self._topic, queue_id)
            except BaseException:
                self._ids = self._ids[:i]
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for queue_id in self._ids:
            self._hub.leave(self, self._topic, queue_id)
        self._ids = []

    async def listen(self, timeout: float | None = None) -> set[int]:
        """Queue ids that got messages since the last call; waits until there is one, or `wake` is called. Empty where another
        task has them: look again. Raises TimeoutError, StoreClosed, and StoreStateError where nothing can arrive."""
        if not self._due and self._error is None:
            self._hub.may_wait()
            waiter = self._hub.loop.create_future()
            self._waiters.add(waiter)
            try:
                async with asyncio.timeout(timeout):
                    await waiter
            finally:
                self._waiters.discard(waiter)
        if self._error is not None:
            raise self._error
        due, self._due = self._due, set()
        return due

    def arrived(self, queue_id: int) -> None:
        self._due.add(queue_id)
        self.wake()

    def ended(self, error: StoreStateError) -> None:
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Lets out every task that listens."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class LoopHub:
    """The tasks of one event loop that wait for one store."""

    def __init__(self, store: StoreWait, completer: Completer, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._store = store
        self._arrivals = Arrivals(store)
        self._everything: Arrivals | None = None
        self.waited = WaitedFutures(completer, self._arrivals.fileno())      # tasks that wait for the device
        self.waited.watch = self._look_later
        self._done = loop.create_future()
        self._done.set_result(None)
        self._subscribers: dict[tuple[str, int | None], list[ArrivalSubscriber]] = {}
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(self._arrivals.fileno(), self._ready)

    # ---- durability

    def _look_later(self) -> None:
        # A device that does not answer wakes nobody: what waits too long is told so by a timer, one for all.
        due = self.waited.overdue_in
        self.waited.watched = due is not None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else self.loop.call_later(due + 0.001, self._overdue)

    def _overdue(self) -> None:
        try:
            self.waited.resolve(self._done)
        finally:        # a task that ends the program leaves the others waiting, and the loop may run again
            if not self._store._forked():
                self._look_later()

    # ---- arrivals

    def may_wait(self) -> None:
        """Raises StoreStateError of a store in which nothing can arrive."""
        self._store._may_wait()

    def join(self, subscriber: ArrivalSubscriber, topic: str, queue_id: int | None) -> None:
        """From here on the subscriber hears. Raises StoreClosed; OSError and others of the loop: then it does not."""
        if queue_id is not None:
            self._arrivals.watch(topic, queue_id)
        elif self._everything is None:
            everything = Arrivals(self._store, everything=True)
            try:
                self.loop.add_reader(everything.fileno(), self._ready)
            except BaseException:           # nobody would read it, and the next subscriber take it for read
                everything.close()
                raise
            self._everything = everything
        else:
            self._store._check_open()       # those who heard of the end were told, nobody tells again
        self._subscribers.setdefault((topic, queue_id), []).append(subscriber)

    def leave(self, subscriber: ArrivalSubscriber, topic: str, queue_id: int | None) -> None:
        subscribers = self._subscribers.get((topic, queue_id))
        if subscribers is None or subscriber not in subscribers:
            return
        subscribers.remove(subscriber)
        if not subscribers:
            del self._subscribers[topic, queue_id]
        if queue_id is not None:
            self._arrivals.unwatch(topic, queue_id)
        elif self._everything is not None and not any(key[1] is None for key in self._subscribers):
            self._drop_everything()

    def _drop_everything(self) -> None:
        if self._everything is not None:
            if not self.loop.is_closed():
                self.loop.remove_reader(self._everything.fileno())
            self._everything.close()
            self._everything = None

    def _ready(self) -> None:
        # The eventfds are read before anything is looked at: what ends after the look makes them readable again. The other way
        # round a flush in between was told to nobody, and tasks that waited for it did so until flush_deadline_ms.
        try:
            arrived = self._arrivals.take()
            anywhere = [] if self._everything is None else self._everything.take()
        except StoreStateError as error:
            self._ended(error)
            return
        try:
            self.waited.resolve(self._done)
        finally:        # a task that ends the program takes no arrivals along
            for topic, queue_id, _ in arrived:
                self._tell(topic, queue_id, queue_id)
            for topic, queue_id, _ in anywhere:
                self._tell(topic, None, queue_id)

    def _ended(self, error: StoreStateError) -> None:
        # The store closes, which takes as long as its device does. Puts that wait for that are told by another signal.
        try:
            self.waited.resolve(self._done)
        finally:
            for subscribers in list(self._subscribers.values()):
                for subscriber in subscribers:
                    subscriber.ended(error)
            if not self._store._forked():       # the readers of a child of fork are its parent's
                self._drop_everything()         # nobody listens any more, and nobody would read what it is told
                if self.waited.waiting == 0:
                    self.close()

    def _tell(self, topic: str, key: int | None, queue_id: int) -> None:
        for subscriber in self._subscribers.get((topic, key), ()):
            subscriber.arrived(queue_id)

    def close(self) -> None:
        """The store or the loop is closed. Idempotent."""
        if self._arrivals.fileno() < 0:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._drop_everything()
        if not self.loop.is_closed():
            self.loop.remove_reader(self._arrivals.fileno())
        self.waited.close()
        self._arrivals.close()
