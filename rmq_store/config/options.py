"""The table of options: name, RocketMQ's names, type, unit, default, range, sentence. Everything else is derived from it.

Read at open, by the opening thread. `python -m rmq_store.config.document` prints docs/options.md. An option stands here only if
something reads it; RocketMQ's other names are in upstream.py. Source: MessageStoreConfig.java (4.9.8 and 5.3.3).
"""
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rmq_store.config import values
from rmq_store.fields import NamedTuple

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
INT_MAX = (1 << 31) - 1         # Java's int: the largest file RocketMQ can map
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

# A RocketMQ name whose values mean something else than ours: RocketMQ's text, lower case -> our value.
Translation = Mapping[str, object]


class Option(NamedTuple):
    """One row. `kind` is int, bool, choice, path, levels, hours, names or host. `change` is "live" where store.reconfigure()
    may give another value, "reopen" where any open may, "fixed" where the value is a property of the files of a directory.
    `wins`: of two names of RocketMQ that stand for this option and disagree, the value that holds; None: they must agree."""

    name: str
    kind: str
    default: object
    text: str
    unit: str = ""
    upstream: Mapping[str, Translation | None] = MappingProxyType({})
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    offered: str = ""               # group of entry points by which other packages offer more choices
    none: str = ""                  # what None means, where None is a value
    group: str = "behaviour"
    change: str = "reopen"
    wins: object = None

    def span(self) -> str:
        """The allowed values, as text for people."""
        if self.choices:
            return " or ".join(self.choices)
        if self.kind == "int":
            return f"{self.low} to {self.high} {self.unit}"
        return {"bool": "true or false", "path": "a directory", "levels": "levels",
                "paths": "directories with commas between them", "host": "ip:port",
                "names": "names with commas between them", "listen": "ip:port or a port",
                "peer": "host:port"}.get(self.kind, self.kind)

    def _offers(self) -> tuple[str, ...]:
        import importlib.metadata  # who names a choice of ours does not pay for it

        return tuple(sorted({point.name for point in importlib.metadata.entry_points(group=self.offered)}))

    def convert(self, value: object) -> object:
        """Checks and converts a value. The ValueError says what was expected."""
        if value is None and self.none:
            return None
        if self.kind == "paths" and value in ("", ()) and self.default == "":
            return ()
        if self.kind == "choice":
            if isinstance(value, str) and value.strip().lower() in self.choices:
                return value.strip().lower()
            more = self._offers() if self.offered else ()
            if isinstance(value, str) and value.strip() in more:
                return value.strip()
            raise ValueError("expected " + " or ".join(repr(c) for c in (*self.choices, *more)))
        if self.kind == "int" and isinstance(value, str):
            value = values.plain_number(value, self.unit)
        try:
            result = _CONVERT[self.kind](value)
        except ValueError as error:
            raise ValueError(f"{error}{values.UNITS.get(self.unit, '') if self.kind == 'int' else ''}") from None
        if isinstance(result, int) and not isinstance(result, bool):
            if (self.low is not None and result < self.low) or (self.high is not None and result > self.high):
                raise ValueError(f"expected {self.low} to {self.high}{' ' + self.unit if self.unit else ''}")
        return result


_CONVERT: dict[str, Callable[[object], object]] = {
    "int": values.to_int, "bool": values.to_bool, "path": values.to_path, "paths": values.to_paths, "levels": values.to_levels,
    "host": values.to_host, "hours": values.to_hours, "names": values.to_names,
    "listen": values.to_listen, "peer": values.to_peer}


def _int(name: str, default: int | None, unit: str, low: int, high: int, text: str, *upstream: str,
         **more: str) -> Option:
    return Option(name, "int", default, text, unit, dict.fromkeys(upstream), low, high, **more)     # type: ignore[arg-type]


def _bool(name: str, default: bool, text: str, *upstream: str, **more: str) -> Option:
    return Option(name, "bool", default, text, upstream=dict.fromkeys(upstream), **more)            # type: ignore[arg-type]


def _choice(name: str, default: str | None, choices: tuple[str, ...], text: str,
            upstream: Mapping[str, Translation] | None = None, **more: str) -> Option:
    return Option(name, "choice", default, text, upstream=upstream or {}, choices=choices, **more)  # type: ignore[arg-type]


def _path(name: str, text: str, *upstream: str) -> Option:
    return Option(name, "path", None, text, upstream=dict.fromkeys(upstream), none="a directory under the root")


_SPEED = "performance"
_LIVE = "live"
_HOUR_MS = 3_600_000

