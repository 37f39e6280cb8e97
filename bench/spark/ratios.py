"""Spark on a store beside Spark on Parquet, in one run: python -m bench.spark.ratios --dir DIR [--mib 1024]

Prints a line a measurement and, last, all figures and the goals beside what was measured. Each figure is the best of --reps.
`DIR` wants three times the size of the log. With --mib 64 it takes seconds and shows that everything runs, no more: the fixed
cost of a query is then most of what is measured, so the goals are not judged. bench.spark keeps the result.
"""
import argparse
import filecmp
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.spark import shuffle
from bench.targets import Outcome, Target, judge, number
from rmq_store import MessageStore
from rmq_store.access.bulk._columns import Split
from rmq_store.spark import jobs, local_session, read_store, register, scan
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.shards import commit_shards
from rmq_store.spark.splits import plan
from rmq_store.spark.staging import commit_staged, enter
from rmq_store.spark.stores import log_files
from rmq_store.spark.writer import WriteOptions, build, stage

META = ["topic", "queueId", "queueOffset", "storeTimestamp", "physicalOffset", "storeSize"]


def _goal(text: str, unit: str, limit: float, name: str, at_least: bool = True) -> Target:
    return Target(text, unit, limit, lambda found, _: found["spark"][name], at_least)


# "kernel" is the native call alone, in one thread; "job" what a user of Spark has, with all cores. A shuffle: shuffle.py, which
# makes the same files; what it takes without writing them is reported beside it.
GOALS = (
    _goal("full rows beside Spark on uncompressed Parquet", "x", 0.60, "full_vs_parquet"),
    _goal("metadata only", "M rows/s", 2.0, "metadata_mrows_s"),
    _goal("consume queues rebuilt, kernel", "GiB/s", 1.5, "kernel_queues_gib_s"),
    _goal("consume queues rebuilt, job, beside a shuffle", "x", 3.0, "queues_vs_shuffle"),
    _goal("CRC audit, kernel", "GiB/s", 2.0, "kernel_audit_gib_s"),
    _goal("export to Parquet beside Spark from Parquet to Parquet", "x", 2.0, "export_vs_parquet_parquet"),
    _goal("ingest, staged", "MiB/s", 400, "staged_mib_s"),
    _goal("planning 1,000 files", "ms", 50, "planning_1000_files_ms", at_least=False),
)
SETTINGS = {"spark.python.unix.domain.socket.enabled": "true"}      # as docs/spark.md advises
JUDGED_MIB = 1024


