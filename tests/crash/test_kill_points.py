"""A kill at every change that a run makes to its directory, one after the other; then recovery; then, on top, a power cut.

A frozen probe stands for the killed process (rmq_probe.h). Ack rule of a kill: what a put acknowledged is there, in both flush
modes, but for bytes still in the pool under asynchronous flush. And what recovery has served survives a power cut, although
the killed process never synced it.
"""
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.crash import scenario
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore

pytestmark = pytest.mark.crash
configs = pytest.mark.parametrize("config", scenario.CONFIGS, ids="-".join)
SEED = int(os.environ.get("RMQ_SEED", "1"))


def work(run):
    run.put(3000)
    run.put(3000)
    run.flush()
    run.put_many(2, 1500)
    run.put(7000)       # in the next file
    run.put(3000)
    run.store.wait_dispatched(2)


class Killed:
    """What a kill at change `n` leaves of a run: its directory and the notes made before."""

    def __init__(self, root: Path, config: tuple[str, str, str], n: int) -> None:
        root.mkdir()
        self.root = str(root)
        probe = ProbeIo()
        probe.freeze("mutate", n)
        notes = []
        try:
            run = scenario.Run(self.root, probe, *config)
            try:
                work(run)
            finally:
                run.store.close()
        except (RmqStoreError, OSError):
            pass            # after the freeze new files are not where the store looks for them
        self.happened = probe.frozen
        self.trace = [c for c in probe.trace() if not c.ignored]
        for call in self.trace:
            if call.kind == "mark":
                notes.append(call.note)
        self.notes = notes
        # A put that came back before the freeze: its place is in the notes.
        places = sum(note[0] == "place" for note in notes)
        if config[:2] != ("pool", "async"):
            self.notes.append(("durable", places))


@pytest.fixture
def place(tmp_path: Path, memory_disk: Path, config: tuple[str, str, str]) -> Path:
    """Where the runs are made: in memory, as nobody looks at what the device keeps; but a ring's direct writes need a file
    system that takes them."""
    return tmp_path if "io_uring" in config[2] else memory_disk


def kills(place: Path, config: tuple[str, str, str], step: int = 1) -> Iterator[tuple[int, Killed]]:
    """What is left by a kill at each change, or each `step`-th one, with its number."""
    n = step
    while (killed := Killed(place / f"s{n}", config, n)).happened:
        yield n, killed
        n += step
    assert n > 40


OPTIONS = dict(scenario.SMALL)


@configs
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_kill_at_every_change(place, config, step):
    for n, killed in kills(place, config, step):
        wrong = scenario.judge(killed.root, killed.notes, OPTIONS, go_on=True)
        assert wrong is None, f"killed at change {n}: {wrong}"


def recover_and_serve(killed: Killed, config: tuple[str, str, str]) -> tuple[list, list]:
    """Opens with a probe and closes cleanly: (trace, notes that say that all it served is durable)."""
    probe = ProbeIo()
    run = scenario.Run(killed.root, probe, config[0], "sync", config[2])
    try:
        sent = [note[1] for note in killed.notes if note[0] == "put"]
        places = [(m.offset, m.queue_offset) for m in run.store.scan()]
        notes = [("put", one) for one in sent[:len(places)]] + [("place", place) for place in places]
        probe.mark(("durable", len(places)))
        run.sent = sent[:len(places)]
        run.put()
    finally:
        run.store.close()
    return probe.trace(), notes


def cut_after_kills(place, config, step, per_cut):
    with Scratch(place) as scratch:
        for n, killed in kills(place, config, step):
            disk = Disk(killed.root)
            for call in killed.trace:
                disk.feed(call)
            disk.absorb(read_directory(killed.root))
            disk.next_trace()
            trace, notes = recover_and_serve(killed, config)
            report = explore(disk, trace, scenario.judge_images(scratch, OPTIONS), per_cut=per_cut, seed=SEED, notes=notes,
                             stop_after=5)
            assert not report.violations, f"killed at change {n}: {report}"


@configs
def test_power_cut_after_kill_and_recovery(place, config):
    cut_after_kills(place, config, 30, 4)


@pytest.mark.slow
@configs
def test_power_cut_after_kill_and_recovery_everywhere(place, config):
    cut_after_kills(place, config, 1, 30)


@pytest.mark.parametrize("config", [c for c in scenario.CONFIGS if c[0] == "mmap"], ids="-".join)
def test_kill_during_recovery(place, config):
    """Recovery itself is killed at each of its changes; the next one finds the same messages."""
    killed = Killed(place / "killed", config, 45)
    assert killed.happened
    image = read_directory(killed.root)
    expected, n = None, 0
    with Scratch(place) as scratch:
        while True:
            n += 1
            root = scratch.write(image)
            probe = ProbeIo()
            probe.freeze("mutate", n)
            try:
                scenario.Run(root, probe, *config).store.close()
            except (RmqStoreError, OSError):
                pass
            wrong = scenario.judge(root, killed.notes, OPTIONS)
            assert wrong is None, f"recovery killed at change {n}: {wrong}"
            log = {p: d for p, d in read_directory(root).items() if p.startswith("commitlog/")}
            expected = log if expected is None else expected
            assert log == expected, f"recovery killed at change {n} ends in another log"
            if not probe.frozen:
                break
    assert n > 10
