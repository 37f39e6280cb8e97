"""The probe: it spoils exactly the calls it is told to and records all; a freeze is a kill as far as the files can tell."""
import ctypes
import errno
import os
import threading
from pathlib import Path

import pytest

from rmq_store.base.io._io import ProbeIo

EINVAL, EIO, ENOSPC = errno.EINVAL, errno.EIO, errno.ENOSPC


def outcome(call, *args):
    try:
        return call(*args)
    except OSError as e:
        return -e.errno


# ---- rules

def test_the_nth_call_fails_and_is_not_made(probe, open_file):
    fd = open_file(probe)
    probe.fail("pwrite", 3, ENOSPC)
    assert [outcome(probe.pwrite, fd, b"x", i) for i in range(5)] == [1, 1, -ENOSPC, 1, 1]
    assert probe.pread(fd, 9, 0) == b"xx\0xx"
    assert probe.hits == 1


def test_sticky_fails_for_ever_until_cleared(probe, open_file):
    fd = open_file(probe)
    probe.fail("fdatasync", 2, EIO, sticky=True)
    assert [outcome(probe.fdatasync, fd) for _ in range(4)] == [None, -EIO, -EIO, -EIO]
    probe.clear()
    assert outcome(probe.fdatasync, fd) is None and probe.hits == 3


def test_path_chooses(probe, open_file):
    log, queue = open_file(probe, "log"), open_file(probe, "queue")
    probe.fail("write", 2, EIO, path="/queue")
    got = [outcome(probe.pwrite, fd, b"x", 0) for fd in (log, queue, log, queue, queue)]
    assert got == [1, 1, 1, -EIO, 1]


def test_path_follows_a_rename(probe, open_file, tmp_path):
    fd = open_file(probe, "tmp")
    probe.rename(tmp_path / "tmp", tmp_path / "final")
    probe.fail("fsync", 1, EIO, path="/final")
    assert outcome(probe.fsync, fd) == -EIO
    assert probe.trace()[-1].path == str(tmp_path / "final")


def test_sets_of_kinds(probe, open_file, tmp_path):
    fd = open_file(probe)
    probe.fallocate(fd, 0, 4096)
    at = probe.mmap(fd, 0, 4096, True)
    probe.fail("sync", 1, EIO, sticky=True)
    probe.fail("rename|unlink", 2, EIO)
    assert [outcome(f) for f in (lambda: probe.fsync(fd), lambda: probe.fdatasync(fd), lambda: probe.msync(fd, at, 4096),
                                 lambda: probe.sync_dir(tmp_path))] == [-EIO] * 4
    assert outcome(probe.rename, tmp_path / "f", tmp_path / "g") is None
    assert outcome(probe.unlink, tmp_path / "g") == -EIO
    assert outcome(probe.pwrite, fd, b"x", 0) == 1
    probe.munmap(at, 4096)


def test_every_call_can_fail(probe, open_file, tmp_path):
    fd = open_file(probe)
    probe.fallocate(fd, 0, 4096)
    at = probe.mmap(fd, 0, 4096, False)
    probe.fail("any", 1, EINVAL, sticky=True)
    p = tmp_path / "f"
    calls = [lambda: probe.open(p, 0), lambda: probe.size(fd), lambda: probe.modified_ms(fd), lambda: probe.alone(fd),
             lambda: probe.next_data(fd, 0), lambda: probe.pread(fd, 1, 0), lambda: probe.pwrite(fd, b"x", 0),
             lambda: probe.mmap(fd, 0, 4096, False), lambda: probe.munmap(at, 4096), lambda: probe.msync(fd, at, 4096),
             lambda: probe.fdatasync(fd), lambda: probe.fsync(fd), lambda: probe.fallocate(fd, 0, 1),
             lambda: probe.ftruncate(fd, 0), lambda: probe.rename(p, p), lambda: probe.unlink(p), lambda: probe.mkdir(p),
             lambda: probe.rmdir(p), lambda: probe.sync_dir(p), lambda: probe.lock(fd), lambda: probe.close(fd)]
    assert [outcome(call) for call in calls] == [-EINVAL] * len(calls)
    probe.clear()
    assert os.stat(p).st_size == 4096 and outcome(probe.size, fd) == -errno.EBADF       # only the close was done
    probe.munmap(at, 4096)


