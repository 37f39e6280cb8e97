"""How long everybody who waits for a sync takes to learn that it failed, by the clock.

`--waiters` threads put durably, and as many futures of put_async are asked by one thread. The sync that is to cover them is
held until all are on their way, then let go and made to fail with EIO. The time counts from the end of the failed call, as the
I/O table that records calls saw it, until a thread has its exception in Python. One store a round; the fence is final.

    python -m bench.load.fence --waiters 64 --rounds 20
"""
import argparse
import errno
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.bench.runner import scratch

GOAL_MS = 100.0
SYNCS = "msync|fdatasync|ring_sync"
# name -> options, and the calls that make the log durable
BACKENDS: dict[str, tuple[dict[str, Any], str]] = {
    "msync (mmap)": ({"write_path": "mmap", "flush_backend": "msync"}, SYNCS),
    "fdatasync (mmap)": ({"write_path": "mmap", "flush_backend": "fdatasync"}, SYNCS),
    "fdatasync (pool)": ({"write_path": "pool", "flush_backend": "fdatasync"}, SYNCS),
    "io_uring (pool)": ({"write_path": "pool", "flush_backend": "io_uring", "uring_durability": "fdatasync"}, SYNCS),
    "io_uring, RWF_DSYNC (pool)": ({"write_path": "pool", "flush_backend": "io_uring", "uring_durability": "dsync",
                                    "segment_prezero": "off"}, "pwrite|ring_write"),
}
SMALL = {"segment_size_bytes": 1 << 20, "index_enabled": False, "message_size_max_bytes": 60_000, "flush_mode": "sync",
         "flush_deadline_ms": 60_000}


def one_round(root: Path, options: dict[str, Any], kinds: str, waiters: int) -> dict[str, Any]:
    """Times in ns after the failed call: of the first and the last thread, of the last future; and what went another way."""
    probe = ProbeIo(keep_bytes=False)
    store = MessageStore.open(root, _io=probe, **SMALL, **options)
    told, other = [0] * waiters, []
    clock = time.perf_counter_ns

    def produce(number: int) -> None:
        try:
            other.append(store.put("Fence", b"x" * 100, queue_id=number % 8).status.name)
        except errors.DurabilityError as error:
            told[number] = clock()
            if error.errno != errno.EIO:
                other.append(f"errno {error.errno}")

    try:
        store.put("Fence", b"first")
        probe.hold(kinds, "/commitlog/")
        probe.fail(kinds, 1, errno.EIO, "/commitlog/")
        threads = [threading.Thread(target=produce, args=(i,)) for i in range(waiters)]
        for t in threads:
            t.start()
        probe.wait_held()
        while store.stats()["puts"] < 1 + waiters:
            time.sleep(0.001)
        futures = [store.put_async("Fence", b"x" * 100, wait=True) for _ in range(waiters)]
        time.sleep(0.05)                # those who have put are asleep by now
        mark = len(probe.trace())
        probe.release()
        for future in futures:
            try:
                other.append(future.result(60).status.name)
            except errors.DurabilityError:
                pass
        asked = clock()
        for t in threads:
            t.join()
        failed = next(c.time_ns for c in probe.trace(mark) if c.result == -errno.EIO)
    finally:
        probe.release()
        try:
            store.close()
        except errors.DurabilityError:
            pass                        # it must: the fence is up
    return {"first": min(told) - failed, "last": max(told) - failed, "futures": asked - failed, "other": other}


def run(args: argparse.Namespace, base: Path) -> list[dict[str, Any]]:
    rows = []
    for name, (options, kinds) in BACKENDS.items():
        row: dict[str, Any] = {"bench": "fence", "backend": name, "waiters": args.waiters, "rounds": args.rounds}
        try:
            found = [one_round(base / f"{len(rows)}-{i}", options, kinds, args.waiters) for i in range(args.rounds)]
        except errors.BackendUnavailable as why:
            rows.append({**row, "missing": str(why)})
            continue
        for what in ("first", "last", "futures"):
            times = [f[what] / 1e6 for f in found]
            row |= {f"{what}_ms": round(statistics.median(times), 3), f"{what}_ms_max": round(max(times), 3)}
        # What is not the error is a lie (an acknowledgement) or comes late: none may be.
        row["other"] = sorted({o for f in found for o in f["other"]})
        row["within_goal"] = max(row["last_ms_max"], row["futures_ms_max"]) <= GOAL_MS and not row["other"]
        rows.append(row)
    return rows


def main(argv: list[str] | None = None) -> None:
    args = parser(__doc__, waiters=64, rounds=20).parse_args(argv)
    if args.quick:
        args.waiters, args.rounds = 8, 1
    with scratch(args.dir) as base:
        rows = run(args, base)
    for row in rows:
        report(row)
    keep(args, rows, lambda r: ("fence", r["backend"]))


if __name__ == "__main__":
    main()
