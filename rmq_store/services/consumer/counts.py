"""What the consumers of this process got, group by group, topic by topic, queue by queue (RocketMQ: BrokerStatsManager).

Counted where a batch is taken, so the cost is a batch's. Kept from the opening of the store on, whatever consumers come and go.
"""
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.io._lock import StoreLock

if TYPE_CHECKING:
    from rmq_store.access.reader._get import GetResult

__all__ = ["CountTable", "GroupCounts", "QueueCounts"]


@dataclass
class QueueCounts:
    """Of one queue of them."""

    messages: int = 0
    bytes: int = 0                  # of records
    behind_bytes: int = 0           # of log, at the last get
    behind_ms: int = 0


@dataclass
class GroupCounts:
    """One group and topic. Written under the lock of the group's one consumer; readers may be one batch behind."""

    group: str
    topic: str
    gets: int = 0                   # that found messages
    disk_messages: int = 0          # got from far behind the log's end: see GetResult
    disk_bytes: int = 0
    sent_back: int = 0              # messages that failed: to %RETRY%, or
    dead_letters: int = 0           # of them, to %DLQ%
    times: Histogram = field(default_factory=Histogram)                     # of those gets, ns
    by_queue: dict[int, QueueCounts] = field(default_factory=dict)

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
