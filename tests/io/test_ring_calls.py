"""ring_submit and ring_reap on a real ring: WRITE linked to FSYNC, through the system table and through the probe."""
import ctypes
import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rmq_store.base.io._io import IoTable, ProbeIo
from tests.forks import fork

ROOT = Path(__file__).parents[2]
LINK, HARDLINK = 4, 8               # IOSQE_IO_LINK, IOSQE_IO_HARDLINK
DSYNC = 2                           # RWF_DSYNC
ECANCELED, EIO = -errno.ECANCELED, errno.EIO


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """The C wrapper of ring_driver.c, compiled here."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) for the ring driver")
    out = tmp_path_factory.mktemp("driver") / "ring_driver.so"
    made = subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Werror", f"-I{ROOT}/native/include",
                           str(ROOT / "tests/io/ring_driver.c"), "-o", str(out), "-luring"], capture_output=True, text=True)
    if "liburing.h" in made.stderr or "-luring" in made.stderr:
        pytest.skip("no liburing to compile the ring driver with")
    assert made.returncode == 0, made.stderr
    lib = ctypes.CDLL(str(out))
    pointer, number, unsigned, u64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_uint64
    lib.driver_new.restype = lib.driver_memory.restype = pointer
    lib.driver_new.argtypes = [unsigned, ctypes.POINTER(number)]
    for f in (lib.driver_free, lib.driver_dontfork, lib.driver_memory):
        f.argtypes = [pointer]
    lib.driver_write.argtypes = [pointer, number, ctypes.c_char_p, unsigned, u64, u64, unsigned, number]
    lib.driver_writev.argtypes = [pointer, number, pointer, unsigned, u64, u64]
    lib.driver_sync.argtypes = [pointer, number, u64, unsigned]
    lib.driver_submit.argtypes = [pointer, pointer, unsigned]
    lib.driver_reap.argtypes = [pointer, pointer, ctypes.POINTER(u64), ctypes.POINTER(number)]
    return lib


class Ring:
    def __init__(self, lib, table):
        error = ctypes.c_int()
        self.lib, self.table, self.at = lib, table, lib.driver_new(8, ctypes.byref(error))
        if self.at is None:
            pytest.skip(f"the kernel refuses a ring: {os.strerror(-error.value)}")
        self.kept = []

    def write(self, fd, data, offset, tag, flags=0, rw_flags=0):
        self.kept.append(data)
        assert self.lib.driver_write(self.at, fd, data, len(data), offset, tag, flags, rw_flags) == 0

    def writev(self, fd, pieces, offset, tag):
        class Iovec(ctypes.Structure):
            _fields_ = [("base", ctypes.c_char_p), ("size", ctypes.c_size_t)]
        v = (Iovec * len(pieces))(*[(p, len(p)) for p in pieces])
        self.kept.append(v)
        assert self.lib.driver_writev(self.at, fd, v, len(pieces), offset, tag) == 0

    def sync(self, fd, tag, flags=0):
        assert self.lib.driver_sync(self.at, fd, tag, flags) == 0

    def submit(self, wait=0):
        return self.lib.driver_submit(self.table.address, self.at, wait)

    def reap(self):
        """(tag, result), or None if there is nothing, or a negative error."""
        tag, result = ctypes.c_uint64(), ctypes.c_int()
        rc = self.lib.driver_reap(self.table.address, self.at, ctypes.byref(tag), ctypes.byref(result))
        return (tag.value, result.value) if rc == 1 else None if rc == 0 else rc

    def reap_all(self):
        out = {}
        while (one := self.reap()) is not None:
            out[one[0]] = one[1]
        return out

    def chain(self, fd, data, offset=0, flags=LINK):
        """Write, then sync, in one chain, both awaited: {1: result of the write, 2: result of the sync}."""
        self.write(fd, data, offset, 1, flags)
        self.sync(fd, 2)
        assert self.submit(2) == 2
        return self.reap_all()


@pytest.fixture
def ring_on(driver):
    made = []

    def make(table):
        made.append(Ring(driver, table))
        return made[-1]

    yield make
    for ring in made:
        driver.driver_free(ring.at)


@pytest.mark.parametrize("kind", [IoTable, ProbeIo])
def test_write_then_sync(ring_on, open_file, kind):
    table = kind()
    ring, fd = ring_on(table), open_file(table)
    assert ring.reap() is None
    assert ring.chain(fd, b"durable", 3) == {1: 7, 2: 0}
    assert table.pread(fd, 99, 0) == b"\0\0\0durable"
    assert ring.reap() is None


@pytest.mark.parametrize("kind", [IoTable, ProbeIo])
def test_a_failed_write_cancels_the_linked_sync(ring_on, open_file, kind, tmp_path):
    table = kind()
    (tmp_path / "f").touch()
    ring, fd = ring_on(table), open_file(table, flags=os.O_RDONLY)
    assert ring.chain(fd, b"x") == {1: -errno.EBADF, 2: ECANCELED}
    assert ring.chain(fd, b"x", flags=HARDLINK) == {1: -errno.EBADF, 2: 0}      # why a hard link must never be used


def test_trace_of_a_chain(ring_on, open_file, probe):
    ring, fd = ring_on(probe), open_file(probe)
    ring.chain(fd, b"durable", 3)
    ring.writev(fd, [b"ab", b"cd"], 50, 7)
    ring.write(fd, b"z", 60, 8, rw_flags=DSYNC)
    assert ring.submit(2) == 2 and ring.reap_all() == {7: 4, 8: 1}
    calls = [c for c in probe.trace() if c.kind.startswith("ring_")]
    assert [(c.kind, c.offset, c.length, c.data) for c in calls if c.kind == "ring_write"] == [
        ("ring_write", 3, 7, b"durable"), ("ring_write", 50, 4, b"abcd"), ("ring_write", 60, 1, b"z")]
    assert {c.path for c in calls if c.kind in ("ring_write", "ring_sync")} == {probe.trace()[0].path}
    assert calls[0].flags & LINK and not calls[1].flags & LINK
    assert [bool(c.flags & 0x10000) for c in calls if c.kind == "ring_write"] == [False, False, True]
    number = {c.begin: c.result for c in calls if c.kind == "ring_reap"}
    trace = probe.trace()
    assert sorted((trace[i].kind, trace[i].offset, r) for i, r in number.items()) == [
        ("ring_sync", 0, 0), ("ring_write", 3, 7), ("ring_write", 50, 4), ("ring_write", 60, 1)]


def test_an_injected_write_error_breaks_the_chain_as_a_real_one(ring_on, open_file, probe):
    ring, fd = ring_on(probe), open_file(probe)
    probe.fail("ring_write", 2, errno.ENOSPC)
    assert ring.chain(fd, b"first") == {1: 5, 2: 0}
    assert ring.chain(fd, b"second") == {1: -errno.ENOSPC, 2: ECANCELED}
    assert probe.pread(fd, 99, 0) == b"first"


def test_an_injected_short_write_breaks_the_chain(ring_on, open_file, probe):
    ring, fd = ring_on(probe), open_file(probe)
    probe.fail("ring_write", 1, short=True)
    assert ring.chain(fd, b"abcdefgh") == {1: 4, 2: ECANCELED}
    assert probe.pread(fd, 99, 0) == b"abcd"


def test_an_injected_sync_error(ring_on, open_file, probe):
    ring, fd = ring_on(probe), open_file(probe)
    probe.fail("sync", 1, EIO)
    assert ring.chain(fd, b"abc") == {1: 3, 2: -EIO}


def test_submit_and_reap_can_fail_and_lose_nothing(ring_on, open_file, probe):
    ring, fd = ring_on(probe), open_file(probe)
    ring.write(fd, b"abc", 0, 1)
    probe.fail("ring_submit", 1, errno.EINTR)
    probe.fail("ring_reap", 1, errno.EAGAIN)
    assert ring.submit(1) == -errno.EINTR
    assert ring.submit(1) == 1
    assert ring.reap() == -errno.EAGAIN
    assert ring.reap() == (1, 3)
    assert [c.kind for c in probe.trace()].count("ring_write") == 1


def test_a_frozen_ring_claims_success(ring_on, open_file, probe, tmp_path):
    ring, fd = ring_on(probe), open_file(probe)
    ring.chain(fd, b"before")
    probe.freeze()
    assert ring.chain(fd, b"AFTER, and longer") == {1: 17, 2: 0}
    assert (tmp_path / "f").read_bytes() == b"before"


def test_ring_memory_stays_out_of_a_child(ring_on, driver):
    ring = ring_on(IoTable())
    assert driver.driver_dontfork(ring.at) == 0
    start = f"{driver.driver_memory(ring.at):x}-"
    with open("/proc/self/maps") as maps:
        assert any(line.startswith(start) for line in maps)
    pid = fork()
    if pid == 0:
        with open("/proc/self/maps") as maps:
            os._exit(1 if any(line.startswith(start) for line in maps) else 0)
    assert os.waitpid(pid, 0)[1] == 0
