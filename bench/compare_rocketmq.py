"""Ours beside the real RocketMQ on this machine, in turns, with a verdict on every promise (bench/targets.py).

Alternates: ours, Java, the next case's ours, its Java …, then what has no Java side; all of it --reps times, as a virtual
machine's speed changes within minutes and cases are compared with one another, too. Page cache pretouched before every put.
Every run is a process of its own. Medians of the repetitions are judged; all raw runs are kept in bench/results/<time>.json
beside the machine's description. Forty minutes; nothing else may run meanwhile.

    python -m bench.compare_rocketmq --dir DIRECTORY-ON-THE-DISK [--rocketmq 4.9.8] [--quick] [--only put_100,read]

With --disk memory both write to a device made of memory, as root: what they reach where no disk holds them back.
"""
import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import targets
from rmq_store.bench import machine
from rmq_store.bench.case import WORKLOADS, Case
from rmq_store.bench.disks import DISKS, made
from rmq_store.bench.figures import medians
from rmq_store.bench.runner import run_case, settle

ROOT = Path(__file__).parents[1]
PRETOUCH_MIB = 3500
MADE_DISK_MIB = 6144

Run = dict[str, Any]

# case -> ours; the same, but for the options, is asked of the real RocketMQ
PAIRS: dict[str, Case] = {
    "put_100": Case("put_async", write_path="pool", body=100),
    "put_1024": Case("put_async", write_path="pool", body=1024),
    "put_100_4": Case("put_threads", write_path="pool", body=100),
    # 2 GiB of pool take the stretch; sustained, as many_100_sustained, the device is the limit. RocketMQ's own pool has 5 GiB.
    "many_100": Case("put_many", write_path="pool", body=100),
    "sync_64": Case("put_sync_threads", write_path="pool"),
    "sync_window": Case("put_async_window", write_path="pool"),
    "read": Case("get", seconds=1.5, cap_mib=460),
}
# RocketMQ has a pool of 3 GiB in all of these (5 by default). At 1 KiB a second of puts is more than the device takes: the same
# memory for both. Ours with the 32 MiB of a default store is put_1024_default.
OURS: dict[str, Run] = {"many_100": {"pool_window_count": 512}, "put_1024": {"pool_window_count": 768}}
THEIRS = {"many_100": {"mode": "async"}}
# what has no Java side: a case, or a driver of bench/load with its arguments
ALONE: dict[str, Case | list[str]] = {
    "device": Case("put_sustained", subject="fio", file_state="fallocated", options={"direct": 1, "depth": 8}),
    "many_100_sustained": Case("put_many", write_path="pool", body=100),
    "put_1024_default": Case("put_async", write_path="pool", body=1024),
    "put_100_tagged": Case("put_async", write_path="pool", body=100, props="tagged"),
    "sync_single_mmap": ["bare", "--body", "1024", "--write-path", "mmap"],
    "sync_single_pool": ["bare", "--body", "1024", "--write-path", "pool"],
    "query": Case("query_key", seconds=1.5),
    "dispatch_lean": ["dispatch", "--props", "lean"],
    "dispatch_full": ["dispatch", "--props", "full"],
    "scan": Case("scan", cap_mib=1000),
    "threads": ["threads"],
    "gil": ["gil"],
    "idle": ["idle"],
    "recover": Case("recover", cap_mib=1000),
}
SMOKE: Run = {"seconds": 0.1, "cap_mib": 16, "segment_mib": 64}


def ours(args: argparse.Namespace, name: str) -> list[Run]:
    """One run of a case, or of a driver: its JSON lines."""
    job = PAIRS[name] if name in PAIRS else ALONE[name]
    if isinstance(job, Case):
        own = OURS.get(name, {})
        if args.quick:
            own = {"index_slots": 100_000, "index_entries_max": 400_000} if job.subject == "rmq_store" else {}
        return [_run(args, job, {**job.options, **own})]
    command = [sys.executable, "-m", f"bench.load.{job[0]}", *job[1:], "--dir", str(args.dir)]
    if args.quick:
        command.append("--quick")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def java(args: argparse.Namespace, name: str) -> list[Run]:
    """The same case with the real RocketMQ. Raises LookupError where it cannot run here."""
    options = {"version": args.rocketmq, **THEIRS.get(name, {}), **({"small": True} if args.quick else {})}
    return [_run(args, replace(PAIRS[name], subject="rocketmq"), options)]


def _run(args: argparse.Namespace, case: Case, options: Run) -> Run:
    put = case.workload.startswith("put") and WORKLOADS[case.workload].flush_mode == "async"
    own = SMOKE if args.quick else {"pretouch_mib": PRETOUCH_MIB} if put else {}
    if put and not args.quick:
        own |= {"seconds": 2.5}
    if not args.quick:
        settle()
    run = run_case(replace(case, options=options, **own).complete(), args.dir)
    if "skipped" in run:
        raise LookupError(run["skipped"])
    if "error" in run:
        raise RuntimeError(run.get("traceback") or run["error"])
    return {k: v for k, v in run.items() if k != "histograms"}


