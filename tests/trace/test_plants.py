"""The checker and the explorer are alive: faults that a store once had are planted again, and found by what looks at all runs.

PLANTS is the list. What is planted is the mistake itself: the old Python function put back, the old lines built again in a copy
of the checkout (planted.py), or a call of the I/O table that says what it said then. Each run is done without the plant, too,
and nothing is found in it.
"""
import ctypes
import errno
import os
import re
import signal
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rmq_store.store
from rmq_store import MessageStore
from rmq_store.base.io._io import Call, ProbeIo
from rmq_store.errors import RmqStoreError
from rmq_store.log.recovery import lockfile, recover
from rmq_store.opened import opening
from rmq_store.services.consumer.consumer import EMPTY_GETS_MAX, Consumer
from rmq_store.services.integrity import repair
from tests.crash import scenario as stores
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore
from tests.elsewhere.test_deleted_files import holder
from tests.recovery.test_interrupted import a_hole_in_an_earlier_file, a_hole_in_the_last_file, closed_in_order, interrupted
from tests.trace.checker import Checker
from tests.trace.explorer import play
from tests.trace.planted import CHECKOUT, MARK, ROLL, run_in, schedules
from tests.trace.recorder import described
from tests.trace.scenarios import SCENARIOS

pytestmark = pytest.mark.crash


class Plant(NamedTuple):
    """One fault: what was wrong, how it is planted, what finds it."""

    what: str
    how: str
    found_by: str       # rules of the checker, and other judges that know nothing of the fault


PLANTS = {
    "mark": Plant("io_uring: a flush takes the mark of a write that is still under way, and the next one syncs nothing",
                  "the old lines of _ring.pyx", "durable, abort; the states of power cuts, in the explorer's runs"),
    "rebuild-early": Plant("queues are zeroed or unlinked on a clean open before abort is on the device",
                           "opening._mark after opening._mend", "early; the judge of interrupted recoveries"),
    "rebuild-vouched": Plant("queues are rebuilt while the checkpoint still covers their entries",
                             "opening._mark leaves the checkpoint as it is", "vouched; the judge of interrupted recoveries"),
    "rewrite": Plant("recovery calls everything durable and writes again only the log's last bytes",
                     "recover._rewrite as it was, its 64 MiB made 4 KiB",
                     "durable, over two processes; the states of power cuts"),
    "cut": Plant("cleaning cuts an unlinked file that others map", "the table's alone() counts names, as it did",
                 "cut; a reader in another process"),
    "repair": Plant("repair writes into a file that others map", "_Repair._replace as it was",
                    "changed; a reader in another process"),
    "nack": Plant("a consumer loses what was given back when a read fails", "Consumer._take as it was",
                  "the explorer's nack-bad-read"),
    "beyond": Plant("behind a record that ends 1 to 7 bytes before its file, a roll writes over the file's end",
                    "the old lines of _log.pyx and _scan.pyx", "the page behind every map of a probe, which nobody may touch"),
    "offsets": Plant("offsets are written without a flush of the log once close() has begun", "log_flusher as it was",
                     "offsets, in the explorer's offsets-close"),
}
ring = pytest.mark.skipif(not stores.RING_HERE, reason="no io_uring here")


def judged(root: Any, *traces: list[Call], image: Any = None) -> set[str]:
    """The rules that the traces break."""
    checker = Checker()
    checker.know(str(root), {} if image is None else image)
    for number, trace in enumerate(traces):
        if number:
            checker.next_trace()
        checker.feed(trace)
    return {finding.partition(":")[0] for finding in checker.findings}


def test_every_plant_has_its_test():
    tests = {name.removeprefix("test_planted_").replace("_", "-") for name in globals() if name.startswith("test_planted_")}
    assert tests == set(PLANTS)


# ---- in native code

@ring
def test_planted_mark(tmp_path):
    found = run_in(MARK.build(tmp_path / "tree"), "flush-beside-put", tmp_path / "planted")
    assert {"durable", "a power cut's states"} <= found.rules
    clean = run_in(None, "flush-beside-put", tmp_path / "clean", found.runs)
    assert (clean.rules, clean.runs, clean.died) == (set(), found.runs, 0)


def test_planted_beyond(tmp_path):
    found = run_in(ROLL.build(tmp_path / "tree"), "roll-at-an-odd-end", tmp_path / "planted")
    assert found.died == signal.SIGSEGV
    clean = run_in(None, "roll-at-an-odd-end", tmp_path / "clean")
    assert (clean.rules, clean.died) == (set(), 0)


