"""A store at full rate with cleaning on, for minutes: do memory, descriptors and mappings stay what they are?

Producers put as fast as they can, a consumer reads and commits, a reader waits, and the control thread deletes the oldest
files by force, as on a disk that is 86 % full. What the process holds is sampled all the time; the first third is warm-up,
and the last third must not hold more than the second did, nor a closed store anything. Prints a line of JSON a write path;
exit 1, and a sentence each, where something grew or stayed, or where nothing was consumed or deleted.

    make soak                               # RMQ_SOAK_SECONDS, 600, over each write path
    python -m bench.load.soak --seconds 600 --write-path pool --out soak.json
"""
import argparse
import gc
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench.runner import scratch

GROWTH_MIB = 8.0            # of private memory: malloc's arenas breathe; a leak of a byte a message would be hundreds
LOG_BYTES_MAX = 3 << 30     # producers wait where cleaning is so far behind: the disk is not ours
QUICK_MOST_S = 60.0
# What is under way: a file of the log more or less, and what leads to it.
SLACK = {"private_mib": GROWTH_MIB, "mappings": 2, "descriptors": 2, "files": 64}


def held(root: Path) -> dict[str, float]:
    """What this process holds: private memory without pages of files, descriptors, mappings of the store's files, threads,
    native ones too; and how many files the store has."""
    maps = Path("/proc/self/maps").read_text()
    found = dict(re.findall(r"^Pss_(\w+):\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE))
    return {"private_mib": (int(found["Anon"]) + int(found["Shmem"])) / 1024, "descriptors": len(os.listdir("/proc/self/fd")),
            "mappings": maps.count(str(root)), "threads": sum(not name.startswith("iou-") for name in _threads()),
            "files": sum(len(names) for _, _, names in os.walk(root))}


def _threads() -> Iterator[str]:
    """Names of all threads of this process; iou-*: the kernel's own for a ring, which come and go as it likes."""
    for task in Path("/proc/self/task").iterdir():
        try:
            yield (task / "comm").read_text()
        except OSError:         # it ended meanwhile
            pass


def grown(samples: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Of what is held more in the last third than in the one before: (most then, most now)."""
    third = len(samples) // 3
    before, now = samples[third:2 * third], samples[2 * third:]
    most = {name: (max(s[name] for s in before), max(s[name] for s in now)) for name in samples[0]}
    return {name: pair for name, pair in most.items() if pair[1] > pair[0] + SLACK.get(name, 0)}


class Soak:
    """The store at work. `stop` ends all threads; what one of them raised is raised by join."""

    def __init__(self, root: Path, write_path: str, segment_mib: float, producers: int, body: int) -> None:
        self.root, self.body = root, bytes(body)
        self.store = MessageStore.open(root, write_path=write_path, segment_size_bytes=int(segment_mib * (1 << 20)),
                                       retention_hours=1, clean_interval_ms=100, clean_pace_ms=10, clean_queue_pace_ms=0,
                                       consumequeue_fd_max=64, consumequeue_file_size_bytes=20 * 30_000, index_slots=50_000,
                                       index_entries_max=200_000)
        assert self.store._cleaner is not None
        self.store._cleaner.used = lambda path: 86
        self.stop, self.pauses, self.consumed, self.deleted_from = threading.Event(), Histogram(), 0, 0
        self.failed: list[BaseException] = []
        work = [self._consume, self._wait, *[lambda i=i: self._produce(i) for i in range(producers)]]   # type: ignore[misc]
        self.threads = [threading.Thread(target=self._run, args=(w,)) for w in work]
        for t in self.threads:
            t.start()

    def _run(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.failed.append(error)
            self.stop.set()

    def _produce(self, number: int) -> None:
        store, clock, add = self.store, time.perf_counter_ns, self.pauses.add
        count = 0
        while not self.stop.is_set():
            if store.max_log_offset - store.min_log_offset > LOG_BYTES_MAX:
                time.sleep(0.01)
                continue
            for _ in range(256):
                before = clock()
                store.put(f"Soak{count & 3}", self.body, queue_id=number, keys=f"k{count}" if not count & 15 else None)
                add(clock() - before)
                count += 1

    def _consume(self) -> None:
        with self.store.consumer("SoakGroup", ["Soak0", "Soak1"]) as consumer:
            while not self.stop.is_set():
                batch = consumer.poll(256, timeout=0.1)
                if batch is not None:
                    self.consumed += len(batch)
                    batch.ack()

    def _wait(self) -> None:
        while not self.stop.is_set():
            at = self.store.max_offset("Soak2", 0)
            self.store.get("Soak2", 0, at, 1, wait=0.05)

    def worked(self) -> bool:
        return self.consumed > 0 and self.store.min_log_offset > 0

    def join(self) -> None:
        self.stop.set()
        for t in self.threads:
            t.join()
        if self.failed:
            raise self.failed[0]


def run(args: argparse.Namespace, root: Path, write_path: str) -> dict[str, Any]:
    before = held(root)
    soak = Soak(root, write_path, args.segment_mib, args.producers, args.body)
    samples, begun = [], time.monotonic()
    try:
        # A third of the samples is compared with the third before: however slow the machine, there are three. And a quick run
        # lasts until each part has worked.
        while (len(samples) < 3 or (passed := time.monotonic() - begun) < args.seconds
               or (args.quick and passed < QUICK_MOST_S and not soak.worked())) and not soak.stop.wait(args.seconds / 300):
            samples.append(held(root))
    finally:
        soak.join()
    seconds, stats = time.monotonic() - begun, soak.store.stats()
    soak.store.close()
    del soak.store
    gc.collect()        # a closed store keeps the two descriptors of its delay timer until it is collected
    after = held(root)
    last = samples[len(samples) * 2 // 3:]
    return {"write_path": write_path, "flush_backend": stats["flush_backend"], "seconds": round(seconds, 1),
            "puts_per_s": int(stats["puts"] / seconds), "consumed": soak.consumed,
            "put_gib": round(stats["wrote"] / (1 << 30), 3), "deleted_gib": round(stats["min_log_offset"] / (1 << 30), 3),
            "put_us": soak.pauses.figures(), "grown": grown(samples),
            "left": {name: [before[name], after[name]] for name in ("descriptors", "mappings", "threads")
                     if after[name] > before[name]},
            "held": {name: [min(s[name] for s in last), max(s[name] for s in last)] for name in samples[0]}}


def wrong(row: dict[str, Any]) -> list[str]:
    """Sentences: what a run must not show."""
    found = [f"{name} grew from {low:g} to {high:g}" for name, (low, high) in row["grown"].items()]
    found += [f"{name}: {high:g} after close(), {low:g} before the store" for name, (low, high) in row["left"].items()]
    return found + [f"{name} is 0: it did not work" for name in ("consumed", "deleted_gib") if not row[name]]


def main(argv: list[str] | None = None) -> int:
    p = parser(__doc__, write_path="both", seconds=float(os.environ.get("RMQ_SOAK_SECONDS", "600")), segment_mib=64.0,
               producers=2, body=200)
    args = p.parse_args(argv)
    if args.quick:
        args.seconds, args.segment_mib = 1.0, 1.0
    rows = []
    for write_path in ("mmap", "pool") if args.write_path == "both" else (args.write_path,):
        with scratch(args.dir) as base:
            rows.append({"bench": "soak", **run(args, base / "store", write_path)})
        report(rows[-1])
    keep(args, rows, lambda r: ("soak", r["write_path"]))
    problems = [f"{row['write_path']}: {what}" for row in rows for what in wrong(row)]
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems and not args.quick else 0


if __name__ == "__main__":
    sys.exit(main())
