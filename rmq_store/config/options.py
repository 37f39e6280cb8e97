"""THE table of options: name, upstream's names, type, unit, default, range, sentence. Everything else is derived from it.

Read at open, by the opening thread. `python -m rmq_store.config.document` prints docs/options.md. An option stands here only if
something reads it; upstream's other names are in upstream.py. Source: MessageStoreConfig.java (4.9.8 and 5.3.3).
"""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rmq_store.config import values

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
INT_MAX = (1 << 31) - 1         # Java's int: the largest file upstream can map
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

# An upstream name whose values mean something else than ours: upstream's text, lower case -> our value.
Translation = Mapping[str, object]


@dataclass(frozen=True)
class Option:
    """One row. `kind` is int, bool, choice, path, levels, hours or host. `change` is "live" where store.reconfigure() may give
    another value, "reopen" where any open may, "fixed" where the value is a property of the files of a directory. `wins`: of
    two names of upstream that stand for this option and disagree, the value that holds; None: they must agree."""

    name: str
    kind: str
    default: object
    text: str
    unit: str = ""
    upstream: Mapping[str, Translation | None] = field(default_factory=dict)
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    offered: str = ""               # group of entry points by which other packages offer more choices
    none: str = ""                  # what None means, where None is a value
    group: str = "behaviour"
    change: str = "reopen"
    wins: object = None

    def span(self) -> str:
        """What it may be, for people."""
        if self.choices:
            return " or ".join(self.choices)
        if self.kind == "int":
            return f"{self.low} to {self.high} {self.unit}"
        return {"bool": "true or false", "path": "a directory", "levels": "levels", "host": "ip:port"}.get(self.kind, self.kind)

    def _offers(self) -> tuple[str, ...]:
        import importlib.metadata  # who names a choice of ours does not pay for it

        return tuple(sorted({point.name for point in importlib.metadata.entry_points(group=self.offered)}))

    def convert(self, value: object) -> object:
        """The value, checked. ValueError says what was expected."""
        if value is None and self.none:
            return None
        if self.kind == "choice":
            if isinstance(value, str) and value.strip().lower() in self.choices:
                return value.strip().lower()
            more = self._offers() if self.offered else ()
            if isinstance(value, str) and value.strip() in more:
                return value.strip()
            raise ValueError("expected " + " or ".join(repr(c) for c in (*self.choices, *more)))
        if self.kind == "int" and isinstance(value, str):
            value = values.plain_number(value, self.unit)
        result = _CONVERT[self.kind](value)
        if isinstance(result, int) and not isinstance(result, bool):
            if (self.low is not None and result < self.low) or (self.high is not None and result > self.high):
                raise ValueError(f"expected {self.low} to {self.high}{' ' + self.unit if self.unit else ''}")
        return result


_CONVERT: dict[str, Callable[[object], object]] = {
    "int": values.to_int, "bool": values.to_bool, "path": values.to_path, "levels": values.to_levels, "host": values.to_host,
    "hours": values.to_hours}


def _int(name: str, default: int | None, unit: str, low: int, high: int, text: str, *upstream: str,
         **more: str) -> Option:
    return Option(name, "int", default, text, unit, dict.fromkeys(upstream), low, high, **more)     # type: ignore[arg-type]


def _bool(name: str, default: bool, text: str, *upstream: str, **more: str) -> Option:
    return Option(name, "bool", default, text, upstream=dict.fromkeys(upstream), **more)            # type: ignore[arg-type]


def _choice(name: str, default: str | None, choices: tuple[str, ...], text: str,
            upstream: Mapping[str, Translation] | None = None, **more: str) -> Option:
    return Option(name, "choice", default, text, upstream=upstream or {}, choices=choices, **more)  # type: ignore[arg-type]


def _path(name: str, text: str, *upstream: str) -> Option:
    return Option(name, "path", None, text, upstream=dict.fromkeys(upstream), none="under the root")


_SPEED = "performance"
_LIVE = "live"
_HOUR_MS = 3_600_000