# ---- queues rebuilt on a clean open

def mended_then_marked(patch):
    mark, mend = opening._mark, opening._mend

    def mend_first(store, files, places, found, first):
        dispatch_from = mend(store, files, places, found, first)
        mark(store, files, places, found)
        return dispatch_from

    patch.setattr(opening, "_mark", lambda store, files, places, found: None)
    patch.setattr(opening, "_mend", mend_first)


def marked_by_abort_alone(patch):
    patch.setattr(opening, "_mark", lambda store, files, places, found: lockfile.set_abort(
        files, places.root, store.options.compat))


def rebuilt(root):
    """The rules that a clean open breaks which finds a queue spoilt."""
    clock = ProbeIo()
    clock.set_clock(1_700_000_000_000, step=1000)
    with MessageStore.open(root, _io=clock, **stores.SMALL) as store:
        for i in range(160):
            stores.message(i, 100).put(store)
        store.wait_dispatched(10)
    with open(min((root / "consumequeue" / "T" / "0").iterdir()), "r+b") as file:
        file.seek(63 * 20)
        file.write(bytes(20))               # the queue seems to end there: what lies behind is taken for damage
    image = read_directory(root)
    probe = ProbeIo()
    store = MessageStore.open(root, _io=probe, **stores.SMALL)
    probe.mark(("opened", described(store)))
    store.close()
    return judged(root, probe.trace(), image=image)


def rebuilt_under(plant, rule, damage, tmp_path, monkeypatch):
    image = closed_in_order(tmp_path / "whole")
    damage(image)
    with Scratch(tmp_path) as scratch:
        assert rebuilt(tmp_path / "clean") == set() and interrupted(scratch, image, "killed")[0] is None
        plant(monkeypatch)
        assert rule in rebuilt(tmp_path / "planted")
        assert interrupted(scratch, image, "killed")[0] is not None


def test_planted_rebuild_early(tmp_path, monkeypatch):
    rebuilt_under(mended_then_marked, "early", a_hole_in_the_last_file, tmp_path, monkeypatch)


def test_planted_rebuild_vouched(tmp_path, monkeypatch):
    rebuilt_under(marked_by_abort_alone, "vouched", a_hole_in_an_earlier_file, tmp_path, monkeypatch)


# ---- recovery that does not write again what the device may not have

def rewrite_last_bytes(log, starts, outcome):
    low = outcome.end - 4096
    for start in starts:
        begin, stop = max(start, low), min(start + log.file_size(), outcome.end)
        if begin < stop:
            log.rewrite(begin - begin % 4096 if begin > start else begin, stop)


def after_a_failed_sync(scratch, root):
    """The rules that a store breaks which is opened after a failed sync, and what power cuts leave of it."""
    options = {**stores.SMALL, "flush_backend": "fdatasync"}
    root.mkdir()
    probe = ProbeIo()
    store = MessageStore.open(root, _io=probe, **options)
    probe.mark(("opened", described(store)))
    for i in range(18):
        probe.mark(("put", stores.message(i)))
        stores.message(i).put(store)
    store.wait_dispatched(10)
    probe.fail("fdatasync", 1, errno.EIO, "/commitlog/")
    with pytest.raises(RmqStoreError):
        store.flush()
    with pytest.raises(RmqStoreError):
        store.close()
    after = ProbeIo()
    store = MessageStore.open(root, _io=after, **options)
    after.mark(("opened", described(store)))
    after.mark(("durable", 18))             # the same, for the judge of states
    store.close()
    disk, notes = Disk(root), []
    for call in probe.trace():
        disk.feed(call)
        if call.kind == "mark":
            notes.append(call.note)
    disk.next_trace()
    report = explore(disk, after.trace(), stores.judge_images(scratch, options), per_cut=4, notes=notes, stop_after=1)
    return judged(root, probe.trace(), after.trace()), report


def test_planted_rewrite(tmp_path, monkeypatch):
    with Scratch(tmp_path) as scratch:
        rules, report = after_a_failed_sync(scratch, tmp_path / "clean")
        assert rules == set() and not report.violations and report.states > 20, report
        monkeypatch.setattr(recover, "_rewrite", rewrite_last_bytes)
        rules, report = after_a_failed_sync(scratch, tmp_path / "planted")
        assert "durable" in rules and report.violations


# ---- files that others map

