"""Fixtures of the fault tests."""
import errno
import gc
import logging
import subprocess

import pytest


@pytest.fixture(autouse=True)
def quiet_recovery():
    """Thousands of recoveries would fill the report of a failing test with their warnings."""
    logger = logging.getLogger("rmq_store")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.fixture
def small(tmp_path):
    """A mounted tmpfs of 512 KiB: (directory, fill, empty). Needs root."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.strip()}")
    ballast = place / "ballast"

    def fill():
        with open(ballast, "ab", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError as e:
                assert e.errno == errno.ENOSPC

    yield place, fill, ballast.unlink
    gc.collect()            # a failed open lives in its traceback
    subprocess.run(["umount", str(place)], check=True)
