"""Kills: between any two steps, twice in a row, beside delay levels, and of a process. Nothing is lost, and no timer message
comes twice, as the next open finds the copies that the log has."""
import collections
import contextlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.timer.service import load_check
from tests.timer.clock import NOW, SMALL, TIMER, Clock, counted, late, read_to, roll, taken, until

FILES = {**SMALL, "segment_size_bytes": 1 << 18, "index_enabled": False, "delay_levels": "1s 2s"}
MODES = {"mmap": {}, "sync": {"flush_mode": "sync"}, "pool": {"write_path": "pool", "flush_mode": "sync"}}


def life(root, now, mode, put=(), freeze=0):
    """Delivers what is due, puts, writes; every change of the disk from `freeze` on is lost. Whether one was."""
    io = ProbeIo(keep_bytes=False)
    io.set_clock(now, 0)
    if freeze:
        io.freeze("mutate", freeze)
    with (contextlib.suppress(errors.RmqStoreError, OSError), MessageStore.open(root, _io=io, **FILES, **mode) as s):
        for i, body in enumerate(put):
            s.put("T", body, deliver_at=now + 2000 + 1000 * (i % 3), wait=True)
            s.put("L", body, delay_level=1 + i % 2, wait=True)
            late(s, b"twin")        # each like the others, to the last byte
        until(lambda: io.frozen or s._timer is None or (
            s._timer.wheel.position()[2] == s.max_offset(TIMER, 0) and s._timer.wheel.position()[0] >= now))
        until(lambda: io.frozen or all(level.next_due is not None and level.next_due > now
                                       for level in s.delay_levels() if level.waiting))
        if s._timer is not None and not io.frozen:
            until(lambda: io.frozen or load_check(root)[2] == s.max_offset(TIMER, 0))
    return io.frozen


def logged(root, mode):
    """Of the log: how often each timer message was delivered, and which waited; the same of messages of delay levels."""
    found = collections.defaultdict(collections.Counter)
    with MessageStore.open(root, readonly=True, **FILES, **mode) as s:
        for kind, _, _, m in s.log_records():
            if kind == "msg":
                found[m.topic][bytes(m.body)] += 1
        m = None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_killed_between_any_two_steps_and_again_while_it_recovers(memory_disk, mode):
    """A life delivers five messages of each kind and puts four; each change of its disk is once the last one. The next life is
    killed as well, each time at another of its changes."""
    mode, again, twice = MODES[mode], 0, 0
    life(memory_disk / "full", NOW, mode, [b"%d" % i for i in range(5)])
    for nth in range(1, 400):
        root = memory_disk / "s"
        shutil.copytree(memory_disk / "full", root)
        frozen = life(root, NOW + 6000, mode, [b"%d" % i for i in range(5, 9)], nth)
        again = again % 60 + 7
        twice += life(root, NOW + 7000, mode, (), again)
        life(root, NOW + 20_000, mode)
        found = logged(root, mode)
        assert found["T"].keys() == found[TIMER].keys(), f"killed at changes {nth} and {again}: lost"
        assert found["T"] == found[TIMER], f"killed at changes {nth} and {again}: {found['T']}"
        assert found["L"].keys() == found["SCHEDULE_TOPIC_XXXX"].keys(), f"killed at changes {nth} and {again}: level lost"
        shutil.rmtree(root)
        if not frozen:
            break
    assert not frozen and nth > 20 and twice > 10


def lost_units(root):
    """A store whose timer log is lost, with messages that were rolled, delivered and late. What it is to deliver, in all."""
    clock = Clock()
    with clock.open(root, **FILES, **ROLLS) as s:
        for i in range(3):
            s.put("T", b"rolled %d" % i, deliver_at=NOW + 9000)
            s.put("T", b"soon %d" % i, deliver_at=NOW + 2000)
            late(s, b"twin")
        taken(s, 9)
        roll(clock, s, NOW + 4000)
        assert s.max_offset(TIMER, 0) >= 12
    shutil.rmtree(root / "timerlog")
    return NOW + 4000, collections.Counter({b"twin": 3, **{b"%s %d" % (name, i): 1 for name in (b"rolled", b"soon")
                                                           for i in range(3)}})


