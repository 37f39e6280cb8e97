"""The checker and the explorer are alive: faults that a store once had are planted again, and found by what looks at all runs.

PLANTS is the list. A plant is the old Python function put back, or the trace edited into what a store with the fault would have
left: a trace is all that the checker sees, and what a missing call does to it can be told exactly.
"""
import errno
import itertools
import os
from collections import deque
from typing import Any, NamedTuple

import pytest

import rmq_store.store
from rmq_store import MessageStore
from rmq_store.consumer.consumer import EMPTY_GETS_MAX, Consumer
from rmq_store.errors import RmqStoreError
from rmq_store.io._io import Call, ProbeIo
from tests.crash import scenario as stores
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore, without
from tests.trace.checker import RULES, Checker
from tests.trace.explorer import chances, orders, play
from tests.trace.recorder import described
from tests.trace.scenarios import SCENARIOS, judge_image

pytestmark = pytest.mark.crash


class Plant(NamedTuple):
    """One fault: what was wrong, how it is planted, what finds it."""

    what: str
    how: str
    found_by: str       # a rule of the checker, or the model of a scenario


PLANTS = {
    "mark": Plant("io_uring: a flush takes the mark of a write that is still under way, and the next one syncs nothing",
                  "syncs are left out of explored traces by that rule", "durable, and the crash states of the explorer"),
    "rebuild-early": Plant("queues are zeroed or unlinked on a clean open before abort is on the device",
                           "the calls that make abort are left out of the open's trace", "early"),
    "rebuild-vouched": Plant("queues are rebuilt while the checkpoint still covers their entries",
                             "the writes of the checkpoint are left out of the open's trace", "vouched"),
    "rewrite": Plant("recovery calls everything durable and writes again only a part of it",
                     "rewriting is left out of the trace of the open after a failed sync", "durable, over two processes"),
    "cut": Plant("cleaning cuts an unlinked file that others map", "ftruncate is put behind the unlink", "cut"),
    "nack": Plant("a consumer loses what was given back when a read fails", "the old Consumer._take", "nack-bad-read"),
    "beyond": Plant("a blank record is written across the end of a file (on a real run the page behind a probe's map, which "
                    "nobody may touch, ends the process)", "a store into the map is moved", "beyond"),
    "offsets": Plant("offsets are written without a flush of the log once close() has begun", "the old log_flusher",
                     "offsets, in offsets-close"),
}
ring = pytest.mark.skipif(not stores.RING_HERE, reason="no io_uring here")


def schedules() -> Any:
    """The first orders, then some by chance."""
    return itertools.islice(itertools.chain(orders(8), chances(1)), 30)


def rules_of(findings: list[str]) -> set[str]:
    return {finding.partition(":")[0] for finding in findings}


def judged(root: str, *traces: list[Call], image: Any = None, rules: Any = RULES, margin_ms: int = 3000) -> set[str]:
    checker = Checker(rules, margin_ms)
    checker.know(root, {} if image is None else image)
    for number, trace in enumerate(traces):
        if number:
            checker.next_trace()
        checker.feed(trace)
    return rules_of(checker.findings)


def test_every_plant_has_its_test():
    tests = {name.removeprefix("test_planted_").replace("_", "-") for name in globals() if name.startswith("test_planted_")}
    assert tests == set(PLANTS)


# ---- a mark taken while a write is under way

def marked_at_begin(trace: list[Call]) -> list[Call]:
    """A store that syncs a file of the log only if a write of it began since its last sync began."""
    begun: dict[str, int] = {}
    out = list(trace)
    events = sorted([(c.begin if c.kind != "ring_write" else i, i, c) for i, c in enumerate(trace)
                     if "/commitlog/" in (c.path or "") and c.kind in ("ring_write", "pwrite", "ring_sync", "fdatasync")])
    for _, number, call in events:
        assert call.path is not None
        if call.kind in ("ring_write", "pwrite"):
            begun[call.path] = 1
        elif begun.pop(call.path, None) is None:
            out[number] = call._replace(kind="forgotten")
    return out


@ring
def test_planted_mark(tmp_path):
    scenario = next(s for s in SCENARIOS if s.name == "flush-put")
    with Scratch(tmp_path) as scratch:
        for number, order in enumerate(schedules()):
            root = str(tmp_path / f"{number}")
            played = play(root, scenario, stores.config_options(("pool", "async", "io_uring")), order)
            broken = marked_at_begin(played.trace)
            if "durable" in judged(root, broken, rules=RULES):
                report = explore(Disk(root), broken, judge_image(scratch, played.options), per_cut=4, stop_after=1)
                assert report.violations, "the checker finds it and no state shows it"
                return
    pytest.fail("no schedule shows it")


# ---- queues rebuilt on a clean open

