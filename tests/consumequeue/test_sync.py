"""What is synced when, and that a failed sync is never taken back."""
import errno

import pytest

from rmq_store.base.io._io import ProbeIo


def put(table, topic, first, last):
    for i in range(first, last):
        table.put(topic, 0, i * 100, 100, i, 1, i)
    table.publish()


def synced(io, start):
    """Names of the files and directories synced since call `start`, relative to the table's parent."""
    return [c.path.partition("/consumequeue")[2] or c.path.rpartition("/")[2]
            for c in io.trace(start) if c.kind in ("fdatasync", "sync_dir")]


def test_only_files_with_new_entries_are_synced(table_at):
    io = ProbeIo()
    table = table_at(io=io)
    put(table, b"A", 0, 25)
    put(table, b"B", 0, 1)
    start = len(io.trace())
    table.sync()
    first = synced(io, start)
    assert {f"/A/0/{n:020d}" for n in (0, 200, 400)} | {f"/B/0/{0:020d}", "/A/0", "/A", "/B/0", "/B"} <= set(first)
    start = len(io.trace())
    table.sync()
    assert synced(io, start) == []
    put(table, b"A", 25, 26)
    start = len(io.trace())
    table.sync()
    assert synced(io, start) == [f"/A/0/{400:020d}"]


def test_the_directories_of_a_new_queue_are_synced_after_its_file(table_at):
    io = ProbeIo()
    table = table_at(io=io)
    put(table, b"A", 0, 1)
    start = len(io.trace())
    table.sync()
    paths = [c.path for c in io.trace(start) if c.kind in ("fdatasync", "sync_dir")]
    base = table.dir
    assert paths == [f"{base}/A/0/{0:020d}", f"{base}/A/0", f"{base}/A", base, f"{base}/.."]


def test_least_pages(table_at):
    io = ProbeIo()
    table = table_at(io=io, file_size=20_000)
    put(table, b"A", 0, 200)
    start = len(io.trace())
    table.sync(2)               # not yet two pages
    assert synced(io, start) == []
    put(table, b"A", 200, 450)
    table.sync(2)
    assert f"/A/0/{0:020d}" in synced(io, start)
    put(table, b"A", 450, 460)
    start = len(io.trace())
    table.sync(2)
    assert synced(io, start) == []
    table.sync(0)               # what waited is not forgotten
    assert synced(io, start) == [f"/A/0/{0:020d}"]
    put(table, b"A", 460, 1001)
    start = len(io.trace())
    table.sync(100)             # a full file is always due
    assert f"/A/0/{0:020d}" in synced(io, start)


@pytest.mark.parametrize("kind", ["fdatasync", "sync_dir", "open"])
def test_a_failed_sync_is_final(table_at, kind):
    io = ProbeIo()
    table = table_at(io=io, fd_max=2)
    for topic in (b"A", b"B", b"C"):
        put(table, topic, 0, 1)
    io.fail(kind, 1, errno.EIO)
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            table.sync()
        assert caught.value.errno == errno.EIO
    calls = io.counts()
    with pytest.raises(OSError):
        table.sync()
    assert io.counts() == calls         # nothing is tried again
    put(table, b"A", 1, 2)              # reading and publishing go on
    assert len(table.read(b"A", 0, 0, 10)) == 2


def test_what_recovery_found_is_synced_with_the_next_sync(table_at):
    table = table_at()
    put(table, b"A", 0, 25)
    io = ProbeIo()
    table = table_at(io=io)
    table.recover(True)
    start = len(io.trace())
    table.sync()
    assert [p for p in synced(io, start) if p.endswith("0" * 2)] == [f"/A/0/{n:020d}" for n in (0, 200, 400)]
