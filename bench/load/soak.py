"""A store at full rate with cleaning on, for minutes: do memory, descriptors and mappings stay what they are?

Producers put as fast as they can, a consumer reads and commits, a reader waits, and the control thread deletes the oldest
files by force, as on a disk that is 86 % full. What the process holds is sampled all the time; the first third is warm-up,
and the last third must not hold more than the second did. Prints one line of JSON; exit 1 where something grew.

    make soak                               # RMQ_SOAK_SECONDS, 600
    python -m bench.load.soak --seconds 600 --write-path pool
"""
import argparse
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.load.driver import parser, report
from rmq_store import MessageStore, errors
from rmq_store.bench.runner import scratch
from rmq_store.histogram._histogram import Histogram

GROWTH_MIB = 8.0            # of private memory: malloc's arenas breathe; a leak of a byte a message would be hundreds
LOG_BYTES_MAX = 3 << 30     # producers wait where cleaning is so far behind: the disk is not ours


def held(root: Path) -> dict[str, float]:
    """What this process holds: private memory without pages of files, descriptors, mappings of the store's files, threads."""
    maps = Path("/proc/self/maps").read_text()
    found = dict(re.findall(r"^Pss_(\w+):\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE))
    return {"private_mib": (int(found["Anon"]) + int(found["Shmem"])) / 1024, "descriptors": len(os.listdir("/proc/self/fd")),
            "mappings": maps.count(str(root)), "threads": threading.active_count()}


def grown(samples: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Of what is held more in the last third than in the one before: (most then, most now)."""
    third = len(samples) // 3
    before, now = samples[third:2 * third], samples[2 * third:]
    most = {name: (max(s[name] for s in before), max(s[name] for s in now)) for name in samples[0]}
    slack = {"private_mib": GROWTH_MIB, "mappings": 2, "descriptors": 2}        # a file more or less is under way
    return {name: pair for name, pair in most.items() if pair[1] > pair[0] + slack.get(name, 0)}


class Soak:
    """The store at work. `stop` ends all threads; what one of them raised is raised by join."""

    def __init__(self, root: Path, write_path: str, segment_mib: float, producers: int, body: int) -> None:
        self.root, self.body = root, bytes(body)
        self.store = MessageStore.open(root, write_path=write_path, segment_size_bytes=int(segment_mib * (1 << 20)),
                                       retention_hours=1, clean_interval_ms=100, clean_pace_ms=10, consumequeue_fd_max=64,
                                       consumequeue_file_size_bytes=20 * 30_000, index_slots=50_000, index_entries_max=200_000)
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

    def join(self) -> None:
        self.stop.set()
        for t in self.threads:
            t.join()
        if self.failed:
            raise self.failed[0]


def run(args: argparse.Namespace, base: Path) -> dict[str, Any]:
    soak = Soak(base / "store", args.write_path, args.segment_mib, args.producers, args.body)
    samples, begun = [], time.monotonic()
    while time.monotonic() - begun < args.seconds and not soak.stop.wait(args.seconds / 300):
        samples.append(held(soak.root))
    soak.join()
    seconds, stats, low = time.monotonic() - begun, soak.store.stats(), soak.store.min_log_offset
    try:
        soak.store.close()
    except BufferError:
        pass                    # views of the consumer's last batch
    except errors.RmqStoreError as error:
        raise SystemExit(f"closing failed: {error}") from error
    more = grown(samples)
    last = samples[len(samples) * 2 // 3:]
    return {"seconds": round(seconds, 1), "puts_per_s": int(stats["puts"] / seconds), "consumed": soak.consumed,
            "deleted_gib": round(low / (1 << 30), 2), "put_us": soak.pauses.figures(), "grown": more,
            "held": {name: [min(s[name] for s in last), max(s[name] for s in last)] for name in samples[0]}}


def main(argv: list[str] | None = None) -> int:
    p = parser(__doc__, write_path="mmap", seconds=float(os.environ.get("RMQ_SOAK_SECONDS", "600")), segment_mib=64.0,
               producers=2, body=200)
    args = p.parse_args(argv)
    if args.smoke:
        args.seconds, args.segment_mib = 3.0, 1.0
    with scratch(args.dir) as base:
        figures = run(args, base)
    report({"bench": "soak", "write_path": args.write_path, **figures})
    return 1 if figures["grown"] and not args.smoke else 0


if __name__ == "__main__":
    sys.exit(main())
