"""Raw ranges of the log: what is there to be copied elsewhere, byte for byte, at any offset and over the ends of files."""
import os

import pytest

from rmq_store import MessageStore, errors

SMALL = {"segment_size_bytes": 1 << 14, "index_enabled": False, "delay": "refuse"}
WAYS = {"mmap": {}, "pool": {"write_path": "pool", "flush_backend": "fdatasync"},
        "io_uring": {"write_path": "pool", "flush_backend": "io_uring"}}


@pytest.fixture(params=WAYS)
def store(request, tmp_path):
    try:
        opened = MessageStore.open(tmp_path / "s", **SMALL | WAYS[request.param])
    except errors.BackendUnavailable as error:
        pytest.skip(str(error))
    with opened as s:
        yield s


def whole(store, size_max):
    """The log from its beginning to its end, in pieces."""
    at, pieces = store.min_log_offset, []
    while piece := store.log_bytes(at, size_max):
        assert len(piece) <= size_max and at % (1 << 14) + len(piece) <= 1 << 14
        pieces.append(piece)
        at += len(piece)
    assert at == store.max_log_offset
    return b"".join(pieces)


@pytest.mark.parametrize("size_max", [1 << 20, 1000, 77])
def test_pieces_of_a_log_are_the_log(tmp_path, store, size_max):
    bodies = [bytes([i]) * (i * 7) for i in range(200)]
    for body in bodies:
        store.put("T", body)
    store.flush()
    log = whole(store, size_max)
    files = b"".join(path.read_bytes() for path in sorted((tmp_path / "s" / "commitlog").iterdir()))
    assert len(log) > 4 << 14 and log == files[:len(log)]
    copy = tmp_path / "copy" / "commitlog"
    os.makedirs(copy)
    for start in range(0, len(log), 1 << 14):
        (copy / f"{start:020d}").write_bytes(log[start:start + (1 << 14)].ljust(1 << 14, b"\0"))
    with MessageStore.open(tmp_path / "copy", **SMALL) as s:
        assert [bytes(m.body) for m in s.scan()] == bodies and s.max_log_offset == store.max_log_offset


def test_it_grows_with_what_is_committed(store):
    assert store.log_bytes(0) == b""
    put = store.put("T", b"x", wait=True)
    assert len(store.log_bytes(0)) == put.size and store.log_bytes(put.size) == b""
    assert store.log_bytes(3, 2) == store.message_at(0).raw[3:5]


def test_offsets_outside_of_the_log(store):
    for _ in range(5):
        store.put("T", bytes(7000), wait=True)
    assert store.wait_dispatched(30)
    end = store.max_log_offset
    for bad in (-1, end + 1, 1 << 62):
        with pytest.raises(ValueError, match=f"offset is {bad}: the log goes from 0 to {end}"):
            store.log_bytes(bad)
    for bad in (0, -1):
        with pytest.raises(ValueError, match=f"size_max is {bad}: give 1 or more"):
            store.log_bytes(0, bad)
    store.clean(0, pace_ms=0)
    low = store.min_log_offset
    assert low > 0 and len(store.log_bytes(low)) > 7000
    with pytest.raises(ValueError, match=f"the log goes from {low} to"):
        store.log_bytes(low - 1)
    store.close()
    with pytest.raises(errors.StoreClosed):
        store.log_bytes(low)


def test_read_only(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        put = s.put("T", b"x")
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as s:
        assert len(s.log_bytes(0)) == put.size
