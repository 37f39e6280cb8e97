"""kill -9 of real processes with four producers each (kill_loop.py): a short loop here, a long one with `make test-crash`."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import kill_loop

pytestmark = pytest.mark.crash
ROOT = Path(__file__).parents[2]
SEED = os.environ.get("RMQ_SEED", "1")


def loop(config, cycles, tmp_path):
    """In a process of its own: it forks, which a process with other tests' threads should not."""
    command = [sys.executable, "-m", "tests.crash.kill_loop", "--cycles", str(cycles), "--seed", SEED, "--config", config,
               "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("config", kill_loop.CONFIGS)
def test_kill(tmp_path, config):
    loop(config, 6, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("config", kill_loop.CONFIGS)
def test_kill_many_times(tmp_path, config):
    loop(config, int(os.environ.get("RMQ_CRASH_KILLS", "200")), tmp_path)


# ---- the judge finds what a broken store would leave

def judged(tmp_path, config, break_it):
    """One killed process, its directory looked at after break_it(directory, acks): what is wrong."""
    code = f"""
import random
from tests.crash import kill_loop
class Sure(random.Random):
    def random(self): return 0.5
rnd = Sure(1)
for attempt in range(100):
    directory = kill_loop.Directory({str(tmp_path)!r} + f"/s{{attempt}}", {config!r})
    acks, opened, complaint = kill_loop.run_victim(directory.root, {config!r}, directory.counts, rnd)
    assert not complaint
    if opened and sum(a[0] == 1 for a in acks) > 5:     # on a busy machine it may be killed before it has put so many
        break
{break_it}
print(directory.look(acks, False))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


FLIP = """with open(directory.root + "/commitlog/" + "0" * 20, "r+b") as f:
    f.seek(120)
    byte = f.read(1)[0]
    f.seek(120)
    f.write(bytes([byte ^ 1]))"""


@pytest.mark.parametrize(("break_it", "wrong"), [
    ("", "[]"),
    ("acks.append((0, 10**6, 10**6))", "acknowledged at 1000000, is at None"),
    ("acks[0] = (acks[0][0], acks[0][1], acks[0][2] + 1)", "acknowledged at"),
    ("acks[:] = [a for a in acks if a[0] != 1 or a[1] < 2]", "messages, only"),
    (FLIP, "acknowledged at"),
], ids=["nothing", "lost", "elsewhere", "invented", "damaged"])
def test_the_judge_finds_planted_losses(tmp_path, break_it, wrong):
    assert wrong in judged(tmp_path, "mmap-async-msync", break_it)
