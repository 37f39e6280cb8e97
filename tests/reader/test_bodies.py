"""Bodies: each a memoryview of its own, made from one that all messages of a call share; none shows more than its bytes."""
from pathlib import Path

import pytest

from rmq_store import MessageStore

BODIES = [b"", b"x", bytes(range(256)), b"last" * 5000]


def filled(path: Path) -> MessageStore:
    store = MessageStore.open(path)
    for body in BODIES:
        store.put("T", body)
    store.wait_dispatched(10)
    return store


def check(view: memoryview, body: bytes) -> None:
    assert bytes(view) == view.tobytes() == bytes(memoryview(view)) == body and view == body
    assert (view.nbytes, view.shape, view.strides, view.ndim) == (len(body), (len(body),), (1,), 1)
    assert (view.format, view.itemsize, view.suboffsets) == ("B", 1, ())
    assert view.readonly and view.c_contiguous and view.f_contiguous
    assert bytes(view[1:-1]) == body[1:-1] and bytes(view[::-2]) == body[::-2] and view.tolist() == list(body)
    assert len(view.cast("b")) == len(body) and hash(view) == hash(body)
    with pytest.raises(TypeError):
        view[:0] = b""
    with pytest.raises(IndexError):
        view[len(body)]
    assert bytes(memoryview(view.obj)) == b""       # what they share shows nothing


def test_each_body_shows_its_own_bytes_and_nothing_else(tmp_path: Path) -> None:
    with filled(tmp_path / "s") as store:
        messages = store.get("T", 0, 0).messages
        views = [m.body for m in messages]          # all alive at once
        for message, view, body in zip(messages, views, BODIES, strict=True):
            check(view, body)
            check(message.body, body)
            assert bytes(memoryview(message)) == body       # a message is its body, as a buffer
        assert store.leases == 1
        del messages, views, message, view
        assert store.leases == 0


def test_a_body_outlives_its_message_the_other_bodies_and_the_store(tmp_path: Path) -> None:
    store = filled(tmp_path / "s")
    result = store.get("T", 0, 0)
    kept, released, part = result[2].body, result[2].body, result[3].body[4:12]
    released.release()
    with pytest.raises(ValueError, match="released"):
        bytes(released)
    check(result[2].body, BODIES[2])                # one that is made after another was released
    del result, released
    assert store.leases == 1 and bytes(kept) == BODIES[2]
    store.close()
    assert store.leases == 1
    check(kept, BODIES[2])
    del kept
    assert bytes(part) == b"lastlast"               # a slice holds as much as a body; with it the file is unmapped


def test_bodies_of_messages_found_otherwise(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", index_slots=100, index_entries_max=200) as store:
        offset = store.put("T", BODIES[2], keys="k").offset
        store.wait_dispatched(10)
        (by_key,), at, (scanned,) = store.query_key("T", "k"), store.message_at(offset), store.scan("T", 0)
        assert at is not None
        for view in (by_key.body, at.body, scanned.body):
            check(view, BODIES[2])
        del by_key, at, scanned, view
        assert store.leases == 0
