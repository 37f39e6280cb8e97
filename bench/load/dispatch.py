"""Dispatch alone: a log whose queues and index are lost is dispatched again, by the thread that opens the store.

Only the building of queues and index is timed, not the scan before it and not the sync behind it. Every repetition is a
process of its own, on files that are in the page cache.

    python -m bench.load.dispatch --props full --n 2000000
"""
import argparse
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from bench.load.driver import parser, report
from rmq_store import MessageStore
from rmq_store.bench import messages
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch


class TimedStore(MessageStore):
    """Notes how long the open spent in dispatch."""

    dispatch_seconds = 0.0

    def _catch_up(self, end: int, begin: int, filling: bool) -> int:
        start = time.perf_counter()
        lacking_from = super()._catch_up(end, begin, filling)
        self.dispatch_seconds += time.perf_counter() - start
        return lacking_from


def _write(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    with MessageStore.open(path) as store:
        messages.write(store, args.props, args.body, args.n)
        messages.drain(store)
        return {"messages": sum(store.max_offset(messages.TOPIC, q) for q in range(messages.QUEUES))}


def _lose_queues(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index", ignore_errors=True)
    (path / "checkpoint").unlink()
    os.sync()


def _dispatch(path: Path) -> dict[str, Any]:
    with TimedStore.open(path) as store:
        return {"seconds": store.dispatch_seconds,
                "messages": sum(store.max_offset(messages.TOPIC, q) for q in range(messages.QUEUES))}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, n=2_000_000, body=100, props="lean", reps=3)
    args = p.parse_args(argv)
    if args.smoke:
        args.n, args.reps = 20_000, 1
    runs = []
    with scratch(args.dir) as base:
        path = base / "store"
        written = in_child(_write, path, args)["messages"]
        for _ in range(args.reps):
            _lose_queues(path)
            runs.append(in_child(_dispatch, path))
    if any(r["messages"] != written for r in runs):
        raise RuntimeError(f"{written} messages written, dispatched: {[r['messages'] for r in runs]}")
    seconds = statistics.median(r["seconds"] for r in runs)
    report({"bench": "dispatch", "n": written, "body": args.body, "props": args.props, "seconds": round(seconds, 4),
                     "dispatched_per_s": round(written / seconds)})


if __name__ == "__main__":
    main()
