"""The store as a subject: opened as a case says, and the figures that every workload of it reports."""
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.machine.device import DeviceWatch
from rmq_store.bench import messages
from rmq_store.bench.case import Case
from rmq_store.bench.machine import Watch, anonymous_memory
from rmq_store.store import MessageStore

Figures = dict[str, Any]

# What the allocator does with a new commit-log file in each state. A sparse file is one that it did not make.
_PREZERO = {"sparse": "off", "fallocated": "off", "prezeroed": "full"}


NEXT_FILE_SECS = 30     # on a slow device its zeros continue beside what is measured

memory_before: list[int] = []       # bytes of this process at each open


def options_of(case: Case) -> dict[str, Any]:
    """The options of open for a case."""
    own: dict[str, Any] = {"write_path": case.write_path, "flush_backend": case.flush_backend, "flush_mode": case.flush_mode,
                           "segment_size_bytes": case.segment_mib << 20}
    if case.file_state in _PREZERO:
        own["segment_prezero"] = _PREZERO[case.file_state]
    return own | dict(case.options)


def opened(path: Path, case: Case) -> MessageStore:
    """A new store in `path`; for the file state `sparse` its first file is there already, all hole."""
    if case.file_state == "sparse":
        log = path / "commitlog"
        log.mkdir(parents=True)
        with open(log / f"{0:020d}", "wb") as f:
            f.truncate(case.segment_mib << 20)
    memory_before.append(anonymous_memory())
    return MessageStore.open(path, **options_of(case))


class Measured:
    """What `measuring` gathers around a measured stretch."""

    def __init__(self, store: MessageStore, path: Path) -> None:
        self.store = store
        self.watch, self.device = Watch(), DeviceWatch(path)
        self.figures: Figures = {}

    def finish(self, before: Mapping[str, Any], count: int, spun: int = 0) -> None:
        """spun: ns that producers waited for a due time with a busy core. They are no work of the store."""
        after = self.store.stats()
        flushes = after["flushes"] - before["flushes"]
        self.figures |= {"msgs": count, "flushes": flushes, "commits": after["commits"] - before["commits"],
                         "log_mib": round((after["wrote"] - before["wrote"]) / (1 << 20), 2),
                         "pool_mib": after["pool_bytes"] / (1 << 20),
                         **self.watch.figures(), **self.device.figures(flushes)}
        if count:
            self.figures["cpu_ns_per_msg"] = round((self.watch.own * 1e9 - spun) / count, 1)


@contextmanager
def measuring(store: MessageStore, path: Path) -> Iterator[Measured]:
    """The counters of the store, the process and the device; the block calls `finish` with the count, inside or after."""
    measured = Measured(store, path)
    with measured.device, measured.watch:
        yield measured


def _await_file(path: Path) -> None:
    """Until the allocator has made it: a file has its name when it is whole."""
    give_up = time.monotonic() + NEXT_FILE_SECS
    while not path.exists() and time.monotonic() < give_up:
        time.sleep(0.01)


def warmed(store: MessageStore, case: Case) -> int:
    """The first files exist, all code has run once, everything is drained; bytes of one record.

    The zeros of the next file are no part of what is measured, as little as those of the file of a peer.
    """
    size = messages.record_size(store, case.props, case.body)
    if case.file_state == "prezeroed":
        _await_file(Path(store.path, "commitlog", f"{case.segment_mib << 20:020d}"))
    messages.write(store, case.props, case.body, 1 if case.flush_mode == "sync" else (1 << 20) // size)
    messages.drain(store)
    messages.pretouch(case.pretouch_mib)
    return size


def histograms(**named: Histogram) -> dict[str, Any]:
    """For the result: those that hold anything."""
    return {k: h.to_dict() for k, h in named.items() if h.count}
