"""The workloads that put: one producer or several, batches, a window, asyncio; closed loop, or at a given rate.

Closed loop, asynchronous: two stretches on fresh stores, one without a timer around the calls (puts a second, with and without
the drain) and one that times each call. Open loop (rate): each put has a due time and its latency counts from there, so a stall
also shows in the puts that had to wait behind it; `service` is the time of the call alone, what a closed loop would have said.
Closed loops also give corrected_p99_us and corrected_p999_us: with the waits that their stalls hid, at their own mean pace.
"""
import asyncio
import resource
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import messages
from rmq_store.bench.case import Case
from rmq_store.bench.loops import ROUND, Pace, batches, loops
from rmq_store.bench.messages import TOPIC
from rmq_store.bench.ours import Figures, histograms, measuring, opened, warmed
from rmq_store.bench.runner import settle
from rmq_store.store import MessageStore

CLOCK = time.perf_counter_ns


def corrected(times: Histogram, interval_ns: int) -> Figures:
    """What a closed loop hides: the quantiles had a call been begun every `interval_ns`, its own mean pace."""
    whole = times.corrected(interval_ns)
    return {"corrected_p99_us": whole.quantile(.99) / 1e3, "corrected_p999_us": whole.quantile(.999) / 1e3}


class Line:
    """The moment at which all producers begin: when the last of them is there."""

    def __init__(self, producers: int) -> None:
        self._barrier = threading.Barrier(producers, action=self._go)
        self._start = 0

    def _go(self) -> None:
        self._start = CLOCK()

    def start(self) -> int:
        """Waits for the others; the moment (CLOCK), the same for all."""
        self._barrier.wait()
        return self._start


class Producer(threading.Thread):
    """Puts until its time or its bytes are used up. `times` and `service` as the loops say."""

    def __init__(self, store: MessageStore, case: Case, kind: str, most: int, number: int, line: Line) -> None:
        super().__init__()
        self.store, self.case, self.kind, self.most = store, case, kind, most
        self.number, self.line, self.pace = number, line, Pace(alone=case.producers == 1)
        self.times, self.service = Histogram(), Histogram()
        self.messages = messages.rounds(case.props, case.body)
        self.count = self.faults = self.switches = self.started = self.ended = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        before = resource.getrusage(resource.RUSAGE_THREAD)
        self.started = self.line.start()
        try:
            self.count = self._put(self.started + int(self.case.seconds * 1e9))
        except BaseException as error:
            self.failed = error
        self.ended = CLOCK()
        after = resource.getrusage(resource.RUSAGE_THREAD)
        self.faults = after.ru_minflt - before.ru_minflt
        self.switches = after.ru_nvcsw - before.ru_nvcsw

    def _put(self, deadline: int) -> int:
        case, made = self.case, loops(self.case.props)
        if self.kind == "many":
            bodies = [m[0] for r in self.messages for m in r]
            many = [bodies[i:i + case.batch] for i in range(0, len(bodies), case.batch)]
            put_many = self.store.put_many
            return batches(lambda batch, queue: put_many(TOPIC, batch, queue_id=queue), many, self.most, deadline, CLOCK,
                           self.times)
        common = (self.store.put, TOPIC, self.messages, self.most, deadline, CLOCK, self.times.add)
        if self.kind == "due":
            gap = 1e9 * case.producers / case.rate
            self.pace.first = self.started + int(gap * self.number / case.producers)
            return made.due(*common, self.service.add, round(gap), time.sleep, self.pace)
        loop = {"plain": made.plain, "timed": made.timed, "slow": made.slow}[self.kind]
        return loop(*common)


def drive(store: MessageStore, case: Case, kind: str, most: int) -> list[Producer]:
    """`case.producers` of them, in threads unless it is one."""
    line = Line(case.producers)
    producers = [Producer(store, case, kind, most, number, line) for number in range(case.producers)]
    if len(producers) == 1:
        producers[0].run()
    else:
        for p in producers:
            p.start()
        for p in producers:
            p.join()
    for p in producers:
        if p.failed is not None:
            raise p.failed
    return producers


def _elapsed_ms(step: Callable[[], object]) -> float:
    start = CLOCK()
    step()
    return (CLOCK() - start) / 1e6


