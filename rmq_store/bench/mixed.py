"""The workload `mixed`: producers put while a reader follows them; how long a message takes from its put to the reader.

The body's first eight bytes are the moment at which the put began (or, at a given rate, was due). The reader polls all queues
and sleeps POLL_S when none has anything new: half of that is in the median of `delivery`.
"""
import threading
import time
from pathlib import Path
from typing import Any

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench import messages
from rmq_store.bench.case import Case
from rmq_store.bench.messages import QUEUES, TOPIC
from rmq_store.bench.ours import Figures, histograms, measuring, opened, warmed
from rmq_store.store import MessageStore

POLL_S = 0.0002
BATCH = 32


class Reader(threading.Thread):
    """Follows every queue from `start` on, until it has seen all that `expected` (set at the end) says there is."""

    def __init__(self, store: MessageStore, start: list[int]) -> None:
        super().__init__()
        self.store, self.at = store, start
        self.times, self.pulls = Histogram(), Histogram()
        self.expected = -1
        self.count = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while self.expected < 0 or self.count < self.expected:
                if not sum([self._pull(queue) for queue in range(QUEUES)]):
                    time.sleep(POLL_S)
        except BaseException as error:
            self.failed = error

    def _pull(self, queue: int) -> int:
        begin = time.perf_counter_ns()
        result = self.store.get(TOPIC, queue, self.at[queue], BATCH)
        taken = len(result)
        now = time.perf_counter_ns()
        if taken:
            self.pulls.add(now - begin)
        for message in result:
            self.times.add(now - int.from_bytes(message.body[:8], "little"))
        self.at[queue] = result.next_offset
        self.count += taken
        return taken


def _produce(store: MessageStore, case: Case, most: int, times: Histogram, counts: list[int]) -> None:
    put, clock, rest, count = store.put, time.perf_counter_ns, bytes(max(0, case.body - 8)), 0
    gap = int(1e9 * case.producers / case.rate) if case.rate else 0
    moment = clock()
    deadline = moment + int(case.seconds * 1e9)
    while moment < deadline and count < most:
        if gap:
            while (early := moment - clock()) > 0:
                if early > 500_000:
                    time.sleep((early - 300_000) / 1e9)
        else:
            moment = clock()
        put(TOPIC, moment.to_bytes(8, "little") + rest, queue_id=count & 3)
        times.add(clock() - moment)
        moment += gap
        count += 1
    counts.append(count)


def run(case: Case, base: Path) -> Figures:
    """mixed: p50_us and so on are those of the puts, delivery_* from the put's begin to the reader."""
    several = [Histogram() for _ in range(case.producers)]
    counts: list[int] = []
    with opened(base / "store", case) as store:
        size = warmed(store, case)
        most = (case.cap_mib << 20) // size // case.producers
        reader = Reader(store, [store.max_offset(TOPIC, queue) for queue in range(QUEUES)])
        producers = [threading.Thread(target=_produce, args=(store, case, most, h, counts)) for h in several]
        before: dict[str, Any] = {**store.stats()}
        with measuring(store, base) as measured:
            reader.start()
            for p in producers:
                p.start()
            for p in producers:
                p.join()
            seconds = time.perf_counter() - measured.watch.began
            if case.flush_mode != "sync":
                messages.drain(store)
            reader.expected = sum(counts) if len(counts) == len(producers) else 0
            reader.join()
        measured.finish(before, reader.count)
    if reader.failed is not None:
        raise reader.failed
    if len(counts) < len(producers):
        raise RuntimeError("a producer of the workload mixed ended early")
    times = Histogram()
    for h in several:
        times.merge(h)
    delivery = {f"delivery_{k}": v for k, v in reader.times.figures().items()}
    return {**measured.figures, "record_bytes": size, "msgs_per_s": round(sum(counts) / seconds), **times.figures(), **delivery,
            "pulls": reader.pulls.count, "histograms": histograms(put=times, delivery=reader.times, pull=reader.pulls)}