@pytest.mark.parametrize(("kind", "more"), [("fsync", {"short": True}), ("pwrite", {"errno": 5, "nth": 0}),
                                            ("wrte", {"errno": 5}),  # codespell:ignore wrte
                                            ("pwrite", {"errno": 0}), ("pwrite", {}),
                                            ("pwrite", {"errno": 5, "short": True})])
def test_rules_that_cannot_match_are_refused(probe, kind, more):
    with pytest.raises(ValueError):
        probe.fail(kind, **more)


# ---- trace

def test_trace_holds_what_was_done(probe, open_file, tmp_path):
    fd = open_file(probe, "a")
    probe.pwrite(fd, b"bytes", 7)
    probe.mark(("ack", 1))
    probe.rename(tmp_path / "a", tmp_path / "b")
    probe.close(fd)
    opened, write, mark, rename, close = probe.trace()
    assert (opened.kind, opened.fd, opened.path, opened.result) == ("open", fd, str(tmp_path / "a"), fd)
    assert opened.flags & os.O_CREAT
    assert (write.kind, write.fd, write.offset, write.length, write.result, write.data) == ("pwrite", fd, 7, 5, 5, b"bytes")
    assert (mark.kind, mark.note) == ("mark", ("ack", 1))
    assert (rename.path, rename.target) == (str(tmp_path / "a"), str(tmp_path / "b"))
    assert (close.kind, close.fd, close.path) == ("close", fd, str(tmp_path / "b"))
    assert [c.begin for c in probe.trace()] == list(range(5))
    assert probe.trace(start=3) == [rename, close]
    assert probe.counts() == {"open": 1, "pwrite": 1, "rename": 1, "close": 1}
    assert write.time_ns <= close.time_ns


def test_only_written_bytes_are_kept(open_file):
    p = ProbeIo()
    fd = open_file(p)
    p.fail("pwrite", 1, short=True)
    p.fail("pwrite", 2, EIO)
    outcome(p.pwrite, fd, b"abcd", 0)
    outcome(p.pwrite, fd, b"efgh", 0)
    assert [c.data for c in p.trace() if c.kind == "pwrite"] == [b"ab", None]
    bare = ProbeIo(keep_bytes=False)
    fd = open_file(bare)
    bare.pwrite(fd, b"abcd", 0)
    assert bare.trace()[-1].data is None and bare.trace()[-1].result == 4


def test_map_stores_and_syncs_name_their_place_in_the_file(probe, open_file):
    fd = open_file(probe)
    probe.fallocate(fd, 0, 16384)
    at = probe.mmap(fd, 4096, 8192, True)
    probe.map_store(fd, 4096 + 5, at + 5, b"five")
    probe.msync(fd, at + 4096, 4096)
    probe.munmap(at, 8192)
    store, sync, unmap = probe.trace()[-3:]
    assert (store.kind, store.fd, store.offset, store.data) == ("map_store", fd, 4101, b"five")
    assert (sync.kind, sync.fd, sync.offset, sync.length) == ("msync", fd, 8192, 4096)
    assert (unmap.kind, unmap.path, unmap.offset) == ("munmap", store.path, 4096)


def test_a_map_names_its_file_when_that_is_closed(probe, open_file, tmp_path):
    fd = open_file(probe)
    probe.fallocate(fd, 0, 8192)
    at = probe.mmap(fd, 0, 8192, True)
    path = probe.trace()[-1].path
    probe.close(fd)
    probe.map_store(-1, 5, at + 5, b"five")
    probe.rename(path, path + ".new")
    probe.msync(-1, at, 4096)
    probe.freeze()
    probe.map_store(-1, 5, at + 5, b"late")
    store, _, sync, ignored = probe.trace()[-4:]
    assert (store.kind, store.path, store.data) == ("map_store", path, b"five")
    assert (sync.kind, sync.path, sync.offset) == ("msync", path + ".new", 0)
    assert ignored.ignored and ignored.path == path + ".new"
    assert Path(path + ".new").read_bytes()[5:9] == b"five"
    probe.munmap(at, 8192)


