"""No memory: every allocation of the native code in a small life fails once. MemoryError or another typed error, no crash, no
hang, nothing acknowledged is lost, nothing stays held, and the next open is right."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import scenario

ROOT = Path(__file__).parents[2]
FAST = [("mmap", "sync", "fdatasync"), ("pool", "async", "io_uring")]
CONFIGS = [pytest.param(c, marks=[] if c in FAST else pytest.mark.slow, id="-".join(c)) for c in scenario.CONFIGS]


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The preloaded library."""
    if shutil.which("cc") is None:
        pytest.skip("no cc")
    out = tmp_path_factory.mktemp("shim") / "failing_malloc.so"
    source = Path(__file__).with_name("failing_malloc.c")
    done = subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-fno-builtin", "-Wall", "-Werror", str(source), "-o", str(out)],
                          capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cc: {done.stderr.strip()[-300:]}")        # a C library without these names below malloc
    return out


@pytest.mark.parametrize("config", CONFIGS)
def test_every_allocation_fails_once(tmp_path, shim, config):
    done = subprocess.run([sys.executable, "-m", "tests.fault.allocations", str(shim), str(tmp_path), *config], cwd=ROOT,
                          capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": str(shim)})
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr[-3000:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == {}
    assert found["lives"] > 40      # so many there are: the shim meets them
