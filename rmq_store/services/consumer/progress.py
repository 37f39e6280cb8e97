"""How far a group is behind, and setting it back or ahead (RocketMQ: consumerProgress, resetOffsetByTime of mqadmin).

Plain functions over an open store (StoreServes); any thread. Of a compaction topic they count what its compaction log has, too.
"""
from operator import add
from typing import TYPE_CHECKING, Any

from rmq_store.access.reader._count import count_matches
from rmq_store.codec.timer import time_ms
from rmq_store.errors import ArgumentIllegal
from rmq_store.fields import NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from rmq_store.filter._program import SqlFilter
    from rmq_store.services.consumer.offsets import ConsumerOffsets

__all__ = ["Lag", "MessageCount", "count_messages", "lag_of", "reset"]


class MessageCount(NamedTuple):
    """How many messages of a part of a queue pass a filter. exact: False where the rest of the part is estimated."""

    messages: int
    exact: bool


class Lag(NamedTuple):
    """Where a group stands in a queue. offset: the next one it consumes, -1 where it has committed none; then everything that
    can be read counts as to be consumed. matching: how many of those behind pass the filter of the call, None without one;
    exact: False where that is an estimate. behind: messages to be consumed; lost: of those it had not, deleted ones.
    removed: of a compaction topic, how many offsets from where the group continues on have no message any more, as newer ones
    have their keys; compacted: so have those before min_offset, and none counts as lost."""

    group: str
    topic: str
    queue_id: int
    offset: int
    min_offset: int
    max_offset: int
    matching: int | None = None
    exact: bool = True
    removed: int = 0
    compacted: bool = False

    @property
    def behind(self) -> int:
        return max(self.max_offset - max(self.offset, self.min_offset) - self.removed, 0)

    @property
    def lost(self) -> int:
        return max(self.min_offset - self.offset, 0) if self.offset >= 0 and not self.compacted else 0


def count_messages(store: Any, topic: str, queue_id: int, begin: int, end: int, tags: str | None,
                   sql: "str | SqlFilter | None") -> MessageCount:
    """MessageStore.estimate_message_count."""
    scan_max, matches_max = store.options.count_scan_max, store.options.count_matches_max
    before = _count_older(store, topic, queue_id, begin, end, tags, sql, scan_max, matches_max)
    matched, scanned, total = map(add, before, count_matches(
        store, topic, queue_id, begin, end, tags, sql, max(scan_max - before[1], 1), max(matches_max - before[0], 0)))
    return MessageCount(matched, True) if scanned == total else MessageCount(matched * total // max(scanned, 1), False)


def _count_older(store: Any, topic: str, queue_id: int, begin: int, end: int, tags: str | None,
                 sql: "str | SqlFilter | None", scan_max: int, matches_max: int) -> tuple[int, int, int]:
    """As count_matches, of what only a compaction log has: messages that pass, those that were looked at, and all."""
    older = store._older_entries(topic, queue_id)
    if older is None:
        return 0, 0, 0
    at, matched, scanned, end = begin, 0, 0, min(end, older.low)
    while at < end and scanned < scan_max and matched <= matches_max:
        result = store.get(topic, queue_id, at, end - at, tags, sql=sql)
        matched += sum(message.queue_offset < end for message in result)
        following = max(result.next_offset, at + 1)
        scanned, at = scanned + older.between(at, min(following, end)), following
    return matched, scanned, older.between(begin, end)


def lag_of(store: Any, offsets: "ConsumerOffsets", group: str | None = None, topic: str | None = None,
           tags: str | None = None, sql: "str | SqlFilter | None" = None) -> list[Lag]:
    """Of one group or all, of one topic or all of which they have committed something; by group, topic and queue."""
    found = []
    for (name, who), committed in offsets.table().items():
        if group not in (None, who) or topic not in (None, name):
            continue
        there = {queue_id: (low, high) for queue_id, low, high in store._queues_of(name)}
        for queue_id in sorted({*committed, *there}):
            low, high = there.get(queue_id, (0, 0))
            offset, older = committed.get(queue_id, -1), store._older_entries(name, queue_id)
            lag = Lag(who, name, queue_id, offset, low, high)
            if older is not None:
                first = older.offset(0)
                begin = min(max(offset, first), older.low)
                lag = lag._replace(min_offset=first, removed=older.low - begin - older.between(begin, older.low),
                                   compacted=store._compacted(name, queue_id))
            if tags is not None or sql is not None:
                counted = count_messages(store, name, queue_id, lag.offset, high, tags, sql)
                lag = lag._replace(matching=counted.messages, exact=counted.exact)
            found.append(lag)
    return sorted(found, key=lambda x: (x.group, x.topic, x.queue_id))


def reset(store: Any, offsets: "ConsumerOffsets", group: str, topic: str, *, timestamp: "int | datetime | None" = None,
          offset: int | None = None, queue_id: int | None = None) -> dict[int, int]:
    """Has `group` continue elsewhere in one queue of `topic` or all. Returns {queue id: next offset}.

    timestamp: ms since 1970 or an aware datetime, at the first message stored then or later; -1: at the end. offset: at this
    queue offset; one outside of the queue is refused. Raises ArgumentIllegal.
    """
    if (timestamp is None) == (offset is None):
        raise ArgumentIllegal("give either a timestamp or an offset")
    at = None if timestamp is None else time_ms(timestamp, "timestamp")
    if at is not None and at < -1:
        raise ArgumentIllegal(f"timestamp is {timestamp!r}: give ms since 1970, or -1 for the end")
    there = {number: (max(store.min_offset(topic, number), 0), high) for number, _, high in store._queues_of(topic)}
    if not there:
        raise ArgumentIllegal(f"topic is {topic!r}: the store has no queue of it")
    if queue_id is not None and queue_id not in there:
        raise ArgumentIllegal(f"queue_id is {queue_id!r}: {topic} has the queues {', '.join(map(str, sorted(there)))}")
    chosen = {}
    for number in sorted(there) if queue_id is None else [queue_id]:
        low, high = there[number]
        if at is not None:
            chosen[number] = high if at < 0 else max(store._lower_bound(topic, number, at), low)
        else:
            assert offset is not None
            if not low <= offset <= high:
                raise ArgumentIllegal(f"offset is {offset!r}: queue {number} of {topic} goes from {low} to {high}")
            chosen[number] = offset
    for number, to in chosen.items():
        offsets.commit(group, topic, number, to)
    return chosen
