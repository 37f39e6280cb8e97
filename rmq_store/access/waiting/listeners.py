"""Message-arriving listeners: one daemon thread a store calls them, woken by the dispatcher through an eventfd.

Native threads never call into Python; this thread does it for them, once a queue and wake-up. It starts with the first listener
and ends with the store. Upstream: MessageArrivingListener, NotifyMessageArrivingListener.
"""
import logging
import select
import threading
from collections.abc import Callable

from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import StoreStateError

__all__ = ["ArrivingListener", "Listeners"]

ArrivingListener = Callable[[str, int, int], object]


class Listeners:
    """The listeners of one store. Any thread may add and remove."""

    def __init__(self, store: StoreWait) -> None:
        self._hub = Arrivals(store, everything=True)
        self._listeners: tuple[ArrivingListener, ...] = ()
        self._lock = StoreLock(store.path, "the listeners")
        self.thread = start_thread(self._run, "rmq-arrivals")

    def add(self, listener: ArrivingListener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def remove(self, listener: ArrivingListener) -> None:
        with self._lock:
            kept = list(self._listeners)
            try:
                kept.remove(listener)
            except ValueError:
                raise ValueError("this listener was not added: remove only a listener that add_arriving_listener got") from None
            self._listeners = tuple(kept)

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
                for arrival in self._hub.take():
                    self._tell(*arrival)
        except StoreStateError:
            self._hub.close()

    def _tell(self, topic: str, queue_id: int, max_offset: int) -> None:
        for listener in self._listeners:
            try:
                listener(topic, queue_id, max_offset)
            except Exception:
                logging.getLogger("rmq_store.waiting").exception("a message-arriving listener raised")
