"""Which half messages are undecided: read from the half queue, the op queue and the real queues. Nothing here writes.

`position` is the half queue offset below which everything is settled, as RocketMQ's group CID_RMQ_SYS_TRANS counts it. A half
message that a check has put again is one transaction with its first one (half.ORIGIN; without it, its UNIQ_KEY). A commit
whose op message is missing, because the process was killed in between, is found by its real record: preparedTransactionOffset
leads to the half message. Thread-safety: the caller's lock.
"""
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.codec._layout import FLAG_TRANSACTION, TRANSACTION_COMMIT
from rmq_store.events import Event, emit
from rmq_store.services.cleaning.removing import removed_queues
from rmq_store.services.transaction.half import (
    CHECKS,
    HALF_TOPIC,
    IMMUNITY,
    OP_TOPIC,
    ORIGIN,
    PUT_AGAIN,
    TRANSACTION_ID,
    can_be_real,
    number_of,
    op_offsets,
)

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["COMMITTED", "FOUND", "GIVEN_UP", "INTERRUPTED", "PENDING", "ROLLED_BACK", "SETTLED", "SURE", "Half", "Table",
           "committed_among", "messages_of", "settled_at"]

PENDING, COMMITTED, ROLLED_BACK, GIVEN_UP = "pending", "committed", "rolled back", "given up"
SETTLED = "settled"             # an op message says so; which way, the real queue says
# Of a half message that an open found: an earlier process may have committed it. Of one whose commit was interrupted here.
SURE, FOUND, INTERRUPTED = 0, 1, 2
_AT_ONCE = 32
_NO_END = 1 << 63               # above each queue offset


class Half:
    """One transaction. places: (half queue offset, log offset) of its half messages that are not settled, the newest last."""

    __slots__ = ("born", "checks", "group", "id", "immunity_ms", "lock", "origin", "places", "queue_id", "result", "state",
                 "stored", "topic", "unique", "unsure")

    def __init__(self, path: str, properties: Mapping[str, str], msg_id: str, queue_offset: int, born: int) -> None:
        """Raises KeyError, ValueError where these are not the properties of a half message."""
        self.unique = properties.get("UNIQ_KEY")        # which its real record has, too
        self.id = self.unique or msg_id
        self.topic, queue_id = properties["REAL_TOPIC"], number_of(properties["REAL_QID"])
        if queue_id is None or not can_be_real(self.topic, queue_id):
            raise ValueError("no message can be put there")
        self.queue_id: int = queue_id
        self.group = properties.get("PGROUP", "")
        origin = number_of(properties.get(ORIGIN))
        self.origin = queue_offset if origin is None else origin
        self.places: list[tuple[int, int]] = []
        self.born = born
        immunity = number_of(properties.get(IMMUNITY))
        self.immunity_ms = None if immunity is None else immunity * 1000
        self.checks = self.stored = 0
        self.state = PENDING
        self.result: Any = None         # of the commit's put, or the record that was found
        self.unsure: int = SURE         # whether its real record may be there, although `state` says that it is pending
        self.lock = StoreLock(path, f"transaction {self.id}")

    @property
    def place(self) -> tuple[int, int] | None:
        """The newest of places, for readers that do not hold the table's lock; None: all is settled."""
        places = self.places
        return places[-1] if places else None

    def came(self, queue_offset: int, offset: int, checks: int, stored: int) -> None:
        """One more of its half messages."""
        self.places.append((queue_offset, offset))
        self.checks, self.stored = checks, stored


