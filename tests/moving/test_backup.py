"""Backups: all that was put before, whole or not there, of stores that are written, cleaned, damaged; earlier ones stay."""
import itertools
import os
import shutil
import subprocess
import sys
import threading
from errno import ENOSPC
from pathlib import Path

import pytest

import rmq_store
from rmq_store import MessageStore, backup, check_backup, copy_messages, errors, list_backups, restore, verify
from rmq_store.base.io._io import IoTable, ProbeIo
from rmq_store.services.backup import image
from rmq_store.services.backup.content import fingerprint, wrong_files
from tests import golden_store
from tests.integrity.test_golden_silent import content
from tests.moving.conftest import SMALL, got, rows

WHOLE = [name for name in golden_store.cases() if not name.endswith(("shortfile", "torncrc"))]


def quiet(root):
    return [f for f in verify(root) if f.severity != "note"]


def fill(store, count, what=b"m"):
    for i in range(count):
        store.put("T", what + b" %d" % i * 5, queue_id=i % 3, keys=f"k{i}")


def names(directory):
    return [os.path.basename(b.path) for b in list_backups(directory)]


def sound(directory):
    """Every backup is as it was written, and a store without a fault."""
    for info in list_backups(directory):
        assert check_backup(directory, os.path.basename(info.path)) == [] and quiet(info.path) == []


def used(directory):
    """Bytes that the files of a directory take."""
    return sum(os.stat(os.path.join(place, name)).st_blocks * 512 for place, _, found in os.walk(directory) for name in found)


# ---- what is in it

@pytest.mark.parametrize("options", [{}, {"write_path": "pool"}, {"write_path": "pool", "flush_mode": "sync"},
                                     {"write_path": "pool", "flush_backend": "fdatasync"}], ids=str)
