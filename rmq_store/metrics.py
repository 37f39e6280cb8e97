"""Metrics of open stores for Prometheus: an extra, `pip install rmq_store[metrics]`.

    from prometheus_client import start_http_server
    from rmq_store.metrics import register

    register(store)
    start_http_server(9104)

Metrics with the same meaning as RocketMQ's have RocketMQ's names (rocketmq_storage_*, rocketmq_messages_*); other names begin
with rmq_store_. A name contains the base unit. A closed store has no metrics; you need not unregister it. Thread-safety: any.
"""
import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

try:
    import prometheus_client  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("rmq_store.metrics needs prometheus_client: pip install 'rmq_store[metrics]'",
                              name=error.name) from None
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import REGISTRY, CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from rmq_store.access.core._core import StoreCore
from rmq_store.errors import StoreStateError, illegal
from rmq_store.log.recovery.places import Places
from rmq_store.services.cleaning.rules import used_percent

if TYPE_CHECKING:
    from rmq_store.base.histogram._histogram import Histogram
    from rmq_store.services.statistics.groups import GroupStats
    from rmq_store.store import MessageStore

__all__ = ["StoreCollector", "register", "text"]

# Upper bounds in seconds; a duration is counted in the first bucket whose bound its own bucket lies below.
BOUNDS = tuple(base * 10.0 ** power for power in range(-6, 1) for base in (1, 2.5, 5)) + (10.0,)

_COLLECTORS: "weakref.WeakKeyDictionary[CollectorRegistry, StoreCollector]" = weakref.WeakKeyDictionary()
_REGISTERING = threading.Lock()

_GAUGES = {
    # metric -> (key of stats(), help)
    "rocketmq_storage_dispatch_behind_bytes": ("dispatch_behind_bytes", "Bytes of the log that are not dispatched yet"),
    "rmq_store_log_min_offset_bytes": ("min_log_offset", "Log offset at which the log begins"),
    "rmq_store_log_wrote_bytes": ("wrote", "Log offset at which the log ends"),
    "rmq_store_log_flushed_bytes": ("flushed", "Log offset below which the log is on the device"),
    "rmq_store_log_files": ("log_files", "Commit-log files"),
    "rmq_store_queues": ("queues", "Consume queues"),
    "rmq_store_waiting_readers": ("waiting_readers", "Gets, listeners and event loops that wait for messages"),
    "rmq_store_message_view_leases": ("message_view_leases", "Groups of message views that are alive"),
    "rmq_store_put_lock_seconds": ("put_lock_ms", "Time for which the present holder has had the put lock"),
    "rmq_store_disk_full": ("disk_full", "1 while the store refuses puts because of disk_full_pct"),
    "rmq_store_page_cache_busy": ("page_cache_busy", "1 while a put has held the put lock for longer than busy_after_ms"),
    "rmq_store_failed": ("errno", "1 after a failed write or sync: the store acknowledges no put any more"),
}
_COUNTERS = {
    "rmq_store_puts": ("puts", "Messages put"),
    "rmq_store_put_bytes": ("put_bytes", "Bytes of records put"),
    "rmq_store_gets_found": ("gets_found", "Gets that found messages"),
    "rmq_store_gets_missed": ("gets_missed", "Gets that found no message"),
    "rmq_store_got_messages": ("got_messages", "Messages that gets returned"),
    "rmq_store_got_bytes": ("got_bytes", "Bytes of records that gets returned"),
    "rmq_store_got_disk_messages": ("got_disk_messages", "Messages that gets returned from further behind the "
                                    "end of the log than memory_ratio_pct of the memory"),
    "rmq_store_got_disk_bytes": ("got_disk_bytes", "Bytes of the records of rmq_store_got_disk_messages"),
    "rmq_store_bit_map_skips": ("bit_map_skips", "Messages that gets with a SQL92 filter skipped because of their bit map"),
    "rmq_store_commits": ("commits", "Commits from the pool to the file"),
    "rmq_store_flushes": ("flushes", "Flushes of the log to the device"),
    "rmq_store_pool_waits": ("pool_waits", "Puts that waited for room in the pool"),
    "rmq_store_file_waits": ("file_waits", "Puts that waited for the next commit-log file"),
    "rmq_store_slow_put_locks": ("slow_put_locks", "Times the put lock was held longer than 500 ms"),
    "rmq_store_unreadable_records": ("unreadable_records", "Records that dispatch could not read"),
}

