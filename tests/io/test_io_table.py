"""The real system calls behind the I/O table: each does what rmq_io.h says, and errors come as they are."""
import ctypes
import errno
import mmap
import os
import subprocess
import sys
import time

import pytest

from rmq_store.base.io._io import IoTable, ProbeIo
from rmq_store.base.io.files import ControlFiles
from tests.forks import fork


@pytest.fixture(params=[IoTable, ProbeIo])
def table(request):
    """A probe without rules must be no different from the real thing."""
    return request.param()


def test_write_read_size_truncate(table, open_file):
    fd = open_file(table)
    assert table.pwrite(fd, b"hello", 10) == 5
    assert table.size(fd) == 15
    assert table.pread(fd, 100, 8) == b"\0\0hello"
    table.ftruncate(fd, 12)
    assert table.pread(fd, 100, 10) == b"he"
    assert table.pread(fd, 5, 100) == b""
    table.fdatasync(fd)
    table.fsync(fd)
    assert abs(table.modified_ms(fd) - time.time() * 1000) < 60_000


def test_fallocate_reserves_and_holes_are_seen(table, open_file):
    fd = open_file(table)
    table.fallocate(fd, 0, 1 << 16)
    assert table.size(fd) == 1 << 16 and os.fstat(fd).st_blocks * 512 >= 1 << 16
    sparse = open_file(table, "sparse")
    table.pwrite(sparse, b"x", 1 << 20)
    assert table.next_data(sparse, 0) in (0, 1 << 20)       # a file system without holes says 0
    assert table.next_data(sparse, (1 << 20) + 1) == (1 << 20) + 1


def test_map_is_shared_with_the_file(table, open_file):
    fd = open_file(table)
    table.fallocate(fd, 0, 8192)
    at = table.mmap(fd, 4096, 4096, True)
    table.map_store(fd, 4096 + 7, at + 7, b"mapped")
    table.msync(fd, at, 4096)
    assert table.pread(fd, 6, 4096 + 7) == b"mapped"
    table.pwrite(fd, b"M", 4096 + 7)
    assert ctypes.string_at(at + 7, 6) == b"Mapped"
    table.munmap(at, 4096)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
@pytest.mark.parametrize("mapped", [False, True], ids=["open", "mapped"])
def test_who_else_has_a_file_is_seen(table, tmp_path, open_file, flags, mapped):
    fd = open_file(table)
    table.fallocate(fd, 0, 8192)
    own = table.mmap(fd, 0, 8192, True)
    assert not table.alone(fd)                  # it has a name: who wants it may come
    other = os.open(tmp_path / "f", flags)
    table.unlink(tmp_path / "f")
    assert not table.alone(fd)
    if mapped:
        seen = mmap.mmap(other, 8192, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(other)
        assert not table.alone(fd)              # a map is enough, its descriptor may be closed
        seen.close()
    else:
        os.close(other)
    alone = table.alone(fd)                     # one's own map of the same open file does not count
    table.munmap(own, 8192)
    if not alone and not table.alone(fd):
        pytest.skip("this file system does not tell whether somebody else has a file open")
    assert alone


def test_names(table, tmp_path, open_file):
    table.mkdir(tmp_path / "d")
    fd = open_file(table, "d/a")
    table.rename(tmp_path / "d/a", tmp_path / "d/b")
    table.sync_dir(tmp_path / "d")
    assert os.listdir(tmp_path / "d") == ["b"]
    table.unlink(tmp_path / "d/b")
    table.close(fd)
    table.rmdir(tmp_path / "d")
    assert os.listdir(tmp_path) == []


def test_errors_carry_errno_and_path(table, tmp_path):
    missing = str(tmp_path / "missing")
    for call in (lambda: table.open(missing, os.O_RDONLY), lambda: table.unlink(missing), lambda: table.rmdir(missing),
                 lambda: table.sync_dir(missing), lambda: table.rename(missing, missing + "2"),
                 lambda: table.mkdir(missing + "/below")):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.ENOENT and caught.value.filename.startswith(missing)
    for call in (lambda: table.pread(-1, 1, 0), lambda: table.pwrite(-1, b"x", 0), lambda: table.size(-1),
                 lambda: table.fdatasync(-1), lambda: table.fsync(-1), lambda: table.fallocate(-1, 0, 1),
                 lambda: table.close(-1), lambda: table.ftruncate(-1, 0),
                 lambda: table.mmap(-1, 0, 4096, False), lambda: table.lock(-1), lambda: table.modified_ms(-1),
                 lambda: table.alone(-1),
                 lambda: table.next_data(-1, 0)):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF


def test_no_space_is_said_at_reservation(table, open_file):
    fd = open_file(table)
    with pytest.raises(OSError) as caught:
        table.fallocate(fd, 0, 1 << 60)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)


