"""Power cuts and kills while a topic is compacted and cleaned: every state that is left has the newest value of each key."""
import os
import random

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.compaction import model
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore, without

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("RMQ_SEED", "1"))
LONG = int(os.environ.get("RMQ_CRASH_STATES", "60"))


def record(root, count=75):
    root.mkdir()
    probe, sent = ProbeIo(), model.messages(count, SEED)
    with model.open_store(root, probe) as store:
        model.work(store, sent, probe.mark)
        assert store.min_offset("C", 0) < store._queues_of("C")[0][1], "no value is in the compaction log alone"
    return probe.trace(), sent


def judge(scratch, sent, share=1.0):
    """share: of the states that are opened, by seed."""
    chosen = random.Random(SEED)

    def judged(image, notes):
        if not any(note[0] == "policy" for note in notes) or chosen.random() > share:
            return None
        root = scratch.write(image)
        durable = max([note[1] for note in notes if note[0] == "durable"], default=0)
        for _ in range(2):                  # what recovery and the compaction's end leave is good again
            try:
                with model.open_store(root) as store:
                    found = model.wrong(store, sent, durable)
                    if found:
                        return found
                    store.compact("C")
                    found = model.wrong(store, sent, durable)
                    if found:
                        return f"after a compaction: {found}"
            except (RmqStoreError, OSError) as error:
                return f"{type(error).__name__}: {error}"
        return None
    return judged


def explored(tmp_path, trace, sent, per_cut, share=1.0, **more):
    with Scratch(tmp_path) as scratch:
        return explore(Disk(tmp_path / "s"), trace, judge(scratch, sent, share), per_cut=per_cut, seed=SEED, **more)


def test_power_cut(tmp_path):
    trace, sent = record(tmp_path / "s", 50)
    disk = Disk(tmp_path / "s")
    for call in trace:
        disk.feed(call)
    assert disk.current() == read_directory(tmp_path / "s"), "a call went around the table"
    assert any(call.kind == "rename" and "/compacting/" in (call.path or "") for call in trace)
    report = explored(tmp_path, trace, sent, 1, share=0.25)
    assert report.states > 50 and not report.violations, report


@pytest.mark.slow
def test_power_cut_many_states(tmp_path):
    trace, sent = record(tmp_path / "s", 200)
    report = explored(tmp_path, trace, sent, LONG)
    assert not report.violations, report


@pytest.mark.slow
@pytest.mark.parametrize("kind,path", [("fdatasync", "/compactionLog/"), ("fsync", ".replacing"), ("sync_dir", "/compaction")])
def test_a_missing_sync_is_found(tmp_path, kind, path):
    trace, sent = record(tmp_path / "s", 200)
    assert explored(tmp_path, without(trace, kind, path), sent, 12, stop_after=1).violations


def killed(tmp_path, n, count):
    """What is left where the process ends at its n-th change; None where it made fewer."""
    root, sent = tmp_path / f"k{n}", model.messages(count, SEED)
    root.mkdir()
    probe = ProbeIo()
    probe.freeze("mutate", n)
    try:
        with model.open_store(root, probe) as store:
            model.work(store, sent, probe.mark)
    except (RmqStoreError, OSError):
        pass
    notes = [call.note for call in probe.trace() if call.kind == "mark" and not call.ignored]
    return (root, sent, notes) if probe.frozen else None


def check_kill(tmp_path, n, count):
    left = killed(tmp_path, n, count)
    if left is None:
        return False
    root, sent, notes = left
    if any(note[0] == "policy" for note in notes):
        durable = max([note[1] for note in notes if note[0] == "durable"], default=0)
        with model.open_store(root, readonly=True) as store:        # as it was left
            assert model.wrong(store, sent, 0) is None, n
        for _ in range(2):
            with model.open_store(root) as store:
                assert model.wrong(store, sent, durable) is None, n
                store.compact("C")
                assert model.wrong(store, sent, durable) is None, n
    return True


def test_killed_at_some_changes(tmp_path):
    total = 0
    for n in sorted(random.Random(SEED).sample(range(20, 600), 12)):
        total += check_kill(tmp_path, n, 75)
    assert total >= 5


@pytest.mark.slow
def test_killed_at_every_change(tmp_path):
    n = 1
    while check_kill(tmp_path, n, 75):
        n += 1
    assert n > 100