_DURATIONS = {      # the same as the docstring of histograms()
    "lock": "Time that an append waited for a put lock that was taken",
    "append": "Time that an append held the put lock, one append in 64",
    "commit": "Time of a commit from the pool to the file",
    "flush": "Time of a flush to the device",
    "dispatch_lag": "Time from a put until readers see the message, one value for each round of dispatch",
    "get": "Time of a get, one get in 16",
    "put": "Time of a put, with measure_puts only",
}


class StoreCollector(Collector):
    """The metrics of stores, which the collector references weakly. labels: added to each metric; path is the directory."""

    def __init__(self, *stores: "MessageStore") -> None:
        self._stores = [weakref.ref(store) for store in stores]

    def add(self, store: "MessageStore") -> None:
        """Adds a store, and forgets the stores that are gone or closed."""
        open_ones = [other for ref in self._stores if (other := ref()) is not None and other is not store and not other.closed]
        self._stores = [weakref.ref(other) for other in (*open_ones, store)]

    def collect(self) -> Iterator[Any]:
        """Each metric once, with the samples of all stores: a page must not have a name twice."""
        found: dict[str, Any] = {}
        for ref in self._stores:
            for family in () if (store := ref()) is None else self._families(store):
                found.setdefault(family.name, family)
                if found[family.name] is not family:
                    found[family.name].samples += family.samples
        yield from found.values()

    def _families(self, store: "MessageStore") -> Iterator[Any]:
        try:
            stats: dict[str, Any] = dict(store.stats())
            topics, histograms, lags, groups = store.topic_counts(), store.histograms(), store.lag(), store.group_stats()
        except StoreStateError:
            return              # it is closed
        label, path = ["path"], [store.path]
        stats["put_lock_ms"] /= 1000
        stats["errno"] = bool(stats["errno"])
        size = GaugeMetricFamily("rocketmq_storage_size", "Bytes of the log", labels=["path", "storage_type", "storage_medium"])
        size.add_metric([*path, "local", "disk"], stats["wrote"] - stats["min_log_offset"])
        yield size
        behind = GaugeMetricFamily("rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not on the device yet",
                                   labels=label)
        behind.add_metric(path, stats["wrote"] - stats["flushed"])
        yield behind
        free = GaugeMetricFamily("rmq_store_pool_free_bytes", "Bytes of the pool that hold nothing to commit", labels=label)
        free.add_metric(path, max(stats["pool_bytes"] - (stats["wrote"] - stats["committed"]), 0))
        yield free
        disks = GaugeMetricFamily("rmq_store_log_disk_used_ratio", "Used share of the disk of each directory of the log",
                                  labels=["path", "directory"])
        for directory in Places(store.path, store.options).commitlogs:
            if (percent := used_percent(directory)) >= 0:
                disks.add_metric([*path, directory], percent / 100)
        yield disks
        for name, (key, what) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, what, labels=label)
            gauge.add_metric(path, float(stats[key]))
            yield gauge
        for name, (key, what) in _COUNTERS.items():
            counter = CounterMetricFamily(name, what, labels=label)
            counter.add_metric(path, stats[key])
            yield counter
        messages = CounterMetricFamily("rocketmq_messages_in", "Messages dispatched, by topic", labels=["path", "topic"])
        sizes = CounterMetricFamily("rocketmq_throughput_in", "Bytes of records dispatched, by topic", labels=["path", "topic"])
        for topic, (count, total) in sorted(topics.items()):
            messages.add_metric([*path, topic], count)
            sizes.add_metric([*path, topic], total)
        yield messages
        yield sizes
        lag = GaugeMetricFamily("rocketmq_consumer_lag_messages", "Messages that the group has not consumed",
                                labels=["path", "consumer_group", "topic"])
        sums: dict[tuple[str, str], int] = {}
        for row in lags:
            sums[row.group, row.topic] = sums.get((row.group, row.topic), 0) + row.behind
        for (group, topic), count in sorted(sums.items()):
            lag.add_metric([*path, group, topic], count)
        yield lag
        yield from _consumed(path, groups)
        yield from _replicated(path, store)
        for name, histogram in histograms.items():
            family = HistogramMetricFamily(f"rmq_store_{name}_seconds", _DURATIONS[name], labels=label)
            family.add_metric(path, _buckets(histogram), histogram.mean * histogram.count / 1e9)
            yield family


