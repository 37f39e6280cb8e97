"""What the loader takes for a queue, what it leaves alone, and what it refuses."""
import logging
import os
import resource

import pytest

from rmq_store.errors import CorruptionError
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue.loader import load_queues, remove_empty


def file(tmp_path, topic, queue_id, start, size=200, base="consumequeue"):
    path = tmp_path / base / topic / queue_id / f"{start:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def test_queues_are_found(table_at, tmp_path):
    file(tmp_path, "%RETRY%g", "0", 0)
    file(tmp_path, "T", "17", 400)
    file(tmp_path, "T", "17", 600)
    (tmp_path / "consumequeue" / "T" / "3").mkdir()
    table = table_at()
    table.recover()
    assert sorted(table.queues()) == [(b"%RETRY%g", 0), (b"T", 3), (b"T", 17)]
    assert table.offsets(b"T", 17) == (20, 20, 20)
    assert table.offsets(b"T", 3) == (0, 0, 0)


def test_a_store_without_queues(table_at):
    assert table_at().queues() == []


@pytest.mark.parametrize("stray", ["readme", "T/readme", "T/x/00000000000000000000", "T/-1/00000000000000000000",
                                   "T/007/00000000000000000000", "T/4294967296/00000000000000000000", "T/0/notes.txt",
                                   "T/0/0000000000000000000", "T/0/99999999999999999999", "a.b/0/00000000000000000000"])
def test_what_is_no_queue_is_left_alone(table_at, tmp_path, caplog, stray):
    file(tmp_path, "T", "0", 0)
    path = tmp_path / "consumequeue" / stray
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    with caplog.at_level(logging.WARNING, "rmq_store"):
        table = table_at()
    assert table.queues() == [(b"T", 0)]
    (record,) = caplog.records
    assert record.event == "FOREIGN_FILE_SKIPPED" and record.fields["reason"].startswith("it is not ")
    assert path.exists()


@pytest.mark.parametrize("base", ["consumequeue", "consumequeue_ext"])
def test_a_file_of_another_size(table_at, tmp_path, base):
    file(tmp_path, "T", "0", 0)
    wrong = file(tmp_path, "T", "0", 0, size=180, base=base)
    file(tmp_path, "T", "0", 200, base=base)
    with pytest.raises(CorruptionError) as caught:
        table_at(ext_file_size=200)
    assert caught.value.path == str(wrong)
    assert "200 bytes" in str(caught.value) and "180 bytes" in str(caught.value)


def test_an_empty_last_file_is_what_a_crash_leaves(table_at, tmp_path):
    file(tmp_path, "T", "0", 0)
    empty = file(tmp_path, "T", "0", 200, size=0)
    assert table_at(readonly=True).queues() == [(b"T", 0)]
    assert empty.exists()
    table = QueueTableOwner(str(tmp_path / "consumequeue"), tmp_dir=str(tmp_path), file_size=200)
    emptied = load_queues(table)
    assert emptied == [(b"T", 0, os.fsencode(empty))] and table.queues() == [(b"T", 0)]
    assert empty.exists()                       # until the store is marked as open
    remove_empty(table, emptied)
    assert not empty.exists()
    file(tmp_path, "T", "0", 0, size=0)
    file(tmp_path, "T", "0", 200)
    with pytest.raises(CorruptionError):        # not the last one
        table_at()


@pytest.mark.parametrize(("starts", "found"), [((0, 400), 400), ((200, 600), 600), ((100, 300), 100)])
@pytest.mark.parametrize("base", ["consumequeue", "consumequeue_ext"])
def test_files_that_do_not_follow_each_other(table_at, tmp_path, starts, found, base):
    file(tmp_path, "T", "0", 0)
    for start in starts:
        file(tmp_path, "T", "0", start, base=base)
    if base == "consumequeue" and starts[0] > 0:
        os.unlink(tmp_path / base / "T" / "0" / f"{0:020d}")
    with pytest.raises(CorruptionError) as caught:
        table_at(ext_file_size=200)
    assert caught.value.path.endswith(f"{base}/T/0/{found:020d}")


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_queues_need_few_descriptors(table_at, count):
    """Made, loaded, recovered, read and synced with 64 descriptors, under a limit that would stop one more for each queue."""
    queues = [(b"T%d" % (i // 100), i % 100) for i in range(count)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 70, hard))
    try:
        table = table_at(fd_max=64)
        for n, (topic, queue_id) in enumerate(queues):
            table.put(topic, queue_id, n * 100, 100, n, 1, 0)
        table.publish()
        assert table.open_files <= 64
        table = table_at(fd_max=64)
        assert table.recover(True) == count * 100
        assert table.open_files <= 64
        for n, (topic, queue_id) in enumerate(queues):
            assert table.read(topic, queue_id, 0, 1) == [(n * 100, 100, n)]
        table.sync()
        assert table.open_files <= 64
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
