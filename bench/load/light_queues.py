"""What very many light queues cost that nobody uses, one message each: memory, descriptors, disk; to open, and to list.

Each step is a process of its own. Memory is anonymous memory of the process (RssAnon), less that of the same process with a
store of few light queues. `made`: right after the puts, when the queues are not synced yet, and after a flush of all, at rest.
`opened`: in a process that opens the store. What lies on the disk is in the page cache.

    python -m bench.load.light_queues --queues 100000
"""
import argparse
import gc
import os
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench.children import in_child
from rmq_store.bench.runner import scratch
from rmq_store.cli.main import main as rmqstore

AT_ONCE = 50                # light queues of one message
OPTIONS: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True, "lmq_count_max": 10_000_000,
                           "consumequeue_flush_interval_max_ms": 1000, "segment_size_bytes": 1 << 26}


def _memory() -> int:
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _warm(path: Path) -> None:
    with MessageStore.open(path, **OPTIONS) as store:
        _put(store, "few", 1000)
        store.get("%LMQ%few-1", 0, 0)


def _put(store: MessageStore, name: str, queues: int) -> None:
    for first in range(0, queues, AT_ONCE):
        store.put("devices", b"x", light_queues=[f"{name}-{i:06d}" for i in range(first, min(first + AT_ONCE, queues))])
    store.wait_dispatched()


def _wait_until_synced() -> None:
    # The checkpoint thread does it, once a second here; memory stays the same when it is through.
    same, before = 0, -1
    while same < 6:
        time.sleep(0.5)
        now = _memory()
        same = same + 1 if abs(now - before) < 1 << 18 else 0
        before = now


def _made(base: Path, queues: int) -> dict[str, Any]:
    _warm(base / "few")
    with MessageStore.open(base / "store", **OPTIONS) as store:
        _put(store, "few", 1000)
        memory, descriptors = _memory(), _descriptors()
        begin = time.perf_counter()
        _put(store, "lamp", queues)
        took = time.perf_counter() - begin
        row = {"dispatch_us": round(took / queues * 1e6, 1), "unsynced_bytes": (_memory() - memory) / queues}
        _wait_until_synced()
        return {"made": row | {"bytes": (_memory() - memory) / queues, "descriptors": _descriptors() - descriptors}}


def _opened(base: Path, queues: int) -> dict[str, Any]:
    with MessageStore.open(base / "few", **OPTIONS):
        memory, descriptors = _memory(), _descriptors()
    begin = time.perf_counter()
    with MessageStore.open(base / "store", **OPTIONS) as store:
        took = time.perf_counter() - begin
        row = {"open_s": round(took, 3), "bytes": (_memory() - memory) / queues, "descriptors": _descriptors() - descriptors}
        begin = time.perf_counter()
        for i in range(0, queues, max(queues // 1000, 1)):
            assert len(store.get(f"%LMQ%lamp-{i:06d}", 0, 0)) == 1
        return {"opened": row | {"get_us": round((time.perf_counter() - begin) * 1e6 / min(queues, 1000), 1),
                                 "bytes_after_gets": (_memory() - memory) / queues,
                                 "descriptors_after_gets": _descriptors() - descriptors}}


def _stat(base: Path) -> dict[str, Any]:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    begin = time.perf_counter()
    rmqstore(["stat", str(base / "store")])
    return {"stat_s": round(time.perf_counter() - begin, 3)}


def _on_disk(base: Path, queues: int) -> dict[str, Any]:
    used = sum(os.lstat(os.path.join(where, name)).st_blocks * 512
               for where, names, files in os.walk(base / "store" / "consumequeue") for name in names + files)
    return {"disk_bytes": used / queues}


def main(argv: list[str] | None = None) -> None:
    args: argparse.Namespace = (p := parser(__doc__, queues=100_000, reps=1)).parse_args(argv)
    if args.quick:
        args.queues = 2000
    if args.queues < 2000:
        p.error("--queues: give 2000 or more; fewer say nothing about one")
    rows = []
    for _ in range(args.reps):
        with scratch(args.dir) as base:
            row = in_child(_made, base, args.queues) | in_child(_opened, base, args.queues) | in_child(_stat, base)
            rows.append({"bench": "light_queues", "queues": args.queues, **row, **_on_disk(base, args.queues)})
        report(rows[-1])
    keep(args, rows, lambda r: (f"light_queues_{r['queues']}", "ours"))


if __name__ == "__main__":
    main()
