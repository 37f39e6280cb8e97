"""What statistics cost a put: instructions of the same puts with them and without, counted by callgrind.

Without: a copy of this checkout in which what only counts and times is taken out (REMOVED), built beside it. Callgrind counts
instructions a thread, so its slowness and the machine's do not matter; two numbers of puts are run, and their difference is
what a put costs, without opening and closing. `producer` is the thread that puts; `process` all threads, where what they poll
makes some noise. A durable put is shown and not judged: it waits for the device, whatever its instructions are. What
measure_puts costs is not among them: it times each call in Python, and is off unless asked for.

    python -m bench.load.statistics_cost --out statistics.json
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store.bench.runner import scratch

ROOT = Path(__file__).parents[2]
SOURCES = ("native", "rmq_store", "setup.py", "pyproject.toml", "README.md", "LICENSE")
BUILT = ("cython", "fingerprint", "temp.*", "lib.*")       # under build/: what is there need not be compiled again
LIMIT_PCT = 3.0
# file, what is there, what stands there without statistics. Each once, or this driver is out of date.
_CLOCK = "log.io.mono_ns(log.io.ctx)"
REMOVED = (
    ("log/commitlog/_log.pyx", "    rmq_count(&log.puts, 1)\n    rmq_count(&log.put_bytes, a.size)\n", ""),
    ("log/commitlog/_log.pyx", f"    if log.puts & TIMED_EVERY == 0:\n        log.timed_since = {_CLOCK}\n", ""),
    ("log/commitlog/_log.pyx", "    if log.timed_since != 0:\n"
     f"        rmq_histogram_add(&log.append_times, {_CLOCK} - log.timed_since)\n        log.timed_since = 0\n", ""),
    ("log/commitlog/_log.pyx", f"        begun = {_CLOCK}\n        rmq_put_lock_acquire(&log.lock)\n"
     f"        rmq_histogram_add(&log.lock_times, {_CLOCK} - begun)\n", "        rmq_put_lock_acquire(&log.lock)\n"),
    ("log/commitlog/_log.pyx",
     f"    rmq_add(&log.flushes, 1)\n    rmq_histogram_add(&log.flush_times, {_CLOCK} - begun_ns)\n", ""),
    ("log/flush/_pages.pyx", "    rmq_add(&log.commits, 1)\n    return 0\n", "    return 0\n"),
    ("log/flush/_flush.pyx", f"    begun = {_CLOCK}\n    rc = log.backend.commit(log, to)\n",
     "    rc = log.backend.commit(log, to)\n"),
    ("log/flush/_flush.pyx", f"    begun = {_CLOCK}\n    rc = flush_commit(log, to)\n",
     "    begun = 0\n    rc = flush_commit(log, to)\n"),
    ("log/flush/_flush.pyx", f"    rmq_histogram_add(&log.commit_times, {_CLOCK} - begun)\n", ""),
    ("log/dispatch/_dispatch.pyx", "            rmq_count(&q.records, 1)\n            rmq_count(&q.bytes, v.size)\n", ""),
    ("log/dispatch/_dispatch.pyx", "            at += v.size\n            rmq_count(&d.records, 1)\n",
     "            at += v.size\n"),
    ("log/dispatch/_dispatch.pyx", "    if d.log.dispatched > before:\n        rmq_histogram_add(&d.lag_times, "
     "(d.log.io.wall_ms(d.log.io.ctx) - d.last_timestamp) * 1_000_000)\n", ""),
)
CASES: dict[str, dict[str, Any]] = {"mmap": {}, "pool": {"write_path": "pool"}, "mmap, durable": {"flush_mode": "sync"}}
LOOP = """
import sys
from rmq_store import MessageStore
path, count, options = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
with MessageStore.open(path, **options) as store:
    put, body = store.put, b"x" * 100
    for _ in range(count):
        put("BenchTopic0", body)
"""
QUIET: dict[str, Any] = {"flush_backend": "fdatasync", "index_enabled": False, "delay": "refuse", "manifest_enabled": False,
                         "segment_size_bytes": 64 << 20}


def _under(directory: Path, name: str) -> Path:
    directory.mkdir(exist_ok=True)
    return directory / name


def without(tree: Path) -> None:
    """A copy of the checkout in `tree`, without statistics, built."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, tree / name)
    for part in (found for name in BUILT for found in (ROOT / "build").glob(name)):
        (shutil.copytree if part.is_dir() else shutil.copy2)(part, _under(tree / "build", part.name))
    for file, text, instead in REMOVED:
        path = tree / "rmq_store" / file
        source = path.read_text()
        if source.count(text) != 1:
            raise SystemExit(f"REMOVED is out of date: {file} has this {source.count(text)} times, not once:\n{text}")
        path.write_text(source.replace(text, instead))
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree, check=True)


def _count(tree: Path, base: Path, puts: int, options: dict[str, Any]) -> tuple[int, int]:
    """Instructions of the thread that puts, and of all threads, of a process with so many puts."""
    base.mkdir(parents=True)
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={base / 'out'}", sys.executable,
               "-c", LOOP, base / "store", str(puts), repr(QUIET | options)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True,
                   env=os.environ | {"PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"})
    counts = {path.name: int(re.findall(r"^totals: (\d+)", path.read_text(), re.MULTILINE)[0]) for path in base.glob("out-*")}
    shutil.rmtree(base)
    return counts["out-01"], sum(counts.values())


def per_put(tree: Path, base: Path, puts: int, options: dict[str, Any]) -> dict[str, float]:
    few, many = (_count(tree, base / str(n), n, options) for n in (puts, 3 * puts))
    return {name: (b - a) / (2 * puts) for name, a, b in zip(("producer", "process"), few, many, strict=True)}


def main(argv: list[str] | None = None) -> int:
    p = parser(__doc__, puts=10_000)
    args: argparse.Namespace = p.parse_args(argv)
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: nothing can be counted")
    rows = []
    with scratch(args.dir) as base:
        without(base / "tree")
        for name, options in CASES.items():
            puts = args.puts // 10 if args.quick else args.puts
            found = {kind: per_put(tree, base / "run", puts, options)
                     for kind, tree in (("with", ROOT), ("without", base / "tree"))}
            share = {who: 100 * (found["with"][who] / found["without"][who] - 1) for who in ("producer", "process")}
            rows.append({"bench": "statistics", "case": name, "puts": puts, **{
                f"{kind}_{who}": round(value, 1) for kind, row in found.items() for who, value in row.items()},
                "producer_pct": round(share["producer"], 2), "process_pct": round(share["process"], 2)})
            report(rows[-1])
    keep(args, rows, lambda r: ("statistics_cost", r["case"]))
    return 0 if args.quick or all(row["producer_pct"] <= LIMIT_PCT for row in rows if row["case"] in ("mmap", "pool")) else 1


if __name__ == "__main__":
    sys.exit(main())
