"""What `flushed` covers is on the device: for each write into the log there is a sync that began when the write was complete.

A sync takes note of what it covers while other threads write. Here a write stands still at a chosen call, a flush of what lies
before it goes through, and the write ends: the next flush has to make a sync for it. Judged by the trace of a probe.
"""
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.crash import scenario
from tests.soon import until

ring_needed = pytest.mark.skipif(not scenario.RING_HERE, reason="the kernel refuses a ring")
SIZES = {"segment_size_bytes": 48 << 10, "message_size_max_bytes": 40_000, "segment_prezero": "off", "index_enabled": False,
         "flush_interval_ms": 3_600_000, "flush_interval_max_ms": 3_600_000, "consumequeue_flush_interval_ms": 3_600_000,
         "consumequeue_flush_interval_max_ms": 3_600_000, "flush_deadline_ms": 60_000, "manifest_enabled": False}
HALF = bytes(30_000)        # each one begins a file; and with the rest of the one before it is less than GATHER_BYTES
LINK, DSYNC = 4, 0x10000    # IOSQE_IO_LINK, RMQ_CALL_DSYNC


def uncovered(trace):
    """Writes into the log that no successful sync covers: (path, offset, length)."""
    reaped = {c.begin: (at, c.result) for at, c in enumerate(trace) if c.kind == "ring_reap"}
    syncs, writes = [], []
    chain = None                                    # the write that the next entry of the same submission is linked to
    for at, c in enumerate(trace):
        if c.kind == "ring_submit":
            chain = None
        if not c.path or "/commitlog/" not in c.path:
            continue
        if c.kind in ("fdatasync", "msync", "fsync") and c.result == 0:
            syncs.append((c.path, c.begin, None))
        elif c.kind == "ring_sync":
            if reaped.get(at, (0, -1))[1] == 0:
                syncs.append((c.path, at, chain))
            chain = None
        elif c.kind == "pwrite":
            writes.append((c, at, at))
        elif c.kind == "ring_write":
            writes.append((c, reaped[at][0] if at in reaped else len(trace), at))
            chain = at if c.flags & LINK else None
    return [(c.path, c.offset, c.length) for c, ended, at in writes if not c.flags & DSYNC
            and not any(path == c.path and (begun > ended or linked == at) for path, begun, linked in syncs)]


class Background(threading.Thread):
    def __init__(self, call):
        super().__init__(target=call, daemon=True)
        self.start()


def flushing(store, io, mode):
    """A thread whose flush has two files to sync and stands still before the first one's."""
    io.hold("fdatasync", "/commitlog/")
    while True:
        if mode == "sync":              # who puts leads, unless the store's own thread was faster: then the next one does
            flush = Background(lambda: store.put("T", HALF, queue_id=0, wait=True))
        else:
            store.put("T", HALF, queue_id=0)
            assert store.wait_dispatched(30)
            flush = Background(store.flush)
        while flush.is_alive():
            try:
                io.wait_held(1, timeout=0.05)
                return flush
            except TimeoutError:
                pass


def judge(store, io, last):
    assert store.flush() == store._position("wrote")
    assert uncovered(io.trace()) == []
    assert store.wait_dispatched(30)
    assert bytes(store.get("T", 0, store.max_offset("T", 0) - 1).messages[0].body) == last


def opened(path, io, mode, kind, **more):
    store = MessageStore.open(path, _io=io, **{**SIZES, **scenario.config_options(("pool", mode, kind)),
                                               "visibility": "committed", **more})
    for _ in range(2):
        store.put("T", HALF, queue_id=0)
    store.flush()
    return store


KINDS = [pytest.param(kind, marks=ring_needed) for kind in ("io_uring", "io_uring-buffered")]


@pytest.mark.parametrize(("mode", "kind"), [
    *(pytest.param(mode, kind.values[0], marks=kind.marks) for mode in ("sync", "async") for kind in KINDS),
    ("async", "fdatasync")])
def test_a_commit_by_another_thread_beside_a_flush(tmp_path, mode, kind):
    """Goal: who makes messages visible writes them in its own thread; the next flush syncs them, whatever ran beside it."""
    io = ProbeIo(keep_bytes=False)
    with opened(tmp_path / "s", io, mode, kind, commit_interval_max_ms=3_600_000, commit_pages_min=64) as store:
        flush = flushing(store, io, mode)
        io.hold("fdatasync|pwrite", "/commitlog/")
        store.put("T", b"late", queue_id=0, wait=False)
        commit = Background(lambda: store.wait_dispatched(30))
        io.wait_held(2)
        io.hold("pwrite", "/commitlog/")
        flush.join()
        io.release()
        commit.join()
        judge(store, io, b"late")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", ["ring_submit", "ring_reap"])
def test_a_write_of_the_ring_in_flight_beside_a_flush(tmp_path, kind, at):
    """Goal: a flush takes no note of a write that is under way (not with the kernel yet, or not known to be complete)."""
    io = ProbeIo(keep_bytes=False)
    with opened(tmp_path / "s", io, "async", kind, commit_interval_max_ms=1, commit_pages_min=0) as store:
        flush = flushing(store, io, "async")
        before = io.counts().get(at, 0)
        io.hold(f"fdatasync|{at}")
        store.put("T", b"late", queue_id=0)
        until(lambda: io.counts().get(at, 0) > before)
        io.wait_held(2)
        io.hold(at)
        flush.join()
        assert store._position("flushed") < store._position("wrote")
        io.release()
        until(lambda: store.stats()["committed"] == store._position("wrote"))
        judge(store, io, b"late")
