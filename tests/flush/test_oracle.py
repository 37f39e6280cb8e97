"""The ring's file against an independent one: what our entries say, written again through the PyPI binding `liburing`."""
import os
import random
import signal
import subprocess
import sys
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.crash import scenario

liburing = pytest.importorskip("liburing", reason="the PyPI package liburing is not installed")
LINK = 4
_ring = subprocess.run([sys.executable, "-c", "import liburing; liburing.Ring()"], capture_output=True, text=True, check=False)
if _ring.returncode:
    pytest.skip("the PyPI package liburing makes no ring here: "
                + (signal.Signals(-_ring.returncode).name + ", its wheel was built for another CPU" if _ring.returncode < 0
                   else _ring.stderr.strip().rpartition("\n")[2]), allow_module_level=True)


@pytest.mark.skipif(not scenario.RING_HERE, reason="the kernel refuses a ring")
@pytest.mark.parametrize("kind", ["io_uring", "io_uring-buffered"])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_same_writes_through_another_binding_make_the_same_file(tmp_path, mode, kind):
    rnd, pause = random.Random(7), threading.Event()
    io = ProbeIo()
    options = {**scenario.config_options(("pool", mode, kind)), "segment_size_bytes": 1 << 20, "segment_prezero": "off",
               "index_slots": 100, "index_entries_max": 2000, "message_size_max_bytes": 100_000,
               "commit_interval_max_ms": 1}
    with MessageStore.open(tmp_path / "s", _io=io, **options) as store:
        for _ in range(60):
            store.put("T", rnd.randbytes(rnd.choice([50, 3000, 9000])), queue_id=0, wait=False)
            if rnd.random() < 0.3:      # by the ring's own thread, not by whoever leads
                while store.stats()["flushed" if mode == "sync" else "committed"] < store._position("wrote"):
                    pause.wait(0.001)
        store.flush()
    ours = (tmp_path / "s/commitlog" / ("0" * 20)).read_bytes()
    writes = [c for c in io.trace() if c.kind in ("pwrite", "ring_write") and c.path.endswith("/commitlog/" + "0" * 20)]
    assert any(c.kind == "ring_write" for c in writes)
    fd = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    ring = liburing.Ring()
    try:
        os.ftruncate(fd, len(ours))
        liburing.io_uring_queue_init(8, ring)
        for call in writes:
            assert chain(ring, fd, call.data, call.offset) == {1: len(call.data), 2: 0}
        assert os.pread(fd, len(ours), 0) == ours
    finally:
        liburing.io_uring_queue_exit(ring)
        os.close(fd)


def chain(ring, fd, data, offset):
    """WRITE linked to FSYNC, from this one thread: results by tag."""
    write = liburing.io_uring_get_sqe(ring)
    liburing.io_uring_prep_write(write, fd, data, offset=offset)
    write.flags |= LINK
    write.user_data = 1
    sync = liburing.io_uring_get_sqe(ring)
    liburing.io_uring_prep_fsync(sync, fd, 1)       # IORING_FSYNC_DATASYNC
    sync.user_data = 2
    assert liburing.io_uring_submit(ring) == 2
    found = {}
    cqe = liburing.Cqe()
    while len(found) < 2:
        liburing.io_uring_wait_cqe(ring, cqe)
        entry = cqe[0]
        found[entry.user_data] = entry.res
        liburing.io_uring_cqe_seen(ring, entry)
    return found
