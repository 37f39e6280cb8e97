"""How many puts tasks of one event loop get durable, with so many of them under way, and what each of them waits.

`--in-flight` tasks put one message after the other and await each: AsyncMessageStore.put over synchronous flush, on asyncio and
on uvloop where it is installed. Beside it the same number of futures of put_async under way in one thread without any loop:
what the tasks of a loop can come to. Rounds alternate; shown is the round with the median rate.

    python -m bench.load.asyncio_puts --dir DIR --out bench/results/asyncio-puts.json
"""
import argparse
import asyncio
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.load.driver import keep, parser
from rmq_store import AsyncMessageStore, MessageStore
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import messages
from rmq_store.bench.runner import scratch

Row = dict[str, Any]
Loop = Callable[[], asyncio.AbstractEventLoop]


def loops() -> dict[str, Loop | None]:
    """Name -> what makes the loop; None: futures without a loop."""
    found: dict[str, Loop | None] = {"futures": None, "asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ImportError:
        return found
    return found | {"uvloop": uvloop.new_event_loop}


async def _tasks(store: MessageStore, body: bytes, in_flight: int, seconds: float, times: Histogram) -> int:
    async_store, clock, add = AsyncMessageStore(store), time.perf_counter_ns, times.add
    end = clock() + int(seconds * 1e9)

    async def produce() -> int:
        count = 0
        while (begun := clock()) < end:
            await async_store.put(messages.TOPIC, body)
            add(clock() - begun)
            count += 1
        return count

    return sum(await asyncio.gather(*(produce() for _ in range(in_flight))))


def _futures(store: MessageStore, body: bytes, in_flight: int, seconds: float, times: Histogram) -> int:
    clock, add = time.perf_counter_ns, times.add
    end, count = clock() + int(seconds * 1e9), 0
    under_way: deque[tuple[int, Any]] = deque()
    while (now := clock()) < end:
        under_way.append((now, store.put_async(messages.TOPIC, body)))
        if len(under_way) == in_flight:
            begun, future = under_way.popleft()
            future.result()
            add(clock() - begun)
            count += 1
    for _, future in under_way:
        future.result()
    return count + len(under_way)


def _run(path: Path, write_path: str, loop: Loop | None, in_flight: int, args: argparse.Namespace) -> Row:
    times, body = Histogram(), bytes(args.body)
    with MessageStore.open(path, flush_mode="sync", write_path=write_path) as store:
        begun = time.perf_counter()
        if loop is None:
            count = _futures(store, body, in_flight, args.seconds, times)
        else:
            with asyncio.Runner(loop_factory=loop) as runner:
                count = runner.run(_tasks(store, body, in_flight, args.seconds, times))
        seconds, flushes = time.perf_counter() - begun, store.stats()["flushes"]
    return {"puts_per_s": int(count / seconds), "puts_per_flush": round(count / max(flushes, 1), 1), **times.figures()}


def measured(base: Path, args: argparse.Namespace) -> list[Row]:
    """One row a case."""
    cases = [(write_path, name, in_flight) for write_path in ("mmap", "pool") for in_flight in (1, 64, 512) for name in loops()]
    found: dict[tuple[str, str, int], list[Row]] = {case: [] for case in cases}
    for number in range(args.reps):
        for case in cases:
            write_path, name, in_flight = case
            path = base / f"{number}-{write_path}-{name}-{in_flight}"
            found[case].append(_run(path, write_path, loops()[name], in_flight, args))
    rows = []
    for (write_path, name, in_flight), runs in found.items():
        middle = sorted(runs, key=lambda r: r["puts_per_s"])[len(runs) // 2]
        rows.append({"write_path": write_path, "loop": name, "in_flight": in_flight, **middle,
                     "all_puts_per_s": [r["puts_per_s"] for r in runs]})
    return rows


def table(rows: list[Row]) -> str:
    lines = [f"{'write path':12}{'loop':10}{'in flight':>10}{'puts/s':>12}{'a flush':>10}{'p50 µs':>10}{'p99 µs':>10}"
             f"{'p99.9 µs':>10}"]
    lines += [f"{r['write_path']:12}{r['loop']:10}{r['in_flight']:>10}{r['puts_per_s']:>12,}{r['puts_per_flush']:>10}"
              f"{r['p50_us']:>10.0f}{r['p99_us']:>10.0f}{r['p999_us']:>10.0f}" for r in rows]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    p = parser(__doc__, reps=3, seconds=3.0, body=100)
    args = p.parse_args(argv)
    if args.quick:
        args.reps, args.seconds = 1, 0.05
    with scratch(args.dir) as base:
        rows = measured(base, args)
    print(table(rows))
    keep(args, rows, lambda r: (f"awaited_{r['write_path']}_{r['in_flight']}", r["loop"]))


if __name__ == "__main__":
    main()
