"""What the consumers of this process got, group by group, topic by topic, queue by queue (RocketMQ: BrokerStatsManager).

Counted where a batch is taken, so the cost is a batch's. Kept from the opening of the store on, whatever consumers come and go.
"""
from typing import TYPE_CHECKING

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.io._lock import StoreLock
from rmq_store.fields import Fields

if TYPE_CHECKING:
    from rmq_store.access.reader._get import GetResult

__all__ = ["CountTable", "GroupCounts", "QueueCounts"]


class QueueCounts(Fields):
    """Of one queue of them."""

    __slots__ = ("behind_bytes", "behind_ms", "bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0              # of records
        self.behind_bytes = 0       # of log, at the last get
        self.behind_ms = 0


class GroupCounts(Fields):
    """One group and topic. Written under the lock of the group's one consumer; readers may be one batch behind."""

    __slots__ = ("by_queue", "dead_letters", "disk_bytes", "disk_messages", "gets", "group", "sent_back", "times", "topic")

    def __init__(self, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.gets = 0                   # that found messages
        self.disk_messages = 0          # got from far behind the log's end: see GetResult
        self.disk_bytes = 0
        self.sent_back = 0              # messages that failed: to %RETRY%, or
        self.dead_letters = 0           # of them, to %DLQ%
        self.times = Histogram()        # of those gets, ns
        self.by_queue: dict[int, QueueCounts] = {}

    def got(self, queue_id: int, ns: int, result: "GetResult", behind_bytes: int, behind_ms: int) -> None:
        """A get that found messages, and how far behind the end of the log, and behind now, the last of them was."""
        self.gets += 1
        self.disk_messages += result.disk_messages
        self.disk_bytes += result.disk_bytes
        self.times.add(ns)
        queue = self.by_queue.setdefault(queue_id, QueueCounts())
        queue.messages += len(result)
        queue.bytes += result.total_bytes
        queue.behind_bytes, queue.behind_ms = max(behind_bytes, 0), max(behind_ms, 0)

    def queues(self) -> list[tuple[int, QueueCounts]]:
        """By queue id, those that something was got of."""
        return sorted(self.by_queue.copy().items())


class CountTable:
    """All of one store. Any thread."""

    def __init__(self, path: str) -> None:
        self._lock = StoreLock(path, "counts of consumers")
        self._counts: dict[tuple[str, str], GroupCounts] = {}

    def of(self, group: str, topic: str) -> GroupCounts:
        """The counts of one group and topic, empty ones where there are none yet."""
        with self._lock:
            return self._counts.setdefault((group, topic), GroupCounts(group, topic))

    def all(self) -> list[GroupCounts]:
        """By group and topic."""
        with self._lock:
            return [counts for _, counts in sorted(self._counts.items())]
