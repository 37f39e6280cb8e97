"""The bench suite: the promises of bench/goals.py, the other workloads, and the disk types, in one run with one report.

Default: about ten minutes, three repetitions in turns. After --minutes nothing is repeated any more, four minutes later nothing
that is not judged is begun any more; what is judged runs once in any case, and what follows from it, the rate just below the
device's, as often as told.
--full: every combination of write path, back end and file state, five repetitions, hours. --quick: does it all run? Nothing
else may work on the machine meanwhile. Writes bench/results/suite-<time>.json and .html; what cannot run here is named with
its reason.

    python -m bench.suite --dir DIR [--full | --quick] [--disk ext4,xfs,btrfs,tmpfs,memory,throttled] [--only put_sync]
"""
import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import goals, targets
from bench.cases import ON_A_MADE_DISK, SMALL_INDEX, quick
from bench.load.driver import Found
from rmq_store.bench import figures, machine, report
from rmq_store.bench.case import OURS, WORKLOADS, Case, product
from rmq_store.bench.disks import DISKS, Place, made
from rmq_store.bench.runner import interruptible, run_all, run_case, settle

Result = dict[str, Any]

ROOT = Path(__file__).parents[1]

EXTRA_MINUTES = 4       # for what is not judged, after --minutes; what does not fit is left out and says so

# Not judged: run once, so that the report shows every workload.
OTHERS = (
    Case("put_async", body=1024, rate=100_000, seconds=2),
    Case("put_async", body=1024, rate=100_000, seconds=2, write_path="pool"),
    Case("put_async", body=1024, subject="append", seconds=1),
    Case("put_sync", body=1024, rate=2000, seconds=2), Case("put_sync", body=1024, subject="append", seconds=1, cap_mib=240),
    Case("put_threads", body=1024, seconds=1.5), Case("put_threads", body=1024, seconds=1.5, write_path="pool"),
    Case("put_many", body=1024, seconds=1.5), Case("put_many", body=1024, seconds=1.5, write_path="pool"),
    Case("get", seconds=1, cap_mib=400), Case("get", subject="rocketmq", seconds=1), Case("query_key", seconds=1),
    Case("scan", cap_mib=600), Case("recover", cap_mib=600), Case("mixed", seconds=2, rate=20_000), Case("mixed", seconds=2),
)
# io_uring step by step: what each of its means is worth for one durable page, and for a stream.
URING_STEPS = tuple(
    replace(goals.CASES[key], options=options, seconds=seconds, cap_mib=mib)
    for options in ({"uring_direct": "off"}, {"uring_durability": "fdatasync"}, {"uring_durability": "dsync"},
                    {"uring_sqpoll": "true"}, {"uring_depth": "1"})
    for key, seconds, mib in (("page_uring", 1.0, 240), ("sustained", 4.0, 1500))
    if not (key == "sustained" and "uring_durability" in options) and not (key == "page_uring" and "uring_depth" in options))
# On every disk that is made: what file systems and devices change.
ON_DISKS = (
    Case("put_sync", body=1024), Case("put_sync", body=1024, write_path="pool"),
    Case("put_sync", body=1024, file_state="sparse"),
    Case("put_sync", body=1024, subject="fio", file_state="prezeroed"), Case("put_sync", body=1024, subject="sqlite"),
    Case("put_async_window", body=1024), Case("put_async", body=1024, write_path="pool"),
    Case("put_sync", body=1024, write_path="pool", flush_backend="io_uring"),
)


def matrix() -> Iterator[Case]:
    """--full: everything crossed with everything that it can be crossed with."""
    return (c for c in _crossed() if c.write_path == "pool" or c.flush_backend != "io_uring")