def test_begin_tells_what_a_sync_may_have_missed(probe, open_file):
    """A write that ends while a sync runs is recorded before it, but was not there when it began."""
    fd = open_file(probe)
    probe.hold("fdatasync")
    thread = threading.Thread(target=probe.fdatasync, args=(fd,))
    thread.start()
    probe.wait_held()
    probe.pwrite(fd, b"late", 0)
    probe.release()
    thread.join()
    write, sync = probe.trace()[-2:]
    assert (write.kind, sync.kind) == ("pwrite", "fdatasync")
    assert sync.begin == 1      # only the open came before


# ---- holding

def test_hold_chooses_by_kind_and_path(probe, open_file):
    a, b = open_file(probe, "a"), open_file(probe, "b")
    probe.hold("pwrite", path="/b")
    assert probe.pwrite(a, b"x", 0) == 1
    probe.fdatasync(b)
    threads = [threading.Thread(target=probe.pwrite, args=(b, b"x", i)) for i in range(3)]
    for t in threads:
        t.start()
    probe.wait_held(3)
    assert probe.size(b) == 0
    probe.release()
    for t in threads:
        t.join()
    assert probe.size(b) == 3
    with pytest.raises(TimeoutError):
        probe.wait_held(1, timeout=0.01)


# ---- gates

def standing(probe, count):
    probe.wait_standing(count)
    return probe.standing()


def test_calls_stand_one_by_one_and_are_let_go_one_by_one(probe, open_file):
    fd = open_file(probe)
    probe.gate("pwrite", "/f")
    threads = []
    for i in range(3):
        threads.append(threading.Thread(target=probe.pwrite, args=(fd, bytes([65 + i]), 0)))
        threads[-1].start()
        standing(probe, i + 1)
    probe.fdatasync(fd)                                         # no gate for that
    tickets = [(s.ticket, s.kind, os.path.basename(s.path), s.thread) for s in probe.standing()]
    assert tickets == [(i + 1, "pwrite", "f", threads[i].native_id) for i in range(3)]
    for ticket in (3, 1, 2):
        probe.let(ticket)
        threads[ticket - 1].join()
        assert probe.pread(fd, 1, 0) == bytes([64 + ticket])
    assert probe.standing() == [] and [c.data for c in probe.trace() if c.kind == "pwrite"] == [b"C", b"A", b"B"]
    with pytest.raises(ValueError):
        probe.let(1)
    with pytest.raises(TimeoutError):
        probe.wait_standing(1, timeout=0.01)


def test_a_gate_for_one_thread_and_its_looks_at_the_clock(probe, open_file):
    fd = open_file(probe)
    seen = []

    def look():
        probe.gate("mono_ns", thread=threading.get_native_id())
        seen.append(probe.mono_ns())
        probe.pwrite(fd, b"x", 0)

    thread = threading.Thread(target=look)
    thread.start()
    (one,) = standing(probe, 1)
    assert (one.kind, one.path, one.thread) == ("mono_ns", None, thread.native_id)
    assert probe.mono_ns() > 0 and not seen                     # this thread's are not stopped
    probe.ungate()
    thread.join()
    assert seen and probe.pread(fd, 1, 0) == b"x" and "mono_ns" not in {c.kind for c in probe.trace()}


def test_nothing_spoils_the_clock(probe):
    with pytest.raises(ValueError):
        probe.fail("mono_ns", 1, EIO)


# ---- the end of a trace

@pytest.mark.parametrize(("limit", "kept"), [({"calls_max": 3}, 2), ({"bytes_max": 10}, 2)])
def test_a_trace_ends_where_it_is_told_to(open_file, limit, kept):
    p = ProbeIo(**limit)
    fd = open_file(p)
    for i in range(5):
        p.pwrite(fd, b"fives"[:5], i * 5)
    assert p.full and p.length == len(p.trace()) and p.counts()["pwrite"] == 5
    assert [c.offset for c in p.trace() if c.kind == "pwrite"] == [0, 5][:kept]
    assert p.trace(1, 2) == p.trace()[1:2] and p.pread(fd, 99, 0) == b"fives" * 5


# ---- clock

