"""Entries on their way in: where upstream puts them, and what a failure leaves behind (nothing: the put is repeated)."""
import errno
import os
import struct

import pytest

from rmq_store.base.io._io import ProbeIo
from tests.consumequeue.queue_logs import entries, files

FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def unit(i):
    return struct.pack(">qiq", i * 100, 100, i)


def put(table, first, last, topic=b"T", queue_id=0):
    """Entries `first` up to `last`: number i leads to the record at 100 * i."""
    for i in range(first, last):
        table.put(topic, queue_id, i * 100, 100, i, 1, i)


def name(start):
    return f"T/0/{start:020d}"


def test_files_follow_each_other(table_at, tmp_path):
    table = table_at()
    put(table, 0, 25)
    table.publish()
    assert table.offsets(b"T", 0)[:2] == (0, 25)
    assert files(tmp_path / "consumequeue") == {
        name(0): b"".join(map(unit, range(10))), name(200): b"".join(map(unit, range(10, 20))),
        name(400): b"".join(map(unit, range(20, 25))) + bytes(100)}
    assert [len(table.read(b"T", 0, at, 100)) for at in (0, 9, 10, 24, 25, 26)] == [10, 1, 10, 1, 0, 0]


def test_nothing_is_seen_before_it_is_published(table_at):
    table = table_at(file_size=6_000_000)
    put(table, 0, 1000)         # several buffers have been written
    assert table.offsets(b"T", 0)[1] == 0
    assert table.read(b"T", 0, 0, 1) == []
    table.publish()
    assert len(entries(table, b"T", 0)) == 1000


@pytest.mark.parametrize("first", [1, 9, 10, 13, 20, 25])
def test_the_first_file_of_a_queue_is_filled_up_to_its_first_entry(table_at, tmp_path, first):
    table = table_at()
    put(table, first, first + 3)
    table.publish()
    start = first // 10 * 10
    data = b"".join(FILLER if i < first else unit(i) for i in range(start, first + 3))
    found = b"".join(files(tmp_path / "consumequeue").values())
    assert found == data + bytes(-len(data) % 200)
    assert min(files(tmp_path / "consumequeue")) == name(start * 20)
    assert table.offsets(b"T", 0)[:2] == (first, first + 3)
    assert entries(table, b"T", 0) == [(i * 100, 100, i) for i in range(first, first + 3)]
    # and it loads again with the same ends
    for thorough in (False, True):
        again = table_at()
        assert again.recover(thorough) == (first + 3) * 100
        assert again.offsets(b"T", 0) == (first, first + 3, first + 3)


def test_fillers_that_a_crash_cut_short_are_completed(table_at, tmp_path):
    path = tmp_path / "consumequeue" / name(200)
    path.parent.mkdir(parents=True)
    path.write_bytes(FILLER * 2 + bytes(160))
    table = table_at()
    assert table.recover(True) == -1
    put(table, 15, 17)
    table.publish()
    assert path.read_bytes() == FILLER * 5 + unit(15) + unit(16) + bytes(60)
    assert table.offsets(b"T", 0)[:2] == (15, 17)
    assert table.gaps == 0


def test_repeated_entries_change_nothing(table_at, tmp_path):
    table = table_at()
    put(table, 0, 7)
    table.publish()
    before = files(tmp_path / "consumequeue")
    put(table, 0, 7)                            # known by their physical offsets
    table.put(b"T", 0, 5000, 100, 3, 1, 6)      # known by its queue offset
    table.publish()
    assert files(tmp_path / "consumequeue") == before
    assert table.offsets(b"T", 0)[1] == 7
    put(table, 7, 8)                            # 800 is below what the refused one had: it must not count
    table.publish()
    assert entries(table, b"T", 0)[-1] == (700, 100, 7)


