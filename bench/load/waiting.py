"""How long from a put until another thread has the message, and what readers cost that only wait.

One thread puts with pauses between, one sits in get(wait=); the time counts from before the put until get has returned in the
other thread; on the pool also from the end of the commit's write, as an I/O table that records calls saw it. Beside it the
same pause and one bare wake-up by futex (bare_wake.c). The longer a virtual processor idles, the colder is all it runs then:
hence several `--pauses`. Then `--waiters` threads wait on as many queues for `--seconds`: the processor time of the process
meanwhile.

    python -m bench.load.waiting --write-path mmap --rounds 2000 --waiters 10000
"""
import argparse
import resource
import subprocess
import threading
import time
from array import array
from bisect import bisect_left
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser, report
from rmq_store import MessageStore, errors
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.base.io._io import ProbeIo
from rmq_store.bench import messages
from rmq_store.bench.runner import scratch

STACK = 64 << 10
PROMPT = {"pool": {"commit_interval_max_ms": 0}}     # else a put of 100 bytes waits 200 ms for its commit


def _hand_over(store: MessageStore, rounds: int, pause: float, probe: ProbeIo | None) -> dict[str, Any]:
    clock = time.perf_counter_ns
    got = array("q", bytes(8 * rounds))
    took = threading.Semaphore(0)

    def consume() -> None:
        for i in range(rounds):
            store.get(messages.TOPIC, 0, i, 1, wait=60)
            got[i] = clock()
            took.release()

    consumer = threading.Thread(target=consume)
    consumer.start()
    put = array("q", bytes(8 * rounds))
    for i in range(rounds):
        time.sleep(pause)       # the consumer sits in get again
        put[i] = clock()
        store.put(messages.TOPIC, b"x" * 100)
        took.acquire()
    consumer.join()
    figures: dict[str, Any] = Histogram(got[i] - put[i] for i in range(rounds)).figures()
    if probe is not None:
        log = f"{store.path}/commitlog/"
        written = [c.time_ns for c in probe.trace() if c.kind == "pwrite" and c.path and c.path.startswith(log)]
        after = [got[i] - max((w for w in written[bisect_left(written, put[i]):bisect_left(written, got[i])]), default=got[i])
                 for i in range(rounds)]
        figures["after_commit"] = Histogram(after).figures()
    return figures


def _bare(base: Path, rounds: int, pause_us: int) -> dict[str, float]:
    program = base / "bare_wake"
    subprocess.run(["cc", "-O2", "-std=gnu11", "-Wall", "-Werror", "-o", program, Path(__file__).with_name("bare_wake.c"),
                    "-pthread"], check=True)
    done = subprocess.run([program, str(rounds), str(pause_us)], capture_output=True, text=True, check=True)
    return dict(zip(("p50_us", "p99_us"), (int(ns) / 1e3 for ns in done.stdout.split()), strict=True))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _idle(store: MessageStore, waiters: int, seconds: float) -> dict[str, Any]:
    def wait(i: int) -> None:
        try:
            store.get(f"Idle{i // 8}", i % 8, 0, 1, wait=3600)
        except errors.StoreClosed:
            pass

    before = threading.stack_size(STACK)
    threads = [threading.Thread(target=wait, args=(i,), daemon=True) for i in range(waiters)]
    try:
        for t in threads:
            t.start()
    finally:
        threading.stack_size(before)
    time.sleep(seconds / 4)
    used, start = _cpu(), time.perf_counter()
    time.sleep(seconds)
    share = (_cpu() - used) / (time.perf_counter() - start)
    start = time.perf_counter()
    store.close()
    for t in threads:
        t.join()
    closing = time.perf_counter() - start
    return {"waiters": waiters, "idle_cpu_pct": round(share * 100, 3), "close_ms": round(closing * 1e3, 1)}


def run(args: argparse.Namespace, base: Path, pause_us: int) -> dict[str, Any]:
    more: dict[str, Any] = {"write_path": args.write_path, **PROMPT.get(args.write_path, {})}
    figures: dict[str, Any] = {"bare_wake": _bare(base, args.rounds, pause_us)}
    if args.write_path == "pool":
        probe = ProbeIo(keep_bytes=False)
        with MessageStore.open(base / "seen", flush_backend="fdatasync", _io=probe, **more) as store:
            figures["after_commit"] = _hand_over(store, args.rounds, pause_us / 1e6, probe)["after_commit"]
    store = MessageStore.open(base / "store", **more)
    return figures | _hand_over(store, args.rounds, pause_us / 1e6, None) | _idle(store, args.waiters, args.seconds)


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, write_path="mmap", rounds=2000, pauses="200,2000", waiters=10_000, seconds=3.0)
    args = p.parse_args(argv)
    if args.quick:
        args.rounds, args.waiters, args.seconds = 20, 50, 0.1
    rows = []
    for pause_us in map(int, args.pauses.split(",")):
        with scratch(args.dir) as base:
            rows.append({"bench": "waiting", "write_path": args.write_path, "pause_us": pause_us, **run(args, base, pause_us)})
        report(rows[-1])
    keep(args, rows, lambda r: (f"waiting_{r['pause_us']}", r["write_path"]))


if __name__ == "__main__":
    main()
