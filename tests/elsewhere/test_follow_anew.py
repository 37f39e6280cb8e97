"""Queues that begin anew under a reader that follows: as often as their topic is deleted, and of either kind."""
import contextlib
import errno
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import ArgumentIllegal
from rmq_store.status import GetStatus
from tests.elsewhere.lives import between_lives
from tests.soon import until

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "batch_consumequeue_file_size_bytes": 460,
         "index_enabled": False, "manifest_enabled": False}


def file_of(root: Path, topic: str) -> Path:
    return root / "consumequeue" / topic / "0" / f"{0:020d}"


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    return [bytes(m.body).rstrip(b"\0") for m in store.scan(topic, queue_id)]


def begin(store: MessageStore, topic: str, kind: str, queue_id: int, names: list[bytes]) -> None:
    if kind == "batch" and topic not in store.batch_topics:
        store.topic_table.set_queue_type(topic, "BatchCQ")
    for name in names:
        if kind == "batch":
            store.put_inner_batch(topic, [name, name], queue_id=queue_id)
        else:
            store.put(topic, name, queue_id=queue_id)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store whose queue of T has 45 messages, of which the first ones are cleaned, and one of L."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as store:
        for n in range(45):
            store.put("T", b"old%d" % n + bytes(3000))
        store.put("L", b"l0")
        store.flush()
    with MessageStore.open(root, **SIZES) as store:
        while store.min_offset("T", 0) < 25:
            store.clean(0, files_max=1, pace_ms=0)
    return root


def test_its_entry_comes_behind_one_of_a_later_record(old: Path) -> None:
    """The record that begins it anew is vouched for by the entry of another queue before it has one itself."""
    writer_io, reader_io = ProbeIo(keep_bytes=False), ProbeIo(keep_bytes=False)
    with MessageStore.open(old, _io=writer_io, **SIZES) as writer, \
            MessageStore.open(old, readonly=True, follow=True, _io=reader_io, **SIZES) as reader:
        writer.delete_topics("T")
        writer_io.gate("pwrite", file_of(old, "T"))
        reader_io.gate("pread", file_of(old, "L"))
        for topic, body in (("T", b"new0"), ("T", b"new1"), ("L", b"l1")):
            writer.put(topic, body)
        writer_io.wait_standing(1)
        reader_io.wait_standing(1)              # it has walked over the records, and not found the entry of T
        writer_io.ungate()
        assert writer.wait_dispatched(30)
        reader_io.ungate()
        until(lambda: bodies(reader, "T") == [b"new0", b"new1"], 20_000)
        assert bodies(reader, "L") == [b"l0", b"l1"]
        assert (reader.min_offset("T", 0), reader.max_offset("T", 0)) == (0, 2)


@pytest.mark.parametrize("topic", ["T", "new"])
def test_its_file_cannot_be_opened_for_a_while(old: Path, topic: str) -> None:
    """The others are read on meanwhile, and whoever waits is told."""
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(old, **SIZES) as writer, \
            MessageStore.open(old, readonly=True, follow=True, _io=io, **SIZES) as reader:
        if topic == "T":
            writer.delete_topics("T")
        io.fail("open", errno=errno.EMFILE, path=file_of(old, topic), sticky=True)
        writer.put(topic, b"new0")
        for n in range(1, 4):
            writer.put("L", b"l%d" % n)
            assert writer.wait_dispatched(30)
            until(lambda n=n: bodies(reader, "L")[-1] == b"l%d" % n, 20_000)
        with pytest.raises(OSError) as problem:
            reader._look_on()
        assert problem.value.errno == errno.EMFILE
        io.clear()
        until(lambda: bodies(reader, topic) == [b"new0"], 20_000)