def test_a_gap_for_which_the_log_has_room_is_filled_and_counted(table_at):
    """Else all that follows would stand one place too early, and readers would pass over it."""
    table = table_at()
    put(table, 0, 3)
    table.put(b"T", 0, 5000, 100, 77, 1, 5)
    table.put(b"T", 0, 6000, 100, 78, 1, 0)     # queue offset 0 is never checked
    table.put(b"T", 0, 7000, 100, 79, 1, 7)
    table.publish()
    assert [tags for _, _, tags in entries(table, b"T", 0)] == [0, 1, 2, 77, 77, 77, 78, 79]
    assert table.gaps == 2


def test_another_gap_is_stored_where_upstream_stores_it_and_counted(table_at):
    table = table_at()
    put(table, 0, 3)
    table.put(b"T", 0, 5000, 100, 77, 1, 500)
    table.publish()
    assert [tags for _, _, tags in entries(table, b"T", 0)] == [0, 1, 2, 77]
    assert table.gaps == 1


@pytest.mark.parametrize(("physical", "size", "cq_offset"), [(-5, 100, 0), (0, 0, 0), (0, -1, 0), (0, 1, -1), (0, 1, 1 << 62)])
def test_entries_that_no_reader_could_find_are_counted_only(table_at, tmp_path, physical, size, cq_offset):
    table = table_at()
    table.put(b"T", 0, physical, size, 1, 1, cq_offset)
    table.publish()
    assert table.gaps == (0 if physical + size <= -1 else 1)
    assert not (tmp_path / "consumequeue").exists()


@pytest.mark.parametrize("topic", [b".", b"..", b"a/b", b"../x", b"a.b", b"a b", b"\xc3\xa4", b""])
def test_no_directory_is_made_for_another_name_than_a_topic(table_at, tmp_path, topic):
    table = table_at()
    with pytest.raises(OSError) as caught:
        table.put(topic, 0, 0, 100, 0, 1, 0)
    assert caught.value.errno == errno.EINVAL
    assert not (tmp_path / "consumequeue").exists()


@pytest.mark.parametrize(("count", "ext_file_size"), [(1100, 0), (600, 100)])
def test_more_queues_than_buffers(table_at, count, ext_file_size):
    table = table_at(fd_max=8, ext_file_size=ext_file_size)
    queues = [(b"%%RETRY%%g%d" % i, i % 3) for i in range(count)]
    for i in range(3):
        for n, (topic, queue_id) in enumerate(queues):
            table.put(topic, queue_id, (i * count + n) * 100, 100, n, 1, i)
    table.publish()
    assert table.open_files <= 8
    assert table.queues() == queues
    for n, (topic, queue_id) in enumerate(queues):
        units = table.read(topic, queue_id, 0, 10)
        assert [(at, size) for at, size, _ in units] == [((i * count + n) * 100, 100) for i in range(3)]
        assert {table.read_ext(topic, queue_id, tags)[0] if ext_file_size else tags for _, _, tags in units} == {n}


def test_a_buffer_that_cannot_be_written_is_not_taken_back(table_at):
    """With one queue holding on to one buffer, the last free one goes to an entry and its ext unit takes all back."""
    io = ProbeIo(keep_bytes=False)
    table = table_at(fd_max=8, ext_file_size=100, io=io)
    io.fail("pwrite", errno=errno.EIO, path="consumequeue/T0/", sticky=True)
    for n in range(1100):
        table.put(b"T%d" % n, 0, n * 100, 100, n, 1, 0)
    with pytest.raises(OSError, match="error"):
        table.publish()
    io.clear()
    table.publish()
    assert [table.offsets(b"T%d" % n, 0)[1] for n in range(1100)] == [1] * 1100


def test_a_file_has_its_length_on_the_device_before_it_has_its_name(table_at, tmp_path):
    io = ProbeIo()
    table = table_at(io=io)
    put(table, 0, 1)
    kinds = [c.kind for c in io.trace() if c.kind in ("ftruncate", "fdatasync", "rename")]
    assert kinds == ["ftruncate", "fdatasync", "rename"]
    assert {c.path for c in io.trace() if c.kind == "ftruncate"} <= {str(tmp_path / ".alloc" / "consumequeue.new"),
                                                                      str(tmp_path / "consumequeue" / name(0))}
    assert os.listdir(tmp_path / ".alloc") == []


