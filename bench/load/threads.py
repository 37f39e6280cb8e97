"""Do threads that put beside one another get as many messages through as one thread alone?

One thread and --threads of them take turns, round by round in one process, at the interpreter's own switch interval of 5 ms and
at --interval-ms: the threads share the GIL, and each time it changes hands its next holder has to be woken. Every stretch has
--mib of messages, on the device before the next one begins. `bare`: what the same turns come to without a store, in a loop
around a checksum of the body; there the other core is idle, here it has the store's own threads.

    python -m bench.load.threads
"""
import argparse
import shutil
import statistics
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.bench import messages
from rmq_store.bench.case import Case
from rmq_store.bench.ours import opened, warmed
from rmq_store.bench.puts import drive
from rmq_store.bench.runner import scratch

Pairs = list[tuple[float, float]]


def put_rate(store: MessageStore, case: Case, most: int, threads: int) -> float:
    """Messages a second of threads that put `most` together, from the first start to the last end."""
    messages.drain(store)
    producers = drive(store, replace(case, producers=threads), "plain", most // threads)
    return sum(p.count for p in producers) * 1e9 / (max(p.ended for p in producers) - min(p.started for p in producers))


def bare_rate(body: bytes, most: int, threads: int) -> float:
    """The same with checksums in place of puts."""
    def loop() -> None:
        crc = zlib.crc32
        for _ in range(most // threads // 8):
            crc(body), crc(body), crc(body), crc(body), crc(body), crc(body), crc(body), crc(body)

    workers = [threading.Thread(target=loop) for _ in range(threads)]
    start = time.perf_counter()
    if threads == 1:
        loop()
    else:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return most / (time.perf_counter() - start)


def turns(i: int, threads: int, rate: Callable[[int], float]) -> tuple[float, float]:
    """(one thread's rate, theirs), measured in the order of this round."""
    order = (1, threads) if i % 2 == 0 else (threads, 1)
    rates = {n: rate(n) for n in order}
    return rates[1], rates[threads]


def run(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    case = Case("put_threads", write_path="pool", body=args.body, seconds=60.0, segment_mib=args.segment_mib).complete()
    own = sys.getswitchinterval()
    intervals = {"": own, "long_": args.interval_ms / 1e3}
    found: dict[tuple[str, str], Pairs] = {(kind, name): [] for name in intervals for kind in ("", "bare_")}
    for i in range(args.rounds):
        with opened(base / str(i), case) as store:
            most = (args.mib << 20) // warmed(store, case)
            rates = {"": partial(put_rate, store, case, most), "bare_": partial(bare_rate, bytes(args.body), most)}
            for kind, name in found:
                sys.setswitchinterval(intervals[name])
                found[kind, name].append(turns(i, args.threads, rates[kind]))
            sys.setswitchinterval(own)
        shutil.rmtree(base / str(i))
    figures: dict[str, Any] = {"interval_ms": own * 1e3, "interval_long_ms": args.interval_ms}
    for (kind, interval), pairs in found.items():
        name = kind + interval
        ratios = sorted(b / a for a, b in pairs)
        figures |= {f"{name}one_per_s": round(statistics.median(a for a, _ in pairs)),
                    f"{name}several_per_s": round(statistics.median(b for _, b in pairs)),
                    f"{name}ratio": round(statistics.median(ratios), 4),
                    f"{name}ratio_quartiles": [round(ratios[len(ratios) // 4], 4), round(ratios[len(ratios) * 3 // 4], 4)]}
    return figures


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, rounds=31, threads=4, interval_ms=100.0, body=100, mib=150, segment_mib=1024)
    args = p.parse_args(argv)
    if args.threads < 2:
        p.error(f"--threads {args.threads}: expected at least 2")
    if args.quick:
        args.rounds, args.mib, args.segment_mib = 1, 8, 64
    with scratch(args.dir) as base:
        row = {"bench": "threads", "threads": args.threads, "body": args.body, **run(args, base)}
    report(row)
    keep(args, [row], lambda r: ("threads", "rmq_store"))


if __name__ == "__main__":
    main()