OPTIONS: tuple[Option, ...] = (
    # how a store is opened
    _bool("readonly", False, "Open without writing one byte; works beside a running writer, and shows what was there at that "
          "moment."),
    _bool("follow", False, "With `readonly`: what another process puts becomes readable here as it becomes readable there, "
          "within milliseconds; `get(wait=)`, subscriptions and listeners work."),
    _choice("compat", "5.x", ("4.9", "5.x"), "The rules to follow where RocketMQ 4.9 and 5.x differ (separator behind the last "
            "property, start of normal recovery, search by time, visibility under sync flush). Both read both."),
    _choice("write_path", "mmap", ("mmap", "pool"), "`mmap` encodes into the mapped file: a killed process loses nothing "
            "acknowledged. `pool` encodes into off-heap memory that a commit thread writes to the file.",
            {"transientStorePoolEnable": {"true": "pool", "false": "mmap"},
             "writeWithoutMmap": {"true": "pool", "false": "mmap"}}, wins="pool"),
    _choice("flush_mode", "async", ("async", "sync"), "`sync`: a put returns when its message is on the device. `async`: the "
            "flush thread follows.", {"flushDiskType": {"async_flush": "async", "sync_flush": "sync"}}),
    _choice("flush_backend", "auto", ("auto", "msync", "fdatasync", "io_uring"), "How bytes become durable. `auto` takes the "
            "best that works here and says so; a back end asked for by name and not available is an error. Other packages can "
            "offer more (docs/choosing-a-backend.md).", offered="rmq_store.flush_backends"),
    Option("store_host", "host", "127.0.0.1:10911", "Address of this store in every record and in offset message ids, ip:port; "
           "IPv6 as [ip]:port."),

    # places and sizes of files
    _path("commitlog_path", "Directory of the commit log.", "storePathCommitLog"),
    _path("consumequeue_path", "Directory of the consume queues."),
    _path("index_path", "Directory of the index files."),
    _int("segment_size_bytes", GIB, "bytes", 4 * KIB, INT_MAX, "Size of a commit-log file. Inferred from the files of an "
         "existing store unless given.", "mappedFileSizeCommitLog", "mapedFileSizeCommitLog", change="fixed"),
    _int("consumequeue_file_size_bytes", 6_000_000, "bytes", 20, INT_MAX - 19, "Size of a consume-queue file, rounded up to a "
         "multiple of 20 (one entry).", "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue", change="fixed"),
    _bool("consumequeue_ext_enabled", False, "Also write and read consume-queue extension units (tags code, store time, filter "
          "bit map). Where nobody says: as the newest entries of the store's queues do.", "enableConsumeQueueExt",
          change="fixed"),
    _int("consumequeue_ext_file_size_bytes", 48 * MIB, "bytes", 64, INT_MAX, "Size of a consume-queue extension file.",
         "mappedFileSizeConsumeQueueExt", change="fixed"),
    _bool("index_enabled", True, "Build the index by key.", "messageIndexEnable"),
    _int("index_slots", 5_000_000, "slots", 1, INT_MAX // 4, "Hash slots of an index file.", "maxHashSlotNum", change="fixed"),
    _int("index_entries_max", 20_000_000, "entries", 2, INT_MAX // 20, "Entries of an index file; one of them is never used.",
         "maxIndexNum", change="fixed"),

    # what is taken
    _int("message_size_max_bytes", 4 * MIB, "bytes", 10, GIB, "Largest body. A whole record may have 64 KiB more.",
         "maxMessageSize", change=_LIVE),
    _int("topic_size_max_bytes", 127, "bytes", 1, 255, "Longest topic. Under compat 5.x topics that begin with %RETRY% may "
         "always have 255; above 127 the record has version 2, which 4.9 cannot read.", "maxTopicLength", change=_LIVE),
    _bool("record_crc", False, "Append the property `__CRC32#` over the whole record (5.2 and later).", "enabledAppendPropCRC"),
    _bool("duplication_enabled", False, "Dispatch stops at the confirm offset, which somebody else moves.",
          "duplicationEnable"),
    _choice("delay", "deliver", ("deliver", "store_only", "refuse"), "What to do with a message that has a delay level: store "
            "it and deliver it when it is due, with what the store already holds; `store_only`: store it in "
            "SCHEDULE_TOPIC_XXXX for a broker that delivers, and deliver nothing; `refuse`: neither."),
    _int("delay_offset_flush_interval_ms", 10_000, "ms", 1, _HOUR_MS, "Period of writing config/delayOffset.json. What was "
         "delivered since the last time is delivered again after a crash.", "flushDelayOffsetInterval"),
    Option("delay_levels", "levels", DELAY_LEVELS, "The delay of each level, s m h d.",
           upstream={"messageDelayLevel": None}),
    _int("busy_after_ms", 1000, "ms", 0, _HOUR_MS, "A put is refused with OS_PAGE_CACHE_BUSY while another one has held the "
         "put lock for longer than this.", "osPageCacheBusyTimeOutMills", change=_LIVE),
    _choice("pool_empty", "wait", ("wait", "fail"), "What a put does when the pool has no room: wait for a window, or raise "
            "PoolExhausted.", {"fastFailIfNoBufferInStorePool": {"true": "fail", "false": "wait"}}, change=_LIVE),

    # what a reader sees, and durability
    _choice("visibility", None, ("committed", "durable"), "When a message can be read: as soon as it is in the file, or "
            "only when it is on the device.", none="durable under sync flush with compat 5.x, else committed"),
    _int("flush_deadline_ms", 5000, "ms", 1, _HOUR_MS, "A synchronous put that is not durable by then returns "
         "FLUSH_DISK_TIMEOUT. One of those that wait makes the sync, in its own thread: that put returns when the sync ends, "
         "however late, with what became of it.", "syncFlushTimeout", change=_LIVE),
    _bool("recover_check_crc", True, "Recovery checks the CRC of each body.", "checkCRCOnRecover"),
    _bool("record_crc_required", False, "Recovery checks `__CRC32#` instead of the body's CRC and cuts at a record without it.",
          "forceVerifyPropCRC"),
    _bool("index_recover_safe", False, "Recovery after a crash also goes back to what the index had on the device.",
          "messageIndexSafe"),
    _bool("manifest_enabled", True, "Sealed commit-log files get a manifest of block checksums in `.manifest/`, which RocketMQ "
          "does not look at."),
    _int("manifest_interval_ms", 10_000, "ms", 1, _HOUR_MS, "How often it is looked for sealed files without a manifest."),
    _int("close_timeout_ms", 5000, "ms", 0, _HOUR_MS, "How long close() waits for dispatch; then the abort file stays and the "
         "next open recovers.", change=_LIVE),
    _bool("signals", False, "Close the store on SIGTERM and SIGINT."),
    _bool("guard_maps", False, "Answer SIGBUS in mapped files of the log and the index that were cut, or whose page the device "
          "cannot give: calls that need the page raise, puts stop where it was to be written, and the process goes on. "
          "Installs a signal handler for the life of the process; the one before it is called for every other SIGBUS."),

    # consumers (docs/work-queue.md)
    _int("offsets_flush_interval_ms", 5000, "ms", 1, _HOUR_MS, "How often committed offsets of consumer groups are written to "
         "config/consumerOffset.json.", "flushConsumerOffsetInterval"),

    # figures for other processes (docs/watching.md)
    _int("stats_file_interval_ms", None, "ms", 100, _HOUR_MS, "How often the figures of the open store are written to "
         "`.stats.json` under the root, which RocketMQ does not look at, for `rmqstore stat --watch` and other processes.",
         none="no file is written"),

    # cleaning (docs/cleaning.md)
    _int("retention_hours", None, "hours", 0, 1_000_000, "**Nothing is deleted unless this is given** (upstream: 72). Whole "
         "commit-log files whose last message is older go, oldest first, at retention_hours_of_day, or at any hour when the "
         "disk is fuller than disk_clean_pct; above disk_force_pct the oldest go whatever their age. Whether anybody has "
         "consumed them makes no difference.", "fileReservedTime", none="nothing is ever deleted"),
    Option("retention_hours_of_day", "hours", "04", "Local hours in which files that are old enough go.",
           upstream={"deleteWhen": None}),
    _int("disk_clean_pct", 75, "%", 1, 100, "Above this disk usage files that are old enough go at any hour (upstream cuts "
         "the number to 10 to 95).", "diskMaxUsedSpaceRatio"),
    _int("disk_force_pct", 85, "%", 1, 100, "Above this disk usage the oldest files go at once, however young (upstream cuts "
         "the number to 30 to 85).", "diskSpaceCleanForciblyRatio"),
    _bool("clean_forced", True, "Whether disk_force_pct and disk_full_pct may delete files that are not old enough.",
          "cleanFileForciblyEnable"),
    _int("disk_full_pct", None, "%", 1, 100, "Above this disk usage puts are refused with SERVICE_NOT_AVAILABLE; they are "
         "taken again at disk_force_pct or below (upstream cuts the number to 35 to 90). A disk without any space refuses "
         "them in any case.", "diskSpaceWarningLevelRatio", none="90 where retention_hours is given, else no limit"),
    _int("clean_interval_ms", 10_000, "ms", 1, _HOUR_MS, "How often clock and disk are looked at.", "cleanResourceInterval"),
    _int("clean_files_max", 10, "files", 1, INT_MAX, "Commit-log files one look deletes at most.", "deleteFileBatchMax"),
    _int("clean_hanged_ms", 120_000, "ms", 0, 24 * _HOUR_MS, "How long cleaning waits for message views of a file that is "
         "due; then its name goes, and its space with the last view.", "destroyMapedFileIntervalForcibly"),

    # limits of reading
    _int("get_bytes_max_memory", 256 * KIB, "bytes", 1, INT_MAX, "Bytes one get returns at most, recent messages.",
         "maxTransferBytesOnMessageInMemory", change=_LIVE),
    _int("get_count_max_memory", 32, "messages", 1, INT_MAX, "Messages one get returns at most, recent messages.",
         "maxTransferCountOnMessageInMemory", change=_LIVE),
    _int("get_bytes_max_disk", 64 * KIB, "bytes", 1, INT_MAX, "Bytes one get returns at most, older messages.",
         "maxTransferBytesOnMessageInDisk", change=_LIVE),
    _int("get_count_max_disk", 8, "messages", 1, INT_MAX, "Messages one get returns at most, older messages.",
         "maxTransferCountOnMessageInDisk", change=_LIVE),
    _int("memory_ratio_pct", 40, "%", 0, 100, "Messages within this share of the machine's memory from the end of the log "
         "count as recent.", "accessMessageInMemoryMaxRatio", change=_LIVE),
    _int("filter_bytes_max", 16_000, "bytes", 20, INT_MAX, "Bytes of queue entries one get looks at, at least; max_count x 20 "
         "if that is more.", "maxFilterMessageSize", change=_LIVE),
    _int("long_polling_timeout_ms", 30_000, "ms", 0, 24 * _HOUR_MS, "How long get(wait=True) waits for a message.",
         change=_LIVE),
    _int("query_batch_max", 64, "messages", 1, INT_MAX, "Messages a query by key returns at most.", "maxMsgsNumBatch",
         change=_LIVE),
    _int("query_count_max", 32, "messages", 1, INT_MAX, "Messages a query by key returns unless the call says otherwise.",
         "defaultQueryMaxNum", change=_LIVE),

    # speed: flush and commit
    _int("flush_interval_ms", 500, "ms", 1, _HOUR_MS, "Period of the asynchronous flush.", "flushIntervalCommitLog",
         group=_SPEED, change=_LIVE),
    _int("flush_pages_min", 4, "4 KiB pages", 0, INT_MAX, "An asynchronous flush needs so much to flush.",
         "flushCommitLogLeastPages", group=_SPEED, change=_LIVE),
    _int("flush_interval_max_ms", 10_000, "ms", 0, 24 * _HOUR_MS, "After so long everything is flushed, however little.",
         "flushCommitLogThoroughInterval", group=_SPEED, change=_LIVE),
    _choice("flush_wake", "timed", ("timed", "eager"), "`timed`: the asynchronous flush keeps its period. `eager`: a put "
            "wakes it.",
            {"flushCommitLogTimed": {"true": "timed", "false": "eager"},
             "wakeFlushWhenPutMessage": {"true": "eager", "false": "timed"}}, wins="timed", group=_SPEED, change=_LIVE),
    _int("commit_pages_min", 4, "4 KiB pages", 0, INT_MAX, "A commit from the pool to the file needs so much to commit.",
         "commitCommitLogLeastPages", group=_SPEED, change=_LIVE),
    _int("commit_interval_max_ms", 200, "ms", 0, 24 * _HOUR_MS, "After so long everything is committed, however little.",
         "commitCommitLogThoroughInterval", group=_SPEED, change=_LIVE),
    _choice("uring_direct", "auto", ("auto", "on", "off"), "io_uring: write the commit log past the page cache (O_DIRECT). "
            "`auto` does so where the file system can; `on` is an error where it cannot.", group=_SPEED),
    _int("uring_depth", 8, "writes", 1, 256, "io_uring: writes in flight at most.", group=_SPEED),
    _choice("uring_durability", "auto", ("auto", "fdatasync", "dsync"), "io_uring: a small durable step is a write linked to "
            "an `fdatasync`, or one write with RWF_DSYNC (`dsync`). `auto`: dsync for direct writes under sync flush.",
            group=_SPEED),
    _bool("uring_sqpoll", False, "io_uring: a kernel thread takes submissions; it polls, and costs CPU while the store is "
          "busy.", group=_SPEED),
    _bool("uring_iopoll", False, "io_uring: poll the device for completions instead of taking interrupts; direct writes only.",
          group=_SPEED),
    _int("consumequeue_flush_interval_ms", 1000, "ms", 1, _HOUR_MS, "Period of the flush of the consume queues.",
         "flushIntervalConsumeQueue", group=_SPEED, change=_LIVE),
    _int("consumequeue_flush_pages_min", 2, "4 KiB pages", 0, INT_MAX, "A flush of a consume queue needs so much to flush.",
         "flushConsumeQueueLeastPages", group=_SPEED, change=_LIVE),
    _int("consumequeue_flush_interval_max_ms", 60_000, "ms", 0, 24 * _HOUR_MS, "After so long every consume queue and the "
         "checkpoint are flushed.", "flushConsumeQueueThoroughInterval", group=_SPEED, change=_LIVE),

    _int("clean_pace_ms", 100, "ms", 0, _HOUR_MS, "Pause between two commit-log files that are deleted.",
         "deleteCommitLogFilesInterval", group=_SPEED),
    _int("clean_queue_pace_ms", 100, "ms", 0, _HOUR_MS, "Pause after each queue that lost files.",
         "deleteConsumeQueueFilesInterval", group=_SPEED),

    # speed: memory and files
    _int("pool_window_size_bytes", 4 * MIB, "bytes", 4 * KIB, INT_MAX, "Size of a window of the pool; cut to the size of a "
         "commit-log file.", group=_SPEED),
    _int("pool_window_count", 8, "windows", 1, 65_536, "Windows of the pool. All together hold at least twice the largest "
         "record.", "transientStorePoolSize", group=_SPEED),
    _bool("pool_mlock", False, "Lock the pool in memory.", group=_SPEED),
    _bool("pool_hugepages", False, "Advise huge pages for the pool.", group=_SPEED),
    _bool("segment_warm", False, "Touch every page of a new commit-log file before it is used.", "warmMapedFileEnable",
          "warmMappedFileEnable", group=_SPEED),
    _bool("segment_mlock", False, "Lock the mapped commit-log file that is being written, and the next one, in "
          "memory.", group=_SPEED),
    _choice("segment_prezero", None, ("off", "window", "full"), "Write zeros ahead of the log, so that a sync need not journal "
            "new extents: not at all, some MiB ahead, or the whole file when it is made.",
            none="window under sync flush, off under async", group=_SPEED),
    _bool("measure_puts", False, "Time every put: the histogram `put` of histograms(), putLatency99 of runtime_info(), and the "
          "event PUT_SLOW. Costs two readings of the clock and a Python call a put; without it nothing.", group=_SPEED),
    _int("slow_put_ms", 500, "ms", 1, _HOUR_MS, "With measure_puts, a put that takes longer is logged with its phases.",
         group=_SPEED),
    _bool("put_lock_dump", False, "While a put holds the put lock for more than a second, log all threads, native ones too, "
          "with what each one waits for (event PUT_LOCK_THREADS).", "debugLockEnable", group=_SPEED, change=_LIVE),
    _choice("put_lock", "mutex", ("mutex", "spin"), "Whoever finds the put lock taken: `mutex` sleeps after a short "
            "spin, `spin` after a long one.",
            {"useReentrantLockWhenPutMessage": {"true": "mutex", "false": "spin"}}, group=_SPEED),
    _int("consumequeue_fd_max", 256, "files", 2, 65_536, "Consume-queue files that are open at once.", group=_SPEED),
)

BY_NAME: dict[str, Option] = {o.name: o for o in OPTIONS}
BY_UPSTREAM: dict[str, Option] = {u: o for o in OPTIONS for u in o.upstream}
