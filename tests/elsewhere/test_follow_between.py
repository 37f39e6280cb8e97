"""A follower that is opened between two entries that its writer makes: what has no entry yet is read when it has one."""
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.soon import until

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "batch_consumequeue_file_size_bytes": 460,
         "index_enabled": False, "manifest_enabled": False}
LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def file_of(root: Path, topic: str, kind: str = "consumequeue") -> Path:
    return root / kind / topic / "0" / f"{0:020d}"


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    return [bytes(m.body) for m in store.scan(topic, 0)]


def put(store: MessageStore, topic: str, body: bytes) -> None:
    if topic == "batches":
        store.put_inner_batch(topic, [body, body])
    elif topic == "%LMQ%a":
        store.put("D", body, light_queues=["a"])
    else:
        store.put(topic, body)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with one message of T, and one of L."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as store:
        store.topic_table.set_queue_type("batches", "BatchCQ")
        store.put("T", b"0")
        store.put("L", b"l0")
    return root


@pytest.mark.parametrize("topic", ["T", "new", "batches", "%LMQ%a"])
def test_its_entry_comes_behind_one_of_a_later_record(root: Path, topic: str) -> None:
    """At the open, the later record has an entry, and this one does not."""
    io = ProbeIo(keep_bytes=False)
    file = file_of(root, topic, "batchconsumequeue" if topic == "batches" else "consumequeue")
    with MessageStore.open(root, _io=io, **SIZES, **LIGHT) as writer:
        for operation in ("open", "pwrite"):
            io.gate(operation, file)
        put(writer, topic, b"1")
        writer.put("L", b"l1")
        io.wait_standing(1)
        try:
            reader = MessageStore.open(root, readonly=True, follow=True, **SIZES)
        finally:
            io.ungate()
        with reader:
            assert writer.wait_dispatched(30)
            until(lambda: b"1" in bodies(reader, topic), 20_000)
            assert bodies(reader, topic) == bodies(writer, topic)
            until(lambda: bodies(reader, "L") == [b"l0", b"l1"], 20_000)


def test_a_killed_writer_lost_entries_that_the_next_one_brings_back(root: Path) -> None:
    """Between the two, somebody opens the store to follow it. The entry of a later record was written."""
    with MessageStore.open(root, **SIZES) as store:
        store.put("T", b"1")
        store.put("L", b"l1")
    file = file_of(root, "T")
    whole = file.read_bytes()
    file.write_bytes(whole[:20] + bytes(len(whole) - 20))
    (root / "abort").write_bytes(b"")
    with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        assert (bodies(reader, "T"), bodies(reader, "L")) == ([b"0"], [b"l0", b"l1"])
        with MessageStore.open(root, **SIZES) as writer:
            assert bodies(writer, "T") == [b"0", b"1"]
            until(lambda: bodies(reader, "T") == [b"0", b"1"], 20_000)
