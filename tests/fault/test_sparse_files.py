"""Stores whose files have holes, as Java makes them and as sparse copies have them, on a disk that becomes full: what puts and
reads may touch has its space before the open returns, or the open refuses."""
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

from rmq_store import MessageStore, errors
from tests.crash import scenario
from tests.mounts import loop_mount

MIB = 1 << 20
OPTIONS = {"profile": "test", "segment_size_bytes": 8 * MIB, "index_slots": 50_000, "index_entries_max": 100_000}
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")]


@contextmanager
def tmpfs(tmp_path, size):
    place = tmp_path / "mount"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(place):
    with open(place / "ballast", "ab", buffering=0) as file:
        for size in (MIB, 4096, 1):
            try:
                while file.write(b"\1" * size) == size:
                    pass
            except OSError:
                pass


def sparse_copy(tmp_path, place, messages=100):
    """A store with `messages` messages, copied into the mount with holes wherever it has zeros."""
    with MessageStore.open(tmp_path / "source", **OPTIONS) as store:
        for n in range(messages):
            store.put("t", b"x" * 100 + bytes(20_000 * (n % 10 == 0)), keys=f"k{n}")
    subprocess.run(["cp", "-a", "--sparse=always", tmp_path / "source", place / "s"], check=True)
    holes = [path for path in (place / "s").rglob("*") if path.is_file() and path.stat().st_blocks * 512 < path.stat().st_size]
    assert {path.parent.name for path in holes} >= {"commitlog", "index"}
    return place / "s"


AT_WORK = """
import os, sys, time
sys.path.insert(0, {project!r})
from pathlib import Path
from rmq_store import MessageStore, errors
from tests.fault.test_sparse_files import OPTIONS, fill
place, more = Path(sys.argv[1]), dict(text.split("=") for text in sys.argv[2:])
acknowledged = 0
with MessageStore.open(place / "s", **OPTIONS, **more) as store:
    fill(place)
    for n in range(12_000):
        try:
            store.put("t", b"y" * 1000, keys=f"z{{n}}")
            acknowledged += 1
        except errors.RmqStoreError:
            break
    os.remove(place / "ballast")
    for _ in range(500):
        try:
            store.put("t", b"after")
            acknowledged += 1
            break
        except errors.RmqStoreError:
            time.sleep(0.01)
with MessageStore.open(place / "s", **OPTIONS) as store:
    store.wait_dispatched(timeout=60)
    assert store.total("t", 0) - 100 == acknowledged, (store.total("t", 0) - 100, acknowledged)
assert acknowledged > 1_000, acknowledged
"""


@pytest.mark.parametrize("more", [("write_path=mmap",), ("write_path=pool",), ("write_path=mmap", "flush_mode=sync"),
                                  ("write_path=mmap", "guard_maps=true")], ids=lambda more: ",".join(more))
def test_what_puts_touch_is_reserved_by_the_open(tmp_path, more):
    project = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tmpfs(tmp_path, "40m") as place:
        sparse_copy(tmp_path, place)
        done = subprocess.run([sys.executable, "-c", AT_WORK.format(project=project), place, *more], capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, (done.returncode, done.stderr[-1000:])


@pytest.mark.skipif(not scenario.RING_HERE, reason="no io_uring")
@pytest.mark.parametrize(("make", "direct"), [("mkfs.ext4", "on"), ("mkfs.xfs", "on"), ("mkfs.ext4", "off")])
def test_what_the_ring_writes_is_reserved_by_the_open(tmp_path, make, direct):
    project = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    size = 340 if make == "mkfs.xfs" else 64        # the smallest XFS has 300 MiB
    with loop_mount(tmp_path, size * MIB, (make, "-q")) as (place, _):
        sparse_copy(tmp_path, place)
        done = subprocess.run([sys.executable, "-c", AT_WORK.format(project=project), place, "write_path=pool",
                               "flush_backend=io_uring", f"uring_direct={direct}"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (done.returncode, done.stderr[-1000:])


@pytest.mark.parametrize(("options", "name"), [({"index_enabled": False}, "commitlog"), ({}, "index")])
def test_an_open_that_cannot_reserve_says_so(tmp_path, options, name):
    with tmpfs(tmp_path, "7m" if name == "commitlog" else "9m") as place:
        path = sparse_copy(tmp_path, place)
        if name == "index":
            os.truncate(place / "s" / "commitlog" / ("0" * 20), 8 * MIB)
        with pytest.raises(errors.DiskFull, match=r"bytes that a sparse file of \d+ bytes lacks.*make room") as caught:
            MessageStore.open(path, **OPTIONS, **options)
        assert f"/{name}/" in str(caught.value.filename) and caught.value.errno
        with MessageStore.open(path, readonly=True) as store:
            assert store.total("t", 0) == 100


COMPACTION = """
import sys
sys.path.insert(0, {project!r})
from pathlib import Path
from rmq_store import MessageStore
from tests.fault.test_sparse_files import OPTIONS, fill
place = Path(sys.argv[1])
with MessageStore.open(place / "s", **OPTIONS) as store:
    if sys.argv[2] == "made":
        make(store)
    assert store.table("C")["k1"].keys == "k1"      # its compaction log is opened with its first use
    fill(place)
    table = store.table("C")
    for n in range(10):
        assert table[f"k{{n}}"].keys == f"k{{n}}"
    assert "none" not in table
"""


def make(store):
    """A compaction topic with ten keys, compacted."""
    store.topic_table.set_cleanup_policy("C", "COMPACTION")
    for n in range(100):
        store.put("C", b"x" * 100, keys=f"k{n % 10}")
    store.put("C", b"x", keys="k0")
    store.compact("C")


@pytest.mark.parametrize("how", ["made", "copied"])
def test_reads_of_a_compaction_topic_in_memory_take_no_space(tmp_path, how):
    project = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tmpfs(tmp_path, "400m") as place:
        if how == "copied":
            with MessageStore.open(tmp_path / "source", **OPTIONS) as store:
                make(store)
            subprocess.run(["cp", "-a", "--sparse=always", tmp_path / "source", place / "s"], check=True)
        text = COMPACTION.format(project=project).replace("import OPTIONS, fill", "import OPTIONS, fill, make")
        done = subprocess.run([sys.executable, "-c", text, place, how], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
