"""The checkpoint says up to when queue entries are on the device: never more than was written."""
import errno
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 16384, "consumequeue_file_size_bytes": 20 * 64, "message_size_max_bytes": 8000,
         "index_enabled": False, "manifest_enabled": False}
BEGIN = 1_700_000_000_000


def test_what_a_full_disk_keeps_back_is_dispatched_after_the_next_open(tmp_path):
    """A disk that takes no queue entries, slow puts over the end of a log file, a close that cannot dispatch them: recovery
    begins with a file that the checkpoint covers, and must find those before it in the queue."""
    io = ProbeIo(keep_bytes=False)
    io.set_clock(BEGIN)
    store = MessageStore.open(tmp_path / "s", _io=io, close_timeout_ms=1, **SMALL)
    sent = [b"first"]
    store.put("T", sent[0])
    assert store.wait_dispatched(30)
    io.fail("pwrite", 1, errno.ENOSPC, path="/consumequeue/", sticky=True)
    for second in range(10, 60, 10):
        io.set_clock(BEGIN + second * 1000)
        sent.append(b"%d" % second * 2500)
        store.put("T", sent[-1])
    assert store.stats()["log_files"] > 1
    store.flush()
    seen = io.hits
    while io.hits < seen + 2:           # one round at least has met all of them
        threading.Event().wait(0.01)
    with pytest.warns(RuntimeWarning, match="with dispatch at offset"):
        store.close()
    io.clear()
    with MessageStore.open(tmp_path / "s", **SMALL) as again:
        assert [bytes(m.body) for m in again.scan("T", 0)] == sent
