"""Synchronous puts: what one costs beside the bare system calls, and how many share a sync.

--mode single   one producer, in turns with a bare C loop of pwrite + fdatasync in the same pre-zeroed file (bare_sync.c).
                The store's rounds append at its end; the bare rounds write zeros into the zeros far behind it.
--mode threads  so many Python threads, each waiting for its own put.
--mode async    one thread with --window puts under way through put_async.
--mode asyncio  --window tasks that await put_async.

    python -m bench.load.sync --mode single --body 1024
"""
import argparse
import asyncio
import statistics
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from bench import workload
from bench.histogram import Histogram
from bench.machine import Watch
from rmq_store import MessageStore

HERE = Path(__file__).parent
FILE_SIZE = 256 << 20


def _open(path: Path, args: argparse.Namespace, **more: Any) -> MessageStore:
    return MessageStore.open(path, flush_mode="sync", write_path=args.write_path, flush_backend=args.flush_backend,
                             segment_size_bytes=FILE_SIZE, **more)


def single(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    """Rounds of puts and of the bare loop, alternating."""
    program = base / "bare_sync"
    subprocess.run(["cc", "-O2", "-Wall", "-o", program, HERE / "bare_sync.c"], check=True)
    clock, ours, bare = time.perf_counter_ns, [], []
    with _open(base / "store", args, segment_prezero="full") as store:
        size = workload.record_size(store, "lean", args.body)
        file = base / "store" / "commitlog" / f"{0:020d}"
        put, body = store.put, bytes(args.body)
        for i in range(args.rounds):
            durations = []
            for _ in range(args.round):
                before = clock()
                put(workload.TOPIC, body)
                durations.append(clock() - before)
            ours.append(durations)
            at = FILE_SIZE // 2 + i * args.round * size
            command = [str(program), str(file), str(at), str(size), str(args.round)]
            bare.append([int(line) for line in subprocess.check_output(command, text=True).split()])
    mine, theirs = Histogram(), Histogram()
    for k in range(args.rounds):
        mine.merge(Histogram(ours[k]))
        theirs.merge(Histogram(bare[k]))
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(ours, bare, strict=True)]
    return {"record_bytes": size, **mine.figures(), **{"bare_" + k: v for k, v in theirs.figures().items()},
            # exact medians: a bucket of the histogram is 3 % wide
            "median_us": statistics.median(n for r in ours for n in r) / 1e3,
            "bare_median_us": statistics.median(n for r in bare for n in r) / 1e3,
            "ratio": round(statistics.median(ratios), 4), "ratio_min": round(min(ratios), 4),
            "ratio_max": round(max(ratios), 4)}


def threads(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    """Each thread puts and waits."""
    histograms = [Histogram() for _ in range(args.threads)]
    with _open(base / "store", args) as store:
        workload.record_size(store, "lean", args.body)
        deadline = time.perf_counter_ns() + int(args.seconds * 1e9)

        def produce(k: int) -> None:
            put, clock, add, body = store.put, time.perf_counter_ns, histograms[k].add, bytes(args.body)
            before = clock()
            while before < deadline:
                put(workload.TOPIC, body, queue_id=k & 3)
                after = clock()
                add(after - before)
                before = after

        producers = [threading.Thread(target=produce, args=(k,)) for k in range(args.threads)]
        with Watch() as watch:
            for p in producers:
                p.start()
            for p in producers:
                p.join()
    total = Histogram()
    for h in histograms:
        total.merge(h)
    return {"msgs_per_s": round(total.count / watch.seconds), **total.figures(), **watch.figures()}


def window(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    """One thread keeps `window` puts under way."""
    count = 0
    under_way: deque[Any] = deque()
    with _open(base / "store", args) as store:
        workload.record_size(store, "lean", args.body)
        put, body, clock = store.put_async, bytes(args.body), time.perf_counter
        with Watch() as watch:
            deadline = clock() + args.seconds
            while clock() < deadline:
                while len(under_way) < args.window:
                    under_way.append(put(workload.TOPIC, body, queue_id=count & 3))
                    count += 1
                under_way.popleft().result(30)
                while under_way and under_way[0].done():
                    under_way.popleft().result()
            for future in under_way:
                future.result(30)
    return {"msgs_per_s": round(count / watch.seconds), **watch.figures()}


def tasks(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    """`window` asyncio tasks, each awaiting one put at a time."""
    count = 0
    with _open(base / "store", args) as store:
        workload.record_size(store, "lean", args.body)

        async def produce(deadline: float) -> None:
            nonlocal count
            put, body, clock = store.put_async, bytes(args.body), time.perf_counter
            while clock() < deadline:
                await put(workload.TOPIC, body)
                count += 1

        async def everybody() -> None:
            deadline = time.perf_counter() + args.seconds
            await asyncio.gather(*(produce(deadline) for _ in range(args.window)))

        with Watch() as watch:
            asyncio.run(everybody())
    return {"msgs_per_s": round(count / watch.seconds), **watch.figures()}


MODES = {"single": single, "threads": threads, "async": window, "asyncio": tasks}


def main(argv: list[str] | None = None) -> None:
    p = workload.parser(__doc__, write_path="mmap", flush_backend="auto", body=1024, seconds=2.5, threads=64,
                        window=512, rounds=20, round=300)
    p.add_argument("--mode", choices=MODES, default="single")
    args = p.parse_args(argv)
    if args.smoke:
        args.seconds, args.rounds, args.round, args.threads, args.window = 0.1, 2, 10, 8, 64
    with workload.scratch(args.dir) as base:
        figures = MODES[args.mode](args, base)
    names = ("mode", "write_path", "flush_backend", "body", "threads", "window")
    workload.report({"bench": "sync", **{k: getattr(args, k) for k in names}, **figures})


if __name__ == "__main__":
    main()