def test_clock_stands_steps_and_runs_backwards(probe):
    probe.set_clock(1000)
    assert [probe.wall_ms() for _ in range(3)] == [1000] * 3
    probe.set_clock(1000, step=7)
    assert [probe.wall_ms() for _ in range(3)] == [1000, 1007, 1014]
    probe.set_clock(1000, step=-1)
    assert [probe.wall_ms() for _ in range(3)] == [1000, 999, 998]
    probe.set_clock(None)
    assert probe.wall_ms() > 1_600_000_000_000


# ---- freeze

def test_freeze_after_the_nth_change(probe, open_file, tmp_path):
    fd = open_file(probe, "a")
    probe.freeze("mutate", 2)
    probe.pwrite(fd, b"one", 0)
    probe.fdatasync(fd)                                         # no change: not counted
    assert not probe.frozen
    probe.pwrite(fd, b"two", 3)                                 # the last that counts
    assert probe.frozen
    assert probe.pwrite(fd, b"three", 6) == 5                   # claims success from here on
    probe.ftruncate(fd, 1)
    probe.fallocate(fd, 0, 9999)
    probe.rename(tmp_path / "a", tmp_path / "b")
    probe.unlink(tmp_path / "a")
    probe.mkdir(tmp_path / "d")
    probe.rmdir(tmp_path)
    probe.fsync(fd)
    probe.sync_dir(tmp_path)
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"onetwo"
    assert [c.kind for c in probe.trace() if c.ignored] == [
        "pwrite", "ftruncate", "fallocate", "rename", "unlink", "mkdir", "rmdir", "fsync", "sync_dir"]


def test_after_a_freeze_new_files_are_memory(probe, tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    probe.freeze()
    new = probe.open(tmp_path / "new", os.O_RDWR | os.O_CREAT)
    probe.fallocate(new, 0, 4096)
    at = probe.mmap(new, 0, 4096, True)
    probe.map_store(new, 0, at, b"x")                           # really reserved: no SIGBUS
    probe.pwrite(new, b"y", 1)
    assert probe.pread(new, 2, 0) == b"xy"
    emptied = probe.open(tmp_path / "old", os.O_RDWR | os.O_TRUNC)
    assert probe.size(emptied) == 0
    with pytest.raises(FileNotFoundError):
        probe.open(tmp_path / "missing", os.O_RDWR)
    with pytest.raises(FileExistsError):
        probe.open(tmp_path / "old", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    probe.munmap(at, 4096)
    probe.close(new)
    probe.close(emptied)
    assert os.listdir(tmp_path) == ["old"] and (tmp_path / "old").read_bytes() == b"old"


def test_a_freeze_cuts_maps_off_their_files(probe, open_file, tmp_path):
    fd = open_file(probe, "m")
    probe.fallocate(fd, 0, 8192)
    at = probe.mmap(fd, 0, 8192, True)
    probe.map_store(fd, 0, at, b"before")
    probe.freeze()
    assert ctypes.string_at(at, 6) == b"before"
    probe.map_store(fd, 0, at, b"AFTER!")
    probe.msync(fd, at, 8192)
    later = probe.mmap(fd, 0, 4096, True)
    probe.map_store(fd, 100, later + 100, b"later")
    with pytest.raises(OSError):
        probe.mmap(fd, 0, 1 << 20, True)                        # beyond what is really there
    probe.munmap(at, 8192)
    probe.munmap(later, 4096)
    assert (tmp_path / "m").read_bytes() == b"before" + bytes(8186)


def test_lock_is_given_up_by_a_frozen_program(probe, open_file, tmp_path):
    fd = open_file(probe, "lock")
    assert probe.lock(fd)
    probe.freeze()
    probe.close(fd)
    other = ProbeIo()
    again = open_file(other, "lock")
    assert other.lock(again)


# ---- threads

def test_threads_share_one_trace(probe, open_file):
    fd = open_file(probe)
    probe.fail("pwrite", 100, EIO)

    def work(k):
        got.extend(outcome(probe.pwrite, fd, bytes([k]), k * 100 + i) for i in range(100))

    got = []
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == [-EIO] + [1] * 399
    assert probe.counts()["pwrite"] == 400
    assert len({c.offset for c in probe.trace() if c.kind == "pwrite"}) == 400
