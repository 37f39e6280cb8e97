"""A follower that comes late: what it would look at is deleted, cut off or half there by then."""
import contextlib
import errno
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.opened.following import look_at_files
from tests.elsewhere.test_follow_meets import KINDS, SIZES, put
from tests.soon import until


def ends(store: MessageStore) -> dict[tuple[str, int], tuple[int, int]]:
    return {(topic, n): (store.min_offset(topic, n), store.max_offset(topic, n))
            for topic in store.topics() for n in store.queues(topic)}


def looks(reader: MessageStore) -> None:
    for _ in range(3):
        look_at_files(reader, threading.Event())
        reader._look_on()


def clean(writer: MessageStore) -> None:
    """The log ends with messages of M; all files before its last ones are deleted."""
    for _ in range(80):
        writer.put("M", bytes(3000))
    assert writer.wait_dispatched(30)
    writer.flush()
    writer.clean(0, pace_ms=0)
    assert writer.min_log_offset > 0


def close_descriptors(writer: MessageStore, reader: MessageStore) -> None:
    """The reader has two, and reads other queues."""
    for n in range(12):
        writer.put(f"X{n}", b"x")
    assert writer.wait_dispatched(30)
    until(lambda: all(reader.get(f"X{n}", 0, 0) for n in range(12)), 20_000)


@pytest.fixture(params=[400, 4000], ids=["many-files", "one-file"])
def late(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[MessageStore, MessageStore]]:
    """A writer, and a reader that looks when the test says so, as one whose process was stopped."""
    size = request.param
    sizes = SIZES | {"consumequeue_file_size_bytes": size, "batch_consumequeue_file_size_bytes": size // 20 * 23}
    with MessageStore.open(tmp_path / "s", enable_lmq=True, enable_multi_dispatch=True, **sizes) as writer:
        for topic in ("T", "U"):
            for n in range(10):
                writer.put(topic, b"old", queue_id=n % 2)
        writer.put("M", b"old")
        writer.topic_table.set_queue_type("B", "BatchCQ")
        writer.put_inner_batch("B", [b"old", b"old"])
        assert writer.wait_dispatched(30)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **sizes) as reader:
            reader._stop_following()
            yield writer, reader


def test_records_that_are_deleted_before_it_looks(late: tuple[MessageStore, MessageStore]) -> None:
    writer, reader = late
    for _ in range(100):
        writer.put("T", bytes(1000))
    writer.put("new", b"x", queue_id=3)
    writer.put("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
    writer.topic_table.set_queue_type("N", "BatchCQ")
    (Path(writer.path) / "consumequeue" / "N" / "0").mkdir(parents=True)       # left by a life of the other kind
    for _ in range(7):
        writer.put_inner_batch("B", [b"x", b"y"])
        writer.put_inner_batch("N", [b"x", b"y"])
    clean(writer)
    looks(reader)
    assert ends(reader) == ends(writer)
    for topic in ("T", "new", "N", "B"):
        if topic in "NB":
            writer.put_inner_batch(topic, [b"next", b"next"])
        else:
            writer.put(topic, b"next")
    assert writer.wait_dispatched(30)
    looks(reader)
    assert ends(reader) == ends(writer)


@pytest.mark.parametrize("fails", ["T", "U"])
def test_one_queue_cannot_be_read_when_it_looks(tmp_path: Path, fails: str) -> None:
    """The others are shown, and that one when it can be read."""
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", **SIZES) as writer:
        for topic in ("T", "U", "M"):
            writer.put(topic, b"old")
        assert writer.wait_dispatched(30)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, _io=io, **SIZES) as reader:
            reader._stop_following()
            for _ in range(100):
                writer.put("T", bytes(1000))
            writer.put("new", b"x")
            clean(writer)
            io.fail("open", errno=errno.EMFILE, path=f"/{fails}/0", sticky=True)
            for _ in range(3):
                for look in (lambda: look_at_files(reader, threading.Event()), reader._look_on):
                    with contextlib.suppress(OSError):
                        look()
            assert reader.max_offset("new", 0) == 1
            io.clear()
            for _ in range(200):
                reader._look_on()
            looks(reader)
            assert ends(reader) == ends(writer)


def test_topics_that_began_anew_before_it_looks(late: tuple[MessageStore, MessageStore]) -> None:
    writer, reader = late
    writer.delete_topics("T", "U", "B")
    for _ in range(3):
        writer.put("T", b"new")
    for _ in range(20):
        writer.put("U", b"new", queue_id=1)
    writer.topic_table.set_queue_type("B", "SimpleCQ")
    writer.put("B", b"new")
    clean(writer)
    for topic in ("T", "U", "B"):
        writer.put(topic, b"next", queue_id=topic == "U")
    assert writer.wait_dispatched(30)
    looks(reader)
    assert ends(reader) == ends(writer)
    for topic in ("T", "U", "B"):
        assert [bytes(m.body) for m in reader.scan(topic, int(topic == "U"))] == [b"next"]


