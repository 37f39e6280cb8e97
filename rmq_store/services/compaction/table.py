"""store.table: a topic as a read-only mapping from a key to the newest message with it.

A table has no thread. Each look at it first takes in what arrived in the topic since the last look, in the thread that looks,
so it is as new as the readers of the topic. In memory are keys and the places of messages; a message is read when a program
asks for it. RocketMQ has compaction topics and leaves the table to its clients.
"""
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import TYPE_CHECKING

from rmq_store.access.reader._checked import whole
from rmq_store.access.reader._message import Message
from rmq_store.base.io._lock import StoreLock
from rmq_store.errors import StoreStateError, exceeds, illegal
from rmq_store.services.compaction._places import Places
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["KEYS_MAX", "Table"]

KEYS_MAX = 1_000_000
_MOST = 1 << 40
TRIES = 20                      # of a queue that is compacted again and again while a table reads it


class Table(Mapping[str, Message]):
    """A topic as a read-only mapping: key -> newest Message with that key. `MessageStore.table` makes it.

    A key is all of a message's KEYS, as for RocketMQ's compaction; messages without a key are left out. A message without a
    body deletes its key. In one queue the message with the higher queue offset is newer; between queues the store time is what
    counts, so keep a key in one queue. A key whose newest message cleaning has deleted is no longer in the table.

    Every call except `offsets` first takes in what the store has dispatched since the last call. A table of a store that is
    open with readonly=True, follow=True follows the other process. Iteration goes over the keys that were there when it began;
    items() and values() pass over keys that are deleted meanwhile. Memory: the key and about 150 bytes for each, at most
    keys_max keys, no bodies. Messages are views, as those of get.
    Thread-safety: any number of threads, one lock. Raises StoreClosed when the store is closed, StoreStateError beyond
    keys_max, OSError.
    """

    def __init__(self, store: "StoreWait", topic: str, keys_max: int, version: Callable[[str, int], object]) -> None:
        """version(topic, queue id): what changes with each compaction of a queue."""
        if not isinstance(topic, str):
            raise illegal("topic", topic, "give the name of a topic as a str")
        self.topic = topic
        self._light = topic.startswith(LMQ_PREFIX)
        self.keys_max = whole(keys_max, "keys_max", 1, _MOST)
        self._store = store
        self._version: Callable[[int], object] = lambda queue: version(topic, queue)
        self._lock = StoreLock(store.path, f"the table of {topic}")
        self._places = Places()
        self._next: dict[int, int] = {}         # by queue
        self._low: dict[int, int] = {}
        self.refresh()

    # ---- following

    def refresh(self) -> int:
        """Takes in what was dispatched up to now, as every look does. Returns how many queue offsets that were: int."""
        with self._lock:
            return self._refresh()

    def wait(self, queue_id: int, offset: int, timeout: float | None = None) -> bool:
        """Waits until the table has taken in this queue offset, such as PutResult.queue_offset. Returns False after `timeout`
        seconds (None: no limit). Raises as MessageStore.wait_for_message."""
        if self._next.get(whole(queue_id, "queue_id", 0, (1 << 31) - 1), -1) > whole(offset, "offset", 0, (1 << 63) - 1):
            return True
        if not self._store.wait_for_message(self.topic, queue_id, offset, timeout):
            return False
        self.refresh()
        return True

    @property
    def offsets(self) -> dict[int, int]:
        """How far the table is: {queue id: the next queue offset}, a copy. Does not look at the store."""
        with self._lock:
            return dict(self._next)

    def _refresh(self) -> int:
        taken = 0
        rows = self._store._queues_of(self.topic)
        behind = [(queue, low, high) for queue, low, high in rows if self._next.get(queue) != high or self._low[queue] != low]
        if behind:
            self._places.begin_round()
        for queue, low, high in behind:
            taken += self._refresh_queue(queue, low, high)
        return taken

    def _refresh_queue(self, queue: int, low: int, high: int) -> int:
        """low, high: of what the log of the store has. Below that there may be a compaction log."""
        begin = self._next.get(queue, -1)
        if begin > high or 0 <= begin < low:
            # The queue was deleted, and begins anew; or what deletes a key may have been compacted away unseen.
            self._places.drop_queue(queue, _MOST << 22)
            begin = -1
        elif self._low.get(queue, low) != low:
            self._places.drop_queue(queue, self._store.min_offset(self.topic, queue))
        for _ in range(TRIES):
            version = self._version(queue)
            at = begin if begin >= 0 else self._store.min_offset(self.topic, queue)
            first, below = at, at < low
            self._next[queue], self._low[queue] = at, low
            while at < high:
                beyond = self._places.take(self._store, self.topic, queue, at, high, self.keys_max)
                if beyond < 0:                  # the log has no more of the queue there
                    below, beyond = True, self._take_older(queue, at)
                if len(self._places) > self.keys_max:
                    raise StoreStateError(exceeds(
                        f"the number of keys in the table of {self.topic}", f"more than {self.keys_max}", self.keys_max,
                        "allow more keys (keys_max, --keys-max), or read the topic"))
                if beyond <= at:
                    break                       # of a queue that is followed: it is there in a moment
                at = self._next[queue] = beyond
            if not below or self._version(queue) == version:
                break
            self._places.drop_queue(queue, _MOST << 22)     # it was compacted meanwhile
            begin = -1
        return at - first

    def _take_older(self, queue: int, at: int) -> int:
        if self._light:                         # no compaction log has its messages
            return self._store.min_offset(self.topic, queue)
        found = self._store.get(self.topic, queue, at, 256)
        for message in found:
            self._places.take_one(message, queue)
        return found.next_offset

    # ---- the mapping

    def __getitem__(self, key: str) -> Message:
        with self._lock:
            self._refresh()
            while True:
                place = self._places.at(key)
                if place is None:
                    raise KeyError(key)
                queue, offset = place
                found = self._store.get(self.topic, queue, offset, 1)
                for message in found:           # of a light queue the message says its offset in another queue
                    if (found.next_offset == offset + 1) if self._light else (message.queue_offset == offset):
                        return message
                self._places.drop(key, queue, offset)       # cleaning was faster

    def __contains__(self, key: object) -> bool:
        with self._lock:
            self._refresh()
            return isinstance(key, str) and self._places.at(key) is not None

    def __len__(self) -> int:
        with self._lock:
            self._refresh()
            return self._places.live

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            self._refresh()
            return iter(self._places.keys())

    def items(self) -> ItemsView[str, Message]:
        """The keys with their messages. A key that is deleted while the view is iterated is passed over."""
        return _Items(self)

    def values(self) -> ValuesView[Message]:
        """The messages, as items() gives them."""
        return _Values(self)

    def __repr__(self) -> str:
        return f"Table({self.topic!r}, {self._places.live} keys, offsets={self.offsets})"


class _Items(ItemsView[str, Message]):
    _mapping: Table

    def __iter__(self) -> Iterator[tuple[str, Message]]:
        for key in self._mapping:
            message = self._mapping.get(key)
            if message is not None:
                yield key, message


class _Values(ValuesView[Message]):
    _mapping: Table

    def __iter__(self) -> Iterator[Message]:
        for _, message in self._mapping.items():
            yield message
