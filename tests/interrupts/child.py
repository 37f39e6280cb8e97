"""What a child of fork does with what its parent has open: everything. Each call raises ForkedProcess, or is harmless."""
import asyncio
import gc
from collections.abc import Callable, Iterator
from typing import Any

from rmq_store import MessageStore
from rmq_store.errors import ForkedProcess


def calls(store: MessageStore, things: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any], bool]]:
    """(name, call, whether it must raise ForkedProcess)."""
    batch = bytes.fromhex("00000017 00000000 00000000 00000000 00000001 78 0000")
    for name, call in {
            "put": lambda: store.put("T", b"x"), "put_many": lambda: store.put_many("T", [b"x"]),
            "put_batch": lambda: store.put_batch("T", batch), "put_async": lambda: store.put_async("T", b"x"),
            "get": lambda: store.get("T", 0, 0), "get wait": lambda: store.get("T", 0, 99, wait=60),
            "wait_for_message": lambda: store.wait_for_message("T", 0, 99), "query_key": lambda: store.query_key("T", "k"),
            "message_at": lambda: store.message_at(0), "scan": lambda: next(store.scan()),
            "log_records": lambda: next(store.log_records()), "log_bytes": lambda: store.log_bytes(0),
            "flush": store.flush, "wait_dispatched": store.wait_dispatched, "stats": store.stats, "lag": store.lag,
            "histograms": store.histograms, "topic_counts": store.topic_counts, "group_stats": store.group_stats,
            "broker_stats": store.broker_stats, "runtime_info": store.runtime_info, "dump_threads": store.dump_threads,
            "check_self": store.check_self, "delay_levels": store.delay_levels, "scrub": store.scrub,
            "confirm": lambda: store.confirm(0), "reconfigure": lambda: store.reconfigure(flush_deadline_ms=7000),
            "add_arriving_listener": lambda: store.add_arriving_listener(id), "consumer": lambda: store.consumer("H", "T"),
            "offsets": lambda: store.offsets, "topic_table": lambda: store.topic_table,
            "group_table": lambda: store.group_table,
            "reset_offset": lambda: store.reset_offset("G", "T", offset=0), "clean": lambda: store.clean(0),
            "cleanable": lambda: store.cleanable(0), "clean_expired_queues": store.clean_expired_queues,
            "delete_topics": lambda: store.delete_topics("T"), "clean_unused_topics": lambda: store.clean_unused_topics([]),
            "topics": store.topics, "queues": lambda: store.queues("T"), "min_offset": lambda: store.min_offset("T", 0),
            "max_offset": lambda: store.max_offset("T", 0), "total": lambda: store.total("T", 0),
            "earliest_time": store.earliest_time, "offset_by_time": lambda: store.offset_by_time("T", 0, 0),
            "min_log_offset": lambda: store.min_log_offset, "close": store.close}.items():
        yield name, call, True
    yield "remove_arriving_listener", lambda: store.remove_arriving_listener(id), False
    yield "closed", lambda: (store.closed, store.leases, store.options, store.path, repr(store)), False
    yield "with", lambda: store.__exit__(None, None, None), False
    for name, thing in things.items():
        yield from _thing(name, thing)


def _thing(name: str, thing: Any) -> Iterator[tuple[str, Callable[[], Any], bool]]:
    if name == "offsets":
        for call in (lambda: thing.commit("G", "T", 0, 9), lambda: thing.query("G", "T", 0),
                     thing.table, thing.groups, thing.flush):
            yield "offsets", call, True
    elif name in ("topics", "groups"):
        for call in (lambda: thing.set("X"), lambda: thing.add("X"), lambda: thing.remove("T"), thing.names, thing.flush):
            yield name, call, True
    elif name == "consumer":
        for call in (lambda: thing.poll(timeout=60), thing.close, lambda: next(iter(thing))):
            yield name, call, name != "consumer"        # one that is closed says so
        yield "with consumer", lambda: thing.__exit__(None, None, None), False
    elif name == "batch":
        yield "ack", thing.ack, False
        yield "retry", lambda: thing.retry(thing[0]), True
    elif name == "future":
        yield name, lambda: (thing.done(), thing.result(60)), False
        yield "callback", lambda: thing.add_done_callback(id), False
    elif name == "walk":
        yield name, lambda: next(thing), False
    elif "message" in name:
        yield name, lambda: (bytes(thing.body), thing.topic, thing.properties, thing.raw, thing.msg_id, thing.inflated(),
                             repr(thing), thing.body_crc_ok), False
    elif "view" in name:
        yield name, lambda: bytes(thing), False
    elif "result" in name:
        yield name, lambda: [bytes(m) for m in thing], False
    elif name == "aio":
        for coroutine in (lambda: thing.put("T", b"x"), lambda: thing.get("T", 0, 0, wait=60), thing.flush, thing.close,
                          lambda: thing.wait_for_message("T", 0, 99), thing.stats):
            yield name, lambda c=coroutine: asyncio.new_event_loop().run_until_complete(c()), True
    elif name == "subscription":
        yield name, lambda: asyncio.new_event_loop().run_until_complete(thing.__anext__()), False
        yield name, thing.close, False
    elif name == "async consumer":
        yield name, lambda: asyncio.new_event_loop().run_until_complete(thing.poll(timeout=60)), False


def try_everything(store: MessageStore, things: dict[str, Any], elsewhere: str, options: dict[str, Any]) -> list[str]:
    """What is wrong: [] nothing."""
    wrong = []
    for name, call, must in calls(store, dict(things)):
        try:
            call()
            if must:
                wrong.append(f"{name} did not raise")
        except ForkedProcess:
            pass
        except Exception as error:
            if must or not isinstance(error, ValueError | RuntimeError | StopIteration):
                wrong.append(f"{name}: {type(error).__name__}: {error}")
    things.clear()
    gc.collect()
    with MessageStore.open(elsewhere, **options) as own:        # a store of its own, whatever the parent's was doing
        if own.put("T", b"mine", wait=True).queue_offset != 0:
            wrong.append("a store of the child's own does not work")
        own.offsets.commit("G", "T", 0, 1)
        own.offsets.flush()
    return wrong
