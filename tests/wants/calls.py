"""A row for every public method of MessageStore: what it is called with in a World, or why no want meets it."""
import contextlib
import struct
import time
from collections.abc import Callable
from typing import Any

from rmq_store.errors import RmqStoreError
from tests.wants.world import World

FAR_MS = 3_600_000
BATCH = b"".join(struct.pack(">iiiii1sh", 23, 0, 0, 0, 1, b"%d" % i, 0) for i in range(3))     # as a client encodes it


def _batch(w: World) -> list[dict[str, Any]]:
    return [{"body": b"b%d" % i, "keys": f"b{i}"} for i in range(3)]


def _put_async(w: World) -> Any:
    return w.store.put_async("A", b"a", wait=True).result(20)


def _recall(w: World) -> None:
    offset = w.store.put("Later", b"x", deliver_at=int(time.time() * 1000) + FAR_MS).offset
    w.store.wait_dispatched(0.2)
    w.store.recall(w.store.recall_handle(offset))


def _consume(w: World) -> None:
    w.poll()
    w.store.offsets.flush()


def _retry(w: World) -> None:
    w.put()
    w.store.wait_dispatched(0.2)
    if batch := w.consumer.poll(1, timeout=0):
        w.seen |= {bytes(m.body) for m in batch}
        w.consumer.retry(next(iter(batch)), delay_level=1)
        batch.ack()


def _transaction(end: str) -> Callable[[World], Any]:
    def call(w: World) -> Any:
        return getattr(w.store.prepare("X", b"half", group="P"), end)()
    return call


def _dispatcher(w: World) -> None:
    w.store.add_dispatcher("d", lambda messages: None)
    w.store.remove_dispatcher("d", forget=True)


def _subscribe(w: World) -> None:
    with w.store.subscribe("T", 0, offset=0, timeout=0) as found:
        next(iter(found), None)


def _delete(w: World) -> None:
    with contextlib.suppress(RmqStoreError):
        w.store.put("Gone", b"x" * 3000, keys="gone")
    w.store.delete_topics("Gone")


def _by_id(w: World) -> None:
    first = next(iter(w.store.scan("T", 0)), None)
    if first is not None:
        w.store.message_by_id(first.msg_id)
        w.store.message_at(first.offset)


CALLS: dict[str, Callable[[World], Any]] = {
    "put": lambda w: [w.put(queue_id=w.made % 3) for _ in range(30)],
    "put, a new topic": lambda w: w.store.put(f"N{w.body().decode()}", b"x", keys="new"),
    "put, a delay level": lambda w: w.store.put("D", b"x", delay_level=1),
    "put, a timer": lambda w: w.store.put("Later", b"x", deliver_at=int(time.time() * 1000) + 300),
    "put, a large one": lambda w: [w.put(properties={"p": "x" * 5000}) for _ in range(20)],
    "put_async": _put_async,
    "put_batch": lambda w: w.store.put_batch("B", BATCH),
    "put_inner_batch": lambda w: w.store.put_inner_batch("I", BATCH),
    "put_many": lambda w: w.store.put_many("M", _batch(w)),
    "recall": _recall,
    "prepare": _transaction("commit"), "transaction": _transaction("rollback"),
    "transactions": lambda w: w.store.transactions(),
    "flush": lambda w: w.store.flush(),
    "wait_dispatched": lambda w: w.store.wait_dispatched(0.1),
    "consumer": _consume, "consumer, a retry": _retry,
    "offsets": lambda w: (w.store.offsets.commit("G2", "T", 0, 1), w.store.offsets.flush()),
    "reset_offset": lambda w: w.store.reset_offset("G3", "T", offset=0),
    "lag": lambda w: w.store.lag(), "group_stats": lambda w: w.store.group_stats(),
    "get": lambda w: w.store.get("T", 0, 0), "scan": lambda w: list(w.store.scan()),
    "query_key": lambda w: list(w.store.query_key("T", "k1")),
    "message_by_unique_key": lambda w: w.store.message_by_unique_key("T", "none"),
    "message_by_id": _by_id,
    "offset_by_time": lambda w: w.store.offset_by_time("T", 0, 0),
    "earliest_time": lambda w: w.store.earliest_time("T", 0),
    "estimate_message_count": lambda w: w.store.estimate_message_count("T", 0, 0, 10),
    "log_records": lambda w: list(w.store.log_records()), "log_bytes": lambda w: w.store.log_bytes(0),
    "raw_entry": lambda w: w.store.raw_entry("T", 0, 0),
    "subscribe": _subscribe, "add_dispatcher": _dispatcher, "dispatchers": lambda w: w.store.dispatchers(),
    "timers": lambda w: list(w.store.timers()), "delay_levels": lambda w: w.store.delay_levels(),
    "delete_topics": _delete, "clean": lambda w: w.store.clean(1000), "cleanable": lambda w: w.store.cleanable(1000),
    "clean_expired_queues": lambda w: w.store.clean_expired_queues(),
    "clean_unused_topics": lambda w: w.store.clean_unused_topics(w.store.topics()),
    "compact": lambda w: w.store.compact(), "compaction_states": lambda w: w.store.compaction_states(),
    "backup": lambda w: w.store.backup(w.place / f"b{w.body().decode()}"), "scrub": lambda w: w.store.scrub(),
    "check_self": lambda w: w.store.check_self(), "runtime_info": lambda w: w.store.runtime_info(),
    "stats": lambda w: w.store.stats(), "replicas": lambda w: w.store.replicas(),
    "reconfigure": lambda w: w.store.reconfigure(retention_hours=72),
    "dump_threads": lambda w: w.store.dump_threads(),
}
OTHERS = {      # public names that are no call of a running store, or touch memory alone
    "add_arriving_listener", "remove_arriving_listener", "add_put_hook", "remove_put_hook", "put_hooks", "batch_topics",
    "broker_stats", "stats_item", "stats_items", "histograms", "checkpoint_fd", "closed", "close", "confirm",
    "consumer_filters", "cut_bytes", "disk_full", "ext_unit", "group_table", "in_use", "leases", "max_log_offset",
    "max_offset", "min_log_offset",
    "min_offset", "message_at", "needs_recovery", "on_check", "open", "open_begun", "options", "page_cache_busy", "path",
    "queues", "readonly", "recall_handle", "remove_dispatcher", "replication", "running_flags", "set_fenced", "set_readable",
    "set_writeable", "table", "topic_counts", "topic_table", "topics", "total", "transaction_by_id", "wait_for_message",
    "writer_pid"}
