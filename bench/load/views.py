"""What a message costs a reader: as a view, with its body looked at, with its body copied, and copied whole.

Pulls of 32 through one queue, again and again, from the page cache; the ways take turns. A figure is the median of --rounds,
with the fastest beside it: what others do on the machine can only add.

    python -m bench.load.views --out bench/results/views-TIME.json
"""
import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.access.reader._get import GetResult
from rmq_store.bench import messages
from rmq_store.bench.runner import scratch

PULL = 32
BODIES = {100: 64 << 20, 1024: 256 << 20, 65536: 512 << 20}     # body's bytes: the log's


def _views(result: GetResult) -> None:
    for _ in result:
        pass


def _bodies(result: GetResult) -> None:
    for message in result:
        message.body    # noqa: B018  made, and let go of


def _copied_bodies(result: GetResult) -> None:
    for message in result:
        bytes(message.body)


def _copies(result: GetResult) -> None:
    for message in result:
        message.copy()


WAYS: dict[str, Callable[[GetResult], None]] = {
    "views": _views, "bodies": _bodies, "copied_bodies": _copied_bodies, "copies": _copies}


def _ns(store: MessageStore, way: Callable[[GetResult], None], count: int) -> float:
    """ns a message of one walk through the queue."""
    get, offset = store.get, 0
    begun = time.perf_counter_ns()
    while offset < count:
        result = get(messages.TOPIC, 0, offset, PULL, max_bytes=1 << 30)
        way(result)
        offset = result.next_offset
    return (time.perf_counter_ns() - begun) / count


def measure(base: Path, body: int, log_bytes: int, rounds: int) -> dict[str, Any]:
    count = log_bytes // (body + 100)
    with MessageStore.open(base / str(body), segment_size_bytes=1 << 30, get_bytes_max_memory=1 << 30,
                           index_enabled=False) as store:
        for begin in range(0, count, 1024):
            store.put_many(messages.TOPIC, [bytes(body)] * min(1024, count - begin))
        store.wait_dispatched()
        took: dict[str, list[float]] = {name: [] for name in WAYS}
        for i in range(rounds + 1):
            for name, way in WAYS.items():
                ns = _ns(store, way, count)
                if i > 0:           # the first one brings pages and caches in
                    took[name].append(ns)
    row: dict[str, Any] = {"bench": "views", "body": body, "pull": PULL, "rounds": rounds, "messages": count}
    for what, choose in (("ns_a_message", statistics.median), ("fastest_ns", min)):
        row[what] = {name: round(choose(all_ns), 1) for name, all_ns in took.items()}
    return row | {"to_views": {name: round(ns / row["ns_a_message"]["views"], 2) for name, ns in row["ns_a_message"].items()}}


def main(argv: list[str] | None = None) -> None:
    args: argparse.Namespace = parser(__doc__, rounds=9).parse_args(argv)
    rows = []
    with scratch(args.dir) as base:
        for body, log_bytes in BODIES.items():
            rows.append(measure(base, body, log_bytes >> (8 if args.quick else 0), 1 if args.quick else args.rounds))
            report(rows[-1])
    ways = [{"body": row["body"], "way": way, "ns_per_msg": ns, "fastest_ns": row["fastest_ns"][way]} for row in rows
            for way, ns in row["ns_a_message"].items()]
    keep(args, ways, lambda r: (f"views_{r['body']}", r["way"]), rows)


if __name__ == "__main__":
    main()