def make_store(root: Path, mib: int) -> int:
    """A log of about so many MiB in four files or more, bodies of 900 to 1148 bytes of noise; returns its records."""
    noise = os.urandom(1 << 20)
    n = 0
    with MessageStore.open(root, segment_size_bytes=max(1 << 20, mib * (1 << 20) // 4)) as store:
        while store.max_log_offset < mib << 20:
            store.put_many(f"Topic{n // 1000 % 3}", [noise[(n + i) * 911 % 900_000:][:900 + (n + i) % 249] for i in range(250)],
                           queue_id=n // 250 % 4, tags="TagA", properties={"UNIQ_KEY": f"7F0000010A2B18B4AAC2{n:012X}",
                                                                           "user": "value"})
            n += 250
    return n


def best(what: str, call, reps: int, rows: int, size: int, before=lambda: None) -> float:
    """Seconds of the fastest run; `before` each one, what is no part of it."""
    seconds = []
    for _ in range(reps):
        before()
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    found = min(seconds)
    print(f"{what:44} {found:8.3f} s {size / found / (1 << 20):9.0f} MiB/s {rows / found / 1e6:7.2f} M rows/s", flush=True)
    return found


def noop(df) -> None:
    df.write.format("noop").mode("overwrite").save()


def native(root: str, work) -> None:
    for file in log_files(root):
        work(["", file.path, file.start, file.start, file.end, file.newest, False])


def audit_part(piece) -> None:
    _, path, start, begin, end, newest, aligned = piece
    with Split(path, start, begin, end, newest=newest, aligned=aligned, verify="crc") as split:
        while not split.done:
            split.skip()


def same_files(one: Path, two: Path) -> bool:
    """Whether two directories hold the same files, byte for byte."""
    found = [{path.relative_to(place) for path in place.rglob("*") if path.is_file()} for place in (one, two)]
    return found[0] == found[1] and all(filecmp.cmp(one / name, two / name, shallow=False) for name in found[0])


def planning(directory: Path) -> float:
    log = directory / "many" / "commitlog"
    log.mkdir(parents=True)
    for i in range(1000):
        with open(log / f"{i << 30:020d}", "wb") as file:
            file.truncate(1 << 30)
    with open(log / f"{999 << 30:020d}", "r+b") as file:
        file.write(b"\0\0\0\x5b")
    options = ReadOptions.parse({"path": str(directory / "many")})
    begin = time.perf_counter()
    assert len(plan(options)) == 8000
    return (time.perf_counter() - begin) * 1000


def measure(spark, place: Path, mib: int, reps: int) -> tuple[dict[str, float], dict[str, float]]:
    """The figures, and the seconds that they are made of."""
    from rmq_store.access.bulk._rebuild import queue_part

    root = str(place / "store")
    rows = make_store(Path(root), mib)
    with MessageStore.open(root, readonly=True) as store:
        size = store.max_log_offset
    register(spark)
    plain, packed = str(place / "plain"), str(place / "snappy")
    read_store(spark, root).write.option("compression", "uncompressed").parquet(plain)
    read_store(spark, root).write.option("compression", "snappy").parquet(packed)

    seconds = {}

    def timed(what, call, **more):
        seconds[what] = best(what, call, reps, rows, size, **more)
        return seconds[what]

    full = timed("full rows, store", lambda: noop(read_store(spark, root)))
    parquet = timed("full rows, Parquet uncompressed", lambda: noop(spark.read.parquet(plain)))
    snappy = timed("full rows, Parquet snappy", lambda: noop(spark.read.parquet(packed)))
    fixed = best("one row, the fixed cost of a query",
                 lambda: noop(scan(spark, root, META, ending_physical_offset=1)), reps, 1, 0)
    meta = timed("six metadata columns, store", lambda: noop(scan(spark, root, META, split_size="512m")))
    digest = "sum(length(body)) AS n, bit_xor(xxhash64(body)) AS h"
    ours = timed("xxhash64 of bodies, store", lambda: scan(spark, root, ["body"]).selectExpr(*digest.split(", ")).collect())
    theirs = timed("xxhash64 of bodies, Parquet", lambda: spark.read.parquet(plain).selectExpr(*digest.split(", ")).collect())

    def rebuild_native():
        target = tempfile.mkdtemp(dir=place)        # a new one each time: removing the last is no part of a rebuild
        native(root, lambda piece: queue_part(piece, target, 6_000_000))

    kernel_queues = timed("consume queues, kernel, one thread", rebuild_native)
    kernel_audit = timed("CRC audit, kernel, one thread", lambda: native(root, audit_part))
    queues, shuffle_made = Path(root) / ".spark" / "rebuild" / "consumequeue", place / "shuffled"
    rebuilt = timed("consume queues, job", lambda: jobs.rebuild_queues(spark, root),
                    before=lambda: shutil.rmtree(queues, ignore_errors=True))
    shuffled = timed("consume queues, shuffle, sort and write",
                     lambda: shuffle.rebuild(spark, root, str(shuffle_made)),
                     before=lambda: (shutil.rmtree(shuffle_made, ignore_errors=True), shuffle_made.mkdir()))
    assert same_files(queues, shuffle_made)
    unwritten = timed("consume queues, shuffle and sort, no write", lambda: noop(shuffle.rows(spark, root)))
    audited = timed("CRC audit, job", lambda: jobs.audit(spark, root, cross_check=False))
    crossed = timed("CRC audit with cross-checks, job", lambda: jobs.audit(spark, root))

    def export():
        shutil.rmtree(place / "out", ignore_errors=True)
        jobs.export(spark, root, str(place / "out"), compression="none")

    exported = timed("export to Parquet, job", export)
    copied = timed("Parquet to Parquet, Spark", lambda: spark.read.parquet(plain).write.mode("overwrite")
                   .option("compression", "uncompressed").parquet(str(place / "copy")))
    found = {"full_vs_parquet": parquet / full, "full_vs_snappy": snappy / full, "body_hash_vs_parquet": theirs / ours,
             "fixed_s": fixed, "metadata_mrows_s": rows / meta / 1e6,
             "kernel_queues_gib_s": size / kernel_queues / (1 << 30),
             "queues_job_gib_s": size / rebuilt / (1 << 30), "queues_vs_shuffle": shuffled / rebuilt,
             "queues_vs_shuffle_without_its_write": unwritten / rebuilt,
             "kernel_audit_gib_s": size / kernel_audit / (1 << 30), "audit_job_gib_s": size / audited / (1 << 30),
             "audit_with_cross_checks_gib_s": size / crossed / (1 << 30), "export_vs_parquet_parquet": copied / exported,
             **ingest(plain, place, reps, rows, size), "planning_1000_files_ms": planning(place)}
    return found, seconds


def ingest(parquet: str, place: Path, reps: int, rows: int, size: int) -> dict[str, float]:
    """A load as tasks do it, one a core, without Spark around them: staging and the commit; and stores of their own."""
    import pyarrow.dataset as ds

    root, load = str(place / "ingested"), str(place / "load")
    batches = list(ds.dataset(parquet, format="parquet").to_batches(
        columns=["topic", "body", "properties", "queueId", "bornTimestamp"], batch_size=4096))
    cores = os.cpu_count() or 1
    found: dict[str, float] = {}

    def timed(what, name, call):
        begin = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - begin
        print(f"{what:44} {seconds:8.3f} s {size / seconds / (1 << 20):9.0f} MiB/s {rows / seconds / 1e6:7.2f} M rows/s",
              flush=True)
        found[name] = max(found.get(name, 0), size / seconds / (1 << 20))
        return result

    with ThreadPoolExecutor(cores) as tasks:
        def each(work, options):
            return list(tasks.map(lambda i: work(options.path, "bench", i, batches[i::cores], options), range(cores)))

        for _ in range(reps):
            enter(root, "bench", "bench", 0)
            staged = timed("staging, a task a core", "staged_mib_s", lambda: each(stage, WriteOptions.parse({"path": root})))
            timed("commit", "commit_mib_s",
                  lambda told=staged: commit_staged(root, "bench", 0, [m.staged for m in told], {}, "bench"))
            shutil.rmtree(root)
            options = WriteOptions.parse({"path": load, "shards": str(cores)})
            enter(load, "bench", "bench", 0)
            built = timed("stores of their own, a task a core", "shards_mib_s", lambda o=options: each(build, o))
            commit_shards(load, "bench", 0, [m.shard for m in built if m.shard is not None], "bench")
            shutil.rmtree(load)
    return found


def judged(result: dict[str, Any]) -> list[Outcome]:
    """Every goal beside what was measured; none is met or missed by a log too small to say."""
    outcomes = judge({"spark": result["found"]}, {}, GOALS)
    return outcomes if result["mib"] >= JUDGED_MIB else [replace(o, met=None) for o in outcomes]


def run(directory: str | Path, mib: int, reps: int) -> dict[str, Any]:
    """Measures, prints the figures, and returns what a result file holds."""
    place = Path(directory) / "rmq-store-bench-spark"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    load = os.getloadavg()
    spark = local_session("rmq_store bench", **SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        found, seconds = measure(spark, place, mib, reps)
    finally:
        spark.stop()
        shutil.rmtree(place, ignore_errors=True)
    print()
    for name, value in found.items():
        print(f"{name:30} {value:10.2f}")
    return {"mib": mib, "reps": reps, "load": load, "found": found, "seconds": seconds}


def tell(result: dict[str, Any]) -> None:
    """The goals, for people."""
    enough = result["mib"] >= JUDGED_MIB
    print()
    for o in judged(result):
        print(f"{o.text:56} {number(o.value):>9}   {o.target:>13}   {o.words() if enough else ''}".rstrip())
    if not enough:
        print(f"goals are judged with {JUDGED_MIB} MiB and more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--mib", type=int, default=JUDGED_MIB)
    parser.add_argument("--reps", type=int, default=3)
    args = parser.parse_args()
    tell(run(args.dir, args.mib, args.reps))


if __name__ == "__main__":
    main()
