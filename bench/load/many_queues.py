"""What very many topics cost, one queue and a few messages each: to make, to close, to open, to list; and after a crash.

Each step is a process of its own. What lies on the disk is in the page cache; the first open after a start of the machine waits
for the disk, three small reads a queue. `dispatch_us` is from the first put until all can be read, for each topic.

    python -m bench.load.many_queues --topics 100000
    python -m bench.load.many_queues --topics 20000 --other DIR     # in turns with another checkout, built
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch
from rmq_store.cli.main import main as rmqstore

MINE = Path(__file__).resolve().parents[2]


def _fill(path: Path, topics: int, messages: int) -> tuple[MessageStore, float]:
    store = MessageStore.open(path)
    begin = time.perf_counter()
    for number in range(messages):
        for i in range(topics):
            store.put(f"topic-{i:06d}", b"%d" % number)
    store.wait_dispatched()
    return store, time.perf_counter() - begin


def _made(path: Path, topics: int, messages: int) -> dict[str, Any]:
    store, took = _fill(path, topics, messages)
    begin = time.perf_counter()
    store.close()
    return {"dispatch_us": round(took / topics * 1e6, 1), "close_s": round(time.perf_counter() - begin, 3)}


def _crashed(path: Path, topics: int, messages: int) -> None:
    _fill(path, topics, messages)
    os._exit(0)         # as a kill does


def _opened(path: Path, crash: bool) -> dict[str, Any]:
    begin = time.perf_counter()
    store = MessageStore.open(path)
    opened = time.perf_counter()
    store.close()
    took = {"crash_open_s" if crash else "open_s": round(opened - begin, 3)}
    return took if crash else took | {"idle_close_s": round(time.perf_counter() - opened, 3),
                                      "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def _stat(path: Path) -> dict[str, Any]:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    begin = time.perf_counter()
    rmqstore(["stat", str(path)])
    return {"stat_s": round(time.perf_counter() - begin, 3)}


def _row(args: argparse.Namespace) -> dict[str, Any]:
    with scratch(args.dir) as base:
        row = in_child(_made, base / "store", args.topics, args.messages)
        row |= in_child(_opened, base / "store", False)
        row |= in_child(_stat, base / "store")
    with scratch(args.dir) as base:
        child = os.fork()
        if child == 0:
            _crashed(base / "store", args.topics, args.messages)
        os.waitpid(child, 0)
        row |= in_child(_opened, base / "store", True)
    return row


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, topics=100_000, messages=1, reps=3)
    p.add_argument("--other", type=Path, help="another checkout, in turns")
    args = p.parse_args(argv)
    if args.quick:
        args.topics, args.reps = 600, 1
    rows: list[dict[str, Any]] = []
    for _ in range(args.reps):
        if args.other is not None:
            command = [sys.executable, __file__, "--topics", str(args.topics), "--messages", str(args.messages), "--reps", "1",
                       "--dir", str(args.dir)]
            path = os.pathsep.join((str(args.other.resolve()), str(MINE)))
            out = subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path}, cwd="/", stdout=subprocess.PIPE)
            rows.append(json.loads(out.stdout) | {"checkout": "other"})
            report(rows[-1])
        rows.append({"bench": "many_queues", "checkout": "this", "topics": args.topics, **_row(args)})
        report(rows[-1])
    keep(args, rows, lambda r: (f"many_queues_{r['topics']}", r["checkout"]))


if __name__ == "__main__":
    main()