class Table:
    """All transactions that are not settled. seen: the half queue offset up to which the queue was read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.position = self.op_position = self.seen = 0
        self.seen_at = -1                               # log offset of the newest half message that was read
        self.loaded_to = 0                              # what an earlier process put lies in front of this log offset
        self.halves: dict[int, Half] = {}               # by origin
        self.by_offset: dict[int, Half] = {}            # by half queue offset
        self.by_id: dict[str, Half] = {}
        self.old: set[int] = set()                      # half queue offsets of 4.9's half messages, which 4.9 may read on
        self.done: set[int] = set()                     # half queue offsets that are settled, from position on
        self.ops: dict[int, int] = {}                   # op queue offset -> highest half queue offset that it settles
        self._loading = False
        self._again: set[int] = set()                   # while loading: of done, those that were put again, no more is said
        self._told: dict[int, int] = {}                 # while loading: half queue offset -> log offset of its op message
        self.odd = 0                                    # half messages without a real topic and queue

    # ---- reading

    def load(self, store: "StoreWait", committed: Callable[[str], int]) -> list[Half]:
        """From the committed offsets on. Returns the transactions that an op message has decided and that still have half
        messages to settle. Others may be committed, and their op message missing: they are FOUND. To find their real records
        takes a look at all messages of their queues since, and whoever uses one looks then."""
        self.op_position, lost = _ops_of(store, committed)
        found = [(op.queue_offset, op.offset, op_offsets(op), PUT_AGAIN in op.properties)
                 for op in chain(lost, messages_of(store, OP_TOPIC, 0, self.op_position))]
        if lost:
            self.op_position = lost[0].queue_offset
            emit(Event.OP_QUEUE_LACKS_ENTRIES, path=self.path, count=len(lost))
        self.position, high = _begin(store, HALF_TOPIC, committed)      # behind the look at the ops, which are younger
        self.seen = self.position
        told: dict[int, int] = {}
        decided: set[int] = set()
        for queue_offset, place, offsets, again in found:
            settled = [offset for offset in offsets if offset < high]
            told.update((offset, place) for offset in settled if offset >= self.position)
            if not again:
                decided.update(settled)
            self.ops[queue_offset] = max(settled, default=-1)
        self.done, self._told, self._again = set(told), told, told.keys() - decided
        self._loading = True
        self.take_new(store)
        self._loading, self._told, self._again = False, {}, set()
        for half in self.pending():
            half.unsure = FOUND
        self.loaded_to = store.max_log_offset
        self.forget_settled()
        return [half for half in self.halves.values() if half.state != PENDING]

    def take_new(self, store: "StoreWait") -> None:
        """Half messages that the table does not know yet."""
        low, high = store._bounds(HALF_TOPIC, 0) or (0, 0)
        if low > self.position:                         # cleaning has deleted the log below
            self.position, self.seen = low, max(low, self.seen)     # first: to settle may move position beyond low, never back
            self.done = {offset for offset in self.done if offset >= low}
            self.old = {offset for offset in self.old if offset >= low}
            for offset in [offset for offset in self.by_offset if offset < low]:
                self.settle(offset)
        if self.seen < high:
            for message in messages_of(store, HALF_TOPIC, 0, self.seen):
                self.take(message)
                self.seen, self.seen_at = message.queue_offset + 1, message.offset
        self._advance()

    def take(self, message: "Message") -> Half | None:
        """Adds one half message, or finds it. None: it is settled, or no half message of a broker."""
        offset = message.queue_offset
        if self._told.get(offset, message.offset) < message.offset:
            self.done.discard(offset)       # told before there was such a message: of a queue that was deleted, or by no broker
        if offset < self.position or (offset in self.done and not self._loading):
            return None                     # behind load, one of done may have been put again: its transaction is open
        if offset in self.by_offset:
            return self.by_offset[offset]
        properties = message.properties
        try:
            half = Half(self.path, properties, message.msg_id, offset, message.born_timestamp)
        except (KeyError, ValueError):
            self.odd += offset not in self.done
            self.done.add(offset)
            return None
        if ORIGIN not in properties and CHECKS in properties and half.id in self.by_id:
            half.origin = self.by_id[half.id].origin
        first = self.halves.get(half.origin)
        if first is not None and first.unique != half.unique:
            half.origin = offset            # a message with the properties of another transaction, which somebody forwarded
        half = self.halves.setdefault(half.origin, half)
        self.by_id.setdefault(half.id, half)
        if offset in self.done:             # an op message says so, and that holds for all its half messages
            if offset not in self._again:
                half.state = SETTLED
            return None
        if TRANSACTION_ID not in properties:
            self.old.add(offset)
        self.came(half, offset, message.offset, number_of(properties.get(CHECKS)) or 0, message.store_timestamp)
        return half

    def begins_again(self, queue_offset: int, offset: int) -> bool:
        """Whether a half message that was just put has a queue offset of before: somebody has deleted the topic."""
        return offset > self.seen_at and (queue_offset < max(self.seen, self.position) or queue_offset in self.done
                                          or queue_offset in self.by_offset)

    def add(self, half: Half) -> Half | None:
        """A transaction that was just prepared, unless the queue was read meanwhile. None: a check has settled it already."""
        offset = half.origin
        if offset < self.position or offset in self.done:
            return None
        half = self.halves.setdefault(offset, half)
        self.by_id[half.id] = half
        return half

    def came(self, half: Half, queue_offset: int, offset: int, checks: int, stored: int) -> None:
        if queue_offset not in self.by_offset:
            half.came(queue_offset, offset, checks, stored)
            self.by_offset[queue_offset] = half

    # ---- deciding

    def said(self, op_offset: int, settled: list[int]) -> None:
        """An op message is stored at this offset of the op queue."""
        if op_offset < self.op_position:        # somebody has deleted the topic, and its queue begins again
            self.ops.clear()
            self.op_position = op_offset
        self.ops[op_offset] = max(settled)
        for offset in settled:
            self.settle(offset, ROLLED_BACK)       # what is committed or given up says so by now

    def offsets_of(self, half: Half) -> list[int]:
        """What an op message has to settle; nothing where the half queue that had it was deleted."""
        return [offset for offset, _ in half.places if self.by_offset.get(offset) is half]

    def settle(self, offset: int, state: str = PENDING) -> None:
        """The half message at this queue offset needs nobody any more. state: what that makes of a pending transaction."""
        if offset >= self.position:
            self.done.add(offset)
        half = self.by_offset.pop(offset, None)
        if half is not None:
            left = [place for place in half.places if place[0] != offset]
            if not left and half.state == PENDING:
                half.state = state          # first, as an interrupt may come after each line
            half.places = left
            if not left:
                self.forget(half)
        self._advance()

    def forget(self, half: Half) -> None:
        if self.halves.get(half.origin) is half:
            del self.halves[half.origin]
        if self.by_id.get(half.id) is half:
            del self.by_id[half.id]

    def forget_settled(self) -> None:
        """Those that were read and have nothing left to settle."""
        for half in [half for half in self.halves.values() if not half.places]:
            self.forget(half)

    def _advance(self) -> None:
        while self.position in self.done:
            self.done.remove(self.position)
            self.old.discard(self.position)
            self.position += 1
        while self.ops.get(self.op_position, self.position) < self.position:
            del self.ops[self.op_position]
            self.op_position += 1

    def pending(self) -> list[Half]:
        """Without those of an interrupted prepare(), before take_new() has read their half messages."""
        return sorted((half for half in self.halves.values() if half.state == PENDING and half.places),
                      key=lambda half: half.places[-1])


def _begin(store: "StoreWait", topic: str, committed: Callable[[str], int]) -> tuple[int, int]:
    """From which queue offset on a queue is read, and its end. An offset beyond the end is another store's: it says nothing."""
    low, high = store._bounds(topic, 0) or (0, 0)
    offset = committed(topic)
    return (offset if low <= offset <= high else low), high


