"""Message-arriving listeners: one daemon thread a store calls them, woken by the dispatcher through an eventfd.

Native threads never call into Python; this thread does it for them: once a queue and wake-up, or, for listeners that ask for
it, once a message. It starts with the first listener and ends with the store. RocketMQ: MessageArrivingListener,
NotifyMessageArrivingListener.
"""
import logging
import select
import threading
from collections.abc import Callable, Mapping

from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.access.waiting._arrived import arrived_entries
from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.callbacks import refuse_unrun
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import ArgumentIllegal, StoreStateError
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple

__all__ = ["ArrivingListener", "Listeners", "MessageArrived", "MessageListener"]


class MessageArrived(NamedTuple):
    """What a listener is told of one message: the arguments of RocketMQ's MessageArrivingListener.arriving."""

    topic: str
    queue_id: int
    offset: int                         # one past the message, as RocketMQ's logicOffset: where a reader stands behind it
    tags_code: int                      # of the queue entry: a hash code, or, of a delayed message, when it is due (ms)
    store_timestamp: int                # ms since 1970
    bit_map: bytes | None               # of the entry's extension unit; None: it has none
    properties: Mapping[str, str]

    @property
    def queue_offset(self) -> int:
        """The queue offset of the message itself: int."""
        return self.offset - 1


ArrivingListener = Callable[[str, int, int], object]
MessageListener = Callable[[MessageArrived], object]


class Listeners:
    """The listeners of one store. Any thread may add and remove."""

    def __init__(self, store: StoreWait) -> None:
        self._store = store
        self._hub = Arrivals(store, everything=True)
        self._listeners: tuple[ArrivingListener, ...] = ()
        self._each: tuple[MessageListener, ...] = ()
        self._told: dict[tuple[str, int], int] = {}     # where those of `_each` are; kept while there is one
        self._failed = ""
        self._lock = StoreLock(store.path, "the listeners")
        self.thread = start_thread(self._run, "rmq-arrivals")

    def add(self, listener: ArrivingListener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def add_each(self, listener: MessageListener) -> None:
        """From here on: it is not told of what the queues have now."""
        with self._lock:
            if not self._each:
                self._told = {(topic, queue): end for topic, queue, _, end in self._store._queue_list()}
            self._each = (*self._each, listener)

    def forget(self, topics: tuple[str, ...]) -> None:
        """The queues of these topics were deleted, and begin anew."""
        for key in [key for key in list(self._told) if key[0] in topics]:
            self._told.pop(key, None)

    def remove(self, listener: ArrivingListener | MessageListener) -> None:
        with self._lock:
            for name in ("_listeners", "_each"):
                kept = list(getattr(self, name))
                if listener in kept:
                    kept.remove(listener)
                    setattr(self, name, tuple(kept))
                    return
        raise ArgumentIllegal("this listener was not added: remove only a listener that add_arriving_listener got")

    def stop(self) -> None:
        """The store closes: the thread ends; from a listener, which is that thread, it ends with the call."""
        self._hub._detach()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._hub.fileno(), select.POLLIN)
        try:
            while True:
                poll.poll()
                for topic, queue_id, max_offset in self._hub.take():
                    for listener in self._listeners:
                        _call(listener, topic, queue_id, max_offset)
                    if self._each:
                        self._tell_each(topic, queue_id, max_offset)
        except StoreStateError:
            self._hub.close()

    def _tell_each(self, topic: str, queue_id: int, end: int) -> None:
        told = self._told
        at = told.get((topic, queue_id), 0)
        if at > end:
            if self._store.max_offset(topic, queue_id) >= at:
                return                      # what was taken before these listeners came
            at = 0                          # the queue was deleted, and begins anew
        while at < end:
            try:
                entries, beyond = arrived_entries(self._store, topic, queue_id, at, end)
                arrived = [self._arrived(topic, queue_id, *entry) for entry in entries]
                self._failed = ""
            except StoreStateError:
                raise
            except Exception as error:      # a file that cannot be read: with the next message of this queue, from here on
                if self._failed != str(error):
                    self._failed = str(error)
                    emit(Event.TASK_FAILED, task="telling listeners of messages", path=self._store.path, error=self._failed)
                break
            for one in arrived:
                for listener in self._each if one is not None else ():
                    _call(listener, one)
            at = beyond
        told[topic, queue_id] = at

    def _arrived(self, topic: str, queue_id: int, queue_offset: int, offset: int, code: int,
                 bit_map: bytes | None) -> MessageArrived | None:
        message = self._store.message_at(offset)
        return None if message is None else MessageArrived(topic, queue_id, queue_offset + 1, code, message.store_timestamp,
                                                           bit_map, message.properties)


def _call(listener: Callable[..., object], *arguments: object) -> None:
    try:
        refuse_unrun("listener", listener, listener(*arguments))
    except BaseException:       # sys.exit() too: the thread is that of all listeners
        logging.getLogger("rmq_store.waiting").exception("a message-arriving listener raised")
