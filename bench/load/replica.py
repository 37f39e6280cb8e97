"""One side of a pair of stores of this library, a process of its own, which does what it reads: for bench/load/replication.py.

    python -m bench.load.replica master|slave DIR [name=value ...]      options of the store

The commands and answers are those of tools/interop/src/Replica.java, which is the same of the real store, and these:
    single COUNT                    one put after the other, each waits for its status: {"p50_us":.., "p99_us":..}
    due RATE SECONDS HOW            puts that say when they were due: {"held_per_s":.., "producer_s":..}, its processor time;
                                    the producer `spins` or `sleeps` until a put is due
    lag COUNT                       a slave reads so many of what `due` puts, and counts from then: {"p50_us":.., "p99_us":..}
    behind COUNT RATE               a slave looks every half millisecond how long the first message that it lacks has been due,
                                    until it lacks none of COUNT: {"looks":.., "behind_p50_us":.., "behind_p99_us":..}
    rounds COUNT PUTS PAUSE         a round is PUTS puts; {"wall_ns":.., "cpu_ns":..} for one put, medians of rounds
    rounds_until_followed PUTS PAUSE    the same until a slave has come, followed and lacks nothing
"""
import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmq_store import MessageStore
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench.messages import drain

TOPIC, BODY, QUEUES = "T", bytes(1024), 4
SPARE_NS = 100_000      # before a due time at which a producer stops sleeping
SMALL = bytes(100)      # of rounds
GET = 32
LAG_S = 60              # a reader waits no longer
LOOK_S = 0.0005         # as bare_pair.c

Answer = dict[str, Any]


def _times(histogram: Histogram) -> Answer:
    return {f"p{name}_us": round(histogram.quantile(q) / 1e3, 2) for name, q in (("50", .5), ("99", .99), ("999", .999))}


def _end(store: MessageStore) -> int:
    return int(store.max_log_offset)


