"""Delivery through kills: between any two steps, and several lives of one store, each ended at a random moment. Nothing is
lost, and what comes twice is what the offset file lagged behind."""
import collections
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 18, "index_enabled": False, "consumequeue_file_size_bytes": 2000}
NOW = 1_795_000_000_000
LEVELS = "1s 2s 3s"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"

# Each reading of the wall clock is 2 ms later than the one before. It prints the number of each message that was acknowledged.
LIFE = """
import random, sys
from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
root, first, clock, seed, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), eval(sys.argv[5])
rnd = random.Random(seed)
io = ProbeIo(keep_bytes=False)
io.set_clock(clock, 2)
with MessageStore.open(root, _io=io, delay_offset_flush_interval_ms=1, **options) as s:
    for i in range(first, first + 100_000):
        s.put("T", b"%d" % i, queue_id=rnd.randrange(3), delay_level=rnd.randrange(1, 4))
        print(i, flush=True)
        if rnd.random() < 0.02:
            io.set_clock(clock + rnd.randrange(-5000, 20_000), 2)
        if rnd.random() < 0.05:
            s._delay.write()
"""


def live(root: Path, first: int, clock: int, seed: int, options: dict, count: int) -> int:
    """One life: killed after about `count` acknowledged messages. Returns how many were."""
    child = subprocess.Popen([sys.executable, "-c", LIFE, str(root), str(first), str(clock), str(seed), repr(options)],
                             stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()})
    acked = 0
    with child:
        for line in child.stdout:
            acked = int(line) - first + 1
            if acked >= count:
                child.send_signal(signal.SIGKILL)
                break
        for line in child.stdout:
            acked = int(line) - first + 1
    assert child.returncode == -signal.SIGKILL, acked
    return acked


def written(root: Path) -> dict[int, int]:
    try:
        text = (root / "config" / "delayOffset.json").read_text()
    except FileNotFoundError:
        return {}
    return {int(k): int(v) for k, v in re.findall(r"(\d+):(\d+)", text[text.index("offsetTable"):])}


def standing(ms):
    io = ProbeIo(keep_bytes=False)
    io.set_clock(ms, 0)
    return io


def deliver(root, io, options):
    """A life in which all that is due is delivered and the offsets are written."""
    with MessageStore.open(root, _io=io, **options) as s:
        deadline = time.monotonic() + 30
        while any(level.next_due is None or level.next_due <= io.wall_ms() for level in s.delay_levels() if level.waiting):
            assert time.monotonic() < deadline
            time.sleep(0.0005)
        s._delay.write()


def logged(root, options):
    """From the log, as queues may be behind it: bodies that wait, by level and in order, and how often each was delivered."""
    levels, done = collections.defaultdict(list), collections.Counter()
    with MessageStore.open(root, readonly=True, **options) as s:
        for kind, _, _, m in s.log_records():
            if kind == "msg" and m.topic == SCHEDULE:
                levels[m.queue_id + 1].append(int(bytes(m.body)))
            elif kind == "msg":
                done[int(bytes(m.body))] += 1
        m = None
    return levels, done


STEPS = {"mmap": {}, "sync": {"flush_mode": "sync"}, "pool": {"write_path": "pool", "flush_mode": "sync"}}


@pytest.mark.parametrize("mode", STEPS)
def test_killed_between_any_two_steps(memory_disk, mode):
    """Each change of the disk, from the opening to the closing of a life that delivers, is once the last one: whatever the file
    counted is not delivered again, all the rest is once more, and nothing is missing."""
    options = {**SMALL, **STEPS[mode], "delay_levels": LEVELS}
    with MessageStore.open(memory_disk / "full", _io=standing(NOW), **options) as s:
        for i in range(9):
            s.put("T", b"%d" % i, queue_id=i % 2, delay_level=1 + i % 3)
    deliver(memory_disk / "full", standing(NOW + 1000), options)       # level 1: the file is there
    lagged = set()
    for nth in range(1, 200):
        root = memory_disk / "s"
        shutil.copytree(memory_disk / "full", root)
        io = standing(NOW + 10_000)
        io.freeze("mutate", nth)
        with contextlib.suppress(errors.RmqStoreError, OSError):
            deliver(root, io, options)
        levels, before = logged(root, options)
        counted = written(root)
        again = {body for level, bodies in levels.items() for body in bodies[counted.get(level, 0):]}
        lagged.add(sum(before[body] for body in again))
        deliver(root, standing(NOW + 20_000), options)
        after = logged(root, options)[1]
        assert set(after) == set(range(9)), f"killed at change {nth}: lost"
        assert after == before + collections.Counter(again), f"killed at change {nth}: {counted}"
        shutil.rmtree(root)
        if not io.frozen:
            break
    assert not io.frozen and nth > 10
    assert {0, 6} <= lagged, "it was never killed before a copy, or never between the last copy and the file"


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_and_repeats_are_what_the_file_lags(tmp_path, seed):
    rnd = random.Random(seed)
    # Not the pool under asynchronous flush: what a killed process had only there is gone, acknowledged or not.
    mode = rnd.choice([{}, {"flush_mode": "sync"}, {"write_path": "pool", "flush_mode": "sync"}])
    options = {**SMALL, **mode, "delay_levels": LEVELS}
    root, acked, repeats = tmp_path / "s", set(), 0
    for life in range(4):
        first = life * 1_000_000
        acked |= set(range(first, first + live(root, first, NOW + life * 1000, seed * 10 + life, options,
                                               rnd.randrange(20, 400))))
        # What was delivered beyond what the file says is what the next life may deliver again.
        with MessageStore.open(root, readonly=True, **options) as s:
            done, levels = set(), collections.defaultdict(list)     # from the log: queues may be behind it
            for kind, _, _, m in s.log_records():
                if kind == "msg" and m.topic == SCHEDULE:
                    levels[m.queue_id + 1].append(int(bytes(m.body)))
                elif kind == "msg":
                    done.add(int(bytes(m.body)))
            m = None
            for level, waiting in levels.items():
                at = written(root).get(level, 0)
                assert set(waiting[:at]) <= done, f"the file counts what was not delivered: {sorted(set(waiting[:at]) - done)}"
                repeats += len(set(waiting[at:]) & done)
    io = ProbeIo(keep_bytes=False)
    io.set_clock(NOW + 3_600_000, 0)
    with MessageStore.open(root, _io=io, **options) as s:
        ends = {k: s.max_offset(SCHEDULE, k) for k in s.queues(SCHEDULE)}
        waiting = {int(bytes(m.body)) for k in ends for m in s.scan(SCHEDULE, k)}
        while any(level.waiting for level in s.delay_levels()):
            s._delay.timer.poke()
        assert s.wait_dispatched(60)
        done = collections.Counter(int(bytes(m.body)) for q in s.queues("T") for m in s.scan("T", q))
    assert acked <= waiting == set(done)
    assert sum(done.values()) - len(done) <= repeats
