"""Files that a writer deletes at the very moment at which somebody else lists, opens or holds them."""
import errno
import importlib
import mmap
import os

import pytest

from rmq_store import MessageStore, scrub, verify
from rmq_store.access.bulk._queues import queue_columns, record_time
from rmq_store.base.io._io import IoTable, ProbeIo
from rmq_store.services.integrity.repair import repair
from rmq_store.services.integrity.replacing import copy_with
from rmq_store.spark.arrow import open_if_there
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.splits import plan
from rmq_store.spark.stores import log_files

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 1000, "index_slots": 50, "index_entries_max": 200,
         "manifest_enabled": False}
COUNT = 600


@pytest.fixture
def writer(tmp_path):
    with MessageStore.open(tmp_path / "s", **SIZES) as store:
        for n in range(COUNT):
            store.put("T", b"%d" % n * 200, keys=f"k{n}")
    with MessageStore.open(tmp_path / "s", **SIZES) as store:       # again: now its queues are known to be on the device
        yield store


@pytest.fixture
def after(monkeypatch):
    """after("rmq_store.opened.opening.load_names", act): what that returns first is old when it is used, act() came between."""

    def arrange(name, act):
        module, _, attribute = name.rpartition(".")
        real = getattr(importlib.import_module(module), attribute)
        left = [act]

        def wrapped(*arguments, **keywords):
            found = real(*arguments, **keywords)
            if left:
                left.pop()()
            return found

        monkeypatch.setattr(name, wrapped)

    return arrange