class Side:
    """A store, which a slave opens when it begins to follow, and the commands."""

    def __init__(self, role: str, path: Path, options: dict[str, Any]) -> None:
        self.path, self.options, self.slave = path, options, role == "slave"
        self.store: Any = None if self.slave else MessageStore.open(path, ha_listen="127.0.0.1:0", **options)

    def ready(self) -> Answer:
        return {"ready": True} | ({} if self.slave else {"address": self.store.replication().address})

    def connected(self) -> Answer:
        while not self.store.replicas():
            time.sleep(0.001)
        return {}

    def fill(self, mib: str) -> Answer:
        put, until = self.store.put, int(mib) << 20
        while _end(self.store) < until:
            for i in range(1000):
                put(TOPIC, BODY, queue_id=i % QUEUES)
        drain(self.store)
        return {"end": _end(self.store)}

    def follow(self, address: str) -> Answer:
        self.store = MessageStore.open(self.path, role="slave", ha_master=address, **self.options)
        return {}

    def reached(self, offset: str) -> Answer:
        while _end(self.store) < int(offset):
            time.sleep(0.001)
        return {}

    def dispatched(self) -> Answer:
        self.store.wait_dispatched()
        return {}

    def window(self, most: str, seconds: str) -> Answer:
        """As Replica.java: a time runs from the call until the producer has seen the result."""
        put, clock, times, under_way = self.store.put_async, time.perf_counter_ns, Histogram(), deque[tuple[Any, int]]()
        count, bad, window, before = 0, 0, int(most), _end(self.store)
        begun, used = clock(), time.thread_time_ns()
        deadline = begun + int(float(seconds) * 1e9)

        def seen() -> None:
            nonlocal bad
            future, since = under_way.popleft()
            bad += future.result().status.name != "PUT_OK"
            times.add(clock() - since)

        while clock() < deadline:
            while len(under_way) < window:
                since = clock()
                under_way.append((put(TOPIC, BODY, queue_id=count % QUEUES), since))
                count += 1
            seen()
            while under_way and under_way[0][0].done():
                seen()
        while under_way:
            seen()
        took = (clock() - begun) / 1e9
        end = _end(self.store)
        return {"per_s": round((count - bad) / took, 1), "bad": bad, "end": end, "mib": round((end - before) / (1 << 20), 2),
                "producer_ns": round((time.thread_time_ns() - used) / max(count, 1)), **_times(times)}

    def single(self, count: str) -> Answer:
        put, clock, times, bad = self.store.put, time.perf_counter_ns, Histogram(), 0
        for i in range(int(count) + 200):
            begun = clock()
            result = put(TOPIC, BODY)
            if i >= 200:
                times.add(clock() - begun)
            bad += result.status.name != "PUT_OK"
        return {"bad": bad, **_times(times)}

    def due(self, rate: str, seconds: str, how: str) -> Answer:
        """perf_counter is the clock of the machine, so the slave's process can count from a due time. Whoever sleeps is woken
        late, and puts all that is due then."""
        put, clock, rest, times = self.store.put, time.perf_counter_ns, bytes(len(BODY) - 8), Histogram()
        gap, total, n = 1e9 / float(rate), int(float(rate) * float(seconds)), 0
        begun, used = clock(), time.thread_time()
        while n < total:
            due = begun + int(n * gap)
            if (early := due - clock()) > 0:
                if how == "sleeps":
                    time.sleep(early / 1e9)
                elif early > 2 * SPARE_NS:
                    time.sleep((early - SPARE_NS) / 1e9)
                continue
            put(TOPIC, due.to_bytes(8, "big") + rest, queue_id=0)
            times.add(clock() - due)
            n += 1
        return {"held_per_s": round(total / ((clock() - begun) / 1e9), 1), "producer_s": time.thread_time() - used,
                **{f"put_{name}": value for name, value in _times(times).items()}}

    def _await_first(self, deadline: int) -> None:
        while not self.store.max_offset(TOPIC, 0) and time.perf_counter_ns() < deadline:
            time.sleep(0.001)

    def lag(self, count: str) -> Answer:
        """What a reader of the slave feels: the slave's append and dispatch and the wake-up of the reader are in it."""
        store, clock, times, most = self.store, time.perf_counter_ns, Histogram(), int(count)
        deadline, at = clock() + LAG_S * 1_000_000_000, 0
        self._await_first(deadline)
        while times.count < most and clock() < deadline:
            found = store.get(TOPIC, 0, at, GET, wait=0.05)
            now = clock()
            for message in found:
                times.add(now - int.from_bytes(message.body[:8], "big"))
            at = found.next_offset
        return {"messages": times.count, **_times(times)}

    def behind(self, count: str, rate: str) -> Answer:
        """How far the log of the slave is behind, whether or not somebody reads it: a reader that wakes for each message takes
        the processor from the slave. Every message of `due` is as long as the first, and they are due in equal distances."""
        store, clock, times = self.store, time.perf_counter_ns, Histogram()
        deadline = clock() + LAG_S * 1_000_000_000
        self._await_first(deadline)
        first = store.get(TOPIC, 0, 0, 1)[0]
        begun, size, gap, has = int.from_bytes(first.body[:8], "big"), first.size, 1e9 / float(rate), 0
        while has < int(count) and clock() < deadline:
            time.sleep(LOOK_S)
            has = _end(store) // size
            times.add(max(0, clock() - begun - int(has * gap)))
        return {"looks": times.count, **{f"behind_{name}": value for name, value in _times(times).items()}}

    def _rounds(self, puts: int, pause: float, more: Callable[[int], bool]) -> Answer:
        put, wall, cpu, clock, thread = self.store.put, [], [], time.perf_counter_ns, time.thread_time_ns
        while more(len(wall)):
            begun, used = clock(), thread()
            for _ in range(puts):
                put(TOPIC, SMALL)
            cpu.append((thread() - used) / puts)
            wall.append((clock() - begun) / puts)
            time.sleep(pause)
        return {"rounds": len(wall), "wall_ns": round(statistics.median(wall or [0]), 1),
                "cpu_ns": round(statistics.median(cpu or [0]), 1)}

    def rounds(self, count: str, puts: str, pause: str) -> Answer:
        return self._rounds(int(puts), float(pause), lambda done: done < int(count))

    def rounds_until_followed(self, puts: str, pause: str) -> Answer:
        def lacks(_: int) -> bool:
            replicas = self.store.replicas()
            return not replicas or replicas[0].offset < end

        end = _end(self.store)
        self.connected()
        return self._rounds(int(puts), float(pause), lacks)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


def _commands() -> Iterator[list[str]]:
    for line in sys.stdin:
        yield line.split()


def main(argv: list[str]) -> None:
    options: dict[str, Any] = {}
    for name, _, value in (word.partition("=") for word in argv[2:]):
        options[name] = value
    side = Side(argv[0], Path(argv[1]), options)
    try:
        print(json.dumps(side.ready()), flush=True)
        for name, *words in _commands():
            print(json.dumps(getattr(side, name)(*words)), flush=True)
    finally:
        side.close()


if __name__ == "__main__":
    main(sys.argv[1:])
