"""Queue files are made ahead, so that the dispatcher does not wait for a sync at the end of one."""
import errno
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.soon import until

ENTRIES = 200
SMALL = {"segment_size_bytes": 1 << 20, "consumequeue_file_size_bytes": ENTRIES * 20, "index_slots": 100,
         "index_entries_max": 400}


@pytest.fixture
def io():
    return ProbeIo()


def put(store, n, queues=1):
    for i in range(n * queues):
        store.put("T", b"x", queue_id=i % queues)
    store.wait_dispatched()


def spare(store, number):
    return Path(store.path) / ".alloc" / f"consumequeue.next.{number}"


def made_from(io, store):
    """The names under which queue files were made, in their order."""
    return [Path(c.path).name for c in io.trace() if c.kind == "rename" and c.target.startswith(f"{store.path}/consumequeue/")]


def roll_until(store, queues, true):
    """Puts until `true`, over as many ends of files as it takes: whether a spare is ready at the first is a race."""
    for _ in range(100):
        put(store, ENTRIES, queues)
        if true():
            return
    raise AssertionError("never")


def checked(store, queues):
    for q in range(queues):
        assert [m.queue_offset for m in store.scan("T", q)] == list(range(store.max_offset("T", q)))


def test_queues_go_on_in_files_that_were_made_ahead(tmp_path, io):
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as s:
        put(s, ENTRIES // 4, queues=3)
        until(lambda: spare(s, 2).exists(), 10_000)
        roll_until(s, 3, lambda: sum(name.startswith("consumequeue.next.") for name in made_from(io, s)) >= 3)
        assert made_from(io, s)[:3] == ["consumequeue.new"] * 3
        checked(s, 3)
    for number in range(3):     # each on the device before it has its name
        calls = [c.kind for c in io.trace() if c.path == str(spare(s, number)) and c.result >= 0]
        assert calls.index("ftruncate") < calls.index("fdatasync") < calls.index("rename")
    assert not list((tmp_path / "s" / ".alloc").glob("*"))
    assert {f.stat().st_size for f in (tmp_path / "s" / "consumequeue").rglob("0*") if f.is_file()} == {ENTRIES * 20}


@pytest.mark.parametrize("kind, error", [("open", errno.EMFILE), ("ftruncate", errno.ENOSPC), ("fdatasync", errno.EIO),
                                         ("rename", errno.EIO)])
def test_without_one_the_file_is_made_when_it_is_needed(tmp_path, io, kind, error):
    first = tmp_path / "s" / ".alloc" / "consumequeue.next.0"
    io.fail(kind, errno=error, path=first)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as s:
        put(s, ENTRIES // 4)
        if kind != "rename":
            until(lambda: io.hits, 10_000)
        roll_until(s, 1, lambda: io.hits)
        assert made_from(io, s)[:2] == ["consumequeue.new"] * 2 or kind == "rename"
        checked(s, 1)
    assert not list((tmp_path / "s" / ".alloc").glob("*"))


def test_those_of_a_store_that_was_killed_are_removed(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        put(s, 1)
    left = tmp_path / "s" / ".alloc" / "consumequeue.next.7"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(bytes(10))
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert not left.exists()
        assert s.max_offset("T", 0) == 1
