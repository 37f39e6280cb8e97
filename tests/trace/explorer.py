"""Runs small scenarios under schedules that are chosen, not met with: every I/O call of interest stands at a gate of the probe
until it is let go, and so does each actor at its looks at the clock, where no lock of the log is held.

One decision is: which of the standing calls (the oldest three) goes on, or which actor begins. `orders` goes through the
decisions of a scenario one after the other, `chances` takes them from a seed. Between two decisions the run settles: no thread
computes, and nothing has moved for a few looks. A slow machine can make it look settled too early; then another schedule is
run than was meant, which is as good as any, and what is found in it is in its trace. So a finding is true whenever it comes,
and comes again with the same decisions on a machine that keeps up.
"""
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmq_store import MessageStore
from rmq_store.base.io._io import Call, ProbeIo
from rmq_store.errors import RmqStoreError, StoreStateError
from tests.crash.scenario import SMALL
from tests.trace.checker import RULES, Checker
from tests.trace.recorder import described, flushed

__all__ = ["GATES", "Played", "Scenario", "Stage", "chances", "orders", "play"]

GATES = "pwrite|msync|fdatasync|fsync|sync_dir|rename|unlink|ftruncate|ring_write|ring_sync|ring_reap"
STANDING_MAX = 3
QUIET_LOOKS = 3
LOOK_S = 0.0004
STUCK_S = 20.0
BEGIN_MS = 1_700_000_000_000


class Stage:
    """What actors work with: an open store on a probe, and notes of what they put and were told."""

    def __init__(self, root: str, probe: ProbeIo, options: dict[str, Any]) -> None:
        self.root, self.probe = root, probe
        self.options = {**SMALL, "commit_pages_min": 0, "commit_interval_max_ms": 0, "segment_prezero": "off", **options}
        self.store = MessageStore.open(root, _io=probe, **self.options)
        probe.mark(("opened", described(self.store)))
        self._lock = threading.Lock()
        self._count = 0
        self._told = 0
        self.more: dict[str, Any] = {}      # between the actors of one scenario

    def put(self, size: int = 300, queue_id: int = 0, *, wait: bool | None = None, many: int = 1) -> None:
        for _ in range(many):
            key, body = self._next(size)
            self.probe.mark(("put", key, queue_id, body))
            result = self.store.put("T", body, queue_id=queue_id, keys=key, wait=wait)
            self._placed(key, result, wait or (wait is None and self.store.options.flush_mode == "sync"))

    def put_async(self, size: int = 300, queue_id: int = 0) -> None:
        key, body = self._next(size)
        self.probe.mark(("put", key, queue_id, body))
        result = self.store.put_async("T", body, queue_id=queue_id, keys=key).result()
        self._placed(key, result, self.store.options.flush_mode == "sync")

    def _next(self, size: int) -> tuple[str, bytes]:
        with self._lock:
            self._count += 1
            key = f"key{self._count}"
        return key, key.encode().ljust(size, b"abcdefghij"[self._count % 10:self._count % 10 + 1])

    def _placed(self, key: str, result: Any, durable: bool) -> None:
        if result.status == 0:
            self.probe.mark(("place", key, result.offset, result.queue_offset, result.size))
            if durable:
                self.probe.mark(("acked", self.root, result.offset, result.offset + result.size))

    def flush(self) -> None:
        self.probe.mark(("flushed", self.root, self.store.flush()))

    def commit(self) -> None:
        self.store.wait_dispatched(10)

    def check(self) -> list[str]:
        """What an actor wants to be looked at when all is over."""
        return list(self.more["check"]()) if "check" in self.more else []

    def tell(self) -> None:
        """Notes `flushed` where it has moved: whoever asks is told."""
        now = flushed(self.store)
        if now > self._told:
            self._told = now
            self.probe.mark(("flushed", self.root, now))


@dataclass(frozen=True)
class Scenario:
    """Actors, each with its name, and what stands at gates while they act."""

    name: str
    actors: tuple[tuple[str, Callable[[Stage], None]], ...]
    before: Callable[[Stage], None] = lambda stage: None        # before the gates are shut
    gates: str = GATES
    path: str | None = "/commitlog/"
    options: dict[str, Any] = field(default_factory=dict)
    clock: bool = True                                          # actors stand at their looks at the clock, too
    step_ms: int = 0                                            # between two readings of the wall clock


@dataclass
class Played:
    """One run: decisions as (chosen, of how many), what each let go, the trace, what was found."""

    decisions: list[tuple[int, int]]
    steps: list[str]
    trace: list[Call]
    findings: list[str]
    options: dict[str, Any]

    @property
    def schedule(self) -> str:
        return f"decisions {[n for n, _ in self.decisions]}: " + " > ".join(self.steps)


class _Actor:
    def __init__(self, name: str, act: Callable[[Stage], None], stage: Stage, clock: bool) -> None:
        self.name, self._act, self._stage, self._clock = name, act, stage, clock
        self.begun = False
        self.done = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def id(self) -> int:
        return self.thread.native_id or 0

    def begin(self) -> None:
        self.begun = True
        self.thread.start()

    def _run(self) -> None:
        try:
            if self._clock:
                self._stage.probe.gate("mono_ns", thread=threading.get_native_id())
            self._act(self._stage)
        except (RmqStoreError, OSError) as error:
            self.error = error
        finally:
            self.done = True


