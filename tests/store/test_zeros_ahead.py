"""Zeros ahead of the writer under synchronous flush: where they spare more than they cost."""
import os
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo

MIB = 1 << 20


def zeros(probe):
    """Bytes of zeros written so far: the log itself writes through a descriptor that can read as well."""
    total, ahead = 0, {}
    for call in probe.trace():
        if call.kind == "open" and call.result >= 0:
            ahead[call.result] = "/commitlog/" in call.path and call.flags & os.O_ACCMODE == os.O_WRONLY
        elif call.kind == "pwrite" and ahead.get(call.fd):
            total += call.length
    return total


@pytest.fixture
def store_on(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, flush_mode="sync", write_path="pool", segment_prezero="window",
                           segment_size_bytes=128 * MIB, message_size_max_bytes=4 * MIB, index_enabled=False) as store:
        yield store, probe


def until_settled(probe):
    """The allocator's thread looks every 20 ms: a tenth of a second without a write is an end."""
    seen, quiet, pause = -1, 0, threading.Event()
    while quiet < 20:
        now = zeros(probe)
        quiet = quiet + 1 if now == seen else 0
        seen = now
        pause.wait(0.005)
    return seen


def test_small_syncs_find_zeros(store_on):
    store, probe = store_on
    for _ in range(20):
        store.put("T", b"a" * 1000)
    assert until_settled(probe) >= 16 * MIB


def test_large_syncs_are_not_written_twice(store_on):
    store, probe = store_on
    for _ in range(100):
        store.put("T", b"a" * MIB)
    large = until_settled(probe)
    assert large <= 64 * MIB + 2 * MIB, "zeros went on at a rate at which they only cost"
