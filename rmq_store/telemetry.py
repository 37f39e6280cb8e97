"""Metrics of open stores for OpenTelemetry, under RocketMQ's names: an extra, `pip install rmq_store[opentelemetry]`.

    from rmq_store.telemetry import instrument

    instrument(store)           # with the meter provider that the program has set

Every instrument is observable: nothing is counted for it, and the numbers are summed when a reader of the program's collects. A
closed store has no metrics. Thread-safety: any. RocketMQ: DefaultStoreMetricsManager, BrokerMetricsManager.
"""
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

try:
    import opentelemetry.metrics as otel
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("rmq_store.telemetry needs opentelemetry-api: pip install 'rmq_store[opentelemetry]'",
                              name=error.name) from None

from rmq_store.access.core._core import StoreCore
from rmq_store.base.io.threads import members
from rmq_store.errors import RmqStoreError, illegal
from rmq_store.version import VERSION

if TYPE_CHECKING:
    from rmq_store.store import MessageStore

__all__ = ["instrument"]

Row = tuple[float, dict[str, str]]
_INSTRUMENTING = threading.Lock()
_STORES: "weakref.WeakKeyDictionary[otel.Meter, weakref.WeakSet[MessageStore]]" = weakref.WeakKeyDictionary()


def _stat(key: str, minus: str | None = None) -> "Callable[[MessageStore], Iterator[Row]]":
    def rows(store: "MessageStore") -> Iterator[Row]:
        stats: Any = store.stats()
        yield stats[key] - (stats[minus] if minus else 0), {}
    return rows


def _size(store: "MessageStore") -> Iterator[Row]:
    stats = store.stats()
    yield stats["wrote"] - stats["min_log_offset"], {"storage_type": "local", "storage_medium": "disk"}


def _reserve_time(store: "MessageStore") -> Iterator[Row]:
    oldest = store.earliest_time()
    if oldest >= 0:
        yield max(int(time.time() * 1000) - oldest, 0), {}


def _topics(which: int) -> "Callable[[MessageStore], Iterator[Row]]":
    def rows(store: "MessageStore") -> Iterator[Row]:
        for topic, counts in store.topic_counts().items():
            yield counts[which], {"topic": topic}
    return rows


def _groups(key: str) -> "Callable[[MessageStore], Iterator[Row]]":
    def rows(store: "MessageStore") -> Iterator[Row]:
        for row in store.group_stats():
            yield row[key], {"topic": row["topic"], "consumer_group": row["group"]}     # type: ignore[literal-required]
    return rows


def _lag(store: "MessageStore") -> Iterator[Row]:
    sums: dict[tuple[str, str], int] = {}
    for row in store.lag():
        sums[row.group, row.topic] = sums.get((row.group, row.topic), 0) + row.behind
    for (group, topic), count in sums.items():
        yield count, {"topic": topic, "consumer_group": group}


# (name, kind, unit, text, rows). RocketMQ's names and units where the meaning is RocketMQ's; others begin with rmq_store_.
_INSTRUMENTS: "tuple[tuple[str, str, str, str, Callable[[MessageStore], Iterator[Row]]], ...]" = (
    ("rocketmq_storage_size", "gauge", "bytes", "Bytes of the log", _size),
    ("rocketmq_storage_flush_behind_bytes", "gauge", "bytes", "Bytes of the log that are not on the device yet",
     _stat("wrote", "flushed")),
    ("rocketmq_storage_dispatch_behind_bytes", "gauge", "bytes", "Bytes of the log that are not dispatched yet",
     _stat("dispatch_behind_bytes")),
    ("rocketmq_storage_message_reserve_time", "gauge", "milliseconds", "Age of the oldest message of the log", _reserve_time),
    ("rocketmq_messages_in_total", "counter", "count", "Messages dispatched, by topic", _topics(0)),
    ("rocketmq_throughput_in_total", "counter", "bytes", "Bytes of records dispatched, by topic", _topics(1)),
    ("rocketmq_messages_out_total", "counter", "count", "Messages handed out, by group and topic", _groups("messages")),
    ("rocketmq_throughput_out_total", "counter", "bytes", "Bytes of records handed out, by group and topic", _groups("bytes")),
    ("rocketmq_send_to_dlq_messages_total", "counter", "count", "Messages that became dead letters", _groups("dead_letters")),
    ("rocketmq_consumer_lag_messages", "gauge", "count", "Messages that the group has not consumed", _lag),
    ("rmq_store_puts", "counter", "count", "Messages put", _stat("puts")),
    ("rmq_store_flushes", "counter", "count", "Flushes of the log to the device", _stat("flushes")),
    ("rmq_store_running_flags", "gauge", "bits", "The bits of RunningFlags",
     lambda store: iter([(int(store.running_flags), {})])),
    ("rmq_store_failed", "gauge", "errno", "The error of a failed write or sync, after which no put is acknowledged; else 0",
     _stat("errno")),
)


def instrument(store: "MessageStore", meter: "otel.Meter | None" = None) -> None:
    """Adds the metrics of a store to a meter. Each has the attribute `path`, the directory of the store.

    meter: default the meter `rmq_store` of the global meter provider. Any number of stores may share a meter, and a store that
    was opened again may be added again. The store is held weakly, and its metrics end when it is closed. Raises
    ArgumentIllegal.
    """
    if not isinstance(store, StoreCore):
        raise illegal("store", store, "give a MessageStore")
    if meter is not None and not isinstance(meter, otel.Meter):
        raise illegal("meter", meter, "give a Meter of opentelemetry.metrics, or None for the global one")
    chosen = otel.get_meter("rmq_store", VERSION) if meter is None else meter
    with _INSTRUMENTING:
        stores = _STORES.get(chosen)
        if stores is None:
            stores = _STORES[chosen] = weakref.WeakSet()
            for name, kind, unit, text, rows in _INSTRUMENTS:
                make = chosen.create_observable_gauge if kind == "gauge" else chosen.create_observable_counter
                make(name, callbacks=[_callback(stores, rows)], unit=unit, description=text)
        stores.add(store)


def _callback(stores: "weakref.WeakSet[MessageStore]", rows: "Callable[[MessageStore], Iterator[Row]]") -> Any:
    def observe(options: "otel.CallbackOptions") -> "Iterable[otel.Observation]":
        found = []
        for store in members(stores):
            try:
                found += [otel.Observation(value, {"path": store.path, **attributes}) for value, attributes in rows(store)]
            except RmqStoreError:
                continue            # it is closed; the others are told
        return found
    return observe