def _ops_of(store: "StoreWait", committed: Callable[[str], int]) -> "tuple[int, list[Message]]":
    """From which op message on the op queue is read, and what stands in its place where a file at its begin is gone.

    It is the committed one, and not behind the first that can settle a half message which is read: an operator can move one
    offset without the other, and a half queue may have lost its end."""
    begin, _ = _begin(store, OP_TOPIC, committed)
    position, high = _begin(store, HALF_TOPIC, committed)
    if position >= high:
        return begin, []
    entry = store.raw_entry(HALF_TOPIC, 0, position)
    place = store.min_log_offset if entry is None else entry[0]
    return (min(begin, _first_behind(store, OP_TOPIC, 0, place if entry is not None else -1)),
            _lost_ops(store, committed(OP_TOPIC), place))


def _lost_ops(store: "StoreWait", begin: int, place: int) -> "list[Message]":
    """Op messages behind log offset `place` and from queue offset `begin` on that the log has, and their queue has not: its
    first file is gone, or its only one. Cleaning leaves none: it deletes a file of the queue behind those of the log."""
    bounds = store._bounds(OP_TOPIC, 0)
    low, high = bounds or (0, 0)
    if high == 0 and (bounds is not None or begin > 0):
        begin, low, end = 0, _NO_END, store.max_log_offset
    elif begin < low < high and (entry := store.raw_entry(OP_TOPIC, 0, low)) is not None:
        end = entry[0]
    else:
        return []
    return [message.copy() for message in _records(store, place, end)
            if message.topic == OP_TOPIC and begin <= message.queue_offset < low]


