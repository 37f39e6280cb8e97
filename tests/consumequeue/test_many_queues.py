"""What a store with many queues costs, in calls: so many a queue, whatever their number, none for those nobody asks about; and
that what is done for many side by side is done for each.
"""
import errno
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from rmq_store import MessageStore, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.queues.consumequeue import loader
from tests.images import take_image

MANY = 1500                     # more than one thread's share
CRASHED = 700
SMALL = {"segment_size_bytes": 1 << 20, "consumequeue_file_size_bytes": 4000, "index_slots": 100, "index_entries_max": 400}
FILE = 6_000_000                # as a broker has them: sparse


def name(n):
    return b"T%04d" % n


def fill(table_at):
    """A directory of MANY queues with one entry each: (the table that made it, its probe)."""
    io = ProbeIo(keep_bytes=False)
    table = table_at(file_size=FILE, io=io)
    for n in range(MANY):
        table.put(name(n), 0, n * 100, 100, n, 1, 0)
    table.publish()
    table.sync()
    return table, io


def counted(io, step):
    before = io.counts()
    step()
    return {kind: n - before.get(kind, 0) for kind, n in io.counts().items() if n != before.get(kind, 0)}


def test_the_end_of_a_queue_with_few_entries_takes_one_read(table_at):
    fill(table_at)
    io = ProbeIo(keep_bytes=False)
    table = table_at(file_size=FILE, io=io, fd_max=16)
    calls = counted(io, lambda: table.recover(False))
    assert {kind: calls[kind] / MANY for kind in ("open", "pread", "next_data")} == {"open": 1, "pread": 1, "next_data": 1}
    assert calls["open"] - 16 <= calls["close"] <= calls["open"] and len(calls) == 4
    assert [table.offsets(name(n), 0) for n in range(MANY)] == [(0, 1, 1)] * MANY


@pytest.mark.parametrize("entries", [1, 203, 204, 205, 206, 700])
@pytest.mark.parametrize("copied", [False, True])
def test_ends_are_the_same_with_and_without_holes(table_at, tmp_path, entries, copied):
    """Around the end of the first page, and in a file that was copied without its holes."""
    table = table_at(file_size=40_000)
    for n in range(entries):
        table.put(b"T", 0, n * 100, 100, n, 1, n)
    table.publish()
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    if copied:
        file.write_bytes(file.read_bytes())
    table = table_at(file_size=40_000)
    assert table.recover(False) == entries * 100
    assert table.offsets(b"T", 0) == (0, entries, entries)


def test_plain_topics_are_not_listed_name_by_name(table_at, tmp_path, monkeypatch):
    fill(table_at)
    (tmp_path / "consumequeue" / "T0007" / "0" / "notes").write_bytes(b"")
    (tmp_path / "consumequeue" / "T0011" / "elsewhere").symlink_to(tmp_path / "consumequeue" / "T0012" / "0")
    listed = []
    entries = loader._entries
    monkeypatch.setattr(loader, "_entries", lambda path: listed.append(path) or entries(path))
    assert sorted(table_at(file_size=FILE).queues()) == [(name(n), 0) for n in range(MANY)]
    base = bytes(tmp_path / "consumequeue")
    assert sorted(listed) == [base + b"/T0007", base + b"/T0007/0", base + b"/T0011", base + b"/T0011/0"]


def test_a_queue_that_cannot_be_read_is_named(table_at, tmp_path):
    fill(table_at)
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20) as store:
        store.put("T", b"")
    (tmp_path / "s" / "consumequeue" / "T").rename(tmp_path / "s" / "T")
    (tmp_path / "s" / "consumequeue").rmdir()
    (tmp_path / "consumequeue").rename(tmp_path / "s" / "consumequeue")
    named = set()
    for _ in range(5):                  # of several always the same one, as if they were opened one by one
        io = ProbeIo(keep_bytes=False)
        for n in (1400, 700, 701):
            io.fail("open", errno=errno.EIO, path=f"/T{n:04d}/", sticky=True)
        with pytest.raises(OSError) as caught:
            MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20, readonly=True, _io=io)
        assert caught.value.errno == errno.EIO
        named.add(caught.value.filename)
    assert named in [{str(tmp_path / "s" / "consumequeue" / f"T{n:04d}" / "0")} for n in (1400, 700, 701)]


def test_a_new_queue_takes_three_syncs_and_their_directory_one(table_at):
    table, io = fill(table_at)
    calls = [c for c in io.trace() if c.kind in ("fdatasync", "sync_dir") and "/.alloc/" not in c.path]
    paths = [c.path for c in calls]
    assert paths.count(table.dir) == 1 and len(paths) == len(set(paths)) == 3 * MANY + 2
    order = {path: n for n, path in enumerate(paths)}
    for n in range(MANY):
        topic = f"{table.dir}/{name(n).decode()}"
        assert order[f"{topic}/0/{0:020d}"] < order[f"{topic}/0"] < order[topic] < order[table.dir]
    assert counted(io, table.sync) == {}


@pytest.mark.parametrize("count, early", [(100, 0), (MANY, MANY)])
def test_new_queues_wait_for_two_pages_only_where_they_are_few(table_at, count, early):
    """With many, closing would have to sync all of them at once."""
    io = ProbeIo(keep_bytes=False)
    table = table_at(file_size=FILE, io=io)
    for n in range(count):
        table.put(name(n), 0, n * 100, 100, n, 1, 0)
    table.publish()
    assert counted(io, lambda: table.sync(2)).get("fdatasync", 0) == early
    for n in range(count):              # no longer new: as any other
        table.put(name(n), 0, (count + n) * 100, 100, n, 1, 1)
    table.publish()
    assert counted(io, lambda: table.sync(2)).get("fdatasync", 0) == 0
    assert counted(io, table.sync)["fdatasync"] == count


