"""Delay messages of one store: the timer, and config/delayOffset.json (RocketMQ: ScheduleMessageService).

    {"offsetTable":{level:next queue offset,…}}        levels from 1; 5.x adds "dataVersion"

Written every delay_offset_flush_interval_ms and at close, and never ahead of the log: the copies it counts are durable first.
After a crash messages delivered since the last write are delivered again; none is lost. Control plane.
"""
import time
from collections.abc import Sequence
from typing import Any

from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io.files import ControlFiles
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.config.upstream_json import int_keys
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.delay._timer import DelayTimer

__all__ = ["DelayLevel", "DelayService", "delay_levels", "delay_offsets"]

NAME = "delayOffset.json"


class DelayLevel(NamedTuple):
    """How far one level is."""

    level: int
    delay_ms: int
    offset: int             # of the next message to deliver
    max_offset: int
    waiting: int            # messages not delivered yet
    next_due: int | None    # ms since 1970; None where none waits, or nobody delivers


class DelayService:
    """What a store that delivers has; one thread starts, writes and stops it."""

    def __init__(self, store: StoreWait, files: ControlFiles) -> None:
        self._file = ConfigFile(files, store.path, NAME)
        self._versioned = store.options.compat == "5.x"
        self._path = store.path
        self._seen = (0, 0)
        loaded, self._more = _load(self._file)
        delays: Sequence[int] = store.options.delay_levels
        self._written = loaded
        self.timer = DelayTimer(store, loaded, delays)
        self.timer.start()

    def write(self) -> None:
        """Writes how far delivery is, and says in the log what the timer could not do. Raises OSError."""
        self._say()
        offsets = {**self._written, **self.timer.offsets()}
        if offsets == self._written:
            return
        content: dict[str, Any] = dict(self._more)
        if self._versioned:
            content["dataVersion"] = _next_version(content.get("dataVersion"))
        content["offsetTable"] = dict(sorted(offsets.items()))
        self._file.save({name: content[name] for name in sorted(content)})
        self._more = {name: value for name, value in content.items() if name != "offsetTable"}
        self._written = offsets

    def _say(self) -> None:
        _, skipped, where, failures, error, _ = self.timer.state()
        if skipped > self._seen[0]:
            emit(Event.DELAY_SKIPPED, path=self._path, count=skipped - self._seen[0], offset=where)
        if failures > self._seen[1]:
            emit(Event.DELAY_REPEATED, path=self._path, count=failures - self._seen[1], errno=error)
        self._seen = (skipped, failures)

    def stop(self) -> None:
        """Delivers no more. What was delivered is written with the next `write`."""
        self.timer.stop()


def delay_levels(store: StoreWait, service: DelayService | None, files: ControlFiles) -> list[DelayLevel]:
    """Every level that has, or had, messages."""
    dues: list[int | None]
    if service is None:
        offsets, dues = _load(ConfigFile(files, store.path, NAME))[0], [None] * len(store.options.delay_levels)
    else:
        offsets, dues = service.timer.offsets(durable=False), service.timer.state()[5]
    found = []
    for i, delay_ms in enumerate(store.options.delay_levels):
        low, high = store._bounds(SCHEDULE_TOPIC, i) or (0, 0)
        offset = min(max(offsets.get(i + 1, 0), low), high)
        if high > 0:
            found.append(DelayLevel(i + 1, delay_ms, offset, high, high - offset, dues[i] if offset < high else None))
    return found


def delay_offsets(files: ControlFiles, root: str) -> dict[int, int]:
    """What config/delayOffset.json says: {level: next queue offset to deliver}. Raises CorruptionError."""
    return _load(ConfigFile(files, root, NAME))[0]


def _load(file: ConfigFile) -> tuple[dict[int, int], dict[str, Any]]:
    return file.load(_take) or ({}, {})


def _take(content: Any) -> tuple[dict[int, int], dict[str, Any]]:
    table = int_keys(content.get("offsetTable", {}))
    for level, offset in table.items():
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise ValueError(f"offset of level {level} is {offset!r}, not a number")
    return table, {name: value for name, value in content.items() if name != "offsetTable"}


def _next_version(before: Any) -> dict[str, int]:
    known = before if isinstance(before, dict) else {}
    counter, state = known.get("counter", 0), known.get("stateVersion", 0)
    return {"counter": (counter if isinstance(counter, int) else 0) + 1, "stateVersion": state if isinstance(state, int) else 0,
            "timestamp": int(time.time() * 1000)}