def test_entries_are_looked_at_after_the_log_begins_later(late: tuple[MessageStore, MessageStore]) -> None:
    writer, reader = late
    for _ in range(100):
        writer.put("T", bytes(1000))
    clean(writer)
    look_at_files(reader, threading.Event())
    reader._look_on()
    assert ends(reader) == ends(writer)
    assert reader.get("T", 0, 5).next_offset == writer.get("T", 0, 5).next_offset == 105


@pytest.mark.parametrize("met", [False, True], ids=["unmet", "met"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_meets_that_a_topic_is_deleted(tmp_path: Path, kind: str, met: bool) -> None:
    """It begins anew with fewer queues."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as writer:
        for queue_id in range(2):
            put(writer, kind, 3, b"old", queue_id)
        with MessageStore.open(root, readonly=True, follow=True, consumequeue_fd_max=2, **SIZES) as reader:
            close_descriptors(writer, reader)
            writer.delete_topics("T")
            if met:
                assert not reader.get("T", 0, 0)
                reader._look_on()
            put(writer, kind, 5, b"new")
            assert writer.wait_dispatched(30)
            until(lambda: reader.max_offset("T", 0) == writer.max_offset("T", 0), 20_000)
            assert reader.queues("T") == [0] and reader.max_offset("T", 1) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_one_queue_of_a_topic_comes_back_before_the_other(tmp_path: Path, kind: str) -> None:
    """A recovery deletes the files of all its queues and fills one after the other."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as writer:
        for queue_id in range(2):
            put(writer, kind, 3, b"x", queue_id)
        assert writer.wait_dispatched(30)
        with MessageStore.open(root, readonly=True, follow=True, consumequeue_fd_max=2, **SIZES) as reader:
            end = reader.max_offset("T", 1)
            close_descriptors(writer, reader)
            files = [root / KINDS[kind] / "T" / str(n) / f"{0:020d}" for n in range(2)]
            kept = [file.read_bytes() for file in files]
            for file in files:
                file.unlink()
            assert not reader.get("T", 0, 0)
            reader._look_on()
            for file, data in zip(files, kept, strict=True):
                file.write_bytes(data)
                reader._look_on()
            until(lambda: ends(reader) == ends(writer), 20_000)
            assert [len(list(reader.scan("T", n))) for n in range(2)] == [end, end]


def test_deleted_topics_do_not_have_all_queues_asked_each_second(tmp_path: Path) -> None:
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", **SIZES) as writer:
        for n in range(400):
            writer.put(f"T{n}", bytes(1000))
        writer.put("gone", b"x")
        for n in range(400):
            writer.put(f"T{n}", bytes(1000))
        assert writer.wait_dispatched(30)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, _io=io, consumequeue_fd_max=16, **SIZES) as reader:
            reader._stop_following()
            writer.delete_topics("gone")
            writer.flush()
            writer.clean(0, pace_ms=0, files_max=1)
            looks(reader)
            before = io.counts()["open"]
            look_at_files(reader, threading.Event())
            assert io.counts()["open"] - before < 10


def test_the_entries_of_one_record_come_in_two_pieces(tmp_path: Path) -> None:
    """A record whose queue offset leaves a gap has all entries before it, too; the writer may write them in pieces."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as writer:
        put(writer, "plain", 5, b"x")
        assert writer.wait_dispatched(30)
        with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
            until(lambda: reader.max_offset("T", 0) == 5, 20_000)
            at = writer.max_log_offset
            log, queue = root / "commitlog" / f"{0:020d}", root / "consumequeue" / "T" / "0" / f"{0:020d}"
            record = bytearray(log.read_bytes()[:at // 5])
            record[20:28], record[28:36] = struct.pack(">q", 8), struct.pack(">q", at)
            entry = struct.pack(">qiq", at, len(record), 0)
            with open(log, "r+b") as f:
                f.seek(at)
                f.write(record)
            with open(queue, "r+b") as f:
                f.seek(100)
                f.write(2 * entry)
                f.flush()
                reader._look_on()
                assert reader.max_offset("T", 0) == 7
                reader._look_on()
                f.write(2 * entry)
            until(lambda: reader.max_offset("T", 0) == 9, 20_000)
            assert [m.queue_offset for m in reader.scan("T", 0)] == [0, 1, 2, 3, 4, 8]