def closed_for_long(root):
    """A store with messages that were due long before the wheel begins."""
    with Clock().open(root, **FILES, **ROLLS) as s:
        for i in range(5):
            s.put("T", b"%d" % i, deliver_at=NOW + 2000)
        counted(s, 5)
    return NOW + 20 * 86_400_000, collections.Counter({b"%d" % i: 1 for i in range(5)})


ROLLS = {"timer_roll_window_slot": 2}


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [lost_units, closed_for_long])
def test_killed_while_it_recovers_from_another_fault(memory_disk, make, step):
    now, expected = make(memory_disk / "full")
    (memory_disk / "full" / "timerwheel").unlink()      # 38 MB to copy, which nobody reads
    for nth in range(1, 400, step):
        root = memory_disk / "s"
        shutil.copytree(memory_disk / "full", root)
        frozen = life(root, now, ROLLS, (), nth)
        clock = Clock(now)
        with clock.open(root, **FILES, **ROLLS) as s:
            roll(clock, s, now + 6000)
        assert logged(root, ROLLS)["T"] == expected, f"killed at change {nth}"
        shutil.rmtree(root)
        if not frozen:
            break
    assert not frozen and nth > step


def test_a_slot_that_was_half_delivered_goes_on(tmp_path):
    """The first life dies in the middle of a slot, in which some messages are the same to the last byte."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        for i in range(300):
            s.put("T", b"%d" % (i // 3), properties={"TIMER_DELIVER_MS": str(NOW + 3000)}, born_timestamp=NOW)
        taken(s, 300)
    shutil.copytree(tmp_path / "s", tmp_path / "before")
    with clock.open(tmp_path / "s") as s:
        clock.set(NOW + 4000)
        read_to(s, NOW + 4000)
        s.wait_dispatched(60)
        half = [m.offset for m in s.scan("T")][150]
    # What a kill leaves after 150 copies: the log up to there, the files of the timer as they were.
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "rb") as log:
        data = log.read(half)
    with open(tmp_path / "before" / "commitlog" / f"{0:020d}", "r+b") as log:
        log.write(data)
    (tmp_path / "before" / "abort").touch()
    for _ in range(2):
        with clock.open(tmp_path / "before") as s:
            read_to(s, NOW + 4000)
            s.wait_dispatched(60)
            assert collections.Counter(bytes(m.body) for m in s.scan("T")) == {b"%d" % i: 3 for i in range(100)}
        clock.set(clock.ms + 1000)


CHILD = """
import os, sys, time
from rmq_store import MessageStore
s = MessageStore.open(sys.argv[1], segment_size_bytes=1 << 20, index_slots=100, index_entries_max=1000,
                      timer_log_file_bytes=4096, timer_precision_ms=10, timer_flush_interval_ms=1)
for i in range(int(sys.argv[2]), int(sys.argv[2]) + 200):
    s.put("T", b"%d" % i, deliver_at=int(time.time() * 1000) + 20 + i % 50)
    if i % int(sys.argv[3]) == int(sys.argv[3]) - 1:
        os.kill(os.getpid(), 9)
"""


@pytest.mark.crash
def test_a_killed_process_loses_nothing(tmp_path):
    root, put = str(tmp_path / "s"), 0
    for step in (17, 120):
        done = subprocess.run([sys.executable, "-c", CHILD, root, str(put), str(put + step)], check=False,
                              env={**os.environ, "PYTHONPATH": os.getcwd()})
        assert done.returncode == -signal.SIGKILL
        put += step
    with MessageStore.open(root, **SMALL | {"timer_precision_ms": 10}) as s:
        until(lambda: len(list(s.scan("T", 0))) >= put)
        assert collections.Counter(int(bytes(m.body)) for m in s.scan("T", 0)) == dict.fromkeys(range(put), 1)
