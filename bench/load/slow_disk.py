"""A disk that is a hundred times slower for ten seconds, under a load that it carries otherwise.

Four producers put by due times before, during and after. Meanwhile every write, sync and reservation below the store waits
until a hundred times the device's own time for a sync has passed. What must come of it: producers wait, or are refused with a
reason; private memory stays within the pool and 64 MiB; afterwards the rate is back by itself; nothing acknowledged is lost.

    python -m bench.load.slow_disk --seconds 10 --factor 100
"""
import argparse
import os
import statistics
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore, errors
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.io._io import ProbeIo
from rmq_store.bench.machine import anonymous_memory
from rmq_store.bench.runner import scratch

DEVICE = "pwrite|fdatasync|fsync|msync|fallocate|ring_submit"
PRODUCERS, BODY = 4, 4096
CASES: tuple[dict[str, Any], ...] = (
    {"write_path": "mmap", "flush_backend": "fdatasync", "flush_mode": "async"},
    {"write_path": "pool", "flush_backend": "fdatasync", "flush_mode": "async"},
    {"write_path": "pool", "flush_backend": "io_uring", "flush_mode": "async"},
    {"write_path": "pool", "flush_backend": "fdatasync", "flush_mode": "sync"},
    {"write_path": "pool", "flush_backend": "io_uring", "flush_mode": "sync"},
)


def sync_s(place: Path) -> float:
    """Median of a write of 64 KiB and its sync, in place."""
    times = []
    fd = os.open(place / "probe", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for _ in range(20):
            begun = time.perf_counter()
            os.pwrite(fd, bytes(65536), 0)
            os.fdatasync(fd)
            times.append(time.perf_counter() - begun)
    finally:
        os.close(fd)
        os.unlink(place / "probe")
    return statistics.median(times)


def anonymous_mib() -> float:
    return anonymous_memory() / (1 << 20)


class Producer(threading.Thread):
    """Puts numbered messages into a queue of its own, `rate` a second, as long as it is let; late ones follow at once."""

    def __init__(self, store: MessageStore, number: int, rate: float, stop: threading.Event) -> None:
        super().__init__()
        self.store, self.number, self.rate, self.stop = store, number, rate, stop
        self.kept: list[int] = []               # acknowledged: the messages' numbers
        self.done_at: list[float] = []          # and when
        self.refused: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        self.waits = Histogram()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            self._produce()
        except BaseException as error:
            self.failed = error
            self.stop.set()

    def _produce(self) -> None:
        begun, count = time.perf_counter(), 0
        rest = bytes(BODY - 8)
        while not self.stop.is_set():
            early = begun + count / self.rate - time.perf_counter()
            if early > 0:
                time.sleep(early)
            before = time.perf_counter_ns()
            try:
                status = self.store.put("Slow", count.to_bytes(8, "big") + rest, queue_id=self.number).status
            except errors.PutError as error:
                name = type(error).__name__
                self.refused[name] += 1
                self.reasons.setdefault(name, str(error))
            else:
                self.kept.append(count)
                self.done_at.append(time.perf_counter())
                if status:
                    self.refused[status.name] += 1
            self.waits.add(time.perf_counter_ns() - before)
            count += 1


def slowly(probe: ProbeIo, delay: float, seconds: float) -> None:
    """Lets what waits below the store continue once in `delay`, for so many seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        probe.hold(DEVICE)
        try:
            probe.wait_held(1, 0.05)
            time.sleep(delay)
        except TimeoutError:
            pass
        probe.release()


def lost(root: Path, producers: list[Producer]) -> list[str]:
    """What is wrong with what the producers were told, by a store that is opened again."""
    wrong = []
    with MessageStore.open(root, readonly=True) as store:
        for p in producers:
            found = [int.from_bytes(m.body[:8], "big") for m in store.scan("Slow", p.number)]
            missing = set(p.kept).difference(found)
            if missing:
                wrong.append(f"queue {p.number}: {len(missing)} acknowledged messages are missing, the first is {min(missing)}")
            if found != sorted(found):
                wrong.append(f"queue {p.number}: out of order")
    return wrong


def one_case(base: Path, options: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    delay = args.factor * sync_s(base)
    probe, stop, anonymous = ProbeIo(keep_bytes=False), threading.Event(), anonymous_mib()
    store = MessageStore.open(base / "store", _io=probe, segment_size_bytes=int(args.segment_mib * (1 << 20)),
                              index_enabled=False, **options)
    producers = [Producer(store, i, args.rate / PRODUCERS, stop) for i in range(PRODUCERS)]
    peak, over = [0.0], threading.Event()

    def sample() -> None:
        while not over.wait(0.05):
            peak[0] = max(peak[0], anonymous_mib() - anonymous)

    sampler = threading.Thread(target=sample)
    try:
        sampler.start()
        for p in producers:
            p.start()
        marks = [time.perf_counter()]
        stop.wait(args.around)
        marks.append(time.perf_counter())
        slowly(probe, delay, 0 if stop.is_set() else args.seconds)
        marks.append(time.perf_counter())
        stop.wait(args.around)
        marks.append(time.perf_counter())
    finally:
        probe.release()
        stop.set()
        for t in (*producers, *[sampler]):
            over.set()
            t.join()
        stats = store.stats()
        store.close()
    for p in producers:
        if p.failed:
            raise p.failed
    rates = [sum(low <= at < high for p in producers for at in p.done_at) / (high - low)
             for low, high in pairwise(marks)]
    return {"slow_call_ms": round(delay * 1e3, 2), "due_per_s": args.rate,
            **{f"{name}_per_s": round(rate) for name, rate in zip(("before", "slow", "after"), rates, strict=True)},
            "worst_put_ms": round(max(p.waits.highest for p in producers) / 1e6, 1),
            "refused": dict(sum((p.refused for p in producers), Counter())),
            "reasons": {name: text for p in producers for name, text in p.reasons.items()},
            "pool_waits": stats["pool_waits"], "file_waits": stats["file_waits"], "errno": stats["errno"],
            "pool_mib": stats["pool_bytes"] / (1 << 20), "peak_anonymous_mib": round(peak[0], 1),
            "acknowledged": sum(len(p.kept) for p in producers), "wrong": lost(base / "store", producers)}


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, seconds=10.0, around=3.0, factor=100.0, rate=4000.0, segment_mib=64.0)
    args = p.parse_args(argv)
    if args.quick:
        args.seconds, args.around, args.rate, args.segment_mib = 1.0, 0.3, 1000.0, 1.0
    rows: list[dict[str, Any]] = []
    for options in CASES:
        with scratch(args.dir) as base:
            try:
                found = one_case(base, options, args)
            except errors.BackendUnavailable as why:
                found = {"missing": str(why)}
        rows.append({"bench": "slow_disk", **options, **found})
        report(rows[-1])
    keep(args, rows, lambda r: ("slow_disk", " ".join(str(r[name]) for name in CASES[0] if name in r)))


if __name__ == "__main__":
    main()
