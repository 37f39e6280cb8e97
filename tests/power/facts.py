"""What somebody was told before the cut: the marks of a log, in order, made into what a store must still hold."""
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where an acknowledged message is."""

    topic: str
    queue_id: int
    queue_offset: int
    offset: int


@dataclass
class Facts:
    """acknowledged: message -> its place. delayed: acknowledged ones that are yet to be delivered. clean_to: cleaning may have
    deleted what lies before. end: the log was called durable up to here. deleted: topics that were to go. handed: how far the
    consumer had handled a queue. committed: how far that was told to be on the device. failed: what went wrong in the run."""

    acknowledged: dict[tuple[int, int], Place] = field(default_factory=dict)
    delayed: set[tuple[int, int]] = field(default_factory=set)
    clean_to: int = 0
    end: int = 0
    deleted: set[str] = field(default_factory=set)
    handed: dict[tuple[str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def feed(self, mark: bytes) -> None:
        """One mark, which is one or several lines."""
        for line in mark.splitlines():
            kind, *values = json.loads(line)
            self.seen.add(kind)
            getattr(self, f"_{kind}")(*values)

    def copy(self) -> "Facts":
        return Facts(dict(self.acknowledged), set(self.delayed), self.clean_to, self.end, set(self.deleted), dict(self.handed),
                     dict(self.committed), list(self.failed), set(self.seen))

    @property
    def count(self) -> int:
        return len(self.acknowledged) + len(self.delayed)

    def _durable(self, those: list[list[Any]]) -> None:
        for producer, number, *place in those:
            self.acknowledged[producer, number] = Place(*place)

    def _delayed(self, producer: int, number: int) -> None:
        self.delayed.add((producer, number))

    def _clean(self, to: int) -> None:
        self.clean_to = max(self.clean_to, to)

    def _opened(self, end: int) -> None:
        self.end = max(self.end, end)

    def _delete(self, topic: str) -> None:
        self.deleted.add(topic)

    def _handed(self, topic: str, queue_id: int, offset: int) -> None:
        self.handed[topic, queue_id] = max(offset, self.handed.get((topic, queue_id), 0))

    def _committed(self, those: list[tuple[str, int, int]]) -> None:
        for topic, queue_id, offset in those:
            self.committed[topic, queue_id] = offset

    def _life(self, number: int) -> None:
        """A process begins."""

    def _failed(self, why: str) -> None:
        self.failed.append(why)

    def _end(self) -> None:
        """The run is over."""
