"""Power cuts of runs in which three producers and a reader's offsets meet, while every background interval is a few
milliseconds: the trace is judged, and so is every state that a cut may leave at each step (see test_states_store.py)."""
import os
import threading
from typing import Any

import pytest

from rmq_store.base.io._io import ProbeIo
from tests.crash import scenario
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore
from tests.trace.checker import RULES, Checker
from tests.trace.explorer import Stage
from tests.trace.scenarios import judge_image

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("RMQ_SEED", "1"))
SHORT_INTERVALS: dict[str, Any] = {
    "flush_interval_ms": 2, "flush_interval_max_ms": 4, "offsets_flush_interval_ms": 5,
    "consumequeue_flush_interval_ms": 2, "consumequeue_flush_interval_max_ms": 5,
    "flush_pages_min": 0, "consumequeue_flush_pages_min": 0,
}
IN_SHORT = [c for c in scenario.CONFIGS if c in (("mmap", "async", "msync"), ("pool", "sync", "fdatasync"),
                                                 ("pool", "async", "io_uring"))]


def one_by_one(stage: Stage) -> None:
    for size in (300, 900, 2500, 100, 5000):
        stage.put(size, 0)
        stage.tell()


def waited_for(stage: Stage) -> None:
    for size in (200, 1500, 4000):
        stage.put(size, 1, wait=True)
        stage.tell()


def by_futures(stage: Stage) -> None:
    for size in (700, 3000, 300):
        stage.put_async(size, 2)
        stage.flush()


def consumed(stage: Stage) -> None:
    """Goes on until the producers are through; whatever it commits may be written at any time."""
    with stage.store.consumer("g", "T") as consumer:
        while not stage.more["through"].is_set():
            batch = consumer.poll(2, timeout=0.01)
            if batch is not None:
                batch.ack()
                del batch


def played(root: str, config: tuple[str, str, str]) -> tuple[ProbeIo, dict[str, Any]]:
    probe = ProbeIo()
    stage = Stage(root, probe, {**SHORT_INTERVALS, **scenario.config_options(config)})
    stage.more["through"] = threading.Event()
    producers = [threading.Thread(target=act, args=(stage,)) for act in (one_by_one, waited_for, by_futures)]
    consumer = threading.Thread(target=consumed, args=(stage,))
    for thread in (consumer, *producers):
        thread.start()
    for thread in producers:
        thread.join()
    stage.more["through"].set()
    consumer.join()
    stage.flush()
    stage.store.close()
    probe.mark(("closed", root))
    return probe, stage.options


def cut(tmp_path, config, per_cut):
    root = tmp_path / "s"
    root.mkdir()
    probe, options = played(str(root), config)
    trace = probe.trace()
    checker = Checker(RULES)
    checker.know(str(root), {})
    checker.feed(trace)
    assert not checker.findings and checker.told > 10
    disk = Disk(root)
    for call in trace:
        disk.feed(call)
    assert disk.current() == read_directory(root)
    with Scratch(tmp_path) as scratch:
        report = explore(Disk(root), trace, judge_image(scratch, options), per_cut=per_cut, seed=SEED, stop_after=5)
    # How often the background syncs, and so how many cuts there are, is the machine's: about 60 states, fewer under load.
    assert report.states > 25 and not report.violations, report


@pytest.mark.parametrize("config", IN_SHORT, ids="-".join)
def test_power_cut_with_producers(tmp_path, config):
    cut(tmp_path, config, 2)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(2))
@pytest.mark.parametrize("config", scenario.CONFIGS, ids="-".join)
def test_power_cut_with_producers_many_states(tmp_path, config, run):
    cut(tmp_path, config, 8)
