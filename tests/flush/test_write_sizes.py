"""How long direct writes are: what the device takes as one request, some of them over a large pool."""
import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.base.machine import device
from tests.crash import scenario

pytestmark = pytest.mark.skipif(not scenario.RING_HERE, reason="io_uring with direct I/O cannot be had here")


@pytest.mark.parametrize(("told", "windows", "longest"), [
    (None, 8, 1 << 20), (64 << 20, 8, 1 << 20), (254 << 12, 8, 254 << 12), (300_001, 8, 3 * (73 << 12)), (4096, 8, 1 << 20),
    (254 << 12, 16, 2 * (254 << 12)), (254 << 12, 64, 4 * (254 << 12))])
def test_writes_are_whole_requests(tmp_path, monkeypatch, told, windows, longest):
    monkeypatch.setattr(device, "request_max", lambda path: told)
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_backend="io_uring", pool_window_count=windows,
                           message_size_max_bytes=1 << 20, segment_size_bytes=64 << 20, index_enabled=False, _io=io) as store:
        io.hold("ring_submit")
        store.put("T", bytes(1 << 20))
        io.wait_held()                      # the ring's thread has begun, and will find enough for the longest write
        for _ in range(6):
            store.put("T", bytes(1 << 20))
        io.release()
        store.flush()
    sizes = [c.length for c in io.trace() if c.kind == "ring_write" and "/commitlog/" in (c.path or "")]
    assert max(sizes) == longest


@pytest.mark.parametrize(("segments", "kib", "expected"), [
    ("254", "4096", 254 * 4096), ("65535", "1280", 1280 << 10), (None, "4096", None), ("254", None, None)])
def test_what_a_device_takes_at_once(tmp_path, monkeypatch, segments, kib, expected):
    monkeypatch.setattr(device, "block_device", lambda path: tmp_path)
    monkeypatch.setattr(device.resource, "getpagesize", lambda: 4096)
    (tmp_path / "queue").mkdir()
    for name, text in (("max_segments", segments), ("max_sectors_kb", kib)):
        if text is not None:
            (tmp_path / "queue" / name).write_text(text + "\n")
    assert device.request_max(tmp_path) == expected


def test_no_device_says_nothing(monkeypatch):
    monkeypatch.setattr(device, "block_device", lambda path: None)
    assert device.request_max("/") is None