@pytest.mark.parametrize("ext_file_size", [0, 100])
@pytest.mark.parametrize("kind", ["open", "ftruncate", "fdatasync", "rename", "mkdir", "pwrite"])
def test_what_failed_can_be_repeated(table_at, tmp_path, kind, ext_file_size):
    """Every call of a kind fails once, one after the other; the dispatcher repeats the put or the publish."""
    io = ProbeIo()
    table = table_at(io=io, ext_file_size=ext_file_size, fd_max=2)
    failures = 0
    for i in range(13, 60):
        io.fail(kind, 1, errno.ENOSPC)
        while True:
            try:
                table.put(b"T", 0, i * 100, 100, i, 1, i)
                table.publish()
                break
            except OSError as error:
                assert error.errno == errno.ENOSPC
                failures += 1
        io.clear()
    assert failures > 0
    assert [(p, s) for p, s, _ in entries(table, b"T", 0)] == [(i * 100, 100) for i in range(13, 60)]
    if ext_file_size:
        units = [table.read_ext(b"T", 0, tags) for _, _, tags in entries(table, b"T", 0)]
        assert units == [(i, 1, b"") for i in range(13, 60)]
    assert table.gaps == 0
    assert os.listdir(tmp_path / ".alloc") == []
    again = table_at(ext_file_size=ext_file_size)
    assert again.recover(True) == 6000
    assert entries(again, b"T", 0) == entries(table, b"T", 0)


@pytest.mark.parametrize("path", ["/consumequeue/", None])
def test_a_full_disk_leaves_too_few_buffers_for_an_entry_and_its_unit(table_at, path):
    """Every buffer but one holds an entry that cannot be written; the next one needs two, and each would take the other's."""
    io = ProbeIo(keep_bytes=False)
    table = table_at(io=io, ext_file_size=100)
    io.fail("pwrite", errno=errno.ENOSPC, path=path, sticky=True)
    done, refused = 0, None
    while refused is None and done < 1100:
        try:
            table.put(b"T%d" % done, 0, done * 100, 100, done, 1, 0)
            done += 1
        except OSError as error:
            refused = error
    assert refused is not None and refused.errno == errno.ENOSPC and done > 500
    io.clear()
    for i in range(done, 1100):
        table.put(b"T%d" % i, 0, i * 100, 100, i, 1, 0)
    table.publish()
    for i in range(1100):
        ((physical, size, tags),) = entries(table, b"T%d" % i, 0)
        assert (physical, size, table.read_ext(b"T%d" % i, 0, tags)) == (i * 100, 100, (i, 1, b""))


def test_short_writes_are_continued(table_at, tmp_path):
    io = ProbeIo()
    io.fail("pwrite", short=True, sticky=True)
    table = table_at(io=io)
    put(table, 0, 25)
    table.publish()
    assert entries(table, b"T", 0) == [(i * 100, 100, i) for i in range(25)]


def test_one_queue_that_cannot_be_written_does_not_hold_up_the_others(table_at):
    io = ProbeIo()
    table = table_at(io=io)
    for topic in (b"A", b"B", b"C"):
        put(table, 0, 3, topic)
    io.fail("pwrite", errno=errno.EIO, path="/B/", sticky=True)
    with pytest.raises(OSError) as caught:
        table.publish()
    assert caught.value.errno == errno.EIO
    assert [table.offsets(topic, 0)[1] for topic in (b"A", b"B", b"C")] == [3, 0, 3]
    io.clear()
    table.publish()
    assert table.offsets(b"B", 0)[1] == 3


def test_a_destroyed_queue_begins_anew(table_at, tmp_path):
    table = table_at(ext_file_size=100)
    put(table, 0, 25)
    table.publish()
    table.destroy(b"T", 0)
    assert files(tmp_path) == {}
    assert os.listdir(tmp_path / "consumequeue" / "T") == []
    assert table.offsets(b"T", 0) == (0, 0, 0)
    put(table, 0, 5)
    table.publish()
    table.sync()
    assert [p for p, _, _ in entries(table, b"T", 0)] == [i * 100 for i in range(5)]