def _crossed() -> Iterator[Case]:
    paths = {"write_path": ["mmap", "pool"], "flush_backend": ["msync", "fdatasync", "io_uring"]}
    states = {"file_state": ["sparse", "fallocated", "prezeroed"]}
    for body in (100, 1024, 4096, 65_536):
        yield from product("put_sync", {**paths, **states}, body=body)
        for name in ("put_async", "put_many"):
            yield from product(name, {**paths, "flush_mode": ["async", "sync"]} if name == "put_many" else paths, body=body)
        for peer in ("append", "fio", "sqlite", "lmdb", "rocksdb", "rocketmq"):
            yield from product("put_sync", states if peer in ("append", "fio") else {}, subject=peer, body=body, cap_mib=400)
            yield Case("put_async", subject=peer, body=body)
    yield from product("put_sync_threads", {"producers": [1, 4, 16, 64, 256], **paths})
    yield from product("put_threads", {"producers": [1, 2, 4, 16], "write_path": ["mmap", "pool"]})
    for name in ("put_async_window", "put_asyncio"):
        yield from product(name, {"window": [1, 16, 64, 512], **paths})
    yield from product("put_async", {"rate": [10_000, 100_000, 500_000], "write_path": ["mmap", "pool"]}, seconds=10)


def compact(results: list[Result]) -> list[Result]:
    """For the file: histograms of all repetitions merged, one line each."""
    found = []
    for r in results:
        merged = {name: {**h.to_dict(), "counts": " ".join(f"{slot}:{n}" for slot, n in h.to_dict()["counts"])}
                  for name, h in figures.merged(r).items()}
        runs = [{k: v for k, v in run.items() if k != "histograms"} for run in r["runs"]]
        found.append({**r, "runs": runs, "histograms": merged})
    return found


def as_found(results: list[Result]) -> Found:
    """The results as --out has them."""
    found = Found()
    for r in results:
        name, subject = f"{r['name']} in {r['dir']}", r["case"].get("subject", OURS)
        for run in r["runs"]:
            found.add(name, subject, run)
        for kind, texts in (("skipped", found.missing), ("error", found.failed)):
            if kind in r:
                texts[f"{name}/{subject}"] = r[kind]
    return found


class Suite:
    """The results so far, and how to get more of them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.results: list[Result] = []
        self.by_key: dict[str, Result] = {}
        self.machines: dict[str, dict[str, object]] = {}
        self.stop = math.inf

    def run(self, jobs: list[tuple[Case, Place]], reps: int = 1, until: float = math.inf) -> list[Result]:
        chosen = self.args.only.split(",") if self.args.only else list(WORKLOADS)
        ready = [(quick(c.complete()) if self.args.quick else c.complete(), p) for c, p in jobs if c.workload in chosen]
        done = run_all(ready, reps, lambda text: print(text, file=sys.stderr, flush=True), self.one, until, self.stop)
        self.results += done
        return done

    def one(self, case: Case, base: Path, cgroup: str) -> Result:
        """Where pauses are judged, or a stream beside the device's, nothing of the run before may continue."""
        if case.workload in ("put_async", "put_sustained") and not self.args.quick:
            settle()
        return run_case(case, base, cgroup)

    def judged(self, place: Place, until: float) -> None:
        chosen = self.args.only.split(",") if self.args.only else list(WORKLOADS)
        cases = {k: c for k, c in goals.CASES.items() if c.workload in chosen}
        # the first repetition of all, then the rate that follows from it, then the rest
        for key, result in zip(cases, self.run([(c, place) for c in cases.values()], self.args.reps, until), strict=True):
            self.by_key[key] = result
        device = figures.medians(self.by_key.get("sustained", {"runs": []})["runs"])
        if "flushed_per_s" in device:
            case = replace(goals.CASES["sustained"], rate=int(device["flushed_per_s"] * goals.RATE_SHARE), seconds=4.0,
                           options=goals.ROOMY)
            (self.by_key[goals.AT_RATE],) = self.run([(case, place)], self.args.reps)

    def on_made_disks(self, cases: tuple[Case, ...]) -> None:
        kinds = [k for k in self.args.disk.split(",") if k and k != "none"]
        with made(kinds, self.args.dir, 512 if self.args.quick else 1024) as (places, refused):
            for place in places:
                self.machines[place.name] = machine.describe(place.path)
                for c in cases:
                    options = {**SMALL_INDEX, **c.options} if c.subject == OURS else c.options
                    self.run([(replace(c, label=c.shown(), options=options, **ON_A_MADE_DISK), place)])
        for kind, why in refused.items():
            print(f"{kind}: {why}", file=sys.stderr)
            self.results.append({"case": cases[0].to_dict(), "name": cases[0].shown(), "dir": kind, "runs": [], "skipped": why})

    def outcomes(self) -> list[targets.Outcome]:
        return targets.judge({k: figures.medians(r["runs"]) for k, r in self.by_key.items() if r["runs"]}, {}, goals.GOALS)


