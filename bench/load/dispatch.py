"""Dispatch alone: a log whose queues and index are lost is dispatched again, by the thread that opens the store.

Only the building of queues and index is timed, not the scan before it and not the sync behind it. Every repetition is a
process of its own, on files that are in the page cache. parse_share: how much of this CPU time goes into parsing the records,
as a scan of the same log takes it: that is all that a second thread which parses could save.

    python -m bench.load.dispatch --props full --n 2000000
"""
import argparse
import os
import shutil
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.access.core import _building
from rmq_store.bench import messages
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch

NEVER = 1 << 62


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
    took: list[float] = []
    cpu, parsing = 0.0, 0.0
    catch_up = _building.catch_up

    def timed(store: Any, *given: Any) -> int:
        nonlocal cpu, parsing
        log = _building.log_recovery(store)
        begun = time.thread_time()
        for file in log.starts():
            log.scan(file, queued_until=NEVER, flushed_until=NEVER, flushed_end=NEVER, torn=False, check_crc=False,
                     crc_property=False)
        parsing += time.thread_time() - begun
        start, begun = time.perf_counter(), time.thread_time()
        lacking_from = catch_up(store, *given)
        took.append(time.perf_counter() - start)
        cpu += time.thread_time() - begun
        return lacking_from

    # a process of its own: nobody else sees this
    _building.catch_up = timed                                                              # type: ignore[assignment]
    with MessageStore.open(path) as store:
        messages_there = sum(store.max_offset(messages.TOPIC, q) for q in range(messages.QUEUES))
        return {"seconds": sum(took), "parse_share": round(parsing / cpu, 3), "messages": messages_there}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, n=2_000_000, body=100, props="lean", reps=3)
    args = p.parse_args(argv)
    if args.quick:
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
    rows = [{"bench": "dispatch", "n": written, "body": args.body, "props": args.props, "seconds": round(r["seconds"], 4),
             "dispatched_per_s": round(written / r["seconds"]), "parse_share": r["parse_share"]} for r in runs]
    report(sorted(rows, key=lambda r: r["seconds"])[len(rows) // 2])
    keep(args, rows, lambda r: (f"dispatch_{r['props']}", "rmq_store"))


if __name__ == "__main__":
    main()
