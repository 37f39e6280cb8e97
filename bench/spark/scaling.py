"""What a plan for a large cluster rests on, measured here: python -m bench.spark.scaling --dir DIR [--mib 512] [--out FILE]

A job's time is taken to be (bytes / r + tasks x o) / cores. On one core, runs with large and with small splits give the rate r
and the cost o of a task; with them the time on all cores is foretold and then measured: the error says what the plan is worth.
Then the plan for --brokers stores of --tib each, with N cores. Best of --reps; DIR wants the size of the log and as much again.
"""
import argparse
import json
import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.spark.ratios import META, SETTINGS, make_store, noop
from rmq_store import MessageStore
from rmq_store.spark import jobs, local_session, read_store, scan

LARGE, SMALL, OTHER = 64 << 20, 8 << 20, 24 << 20       # splits: two to measure with, one to be foretold


def workloads(place: Path, root: str) -> dict[str, Callable[[Any, int], None]]:
    """name -> work(spark, split size)."""
    def export(spark: Any, split: int) -> None:
        shutil.rmtree(place / "out", ignore_errors=True)
        jobs.export(spark, root, str(place / "out"), compression="none", split_size=split)

    return {
        "full rows": lambda spark, split: noop(read_store(spark, root, split_size=split)),
        "metadata": lambda spark, split: noop(scan(spark, root, META, split_size=split)),
        "audit, log only": lambda spark, split: check(jobs.audit(spark, root, cross_check=False, split_size=split)),
        "audit": lambda spark, split: check(jobs.audit(spark, root, split_size=split)),
        "rebuild queues": lambda spark, split: check(jobs.rebuild_queues(spark, root, split_size=split)),
        "export": export,
    }


def check(result: Any) -> None:
    assert not getattr(result, "findings", None), result


def seconds(call: Callable[[], None], reps: int) -> float:
    """Of the fastest run; one before it warms."""
    call()
    found = []
    for _ in range(reps):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return min(found)


def on(cores: int, splits: tuple[int, ...], place: Path, root: str, reps: int) -> dict[str, list[float]]:
    """Seconds of each workload with each split size on so many cores."""
    spark = local_session(f"scaling {cores}", f"local[{cores}]", **SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        found: dict[str, list[float]] = {}
        for name, work in workloads(place, root).items():
            found[name] = [seconds(lambda w=work, s=split: w(spark, s), reps) for split in splits]     # type: ignore[misc]
            print(f"{cores} cores, {name:16}", *(f"{split >> 20:5} MiB splits {t:7.3f} s"
                                                 for split, t in zip(splits, found[name], strict=True)), flush=True)
        return found
    finally:
        spark.stop()


def tasks(size: int, split: int) -> int:
    return -(-size // split)


def model(size: int, one: list[float]) -> tuple[float, float]:
    """Bytes a second of a core, and seconds a task costs. Where small splits were no slower, a task costs nothing."""
    more = tasks(size, SMALL) - tasks(size, LARGE)
    cost = max(0.0, (one[1] - one[0]) / more) if more else 0.0
    return size / max(1e-9, one[0] - tasks(size, LARGE) * cost), cost


def plan(rate: float, cost: float, brokers: int, tib: float, cores: int, split: int = 512 << 20) -> dict[str, float]:
    """The paper estimate: how long it takes, and what the disks of each broker must give meanwhile."""
    size = int(brokers * tib * (1 << 40))
    number = brokers * tasks(int(tib * (1 << 40)), split)
    whole = (size / rate + number * cost) / cores
    return {"tasks": number, "core_hours": whole * cores / 3600, "hours": whole / 3600,
            "broker_gib_s": tib * 1024 / whole}


def run(directory: str | Path, mib: int, reps: int, brokers: int = 100, tib: float = 1.0, cores: int = 256) -> dict[str, Any]:
    """Measures, prints the table, and returns what a result file holds."""
    place = Path(directory) / "rmq-store-bench-scaling"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    load = os.getloadavg()
    all_cores = os.cpu_count() or 1
    try:
        root = str(place / "store")
        rows = make_store(Path(root), mib)
        with MessageStore.open(root, readonly=True) as store:
            size = store.max_log_offset
        one = on(1, (LARGE, SMALL), place, root, reps)
        every = on(all_cores, (OTHER,), place, root, reps)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    found = {}
    print(f"\n{'':16} {'MiB/s a core':>12} {'ms a task':>10} {'foretold':>9} {'measured':>9} {'error':>6}   "
          f"{brokers} x {tib:g} TiB on {cores} cores")
    for name, times in one.items():
        rate, cost = model(size, times)
        foretold = (size / rate + tasks(size, OTHER) * cost) / all_cores
        error = foretold / every[name][0] - 1
        far = plan(rate, cost, brokers, tib, cores)
        found[name] = {"one_core_s": times, "all_cores_s": every[name][0], "mib_s_core": rate / (1 << 20),
                       "task_ms": cost * 1000, "foretold_s": foretold, "error": error, "plan": far}
        print(f"{name:16} {rate / (1 << 20):12.0f} {cost * 1000:10.1f} {foretold:8.3f}s {every[name][0]:8.3f}s {error:+6.0%}   "
              f"{far['hours']:.2f} h, {far['core_hours']:.0f} core hours, {far['broker_gib_s']:.2f} GiB/s of each broker")
    return {"rows": rows, "bytes": size, "reps": reps, "cpus": all_cores, "machine": platform.platform(), "load": load,
            "splits": [LARGE, SMALL, OTHER], "brokers": brokers, "tib": tib, "cores": cores, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--reps", type=int, default=2)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--tib", type=float, default=1.0)
    parser.add_argument("--cores", type=int, default=256)
    parser.add_argument("--out")
    args = parser.parse_args()
    result = run(args.dir, args.mib, args.reps, args.brokers, args.tib, args.cores)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
