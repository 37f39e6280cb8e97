"""Direct writes are whole blocks: the one in which the log ends is written again until it is full, and never twice at a time,
because two writes of one block in flight have no order. Judged by the trace of a probe, over all that a store writes."""
import threading
from itertools import pairwise

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.log.flush._uring import uring_probe
from tests.crash import scenario

BLOCK = 4096
ZEROS = 256 << 10           # what the allocator writes at once, ahead of the log
DRAIN, LINK, HARDLINK = 2, 4, 8         # IOSQE_*
CONFIGS = [("pool", "async", "io_uring"), ("pool", "sync", "io_uring"), ("pool", "sync", "io_uring-dsync")]


def writes(trace):
    """(path, first byte, one past the last, trace length when it began, when it ended) of every write into the log."""
    reaped = {c.begin: at for at, c in enumerate(trace) if c.kind == "ring_reap"}
    found = []
    for at, c in enumerate(trace):
        if c.kind in ("pwrite", "ring_write") and c.path and "/commitlog/" in c.path:
            begun, ended = (at, reaped[at]) if c.kind == "ring_write" else (c.begin, at)
            found.append((c.path, c.offset, c.offset + c.length, begun, ended))
    return found


def at_once(found):
    """Pairs of writes that have bytes in common and were under way together."""
    wrong = []
    for i, (path, low, high, begun, ended) in enumerate(found):
        wrong += [(found[i], other) for other in found[i + 1:]
                  if other[0] == path and other[1] < high and low < other[2] and other[3] < ended and begun < other[4]]
    return wrong


def test_the_judge_sees_two_at_once():
    assert at_once([("f", 0, 4096, 1, 5), ("f", 4096, 8192, 2, 6), ("f", 0, 4096, 5, 7), ("g", 0, 4096, 2, 3)]) == []
    assert len(at_once([("f", 0, 4096, 1, 5), ("f", 4000, 8192, 4, 6)])) == 1


@pytest.mark.skipif(not scenario.RING_HERE, reason="the kernel refuses a ring")
@pytest.mark.parametrize("config", CONFIGS, ids="-".join)
def test_no_block_is_written_twice_at_a_time(tmp_path, config):
    """By the ring's thread, by those who lead, and by the allocator that writes zeros ahead."""
    if uring_probe(tmp_path)["direct"] != 0:
        pytest.skip("no direct I/O")
    io = ProbeIo(keep_bytes=False)
    sizes = [90, 700, 3000, 9000, 20_000]
    with MessageStore.open(tmp_path / "s", _io=io, segment_size_bytes=1 << 20, message_size_max_bytes=60_000,
                           index_enabled=False, commit_interval_max_ms=1, **scenario.config_options(config)) as store:
        def produce(k):
            for i in range(60):
                store.put("T", bytes(sizes[(i + k) % 5]), queue_id=k, wait=i % 4 == k)

        threads = [threading.Thread(target=produce, args=(k,)) for k in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        store.flush()
    found = writes(io.trace())
    assert at_once(found) == []
    assert all(low % BLOCK == 0 and high % BLOCK == 0 for _, low, high, _, _ in found)
    log = sorted((path, low, high) for path, low, high, _, _ in found if high - low < ZEROS)
    assert any(a[0] == b[0] and a[1] <= b[1] < a[2] for a, b in pairwise(log))      # some blocks were written again
    entries = [c for c in io.trace() if c.kind in ("ring_write", "ring_sync")]
    assert entries and not any(c.flags & (DRAIN | HARDLINK) for c in entries)
    assert config != ("pool", "sync", "io_uring") or any(c.flags & LINK for c in entries)
