"""Statistics of an open store (RocketMQ: StoreStatsService, DefaultMessageStore.getRuntimeInfo).

Nothing here is on a message's way: the numbers are counters that native threads and calls keep anyway, histograms that commit,
flush, dispatch and one get in 16 feed, and snapshots that the control thread takes once a second for the rates.
Thread-safety: any.
"""
import time
from collections import deque
from typing import TYPE_CHECKING, TypedDict

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.io._lock import StoreLock
from rmq_store.fields import NamedTuple
from rmq_store.services.statistics import _counts
from rmq_store.services.statistics.windows import human_bytes

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["Durations", "Rates", "StoreStats", "durations", "runtime_info"]

SNAPSHOTS_MAX = 601         # ten minutes of one a second, as RocketMQ
NO_POOL = 2147483647        # as RocketMQ says it


class Durations(TypedDict):
    """Of a histogram, in microseconds; quantiles are at most 0.8 % off, the maximum is exact."""

    count: int
    mean_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float


class StoreStats(TypedDict):
    """What stats() tells. Offsets are log offsets, counters count from the opening of the store on."""

    path: str
    readonly: bool
    in_use: bool                    # another process had it open for writing when it was opened here
    writer_pid: int | None          # that process, where it can be told
    needs_recovery: bool
    recovered: bool
    cut_bytes: int
    write_path: str
    flush_mode: str
    flush_backend: str
    compat: str
    min_log_offset: int
    wrote: int
    committed: int
    flushed: int
    dispatched: int
    dispatch_behind_bytes: int
    puts: int
    put_bytes: int
    commits: int
    flushes: int
    pool_waits: int
    file_waits: int
    dispatched_records: int
    unreadable_records: int
    log_files: int
    queues: int
    pool_bytes: int
    slow_put_locks: int
    waiting_readers: int
    unwritten_messages: int     # put, and in memory alone, as the log cannot be written (committed to wrote)
    released_maps: int          # how often the memory of an idle file of the log was given back
    errno: int
    message_view_leases: int
    disk_full: bool
    put_lock_ms: int
    page_cache_busy: bool
    running_flags: list[str]        # names of status.RunningFlags that are set
    gets_found: int
    gets_missed: int
    got_messages: int
    got_bytes: int
    got_disk_messages: int      # of them, those far from the log's end (memory_ratio_pct): see GetResult
    got_disk_bytes: int
    bit_map_skips: int
    durations: dict[str, Durations]


def durations(h: Histogram) -> Durations:
    return {"count": h.count, "mean_us": h.mean / 1e3, "p50_us": h.quantile(.5) / 1e3, "p99_us": h.quantile(.99) / 1e3,
            "p999_us": h.quantile(.999) / 1e3, "max_us": h.highest / 1e3}


class _Snapshot(NamedTuple):
    at: float
    puts: int
    found: int
    missed: int
    transferred: int


class Rates:
    """Rates over the last 10, 60 and 600 seconds from a snapshot a second (StoreStatsService.getPutTps and its like)."""

    def __init__(self, path: str) -> None:
        self._lock = StoreLock(path, "rates")
        self._taken: deque[_Snapshot] = deque(maxlen=SNAPSHOTS_MAX)
        self.boot_ms = int(time.time() * 1000)
        self._boot = time.monotonic()

    def take(self, store: "StoreWait", at: float | None = None) -> None:
        stats, gets = store._stats(), store._get_stats()
        with self._lock:
            self._taken.append(_Snapshot(time.monotonic() if at is None else at, stats["puts"], gets["gets_found"],
                                         gets["gets_missed"], gets["got_messages"]))

    @property
    def uptime_s(self) -> float:
        """Seconds since the opening, however the clock was set meanwhile."""
        return time.monotonic() - self._boot

    def text(self, field: str) -> str:
        """As RocketMQ prints it: three rates, a blank between them."""
        return " ".join(str(round(self.over(field, seconds), 2)) for seconds in (10, 60, 600))

    def over(self, field: str, seconds: int) -> float:
        """A second's worth of `field` over the last `seconds`, or over what there is; "total" is gets of both kinds."""
        with self._lock:
            if len(self._taken) < 2:
                return 0.0
            last = self._taken[-1]
            first = next(s for s in self._taken if last.at - s.at <= seconds)
        fields = ("found", "missed") if field == "total" else (field,)
        change = sum(getattr(last, f) - getattr(first, f) for f in fields)
        return change / (last.at - first.at) if last.at > first.at else 0.0