def _records(store: "StoreWait", begin: int, end: int) -> Iterator["Message"]:
    """Messages of the log in [begin, end), also those that no queue leads to. Raises CorruptionError."""
    while True:
        record = store._next_record(begin, end)
        if record is not None:
            message, begin = record[3:]
            if message is not None:
                yield message
        elif begin < store.min_log_offset:
            begin = store.min_log_offset        # deleted meanwhile, or before the log begins
        else:
            return


def messages_of(store: "StoreWait", topic: str, queue_id: int, begin: int) -> Iterator["Message"]:
    """Messages of a queue from queue offset `begin` to its end."""
    while True:
        result = store.get(topic, queue_id, begin, _AT_ONCE)
        yield from result
        if result.next_offset <= begin:
            return
        begin = result.next_offset


def settled_at(store: "StoreWait", half: "Message") -> int | None:
    """Log offset of the op message that settles this half message. A commit's record is in front of it. None: there is none."""
    for op in messages_of(store, OP_TOPIC, 0, _first_behind(store, OP_TOPIC, 0, half.offset)):
        if PUT_AGAIN not in op.properties and half.queue_offset in op_offsets(op):
            return op.offset
    return None


def committed_among(store: "StoreWait", halves: Iterable[Half], end: int | None = None) -> dict[Half, "Message"]:
    """Those whose real record is in its queue, with that record. Reads each real queue from the oldest half message on, up to
    log offset `end`; below the place where somebody has deleted the topic, the log in its stead."""
    removed = removed_queues(ControlFiles(IoTable()), store.path)
    wanted: dict[tuple[str, int], list[Half]] = {}
    for half in halves:
        wanted.setdefault((half.topic, half.queue_id), []).append(half)
    found: dict[Half, Message] = {}
    for (topic, queue_id), here in wanted.items():
        by_place = {offset: half for half in here for _, offset in half.places}
        by_origin = {half.origin: half for half in here}
        deleted = (message for message in _records(store, min(by_place), removed.get((topic, queue_id), 0))
                   if (message.topic, message.queue_id) == (topic, queue_id))
        for message in chain(deleted, messages_of(store, topic, queue_id,
                                                  _first_behind(store, topic, queue_id, min(by_place)))):
            if end is not None and message.offset > end:
                break
            if message.sys_flag & FLAG_TRANSACTION != TRANSACTION_COMMIT:
                continue
            origin = number_of(message.properties.get(ORIGIN))      # of a half message that a check put again
            committed = by_place.get(message.prepared_transaction_offset) or by_origin.get(-1 if origin is None else origin)
            if committed is not None and message.unique_key == committed.unique:    # else somebody's own flag, or another
                found.setdefault(committed, message.copy())
    return found


def _first_behind(store: "StoreWait", topic: str, queue_id: int, place: int) -> int:
    """The first queue offset whose record lies behind `place` in the log."""
    low, high = store._bounds(topic, queue_id) or (0, 0)
    while low < high:
        middle = (low + high) // 2
        entry = store.raw_entry(topic, queue_id, middle)
        if entry is not None and entry[0] > place:
            high = middle
        else:
            low = middle + 1
    return low
