"""Light queues after kills and power cuts: each holds exactly the messages of the log that name it, in their order, once."""
import os
import signal
import subprocess
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from tests.crash.disk import Disk
from tests.crash.states import Scratch, explore

pytestmark = pytest.mark.crash
SEED = int(os.environ.get("RMQ_SEED", "1"))
OPTIONS = {"segment_size_bytes": 8192, "index_enabled": False, "consumequeue_file_size_bytes": 20 * 16, "enable_lmq": True,
           "enable_multi_dispatch": True, "flush_interval_ms": 3_600_000, "flush_interval_max_ms": 3_600_000,
           "consumequeue_flush_interval_ms": 3_600_000, "consumequeue_flush_interval_max_ms": 3_600_000}
VICTIM = """
import os, sys
from rmq_store import MessageStore
options = eval(sys.argv[2])
with MessageStore.open(sys.argv[1], **options) as store:
    i = store.max_offset("T", 0)
    while True:
        put = store.put("T", b"%06d" % i, light_queues=[f"q{k}" for k in range(4) if i % (k + 1) == 0])
        os.write(1, b"%06d\\n" % put.queue_offset)
        i += 1
"""


def names(i):
    return [f"q{k}" for k in range(4) if i % (k + 1) == 0]


def judge(root, acknowledged, go_on=True):
    """What is wrong with a store after a crash; None: nothing."""
    with MessageStore.open(root, **OPTIONS) as store:
        assert store.wait_dispatched(20)
        log = [bytes(m.body) for m in store.scan("T", 0)]
        if log != [b"%06d" % i for i in range(len(log))] or len(log) < acknowledged:
            return f"{acknowledged} acknowledged, and the log has {len(log)}: {log[-3:]}"
        if go_on:
            store.put("T", b"%06d" % len(log), light_queues=names(len(log)))
            assert store.wait_dispatched(20)
            log.append(b"%06d" % len(log))
        for k in range(4):
            found, at = [], 0
            while at < store.max_offset(f"%LMQ%q{k}", 0):
                result = store.get(f"%LMQ%q{k}", 0, at)
                found += [bytes(m.body) for m in result]
                at = max(result.next_offset, at + 1)
            expected = [body for i, body in enumerate(log) if f"q{k}" in names(i)]
            if found != expected or store.max_offset(f"%LMQ%q{k}", 0) != len(expected):
                return f"light queue q{k} has {len(found)} of {len(expected)}: {found[-3:]} where {expected[-3:]} belong"
    return None


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_a_process_that_is_killed(tmp_path, write_path):
    options = OPTIONS | {"flush_mode": "sync", "write_path": write_path}
    for life in range(3):
        child = subprocess.Popen([sys.executable, "-c", VICTIM, str(tmp_path / "s"), repr(options)], stdout=subprocess.PIPE)
        acknowledged = 0
        for _ in range(25 + 10 * life):
            acknowledged = int(child.stdout.readline()) + 1
        os.kill(child.pid, signal.SIGKILL)
        rest, _ = child.communicate()
        acknowledged += rest.count(b"\n")
        assert judge(tmp_path / "s", acknowledged) is None, f"life {life}"


def durable(notes):
    """How many messages a mark said to be durable; the store makes marks of its own."""
    return max((note for note in notes if isinstance(note, int)), default=0)


def run(root, probe, sync):
    with MessageStore.open(root, _io=probe, flush_mode="sync" if sync else "async", **OPTIONS) as store:
        for i in range(40):
            put = store.put("T", b"%06d" % i, light_queues=names(i))
            if sync and put.status == 0:
                probe.mark(i + 1)
            if i == 20:
                store.wait_dispatched(10)
                store.flush()
                probe.mark(i + 1)
    probe.mark(40)


@pytest.mark.parametrize("sync", [True, False])
def test_a_kill_at_changes_of_the_directory(memory_disk, sync):
    n, step = 0, 7
    while True:
        n += step
        root = memory_disk / f"k{n}"
        root.mkdir()
        probe = ProbeIo()
        probe.freeze("mutate", n)
        try:
            run(root, probe, sync)
        except (RmqStoreError, OSError):
            pass
        if not probe.frozen:
            break
        told = durable(c.note for c in probe.trace() if c.kind == "mark" and not c.ignored)
        wrong = judge(root, told)
        assert wrong is None, f"killed at change {n}: {wrong}"
    assert n > 30


@pytest.mark.parametrize("sync", [True, False])
def test_every_state_that_a_power_cut_leaves(tmp_path, sync):
    root = tmp_path / "s"
    root.mkdir()
    probe = ProbeIo()
    run(root, probe, sync)
    judged = 0
    with Scratch(tmp_path) as scratch:
        def one(image, notes):
            nonlocal judged
            judged += 1
            return judge(scratch.write(image), durable(notes), go_on=judged % 3 == 0)

        report = explore(Disk(root), probe.trace(), one, per_cut=2, seed=SEED, stop_after=3)
    assert report.states >= 20 and not report.violations, report
