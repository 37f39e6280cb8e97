"""Below which log offset a removed queue gets no entry: never a place where messages may still come."""
import json

import pytest

from rmq_store import MessageStore
from rmq_store.services.integrity.repair import repair
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_enabled": False}


def rewrite(root, begin, end, change):
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[begin:end] = change(data[begin:end])
    path.write_bytes(data)


def three_more(root, topic):
    """Three durable messages get the numbers 0, 1 and 2, and are delivered now and after the next opens."""
    with MessageStore.open(root, **SMALL) as store:
        puts = [store.put(topic, b"new%d" % i, wait=True) for i in range(3)]
        assert [put.queue_offset for put in puts] == [0, 1, 2] and store.wait_dispatched(10)
        assert [bytes(m.body) for m in store.scan(topic, 0)] == [b"new0", b"new1", b"new2"]
    for crashed in (False, True):
        if crashed:
            (root / "abort").touch()
        with MessageStore.open(root, **SMALL) as store:
            assert [bytes(m.body) for m in store.scan(topic, 0)][:3] == [b"new0", b"new1", b"new2"]
            assert store.put(topic, b"x").queue_offset == 3 + crashed


@pytest.mark.untraced       # files are changed behind the trace's back
@pytest.mark.parametrize("again", [False, True])
def test_the_log_lost_what_a_removed_queue_had(tmp_path, again):
    live, root = tmp_path / "live", tmp_path / "s"
    with MessageStore.open(live, **SMALL) as store:
        store.put("Other", b"o")
        end = store.flush()
        for i in range(10):
            store.put("A", b"old%d" % i)
        store.delete_topics("A")
        assert store.stats()["flushed"] > end, "what the bound speaks of is on the device before the bound is"
        take_image(live, root)
    rewrite(root, end, 1 << 16, lambda old: bytes(len(old)))
    if again:
        with MessageStore.open(root, **SMALL):
            pass
        bounds = json.loads((root / "config" / "removedQueues.json").read_text())["removed"]
        assert all(bound <= end for bound in bounds.values())
    three_more(root, "A")


@pytest.mark.untraced
def test_a_bit_rots_in_front_of_what_a_removed_queue_had(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        puts = [store.put("Other", b"o%d" % i) for i in range(10)]
        for i in range(10):
            store.put("A", b"old%d" % i)
        store.delete_topics("A")
        store.put("Other", b"z")
    rewrite(root, puts[5].offset + 4, puts[5].offset + 5, lambda old: bytes([old[0] ^ 1]))
    three_more(root, "A")


@pytest.mark.untraced
def test_a_hole_in_a_store_that_was_closed(tmp_path):
    """The log ends at it: what lies behind is kept aside, and comes back in no way but by repair."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        others = [store.put("Other", b"o%03d" % i * 10) for i in range(40)]
        for i in range(5):
            last = store.put("Q", b"q%03d" % i * 10)
    hole = others[5]
    rewrite(root, hole.offset, hole.offset + hole.size, lambda old: bytes(len(old)))
    behind = (root / "commitlog" / f"{0:020d}").read_bytes()[hole.offset:last.offset + last.size]
    three_more(root, "Q")
    assert (root / ".salvage" / f"{hole.offset:020d}").read_bytes() == behind.rstrip(b"\0")
    with MessageStore.open(root, **SMALL) as store:
        assert [bytes(m.body) for m in store.scan("Other", 0)] == [b"o%03d" % i * 10 for i in range(5)]


@pytest.mark.untraced
def test_a_hole_in_a_store_that_was_closed_is_told_to_readers(tmp_path, caplog):
    """And repair, run before anybody writes, brings back all that is good."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as store:
        puts = [store.put("T", b"%03d" % i * 10) for i in range(60)]
    rewrite(root, puts[20].offset, puts[20].offset + puts[20].size, lambda old: bytes(len(old)))
    with MessageStore.open(root, readonly=True, **SMALL) as store:
        assert len(list(store.scan())) == 20
    assert "`rmqstore repair` brings back what is good" in caplog.text
    assert repair(root, dry_run=False, open_store=MessageStore.open, **SMALL).left == []
    with MessageStore.open(root, **SMALL) as store:
        found = [bytes(m.body) for m in store.scan("T", 0) if "DAMAGED" not in m.properties]
    assert found == [b"%03d" % i * 10 for i in range(60) if i != 20]