@pytest.mark.parametrize("kinds", [("plain", "batch"), ("batch", "plain"), ("batch", "plain", "batch")])
@pytest.mark.parametrize("reopened", [False, True])
def test_it_changes_its_kind(tmp_path: Path, kinds: tuple[str, ...], reopened: bool) -> None:
    root = tmp_path / "s"
    writer = MessageStore.open(root, **SIZES)
    writer.put("L", b"l0")
    begin(writer, "T", kinds[0], 0, [b"0"] * 3)
    begin(writer, "T", kinds[0], 1, [b"0"] * 3)
    assert writer.wait_dispatched(30)
    with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        assert set(bodies(reader, "T")) == {b"0"}
        for life, kind in enumerate(kinds[1:], 1):
            writer.delete_topics("T")
            if reopened or kind == "batch":     # a name that had plain queues since the open keeps them
                writer.close()
                writer = MessageStore.open(root, **SIZES)
            begin(writer, "T", kind, 0, [b"%d" % life] * (1 + life))
            begin(writer, "T", kind, 1, [b"%d" % life] * 30)
            assert writer.wait_dispatched(30)
            reader._look_on()
            reader._look_on()           # the first one takes the new kind
            assert [bodies(reader, "T", n) for n in range(2)] == [bodies(writer, "T", n) for n in range(2)]
            assert set(bodies(reader, "T")) == {b"%d" % life}
            end = reader.max_offset("T", 0)
            begin(writer, "T", kind, 0, [b"next"])
            assert reader.wait_for_message("T", 0, end, 20)
            assert bodies(reader, "T")[end] == b"next"
    writer.close()


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 60))])
def test_many_lives(tmp_path: Path, seed: int) -> None:
    """Topics are deleted, cleaned and filled again, of either kind; the writer closes and comes again. After each round a look
    sees what the writer has."""
    rng = random.Random(seed)
    root = tmp_path / "s"
    writer = MessageStore.open(root, **SIZES)
    writer.put("first", b"1")
    assert writer.wait_dispatched(30)
    with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        for number in range(12):
            lives = [topic for topic in writer.topics() if topic != "first"]
            writer = between_lives(rng, writer, lives, **SIZES)
            for topic in rng.sample("ABCDEFGH", rng.randrange(1, 7)):
                if topic not in writer.batch_topics and rng.random() < 0.5:
                    with contextlib.suppress(ArgumentIllegal):          # it has, or had, plain queues since the open
                        writer.topic_table.set_queue_type(topic, "BatchCQ")
                kind = "batch" if topic in writer.batch_topics else "plain"
                for queue_id in rng.sample(range(3), rng.randrange(1, 4)):
                    begin(writer, topic, kind, queue_id, [b"%d %d" % (number, n) for n in range(rng.choice([1, 1, 2, 5, 30]))])
                if rng.random() < 0.5:
                    reader._look_on()
            assert writer.wait_dispatched(30)
            compare(reader, writer)
    writer.close()


def compare(reader: MessageStore, writer: MessageStore) -> None:
    for _ in range(len(writer.topics()) + 1):   # a look takes one new kind
        reader._look_on()
    for topic in writer.topics():
        for queue_id in writer.queues(topic):
            assert reader.max_offset(topic, queue_id) == writer.max_offset(topic, queue_id), (topic, queue_id)
            low = writer.min_offset(topic, queue_id)
            found = [(m.queue_offset, bytes(m.body)) for m in reader.scan(topic, queue_id) if m.queue_offset >= low]
            assert found == [(m.queue_offset, bytes(m.body)) for m in writer.scan(topic, queue_id)], (topic, queue_id)


def test_a_queue_offset_that_no_queue_has(tmp_path: Path) -> None:
    """In a record that no entry vouches for; the queue's last file is full. It is not looked for file by file."""
    root, io = tmp_path / "s", ProbeIo(keep_bytes=False)
    with MessageStore.open(root, **SIZES) as writer:
        for n in range(20):
            writer.put("T", b"%d" % n)
    shutil.copytree(root, tmp_path / "before")
    with MessageStore.open(root, **SIZES) as writer:
        at = writer.put("T", b"20").offset
    name = f"{0:020d}"
    log = bytearray((root / "commitlog" / name).read_bytes())
    log[at + 20:at + 28] = struct.pack(">q", 10 ** 12)
    with MessageStore.open(tmp_path / "before", readonly=True, follow=True, _io=io, **SIZES) as reader:
        with open(tmp_path / "before" / "commitlog" / name, "r+b") as f:
            f.write(log)
        before = io.counts().get("open", 0)
        reader._look_on()
        assert io.counts()["open"] - before < 50
        assert reader.max_offset("T", 0) == 20


def test_a_queue_that_is_not_there_is_asked_for_once_a_look(tmp_path: Path) -> None:
    root, io = tmp_path / "s", ProbeIo(keep_bytes=False)
    with MessageStore.open(root, **SIZES) as writer:
        for n in range(2000):
            writer.put(f"T{n % 4}", b"1")
    (tmp_path / "r" / "commitlog").mkdir(parents=True)
    with MessageStore.open(tmp_path / "r", readonly=True, follow=True, _io=io, **SIZES) as reader:
        before = io.counts().get("open", 0)
        for file in sorted(os.listdir(root / "commitlog")):
            shutil.copy(root / "commitlog" / file, tmp_path / "r" / "commitlog" / file)
        reader._look_on()
        assert 4 <= io.counts()["open"] - before < 200
        assert reader.topics() == []
        for file in sorted((root / "consumequeue").rglob("0*")):        # as a writer makes them
            if file.is_file():
                to = tmp_path / "r" / file.relative_to(root)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, to)
        reader._look_on()
        assert [reader.max_offset(f"T{n}", 0) for n in range(4)] == [500] * 4
        assert reader.get("T0", 0, 0).status is GetStatus.FOUND
