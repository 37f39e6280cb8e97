"""What a follower and its readers meet in the files: entries that are cut off, files that go, damage, strange names."""
import contextlib
import errno
import os
import random
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.opened.following import look_at_files
from rmq_store.status import GetStatus
from tests.soon import until

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "batch_consumequeue_file_size_bytes": 460,
         "index_enabled": False, "manifest_enabled": False}
KINDS = {"plain": "consumequeue", "batch": "batchconsumequeue"}


def put(store: MessageStore, kind: str, count: int, body: bytes, queue_id: int = 0, tags: str | None = None) -> None:
    if kind == "batch" and "T" not in store.batch_topics:
        store.topic_table.set_queue_type("T", "BatchCQ")
    for _ in range(count):
        if kind == "batch":
            store.put_inner_batch("T", [body, body], queue_id=queue_id)
        else:
            store.put("T", body, queue_id=queue_id, tags=tags)


def offsets(store: MessageStore) -> tuple[int, int]:
    return store.min_offset("T", 0), store.max_offset("T", 0)


def clean_to(store: MessageStore, offset: int) -> None:
    while store.min_offset("T", 0) < offset:
        store.clean(0, files_max=1, pace_ms=0)


@contextlib.contextmanager
def cut_off(root: Path, kind: str) -> Iterator[None]:
    """As a recovery of the writer cuts entries off, and its dispatch brings them back."""
    files = sorted((root / KINDS[kind] / "T" / "0").iterdir())
    kept = [file.read_bytes() for file in files]
    for file, data in zip(files, kept, strict=True):
        with open(file, "r+b") as f:
            f.write(bytes(len(data)))
    yield
    for file, data in zip(files, kept, strict=True):
        with open(file, "r+b") as f:
            f.write(data)


@contextlib.contextmanager
def followed(root: Path, kind: str) -> Iterator[tuple[MessageStore, MessageStore]]:
    """A writer whose queue has 45 entries, and a reader that follows."""
    with MessageStore.open(root, **SIZES) as writer:
        put(writer, kind, 45, b"x")
        assert writer.wait_dispatched(30)
        with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
            yield writer, reader


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_does_not_pass_over_what_is_cut_off(tmp_path: Path, kind: str) -> None:
    with followed(tmp_path / "s", kind) as (writer, reader):
        with cut_off(tmp_path / "s", kind):
            found = reader.get("T", 0, 12)
            assert (found.status, found.next_offset, len(found)) == (GetStatus.OFFSET_OVERFLOW_ONE, 12, 0)
            reader._look_on()
            assert reader.max_offset("T", 0) <= 12
            assert reader.offset_by_time("T", 0, 0) == 0
        until(lambda: offsets(reader) == offsets(writer), 20_000)
        assert reader.get("T", 0, 12).messages[0].queue_offset == 12


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_by_time_of_what_is_cut_off(tmp_path: Path, kind: str) -> None:
    """No reader has met it before."""
    with followed(tmp_path / "s", kind) as (writer, reader):
        with cut_off(tmp_path / "s", kind):
            assert reader.offset_by_time("T", 0, 1 << 50) == 0
        until(lambda: reader.offset_by_time("T", 0, 1 << 50) == writer.offset_by_time("T", 0, 1 << 50), 20_000)


