"""Ours beside the real RocketMQ on this machine, in turns, with a verdict on every promise (bench/targets.py).

Alternates: ours, Java, ours, Java … --reps times for each case, page cache pretouched before every run; then what has no
Java side. Every run is a process of its own. Medians of the repetitions are judged; all raw runs are kept in
bench/results/<time>.json beside the machine's description. Ten to twenty minutes; nothing else may run meanwhile.

    python -m bench.compare_rocketmq --dir DIRECTORY-ON-THE-DISK [--rocketmq 4.9.8] [--smoke] [--only put_100,read]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench import machine, targets

ROOT = Path(__file__).parents[1]
JAVA = ROOT / "tools" / "interop" / "bench_rocketmq.sh"
PRETOUCH_MIB = 3500

Run = dict[str, Any]

LEAN = ["props=lean", "seconds=2.5"]

# case -> our driver and its arguments, the Java harness's arguments
PAIRS: dict[str, tuple[list[str], list[str]]] = {
    "put_100": (["put", "--body", "100"], ["put", "mode=async_pool", *LEAN, "body=100"]),
    "put_1024": (["put", "--body", "1024"], ["put", "mode=async_pool", *LEAN, "body=1024"]),
    "put_100_4": (["put", "--body", "100", "--threads", "4"], ["put", "mode=async_pool", *LEAN, "body=100", "threads=4"]),
    "many_100": (["put", "--body", "100", "--batch", "128"], ["put", "mode=async", *LEAN, "body=100", "batch=128"]),
    "sync_64": (["sync", "--mode", "threads", "--threads", "64"], ["put", "mode=sync", *LEAN, "body=1024", "threads=64"]),
    "sync_window": (["sync", "--mode", "async", "--window", "512"], ["put", "mode=sync", *LEAN, "body=1024", "window=512"]),
    "read": (["read"], ["read", "body=1024"]),
}
ALONE: dict[str, list[str]] = {
    "put_100_tagged": ["put", "--body", "100", "--props", "tagged"],
    "sync_single_mmap": ["sync", "--mode", "single", "--body", "1024", "--write-path", "mmap"],
    "sync_single_pool": ["sync", "--mode", "single", "--body", "1024", "--write-path", "pool"],
    "query": ["read", "--n", "60000"],     # so few that every key has one message
    "dispatch_lean": ["dispatch", "--props", "lean"],
    "dispatch_full": ["dispatch", "--props", "full"],
    "scan": ["scan"],
    "gil": ["gil"],
    "idle": ["idle"],
    "recover": ["recover"],
}


def ours(args: argparse.Namespace, case: list[str]) -> list[Run]:
    """One run of a driver: its JSON lines."""
    command = [sys.executable, "-m", f"bench.load.{case[0]}", *case[1:], "--dir", str(args.dir)]
    if args.smoke:
        command.append("--smoke")
    elif case[0] == "put":
        command += ["--pretouch", str(PRETOUCH_MIB)]
    return _lines(command, {})


def java(args: argparse.Namespace, case: list[str]) -> list[Run] | None:
    """One run of the Java harness; None where it cannot run here."""
    more = ["reps=1"]
    env = {}
    if args.smoke:
        more += ["seconds=0.1", "warmup=0.1", "capMiB=8", "n=2000", "cfg.mappedFileSizeCommitLog=67108864",
                 "cfg.maxIndexNum=100000", "pool=1"]
        env = {"RMQ_BENCH_JAVA_OPTS": "-Xms512m -Xmx512m -XX:-AlwaysPreTouch"}
    elif case[0] == "put":
        more.append(f"pretouch={PRETOUCH_MIB}")
    return _lines([str(JAVA), "--rocketmq", args.rocketmq, "--dir", str(args.dir), *case, *more], env)


def _lines(command: list[str], env: dict[str, str]) -> list[Run]:
    done = subprocess.run(command, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        raise LookupError(done.stderr.strip())
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def medians(runs: Iterable[Run]) -> Run:
    """Medians of every number that all runs have."""
    several = list(runs)
    return {k: statistics.median(r[k] for r in several) for k, v in several[0].items()
            if isinstance(v, (int, float)) and not isinstance(v, bool) and all(k in r for r in several)}


def flat(case: str, lines: list[Run]) -> Run:
    """What the targets look up, out of one run's lines of ours."""
    if case == "read":
        return {"views_ns": lines[0]["views"]["ns_per_msg"], "views_per_s": lines[0]["views"]["msgs_per_s"],
                "bodies_per_s": lines[0]["bodies"]["msgs_per_s"],
                "decoded_per_s": lines[0]["decoded"]["msgs_per_s"]}
    if case == "query":
        return lines[0]["query_keys"]
    if case == "idle":
        found = {("queues" if "queues" in r else "log", r["write_path"]): r for r in lines}
        log, pool, queues = found["log", "mmap"], found["log", "pool"], found["queues", "mmap"]
        return {"log_mmap_mib": log["beyond_pool_mib"], "log_pool_mib": pool["beyond_pool_mib"],
                "queues_mib": queues["beyond_pool_mib"], "queues_open_ms": queues["open_ms"]}
    if case == "recover":
        return {f"{r['kind']}_{k}": r[k] for r in lines for k in ("open_ms", "ready_ms", "rewrite_ms")}
    return lines[0]


