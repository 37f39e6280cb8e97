"""Do puts notice that old files are deleted? The longest pauses of a producer while gibibytes go, and without.

A store of `--gib` is filled, closed, and opened again; then one producer puts at a fixed rate: in one of two stores nothing is
deleted meanwhile, in the other all files but the newest go, paced as by default. Rounds alternate. A file system mounted with
`discard` hands what is freed to the device, and in a virtual machine its host may stop all programs meanwhile; `--disk ext4`
makes one without (as root), so that what the store itself does to puts can be seen beside it.

    python -m bench.load.cleaning --gib 10 --rounds 3 --disk ext4
"""
import argparse
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import messages
from rmq_store.bench.disks import DISKS, made
from rmq_store.bench.loops import Pace, loops
from rmq_store.bench.runner import scratch


def _filled(path: Path, args: argparse.Namespace) -> None:
    with MessageStore.open(path, write_path=args.write_path, segment_size_bytes=args.segment_mib << 20) as store:
        size = messages.record_size(store, "lean", 1 << 16)
        messages.write(store, "lean", 1 << 16, int(args.gib * (1 << 30)) // size)
        messages.drain(store)


def _puts(path: Path, args: argparse.Namespace, clean: bool) -> dict[str, Any]:
    pauses = Histogram()
    done: list[Any] = []
    with MessageStore.open(path, write_path=args.write_path, segment_size_bytes=args.segment_mib << 20) as store:
        cleaner = threading.Thread(target=lambda: done.append(store.clean(0, pace_ms=args.pace_ms)))
        begun = time.perf_counter_ns()
        if clean:
            cleaner.start()
        put = loops("lean").due
        rounds = messages.rounds("lean", 100, 4096)
        while cleaner.is_alive() or time.perf_counter_ns() - begun < args.seconds * 1e9:
            put(store.put, messages.TOPIC, rounds, 1 << 62, time.perf_counter_ns() + 100_000_000, time.perf_counter_ns,
                pauses.add, Histogram().add, 1e9 / args.rate, time.sleep, Pace())
        if clean:
            cleaner.join()
        messages.drain(store)
    seconds = (time.perf_counter_ns() - begun) / 1e9
    return {"seconds": round(seconds, 2), "deleted_gib": round(done[0].log_bytes / (1 << 30), 2) if done else 0.0,
            **pauses.figures()}


def run(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    found: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for number in range(args.rounds):
        for clean in (False, True):
            path = base / f"{number}{clean}"
            _filled(path, args)
            found[clean].append(_puts(path, args, clean))
            shutil.rmtree(path)     # its space is the next one's
    worst = {clean: sorted(r["max_us"] for r in runs)[len(runs) // 2] for clean, runs in found.items()}
    return {"without": found[False], "cleaning": found[True], "median_worst_us": [worst[False], worst[True]],
            "ratio": round(worst[True] / worst[False], 2)}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, write_path="mmap", gib=10.0, rounds=3, rate=50_000, pace_ms=100, seconds=10.0, segment_mib=1024)
    p.add_argument("--disk", choices=DISKS, help="to be made under --dir, as root, instead of using that directory itself")
    args = p.parse_args(argv)
    if args.quick:
        args.gib, args.rounds, args.seconds, args.segment_mib, args.pace_ms = 0.02, 1, 0.2, 4, 5
    # Room for what is deleted, and for the files that are written and prepared meanwhile.
    with made([args.disk] if args.disk else [], args.dir, int(args.gib * 1024) + 5 * args.segment_mib) as (disks, refused):
        if refused:
            raise SystemExit(f"{args.disk}: {refused[args.disk]}")
        with scratch(disks[0].path if disks else args.dir) as base:
            rows = [{"bench": "cleaning", "disk": args.disk or "DIR", "write_path": args.write_path, **run(args, base)}]
    report(rows[0])
    sides = [{"subject": side, **found} for side in ("without", "cleaning") for found in rows[0][side]]
    keep(args, sides, lambda r: (f"cleaning_{args.write_path}", r["subject"]), rows)


if __name__ == "__main__":
    main()
