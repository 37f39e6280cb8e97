"""Both ends of a queue: found after any stop, moved without leaving a byte that a later recovery could take for an entry."""
import random
import shutil
import struct

import pytest

from rmq_store.base.io._io import ProbeIo
from tests.consumequeue.queue_logs import entries, files

FILE = 10       # entries


def build(table, count, *, first=0):
    """Entries 0..count: number i leads to the record at 100 * i."""
    for i in range(first, first + count):
        table.put(b"T", 0, i * 100, 100, i, 1, i)
    table.publish()
    table.sync()


def physical(table):
    return [p for p, _, _ in entries(table, b"T", 0)]


def path(tmp_path, start):
    return tmp_path / "consumequeue" / "T" / "0" / f"{start * 20:020d}"


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 20, 30, 31, 47, 50])
@pytest.mark.parametrize("thorough", [False, True])
def test_the_end_is_found(table_at, tmp_path, count, thorough):
    build(table_at(), count)
    before = files(tmp_path)
    table = table_at()
    assert table.recover(thorough) == (count * 100 if count else -1)
    if count:
        assert table.offsets(b"T", 0) == (0, count, count)
        assert table.max_physical_offset(b"T", 0) == count * 100
        assert physical(table) == [i * 100 for i in range(count)]
    assert files(tmp_path) == before


def test_an_empty_file_behind_full_ones_keeps_the_offset(table_at, tmp_path):
    build(table_at(), 20)
    path(tmp_path, 20).write_bytes(bytes(200))
    for thorough in (False, True):
        table = table_at()
        assert table.recover(thorough) == 2000
        assert table.offsets(b"T", 0) == (0, 20, 20)
        assert path(tmp_path, 20).exists() is (not thorough) or not path(tmp_path, 20).exists()
    build(table, 3, first=20)
    assert physical(table) == [i * 100 for i in range(23)]


def test_a_queue_without_entries_keeps_its_offset(table_at, tmp_path):
    path(tmp_path, 30).parent.mkdir(parents=True)
    path(tmp_path, 30).write_bytes(bytes(200))
    for thorough in (False, True):
        table = table_at()
        assert table.recover(thorough) == -1
        assert table.offsets(b"T", 0) == (30, 30, 30)
        table.truncate(100)
        assert table.offsets(b"T", 0) == (30, 30, 30)


def test_entries_behind_a_hole_are_gone_for_good(table_at, tmp_path):
    """A page that never reached the device: what lies behind must not come back when the hole has been filled again."""
    build(table_at(), 28)
    with open(path(tmp_path, 10), "r+b") as f:
        f.seek(4 * 20)
        f.write(bytes(2 * 20))
    table = table_at()
    assert table.recover(True) == 1400
    assert table.offsets(b"T", 0) == (0, 14, 14)
    assert path(tmp_path, 10).read_bytes()[80:] == bytes(120)
    assert not path(tmp_path, 20).exists()
    build(table, 2, first=14)
    again = table_at()
    assert again.recover(True) == 1600
    assert again.offsets(b"T", 0)[1] == 16


@pytest.mark.parametrize("count", [5, 10, 25, 37])
@pytest.mark.parametrize("keep", [0, 1, 5, 9, 10, 11, 20, 24, 25, 30, 36, 37, 40])
def test_truncation(table_at, tmp_path, count, keep):
    build(table_at(), count)
    expected = min(keep, count)
    for thorough in (True, False):
        table = table_at()
        table.recover(thorough)
        table.truncate(keep * 100)
        assert table.offsets(b"T", 0) == (0, expected, expected)
        assert table.max_physical_offset(b"T", 0) == (expected * 100 if expected else -1)
    data = b"".join(struct.pack(">qiq", i * 100, 100, i) for i in range(expected))
    assert b"".join(files(tmp_path / "consumequeue").values()) == data + bytes(-len(data) % 200)
    build(table, 3, first=expected)
    assert physical(table) == [i * 100 for i in range(expected + 3)]


