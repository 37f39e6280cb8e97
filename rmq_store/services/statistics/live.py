"""Figures of an open store for other processes: a small JSON file that is replaced every stats_file_interval_ms.

<root>/.stats.json; RocketMQ looks at no such file. It is written beside its name and renamed, so that a reader meets figures of
one moment; it is not synced, as it says nothing once its writer is gone. close() removes it; what a killed process left is told
by its age. One thread of the writer makes and writes it; `read_live` is for any process, and takes no lock.
"""
import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.log.recovery.lockfile import in_use
from rmq_store.services.consumer.progress import Lag
from rmq_store.services.statistics.report import Rates, StoreStats, durations
from rmq_store.services.statistics.windows import StatsItem

__all__ = ["LiveFile", "live_path", "read_live"]

FORMAT = 1
SIZE_MAX = 64 << 20
ITEMS_MAX = 100             # of each name: those that most was counted of
COUNTERS = ("puts", "put_bytes", "gets_found", "gets_missed", "got_messages", "got_bytes", "commits", "flushes", "pool_waits",
            "file_waits")
RATES = ("puts", "found", "missed", "transferred")


def live_path(root: str) -> str:
    """The file's path: str."""
    return os.path.join(root, ".stats.json")


class LiveFile:
    """The writer's side. Not thread-safe: one thread writes, and removes when it is through."""

    def __init__(self, files: ControlFiles, root: str, interval_ms: int) -> None:
        self._files, self._path, self._interval_ms = files, live_path(root), interval_ms
        self._at = time.monotonic()
        self._counters: Mapping[str, int] = dict.fromkeys(COUNTERS, 0)
        self._histograms: Mapping[str, Histogram] = {}

    def write(self, stats: StoreStats, histograms: Mapping[str, Histogram], rates: Rates, lags: Iterable[Lag],
              delayed: int, items: Mapping[str, Mapping[str, StatsItem]], replication: Mapping[str, Any]) -> None:
        """Replaces the file. replication: what ReplicationState has, and under "replicas" each slave. Raises OSError; the one
        that was there then stays."""
        content = self._content(stats, histograms, rates, lags, delayed) | {"items": _largest(items),
                                                                            "replication": replication}
        text = json.dumps(content, separators=(",", ":")).encode()
        tmp = self._path + ".tmp"
        fd = self._files.open(tmp, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self._files.write(fd, 0, text)
        finally:
            self._files.close(fd)
        self._files.rename(tmp, self._path)

    def remove(self) -> None:
        """The store closes. Raises OSError."""
        for path in (self._path + ".tmp", self._path):      # the former: left by a write that failed
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                pass

    def _content(self, stats: StoreStats, histograms: Mapping[str, Histogram], rates: Rates, lags: Iterable[Lag],
                 delayed: int) -> dict[str, Any]:
        now = time.monotonic()
        known: dict[str, Any] = {**stats}
        counters: dict[str, int] = {name: known[name] for name in COUNTERS}
        recent: dict[str, Any] = {"seconds": now - self._at}
        recent |= {name: counters[name] - self._counters[name] for name in COUNTERS}
        recent["durations"] = {name: durations(h.since(self._histograms[name]) if name in self._histograms else h)
                               for name, h in histograms.items()}
        self._at, self._counters, self._histograms = now, counters, histograms
        return {"format": FORMAT, "pid": os.getpid(), "opened_ms": rates.boot_ms, "written_ms": self._files.wall_ms(),
                "interval_ms": self._interval_ms, "stats": known, "recent": recent,
                "rates": {name: [rates.over(name, s) for s in (10, 60, 600)] for name in RATES},
                "groups": _by_group(lags), "delayed": delayed}


def _owner(root: str) -> int | None:
    """Who opened the store last, from its `lock` file; None where that does not tell (recovery/lockfile.py)."""
    try:
        with open(os.path.join(root, "lock"), "rb", opener=open_regular) as file:
            return int(file.read(32)[4:])
    except (OSError, ValueError):
        return None


def _by_group(lags: Iterable[Lag]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in lags:
        sums = found.setdefault(row.group, {"behind": 0, "lost": 0})
        sums["behind"] += row.behind
        sums["lost"] += row.lost
    return found


def _largest(items: Mapping[str, Mapping[str, StatsItem]]) -> dict[str, dict[str, StatsItem]]:
    """A store of ten thousand topics would write megabytes each time."""
    def sums(row: tuple[str, StatsItem]) -> tuple[int, int, int]:
        return row[1]["statsMinute"]["sum"], row[1]["statsHour"]["sum"], row[1]["statsDay"]["sum"]

    return {name: dict(sorted(rows.items(), key=sums, reverse=True)[:ITEMS_MAX]) for name, rows in items.items()}


def read_live(root: str, now_ms: int | None = None) -> tuple[dict[str, Any] | None, str]:
    """The figures that the process which has the store in `root` open wrote last, and their age in words; or None and why.

    now_ms: the present time, default the clock's. Figures that should have been replaced long ago are none: their writer is
    gone, or hangs. Raises no error: why nothing can be read is the answer.
    """
    path = live_path(root)
    try:
        with open(path, "rb", opener=open_regular) as file:
            figures = json.loads(file.read(SIZE_MAX))
        number, pid, written, interval = (int(figures[name]) for name in ("format", "pid", "written_ms", "interval_ms"))
        missing = {"stats", "recent", "rates", "groups", "delayed"} - figures.keys()
        if missing and number == FORMAT:
            raise KeyError(*missing)
    except FileNotFoundError:
        if in_use(root):
            return None, ("no live figures: the process that has the store open writes none: open it with the option "
                          "stats_file_interval_ms")
        return None, "no live figures: no process has the store open"
    except OSError as error:
        return None, f"no live figures: {path}: {error.strerror}"
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        return None, f"no live figures: {path} is damaged ({error!r}); it can be deleted"
    if number != FORMAT:
        return None, f"no live figures: {path} has format {number}, this version reads {FORMAT}"
    owner = _owner(root)
    if owner not in (None, pid):
        return None, f"no live figures: those in {path} are of process {pid}, and process {owner} has the store now"
    age_ms = (int(time.time() * 1000) if now_ms is None else now_ms) - written
    if abs(age_ms) > 3 * interval + 2000:
        return None, (f"no live figures: those in {path} are {age_ms / 1000:.0f} s old, of process {pid}, which wrote some "
                      f"every {interval / 1000:g} s: it was killed, or hangs, or the clock was set")
    return figures, f"{max(age_ms, 0) / 1000:.1f} s old, of process {pid}"
