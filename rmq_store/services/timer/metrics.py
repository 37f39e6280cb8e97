"""config/timermetrics: how many timer messages wait for each topic (RocketMQ: TimerMetrics).

    {"dataVersion":{…},"timingCount":{topic:{"count":n,"timeStamp":ms}}}

The control thread. Nothing is read from it: the timer counts anew at each open.
"""
import time
from typing import Any

from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io.files import ControlFiles
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.timer._wheel import TimerWheel

__all__ = ["TimerMetrics"]

NAME = "timermetrics"
INTERVAL_S = 10.0           # RocketMQ's timerProgressLogIntervalMs


class TimerMetrics:
    """The file of one store."""

    def __init__(self, store: StoreWait, files: ControlFiles) -> None:
        self._file = ConfigFile(files, store.path, NAME)
        self._names: dict[int, str] = {}            # topic, by the log offset of one of its messages
        self._written: dict[str, int] | None = None
        self._counter, self._next = 0, 0.0

    def write(self, wheel: TimerWheel, *, now: bool = False) -> None:
        """Writes what changed, at most every INTERVAL_S but where `now`. Raises OSError."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + INTERVAL_S
        counts: dict[str, int] = {}
        for physical, count in wheel.topics():
            name = self._name(wheel, physical)
            if name is not None:
                counts[name] = counts.get(name, 0) + count
        if counts == self._written:
            return
        stamp, self._counter = int(time.time() * 1000), self._counter + 1
        content: dict[str, Any] = {
            "dataVersion": {"counter": self._counter, "stateVersion": 0, "timestamp": stamp},
            "timingCount": {name: {"count": count, "timeStamp": stamp} for name, count in sorted(counts.items())}}
        self._file.save(content)
        self._written = counts

    def _name(self, wheel: TimerWheel, physical: int) -> str | None:
        if physical not in self._names:
            name = wheel.topic_of(physical)
            if name is None:
                return None             # cleaned away: it is told until the next open, if it was once seen
            self._names[physical] = name
        return self._names[physical]
