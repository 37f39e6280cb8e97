"""Is a put, or a get, slower than it was? This checkout beside another one that is built, run by run in turns.

Each run is a process of its own with the other's interpreter and modules, for the place that memory happens to get decides a
few per cent. A run's figure is the median of its stretches, in ns a message; a case's are the medians and the fastest of
--rounds runs of each side, and the median of the rounds' ratios. --memory has the synchronous cases write to /dev/shm, where a
sync costs nothing and the processor is all that is measured.

    python -m bench.load.before --other ../checkout-of-the-commit-before
"""
import argparse
import operator
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WINDOW = 512
# case: store options, body's bytes, messages in a stretch, stretches in a run, what is done
CASES: dict[str, tuple[dict[str, Any], int, int, int, str]] = {
    "put_100": ({"write_path": "pool"}, 100, 1000, 1000, "put"),
    "put_mmap_100": ({"write_path": "mmap"}, 100, 1000, 1000, "put"),
    "put_sync_1024": ({"flush_mode": "sync"}, 1024, 20, 100, "put"),
    "put_async_512": ({"flush_mode": "sync"}, 1024, 2048, 20, "put_async"),
    "get_100": ({}, 100, 8192, 1000, "get"),            # pulls of 32 as views
    "get_bodies_100": ({}, 100, 8192, 1000, "get_bodies"),
}
PULL = 32


def _stretches(store: Any, kind: str, body: bytes, puts: int) -> Iterator[float]:
    """ns a put, a stretch at a time."""
    clock, put = time.perf_counter_ns, getattr(store, kind)
    under_way: deque[Any] = deque()
    while True:
        start = clock()
        if kind == "put":
            for _ in range(puts):
                put("bench", body)
        else:
            for _ in range(puts):
                if len(under_way) == WINDOW:
                    under_way.popleft().result()
                under_way.append(put("bench", body))
        yield (clock() - start) / puts


def _pulls(store: Any, kind: str, body: bytes, count: int) -> Iterator[float]:
    """ns a message got, a walk through the queue at a time."""
    clock, get, look = time.perf_counter_ns, store.get, operator.attrgetter("body")
    store.put_many("bench", [body] * count)
    store.wait_dispatched()
    while True:
        offset, start = 0, clock()
        while offset < count:
            result = get("bench", 0, offset, PULL)
            if kind == "get":
                for _ in result:
                    pass
            else:
                for message in result:
                    look(message)
            offset = result.next_offset
        yield (clock() - start) / count


def measure(name: str, path: Path, shorter: int) -> float:
    """One run, here and now: the median stretch's ns a message."""
    from rmq_store import MessageStore
    options, size, puts, stretches, kind = CASES[name]
    with MessageStore.open(path, segment_size_bytes=256 << 20, **options) as store:
        each = (_pulls if kind.startswith("get") else _stretches)(store, kind, bytes(size), puts)
        for _ in range(max(1, stretches // shorter // 10)):
            next(each)
        return statistics.median(next(each) for _ in range(max(1, stretches // shorter)))


def _elsewhere(checkout: Path, name: str, base: Path, shorter: int) -> float:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [str(checkout / ".venv/bin/python"), "-P", __file__, "--run", name, "--dir", str(base),
               "--shorter", str(shorter)]
    try:
        return float(subprocess.check_output(command, env=environment, text=True, cwd=checkout))
    finally:
        shutil.rmtree(base)


def compare(name: str, rounds: int, run: Callable[[Path], float], other: Path) -> dict[str, Any]:
    """Rounds of both, the first to run changing from round to round."""
    mine: list[float] = []
    theirs: list[float] = []
    for i in range(rounds):
        sides = [(mine, ROOT), (theirs, other)]
        for found, checkout in sides if i % 2 == 0 else reversed(sides):
            found.append(run(checkout))
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return {"bench": "before", "case": name, "rounds": rounds, "ns": round(statistics.median(mine), 1),
            "other_ns": round(statistics.median(theirs), 1), "fastest_ns": round(min(mine), 1),
            "other_fastest_ns": round(min(theirs), 1), "ratio": round(statistics.median(ratios), 4),
            "ratio_of_medians": round(statistics.median(mine) / statistics.median(theirs), 4),
            "ratio_of_fastest": round(min(mine) / min(theirs), 4), "runs": [round(n, 1) for n in mine],
            "other_runs": [round(n, 1) for n in theirs]}


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--other", type=Path, default=ROOT, help="a checkout that is built (default this one: the noise)")
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured")
    p.add_argument("--memory", action="store_true", help="synchronous cases in /dev/shm")
    p.add_argument("--only", default=",".join(CASES), help="cases, with commas")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--out", type=Path, help="also write machine and rows as JSON")
    p.add_argument("--quick", action="store_true", help="seconds instead of minutes: shows that it runs, measures nothing")
    p.add_argument("--run", help=argparse.SUPPRESS)
    p.add_argument("--shorter", type=int, default=1, help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    if args.run is not None:
        print(measure(args.run, args.dir, args.shorter))
        return
    from bench.load.driver import keep, report
    from rmq_store.bench.runner import scratch
    rows = []
    for name in args.only.split(","):
        in_memory = args.memory and "flush_mode" in CASES[name][0]
        with scratch(Path("/dev/shm") if in_memory else args.dir) as base:
            numbers = iter(range(sys.maxsize))

            def run(checkout: Path, name: str = name, base: Path = base, numbers: Iterator[int] = numbers) -> float:
                return _elsewhere(checkout, name, base / str(next(numbers)), 100 if args.quick else 1)

            row = compare(name, 1 if args.quick else args.rounds, run, args.other.resolve())
        rows.append({**row, "memory": in_memory, "other": args.other.name})
        report({k: v for k, v in rows[-1].items() if not k.endswith("runs")})
    sides = [{"case": row["case"], "subject": subject, "ns": ns} for row in rows
             for subject, runs in (("this", "runs"), ("other", "other_runs")) for ns in row[runs]]
    keep(args, sides, lambda r: (f"before_{r['case']}", r["subject"]), rows)


if __name__ == "__main__":
    main()
