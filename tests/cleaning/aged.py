"""Stores whose commit-log files have an age, a clock that stands still and a disk as full as a test says."""
import os
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.cleaning.cleaner import Cleaned

HOUR_S = 3600
SMALL = {"segment_size_bytes": 8192, "consumequeue_file_size_bytes": 100, "index_slots": 10, "index_entries_max": 8,
         "clean_interval_ms": HOUR_S * 1000, "clean_pace_ms": 0, "clean_queue_pace_ms": 0, "flush_interval_max_ms": 10}
BODY = b"x" * 7000          # one message fills a file


def at_hour(hour: int) -> int:
    """Yesterday at that local hour, ms since 1970: always in the past, or what is touched now would look old."""
    return int((datetime.now() - timedelta(days=1)).replace(hour=hour, minute=30, second=0, microsecond=0).timestamp() * 1000)


class Aged:
    """An open store with `files` commit-log files of one message each, the first `old` of them two hours old."""

    def __init__(self, root: Path, *, files: int = 12, old: int = 0, hour: int = 12, used: int = 10, queues: int = 1,
                 probe: ProbeIo | None = None, **options: object) -> None:
        self.root = root
        self.probe = ProbeIo(keep_bytes=False) if probe is None else probe
        self.now = at_hour(hour)
        self.options = {**SMALL, **options}
        self.store = MessageStore.open(root, _io=self.probe, **self.options)
        self.used = used
        for i in range(files):
            self.store.put("T", BODY[:-4] + b"%4d" % i, queue_id=i % queues, keys=f"key{i}")
        self.settle()
        for name in self.names():
            self.age(name, 2 * HOUR_S if int(name) < old * 8192 else 0)
        assert self.store._cleaner is not None
        self.store._cleaner.used = lambda path: self.used

    def settle(self) -> None:
        """Everything flushed, dispatched, and queues and index synced, as a minute later."""
        self.store.flush()
        assert self.store.wait_dispatched(30)
        self.store._final_checkpoint()

    def age(self, name: str, seconds: float) -> None:
        os.utime(self.root / "commitlog" / name, (time.time(), self.now / 1000 - seconds))

    def tick(self, stop: threading.Event | None = None) -> Cleaned:
        """One look of the cleaner, as the control thread makes it."""
        assert self.store._cleaner is not None
        self.probe.set_clock(self.now)
        try:
            return self.store._cleaner.tick(self.store, threading.Event() if stop is None else stop)
        finally:
            self.probe.set_clock(None)

    def clean(self, hours: float | None = None, **more: int) -> Cleaned:
        self.probe.set_clock(self.now)
        try:
            return self.store.clean(hours, **more)
        finally:
            self.probe.set_clock(None)

    def names(self, directory: str = "commitlog") -> list[str]:
        return sorted(os.listdir(self.root / directory))

    def numbers(self, queue_id: int = 0) -> list[int]:
        """Which messages of a queue can be read."""
        return [int(bytes(m.body)[-4:]) for m in self.store.scan("T", queue_id)]