def _settle(probe: ProbeIo, actors: list[_Actor]) -> None:
    before, quiet = None, 0
    while quiet < QUIET_LOOKS:
        time.sleep(LOOK_S)
        now = (probe.length, [s.ticket for s in probe.standing()], [a.done for a in actors])
        quiet = quiet + 1 if now == before and not _busy() else 0
        before = now


def _busy() -> bool:
    """Whether a thread of this process, other than this one, computes or waits for a disk."""
    me = threading.get_native_id()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2][1:2]
        except OSError:
            continue
        if state in b"RD" and int(thread) != me:
            return True
    return False


def _label(standing: Any, actors: list[_Actor]) -> str:
    who = next((a.name for a in actors if a.begun and a.id == standing.thread), None)
    if who is None:
        try:
            who = Path(f"/proc/self/task/{standing.thread}/comm").read_text().strip()
        except OSError:
            who = "a thread"
    return f"{who}: {standing.kind}" + (f" {os.path.basename(standing.path)[-8:]}" if standing.path else "")


def play(root: str, scenario: Scenario, options: dict[str, Any], choose: Callable[[int, int], int], *,
         checker: Checker | None = None) -> Played:
    """One run. choose(number of the decision, of how many) -> which."""
    os.mkdir(root)
    probe = ProbeIo()
    probe.set_clock(BEGIN_MS, scenario.step_ms)     # so that runs of one schedule leave the same bytes
    stage = Stage(root, probe, {**scenario.options, **options})
    scenario.before(stage)
    _settle(probe, [])
    stage.tell()
    actors = [_Actor(name, act, stage, scenario.clock) for name, act in scenario.actors]
    played = Played([], [], [], [], stage.options)
    try:
        probe.gate(scenario.gates, scenario.path)
        _decide(stage, actors, played, choose)
    finally:
        probe.ungate()
        for actor in actors:
            if actor.begun:
                actor.thread.join(STUCK_S)
        _end(stage)
    if checker is None:
        checker = Checker(RULES)
        checker.know(root, {})
    played.trace = probe.trace()
    checker.feed(played.trace)
    refused = [a for a in actors if a.error is not None and not isinstance(a.error, StoreStateError)]     # put after close
    played.findings = [*checker.findings, *stage.check(), *(f"{a.name}: {a.error!r}" for a in refused)]
    if any(actor.begun and not actor.done for actor in actors):
        played.findings.append(f"stuck: {[a.name for a in actors if not a.done]}")
    return played


def _decide(stage: Stage, actors: list[_Actor], played: Played, choose: Callable[[int, int], int]) -> None:
    stuck_at = time.monotonic() + STUCK_S
    while not all(a.done for a in actors):
        _settle(stage.probe, actors)
        stage.tell()
        standing = stage.probe.standing()[:STANDING_MAX]
        waiting = [a for a in actors if not a.begun]
        count = len(standing) + len(waiting)
        if count == 0:
            if time.monotonic() > stuck_at:
                return
            continue
        # Who began first goes on first: decision 0 everywhere is one actor after the other.
        chosen = choose(len(played.decisions), count) % count
        played.decisions.append((chosen, count))
        if chosen < len(standing):
            played.steps.append(_label(standing[chosen], actors))
            stage.probe.let(standing[chosen].ticket)
        else:
            actor = waiting[chosen - len(standing)]
            played.steps.append(f"{actor.name} begins")
            actor.begin()
        stuck_at = time.monotonic() + STUCK_S


def _end(stage: Stage) -> None:
    """What everybody does who stops: the last flush tells the most."""
    stage.tell()
    try:
        if not stage.store.closed:
            stage.flush()
        stage.store.close()
    except (RmqStoreError, OSError):
        return
    stage.probe.mark(("closed", stage.root))


def orders(depth: int) -> Iterator["Order"]:
    """Every sequence of decisions, of which the first `depth` vary; the caller tells each what it met."""
    prefix: Sequence[int] | None = ()
    while prefix is not None:
        order = Order(prefix)
        yield order
        prefix = order.next(depth)


class Order:
    """One sequence of decisions: begins with `prefix`, goes on with the first choice."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.prefix = list(prefix)
        self.met: list[tuple[int, int]] = []

    def __call__(self, number: int, count: int) -> int:
        chosen = self.prefix[number] if number < len(self.prefix) else 0
        self.met.append((min(chosen, count - 1), count))
        return self.met[-1][0]

    def next(self, depth: int) -> list[int] | None:
        for k in range(min(depth, len(self.met)) - 1, -1, -1):
            chosen, count = self.met[k]
            if chosen + 1 < count:
                return [c for c, _ in self.met[:k]] + [chosen + 1]
        return None


def chances(seed: int) -> Iterator[Callable[[int, int], int]]:
    """Without end: decisions by chance, each run from its own seed."""
    for run in itertools.count():
        rnd = random.Random(f"{seed}/{run}")
        yield lambda number, count, rnd=rnd: rnd.randrange(count)
