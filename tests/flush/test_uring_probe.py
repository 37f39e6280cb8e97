"""uring_probe: every step says what the kernel, or the rule in its place, answered, and nothing is left behind."""
import errno
import os

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.log.flush._uring import setup_flag_names, uring_probe

STEPS = ("setup", "buffers", "files", "file", "write", "sync", "direct", "direct_write", "direct_sync", "direct_durable")


@pytest.fixture(autouse=True)
def ring_here(tmp_path):
    refused = uring_probe(tmp_path)["setup"]
    if refused:
        pytest.skip(f"the kernel refuses a ring: {os.strerror(refused)}")


def test_every_step_is_tried_here(tmp_path):
    found = uring_probe(tmp_path)
    assert tuple(found)[:10] == STEPS
    assert [found[s] for s in STEPS[:6]] == [0] * 6
    assert "r_disabled" in found["flags"]
    if found["direct"] == 0:
        assert found["direct_write"] == found["direct_sync"] == 0 and found["align"] >= 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind,step,code,left", [
    ("ring_setup", "setup", errno.EPERM, ()),
    ("ring_buffers", "buffers", errno.ENOMEM, STEPS[3:6]),
    ("ring_files", "files", errno.EINVAL, STEPS[3:6]),
    ("open", "file", errno.EROFS, STEPS[:1]),
    ("fallocate", "file", errno.ENOSPC, STEPS[:1]),
    ("ring_write", "write", errno.EIO, STEPS[:1]),
    ("ring_sync", "sync", errno.EIO, STEPS[4:5]),
    ("direct_align", "direct", errno.EOPNOTSUPP, STEPS[3:6]),
])
def test_a_refused_step_has_its_errno_and_those_that_need_it_are_not_tried(tmp_path, kind, step, code, left):
    io = ProbeIo()
    io.fail(kind, 1, code)
    found = uring_probe(tmp_path, io)
    assert found[step] == code
    assert all(found[s] == 0 for s in left)
    if step in ("setup", "file"):
        assert all(found[s] is None for s in STEPS[STEPS.index("file") + 1:])
    assert os.listdir(tmp_path) == []


def test_older_kernels_are_asked_for_less(tmp_path):
    io = ProbeIo()
    io.fail("ring_setup", 1, errno.EINVAL)
    found = uring_probe(tmp_path, io)
    assert found["setup"] == 0 and "defer_taskrun" not in found["flags"]


def test_a_file_system_in_memory_has_no_direct_io():
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs at /dev/shm")
    found = uring_probe("/dev/shm")
    assert found["direct"] == errno.EOPNOTSUPP and found["sync"] == 0


def test_sqpoll_is_tried_when_asked_for(tmp_path):
    found = uring_probe(tmp_path, sqpoll=True)
    assert found["setup"] or "sqpoll" in found["flags"]


def test_flag_names():
    assert setup_flag_names(0) == ()
    assert setup_flag_names((1 << 13) | (1 << 12) | 2) == ("sqpoll", "single_issuer", "defer_taskrun")