def test_while_the_store_is_written(tmp_path, options):
    """Threads put all the time; each backup has all that was put before it, and of each thread a beginning."""
    stop, counts, turns = threading.Event(), [0, 0], threading.Semaphore(0)

    def producer(which):
        while not stop.is_set():
            if counts[which] % 1000 == 0:       # at full speed, and not for ever
                turns.acquire()
            store.put("T", b"%d" % counts[which] * 20, queue_id=which, keys=f"k{counts[which]}")
            counts[which] += 1

    with MessageStore.open(tmp_path / "s", **SMALL | {"segment_size_bytes": 1 << 20}, **options) as store:
        threads = [threading.Thread(target=producer, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        before = []
        try:
            for _ in range(4):
                turns.release(10)
                put = list(counts)
                before.append((store.backup(tmp_path / "b"), put))
        finally:
            stop.set()
            turns.release(1000)
            for thread in threads:
                thread.join()
    for info, put in before:
        begun = 0
        for which in range(2):
            found = got(info.path, "T", which)
            begun += bool(found)
            assert len(found) >= put[which] and found == [b"%d" % i * 20 for i in range(len(found))]
        with MessageStore.open(info.path, readonly=True) as copy:
            assert not copy.needs_recovery and copy.max_log_offset == info.end
            assert len(copy.query_key("T", "k0")) == begun
    sound(tmp_path / "b")


def test_a_store_that_another_process_has_open(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"there\n"
        infos = []
        for _ in range(3):
            infos.append(backup(tmp_path / "s", tmp_path / "b"))
            child.stdin.write(b"more\n")
            child.stdin.flush()
            assert child.stdout.readline() == b"there\n"
        assert [i.end for i in infos] == sorted({i.end for i in infos})
    finally:
        child.communicate()
    for info in infos:
        found = got(info.path, "T")
        assert len(found) >= 2000 and found == [b"%d" % i * 20 for i in range(len(found))]
    sound(tmp_path / "b")


HOLDER = """
import sys, select
from rmq_store import MessageStore
store = MessageStore.open(sys.argv[1], segment_size_bytes=1 << 16, index_slots=50, index_entries_max=400, write_path="pool")
i, told = 0, 2000
while True:
    store.put("T", b"%d" % i * 20, keys=f"k{i}")
    i += 1
    if i == told:
        store.flush()
        print("there", flush=True)
    elif i > told and select.select([sys.stdin], [], [], 0.001)[0]:
        if not sys.stdin.readline():
            break
        told = i + 100
store.close()
"""


def test_groups_delays_and_offsets_are_in_it(mixed, tmp_path):
    before = content(mixed)
    info = backup(mixed, tmp_path / "b")
    assert content(mixed) == before
    restore(tmp_path / "b", tmp_path / "r")
    for root in (info.path, tmp_path / "r"):
        assert rows(root) == rows(mixed)
        with MessageStore.open(mixed, readonly=True) as old, MessageStore.open(root, readonly=True) as new:
            assert new.offsets.table() == old.offsets.table() != {} and new.delay_levels() == old.delay_levels()
            assert [m.msg_id for m in new.scan()] == [m.msg_id for m in old.scan()]
    with MessageStore.open(tmp_path / "r", _services=False) as store:
        assert not store.needs_recovery
        store.put("T", b"goes on")
    assert check_backup(tmp_path / "b") == []


@pytest.mark.parametrize("case", golden_store.sampled(WHOLE))
def test_stores_of_rocketmq(golden, tmp_path, case):
    source = golden(case)
    before = content(source.store)
    info = backup(source.store, tmp_path / "b", compat=source.compat)
    assert content(source.store) == before
    assert rows(info.path) == rows(source.store)
    assert quiet(info.path) == [] and check_backup(tmp_path / "b") == []


def test_a_copy_goes_on_into_a_restored_target(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 100)
    copy_messages(tmp_path / "s", tmp_path / "t", **SMALL)
    backup(tmp_path / "t", tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r")
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 10, b"more")
    assert copy_messages(tmp_path / "s", tmp_path / "r").copied == 10
    assert rows(tmp_path / "r") == rows(tmp_path / "s")


def test_queues_whose_messages_are_all_deleted_keep_their_offsets(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(10):
            store.put("Idle", b"%d" % i)
        fill(store, 3000)
        store.flush()
        store.wait_dispatched(10)
        assert store.clean(0, pace_ms=0).log_files > 2
        info = store.backup(tmp_path / "b")
        bounds = [(t, q, store.min_offset(t, q), store.max_offset(t, q)) for t in store.topics() for q in store.queues(t)]
    assert ("Idle", 0, 10, 10) in bounds
    with MessageStore.open(info.path, readonly=True) as copy:
        assert [(t, q, copy.min_offset(t, q), copy.max_offset(t, q)) for t in copy.topics() for q in copy.queues(t)] == bounds


def test_an_empty_store_and_one_that_is_exactly_full(tmp_path):
    with MessageStore.open(tmp_path / "empty", **SMALL) as store:
        assert store.backup(tmp_path / "b").end == 0
    backup(tmp_path / "empty", tmp_path / "c")         # of the closed store: its log has no file
    for made, target in (("b", "r"), ("c", "q")):
        restore(tmp_path / made, tmp_path / target)
        with MessageStore.open(tmp_path / target, **SMALL) as store:
            assert store.put("T", b"x").queue_offset == 0


# ---- the next one

def test_only_what_is_new_is_copied(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 3000)
        first = store.backup(tmp_path / "b")
        second = store.backup(tmp_path / "b")
        fill(store, 1000, b"more")
        third = store.backup(tmp_path / "b")
    assert first.linked_bytes == 0 and second.linked_bytes == (first.end >> 16) << 16 <= third.linked_bytes
    for name in sorted(os.listdir(Path(first.path) / "commitlog"))[:-1]:
        assert len({os.stat(Path(b.path) / "commitlog" / name).st_ino for b in (first, second, third)}) == 1
        assert os.stat(tmp_path / "s" / "commitlog" / name).st_nlink == 1      # never one file with the source's
    assert names(tmp_path / "b") == [os.path.basename(b.path) for b in (first, second, third)]
    sound(tmp_path / "b")
    shutil.rmtree(first.path)       # any may be deleted
    sound(tmp_path / "b")
    assert len(rows(third.path)) == 4000


def test_where_there_are_no_links_all_is_copied(tmp_path, monkeypatch):
    """FAT has none, and a kernel refuses links to another user's files."""
    def refuse(*names):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 1500)
        store.backup(tmp_path / "b")
        made = store.backup(tmp_path / "b")
    assert made.linked_bytes == 0 and rows(made.path) == rows(tmp_path / "s")
    sound(tmp_path / "b")


def test_one_that_was_written_to_is_no_base(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 2000)
        first = store.backup(tmp_path / "b")
        victim = Path(first.path) / "commitlog" / f"{0:020d}"
        with victim.open("r+b") as file:
            file.write(b"rot")
        second = store.backup(tmp_path / "b")
        assert second.linked_bytes == (1 << 16) * (len(os.listdir(Path(first.path) / "commitlog")) - 2)
    assert [f.path for f in check_backup(tmp_path / "b", os.path.basename(first.path))] == [str(victim)]
    assert check_backup(tmp_path / "b") == [] and len(rows(second.path)) == 2000


def test_a_rotten_one_is_not_written_to_and_its_file_is_copied_again(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 3000)
        first = store.backup(tmp_path / "b")
        victim = sorted((Path(first.path) / "commitlog").iterdir())[1]
        about, rotten = victim.stat(), bytearray(victim.read_bytes())
        rotten[30000:30900] = b"?" * 900
        victim.write_bytes(rotten)
        os.utime(victim, ns=(about.st_atime_ns, about.st_mtime_ns))
        fill(store, 10, b"more")
        second = store.backup(tmp_path / "b")
        assert victim.read_bytes() == rotten and victim.stat().st_mtime_ns == about.st_mtime_ns
        assert second.linked_bytes > 0 and check_backup(tmp_path / "b") == []
    assert rows(second.path) == rows(tmp_path / "s") and quiet(second.path) == []
    assert [f.path for f in check_backup(tmp_path / "b", os.path.basename(first.path))] == [str(victim)]


def test_files_of_a_store_that_was_made_anew_are_not_taken_for_the_old_ones(tmp_path):
    for what in (b"old", b"new"):
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        with MessageStore.open(tmp_path / "s", **SMALL) as store:
            fill(store, 2000, what)
            info = store.backup(tmp_path / "b")
        assert rows(info.path)[0][2] == what + b" 0" * 5 or rows(info.path)[0][2].startswith(what)
    sound(tmp_path / "b")


# ---- failures

@pytest.mark.parametrize(("step", "least"), [(41, 3), pytest.param(7, 20, marks=pytest.mark.slow)])
def test_killed_at_every_call(tmp_path, memory_disk, step, least):
    """Whichever call is the last one: the earlier backup is what it was, and the next one is made."""
    with MessageStore.open(memory_disk / "s", **SMALL) as store:
        fill(store, 500)
        store.backup(memory_disk / "b")
        fill(store, 800, b"more")
        first = content(memory_disk / "b")
        died = 0
        for nth in itertools.count(1, step):
            to = memory_disk / f"b{nth}"
            shutil.copytree(memory_disk / "b", to)
            io = ProbeIo(keep_bytes=False)
            io.freeze("mutate", nth)
            try:
                backup(memory_disk / "s", to, _io=io)
            except (errors.RmqStoreError, OSError, BufferError):
                pass
            if not io.frozen:
                break
            died += 1
            there = content(to)
            assert all(there[k] == v for k, v in first.items()), nth
            assert len(names(to)) in (1, 2)
            sound(to)
            made = backup(memory_disk / "s", to)
            assert len(rows(made.path)) == 1300 and not os.path.exists(to / ".partial")
            sound(to)
            shutil.rmtree(to)
    assert died >= least


@pytest.mark.parametrize("kind", ["pwrite", "ftruncate", "mkdir", "fsync", "rename", "open"])
def test_a_full_disk(tmp_path, kind):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 500)
        store.backup(tmp_path / "b")
        before = content(tmp_path / "b")
        for nth in (1, 2, 5):
            io = ProbeIo(keep_bytes=False)
            io.fail(kind, nth, ENOSPC, tmp_path / "b", sticky=True)
            with pytest.raises(errors.DiskFull, match="earlier backups are whole"):
                backup(tmp_path / "s", tmp_path / "b", _io=io)
            assert content(tmp_path / "b") == before
        store.backup(tmp_path / "b")
    sound(tmp_path / "b")


def test_cleaned_while_it_is_copied(tmp_path, monkeypatch):
    copied = image.copy_file
    for nth in range(1, 8):
        count = itertools.count(1)
        with MessageStore.open(tmp_path / f"s{nth}", **SMALL) as store:

            def slow(io, source, target, *more, store=store, nth=nth, count=count):
                if "commitlog" in source and next(count) == nth:
                    store.clean(0, files_max=3, pace_ms=0)
                return copied(io, source, target, *more)

            fill(store, 3000)
            store.flush()
            store.wait_dispatched(10)
            last = got(tmp_path / f"s{nth}", "T", 0)[-1]
            monkeypatch.setattr(image, "copy_file", slow)
            info = store.backup(tmp_path / f"b{nth}")
            monkeypatch.setattr(image, "copy_file", copied)
            assert got(info.path, "T", 0)[-1] == last
            assert info.begin in (0, 3 << 16)
        sound(tmp_path / f"b{nth}")


def test_queues_cleaned_while_they_are_copied(tmp_path, monkeypatch):
    copied, count = image.copy_file, itertools.count(1)
    with MessageStore.open(tmp_path / "s", **SMALL) as store:

        def slow(io, source, target, *more):
            if "consumequeue" in source and next(count) == 3:
                store.clean(0, files_max=3, pace_ms=0)
            return copied(io, source, target, *more)

        fill(store, 3000)
        store.flush()
        store.wait_dispatched(10)
        monkeypatch.setattr(image, "copy_file", slow)
        info = store.backup(tmp_path / "b")
        assert got(info.path, "T", 1) == got(tmp_path / "s", "T", 1)
    sound(tmp_path / "b")


def test_a_half_written_end_is_left_out(tmp_path):
    """As a crash leaves it: the last record is there by its length, and its body is not."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 100)
        last = store.put("T", b"torn" * 50)
    (tmp_path / "s" / "abort").touch()
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(last.offset + 150)
        file.write(b"\xff" * 50)
    before = content(tmp_path / "s")
    info = backup(tmp_path / "s", tmp_path / "b")
    assert info.end == last.offset and len(rows(info.path)) == 100 and content(tmp_path / "s") == before
    assert not (Path(info.path) / ".salvage").exists()
    sound(tmp_path / "b")


def test_a_damaged_store_is_refused(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 1000)
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 300)
    with pytest.raises(errors.CorruptionError) as caught:
        backup(tmp_path / "s", tmp_path / "b")
    assert "repair" in "".join(caught.value.__notes__)
    assert names(tmp_path / "b") == []


def test_where_it_may_not_go(tmp_path):
    for name in ("s", "other"):
        with MessageStore.open(tmp_path / name, **SMALL) as store:
            store.put("T", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    before = content(tmp_path / "s"), content(tmp_path / "other")
    for place in ("s", "s/backups", "s/commitlog/b", "link/b", "."):
        with pytest.raises(errors.ConfigError, match="beside it"):
            backup(tmp_path / "s", tmp_path / place)
    with pytest.raises(errors.StoreStateError, match="holds something else"):
        backup(tmp_path / "s", tmp_path / "other")
    backup(tmp_path / "other", tmp_path / "b")
    with pytest.raises(errors.StoreStateError, match="holds backups of"):
        backup(tmp_path / "s", tmp_path / "b")
    assert (content(tmp_path / "s"), content(tmp_path / "other")) == before
    assert not (tmp_path / "s" / "backups").exists()


def test_two_at_a_time(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")

        def again(size):
            with pytest.raises(errors.StoreStateError, match="being made"):
                backup(tmp_path / "s", tmp_path / "b")
            seen.append(size)

        seen = []
        store.backup(tmp_path / "b", progress=again)
    assert seen and len(names(tmp_path / "b")) == 1


def test_two_that_are_the_first(tmp_path, monkeypatch):
    """The other one begins between our marker and our lock."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 100)
    real, flock = rmq_store.services.backup.backup.fcntl.flock, []

    def late(fd, how):
        real(fd, how)
        if not flock:       # whoever found no marker puts its own
            flock.append(fd)
            marker = tmp_path / "b" / ".rmqstore-backups"
            (tmp_path / "other").write_bytes(marker.read_bytes())
            (tmp_path / "other").rename(marker)

    monkeypatch.setattr(rmq_store.services.backup.backup.fcntl, "flock", late)
    with pytest.raises(errors.StoreStateError, match="being made"):
        backup(tmp_path / "s", tmp_path / "b")
    backup(tmp_path / "s", tmp_path / "b")
    assert len(names(tmp_path / "b")) == 1


def test_a_hole_stays_a_hole(tmp_path):
    """A queue with one message is a file of 6 MB with one block of data: so it is in the backup, and in what it restores."""
    root, to, back = tmp_path / "store", tmp_path / "backups", tmp_path / "back"
    with MessageStore.open(root, segment_size_bytes=1 << 16) as store:
        for i in range(20):
            store.put(f"T{i}", b"x")
    sizes = [used(root / "consumequeue")]
    info = backup(root, to)
    sizes.append(used(os.path.join(info.path, "consumequeue")))
    restore(to, back)
    sizes.append(used(back / "consumequeue"))
    assert os.path.getsize(back / "consumequeue" / "T0" / "0" / ("0" * 20)) > 1 << 20
    assert max(sizes) < 20 * (128 << 10), sizes
    assert not wrong_files(IoTable(), info.path)


def test_the_checksum_of_a_file_is_the_same_with_holes_and_with_zeros(tmp_path):
    data = bytearray(300 << 10)
    data[5], data[70_000:70_009], data[-1] = 1, b"something", 2
    (tmp_path / "full").write_bytes(data)
    with open(tmp_path / "holes", "wb") as file:
        for at in (5, 70_000, len(data) - 9):
            file.seek(at)
            file.write(data[at:at + 9])
    assert fingerprint(IoTable(), str(tmp_path / "full")) == fingerprint(IoTable(), str(tmp_path / "holes"))
