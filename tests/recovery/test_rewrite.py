"""After an unclean stop the page cache may show what the device does not have: a page whose write-back failed is clean. So all
of the log that is not known to be flushed is written again, and synced, before anything is served; the rest stays as it is."""
from types import SimpleNamespace

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "manifest_enabled": False, "message_size_max_bytes": 8192,
         "flush_interval_ms": 3_600_000, "flush_interval_max_ms": 3_600_000}
BEGIN = 1_700_000_000_000


def killed(tmp_path, write_path, flushed, count):
    """(the image of a kill, log offset of each message): `flushed` messages of one session that was closed, ten seconds
    apart, then `count` that no sync covers."""
    live, image = tmp_path / "live", tmp_path / "image"
    io = ProbeIo(keep_bytes=False)
    io.set_clock(BEGIN, 10_000)
    places = []
    for many in (flushed, count):
        with MessageStore.open(live, _io=io, write_path=write_path, **SMALL) as store:
            places += [store.put("T", b"%d" % i * 800).offset for i in range(many)]
            store.wait_dispatched(30)
            take_image(live, image, over=True)
    return image, places


def written(image, **more):
    """What opening writes into the log: offsets [begin, end), each followed by a sync of its file before anything is served."""
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(image, _io=io, **SMALL | more) as store:
        io.mark("open")
        bodies = [bytes(m.body) for m in store.scan()]
    found, unsynced = [], {}
    for call in io.trace():
        if call.kind == "mark":
            break
        if "/commitlog/0" not in (call.path or ""):
            continue
        if call.kind == "pwrite":
            start = int(call.path[-20:]) + call.offset
            unsynced.setdefault(call.path, []).append((start, start + call.length))
        elif call.kind == "fdatasync":
            found += unsynced.pop(call.path, [])
    return SimpleNamespace(ranges=sorted(found), unsynced=unsynced, bodies=bodies)


def covers(ranges, begin, end):
    for a, b in ranges:
        if a <= begin < b:
            begin = b
    return begin >= end


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
@pytest.mark.parametrize("flushed", [0, 150])
def test_all_that_is_not_known_to_be_flushed(tmp_path, monkeypatch, write_path, flushed):
    monkeypatch.setattr("rmq_store.log.recovery.recover.REWRITE_BYTES", 4096, raising=False)
    image, places = killed(tmp_path, write_path, flushed, 300)
    found = written(image)
    assert found.bodies == [b"%d" % i * 800 for i in [*range(flushed), *range(300)]] and not found.unsynced
    size = SMALL["segment_size_bytes"]
    for offset in places[flushed:]:
        assert covers(found.ranges, offset, offset + 900), offset
    first = places[flushed - 1] if flushed else 0
    assert found.ranges[0][0] >= first - 4096, "what a checkpoint calls flushed is not written again"
    assert first - 4096 <= found.ranges[0][0] <= places[flushed] and places[-1] > 3 * size


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
@pytest.mark.parametrize("clock", ["stands", "was ahead for one message"])
def test_what_is_flushed_is_known_whatever_the_clock_says(tmp_path, write_path, clock):
    """The checkpoint knows it as an offset, too: times say nothing where all messages have the same."""
    live, image = tmp_path / "live", tmp_path / "image"
    io = ProbeIo(keep_bytes=False)
    io.set_clock(BEGIN, 0)
    with MessageStore.open(live, _io=io, write_path=write_path, **SMALL) as store:
        if clock != "stands":
            io.set_clock(BEGIN + 86_400_000, 0)
            store.put("T", b"0" * 800)
            io.set_clock(BEGIN, 100)
        for i in range(150):
            store.put("T", b"%d" % i * 300)
        flushed = store.flush()
        until(lambda: int.from_bytes((live / "checkpoint").read_bytes()[40:48], "big") == flushed)
        places = [store.put("T", b"%d" % i * 300).offset for i in range(50)]
        store.wait_dispatched(30)
        take_image(live, image)
    found = written(image)
    assert found.bodies[-50:] == [b"%d" % i * 300 for i in range(50)] and not found.unsynced
    assert covers(found.ranges, flushed, places[-1] + 300) and flushed - 4096 <= found.ranges[0][0] <= flushed


@pytest.mark.parametrize("how", ["another time", "behind the end", "negative", "another seal"])
def test_an_offset_that_is_not_ours_is_not_believed(tmp_path, how):
    """What a Java broker has written since, or what rotted: then the times tell, as upstream's recovery has it."""
    image, places = killed(tmp_path, "mmap", 0, 300)
    data = bytearray((image / "checkpoint").read_bytes())
    physical, offset = BEGIN + 3_000_000, places[-1] - (0 if how != "behind the end" else -50_000)
    offset = -offset if how == "negative" else offset
    seal = physical ^ offset ^ 0x726d715f666c7573 ^ (how == "another seal")
    data[:8] = (physical + (how == "another time")).to_bytes(8, "big")
    data[40:56] = offset.to_bytes(8, "big", signed=True) + seal.to_bytes(8, "big", signed=True)
    (image / "checkpoint").write_bytes(data)
    found = written(image)
    assert len(found.bodies) == 300 and covers(found.ranges, places[-2], places[-1])