# As RocketMQ prints putMessageDistributeTime: times in ms below which a put belongs there, and the text.
_TIMES: tuple[tuple[float, str], ...] = (
    (1, "[<=0ms]"), (10, "[0~10ms]"), (50, "[10~50ms]"), (100, "[50~100ms]"), (200, "[100~200ms]"), (500, "[200~500ms]"),
    (1000, "[500ms~1s]"), (2000, "[1~2s]"), (3000, "[2~3s]"), (4000, "[3~4s]"), (5000, "[4~5s]"), (10_000, "[5~10s]"),
    (float("inf"), "[10s~]"))


def _distribution(h: Histogram) -> str:
    """How many puts took how long. RocketMQ counts whole ms, so what took less than one is in [<=0ms]."""
    counts = dict.fromkeys((text for _, text in _TIMES), 0)
    for low, _, count in h.buckets():
        counts[next(text for below, text in _TIMES if low < below * 1e6)] += count
    return "".join(f"{text}:{count} " for text, count in counts.items())


def runtime_info(store: "StoreWait", rates: Rates, disks: tuple[dict[str, int], int],
                 put_times: Histogram | None) -> dict[str, str]:
    """RocketMQ's keys where the meaning is the same, text as there. Keys of put latency only where puts are measured.

    disks: usage in percent of the disk of each directory of the commit log, and of that of the queues; -1: cannot be told.
    commitLogDiskRatio is that of the emptiest disk, as there. putMessageSizeTotal counts records.
    """
    stats, gets = store._stats(), store._get_stats()
    lag = _counts.histograms(store)["dispatch_lag"]
    seconds = int(rates.uptime_s)
    days, rest = divmod(seconds, 86_400)
    size, free, _ = _counts.pool_use(store)
    info = {
        "bootTimestamp": str(rates.boot_ms),
        "runtime": f"[ {days} days, {rest // 3600} hours, {rest % 3600 // 60} minutes, {rest % 60} seconds ]",
        "putMessageTimesTotal": str(stats["puts"]),
        "putMessageFailedTimes": str(_counts.failed_puts(store)),
        "putMessageSizeTotal": str(stats["put_bytes"]),
        "putMessageAverageSize": str(stats["put_bytes"] / stats["puts"] if stats["puts"] else 0.0),
        "dispatchMaxBuffer": str(stats["dispatch_behind_bytes"]), "dispatchBehindBytes": str(stats["dispatch_behind_bytes"]),
        "dispatchLagMax": str(lag.highest // 1_000_000),
        "getMessageEntireTimeMax": str(store._get_histogram().highest // 1_000_000),
        "putTps": rates.text("puts"), "getFoundTps": rates.text("found"), "getMissTps": rates.text("missed"),
        "getTotalTps": rates.text("total"), "getTransferredTps": rates.text("transferred"),
        "getTransferedTps": rates.text("transferred"),
        "getMessageTransferredMsgCount": str(gets["got_messages"]),
        "commitLogMinOffset": str(stats["min_log_offset"]), "commitLogMaxOffset": str(stats["committed"]),
        **{f"commitLogDiskRatio_{path}": str(used / 100 if used >= 0 else -1.0) for path, used in disks[0].items()},
        "commitLogDiskRatio": str(min(disks[0].values()) / 100), "consumeQueueDiskRatio": str(disks[1] / 100),
        "pageCacheLockTimeMills": str(_counts.lock_ms(store)),
        "remainTransientStoreBufferNumbs": str(free // store.options.pool_window_size_bytes if size else NO_POOL),
        "remainHowManyDataToFlush": human_bytes(max(stats["wrote"] - stats["flushed"], 0)),
    }
    if size:
        info["remainHowManyDataToCommit"] = human_bytes(max(stats["wrote"] - stats["committed"], 0))
    if put_times is not None:
        info |= {"putMessageEntireTimeMax": str(put_times.highest // 1_000_000),
                 "putMessageDistributeTime": _distribution(put_times),
                 "putLatency99": f"{put_times.quantile(.99) / 1e6:.2f}",
                 "putLatency999": f"{put_times.quantile(.999) / 1e6:.2f}"}
    return info