@contextmanager
def alone_by_names(io):
    """While it lasts, a file that has no name is nobody's. The probe does not hear of these calls."""
    header = (CHECKOUT / "native/include/rmq_io.h").read_text()
    names = ["ctx", *re.findall(r"^    \w+ \(\*(\w+)\)\(void \*ctx", header, re.MULTILINE)]
    slot = ctypes.c_void_p.from_address(io.address + names.index("alone") * ctypes.sizeof(ctypes.c_void_p))
    answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(lambda ctx, fd: os.fstat(fd).st_nlink == 0)
    original, slot.value = slot.value, ctypes.cast(answer, ctypes.c_void_p).value
    try:
        yield
    finally:
        slot.value = original


def cleaned_beside_a_reader(root, plant):
    """(rules broken, what a reader in another process saw) where a file goes that it maps; longer than one piece of a cut."""
    probe = ProbeIo(keep_bytes=False)
    root.mkdir()
    with MessageStore.open(root, _io=probe, segment_size_bytes=40 << 20, message_size_max_bytes=24 << 20,
                           index_enabled=False) as store:
        probe.mark(("opened", described(store)))
        body = b"x" * (21 << 20)
        for _ in range(2):
            store.put("T", body)
        store.flush()
        assert store.wait_dispatched(10)
        with holder(root, "map") as look, plant(probe):
            assert store.clean(0).log_files == 1
            seen = look()
    return judged(root, probe.trace()), seen


def test_planted_cut(tmp_path):
    assert cleaned_beside_a_reader(tmp_path / "clean", lambda io: nullcontext()) == (set(), "same")
    assert cleaned_beside_a_reader(tmp_path / "planted", alone_by_names) == ({"cut"}, f"died of {-signal.SIGBUS}")


def replace_in_place(self, path, parts):
    self._mark_open()
    fd = self.files.open(path, os.O_RDWR)
    try:
        for position, data, _ in parts:
            self.files.write(fd, position, data)
        self.files.sync(fd)
    finally:
        self.files.close(fd)


def repaired_beside_a_reader(root):
    with MessageStore.open(root, **stores.SMALL) as store:
        for i in range(40):
            stores.message(i).put(store)
    with open(min((root / "commitlog").iterdir()), "r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 10)
    image, probe = read_directory(root), ProbeIo()
    with holder(root, "map") as look:
        result = repair.repair(root, dry_run=False, open_store=MessageStore.open, _io=probe)
        assert "bridge" in {step.kind for step in result.steps} and result.left == []
        return judged(root, probe.trace(), image=image), look()


def test_planted_repair(tmp_path, monkeypatch):
    assert repaired_beside_a_reader(tmp_path / "clean") == (set(), "same")
    monkeypatch.setattr(repair._Repair, "_replace", replace_in_place)
    assert repaired_beside_a_reader(tmp_path / "planted") == ({"changed"}, "other")


# ---- consumers

def careless_take(self: Consumer, max_count: int, scan_max: int | None) -> tuple[Any, bool]:
    """Consumer._take as it was: what is to be handed out again is forgotten before it is read."""
    for _ in range(len(self._turn)):
        queue = self._turn[0]
        self._turn.rotate(-1)
        for _ in range(EMPTY_GETS_MAX):
            begin, limit = queue.again.popleft() if queue.again else (queue.next, None)
            batch, end = self._get(queue, begin, limit, max_count, scan_max)
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


def found_by(tmp_path: Path, monkeypatch, name: str, what: str, plant: Callable[[Any], None]) -> None:
    """The explorer finds it in the scenario, and in the same schedules nothing without it."""
    scenario, options = next(s for s in SCENARIOS if s.name == name), stores.config_options(("mmap", "async", "fdatasync"))
    runs, found = 0, False
    with monkeypatch.context() as patch:
        plant(patch)
        for order in schedules():
            played = play(str(tmp_path / f"planted{runs}"), scenario, options, order)
            runs += 1
            found = any(what in finding for finding in played.findings)
            if found:
                break
    assert found, f"not found in {runs} schedules"
    for number, order in enumerate(schedules(runs)):
        played = play(str(tmp_path / f"clean{number}"), scenario, options, order)
        assert not played.findings, played.findings


def test_planted_nack(tmp_path, monkeypatch):
    found_by(tmp_path, monkeypatch, "nack-bad-read", "nothing is left",
             lambda patch: patch.setattr(Consumer, "_take", careless_take))


def careless_flusher(store):
    return lambda: None if store.closed else store.flush()


def test_planted_offsets(tmp_path, monkeypatch):
    found_by(tmp_path, monkeypatch, "offsets-close", "offsets: ",
             lambda patch: patch.setattr(rmq_store.store, "log_flusher", careless_flusher))