def test_what_cannot_be_had_takes_nothing(table, open_file, tmp_path):
    """ext4 took all blocks of the disk before it refused, from everybody on it."""
    fd = open_file(table)
    disk = os.statvfs(tmp_path)
    with pytest.raises(OSError) as caught:
        table.fallocate(fd, 0, 2 * disk.f_bfree * disk.f_frsize + (1 << 30))
    taken = os.fstat(fd).st_blocks
    os.truncate(fd, 0)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG) and taken == 0


def test_descriptors_do_not_survive_exec(table, open_file):
    assert not os.get_inheritable(open_file(table))


def test_clocks(table):
    assert abs(table.wall_ms() - time.time() * 1000) < 60_000
    a = table.mono_ns()
    assert table.mono_ns() >= a


def test_lock_excludes_a_second_open_file_of_this_process(table, tmp_path, open_file):
    first = open_file(table, "lock")
    second = open_file(table, "lock")
    assert table.lock(first) and table.lock(first)      # the holder may ask again
    assert not table.lock(second)
    table.close(first)
    assert table.lock(second)


def test_a_lock_is_given_up_although_a_copy_of_the_descriptor_is_open(table, tmp_path, open_file):
    """Copies are what a child of fork has until its first step, or its exec."""
    file, directory = open_file(table, "lock"), lambda: table.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    for first, second in ((file, open_file(table, "lock")), (directory(), directory())):
        copy = os.dup(first)
        try:
            assert table.lock(first) and not table.lock(second)
            table.unlock(first)
            table.close(first)
            assert table.lock(second)
        finally:
            os.close(copy)
            table.close(second)


_TAKE = """
import fcntl, sys
f = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)     # a POSIX record lock on byte 0, as Java's FileChannel.tryLock
except OSError as e:
    print("refused"); sys.exit()
print("taken", flush=True)
sys.stdin.read()
"""


def test_lock_excludes_java_both_ways(table, tmp_path, open_file):
    path = tmp_path / "lock"
    fd = open_file(table, "lock")
    assert table.lock(fd)
    java = [sys.executable, "-c", _TAKE, str(path)]
    assert subprocess.run(java, input="", capture_output=True, text=True, check=True).stdout == "refused\n"
    table.close(fd)
    with subprocess.Popen(java, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "taken\n"
        again = open_file(table, "lock")
        assert not table.lock(again)
        holder.stdin.close()
        holder.wait()
    assert table.lock(again)        # a dead holder frees it


def test_child_has_no_writable_map(table, open_file):
    """A child of fork must not be able to write into its parent's store."""
    fd = open_file(table)
    table.fallocate(fd, 0, 4096)
    at = table.mmap(fd, 0, 4096, True)
    pid = fork()
    if pid == 0:
        with open("/proc/self/maps") as maps:
            os._exit(1 if any(line.startswith(f"{at:x}-") for line in maps) else 0)
    assert os.waitpid(pid, 0)[1] == 0
    table.munmap(at, 4096)


# ---- whole reads and writes (rmq_pwrite_all, rmq_pread_all) against short calls and EINTR

def test_write_all_continues_a_short_write(probe, open_file):
    files, fd = ControlFiles(probe), open_file(probe)
    probe.fail("pwrite", 1, short=True)
    probe.fail("pwrite", 2, short=True)
    files.write(fd, 3, bytes(range(100)))
    writes = [(c.offset, c.length, c.result) for c in probe.trace() if c.kind == "pwrite"]
    assert writes == [(3, 100, 50), (53, 50, 25), (78, 25, 25)]
    assert probe.pread(fd, 100, 3) == bytes(range(100))


def test_write_all_repeats_after_eintr_only(probe, open_file):
    files, fd = ControlFiles(probe), open_file(probe)
    probe.fail("pwrite", 1, errno.EINTR)
    files.write(fd, 0, b"abc")
    assert probe.pread(fd, 9, 0) == b"abc" and probe.counts()["pwrite"] == 2
    for code in (errno.EIO, errno.ENOSPC, errno.EAGAIN):
        probe.fail("pwrite", 1, code)
        before = probe.counts()["pwrite"]
        with pytest.raises(OSError) as caught:
            files.write(fd, 0, b"xyz")
        assert caught.value.errno == code and probe.counts()["pwrite"] == before + 1
        probe.clear()


def test_write_all_says_that_the_disk_is_full_in_the_middle(probe, open_file):
    files, fd = ControlFiles(probe), open_file(probe)
    probe.fail("pwrite", 1, short=True)
    probe.fail("pwrite", 2, errno.ENOSPC)
    with pytest.raises(OSError) as caught:
        files.write(fd, 0, b"abcdefgh")
    assert caught.value.errno == errno.ENOSPC and probe.pread(fd, 9, 0) == b"abcd"


def test_read_all_goes_on_to_the_end_of_the_file(probe, open_file):
    files, fd = ControlFiles(probe), open_file(probe)
    files.write(fd, 0, bytes(range(64)))
    probe.fail("pread", 1, errno.EINTR)
    probe.fail("pread", 2, short=True)
    assert files.read(fd, 4, 200) == bytes(range(4, 64))
    probe.fail("pread", 1, errno.EIO)
    with pytest.raises(OSError):
        files.read(fd, 0, 8)