def flat_java(case: str, lines: list[Run]) -> Run:
    """The same for the Java harness."""
    if case == "read":
        (pull,) = [r for r in lines if r["bench"] == "getMessage" and r["maxMsgs"] == 32 and r["decode"]]
        return {"views_per_s": pull["msgs_per_s"], "bodies_per_s": pull["msgs_per_s"]}
    run = lines[0]
    return run | {"sustained_per_s": run["msgs"] / (run["secs"] + run["drain_ms"] / 1e3)}


def measure(args: argparse.Namespace) -> tuple[dict[str, list[list[Run]]], dict[str, list[list[Run]]], str | None]:
    """All raw runs, ours and Java's, by case; why there are none of Java's."""
    mine: dict[str, list[list[Run]]] = {}
    theirs: dict[str, list[list[Run]]] = {}
    missing = None
    chosen = args.only.split(",") if args.only else [*PAIRS, *ALONE]
    for case in chosen:
        for rep in range(args.reps):
            print(f"{case} {rep + 1}/{args.reps}", file=sys.stderr, flush=True)
            mine.setdefault(case, []).append(ours(args, PAIRS[case][0] if case in PAIRS else ALONE[case]))
            if case in PAIRS and missing is None:
                try:
                    theirs.setdefault(case, []).append(java(args, PAIRS[case][1]))
                except LookupError as why:
                    missing = str(why)
    return mine, {k: v for k, v in theirs.items() if v}, missing


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs; 6 GiB free")
    p.add_argument("--rocketmq", default="4.9.8", help="version to compare with")
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--only", default="", help="cases, comma-separated: " + ", ".join([*PAIRS, *ALONE]))
    p.add_argument("--smoke", action="store_true", help="shows in a minute that everything runs; measures and writes nothing")
    args = p.parse_args(argv)
    if args.smoke:
        args.reps = 1
    head = {"machine": machine.describe(args.dir), "rocketmq": args.rocketmq, "reps": args.reps, "pretouch_mib": PRETOUCH_MIB}
    mine, theirs, missing = measure(args)
    if missing:
        print(f"no comparison with the real RocketMQ: {missing}", file=sys.stderr)
    outcomes = targets.judge({c: medians(flat(c, r) for r in runs) for c, runs in mine.items()},
                             {c: medians(flat_java(c, r) for r in runs) for c, runs in theirs.items()})
    if args.smoke:
        print("smoke run: the figures below mean nothing")
    print(targets.table(outcomes, verdicts=not args.smoke))
    if not args.smoke:
        results = Path(__file__).parent / "results"
        results.mkdir(exist_ok=True)
        path = results / (time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + ".json")
        path.write_text(json.dumps({**head, "outcomes": [vars(o) | {"verdict": o.words()} for o in outcomes],
                                    "ours": mine, "java": theirs}, indent=1) + "\n")
        print(f"written to {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
