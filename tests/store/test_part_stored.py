"""put_many that fails in the middle says what is stored, and what is stored is delivered once."""
import errno
import pickle

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo

SMALL = {"message_size_max_bytes": 20_000, "segment_size_bytes": 1 << 22, "index_slots": 100, "index_entries_max": 1000}
BODIES = [b"%04d" % i * 250 for i in range(2000)]
KINDS = {"bytes": list, "mixed": lambda bodies: [bytearray(bodies[0]), *bodies[1:]],
         "mappings": lambda bodies: [{"body": body, "tags": "t"} for body in bodies]}


def small_pool(root, io):
    """A store over the pool with one message on the device, that refuses puts where the pool is full."""
    store = MessageStore.open(root, _io=io, write_path="pool", pool_empty="fail", pool_window_size_bytes=64 << 10,
                              pool_window_count=8, flush_backend="fdatasync", **SMALL)
    store.put("T", b"before")
    store.flush()
    return store


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_pool(tmp_path, kind):
    io = ProbeIo(keep_bytes=False)
    with small_pool(tmp_path / "s", io) as s:
        io.hold("pwrite", "/commitlog/")
        try:
            with pytest.raises(errors.PoolExhausted, match=f"of {len(BODIES)} messages were stored") as refused:
                s.put_many("T", KINDS[kind](BODIES))
        finally:
            io.release()
        stored = refused.value.stored
        count = len(stored.offsets)
        assert 0 < count < len(BODIES) and f"{count} of" in str(refused.value)
        assert stored.queue_offsets == list(range(1, count + 1))
        s.flush()
        assert [bytes(s.message_at(at).body) for at in stored.offsets] == BODIES[:count]
        assert pickle.loads(pickle.dumps(refused.value)).stored == stored
        left = BODIES[count:]
        while left:             # as the words say: the others, not all
            try:
                left = left[len(s.put_many("T", left)):]
            except errors.PoolExhausted as error:
                left = left[0 if error.stored is None else len(error.stored.offsets):]
                s.flush()
        s.flush()
        assert s.wait_dispatched(30)
        assert [bytes(m.body) for m in s.scan("T", 0)] == [b"before", *BODIES]


def test_a_pool_that_is_full_from_the_first_message_on(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with small_pool(tmp_path / "s", io) as s:
        io.hold("pwrite", "/commitlog/")
        try:
            for again in (False, True):
                with pytest.raises(errors.PoolExhausted) as refused:
                    s.put_many("T", BODIES)
                assert (refused.value.stored is None) is again is ("were stored" not in str(refused.value))
        finally:
            io.release()


def test_a_full_disk(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL | {"segment_size_bytes": 1 << 16}) as s:
        s.put("T", b"before")
        io.fail("fallocate", 1, errno.ENOSPC, sticky=True)
        with pytest.raises(errors.DiskFull, match="messages were stored") as refused:
            s.put_many("T", BODIES)
        count = len(refused.value.stored.offsets)
        assert 0 < count < len(BODIES)
        io.clear()
        s.put_many("T", BODIES[count:])
        assert s.wait_dispatched(30)
        assert [bytes(m.body) for m in s.scan("T", 0)] == [b"before", *BODIES]