@pytest.mark.parametrize("nth", [1, 700, MANY])
def test_a_failed_sync_among_many_is_final(table_at, nth):
    io = ProbeIo(keep_bytes=False)
    table = table_at(file_size=FILE, io=io)
    for n in range(MANY):
        table.put(name(n), 0, n * 100, 100, n, 1, 0)
    table.publish()
    io.fail("fdatasync", nth, errno.EIO)
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            table.sync()
        assert caught.value.errno == errno.EIO
    assert not [c for c in io.trace() if c.kind == "sync_dir" and c.path == table.dir]
    calls = io.counts()
    with pytest.raises(OSError):
        table.sync()
    assert io.counts() == calls


def test_first_files_are_ready_where_many_queues_are_made(tmp_path):
    """Each on the device before it has its name; those nobody took are gone behind close()."""
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, segment_size_bytes=1 << 20, index_enabled=False) as store:
        n = 0
        while sum(".next." in c.path for c in io.trace() if c.kind == "rename") < 100:
            assert n < 20_000
            for _ in range(50):
                store.put(f"T{n}", b"")
                n += 1
            store.wait_dispatched()
    ready = {c.path for c in io.trace() if c.kind == "rename" and "/consumequeue.next." in c.path}
    steps = {}
    for c in io.trace():
        if c.path in ready and c.kind in ("ftruncate", "fdatasync", "rename"):
            steps.setdefault(c.path, []).append(c.kind)
    assert set(map(tuple, steps.values())) == {("ftruncate", "fdatasync", "rename")}
    assert not list((tmp_path / "s" / ".alloc").iterdir())
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20, readonly=True, index_enabled=False) as store:
        assert store.topics() == sorted(f"T{i}" for i in range(n))


@pytest.mark.parametrize("killed_at", [None, 500, 1800, 4000])
def test_after_a_crash_every_queue_has_its_message(tmp_path, killed_at):
    """And after one in the recovery from it: while directories are synced, entries taken out, files made again."""
    with MessageStore.open(tmp_path / "live", **SMALL) as store:
        for n in range(CRASHED):
            store.put(f"T{n}", b"%d" % n)
        store.wait_dispatched()
        store.flush()
        take_image(tmp_path / "live", tmp_path / "s")
    if killed_at is not None:
        io = ProbeIo(keep_bytes=False)
        io.freeze("mutate|sync", killed_at)
        with suppress(OSError):         # of a process that is dead: what it made is not there
            MessageStore.open(tmp_path / "s", **SMALL, _io=io).close()
        assert io.frozen
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert store.stats()["recovered"]
        for n in range(CRASHED):
            assert [bytes(m.body) for m in store.get(f"T{n}", 0, 0)] == [b"%d" % n]
        assert store.put("T7", b"").queue_offset == 1
    assert not list((tmp_path / "s" / ".alloc").iterdir())
    assert [f for f in verify(tmp_path / "s") if f.severity != "note"] == []


def test_a_few_queues_make_nothing_ahead(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, segment_size_bytes=1 << 20) as store:
        for n in range(15):
            store.put(f"T{n}", b"")
            store.wait_dispatched()
    assert not [c.path for c in io.trace() if c.path and "/consumequeue.next." in c.path]


@pytest.mark.parametrize("seed", range(4))
def test_the_queues_of_a_topic(table_at, tmp_path, seed):
    """Against a model, while the directory of queues grows; and nobody lists all of them."""
    random.seed(seed)
    model = {}
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20, consumequeue_file_size_bytes=200) as store:
        store._queue_list = None        # would be called in vain
        for _ in range(30):
            for _ in range(random.randrange(1, 60)):
                topic, queue_id = f"T{random.randrange(120)}", random.randrange(6)
                store.put(topic, b"", queue_id=queue_id)
                model.setdefault(topic, {}).setdefault(queue_id, 0)
                model[topic][queue_id] += 1
            store.wait_dispatched()
            for topic in random.sample(sorted(model), min(len(model), 10)):
                assert store.queues(topic) == sorted(model[topic])
        assert store.queues("nobody's") == []
        rows = store._queue_rows()
        assert [row[:4] for row in rows] == [(t, q, 0, model[t][q]) for t in sorted(model) for q in sorted(model[t])]
        assert rows == [row for topic in sorted(model) for row in store._queue_rows(topic)]
        assert all(row[4] == store.earliest_time(row[0], row[1]) for row in rows)
        assert store._queue_total() == len(rows)


@pytest.mark.parametrize(("options", "several"), [
    ({}, True), ({"recoverConcurrently": False}, False), ({"recoverThreadPoolNums": 1}, False),
    ({"recoverThreadPoolNums": 32}, True)])
def test_how_many_threads_look_for_ends(tmp_path, options, several):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for n in range(CRASHED):
            store.put(f"T{n}", b"")
        assert store.wait_dispatched(30)
    io = ProbeIo(keep_bytes=False)
    io.gate("pread", tmp_path / "s" / "consumequeue")
    opened = []
    thread = threading.Thread(target=lambda: opened.append(MessageStore.open(tmp_path / "s", _io=io, **SMALL, **options)))
    thread.start()
    io.wait_standing(2 if several else 1)
    threads = [call.thread for call in io.standing()]
    assert len(set(threads)) == len(threads)
    if not several:         # the thread that opens stands at the gate, and there is no other
        assert threads == [thread.native_id]
        assert not any("rmq-sweep" in (task / "comm").read_text() for task in Path("/proc/self/task").iterdir())
    io.ungate()
    thread.join()
    with opened[0] as store:
        assert all(store.max_offset(f"T{n}", 0) == 1 for n in range(CRASHED))