def numbers(store):
    return [int(bytes(m.body)[:len(bytes(m.body)) // 200]) for m in store.scan("T", 0)]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", ["load_names", "load_queues"])
def test_a_readonly_open_while_a_writer_opens_and_rolls(tmp_path, after, caplog, name, closed):
    """The log was listed before the writer opened, the queues are read behind it: that is no damage."""
    root, writers = tmp_path / "s", []
    with MessageStore.open(root, **SIZES) as store:
        store.put_many("T", [b"x" * 200] * 100)

    def write():
        writers.append(MessageStore.open(root, **SIZES))
        writers[0].put_many("T", [b"y" * 200] * 900)
        assert writers[0].wait_dispatched(30)
        if closed:
            writers[0].close()
        caplog.clear()

    after(f"rmq_store.opened.opening.{name}", write)
    with MessageStore.open(root, readonly=True, **SIZES) as store:
        assert {getattr(r, "event", "") for r in caplog.records} <= {"OPENED", "OPTION_NO_EFFECT", ""}
        assert 100 <= store.max_offset("T", 0) <= 1000 and len(list(store.scan("T", 0))) == store.max_offset("T", 0)
    writers[0].close()


def test_a_readonly_open_says_that_the_log_is_short(tmp_path, caplog):
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as store:
        store.put_many("T", [b"x" * 200] * 900)
    sorted((root / "commitlog").iterdir())[-1].unlink()
    while max((root / "commitlog").iterdir()).read_bytes()[:8] == bytes(8):     # those made ahead, and one with messages
        max((root / "commitlog").iterdir()).unlink()
    max((root / "commitlog").iterdir()).unlink()
    with MessageStore.open(root, readonly=True, **SIZES):
        assert "LOG_FILES_MISSING" in {getattr(r, "event", "") for r in caplog.records}


@pytest.mark.parametrize("name", ["opened.opening.load_names", "opened.opening.load_queues", "queues.index.loader._names"])
def test_a_readonly_open_while_files_go(writer, after, name):
    after(f"rmq_store.{name}", lambda: writer.clean(0, pace_ms=0))
    with MessageStore.open(writer.path, readonly=True) as store:
        found = numbers(store)
        assert found == list(range(found[0], COUNT)) and found[0] <= numbers(writer)[0]
        assert store.query_key("T", f"k{found[-1]}")


def test_a_readonly_store_that_is_held_while_files_go(writer):
    with MessageStore.open(writer.path, readonly=True) as reader:
        message = reader.get("T", 0, 0)[0]
        before = bytes(message.body)
        assert writer.clean(0, pace_ms=0).queue_files > 1
        found = numbers(reader)
        assert found == sorted(found) and found[-1] == COUNT - 1
        at = 0
        while at < COUNT:                       # whoever asks from the start is led on
            result = reader.get("T", 0, at)
            assert result.messages or result.next_offset > at
            at = result.next_offset
        assert bytes(message.body) == before
        del message, result


def test_a_readonly_store_while_its_topic_is_removed_and_made_again(writer):
    with MessageStore.open(writer.path, readonly=True) as reader:
        writer.delete_topics("T")
        writer.put("T", b"another", wait=True)
        assert writer.wait_dispatched(10)
        assert b"another" not in {bytes(m.body) for m in reader.scan("T", 0)}
        reader.get("T", 0, COUNT - 1)


@pytest.mark.parametrize("name", ["os.scandir", "rmq_store.services.integrity.verification.load_queues"])
def test_verify_while_files_go(writer, after, name):
    after(name, lambda: writer.clean(0, pace_ms=0))
    assert [f for f in verify(writer.path) if f.severity != "note"] == []


def test_scrub_while_files_go(writer, after):
    after("rmq_store.services.integrity.scrubbing._resume", lambda: writer.clean(0, pace_ms=0))
    assert scrub(writer.path, bytes_per_s=None).findings == []


@pytest.mark.parametrize("name", ["services.integrity.verification.removed_queues",
                                  "services.integrity.verification.load_queues"])
def test_verify_while_messages_come(writer, after, name):
    """Log, ends of queues and index are of different moments: what came between them is not lost."""
    for queue_id in range(20):
        writer.put("Q", b"first", queue_id=queue_id)
    assert writer.wait_dispatched(10)

    def more():
        for n in range(200):
            writer.put("Q", b"more", queue_id=n % 20, keys=f"q{n}")
        assert writer.wait_dispatched(10)

    after(f"rmq_store.{name}", more)
    assert [f for f in verify(writer.path) if f.severity != "note"] == []


def test_what_is_wrong_is_found_beside_a_writer(writer):
    """The second look does not make it blind."""
    with open(f"{writer.path}/consumequeue/T/0/{0:020d}", "r+b") as file:
        file.seek(3)
        file.write(b"\x7f")
    file = sorted(os.listdir(f"{writer.path}/commitlog"))[0]
    with open(f"{writer.path}/commitlog/{file}", "r+b") as log:
        log.seek(120)
        log.write(b"\xff")
    kinds = {f.kind for f in verify(writer.path)}
    assert {"body_crc", "queue_other"} <= kinds


def test_a_split_of_a_file_that_went_has_no_rows(writer, tmp_path):
    options = ReadOptions.parse({"path": writer.path})
    pieces = [piece for part in plan(options) for piece in part]
    queue = f"{writer.path}/consumequeue/T/0/{0:020d}"
    first = log_files(writer.path)[0]
    writer.clean(0, pace_ms=0)
    there = [open_if_there(piece, options) for piece in pieces]
    assert there[0] is None and there[-1] is not None
    for split in there:
        if split is not None:
            split.close()
    assert queue_columns(queue, 0, 10) is None and record_time(first.path, 0) is None and first.first_time() is None
    with pytest.raises(FileNotFoundError):      # elsewhere nothing of it is there at all
        queue_columns(queue.replace(writer.path, str(tmp_path / "none")), 0, 10)


def test_repair_changes_no_byte_under_a_map(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **SIZES) as store:
        for n in range(COUNT):
            store.put("T", b"%d" % n * 200)
    file = sorted((root / "commitlog").iterdir())[0]
    with file.open("r+b") as f:
        f.seek(1000)
        f.write(b"\xff" * 10)
        seen = mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    before, about = bytes(seen), file.stat()
    result = repair(root, dry_run=False, open_store=MessageStore.open)
    assert "bridge" in {step.kind for step in result.steps} and result.left == []
    assert bytes(seen) == before != file.read_bytes()
    assert file.stat().st_mode == about.st_mode
    seen.close()
    with MessageStore.open(root, readonly=True) as store:
        assert len(list(store.scan("T", 0))) == COUNT


def test_a_copy_with_other_bytes_is_of_the_same_age(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    with old.open("wb") as f:
        f.write(b"begin")
        f.truncate(20 << 20)
        f.seek(12 << 20)
        f.write(b"middle")
    os.utime(old, ns=(10**18, 10**18))
    copy_with(IoTable(), str(old), str(new), [(5, b"changed"), ((20 << 20) - 1, b"x")])
    data = bytearray(old.read_bytes())
    data[5:12], data[-1:] = b"changed", b"x"
    assert new.read_bytes() == data and new.stat().st_mtime_ns == 10**18
    probe = ProbeIo()
    probe.fail("fsync", 1, errno.EIO)
    with pytest.raises(OSError):
        copy_with(probe, str(old), str(tmp_path / "none"), [])
    assert not (tmp_path / "none").exists()


def test_a_store_that_is_held_while_another_process_cleans(tmp_path):
    """It finds its queues shorter, by time, too, and calls nothing damaged."""
    options = {"segment_size_bytes": 1 << 15, "consumequeue_file_size_bytes": 100}
    with MessageStore.open(tmp_path / "s", **options) as writer:
        for _ in range(300):
            writer.put("T", bytes(1000))
        writer.wait_dispatched(30)
        writer.flush()
        with MessageStore.open(tmp_path / "s", readonly=True) as held:
            writer.clean(0, files_max=100, pace_ms=0)
            low, end = writer.min_offset("T", 0), writer.max_offset("T", 0)
            assert low > 200
            assert held.offset_by_time("T", 0, 1 << 42) == writer.offset_by_time("T", 0, 1 << 42) == end
            assert held.check_self() == []
