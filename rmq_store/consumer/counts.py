"""What the consumers of this process got, group by group and topic by topic (upstream: BrokerStatsManager, GROUP_GET_*).

Counted where a batch is taken, so the cost is a batch's. Kept from the opening of the store on, whatever consumers come and go.
"""
import threading
from dataclasses import dataclass, field

from rmq_store.histogram._histogram import Histogram

__all__ = ["CountTable", "GroupCounts"]


@dataclass
class GroupCounts:
    """One group and topic. Written under the lock of the group's one consumer; readers may be one batch behind."""

    group: str
    topic: str
    gets: int = 0                   # that found messages
    messages: int = 0
    bytes: int = 0                  # of records
    sent_back: int = 0              # messages that failed: to %RETRY%, or
    dead_letters: int = 0           # of them, to %DLQ%
    times: Histogram = field(default_factory=Histogram)                     # of those gets, ns
    behind: dict[int, tuple[int, int]] = field(default_factory=dict)        # queue id -> bytes of log, ms, at the last get

    def got(self, queue_id: int, ns: int, count: int, size: int, behind_bytes: int, behind_ms: int) -> None:
        """A get that found `count` messages, and how far behind the end of the log, and behind now, the last of them was."""
        self.gets += 1
        self.messages += count
        self.bytes += size
        self.times.add(ns)
        self.behind[queue_id] = max(behind_bytes, 0), max(behind_ms, 0)


class CountTable:
    """All of one store. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], GroupCounts] = {}

    def of(self, group: str, topic: str) -> GroupCounts:
        """The counts of one group and topic, empty ones where there are none yet."""
        with self._lock:
            return self._counts.setdefault((group, topic), GroupCounts(group, topic))

    def all(self) -> list[GroupCounts]:
        """By group and topic."""
        with self._lock:
            return [counts for _, counts in sorted(self._counts.items())]