def _stretch(case: Case, base: Path, kind: str) -> tuple[Figures, Histogram, Histogram]:
    """One measured stretch on a store of its own, which is removed again."""
    path = base / kind
    messages.rounds(case.props, case.body)      # before the store: it is no part of its memory
    with opened(path, case) as store:
        size = warmed(store, case)
        most = max(ROUND, (case.cap_mib << 20) // case.producers // size)
        before = store.stats()
        with measuring(store, path) as measured:        # the work of the background threads belongs to the messages
            producers = drive(store, case, kind, most)
            flush_ms = _elapsed_ms(store.flush)
            drain_ms = flush_ms + messages.drain(store)
        measured.finish(before, sum(p.count for p in producers), sum(p.pace.spun for p in producers if p.pace.alone))
    shutil.rmtree(path)
    count = sum(p.count for p in producers)
    seconds = (max(p.ended for p in producers) - min(p.started for p in producers)) / 1e9
    times, service = Histogram(), Histogram()
    for p in producers:
        times.merge(p.times)
        service.merge(p.service)
    if kind == "due":
        measured.figures |= {"rate_per_s": case.rate, "fails": sum(p.pace.fails for p in producers),
                             "held_per_s": round(count / max(seconds, count / case.rate))}
    else:
        measured.figures |= corrected(times, int(seconds * 1e9 * case.producers / max(times.count, 1)))
    return {**measured.figures, "record_bytes": size, "msgs_per_s": round(count / seconds),
            "mib_per_s": round(count * size / seconds / (1 << 20), 1),
            "flush_ms": round(flush_ms, 2), "drain_ms": round(drain_ms, 2),
            "flushed_secs": round(seconds + flush_ms / 1e3, 4), "flushed_per_s": round(count / (seconds + flush_ms / 1e3)),
            "flushed_mib_per_s": round(count * size / (seconds + flush_ms / 1e3) / (1 << 20), 1),
            "sustained_per_s": round(count / (seconds + drain_ms / 1e3)),
            "sustained_mib_per_s": round(count * size / (seconds + drain_ms / 1e3) / (1 << 20), 1),
            "producer_faults": sum(p.faults for p in producers),
            "producer_switches": sum(p.switches for p in producers)}, times, service


def producers(case: Case, base: Path) -> Figures:
    """put_async, put_sync, put_many, put_threads, put_sync_threads."""
    if case.rate:
        figures, times, service = _stretch(case, base, "due")
        return {**figures, **times.figures(), "service_p50_us": service.quantile(.5) / 1e3,
                "service_p999_us": service.quantile(.999) / 1e3, "service_max_us": service.highest / 1e3,
                "histograms": histograms(response=times, service=service)}
    if case.batch > 1 or case.flush_mode == "sync" or case.workload == "put_sustained":
        kind = "many" if case.batch > 1 else "slow" if case.flush_mode == "sync" else "timed"
        figures, times, _ = _stretch(case, base, kind)
        return {**figures, **times.figures(), "histograms": histograms(call=times)}
    figures, rounds, _ = _stretch(case, base, "plain")
    settle(case.settle_s)
    latency, times, _ = _stretch(case, base, "timed")
    return {**figures, "corrected_p999_us": latency["corrected_p999_us"], "corrected_p99_us": latency["corrected_p99_us"],
            "median_ns": round(rounds.quantile(.5) / ROUND, 1), **times.figures(),
            "timed_foreign": latency["foreign"], "histograms": histograms(call=times)}


def window(case: Case, base: Path) -> Figures:
    """put_async_window: latency runs from the call to the moment the producer has seen the result."""
    count, most = 0, 0
    under_way: deque[tuple[Any, int]] = deque()
    times = Histogram()
    with opened(base / "window", case) as store:
        most = (case.cap_mib << 20) // warmed(store, case)
        put, bodies, clock = store.put_async, messages.bodies(case.body), CLOCK
        before = store.stats()
        with measuring(store, base) as measured:
            deadline = clock() + int(case.seconds * 1e9)
            while clock() < deadline and count < most:
                while len(under_way) < case.window:
                    begin = clock()
                    under_way.append((put(TOPIC, bodies[count & 63], queue_id=count & 3), begin))
                    count += 1
                future, begin = under_way.popleft()
                future.result()
                times.add(clock() - begin)
                while under_way and under_way[0][0].done():
                    future, begin = under_way.popleft()
                    future.result()
                    times.add(clock() - begin)
            for future, begin in under_way:
                future.result()
                times.add(clock() - begin)
            seconds = time.perf_counter() - measured.watch.began
            drain_ms = messages.drain(store)
        measured.finish(before, count)
    return _rates(measured.figures, seconds, drain_ms, times)


def tasks(case: Case, base: Path) -> Figures:
    """put_asyncio: as many tasks as the window."""
    times = Histogram()
    with opened(base / "tasks", case) as store:
        most = (case.cap_mib << 20) // warmed(store, case)
        message = messages.bodies(case.body)[0]

        async def produce(deadline: int) -> None:
            put, body, clock, add = store.put_async, message, CLOCK, times.add
            begin = clock()
            while begin < deadline and times.count < most:
                await put(TOPIC, body)
                end = clock()
                add(end - begin)
                begin = end

        async def everybody() -> None:
            deadline = CLOCK() + int(case.seconds * 1e9)
            await asyncio.gather(*(produce(deadline) for _ in range(case.window)))

        before = store.stats()
        with measuring(store, base) as measured:
            asyncio.run(everybody())
            seconds = time.perf_counter() - measured.watch.began
            drain_ms = messages.drain(store)
        measured.finish(before, times.count)
    return _rates(measured.figures, seconds, drain_ms, times)


def _rates(figures: Figures, seconds: float, drain_ms: float, times: Histogram) -> Figures:
    return {**figures, "msgs_per_s": round(times.count / seconds), "drain_ms": round(drain_ms, 2),
            "sustained_per_s": round(times.count / (seconds + drain_ms / 1e3)), **times.figures(),
            "histograms": histograms(call=times)}


def run(case: Case, base: Path) -> Figures:
    """Any workload of this module."""
    kinds = {"put_async_window": window, "put_asyncio": tasks}
    return kinds.get(case.workload, producers)(case, base)
