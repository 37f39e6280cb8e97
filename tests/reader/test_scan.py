"""Walks by time: over a queue, over the whole log, always the same messages as a filter over everything."""
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 8192, "consumequeue_file_size_bytes": 200, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture
def store(tmp_path):
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as s:
        for i in range(400):
            io.set_clock(1_700_000_000_000 + i // 3 * 10)
            s.put("T", b"%d" % i * 20, queue_id=i % 2)
        assert s.wait_dispatched(10)
        yield s


@pytest.mark.parametrize("times", [(None, None), (1_700_000_000_500, None), (None, 1_700_000_000_505),
                                   (1_700_000_000_300, 1_700_000_000_310), (1_700_000_000_301, 1_700_000_000_309),
                                   (0, 1), (1_800_000_000_000, None)])
def test_time_ranges(store, times):
    begin, end = times

    def inside(m):
        return (begin is None or m.store_timestamp >= begin) and (end is None or m.store_timestamp <= end)

    everything = [(m.offset, m.queue_id) for m in store.scan() if inside(m)]
    assert [(m.offset, m.queue_id) for m in store.scan(begin_time=begin, end_time=end)] == everything
    assert [(m.offset, m.queue_id) for m in store.scan("T", begin_time=begin, end_time=end)] == everything
    for queue in (0, 1):
        assert [m.offset for m in store.scan("T", queue, begin_time=begin, end_time=end)] == [o for o, q in everything
                                                                                               if q == queue]
    assert not list(store.scan("other", begin_time=begin))


def test_walk_from_a_place(store):
    offsets = [m.offset for m in store.scan()]
    assert [m.offset for m in store.scan(begin=offsets[37])] == offsets[37:]
    assert [m.queue_offset for m in store.scan("T", 1, begin=150)] == list(range(150, 200))


def test_a_record_of_another_place_is_corruption(store):
    """A valid record where it does not belong: a write that went astray, or what was left in recycled space."""
    messages = [(m.offset, m.size) for m in store.scan()]
    (at, size), (other, _) = messages[37], messages[13]
    assert size == messages[13][1]
    log = sorted((Path(store.path) / "commitlog").iterdir())[0]
    data = log.read_bytes()
    with log.open("r+b") as f:
        f.seek(at)
        f.write(data[other:other + size])
    with pytest.raises(errors.CorruptionError, match=f"at offset {at}: expected a record of offset {at}"):
        list(store.scan())
    assert store.message_at(at) is None
    assert next(store.scan(begin=messages[38][0])).offset == messages[38][0]
