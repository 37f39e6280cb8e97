"""The ring's thread sleeps where it can do nothing: beside another thread that commits."""
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.log.flush._uring import uring_probe
from tests.soon import until

ring_needed = pytest.mark.skipif(uring_probe("/tmp")["setup"] != 0, reason="io_uring is not allowed here")


def threads():
    return set(Path("/proc/self/task").iterdir())


def thread_of(name, before):
    """The directory in /proc of the thread `name` that was not there before: another test may have left a store to the garbage
    collector."""
    return next(task for task in threads() - before if (task / "comm").read_text().strip() == name)


def sleeps(task):
    """How often a thread gave its processor away of its own accord."""
    return int((task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@ring_needed
def test_it_does_not_spin_while_another_thread_commits(tmp_path):
    io, before = ProbeIo(keep_bytes=False), threads()
    with MessageStore.open(tmp_path / "s", _io=io, write_path="pool", flush_mode="sync", flush_backend="io_uring", compat="4.9",
                           segment_size_bytes=1 << 22, index_slots=100, index_entries_max=1000) as s:
        s.put("T", b"first")
        ring = thread_of("rmq-ring", before)
        io.gate("mono_ns", thread=int(ring.name))       # or, on a busy machine, it is the first to commit what follows
        io.hold("pwrite", "/commitlog/")                # of whoever commits in its own thread
        s.put("T", b"x", wait=False)
        waiting = threading.Thread(target=s.wait_dispatched, args=(30,))
        waiting.start()
        try:
            io.wait_held(1, 30)
            s.put("T", bytes(100_000), wait=False)          # so much that the ring's thread wants to write it now
            io.ungate()
            begun = sleeps(ring)
            until(lambda: sleeps(ring) >= begun + 20)
        finally:
            io.ungate()
            io.release()
            waiting.join()
        assert s.put("T", b"last").status.name == "PUT_OK"
