"""Cleaning that is broken off: by a kill between any two of its steps, by a power cut in any state that leaves, by a disk that
refuses. What is left opens, begins at a file's start, and has every message from there on in log, queues and index."""
import errno
import os
import shutil

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import DurabilityError, RmqStoreError
from tests.cleaning.aged import BODY, SMALL, Aged
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore

FILES = 16


def wrong(root):
    """What is wrong with a store of FILES messages, one a file, of which the oldest may be gone; else None."""
    try:
        with MessageStore.open(root, **SMALL) as store:
            low = store.min_log_offset // 8192
            expected = list(range(low, FILES))
            if low >= FILES or store.min_log_offset % 8192:
                return f"the log begins at {store.min_log_offset}"
            found = [int(bytes(m.body)[-4:]) for m in store.scan()]
            if found != expected:
                return f"log: {found}, not {expected}"
            for queue in (0, 1):
                found = [int(bytes(m.body)[-4:]) for m in store.scan("T", queue)]
                if found != [i for i in expected if i % 2 == queue]:
                    return f"queue {queue} from {store.min_offset('T', queue)}: {found} of {expected}"
                if store.max_offset("T", queue) != FILES // 2:
                    return f"queue {queue} ends at {store.max_offset('T', queue)}"
            lost = [i for i in expected if not len(store.query_key("T", f"key{i}"))]
            if lost:
                return f"not in the index: {lost}"
            return None if store.put("T", b"   0").queue_offset == FILES // 2 else "queue offsets do not go on"
    except (RmqStoreError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def filled(root):
    a = Aged(root, files=FILES, queues=2)
    a.store.close()
    return root


def cleaned(root, probe):
    """Opens, cleans all but the newest file, closes. Returns what was raised."""
    raised = []
    store = MessageStore.open(root, _io=probe, **SMALL)
    probe.mark("cleaning")
    for step in (lambda: store.clean(0), store._final_checkpoint, lambda: store.clean(0), store.close):
        try:
            step()
        except OSError as error:
            raised.append(error)
    store.close()
    return raised


def steps(probe, root):
    """Calls of cleaning that change the directory, by number in the trace."""
    trace = probe.trace()
    begin = next(i for i, call in enumerate(trace) if call.kind == "mark")
    return [call for call in trace[begin:] if call.kind in ("unlink", "sync_dir") and "/.alloc" not in (call.path or "")]


def test_nothing_but_unlinks_each_synced_before_the_next(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    assert cleaned(filled(tmp_path / "s"), probe) == []
    log = [c for c in steps(probe, tmp_path / "s") if c.kind == "unlink" and "/commitlog/" in c.path]
    assert [int(os.path.basename(c.path)) for c in log][:FILES - 1] == [i * 8192 for i in range(FILES - 1)]
    for place in ("/commitlog", "/consumequeue/T/0", "/consumequeue/T/1", "/index"):
        unsynced, count = False, 0
        for call in steps(probe, tmp_path / "s"):
            if place not in call.path or (place == "/commitlog" and count == FILES - 1 and not unsynced):
                continue            # of the log's directory, what follows is closing, and the allocator's
            assert call.kind != "unlink" or not unsynced, f"{call.path} goes before the one before it is gone for good"
            unsynced = call.kind == "unlink"
            count += unsynced
        assert count >= 1 and not unsynced
    assert wrong(tmp_path / "s") is None


def test_killed_between_any_two_steps(tmp_path):
    filled(tmp_path / "full")
    probe = ProbeIo(keep_bytes=False)
    shutil.copytree(tmp_path / "full", tmp_path / "s")
    cleaned(tmp_path / "s", probe)
    count = len([c for c in steps(probe, tmp_path / "s") if c.kind == "unlink"])
    assert count > FILES
    begins = set()
    for nth in range(1, count + 1):
        shutil.rmtree(tmp_path / "s")
        shutil.copytree(tmp_path / "full", tmp_path / "s")
        probe = ProbeIo(keep_bytes=False)
        store = MessageStore.open(tmp_path / "s", _io=probe, **SMALL)
        probe.freeze("unlink", nth)
        store.clean(0)
        store._final_checkpoint()
        store.clean(0)
        store.close()
        begins.add(min(os.listdir(tmp_path / "s" / "commitlog")))
        assert wrong(tmp_path / "s") is None, f"killed at unlink {nth}"
    assert len(begins) == FILES - 1


@pytest.fixture
def recorded(tmp_path):
    """A store before it is cleaned, and the trace of cleaning it."""
    root = filled(tmp_path / "s")
    before = read_directory(root)
    probe = ProbeIo()
    cleaned(root, probe)
    return root, before, probe.trace()


def explored(tmp_path, root, before, trace, per_cut, **more):
    with Scratch(tmp_path) as scratch:
        return explore(Disk(root, before), trace, lambda image, notes: wrong(scratch.write(image)), per_cut=per_cut, **more)


@pytest.mark.crash
def test_power_cuts(tmp_path, recorded):
    report = explored(tmp_path, *recorded, per_cut=6)
    assert report.states > 40 and not report.violations, report


def test_power_cuts_before_queues_were_synced(tmp_path):
    """Once the records are gone, nothing but their entries says which queue offsets were taken."""
    root, probe = tmp_path / "s", ProbeIo()
    root.mkdir()
    before = read_directory(root)
    with MessageStore.open(root, _io=probe, **SMALL | {"consumequeue_flush_interval_ms": 3_600_000}) as store:
        for i in range(FILES):
            store.put("T", BODY[:-4] + b"%4d" % i, queue_id=i % 2, keys=f"key{i}")
        store.flush()
        assert store.wait_dispatched(30)
        probe.mark("cleaning")
        store.clean(0)
        trace = probe.trace()
    with Scratch(tmp_path) as scratch:
        report = explore(Disk(root, before), trace, lambda image, notes: wrong(scratch.write(image)) if "cleaning" in notes
                         else None,
                         per_cut=4)
    assert not report.violations, report


def test_queues_are_synced_in_a_round_that_goes_on_with_a_held_file(tmp_path):
    root, probe = tmp_path / "s", ProbeIo(keep_bytes=False)
    with MessageStore.open(root, _io=probe, **SMALL | {"consumequeue_flush_interval_ms": 3_600_000}) as store:
        for i in range(8):
            store.put("T", BODY[:-4] + b"%4d" % i)
        store.flush()
        assert store.wait_dispatched(30)
        view = store.get("T", 0, 0)
        assert store.clean(0).held
        for i in range(8):
            store.put("Q", BODY[:-4] + b"%4d" % i)
        store.flush()
        assert store.wait_dispatched(30)
        del view
        before = len(probe.trace())
        assert store.clean(0, pace_ms=0).log_files > 8
        calls = [(c.kind, "/consumequeue/Q/" in (c.path or "")) for c in probe.trace()[before:]]
    assert ("fdatasync", True) in calls or ("fsync", True) in calls


@pytest.mark.parametrize("what", ["unlink", "sync_dir"])
def test_a_disk_that_refuses(tmp_path, what):
    """The error is raised, or logged by the control thread; nothing is lost, and after a failed sync nothing more goes."""
    root = filled(tmp_path / "s")
    probe = ProbeIo(keep_bytes=False)
    store = MessageStore.open(root, _io=probe, **SMALL)
    probe.fail(what, 3, errno=errno.EIO, path="/commitlog", sticky=what == "sync_dir")
    with pytest.raises(OSError, match="Input/output error"):
        store.clean(0)
    if what == "unlink":
        assert store.clean(0).log_files == FILES - 3
        store.close()
    else:
        low = store.min_log_offset
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                store.clean(0)
        assert store.min_log_offset == low <= 3 * 8192
        with pytest.raises(DurabilityError, match="deleting an old commit-log file"):
            store.close()
    assert wrong(root) is None
