"""Power cuts: every state that a cut may leave behind small runs of the store is opened and judged (see disk.py, scenario.py).

The short form takes some states at every cut; `make test-crash` takes many (RMQ_CRASH_STATES a cut). RMQ_SEED chooses others.
"""
import os
import random

import pytest

from rmq_store import MessageStore, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.crash import scenario
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, acknowledge_early, explore, not_durable, without

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("RMQ_SEED", "1"))
SHORT = 5
PLANTED = 12       # of them the first that shows it ends the search
LONG = int(os.environ.get("RMQ_CRASH_STATES", "400"))
configs = pytest.mark.parametrize("config", scenario.CONFIGS, ids="-".join)


def record(root, config, run, **more):
    """A finished run: (trace, options)."""
    probe = ProbeIo()
    made = scenario.Run(str(root), probe, *config, **more)
    run(made)
    return probe.trace(), made.options


def explored(tmp_path, root, trace, options, per_cut, **more):
    with Scratch(tmp_path) as scratch:
        return explore(Disk(root), trace, scenario.judge_images(scratch, options), per_cut=per_cut, seed=SEED, **more)


# Each configuration with one of the runs in turn; test_power_cut_many_states has them all.
@pytest.mark.parametrize(("config", "name"), [
    pytest.param(config, name, id=f"{name}-{'-'.join(config)}", marks=() if i % len(scenario.RUNS) == n else pytest.mark.slow)
    for i, config in enumerate(scenario.CONFIGS) for n, name in enumerate(scenario.RUNS)])
def test_power_cut(tmp_path, config, name):
    root = tmp_path / "s"
    root.mkdir()
    trace, options = record(root, config, scenario.RUNS[name])
    disk = Disk(root)
    for call in trace:
        disk.feed(call)
    assert disk.current() == read_directory(root), "a call went around the table, or a store into a map was not announced"
    report = explored(tmp_path, root, trace, options, SHORT)
    assert report.states >= 30 and not report.violations, report


@pytest.mark.slow
@configs
@pytest.mark.parametrize("name", scenario.RUNS)
def test_power_cut_many_states(tmp_path, config, name):
    root = tmp_path / "s"
    root.mkdir()
    trace, options = record(root, config, scenario.RUNS[name])
    report = explored(tmp_path, root, trace, options, LONG)
    assert not report.violations, report


# ---- the same checker finds planted faults (a checker that never failed proves nothing)

def in_log(call):
    return call.kind in ("pwrite", "map_store") and "/commitlog/" in call.path


@pytest.mark.parametrize("config", [c for c in scenario.CONFIGS if c[1] == "sync"], ids="-".join)
@pytest.mark.parametrize("fault", ["acknowledged before the sync", "directory not synced", "log not synced", "file not synced"])
def test_planted_faults_are_found(tmp_path, config, fault):
    root = tmp_path / "s"
    root.mkdir()
    if fault == "acknowledged before the sync" and config[2] == "io_uring-dsync":
        pytest.skip("the write is the sync")
    trace, options = record(root, config, scenario.three)
    broken = {
        "acknowledged before the sync": lambda: acknowledge_early(trace, lambda note: note[0] == "durable", in_log),
        "directory not synced": lambda: without(trace, "sync_dir", "/commitlog"),
        "log not synced": lambda: not_durable(without(without(trace, "msync", "/commitlog/"), "fdatasync", "/commitlog/")),
        "file not synced": lambda: without(without(trace, "fsync", "/.alloc/"), "fdatasync", "/commitlog/"),
    }[fault]()
    assert explored(tmp_path, root, broken, options, PLANTED, stop_after=1).violations


# ---- torn records: a checksum covers the body, and that of the whole record is an option

def long_properties(run):
    """Records whose properties fill sectors of their own."""
    for _ in range(3):
        one = scenario.message(len(run.sent), 40)
        run.sent.append(one)
        run.probe.mark(("put", one))
        result = one.put(run.store, properties={"a": "x" * 1500})
        run.probe.mark(("place", (result.offset, result.queue_offset)))
    run.store.wait_dispatched(10)
    run.flush()
    run.close()


@pytest.mark.parametrize("crc", [False, True], ids=["", "record_crc"])
@pytest.mark.parametrize("config", [c for c in scenario.CONFIGS if c[1] == "async"], ids="-".join)
def test_torn_properties_stay_out(tmp_path, config, crc):
    root = tmp_path / "s"
    root.mkdir()
    trace, options = record(root, config, long_properties, record_crc=crc, record_crc_required=crc)
    report = explored(tmp_path, root, trace, options, 20)
    assert report.states > 40 and not report.violations, report


# ---- a disk that does not do what it says

@pytest.mark.parametrize("name", scenario.RUNS)
@pytest.mark.parametrize("config", [("mmap", "sync", "msync"), ("pool", "sync", "fdatasync")], ids="-".join)
def test_a_disk_that_lies_about_its_flushes_loses_and_never_invents(tmp_path, config, name):
    """No sync does anything. What was acknowledged may be gone, or the store or verify() says that it is damaged; but
    what is returned is what was put, byte for byte and in its order."""
    root = tmp_path / "s"
    root.mkdir()
    trace, options = record(root, config, scenario.RUNS[name])
    sent = [call.note[1].body for call in trace if call.kind == "mark" and call.note[0] == "put"]
    for kind in ("msync", "fdatasync", "fsync", "sync_dir"):
        trace = without(trace, kind)
    disk, rnd, outcomes = Disk(root), random.Random(SEED), {"whole": 0, "less": 0, "refused": 0, "found by verify": 0}
    with Scratch(tmp_path) as scratch:
        for number, call in enumerate(trace, 1):
            disk.feed(call)
            if number % 12 and number < len(trace):
                continue
            for image in disk.states(8, rnd):
                place = scratch.write(image)
                try:
                    with MessageStore.open(place, **{**options, "flush_mode": "async"}) as store:
                        found = [sent.index(body) if body in sent else -1 for body in (bytes(m.body) for m in store.scan())]
                        queues = [bytes(m.body) for q in store.queues("T") for m in store.scan("T", q)]
                except (RmqStoreError, OSError):
                    outcomes["refused"] += 1
                    continue
                good = [number for number in found if number >= 0]
                assert good == sorted(set(good))
                if -1 in found or not {sent[number] for number in found}.issuperset(queues):
                    # Reads check no sums: what rots behind the place where recovery begins is found by who looks for it.
                    assert list(verify(place))
                    outcomes["found by verify"] += 1
                outcomes["whole" if found == list(range(len(sent))) else "less"] += 1
    assert outcomes["whole"] and outcomes["less"] > 20, outcomes
