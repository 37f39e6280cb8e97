"""Reading a store just written, all in the page cache: pulls of 32, queries by key, the raw log.

The store holds --n messages with full properties in four queues. `views` makes the message views, `bodies`
also a memoryview of every body; `decoded` copies it and decodes tags, keys and properties, which is what the real store's
decoded pull does.

    python -m bench.load.read --body 1024 --n 400000
"""
import argparse
import operator
import random
import time
from pathlib import Path
from typing import Any

from bench import workload
from bench.histogram import Histogram
from rmq_store import MessageStore

PULL = 32


def _pull(store: MessageStore, look: str, seconds: float) -> dict[str, Any]:
    """Pulls through all queues, again and again. look: at nothing but the views ("views"), at each body as a memoryview
    ("bodies"), or at a copy of each body and all fields ("decoded")."""
    clock, get, times, count = time.perf_counter_ns, store.get, Histogram(), 0
    body, all_fields = operator.attrgetter("body"), operator.attrgetter("tags", "keys", "properties")
    start = clock()
    while clock() - start < seconds * 1e9:
        for queue in range(workload.QUEUES):
            offset, end = 0, store.max_offset(workload.TOPIC, queue)
            while offset < end:
                before = clock()
                result = get(workload.TOPIC, queue, offset, PULL)
                if look == "decoded":
                    for message in result:
                        bytes(message.body)
                        all_fields(message)
                        count += 1
                elif look == "bodies":
                    for message in result:
                        body(message)
                        count += 1
                else:
                    for _ in result:
                        count += 1
                times.add(clock() - before)
                offset = result.next_offset
    took = clock() - start
    return {"msgs_per_s": round(count * 1e9 / took), "ns_per_msg": round(times.quantile(.5) / PULL, 1),
            **{"pull_" + k: v for k, v in times.figures().items()}}


def _query(store: MessageStore, keys: list[str], seconds: float) -> dict[str, Any]:
    """One key at a time, in random order."""
    clock, query, times, hits = time.perf_counter_ns, store.query_key, Histogram(), 0
    rng = random.Random(7)
    start = clock()
    while clock() - start < seconds * 1e9:
        key = keys[rng.randrange(len(keys))]
        before = clock()
        result = query(workload.TOPIC, key)
        times.add(clock() - before)
        hits += len(list(result))
    return {**times.figures(), "hits_per_query": round(hits / times.count, 2)}


def run(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    with MessageStore.open(base / "store") as store:
        workload.write(store, "full", args.body, args.n)
        workload.drain(store)
        count = min(args.n, workload.POOL)
        figures: dict[str, Any] = {}
        for look in ("views", "bodies", "decoded"):
            _pull(store, look, min(0.2, args.seconds))
            figures[look] = _pull(store, look, args.seconds)
        # with no more than POOL messages every key has one hit
        figures["query_keys"] = _query(store, [f"order-{100000 + i}" for i in range(count)], args.seconds)
        figures["query_uniq_key"] = _query(store, [workload.unique_id(i) for i in range(count)], args.seconds)
    return figures


def main(argv: list[str] | None = None) -> None:
    p = workload.parser(__doc__, body=1024, n=400_000, seconds=1.5)
    args = p.parse_args(argv)
    if args.smoke:
        args.n, args.seconds = 5000, 0.1
    with workload.scratch(args.dir) as base:
        workload.report({"bench": "read", "body": args.body, "n": args.n, **run(args, base)})


if __name__ == "__main__":
    main()
