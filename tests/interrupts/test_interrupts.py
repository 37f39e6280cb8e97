"""A signal whose handler closes the store, a fork, a close() in another thread: at every I/O call of a small life. Nothing
hangs, nothing crashes, and what was acknowledged is there afterwards."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interrupts.life import CONFIGS, QUICK

ROOT = Path(__file__).parents[2]
EVENTS = ["signal", "fork", "close"]
KINDS = ["plain", "aio"]


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The library that stops a call."""
    if shutil.which("cc") is None:
        pytest.skip("no cc")
    out = tmp_path_factory.mktemp("shim") / "stop_at.so"
    source = Path(__file__).with_name("stop_at.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-I", str(ROOT / "native/include"), str(source),
                    "-o", str(out)], check=True)
    return out


def runs(shim, directory, config, event, kind, first, step):
    done = subprocess.run([sys.executable, "-m", "tests.interrupts.runner", str(shim), str(directory), *config, event, kind,
                           str(first), str(step)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["wrong"], "\n".join(f"at call {n}: " + "\n".join(wrong) for n, wrong in found["wrong"].items())
    return found["runs"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", EVENTS)
def test_at_some_calls(memory_disk, shim, event, kind):
    """Every run begins elsewhere: RMQ_SEED."""
    seed = int(os.environ.get("RMQ_SEED", str(os.getpid())))
    step = 61 if kind == "plain" else 41
    assert runs(shim, memory_disk, QUICK[seed % 2], event, kind, 1 + seed % step, step) > 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("config", [*QUICK, *CONFIGS], ids="-".join)
def test_at_every_call(memory_disk, shim, config, event, kind):
    assert runs(shim, memory_disk, config, event, kind, 1, 1) > 40