def _replicated(path: list[str], store: "MessageStore") -> Iterator[Any]:
    """The part of the store in replication; of a master each connected slave, of a slave its master."""
    state = store.replication()
    role = GaugeMetricFamily("rmq_store_replication_role", "1 for the role of the store, and for the state of a slave, which "
                             "is empty for "
                             "a master", labels=["path", "role", "state"])
    role.add_metric([*path, state.role, state.state], 1)
    yield role
    found = {name: GaugeMetricFamily(f"rmq_store_replica_{name}", what, labels=["path", "replica"]) for name, what in (
        ("offset", "Log offset below which a connected slave has acknowledged everything, -1 before its first report"),
        ("lag_bytes", "Bytes of the log that a connected slave has not acknowledged"),
        ("lag_seconds", "How long a connected slave is behind"))}
    for replica in store.replicas():
        label = [*path, replica.address]
        found["offset"].add_metric(label, replica.offset)
        found["lag_bytes"].add_metric(label, replica.lag_bytes)
        found["lag_seconds"].add_metric(label, replica.lag_ms / 1000)
    yield from found.values()
    behind = GaugeMetricFamily("rmq_store_replication_behind_bytes", "Slave: bytes of the master's log that it has heard of "
                               "and does not "
                               "have yet", labels=["path"])
    copied = GaugeMetricFamily("rmq_store_replication_copied_timestamp_seconds", "Slave: when it last copied topics, groups "
                               "and offsets",
                               labels=["path"])
    if state.role == "slave":
        if state.master_offset is not None:
            behind.add_metric(path, max(state.master_offset - store.max_log_offset, 0))
        if state.copied_ms is not None:
            copied.add_metric(path, state.copied_ms / 1000)
    yield behind
    yield copied
    for name, what, count in (("sent", "Master: bytes of the log sent to slaves", state.sent_bytes),
                              ("received", "Slave: bytes of the log received", state.received_bytes)):
        counter = CounterMetricFamily(f"rmq_store_replication_{name}_bytes", what, labels=["path"])
        counter.add_metric(path, count)
        yield counter


def _consumed(path: list[str], groups: "list[GroupStats]") -> Iterator[Any]:
    """What consumers of this process got, by group and topic; RocketMQ counts the same at the broker."""
    label = ["path", "consumer_group", "topic"]
    for name, key, what in (("rocketmq_messages_out", "messages", "Messages handed out, by group and topic"),
                            ("rocketmq_throughput_out", "bytes", "Bytes of records handed out, by group and topic"),
                            ("rmq_store_messages_out_from_disk", "disk_messages", "Messages handed out from further behind the "
                             "end of the log than memory_ratio_pct of the memory"),
                            ("rocketmq_send_to_dlq_messages", "dead_letters", "Messages that became dead letters"),
                            ("rmq_store_sent_back_messages", "sent_back", "Messages that failed: retried, or dead letters")):
        counter = CounterMetricFamily(name, what, labels=label)
        for row in groups:
            counter.add_metric([*path, row["group"], row["topic"]], row[key])       # type: ignore[literal-required]
        yield counter


def _buckets(histogram: "Histogram") -> list[tuple[str, float]]:
    """Cumulative counts at BOUNDS, and at the end all."""
    rest = histogram.buckets()
    found, below, at = [], 0, 0
    for bound in BOUNDS:
        while at < len(rest) and rest[at][1] <= bound * 1e9:
            below += rest[at][2]
            at += 1
        found.append((str(bound), float(below)))
    return [*found, ("+Inf", float(sum(count for _, _, count in rest)))]


def register(store: "MessageStore", registry: CollectorRegistry = REGISTRY) -> StoreCollector:
    """Adds the metrics of a store to a registry of prometheus_client. Returns the collector of all stores of that registry, for
    registry.unregister. Any number of stores, and a store that was opened again, may be registered. Raises ArgumentIllegal."""
    if not isinstance(store, StoreCore):
        raise illegal("store", store, "give a MessageStore")
    if not isinstance(registry, CollectorRegistry):
        raise illegal("registry", registry, "give a CollectorRegistry of prometheus_client")
    with _REGISTERING:
        collector = _COLLECTORS.setdefault(registry, StoreCollector())
        with contextlib.suppress(KeyError):         # a registry refuses a name that it has
            registry.unregister(collector)
        collector.add(store)
        registry.register(collector)
    return collector


def text(store: "MessageStore") -> str:
    """Returns all metrics of one store in Prometheus' text format, as a str."""
    registry = CollectorRegistry()
    register(store, registry)
    page: str = generate_latest(registry).decode()
    return page