def verdicts(outcomes: list[targets.Outcome]) -> list[tuple[str, ...]]:
    """For the report."""
    head = ("", "ours", "peer", "measured", "target", "")
    return [head, *((o.text, targets.number(o.ours), targets.number(o.java), targets.number(o.value), o.target, o.words())
                    for o in outcomes)]


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs; 14 GiB free")
    p.add_argument("--disk", default=",".join(DISKS), help="disks to be made, as root, or none: " + ", ".join(DISKS))
    p.add_argument("--reps", type=int, help="repetitions of what is judged (3; 5 with --full)")
    p.add_argument("--minutes", type=float, help="then nothing is repeated any more (7; unlimited with --full)")
    p.add_argument("--only", default="", help="workloads, comma-separated: " + ", ".join(WORKLOADS))
    p.add_argument("--results", type=Path, default=Path(__file__).parent / "results", help="where the two files go")
    p.add_argument("--out", type=Path, help="also write all figures as JSON; bench/load/driver.py says how")
    p.add_argument("--full", action="store_true", help="every combination; hours")
    p.add_argument("--quick", action="store_true", help="shows in minutes that everything runs; measures nothing")
    args = p.parse_args(argv)
    args.reps = 1 if args.quick else args.reps or (5 if args.full else 3)
    until = time.monotonic() + 60 * (args.minutes or (1e6 if args.full else 7))
    args.dir.mkdir(parents=True, exist_ok=True)
    suite, place = Suite(args), Place(args.dir, "DIR")      # results are kept, and no path of a machine with them
    suite.machines[place.shown()] = machine.describe(args.dir)
    try:
        with interruptible():
            suite.judged(place, until)
            suite.stop = until + 60 * EXTRA_MINUTES
            suite.run([(c, place) for c in (*OTHERS, *URING_STEPS)])
            if args.full:
                suite.run([(c, place) for c in matrix()], args.reps)
            suite.on_made_disks((*ON_DISKS, *matrix()) if args.full else ON_DISKS)
    finally:        # interrupted, or broken: what there is by then is kept
        if suite.results:
            _tell(args, suite)
    return 1 if any("error" in r for r in suite.results) else 0


def _tell(args: argparse.Namespace, suite: Suite) -> None:
    outcomes = suite.outcomes()
    print("\n".join(figures.table_lines(suite.results)), end="\n\n")
    if args.quick:
        print("smoke run: the figures mean nothing")
    print(targets.table(outcomes, verdicts=not args.quick, peer="peer"))
    _write(args, suite, outcomes)


def _write(args: argparse.Namespace, suite: Suite, outcomes: list[targets.Outcome]) -> None:
    args.results.mkdir(parents=True, exist_ok=True)
    path = args.results / ("suite-" + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
    keys = {key: next(i for i, r in enumerate(suite.results) if r is result) for key, result in suite.by_key.items()}
    path.with_suffix(".json").write_text(json.dumps({
        "machines": suite.machines, "smoke": args.quick, "reps": args.reps, "cases": keys,
        "outcomes": [vars(o) | {"verdict": o.words()} for o in outcomes], "results": compact(suite.results)}, indent=1) + "\n")
    page = report.html("rmq_store bench suite", suite.machines, suite.results, verdicts(outcomes), args.quick)
    path.with_suffix(".html").write_text(page, encoding="utf-8")
    print(f"written to {path}.json and .html")
    as_found(suite.results).write(args)


if __name__ == "__main__":
    sys.exit(main())
