"""What an open store reports about itself: the reporting half of MessageStore.

Positions and counters, durations, RocketMQ's runtime info and items, threads, files. Nothing here is on a message's way: what
is told is counted anyway, and summed when somebody asks. Any thread.
"""
import os
from typing import Any, cast

from rmq_store.access.waiting._follow import StoreFollow
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.machine.stacks import dump_threads
from rmq_store.config.values import path_list
from rmq_store.errors import ForkedProcess, StoreStateError
from rmq_store.log.recovery.places import Places
from rmq_store.replication.service import Replica, Replication, ReplicationState
from rmq_store.services.cleaning.rules import used_percent
from rmq_store.services.consumer.room import Consuming
from rmq_store.services.delay.service import DelayService, delay_levels
from rmq_store.services.integrity.findings import Finding
from rmq_store.services.integrity.rows import live_row_findings
from rmq_store.services.statistics import _counts
from rmq_store.services.statistics.groups import GroupStats, broker_stats, group_stats
from rmq_store.services.statistics.report import Rates, StoreStats, durations, runtime_info
from rmq_store.services.statistics.windows import StatsItem, Windows, human_bytes
from rmq_store.status import RunningFlags

__all__ = ["StoreReports"]


class StoreReports(StoreFollow):
    """The reporting half of a store. Thread-safety: any. A closed store raises StoreClosed."""

    needs_recovery: bool = False
    in_use: bool = False            # another process had it open for writing when it was opened
    writer_pid: int | None = None   # that process, where it can be told
    cut_bytes: int = 0
    _files: ControlFiles
    _delay: DelayService | None = None
    _replication: Replication | None = None
    _rates: Rates
    _windows: Windows
    _consuming: Consuming

    def __repr__(self) -> str:
        """The path, how it is open, queues, and where the log ends; also of a store that is closed."""
        name = type(self).__name__
        if getattr(self, "options", None) is None:
            return f"<{name}, not open>"
        how = "readonly" if self.readonly else f"{self.options.write_path}, {self.options.flush_mode}"
        try:
            queues = len(self._queue_list())        # those that have messages
            return f"<{name} {self.path!r}, {how}, {queues} queues, log ends at {self.max_log_offset}>"
        except StoreStateError as error:
            return f"<{name} {self.path!r}, {'the parent process has it' if isinstance(error, ForkedProcess) else 'closed'}>"

    def stats(self) -> StoreStats:
        """Positions, counters since the opening, sizes, and the durations of commit, flush, dispatch and get: a typed dict."""
        self._check_open()
        found: Any = self._stats() | self._get_stats() | {
            "path": self.path, "readonly": self.readonly, "needs_recovery": self.needs_recovery and self.readonly,
            "recovered": self.needs_recovery and not self.readonly, "cut_bytes": self.cut_bytes,
            "in_use": self.in_use, "writer_pid": self.writer_pid,
            "write_path": self.options.write_path, "flush_mode": self.options.flush_mode,
            "flush_backend": self.options.flush_backend, "compat": self.options.compat, "disk_full": self.disk_full,
            "put_lock_ms": _counts.lock_ms(self), "page_cache_busy": self.page_cache_busy,
            "running_flags": [flag.name for flag in RunningFlags(self._running_flags())],
            "durations": {name: durations(h) for name, h in self.histograms().items()}}
        return cast(StoreStats, found)

    def replicas(self) -> list[Replica]:
        """The slaves that are connected to this store, which serves them if it was opened with ha_listen. Each has its address,
        the offset that it has acknowledged, and its lag in bytes and ms. RocketMQ: HAService.getRuntimeInfo."""
        self._check_open()
        return self._replication.replicas() if self._replication is not None else []

    def replication(self) -> ReplicationState:
        """Returns this store's part in replication: where it listens for slaves, or whether and how far it follows its master.
        Raises StoreStateError for a store that is open read-only."""
        self._check_open()
        if self._replication is None:
            raise StoreStateError(f"the store at {self.path} is open read-only and takes no part in replication: open it for "
                                  "writing")
        return self._replication.state()

    def histograms(self) -> dict[str, Histogram]:
        """Returns copies of the histograms of durations since the opening, in ns. lock: how long an append waited for the put
        lock, if it found the lock taken. append: how long an append held the lock; one append in 64 is measured. commit: from
        the pool to the file; empty if io_uring writes. flush: to the device. dispatch_lag: from put to readable, in whole ms,
        one value per round of dispatch. get: one get in 16. put: with measure_puts only."""
        self._check_open()
        return _counts.histograms(self) | {"get": self._get_histogram()}

    def topic_counts(self) -> dict[str, tuple[int, int]]:
        """Returns {topic: (messages, bytes of records)}: the messages put since the opening that are dispatched."""
        return _counts.topic_counts(self)

    def group_stats(self) -> list[GroupStats]:
        """Returns what the consumers of this process got since the opening, by group and topic: list of GroupStats."""
        self._check_open()
        return group_stats(self._consuming.counts())

    def broker_stats(self) -> dict[str, dict[str, float]]:
        """Returns counters since the opening under RocketMQ's names: {"TOPIC_PUT_NUMS": {"T": 3}, "GROUP_GET_NUMS":
        {"T@G": 3}, ...}. GROUP_GET_LATENCY is a sum in ms. RocketMQ: BrokerStatsManager."""
        self._check_open()
        return broker_stats(_counts.queue_counts(self), self._consuming.counts())

    def stats_item(self, name: str, key: str) -> StatsItem | None:
        """Returns the sum, the rate and the average of the last minute, hour and day of one item: a dict with statsMinute,
        statsHour and statsDay, each with sum, tps and avgpt. None: nothing was counted under this name and key.

        name: TOPIC_PUT_NUMS or TOPIC_PUT_SIZE with a topic as key; GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_GET_FROM_DISK_NUMS,
        GROUP_GET_FROM_DISK_SIZE or SNDBCK_PUT_NUMS with topic@group; BROKER_PUT_NUMS, BROKER_GET_NUMS or
        BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC with DefaultCluster. The store reads its counters every 10 s for the minute, every
        10 minutes for the hour and every hour for the day; an answer is as old as the last reading. Raises ArgumentIllegal for
        another name. RocketMQ: BrokerStatsManager.getStatsItem.
        """
        self._check_open()
        return self._windows.item(name, key)

    def stats_items(self) -> dict[str, dict[str, StatsItem]]:
        """Returns all items of stats_item: {name: {key: item}}. RocketMQ: BrokerStatsManager.getStatsTable."""
        self._check_open()
        return self._windows.items()

    def runtime_info(self) -> dict[str, str]:
        """Returns the statistics that RocketMQ has too, under its names and in its form. RocketMQ: getRuntimeInfo.

        scheduleMessageOffset_3 is delay level 3: the offset of the next message to deliver, a comma, and the level's end. The
        key is there for each level that has, or had, messages.

        Raises CorruptionError if config/delayOffset.json is damaged and this store does not deliver (see `delay`).
        """
        self._check_open()
        places = Places(self.path, self.options)
        disks = ({path: used_percent(path) for path in path_list(self.options.commitlog_path) or (places.commitlog,)},
                 used_percent(places.consumequeue))
        info = runtime_info(self, self._rates, disks, self.histograms().get("put")) | self._windows.totals()
        info["earliestMessageTimeStamp"] = str(self.earliest_time())
        room = os.statvfs(self.path)
        info["commitLogDirCapacity"] = (f"Total : {human_bytes(room.f_blocks * room.f_frsize)}, "
                                        f"Free : {human_bytes(room.f_bfree * room.f_frsize)}.")
        return info | {f"scheduleMessageOffset_{level.level}": f"{level.offset},{level.max_offset}"
                       for level in delay_levels(self, self._delay, self._files)}

    def dump_threads(self) -> str:
        """Returns a text about every thread of the process, native threads too: what it waits for, and its Python frames.

        The first line says which thread holds the put lock, and for how long. See stacks.py. RocketMQ: debugLockEnable's dump.
        """
        return f"put lock of {self.path}: held for {_counts.lock_ms(self)} ms\n{dump_threads()}"

    def check_self(self) -> list[Finding]:
        """Checks that the files of the log and the queues exist, without a gap and with the right size. Returns a list of
        Finding, which is empty if nothing is wrong.

        The check reads names and sizes only. It looks a second time before it reports a finding, because files come and go.
        The control thread checks the log every ten minutes (event FILES_ODD). Raises OSError. RocketMQ: checkSelf.
        """
        self._check_open()
        return live_row_findings(self, Places(self.path, self.options))
