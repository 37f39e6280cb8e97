"""Sustained asynchronous puts: how many a second until all is flushed and dispatched, and how long one call takes.

Two runs on fresh stores. The first has no timer around the calls: messages a second, with and without the drain, and the
median of rounds of 64 calls. The second times every call (p50, p99, p99.9, maximum; the timer's own cost of about 50 ns is in
them). With --rate each put of the second run has a due time, and its latency counts from there: a stall then also shows in
the puts that had to wait.

    python -m bench.load.put --write-path pool --body 100 --props lean --threads 1
"""
import argparse
import resource
import statistics
import threading
import time
from array import array
from pathlib import Path
from typing import Any

from bench import workload
from bench.histogram import Histogram
from bench.loops import ROUND, batches, loops
from bench.machine import Watch
from rmq_store import MessageStore


class Producer(threading.Thread):
    """Puts until its time or its bytes are used up; `samples` as the loop says."""

    def __init__(self, store: MessageStore, args: argparse.Namespace, seconds: float, cap: int, timed: bool) -> None:
        super().__init__()
        self.store, self.args, self.seconds, self.timed = store, args, seconds, timed
        self.most = max(ROUND, cap // args.threads // args.record_bytes)
        # touched now: the measured loop must not fault because of us
        self.samples = array("q", bytes(8 * (self.most + 2 * ROUND)))
        self.messages = workload.rounds(args.props, args.body, 1 << 12 if args.batch > 1 else workload.POOL)
        self.count = self.taken = self.faults = self.switches = 0
        self.started = self.ended = 0

    def run(self) -> None:
        args, clock = self.args, time.perf_counter_ns
        made = loops(args.props)
        before = resource.getrusage(resource.RUSAGE_THREAD)
        self.started = clock()
        deadline = self.started + int(self.seconds * 1e9)
        limits = (self.most, deadline, clock, self.samples)
        if args.batch > 1:
            bodies = [m[0] for r in self.messages for m in r]
            many = [bodies[i:i + args.batch] for i in range(0, len(bodies), args.batch)]
            self.count, self.taken = batches(self.store.put_many, workload.TOPIC, many, *limits)
        else:
            common = (self.store.put, workload.TOPIC, self.messages, *limits)
            if not self.timed:
                self.count, self.taken = made.plain(*common)
            elif args.rate:
                self.count, self.taken = made.due(*common, int(1e9 * args.threads / args.rate))
            else:
                self.count, self.taken = made.timed(*common)
        self.ended = clock()
        after = resource.getrusage(resource.RUSAGE_THREAD)
        self.faults = after.ru_minflt - before.ru_minflt
        self.switches = after.ru_nvcsw - before.ru_nvcsw


def _open(path: Path, args: argparse.Namespace) -> MessageStore:
    return MessageStore.open(path, write_path=args.write_path, flush_backend=args.flush_backend, **args.option)


def _drive(store: MessageStore, args: argparse.Namespace, seconds: float, cap: int, timed: bool) -> list[Producer]:
    producers = [Producer(store, args, seconds, cap, timed) for _ in range(args.threads)]
    if len(producers) == 1:
        producers[0].run()
        return producers
    for p in producers:
        p.start()
    for p in producers:
        p.join()
    return producers


def _one_run(args: argparse.Namespace, timed: bool) -> dict[str, Any]:
    with workload.scratch(args.dir) as base, _open(base / "store", args) as store:
        args.record_bytes = workload.record_size(store, args.props, args.body)
        _drive(store, args, 0.05, 1 << 20, False)       # the first files exist, all code has run once
        workload.drain(store)
        workload.pretouch(base / "touch", args.pretouch)
        with Watch() as watch:
            producers = _drive(store, args, args.seconds, args.cap_mib << 20, timed)
        drain_ms = workload.drain(store)
    if timed:
        return _latency(producers) | {"timed_foreign": watch.figures()["foreign"]}
    count = sum(p.count for p in producers)
    seconds = (max(p.ended for p in producers) - min(p.started for p in producers)) / 1e9
    per_sample = count / sum(p.taken for p in producers)
    return {"msgs": count, "record_bytes": args.record_bytes, "msgs_per_s": round(count / seconds),
            "drain_ms": round(drain_ms, 2), "sustained_per_s": round(count / (seconds + drain_ms / 1e3)),
            "median_ns": round(statistics.median(p.samples[i] for p in producers for i in range(p.taken)) / per_sample, 1),
            "producer_faults": sum(p.faults for p in producers), "producer_switches": sum(p.switches for p in producers),
            **watch.figures()}


def _latency(producers: list[Producer]) -> dict[str, float]:
    total = Histogram()
    for p in producers:
        total.merge(Histogram(p.samples[:p.taken]))
    return total.figures()


def options(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


def main(argv: list[str] | None = None) -> None:
    p = workload.parser(__doc__, write_path="pool", flush_backend="auto", threads=1, batch=1, body=100, props="lean",
                        seconds=2.5, cap_mib=1400, pretouch=0, rate=0)
    p.add_argument("--option", type=options, default={}, help="name=value,…: more options of the store")
    args = p.parse_args(argv)
    if args.smoke:
        args.seconds, args.cap_mib, args.pretouch = 0.1, 16, 0
    names = ("write_path", "flush_backend", "threads", "batch", "body", "props", "rate", "pretouch")
    workload.report({"bench": "put", **{k: getattr(args, k) for k in names}, **_one_run(args, False), **_one_run(args, True)})


if __name__ == "__main__":
    main()
