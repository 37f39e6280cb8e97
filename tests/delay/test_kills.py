"""Delivery through kills: several lives of one store, each ended at a random moment; nothing is lost, repeats are bounded."""
import collections
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 18, "index_enabled": False, "consumequeue_file_size_bytes": 2000}
NOW = 1_795_000_000_000
LEVELS = "1s 2s 3s"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"

# Each reading of the wall clock is 2 ms later than the one before. It prints the number of each message that was acknowledged.
LIFE = """
import random, sys
from rmq_store import MessageStore
from rmq_store.io._io import ProbeIo
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