def flat(case: str, lines: list[Run]) -> Run:
    """What the targets look up, out of one run of ours."""
    if case == "read":
        run = lines[0]
        return {"views_ns": run["ns_per_msg"], "views_per_s": run["msgs_per_s"],
                "bodies_per_s": run["bodies"]["msgs_per_s"], "decoded_per_s": run["decoded"]["msgs_per_s"]}
    if case == "idle":
        found = {("queues" if "queues" in r else "log", r["write_path"]): r for r in lines}
        log, pool, queues = found["log", "mmap"], found["log", "pool"], found["queues", "mmap"]
        return {"log_mmap_mib": log["beyond_pool_mib"], "log_pool_mib": pool["beyond_pool_mib"],
                "queues_mib": queues["beyond_pool_mib"], "queues_open_ms": queues["open_ms"]}
    return lines[0]


def flat_java(case: str, lines: list[Run]) -> Run:
    """The same for the real RocketMQ."""
    if case == "read":      # its pull with every message decoded
        return {"views_per_s": lines[0]["msgs_per_s"], "bodies_per_s": lines[0]["msgs_per_s"]}
    return lines[0]


def measure(args: argparse.Namespace) -> tuple[dict[str, list[list[Run]]], dict[str, list[list[Run]]], str | None]:
    """All raw runs, ours and Java's, by case; why there are none of Java's."""
    mine: dict[str, list[list[Run]]] = {}
    theirs: dict[str, list[list[Run]]] = {}
    missing = None
    chosen = args.only.split(",") if args.only else [*PAIRS, *ALONE]
    for rep in range(args.reps):
        for case in chosen:
            print(f"{rep + 1}/{args.reps} {case}", file=sys.stderr, flush=True)
            mine.setdefault(case, []).append(ours(args, case))
            if case in PAIRS and missing is None:
                try:
                    theirs.setdefault(case, []).append(java(args, case))
                except LookupError as why:
                    missing = str(why)
    return mine, {k: v for k, v in theirs.items() if v}, missing


def limits(mine: dict[str, list[list[Run]]]) -> str:
    """How much of what fio writes directly into new blocks our sustained puts reach: the device's part in the ratios above."""
    if "device" not in mine:
        return ""
    device = medians(runs[0] for runs in mine["device"])["mib_per_s"]
    shares = [f"{case} {medians(runs[0] for runs in mine[case])['sustained_mib_per_s'] / device:.0%}"
              for case in ("put_100", "put_1024", "many_100_sustained") if case in mine]
    return f"fio writes {device:.0f} MiB/s into new blocks; sustained, of that: {', '.join(shares)}"


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs; 6 GiB free")
    p.add_argument("--disk", choices=list(DISKS), help="a disk made for it, by root, in --dir or in memory")
    p.add_argument("--rocketmq", default="4.9.8", help="version to compare with")
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--only", default="", help="cases, comma-separated: " + ", ".join([*PAIRS, *ALONE]))
    p.add_argument("--quick", action="store_true", help="shows in a minute that everything runs; measures and writes nothing")
    args = p.parse_args(argv)
    if args.quick:
        args.reps = 1
    if args.only and (unknown := set(args.only.split(",")) - {*PAIRS, *ALONE}):
        p.error(f"--only {sorted(unknown)[0]}: expected some of {', '.join([*PAIRS, *ALONE])}")
    args.dir.mkdir(parents=True, exist_ok=True)
    with made([args.disk] if args.disk else [], args.dir, MADE_DISK_MIB) as (places, refused):
        if refused:
            print(f"--disk {args.disk}: {refused[args.disk]}", file=sys.stderr)
            return 1
        if places:
            args.dir = places[0].path
        return compare(args)


def compare(args: argparse.Namespace) -> int:
    """Measures, shows and keeps it."""
    head = {"machine": machine.describe(args.dir), "disk": args.disk, "rocketmq": args.rocketmq, "reps": args.reps,
            "pretouch_mib": PRETOUCH_MIB}
    mine, theirs, missing = measure(args)
    if missing:
        print(f"no comparison with the real RocketMQ: {missing}", file=sys.stderr)
    outcomes = targets.judge({c: medians(flat(c, r) for r in runs) for c, runs in mine.items()},
                             {c: medians(flat_java(c, r) for r in runs) for c, runs in theirs.items()})
    if args.quick:
        print("smoke run: the figures below mean nothing")
    print(targets.table(outcomes, verdicts=not args.quick))
    print(limits(mine))
    if not args.quick:
        results = Path(__file__).parent / "results"
        results.mkdir(exist_ok=True)
        path = results / (time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + ".json")
        path.write_text(json.dumps({**head, "outcomes": [vars(o) | {"verdict": o.words()} for o in outcomes],
                                    "ours": mine, "java": theirs}, indent=1) + "\n")
        print(f"written to {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