def rebuilt(tmp_path):
    """The trace of a clean open that finds a queue spoilt, and what the directory was before."""
    root = str(tmp_path / "s")
    clock = ProbeIo()
    clock.set_clock(1_700_000_000_000, step=1000)
    with MessageStore.open(root, _io=clock, **stores.SMALL) as store:
        for i in range(160):
            stores.message(i, 100).put(store)
        store.wait_dispatched(10)
    with open(min((tmp_path / "s" / "consumequeue" / "T" / "0").iterdir()), "r+b") as file:
        file.seek(63 * 20)
        file.write(bytes(20))               # the queue seems to end there: what lies behind is taken for damage
    image = read_directory(root)
    probe = ProbeIo()
    store = MessageStore.open(root, _io=probe, **stores.SMALL)
    probe.mark(("opened", described(store)))
    store.close()
    return root, image, probe.trace()


def test_planted_rebuild_early(tmp_path):
    root, image, trace = rebuilt(tmp_path)
    assert "early" in judged(root, without(trace, "open", "/abort"), image=image)


def test_planted_rebuild_vouched(tmp_path):
    root, image, trace = rebuilt(tmp_path)
    assert "vouched" in judged(root, without(trace, "pwrite", "/checkpoint"), image=image)


# ---- recovery that does not write again what the device may not have

def test_planted_rewrite(tmp_path):
    root = tmp_path / "s"
    root.mkdir()
    probe = ProbeIo()
    store = MessageStore.open(root, _io=probe, **stores.SMALL, flush_backend="fdatasync")
    probe.mark(("opened", described(store)))
    for i in range(8):
        stores.message(i).put(store)
    store.wait_dispatched(10)
    probe.fail("fdatasync", 1, errno.EIO, "/commitlog/")
    with pytest.raises(RmqStoreError):
        store.flush()
    with pytest.raises(RmqStoreError):
        store.close()
    after = ProbeIo()
    store = MessageStore.open(root, _io=after, **stores.SMALL, flush_backend="fdatasync")
    after.mark(("opened", described(store)))
    store.close()
    traces = probe.trace(), after.trace()
    assert judged(str(root), *traces, rules=RULES) == set()
    careless = without(without(traces[1], "pwrite", "/commitlog/"), "map_store", "/commitlog/")
    assert "durable" in judged(str(root), traces[0], careless)


# ---- files of the log

def test_planted_cut(tmp_path):
    root = tmp_path / "s"
    root.mkdir()
    probe = ProbeIo()
    with MessageStore.open(root, _io=probe, **stores.SMALL) as store:
        probe.mark(("opened", described(store)))
        for i in range(6):
            stores.message(i, 7000).put(store)
        store.flush()
        store.wait_dispatched(10)
        store.clean(0)
    trace = [c for c in probe.trace() if c.kind != "ftruncate"]
    gone = next(i for i, c in enumerate(trace) if c.kind == "unlink" and "/commitlog/" in c.path)
    opened = next(c for c in trace if c.kind == "open" and os.path.basename(c.path) == os.path.basename(trace[gone].path))
    assert judged(str(root), trace) == set()
    cut = trace[gone]._replace(kind="ftruncate", fd=opened.fd, length=4096, result=0)
    assert "cut" in judged(str(root), [*trace[:gone + 1], cut, *trace[gone + 1:]])


def test_planted_beyond(tmp_path):
    root = tmp_path / "s"
    root.mkdir()
    probe = ProbeIo()
    with MessageStore.open(root, _io=probe, **stores.SMALL) as store:
        stores.message(0).put(store)
    trace = [c._replace(offset=16384 - 4) if c.kind == "map_store" and "/commitlog/" in c.path else c for c in probe.trace()]
    assert "beyond" in judged(str(root), trace)


# ---- consumers

def careless_take(self: Consumer, max_count: int) -> tuple[Any, bool]:
    """Consumer._take as it was: what is to be handed out again is forgotten before it is read."""
    for _ in range(len(self._turn)):
        queue = self._turn[0]
        self._turn.rotate(-1)
        for _ in range(EMPTY_GETS_MAX):
            begin, limit = queue.again.popleft() if queue.again else (queue.next, None)
            batch, end = self._get(queue, begin, limit, max_count)
            if limit is None:
                queue.next = end
            elif end < limit:
                queue.again.appendleft((end, limit))
            if batch is not None:
                queue.out[begin] = end
                return batch, False
            self._commit(queue)
            if end <= begin:
                break
    return None, False


def found_by(tmp_path, name, config, what):
    scenario = next(s for s in SCENARIOS if s.name == name)
    seen: deque[str] = deque(maxlen=20)
    for number, order in enumerate(schedules()):
        played = play(str(tmp_path / f"{number}"), scenario, stores.config_options(config), order)
        seen.extend(played.findings)
        if any(what in finding for finding in played.findings):
            return
    pytest.fail(f"not found in the first orders: {list(seen)}")


def test_planted_nack(tmp_path, monkeypatch):
    monkeypatch.setattr(Consumer, "_take", careless_take)
    found_by(tmp_path, "nack-bad-read", ("mmap", "async", "fdatasync"), "nothing is left")


def test_planted_offsets(tmp_path, monkeypatch):
    def careless_flusher(store):
        return lambda: None if store.closed else store.flush()

    monkeypatch.setattr(rmq_store.store, "log_flusher", careless_flusher)
    found_by(tmp_path, "offsets-close", ("mmap", "async", "fdatasync"), "offsets: ")