OPTIONS: tuple[Option, ...] = (
    # how a store is opened
    _bool("readonly", False, "Open the store without writing a byte. The open works beside a running writer and shows what was "
          "in the store at that moment."),
    _bool("follow", False, "With `readonly`: a message that another process puts becomes readable here within milliseconds of "
          "becoming readable there. `get(wait=)`, subscriptions and listeners work."),
    _bool("skip_holes", False, "With `readonly`: read a log although files between others are missing, or have another length. "
          "Reads pass over the lost messages (docs/integrity.md)."),
    _choice("compat", "5.x", ("4.9", "5.x"), "The rules to follow where RocketMQ 4.9 and 5.x differ: separator behind the last "
            "property, start of normal recovery, search by time, visibility under sync flush. Stores of both versions can be "
            "read under either value."),
    _choice("write_path", "mmap", ("mmap", "pool"), "`mmap` encodes a message into the mapped file, so a killed process loses "
            "no acknowledged message. `pool` encodes it into off-heap memory, and a commit thread writes that memory to the "
            "file.",
            {"transientStorePoolEnable": {"true": "pool", "false": "mmap"},
             "writeWithoutMmap": {"true": "pool", "false": "mmap"}}, wins="pool"),
    _choice("flush_mode", "async", ("async", "sync"), "`sync`: a put returns when its message is on the device. `async`: a put "
            "returns without waiting for the device; the flush thread flushes the message later.",
            {"flushDiskType": {"async_flush": "async", "sync_flush": "sync"}}),
    _choice("flush_backend", "auto", ("auto", "msync", "fdatasync", "io_uring"), "How bytes become durable. `auto` takes the "
            "best back end that works here and logs its choice. `io_uring` writes from the pool: naming it makes `write_path` "
            "`pool` if no source gives a write path, and is an error with `mmap`. Naming a back end that this machine does "
            "not allow is an error (BackendUnavailable). Other packages can offer more (docs/choosing-a-backend.md).",
            offered="rmq_store.flush_backends"),
    Option("store_host", "host", "127.0.0.1:10911", "Address of this store, written into every record and into offset message "
           "ids: `ip:port`, for IPv6 `[ip]:port`."),

    # replication (docs/replication.md)
    _choice("role", "master", ("master", "sync_master", "slave"), "`master` takes puts and serves slaves if ha_listen is "
            "given. `sync_master`: a put also waits until a slave has its message. `slave`: the store follows ha_master, "
            "serves reads and refuses puts.",
            {"brokerRole": {"async_master": "master", "sync_master": "sync_master", "slave": "slave"}}),
    Option("ha_listen", "listen", None, "The address on which slaves connect, also those of a slave. A port alone means that "
           "port of 127.0.0.1; port 0 chooses a free port.", upstream={"haListenPort": None}, none="no slave can connect"),
    Option("ha_master", "peer", None, "Slave: the address on which the master listens for slaves.",
           upstream={"haMasterAddress": None}, none="the store has no master"),
    Option("ha_master_broker", "peer", None, "Slave: the address of the master's broker, from which the slave copies topics, "
           "groups, "
           "consumer offsets and delay offsets. A broker learns it from its name server.", none="nothing beside the log is "
           "copied"),
    _int("ha_metadata_interval_ms", 10_000, "ms", 100, _HOUR_MS, "Slave: how often to copy topics, groups and offsets from the "
         "master's broker.", "syncBrokerMetadataPeriod"),
    _int("ha_send_heartbeat_interval_ms", 5000, "ms", 10, _HOUR_MS, "After this time without bytes to send, a master sends a "
         "heartbeat and a slave reports its offset.", "haSendHeartbeatInterval"),
    _int("ha_housekeeping_interval_ms", 20_000, "ms", 10, _HOUR_MS, "A peer that is silent for this long loses its connection.",
         "haHousekeepingInterval"),
    _int("ha_transfer_batch_size_bytes", 32 * KIB, "bytes", 512, 4 * MIB - 12, "Bytes of the log in one frame to a slave, at "
         "most.", "haTransferBatchSize"),
    _int("ha_slave_fallbehind_max_bytes", 256 * MIB, "bytes", 1, 1 << 50, "A slave that lacks more than this does not "
         "count for role=sync_master.", "haSlaveFallbehindMax", "haMaxGapNotInSync"),
    _int("slave_timeout_ms", 3000, "ms", 1, _HOUR_MS, "With role=sync_master: how long a put waits for a slave. Then it "
         "returns FLUSH_SLAVE_TIMEOUT.", "slaveTimeout"),
    _int("total_replicas", 1, "replicas", 1, 65, "Replicas of this store, the master counted: no more of them count as in "
         "sync.", "totalReplicas"),
    _int("in_sync_replicas", 1, "replicas", 1, 65, "With role=sync_master: how many replicas have a message, the master "
         "counted, when its put returns PUT_OK. If fewer are in sync, the message is not stored (IN_SYNC_REPLICAS_NOT_ENOUGH). "
         "1: the put waits for one slave, and stores the message in any case.", "inSyncReplicas"),
    _int("min_in_sync_replicas", 1, "replicas", 1, 65, "The least that auto_in_sync_replicas_enabled and "
         "all_ack_in_sync_state_set are content with.", "minInSyncReplicas"),
    _bool("all_ack_in_sync_state_set", False, "With role=sync_master: a put waits for every slave that is in sync, however "
          "many in_sync_replicas asks for.", "allAckInSyncStateSet"),
    _bool("auto_in_sync_replicas_enabled", False, "If fewer replicas are in sync than in_sync_replicas asks for, a put waits "
          "for those, down to min_in_sync_replicas.", "enableAutoInSyncReplicas"),
    _bool("ha_flow_control_enabled", False, "Limit the bytes that a master sends to all its slaves together.",
          "haFlowControlEnable"),
    _int("ha_transfer_rate_max_bytes", 100 * MIB, "bytes", 64 * KIB, 1 << 40, "With ha_flow_control_enabled: the limit for one "
         "second.", "maxHaTransferByteInSecond"),

    # places and sizes of files
    Option("commitlog_path", "paths", None, "Directory of the commit log, or several directories with commas between them "
           "(docs/several-directories.md).", upstream={"storePathCommitLog": None}, none="a directory under the root"),
    Option("commitlog_paths_readonly", "paths", "", "Directories of the commit log that get no new files. The files in them "
           "stay part of the log: they are read, written to their end if the log ends there, and cleaned.",
           upstream={"readOnlyCommitLogStorePaths": None}),
    _bool("commitlog_loss_accepted", False, "Open a store for writing although the newest files of its log, or all of them, "
          "are missing. The queue entries that point to these files are cut off."),
    _path("consumequeue_path", "Directory of the consume queues."),
    _path("index_path", "Directory of the index files."),
    _int("segment_size_bytes", GIB, "bytes", 4 * KIB, INT_MAX, "Size of a commit-log file. If this option is not given, an "
         "existing store keeps the size of its files.", "mappedFileSizeCommitLog", "mapedFileSizeCommitLog", change="fixed"),
    _int("consumequeue_file_size_bytes", 6_000_000, "bytes", 20, INT_MAX - 19, "Size of a consume-queue file, rounded up to a "
         "multiple of 20 (one entry).", "mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue", change="fixed"),
    _int("batch_consumequeue_file_size_bytes", 13_800_000, "bytes", 46, INT_MAX - 45, "Size of a file of a batch queue, "
         "rounded up to a multiple of 46 (one unit). If this option is not given, an existing store keeps the size of its "
         "files.",
         "mapperFileSizeBatchConsumeQueue", change="fixed"),
    _bool("consumequeue_ext_enabled", False, "Also write and read consume-queue extension units (tags code, store time, filter "
          "bit map). If this option is not given, the store follows the newest entries of its queues.", "enableConsumeQueueExt",
          change="fixed"),
    _int("consumequeue_ext_file_size_bytes", 48 * MIB, "bytes", 64, INT_MAX, "Size of a consume-queue extension file.",
         "mappedFileSizeConsumeQueueExt", change="fixed"),
    _bool("compaction_enabled", True, "Compact topics whose cleanup policy is COMPACTION, and require keys in their messages.",
          "enableCompaction"),
    _int("compaction_file_size_bytes", 100 * MIB, "bytes", 4 * KIB, INT_MAX, "Size of a file of a compaction log: the least "
         "multiple of the size of its file of entries, at least five times that.", "compactionMappedFileSize"),
    _int("compaction_cq_file_size_bytes", 10 * MIB, "bytes", 460, INT_MAX // 8, "Size of a file of entries of a compaction "
         "log, rounded down to entries of 46 bytes.", "compactionCqMappedFileSize"),
    _bool("index_enabled", True, "Build the index by key.", "messageIndexEnable"),
    _int("index_slots", 5_000_000, "slots", 1, INT_MAX // 4, "Hash slots of an index file.", "maxHashSlotNum", change="fixed"),
    _int("index_entries_max", 20_000_000, "entries", 2, INT_MAX // values.INDEX_ENTRY_SIZE,
         "Entries of an index file. The first entry is never used.", "maxIndexNum", change="fixed"),

    # what is taken
    _int("message_size_max_bytes", 4 * MIB, "bytes", 10, GIB, "Largest body. A whole record may be 64 KiB larger.",
         "maxMessageSize", change=_LIVE),
    _int("topic_size_max_bytes", 127, "bytes", 1, 255, "Longest topic name. Under compat 5.x, topics that begin with %RETRY% "
         "may always have 255 bytes. A topic longer than 127 bytes gets a record of version 2, which RocketMQ 4.9 cannot read.",
         "maxTopicLength", change=_LIVE),
    _bool("record_crc", False, "Append the property `__CRC32#` over the whole record (RocketMQ 5.2 and later).",
          "enabledAppendPropCRC"),
    _bool("duplication_enabled", False, "Dispatch stops at the confirm offset. `store.confirm(offset)` moves it.",
          "duplicationEnable"),
    _choice("delay", "deliver", ("deliver", "store_only", "refuse"), "What to do with a message that has a delay level. "
            "`deliver`: store the message and deliver it when it is due; delayed messages that are already in the store are "
            "delivered too. `store_only`: store the message in SCHEDULE_TOPIC_XXXX for a broker, and deliver nothing. "
            "`refuse`: refuse the message, and deliver nothing."),
    _int("delay_offset_flush_interval_ms", 10_000, "ms", 1, _HOUR_MS, "How often to write config/delayOffset.json. After a "
         "crash, messages that were delivered since the last write are delivered again.", "flushDelayOffsetInterval"),
    Option("delay_levels", "levels", DELAY_LEVELS, "The delay of each level, in s, m, h or d.",
           upstream={"messageDelayLevel": None}),
    _bool("timer_wheel_enable", True, "Messages with a time of delivery (deliver_at, delay) are taken and delivered.",
          "timerWheelEnable"),
    _int("timer_precision_ms", 1000, "ms", 10, 60_000, "Length of a slot of the timer wheel. A timer message is delivered up "
         "to one slot late. While timer messages wait, a store keeps the value with which they were put.", "timerPrecisionMs"),
    _int("timer_max_delay_sec", 259_200, "s", 1, 366 * 86_400, "The longest delay of a timer message.", "timerMaxDelaySec"),
    _int("timer_roll_window_slot", 172_800, "slots", 2, 600_000, "A timer message that waits longer than this number of slots "
         "is stored again on its way.", "timerRollWindowSlot"),
    _int("timer_congest_num_each_slot", 2_147_483_647, "messages", 1, 2_147_483_647, "From this number of messages in one slot "
         "on, puts for it are refused with WHEEL_TIMER_FLOW_CONTROL: some, and all from twice the number on.",
         "timerCongestNumEachSlot"),
    _int("timer_flush_interval_ms", 1000, "ms", 1, _HOUR_MS, "How often timer log, timer wheel and config/timercheck are "
         "written. After a crash, the store reads what was delivered since then from the log.", "timerFlushIntervalMs"),
    _int("timer_log_file_bytes", 104_857_600, "bytes", 1024, 1 << 30, "Size of a file of the timer log.",
         "mappedFileSizeTimerLog"),
    _int("transaction_timeout_ms", 6000, "ms", 1, 24 * _HOUR_MS, "How old a transaction must be before its producer group is "
         "asked for the first time.", "transactionTimeOut", change=_LIVE),
    _int("transaction_check_interval_ms", None, "ms", 1, 24 * _HOUR_MS, "How often undecided transactions are checked.",
         "transactionCheckInterval", change=_LIVE, none="30000, and 60000 with compat 4.9"),
    _int("transaction_check_max", 15, "times", 1, 1_000_000, "After this number of checks an undecided transaction is moved to "
         "TRANS_CHECK_MAX_TIME_TOPIC.", "transactionCheckMax", change=_LIVE),
    _int("transaction_op_size_max_bytes", 4096, "bytes", 32, MIB, "With compat 5.x, how large an op message is, which "
         "settles several transactions.", "transactionOpMsgMaxSize", change=_LIVE),
    _int("transaction_op_interval_ms", 3000, "ms", 1, _HOUR_MS, "How long a committed transaction waits at most for its op "
         "message, so that several share one, and how often the offsets of CID_RMQ_SYS_TRANS follow.",
         "transactionOpBatchInterval"),
    _bool("enable_lmq", False, "Messages may be in light queues (docs/light-queues.md). The option enable_multi_dispatch has "
          "to be true as well.", "enableLmq"),
    _bool("enable_multi_dispatch", False, "The dispatcher writes the entries of light queues. The option enable_lmq has to be "
          "true as well.", "enableMultiDispatch"),
    _int("lmq_count_max", 20_000, "light queues", 1, 10_000_000, "A put that would make more light queues than this is refused "
         "with LMQ_CONSUME_QUEUE_NUM_EXCEEDED.", "maxLmqConsumeQueueNum"),
    _int("busy_after_ms", 1000, "ms", 0, _HOUR_MS, "A put is refused with OS_PAGE_CACHE_BUSY while another put has held the "
         "put lock for longer than this time.", "osPageCacheBusyTimeOutMills", change=_LIVE),
    _choice("pool_empty", "wait", ("wait", "fail"), "What a put does when the pool has no room: `wait` waits for a window, "
            "`fail` raises PoolExhausted.", {"fastFailIfNoBufferInStorePool": {"true": "fail", "false": "wait"}}, change=_LIVE),

    Option("put_hooks", "names", "", "Put hooks of installed packages, in the order of their calls: names of entry points in "
           "the group `rmq_store.put_hooks` (docs/hooks.md)."),
    Option("dispatchers", "names", "", "Dispatchers of installed packages: names of entry points in the group "
           "`rmq_store.dispatchers` (docs/hooks.md)."),

    # what a reader sees, and durability
    _choice("visibility", None, ("committed", "durable"), "When a message can be read: `committed`, as soon as it is in the "
            "file; `durable`, only when it is on the device.", none="durable under sync flush with compat 5.x, else committed"),
    _int("flush_deadline_ms", 5000, "ms", 1, _HOUR_MS, "A synchronous put whose message is not durable within this time "
         "returns FLUSH_DISK_TIMEOUT. One of the waiting puts makes the sync in its own thread. That put returns when the sync "
         "ends, however late, and reports the outcome of the sync.", "syncFlushTimeout", change=_LIVE),
    _bool("recover_check_crc", True, "Recovery checks the CRC of each body.", "checkCRCOnRecover"),
    _bool("record_crc_required", False, "Recovery checks `__CRC32#` instead of the CRC of the body, and cuts the log at a "
          "record without this property.", "forceVerifyPropCRC"),
    _bool("index_recover_safe", False, "After a crash, recovery begins to walk the log no later than at the index time of the "
          "checkpoint. Lost index entries are built again in either case.", "messageIndexSafe"),
    _bool("manifest_enabled", True, "Each sealed commit-log file gets a manifest of block checksums in `.manifest/`. RocketMQ "
          "does not read this directory."),
    _int("manifest_interval_ms", 10_000, "ms", 1, _HOUR_MS, "How often to check for sealed files that lack a manifest."),
    _bool("map_release_enabled", True, "Give back the memory of old files of the log that nobody reads: what this process has "
          "in its page tables, and what the page cache keeps of the file. The files stay mapped, and a reader reads them from "
          "the device again.", "mappedFileSwapEnable"),
    _int("map_release_interval_ms", 3_600_000, "ms", 100, 24 * _HOUR_MS, "How often to check for such files. A file is idle if "
         "nobody has read it between two checks.", "commitLogSwapMapInterval"),
    _int("map_release_reserve_files", 100, "files", 2, INT_MAX, "How many of the newest files of the log always keep their "
         "memory.", "commitLogSwapMapReserveFileNum"),
    _int("close_timeout_ms", 5000, "ms", 0, _HOUR_MS, "How long close() waits for dispatch. If dispatch is not done by then, "
         "the abort file stays and the next open recovers.", change=_LIVE),
    _bool("signals", False, "Close the store on SIGTERM and SIGINT."),
    _bool("guard_maps", False, "Handle SIGBUS in the mapped files of the log and the index. The kernel sends SIGBUS when a "
          "file was cut, or when the device cannot give a page. A call that needs the page raises an error, puts stop if the "
          "page was to be written, and the process goes on. The option installs a signal handler for the life of the process. "
          "Every other SIGBUS goes to the handler that was installed before. Limits: recovery, verify, repair and the bulk "
          "readers are not covered; message views from before the fault show zeros; a handler that the program installs later "
          "comes first."),

    # consumers (docs/work-queue.md)
    _int("offsets_flush_interval_ms", 5000, "ms", 1, _HOUR_MS, "How often to write the committed offsets of consumer groups to "
         "config/consumerOffset.json, and the positions of dispatchers to config/dispatchers.json.",
         "flushConsumerOffsetInterval"),

    # SQL92 filters of groups (docs/filtering.md)
    _bool("enable_calc_filter_bit_map", False, "Dispatch evaluates the SQL92 filters that groups have registered, and stores "
          "the result with each queue entry as a bit map. A get with a registered expression then skips messages without "
          "reading the log. It has an effect only if consumequeue_ext_enabled is true.", "enableCalcFilterBitMap"),
    _int("bloom_filter_error_pct", 20, "%", 1, 99, "The share of messages that may pass a bit map although they do not fulfil "
         "the filter. The get then evaluates the filter. With another value than the one of before, all registered filters are "
         "dropped, as in RocketMQ.", "maxErrorRateOfBloomFilter"),
    _int("bloom_filter_groups", 32, "groups", 1, 1000, "The number of groups with a filter of one topic for which "
         "bloom_filter_error_pct holds. A change drops all registered filters too.", "expectConsumerNumUseFilter"),
    _int("count_scan_max", 20_000, "entries", 1, INT_MAX, "How many queue entries a count with a filter examines at most. It "
         "estimates the rest from these.", "maxConsumeQueueScan", change=_LIVE),
    _int("count_matches_max", 5000, "messages", 0, INT_MAX, "A count with a filter stops when more messages than this have "
         "passed, and estimates the rest.", "sampleCountThreshold", change=_LIVE),
    _int("filter_data_clean_span_ms", 86_400_000, "ms", 0, 1 << 40, "How long the filter of a group that has gone stays "
         "registered.", "filterDataCleanTimeSpan"),

    _int("cold_read_bytes_max", None, "bytes", 1, 1 << 50, "How many bytes of older messages (see `memory_ratio_pct`) the "
         "consumer of one group reads in a second, with those that its SQL92 filter leaves out. A read may exceed it, and the "
         "group's next reads of older messages then wait longer. Recent messages do not wait.", change=_LIVE, none="no limit"),
    _bool("recover_concurrently", True, "An open examines and mends the queues of a store with more than 500 queues in several "
          "threads.", "recoverConcurrently", group=_SPEED),
    _int("recover_thread_pool_nums", 8, "threads", 1, 1024, "How many threads recover_concurrently uses at most. A number "
         "above 8 counts as 8.", "recoverThreadPoolNums", group=_SPEED),

    # figures for other processes (docs/watching.md)
    _int("stats_file_interval_ms", None, "ms", 100, _HOUR_MS, "How often to write the figures of the open store to "
         "`.stats.json` under the root, for `rmqstore stat --watch` and other processes. RocketMQ does not read this file.",
         none="no file is written"),

    # cleaning (docs/cleaning.md)
    _int("retention_hours", None, "hours", 0, 1_000_000, "**Nothing is deleted unless this option is given** (RocketMQ: 72). "
         "The store deletes whole commit-log files whose last message is older than this, oldest first. It does so in the "
         "hours of retention_hours_of_day, or at any hour while the disk is fuller than disk_clean_pct. Above disk_force_pct "
         "the oldest files are deleted whatever their age. Files are deleted whether or not their messages were consumed.",
         "fileReservedTime", change=_LIVE, none="nothing is ever deleted"),
    Option("retention_hours_of_day", "hours", "04", "Local hours in which files that are old enough are deleted.",
           upstream={"deleteWhen": None}, change=_LIVE),
    _int("disk_clean_pct", 75, "%", 1, 100, "Above this disk usage, files that are old enough are deleted at any hour "
         "(RocketMQ limits the value to 10 to 95).", "diskMaxUsedSpaceRatio", change=_LIVE),
    _int("disk_force_pct", 85, "%", 1, 100, "Above this disk usage, the oldest files are deleted at once, whatever their age "
         "(RocketMQ limits the value to 30 to 85).", "diskSpaceCleanForciblyRatio", change=_LIVE),
    _bool("clean_forced", True, "Whether disk_force_pct and disk_full_pct may delete files that are not old enough.",
          "cleanFileForciblyEnable", change=_LIVE),
    _int("disk_full_pct", None, "%", 1, 100, "Above this disk usage, puts are refused with SERVICE_NOT_AVAILABLE, and with "
         "clean_forced the oldest files are deleted. Puts are accepted again when usage is at or below disk_force_pct, or at "
         "or below a limit that was raised (RocketMQ limits the value to 35 to 90). A full disk refuses puts in any case.",
         "diskSpaceWarningLevelRatio", change=_LIVE, none="90 if retention_hours is given, else no limit"),
    _int("clean_interval_ms", 10_000, "ms", 1, _HOUR_MS, "How often to check the clock and the disk.", "cleanResourceInterval"),
    _int("clean_files_max", 10, "files", 1, INT_MAX, "How many commit-log files one check deletes at most.",
         "deleteFileBatchMax", change=_LIVE),
    _int("clean_hanged_ms", 120_000, "ms", 0, 24 * _HOUR_MS, "How long cleaning waits for the message views of a file that is "
         "to be deleted. After this time the name of the file is removed, and the last view frees its space.",
         "destroyMapedFileIntervalForcibly"),

    # limits of reading
    _int("get_bytes_max_memory", 256 * KIB, "bytes", 1, INT_MAX, "How many bytes of recent messages one get returns at most.",
         "maxTransferBytesOnMessageInMemory", change=_LIVE),
    _int("get_count_max_memory", 32, "messages", 1, INT_MAX, "How many recent messages one get returns at most.",
         "maxTransferCountOnMessageInMemory", change=_LIVE),
    _int("get_bytes_max_disk", 64 * KIB, "bytes", 1, INT_MAX, "How many bytes of older messages one get returns at most.",
         "maxTransferBytesOnMessageInDisk", change=_LIVE),
    _int("get_count_max_disk", 8, "messages", 1, INT_MAX, "How many older messages one get returns at most.",
         "maxTransferCountOnMessageInDisk", change=_LIVE),
    _int("memory_ratio_pct", 40, "%", 0, 100, "A message counts as recent if its distance from the end of the log is within "
         "this share of the machine's memory.", "accessMessageInMemoryMaxRatio", change=_LIVE),
    _int("filter_bytes_max", 16_000, "bytes", 20, INT_MAX, "How many bytes of queue entries one get examines at most. If "
         "max_count x 20 is larger, that number is the limit.", "maxFilterMessageSize", change=_LIVE),
    _int("long_polling_timeout_ms", 30_000, "ms", 0, 24 * _HOUR_MS, "How long get(wait=True) waits for a message.",
         change=_LIVE),
    _int("query_batch_max", 64, "messages", 1, INT_MAX, "How many messages a query by key returns at most.", "maxMsgsNumBatch",
         change=_LIVE),
    _int("query_count_max", 32, "messages", 1, INT_MAX, "How many messages a query by key returns if the call gives no number.",
         "defaultQueryMaxNum", change=_LIVE),

    # speed: flush and commit
    _int("flush_interval_ms", 500, "ms", 1, _HOUR_MS, "How often the asynchronous flush runs.", "flushIntervalCommitLog",
         group=_SPEED, change=_LIVE),
    _int("flush_pages_min", 4, "4 KiB pages", 0, INT_MAX, "The asynchronous flush writes only if at least this many pages wait "
         "to be flushed.",
         "flushCommitLogLeastPages", group=_SPEED, change=_LIVE),
    _int("flush_interval_max_ms", 10_000, "ms", 0, 24 * _HOUR_MS, "After this time everything is flushed, whatever "
         "flush_pages_min says.",
         "flushCommitLogThoroughInterval", group=_SPEED, change=_LIVE),
    _choice("flush_wake", "timed", ("timed", "eager"), "`timed`: the asynchronous flush runs at its interval. `eager`: each "
            "put wakes the asynchronous flush.",
            {"flushCommitLogTimed": {"true": "timed", "false": "eager"},
             "wakeFlushWhenPutMessage": {"true": "eager", "false": "timed"}}, wins="timed", group=_SPEED, change=_LIVE),
    _int("commit_pages_min", 4, "4 KiB pages", 0, INT_MAX, "The commit thread writes the pool to the file only if at least "
         "this many pages wait to be committed.",
         "commitCommitLogLeastPages", group=_SPEED, change=_LIVE),
    _int("commit_interval_max_ms", 200, "ms", 0, 24 * _HOUR_MS, "After this time everything is committed, whatever "
         "commit_pages_min says.",
         "commitCommitLogThoroughInterval", group=_SPEED, change=_LIVE),
    _choice("uring_direct", "auto", ("auto", "on", "off"), "io_uring: write the commit log with direct I/O (O_DIRECT), without "
            "the page cache. `auto` uses direct I/O if the file system supports it. `on` is an error if the file system does "
            "not.", group=_SPEED),
    _int("uring_depth", 8, "writes", 1, 256, "io_uring: how many writes are in flight at most.", group=_SPEED),
    _choice("uring_durability", "auto", ("auto", "fdatasync", "dsync"), "io_uring: how a small durable step is made. "
            "`fdatasync`: a write linked to an fdatasync. `dsync`: one write with RWF_DSYNC. `auto`: dsync for direct writes "
            "under sync flush, else fdatasync.",
            group=_SPEED),
    _bool("uring_sqpoll", False, "io_uring: a kernel thread takes the submissions. This thread polls, and costs CPU while the "
          "store is busy.", group=_SPEED),
    _bool("uring_iopoll", False, "io_uring: poll the device for completions instead of taking interrupts. This works with "
          "direct writes only.",
          group=_SPEED),
    _int("consumequeue_flush_interval_ms", 1000, "ms", 1, _HOUR_MS, "How often the consume queues are flushed.",
         "flushIntervalConsumeQueue", group=_SPEED, change=_LIVE),
    _int("consumequeue_flush_pages_min", 2, "4 KiB pages", 0, INT_MAX, "A consume queue is flushed only if at least this many "
         "of its pages wait to be flushed.",
         "flushConsumeQueueLeastPages", group=_SPEED, change=_LIVE),
    _int("consumequeue_flush_interval_max_ms", 60_000, "ms", 0, 24 * _HOUR_MS, "After this time every consume queue and the "
         "checkpoint are flushed, whatever consumequeue_flush_pages_min says.",
         "flushConsumeQueueThoroughInterval", group=_SPEED, change=_LIVE),

    _int("clean_pace_ms", 100, "ms", 0, _HOUR_MS, "Pause between the deletions of two commit-log files.",
         "deleteCommitLogFilesInterval", group=_SPEED),
    _int("clean_queue_pace_ms", 100, "ms", 0, _HOUR_MS, "Pause after each queue whose files were deleted.",
         "deleteConsumeQueueFilesInterval", group=_SPEED),

    # speed: compaction topics
    _int("compaction_interval_ms", 900_000, "ms", 1000, 24 * _HOUR_MS, "How often the store compacts compaction topics "
         "(docs/compaction-topics.md).", "compactionScheduleInternal", group=_SPEED),
    _int("compaction_map_bytes", 100 * MIB, "bytes", 4 * KIB, 1 << 40, "Memory for the newest offset of each key while a queue "
         "is compacted. If it ends, later messages stay until the next compaction.", "maxOffsetMapSize", group=_SPEED),

    # speed: memory and files
    _int("pool_window_size_bytes", 4 * MIB, "bytes", 4 * KIB, INT_MAX, "Size of a window of the pool. A window is never larger "
         "than a commit-log file.", group=_SPEED),
    _int("pool_window_count", 8, "windows", 1, 65_536, "Number of windows of the pool. Together the windows must hold at least "
         "twice the largest record.", "transientStorePoolSize", group=_SPEED),
    _bool("pool_mlock", False, "Lock the pool in memory.", group=_SPEED),
    _bool("pool_hugepages", False, "Advise huge pages for the pool.", group=_SPEED),
    _bool("segment_warm", False, "Touch every page of a new commit-log file before it is used.", "warmMapedFileEnable",
          "warmMappedFileEnable", group=_SPEED),
    _bool("segment_mlock", False, "Lock the mapped commit-log file that is being written in memory, and the next file too.",
          group=_SPEED),
    _choice("segment_prezero", None, ("off", "window", "full"), "Write zeros ahead of the log, so that a sync does not have to "
            "journal new extents. `off`: write no zeros. `window`: write some MiB ahead. `full`: write the whole file when it "
            "is made.",
            none="window under sync flush, off under async", group=_SPEED),
    _bool("measure_puts", False, "Time every put. This fills the histogram `put` of histograms() and putLatency99 of "
          "runtime_info(), and enables the event PUT_SLOW. Each put then costs two readings of the clock and a Python call "
          "more. Without this option a put costs nothing more.", group=_SPEED),
    _int("slow_put_ms", 500, "ms", 1, _HOUR_MS, "With measure_puts, a put that takes longer than this is logged with its "
         "phases.",
         group=_SPEED),
    _bool("put_lock_dump", False, "When a put holds the put lock for more than a second, log all threads, native threads too, "
          "and what each of them waits for (event PUT_LOCK_THREADS).", "debugLockEnable", group=_SPEED, change=_LIVE),
    _choice("put_lock", "mutex", ("mutex", "spin"), "What a put does when it finds the put lock taken: `mutex` sleeps after a "
            "short spin, `spin` sleeps after a long spin.",
            {"useReentrantLockWhenPutMessage": {"true": "mutex", "false": "spin"}}, group=_SPEED),
    _int("consumequeue_fd_max", 256, "files", 2, 65_536, "How many consume-queue files are open at once.", group=_SPEED),
)

BY_NAME: dict[str, Option] = {o.name: o for o in OPTIONS}
BY_UPSTREAM: dict[str, Option] = {u: o for o in OPTIONS for u in o.upstream}