def test_zeros_at_the_start_of_a_file_are_no_entry(table_at, tmp_path):
    """Upstream keeps the first entry of a file even if it is zeros."""
    build(table_at(), 15)
    with open(path(tmp_path, 10), "r+b") as f:
        f.write(bytes(20))
    table = table_at()
    assert table.recover(False) == 1500         # halving does not see the hole
    table.truncate(1400)
    assert table.offsets(b"T", 0) == (0, 10, 10)
    assert table.max_physical_offset(b"T", 0) == 1000
    assert not path(tmp_path, 10).exists()


@pytest.mark.parametrize("ext_file_size", [0, 100])
def test_a_crash_at_any_moment_of_a_truncation(table_at, tmp_path, ext_file_size):
    build(table_at(ext_file_size=ext_file_size), 35)
    shutil.copytree(tmp_path, tmp_path / "image")
    n = 0
    while True:
        n += 1
        shutil.rmtree(tmp_path / "consumequeue")
        shutil.rmtree(tmp_path / "consumequeue_ext", ignore_errors=True)
        for name in ("consumequeue", "consumequeue_ext")[:2 if ext_file_size else 1]:
            shutil.copytree(tmp_path / "image" / name, tmp_path / name)
        io = ProbeIo()
        table = table_at(ext_file_size=ext_file_size, io=io)
        table.recover(True)
        io.freeze("mutate", n)
        table.truncate(1300)
        again = table_at(ext_file_size=ext_file_size)
        assert again.recover(True) <= 3500
        again.truncate(1300)
        assert physical(again) == [i * 100 for i in range(13)]
        if ext_file_size:
            assert [again.read_ext(b"T", 0, tags)[0] for _, _, tags in entries(again, b"T", 0)] == list(range(13))
        if not io.frozen:
            break
    assert n > 3


def test_truncation_takes_ext_units_along(table_at, tmp_path):
    table = table_at(ext_file_size=100)         # four units each
    build(table, 25)
    table.truncate(600)
    found = files(tmp_path / "consumequeue_ext")
    assert sorted(int(n[-20:]) for n in found) == [0, 100]
    build(table, 4, first=6)
    assert [table.read_ext(b"T", 0, tags)[0] for _, _, tags in entries(table, b"T", 0)] == list(range(10))
    table.truncate(0)
    assert files(tmp_path) == {}


def test_readonly_writes_nothing(table_at, tmp_path):
    build(table_at(ext_file_size=100), 25)
    path(tmp_path, 30).write_bytes(bytes(200))
    before = files(tmp_path)
    io = ProbeIo()
    table = table_at(ext_file_size=100, readonly=True, io=io)
    table.recover(True)
    table.truncate(1300)
    table.correct_min(500)
    assert table.offsets(b"T", 0)[:2] == (5, 13)
    assert files(tmp_path) == before
    assert set(io.counts()) <= {"open", "close", "pread", "size", "next_data"}


def test_the_first_valid_entry(table_at):
    rng = random.Random(7)
    table = table_at()
    at, offsets = 0, []
    for i in range(47):
        at += rng.randrange(1, 300)
        offsets.append(at)
        table.put(b"T", 0, at, 1, 0, 1, i)
    table.publish()
    for low in range(0, at, 7):
        # ConsumeQueue.correctMinOffset of 4.9.8, over every file
        table.correct_min(low)
        assert table.offsets(b"T", 0)[0] == next(i for i, o in enumerate(offsets) if o >= low)
    table.correct_min(at + 1)           # 5.x: the queue counts as empty and keeps its offset
    assert table.offsets(b"T", 0)[:2] == (47, 47)
    table.put(b"T", 0, at + 1, 1, 0, 1, 47)
    table.publish()
    assert table.offsets(b"T", 0)[:2] == (47, 48)


def test_ext_files_below_the_first_valid_entry_are_deleted(table_at, tmp_path):
    table = table_at(ext_file_size=100)
    build(table, 25)
    assert len(files(tmp_path / "consumequeue_ext")) == 7
    table.correct_min(1000)             # unit 10 is in the third file; upstream keeps a file that ends just where it begins
    assert sorted(int(n[-20:]) for n in files(tmp_path / "consumequeue_ext"))[0] == 200
    assert [table.read_ext(b"T", 0, tags)[0] for _, _, tags in entries(table, b"T", 0)] == list(range(10, 25))