@pytest.mark.parametrize("kind", KINDS)
def test_all_is_cut_off_where_the_queue_begins_within_a_file(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as writer:
        put(writer, kind, 45, bytes(1700))
    with MessageStore.open(root, **SIZES) as writer, MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        clean_to(writer, writer.max_offset("T", 0) - 20)
        until(lambda: offsets(reader) == offsets(writer), 20_000)
        with cut_off(root, kind):
            reader.get("T", 0, reader.min_offset("T", 0))
            reader._look_on()
            assert reader.max_offset("T", 0) < writer.max_offset("T", 0)
        put(writer, kind, 20, b"y")
        assert writer.wait_dispatched(30)
        until(lambda: offsets(reader) == offsets(writer), 20_000)
        assert [m.queue_offset for m in reader.scan("T", 0)] == [m.queue_offset for m in writer.scan("T", 0)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_that_looks_for_the_beginning_of_a_queue_that_begins_anew(tmp_path: Path, kind: str) -> None:
    """Its first files are cleaned; while somebody reads there, the topic is deleted and comes again."""
    root, io, go = tmp_path / "s", ProbeIo(keep_bytes=False), threading.Event()
    with MessageStore.open(root, **SIZES) as writer:
        put(writer, kind, 65, bytes(3000))
    with MessageStore.open(root, **SIZES) as writer, \
            MessageStore.open(root, readonly=True, follow=True, consumequeue_fd_max=2, _io=io, **SIZES) as reader:
        numbers: list[int] = []

        def reads() -> None:
            numbers.append(threading.get_native_id())
            go.wait()
            reader.get("T", 0, 5)

        for n in range(12):                     # the descriptors of T are closed
            writer.put(f"X{n}", b"x")
        assert writer.wait_dispatched(30)
        until(lambda: all(reader.get(f"X{n}", 0, 0) for n in range(12)), 20_000)
        thread = threading.Thread(target=reads)
        thread.start()
        until(lambda: bool(numbers), 20_000)
        clean_to(writer, writer.max_offset("T", 0) * 25 // 65)
        second = 400 if kind == "plain" else 460
        io.gate("open", root / KINDS[kind] / "T" / "0" / f"{second:020d}", numbers[0])
        go.set()
        until(lambda: not thread.is_alive() or bool(io.standing()), 20_000)
        writer.delete_topics("T")
        put(writer, kind, 45, b"new")
        assert writer.wait_dispatched(30)
        reader._look_on()
        io.ungate()
        thread.join()
        reader._look_on()
        assert offsets(reader) == offsets(writer) == (0, 45 if kind == "plain" else 90)
        assert {bytes(m.body) for m in reader.scan("T", 0)} == {b"new"}


def test_damage_does_not_keep_min_offset_back(tmp_path: Path) -> None:
    root = tmp_path / "s"
    sizes = SIZES | {"consumequeue_file_size_bytes": 4000}
    with MessageStore.open(root, **sizes) as writer:
        put(writer, "plain", 129, bytes(3000))
    with MessageStore.open(root, **sizes) as writer, MessageStore.open(root, readonly=True, follow=True, **sizes) as reader:
        with open(root / "consumequeue" / "T" / "0" / f"{0:020d}", "r+b") as f:
            f.seek(64 * 20)
            f.write(bytes(20))
        for goal in (30, 70, 100):
            clean_to(writer, goal)
            until(lambda: offsets(reader) == offsets(writer), 20_000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_entry_in_the_middle_is_passed_over(tmp_path: Path, kind: str) -> None:
    """The last one is there: no recovery has cut it off, and none will bring it back."""
    size, unit = (20, 12) if kind == "plain" else (46, 5)
    with followed(tmp_path / "s", kind) as (_, reader):
        file = sorted((tmp_path / "s" / KINDS[kind] / "T" / "0").iterdir())[0]
        with open(file, "r+b") as f:
            f.seek(unit * size)
            f.write(bytes(size))
        at, found = 0, []
        while at < reader.max_offset("T", 0):
            result = reader.get("T", 0, at)
            assert result.next_offset > at
            found, at = found + [m.queue_offset for m in result], result.next_offset
        lost = {12} if kind == "plain" else {10, 11}
        assert found == [n for n in range(reader.max_offset("T", 0)) if n not in lost]


def test_entries_where_the_queue_begins_now_are_brought_back(tmp_path: Path) -> None:
    """Entries are gone, while later ones are still there: as the recovery of another writer may do it."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as writer:
        put(writer, "plain", 129, bytes(3000))
    with MessageStore.open(root, **SIZES) as writer, MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        clean_to(writer, 63)
        first = writer.min_offset("T", 0)
        file = root / "consumequeue" / "T" / "0" / f"{first * 20 // 400 * 400:020d}"
        kept = file.read_bytes()
        file.write_bytes(kept[:first * 20 % 400].ljust(400, b"\0"))
        look_at_files(reader, threading.Event())
        assert reader.min_log_offset == writer.min_log_offset and reader.min_offset("T", 0) <= first
        file.write_bytes(kept)
        until(lambda: offsets(reader) == offsets(writer), 20_000)


def test_tags_of_a_queue_that_begins_anew_with_extension_units(tmp_path: Path) -> None:
    root, sizes = tmp_path / "s", SIZES | {"consumequeue_ext_enabled": True}
    with MessageStore.open(root, **sizes) as writer:
        for n in range(10):
            writer.put("T", b"%d" % n, tags="A")
        assert writer.wait_dispatched(30)
        with MessageStore.open(root, readonly=True, follow=True, **sizes) as reader:
            assert len(reader.get("T", 0, 0, tags="A")) == 10
            writer.delete_topics("T")
            for n in range(12):
                writer.put("T", b"%d" % n, tags="BCA"[n % 3])
            assert writer.wait_dispatched(30)
            reader._look_on()
            for tag in "ABC":
                found, expected = reader.get("T", 0, 0, tags=tag), writer.get("T", 0, 0, tags=tag)
                assert [bytes(m.body) for m in found] == [bytes(m.body) for m in expected]


def test_a_file_whose_name_is_far_beyond(tmp_path: Path) -> None:
    """While the queue's next file is being made."""
    root, io = tmp_path / "s", ProbeIo(keep_bytes=False)
    with MessageStore.open(root, **SIZES) as writer:
        put(writer, "plain", 20, b"x")          # its file is full
        writer.put("L", b"l0")
    with MessageStore.open(root, _io=io, **SIZES) as writer, \
            MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        far = (2**63 - 1) // 400 * 400 - 400
        (root / "consumequeue" / "T" / "0" / f"{far:020d}").write_bytes(b"")
        io.gate("rename")
        writer.put("T", b"20")
        until(lambda: bool(io.standing()), 20_000)
        ended = threading.Thread(target=reader._look_on, daemon=True)
        ended.start()
        ended.join(60)
        assert not ended.is_alive()
        os.unlink(root / "consumequeue" / "T" / "0" / f"{far:020d}")
        io.ungate()
        writer.put("L", b"l1")
        until(lambda: (reader.max_offset("L", 0), reader.max_offset("T", 0)) == (2, 21), 20_000)


def test_the_size_of_batch_files_is_told_when_the_topic_has_none(tmp_path: Path) -> None:
    """It had them, as far as the reader knows, has plain queues now, and gets them again."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as writer:
        writer.put("L", b"l")
        assumed = SIZES | {"batch_consumequeue_file_size_bytes": 920}
        with MessageStore.open(root, readonly=True, follow=True, **assumed) as reader:
            writer.topic_table.set_queue_type("T", "BatchCQ")
            writer.topic_table.flush()
            assert not reader.wait_for_message("T", 0, 0, 0.01)         # reads the table of topics
            writer.delete_topics("T")
            writer.topic_table.remove("T")
            writer.topic_table.flush()
            _again(root, writer, reader)


def _again(root: Path, writer: MessageStore, reader: MessageStore) -> None:
    writer.close()
    with MessageStore.open(root, **SIZES) as second:
        second.put("T", b"plain")
        second.topic_table.set_queue_type("U", "BatchCQ")
        second.put_inner_batch("U", [b"u"])
        until(lambda: (reader.max_offset("T", 0), reader.max_offset("U", 0)) == (1, 1), 20_000)
        second.delete_topics("T")
    with MessageStore.open(root, **SIZES) as third:
        put(third, "batch", 15, b"t")
        until(lambda: reader.max_offset("T", 0) == third.max_offset("T", 0) == 30, 20_000)
        assert len(list(reader.scan("T", 0))) == 30


@pytest.mark.parametrize("kinds", [("plain", "plain"), ("batch", "batch"), ("batch", "plain"), ("plain", "batch")])
@pytest.mark.parametrize("queue_id", [1, 2])
def test_a_topic_that_begins_anew_with_fewer_queues(tmp_path: Path, kinds: tuple[str, str], queue_id: int) -> None:
    """In one that it had before, or in a new one."""
    root = tmp_path / "s"
    writer = MessageStore.open(root, **SIZES)
    for old in (0, 1):
        put(writer, kinds[0], 3, b"old", old)
    assert writer.wait_dispatched(30)
    with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        writer.delete_topics("T")
        if kinds == ("plain", "batch"):         # a name that had plain queues since the open keeps them
            writer.close()
            writer = MessageStore.open(root, **SIZES)
        put(writer, kinds[1], 5, b"new", queue_id)
        assert writer.wait_dispatched(30)
        until(lambda: reader.max_offset("T", queue_id) == writer.max_offset("T", queue_id), 20_000)
        assert reader.queues("T") == writer.queues("T") == [queue_id]
        assert [reader.max_offset("T", n) for n in range(3)] == [writer.max_offset("T", n) for n in range(3)]
    writer.close()


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (0, 3), (3, 0), (2, 3), (3, 2)])
def test_two_of_four_queues_begin_anew_at_a_time(tmp_path: Path, pair: tuple[int, int]) -> None:
    """While the first one begins, the second one has a file, and no entry yet."""
    root, io = tmp_path / "s", ProbeIo(keep_bytes=False)
    with MessageStore.open(root, **SIZES) as writer:
        for queue_id in range(4):
            put(writer, "plain", 3, b"old", queue_id)
    with MessageStore.open(root, _io=io, **SIZES) as writer, \
            MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        writer.delete_topics("T")
        io.gate("pwrite", root / "consumequeue" / "T" / str(pair[0]) / f"{0:020d}")
        for queue_id in pair:
            put(writer, "plain", 1, b"new", queue_id)
        until(lambda: bool(io.standing()), 20_000)
        reader._look_on()
        io.ungate()
        assert writer.wait_dispatched(30)
        ends = [writer.max_offset("T", n) for n in range(4)]
        until(lambda: [reader.max_offset("T", n) for n in range(4)] == ends, 20_000)
        assert reader.queues("T") == sorted(pair)


def test_queues_that_wait_in_vain_take_turns(tmp_path: Path) -> None:
    """Those of many topics that were deleted before the reader saw an entry of them."""
    root, io = tmp_path / "s", ProbeIo(keep_bytes=False)
    with MessageStore.open(root, **SIZES) as writer:
        for n in range(600):
            writer.put(f"T{n}", b"x")
        writer.put("L", b"l0")
        writer.delete_topics(*(f"T{n}" for n in range(600)))
        (root / "checkpoint").write_bytes(bytes(4096))
        with MessageStore.open(root, readonly=True, follow=True, _io=io, **SIZES) as reader:
            for _ in range(70):
                reader._look_on()               # in all of them, each time
            stands, opens = reader.stats(), io.counts()["open"]
            until(lambda: io.counts()["open"] >= opens + 600, 20_000)      # the thread takes turns
            assert stands["dispatched"] == reader.stats()["dispatched"]
            writer.put("T7", b"again")
            until(lambda: reader.max_offset("T7", 0) == 1, 20_000)
            assert reader.topics() == ["L", "T7"]


def test_a_search_by_time_says_what_it_cannot_read(tmp_path: Path) -> None:
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", **SIZES) as writer:
        put(writer, "plain", 45, b"x")
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, _io=io, **SIZES) as reader:
        io.fail("pread", errno=errno.EIO, path=tmp_path / "s" / "consumequeue" / "T" / "0" / f"{800:020d}", sticky=True)
        with pytest.raises(OSError) as problem:
            reader.offset_by_time("T", 0, 1 << 50)
        assert problem.value.errno == errno.EIO


def test_a_queue_id_that_no_queue_has(tmp_path: Path) -> None:
    """A record that is half written, or rotten, may say any."""
    root = tmp_path / "s"
    log = root / "commitlog" / f"{0:020d}"
    with MessageStore.open(root, **SIZES) as writer, MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        put(writer, "plain", 1, b"x")
        until(lambda: reader.max_offset("T", 0) == 1, 20_000)
        with open(log, "r+b") as f:
            record = f.read(writer.max_log_offset)
            at = len(record)
            for n in range(64):
                made = bytearray(record)
                made[12:16] = struct.pack(">i", (1 << 31) - 1 - n)
                made[28:36] = struct.pack(">q", at)
                f.seek(at)
                at += f.write(made)
        for _ in range(3):
            reader._look_on()
        assert reader.topics() == ["T"]


@pytest.mark.parametrize("seed", range(6))
def test_records_whose_fields_say_anything(tmp_path: Path, seed: int) -> None:
    """Their place and their size are right, so that a follower walks over them. None has an entry."""
    rng, root = random.Random(seed), tmp_path / "s"
    with MessageStore.open(root, enable_lmq=True, enable_multi_dispatch=True, **SIZES) as writer, \
            MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader:
        writer.put("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "k": "v" * 40})
        shown = ["%LMQ%a", "%LMQ%b", "T"]
        until(lambda: sorted(reader.topics()) == shown, 20_000)
        with open(root / "commitlog" / f"{0:020d}", "r+b") as f:
            record = f.read(writer.max_log_offset)
            for at in range(len(record), 60_000, len(record)):
                made = bytearray(record)
                for _ in range(rng.randrange(1, 6)):
                    size, near = rng.choice([1, 2, 4, 8]), rng.randrange(64)
                    field = rng.choice([-1, 0, near, (1 << (8 * size - 1)) - 1 - near, (-1 << (8 * size - 1)) + near])
                    begin = rng.choice([*range(8, 88, 4), rng.randrange(8, len(made) - size)])
                    made[begin:begin + size] = field.to_bytes(size, "big", signed=True)
                made[28:36] = struct.pack(">q", at)
                f.seek(at)
                f.write(made)
        for _ in range(3):
            reader._look_on()
        assert sorted(reader.topics()) == shown and reader.max_offset("T", 0) == 1


@pytest.mark.parametrize("unit", [44, 43])
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_meets_a_rotten_entry_at_the_end(tmp_path: Path, kind: str, unit: int) -> None:
    """If it is the last one, only the next one tells that no recovery has cut it off."""
    size, file_size = (20, 400) if kind == "plain" else (46, 460)
    with followed(tmp_path / "s", kind) as (writer, reader):
        with open(tmp_path / "s" / KINDS[kind] / "T" / "0" / f"{unit * size // file_size * file_size:020d}", "r+b") as f:
            f.seek(unit * size % file_size)
            f.write(bytes(size))
        reader.get("T", 0, unit * reader.max_offset("T", 0) // 45)
        reader._look_on()
        put(writer, kind, 60, b"y")
        assert writer.wait_dispatched(30)
        until(lambda: reader.max_offset("T", 0) == writer.max_offset("T", 0), 20_000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rotten_entry_among_those_that_come_back(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "s"
    with followed(root, kind) as (writer, reader):
        with open(root / KINDS[kind] / "T" / "0" / f"{0:020d}", "r+b") as f:
            f.seek(5 * (20 if kind == "plain" else 46))
            f.write(bytes(20))
        with cut_off(root, kind):
            reader.get("T", 0, 5 if kind == "plain" else 10)
            reader._look_on()
            assert reader.max_offset("T", 0) < 45
        until(lambda: reader.max_offset("T", 0) == writer.max_offset("T", 0), 20_000)


def test_a_batch_queue_that_stays_shorter_passes_over_a_rotten_unit(tmp_path: Path) -> None:
    """It ended further behind before a recovery cut it: what is back behind the rotten unit is enough."""
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as writer:
        put(writer, "batch", 10, b"x")
        assert writer.wait_dispatched(30)
    file = root / "batchconsumequeue" / "T" / "0" / f"{0:020d}"
    whole = file.read_bytes()
    with MessageStore.open(root, readonly=True, follow=True, **SIZES) as reader, open(file, "r+b") as f:
        for at, end in ((16, 8), (6, 9)):
            f.seek(0)
            f.write(whole[:8 * 46] + bytes(2 * 46))
            f.seek(3 * 46)
            f.write(bytes(46 * (at == 6)))
            f.flush()
            assert not reader.get("T", 0, at)
            reader._look_on()
            f.seek(8 * 46)
            f.write(whole[8 * 46:end * 46])
            f.flush()
            until(lambda: reader.max_offset("T", 0) >= 2 * end, 20_000)     # noqa: B023
