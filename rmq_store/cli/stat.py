"""`rmqstore stat`: what a store holds and how far it is flushed and dispatched. Read-only, beside a running writer."""
import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from rmq_store.cli.common import FINDINGS, FINE, open_store, store_arguments
from rmq_store.cli.output import Output
from rmq_store.codec.layout import time_text


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("-t", "--topic", help="only the queues of this topic")


def run(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=True) as store:
        stats = plain(store.stats())
        queues = [_queue(store, topic, queue_id) for topic in sorted(store.topics()) if args.topic in (None, topic)
                  for queue_id in sorted(store.queues(topic))]
        delays = store.delay_levels()
    if out.as_json:
        out.record({"kind": "store", "path": args.store, **stats})
        for queue in queues:
            out.record({"kind": "queue", **queue})
        for level in delays:
            out.record({"kind": "delay_level", **level._asdict()})
    else:
        width = max(map(len, stats), default=0)
        for name, value in stats.items():
            out.line(f"{name.ljust(width)}  {value}")
        if queues:
            out.line()
            out.table(("topic", "queue", "min", "max", "messages", "oldest"), [
                (q["topic"], q["queue_id"], q["min_offset"], q["max_offset"], q["messages"],
                 "" if q["earliest_time"] is None else time_text(q["earliest_time"])) for q in queues])
        if delays:
            out.line()
            out.table(("delay level", "seconds", "delivered", "waiting"), [
                (level.level, level.delay_ms / 1000, level.offset, level.waiting) for level in delays])
    return FINDINGS if stats.get("needs_recovery") else FINE


def _queue(store: Any, topic: str, queue_id: int) -> dict[str, Any]:
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    earliest = store.earliest_time(topic, queue_id)
    return {"topic": topic, "queue_id": queue_id, "min_offset": low, "max_offset": high, "messages": high - low,
            "earliest_time": earliest if earliest >= 0 else None}


def plain(stats: Any) -> dict[str, Any]:
    """Statistics as a dict, whatever record type they come in."""
    if isinstance(stats, Mapping):
        return dict(stats)
    if dataclasses.is_dataclass(stats) and not isinstance(stats, type):
        return dataclasses.asdict(stats)
    return dict(stats._asdict())
