"""A log of many files holds a descriptor for few of them: those that are not on the device yet, and the one that it writes."""
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.base.machine.limits import LOG_DESCRIPTORS
from tests.forks import fork
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "index_slots": 10, "index_entries_max": 40, "profile": "test"}
WAYS = {"mmap": {}, "pool": {"write_path": "pool", "flush_backend": "fdatasync"}, "auto": {"write_path": "pool"}}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_hundreds_of_files_leave_descriptors_to_the_program(tmp_path, options):
    done = subprocess.run([sys.executable, Path(__file__).with_name("few_descriptors.py"), tmp_path / "s",
                           json.dumps({**SMALL, **options})], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["own"] == 16 and found["most"] <= LOG_DESCRIPTORS
    assert max(held for name, held in found.items() if name.startswith("after")) <= 4, found


def descriptors(store):
    """Of the files of the store's log, by their names, ascending."""
    links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sorted(link for link in links if link.startswith(f"{store.path}/commitlog/"))


@pytest.fixture
def rolled(tmp_path):
    """A store whose first six files have no descriptor any more, and the probe under it."""
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store:
        fill(store, 6)
        store.flush()
        assert store.wait_dispatched(30)
        fill(store, 7)          # the allocator looks when a file is taken
        until(lambda: descriptors(store)[0] >= f"{store.path}/commitlog/{6 * SMALL['segment_size_bytes']:020d}")
        yield store, probe


def fill(store, files):
    end = 0
    while end < files * SMALL["segment_size_bytes"]:
        end = store.put("T", bytes(5000), keys="k").offset


def test_the_next_file_that_lacks_a_descriptor(rolled, caplog):
    store, probe = rolled
    probe.fail("open", 1, errno.EMFILE, path="/.alloc/0", sticky=True)
    with pytest.raises(errors.CreateMappedFileFailed, match=r"RLIMIT_NOFILE.*ulimit -n"):
        fill(store, 20)
    until(lambda: "RLIMIT_NOFILE" in caplog.text)
    probe.clear()
    fill(store, 20)
    assert store.stats()["errno"] == 0


def test_cleaning_that_lacks_a_descriptor(rolled):
    store, probe = rolled
    probe.fail("open", 1, errno.EMFILE, path="/commitlog/", sticky=True)
    with pytest.raises(errors.OutOfResources, match=r"RLIMIT_NOFILE.*ulimit -n"):
        store.clean(24)
    assert len(store.get("T", 0, 0, 32)) == 32 and store.put("T", b"x").status == 0     # what is mapped needs none
    probe.clear()
    assert store.clean(0, files_max=2).log_files == 2 and store.stats()["errno"] == 0


def test_another_file_with_the_name_is_not_touched(rolled):
    store, _ = rolled
    first = Path(store.path, "commitlog", f"{0:020d}")
    first.rename(first.with_suffix(".kept"))
    first.write_bytes(b"another file")
    with pytest.raises(OSError, match="replaced"):
        store.clean(24)
    assert first.read_bytes() == b"another file" and bytes(store.get("T", 0, 0)[0].body) == bytes(5000)


def test_files_that_no_flush_has_reached_are_few(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    options = {**SMALL, "flush_backend": "fdatasync", "flush_deadline_ms": 300}
    with MessageStore.open(tmp_path / "s", _io=probe, **options) as store:
        store.put("T", b"x")
        probe.hold("fdatasync", path="/commitlog/")
        with pytest.raises(errors.CreateMappedFileFailed, match="not made in time"):
            fill(store, 200)
        assert 48 <= len(descriptors(store)) <= LOG_DESCRIPTORS // 2
        probe.release()
        fill(store, 100)
        store.flush()


def test_a_view_of_a_file_without_a_descriptor_in_a_child(rolled):
    store, _ = rolled
    kept = store.get("T", 0, 0, 2)
    for dropped in (False, True):       # what comes along once does not come along for ever
        child = fork()
        if child == 0:
            maps = [line.split()[1] for line in Path("/proc/self/maps").read_text().splitlines() if "/commitlog/" in line]
            os._exit(maps != ([] if dropped else ["r--s"]) or not (dropped or bytes(kept[1].body) == bytes(5000)))
        assert os.waitpid(child, 0)[1] == 0
        kept = []


def test_a_reader_keeps_what_the_writer_deletes(rolled):
    store, _ = rolled
    with MessageStore.open(store.path, readonly=True, **SMALL) as reader:
        assert len(descriptors(reader)) == len(descriptors(store))      # all of the writer's
        assert store.clean(0, files_max=3).log_files == 3
        assert len(reader.get("T", 0, 0, 20)) == 20
