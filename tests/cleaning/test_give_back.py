"""The space of a deleted commit-log file goes back piece by piece, and only where nobody else has the file."""
import os
import subprocess
import sys

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import IoTable, ProbeIo

MIB = 1 << 20
SIZE = 80 * MIB


@pytest.fixture
def rolled(tmp_path):
    """A store whose first file is full, the probe under it, and that file."""
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, segment_size_bytes=SIZE, message_size_max_bytes=40 * MIB,
                           index_enabled=False) as store:
        for _ in range(3):
            store.put("T", bytes(30 * MIB))
        store.flush()
        assert store.wait_dispatched(10)
        yield store, probe, tmp_path / "s/commitlog" / f"{0:020d}"


@pytest.fixture
def telling(tmp_path):
    """Skips where the file system does not tell who has a file open: there all of it goes at the last close."""
    table = IoTable()
    fd = table.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    table.unlink(tmp_path / "f")
    told = table.alone(fd)
    table.close(fd)
    if not told:
        pytest.skip("this file system does not tell whether somebody else has a file open")


def pieces(probe):
    return [call.length for call in probe.trace() if call.kind == "ftruncate" and "/commitlog/" in (call.path or "")]


def test_a_large_file_goes_in_pieces(rolled, telling):
    store, probe, file = rolled
    assert store.clean(0).log_files == 1 and not file.exists()
    assert pieces(probe) == [48 * MIB, 16 * MIB]


def test_a_file_with_another_name_is_left_whole(rolled, tmp_path):
    store, probe, file = rolled
    os.link(file, tmp_path / "backup")
    before = file.read_bytes()
    assert store.clean(0).log_files == 1 and not file.exists()
    assert (tmp_path / "backup").read_bytes() == before and pieces(probe) == []


def test_a_file_that_another_reader_has_open_is_left_whole(rolled):
    store, probe, file = rolled
    with file.open("rb") as other:
        before = other.read(MIB)
        assert store.clean(0).log_files == 1 and not file.exists()
        assert other.seek(0) == 0 and other.read(MIB) == before and other.seek(0, os.SEEK_END) == SIZE
    assert pieces(probe) == []


def test_a_file_under_a_view_is_left_whole(rolled):
    store, probe, _ = rolled
    (message,) = store.get("T", 0, 0, max_count=1)
    body = message.body
    assert store.clean(0).log_files == 0        # held: it goes when nobody looks at it
    assert bytes(body[-10:]) == bytes(10) and pieces(probe) == []
    del message, body


def test_a_child_of_fork_goes_on_reading_what_its_parent_cleans(tmp_path):
    """It shares the open file, so nobody but the parent can know that it has a map of it."""
    script = f"""
import os, sys
from rmq_store import MessageStore
size = 40 << 20
s = MessageStore.open({str(tmp_path / "s")!r}, segment_size_bytes=size, index_enabled=False, message_size_max_bytes=8 << 20)
for i in range(14):
    s.put("T", bytes([i]) * (7 << 20))
s.flush(); s.wait_dispatched()
view = s.get("T", 0, 4)[0]
go, ready = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(ready)
    os.read(go, 1)
    sys.stderr.flush()
    os._exit(0 if bytes(view.body) == bytes([4]) * (7 << 20) else 3)
del view
assert s.clean(hours=0, files_max=1, pace_ms=0).log_files == 1
os.write(ready, b"x"); os.close(ready)
_, status = os.waitpid(pid, 0)
print(status)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "0", (done.stdout, done.stderr)
