"""The memory of the pool, and of the file that is written: what options ask for is so, as the kernel tells. A lock that was
asked for and refused is an error with the cure; one that only a profile wants is done without, and said."""
import ctypes
import errno
import logging
import os
import pathlib
import platform
import re
import resource
import subprocess

import pytest

from rmq_store import MessageStore
from rmq_store.access.core import _core
from rmq_store.base.machine import limits
from tests.diagnosis.limited import little_memlock, under
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 20, "message_size_max_bytes": 1000, "index_enabled": False, "pool_window_size_bytes": 65536}

CHILD = """
import logging, sys
from rmq_store import MessageStore
from rmq_store.base.machine import limits
logging.basicConfig(level=logging.WARNING, format="%(message)s")
try:
    with MessageStore.open(sys.argv[1], **eval(sys.argv[2])) as store:
        store.put("T", b"x", wait=True)
        print("stored")
except OSError as error:
    print(error)
"""


def child(path, **keywords):
    """Opens a store in a process that may lock 64 KiB, even as root."""
    return subprocess.run(under(little_memlock, CHILD, path, repr({**SMALL, **keywords})), capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])})


def maps_of(name):
    """What /proc says of this process's maps whose name contains `name`: [(name, KiB mapped, KiB there, KiB locked, flags)]."""
    found = []
    for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", pathlib.Path("/proc/self/smaps").read_text()):
        head, _, rest = part.partition("\n")
        if name in head:
            kib = dict(re.findall(r"^(\w+): +(\d+) kB$", rest, re.MULTILINE))
            flags = re.search(r"^VmFlags: (.*)$", rest, re.MULTILINE)[1].split()
            found.append((head.split(maxsplit=5)[5], int(kib["Size"]), int(kib["Rss"]), int(kib["Locked"]), flags))
    return found


def may_lock(size):
    """Skips where this process may not lock so many bytes."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if os.geteuid() != 0 and 0 <= limit < size:
        pytest.skip(f"the memlock limit is {limit}")


@pytest.mark.parametrize("asked", [False, True])
def test_the_pool_is_what_its_options_say(tmp_path, asked):
    """There from the beginning, absent in children, locked and advised huge if and only if that was asked for."""
    may_lock(1 << 24)
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_backend="fdatasync", pool_mlock=asked,
                           pool_hugepages=asked, **SMALL):
        maps = maps_of("rmq_store pool")
    assert len(maps) == 2
    for _, mapped, there, locked, flags in maps:
        assert there == mapped == 8 * 64
        assert "dc" in flags                    # not copied by fork
        assert ("lo" in flags, "hg" in flags) == (asked, asked)
        assert (locked > 0) == asked


def test_the_pool_is_of_all_nodes(tmp_path):
    """Whichever node the thread that opens is on: producers and the commit run on any."""
    number = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
    nodes = (ctypes.c_ulong * 16)()
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None or libc.syscall(number, None, nodes, 1024, None, 4) < 0:
        pytest.skip("the kernel does not say which nodes there are")
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_backend="fdatasync", **SMALL):
        lines = [line for line in pathlib.Path("/proc/self/numa_maps").read_text().splitlines() if "memfd:rmq_store" in line]
    assert len(lines) == 2 and all(line.split()[1].startswith("interleave") for line in lines), lines


def locked_files(store):
    """Offsets of the commit-log files whose maps are locked."""
    return sorted(int(os.path.basename(name)) for name, _, _, _, flags in maps_of(f"{store.path}/commitlog/") if "lo" in flags)


def test_the_file_that_is_written_and_the_next_are_locked(tmp_path):
    """Those behind them no longer: a store that has run for a week would else hold all it wrote."""
    may_lock(1 << 24)
    size = SMALL["segment_size_bytes"]
    with MessageStore.open(tmp_path / "s", segment_mlock=True, **{**SMALL, "message_size_max_bytes": 400_000}) as store:
        for _ in range(7):
            store.put("T", bytes(400_000))
        tail = store.max_log_offset // size * size
        assert tail == 3 * size
        until(lambda: locked_files(store)[:1] == [tail])
        until(lambda: tail + size in locked_files(store))
        assert set(locked_files(store)) <= {tail, tail + size, tail + 2 * size}     # the third, where they fill fast
    with MessageStore.open(tmp_path / "s", segment_mlock=True, **{**SMALL, "message_size_max_bytes": 400_000}) as store:
        until(lambda: locked_files(store)[:1] == [tail])                            # one that was there is locked, too
        for _ in range(2):
            store.put("T", bytes(400_000))
        until(lambda: locked_files(store)[:1] == [tail + size])                     # until the log is behind it
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
        assert locked_files(store) == []


def test_files_that_fill_faster_than_their_maker_looks_do_not_stay_locked(tmp_path):
    """Zeros for the next file keep it busy meanwhile: it finds the log two files on."""
    may_lock(1 << 24)
    keywords = {**SMALL, "message_size_max_bytes": 600_000, "segment_mlock": True, "segment_prezero": "full"}
    with MessageStore.open(tmp_path / "s", **keywords) as store:
        for _ in range(100):
            store.put("T", bytes(600_000))
        tail = store.max_log_offset // SMALL["segment_size_bytes"] * SMALL["segment_size_bytes"]
        until(lambda: tail in locked_files(store))
        until(lambda: min(locked_files(store)) == tail)


def test_a_lock_of_files_asked_for_and_refused_names_the_cure(tmp_path):
    done = child(tmp_path / "s", segment_mlock=True)
    assert f"{os.strerror(errno.ENOMEM)}: mlock of the commit-log file" in done.stdout, done.stdout + done.stderr
    assert "memlock limit of 65536: raise it to 2097152 or more" in done.stdout and "segment_mlock=False" in done.stdout
    (tmp_path / "mine.toml").write_text("segment_mlock = true\n")
    done = child(tmp_path / "s", profile=str(tmp_path / "mine.toml"))
    assert done.stdout == "stored\n", done.stderr
    assert done.stderr.count("stays unlocked") == 1 and "set segment_mlock=False" in done.stderr


def test_a_lock_asked_for_and_refused_names_the_cure(tmp_path):
    done = child(tmp_path, write_path="pool", pool_mlock=True)
    assert "memlock limit of 65536: raise it to 1048576 or more" in done.stdout, done.stderr
    assert "pool_mlock=False" in done.stdout


def test_a_profile_does_without(tmp_path):
    done = child(tmp_path, profile="low_latency")
    assert done.stdout == "stored\n", done.stderr
    assert "mlock of 1048576 bytes refused" in done.stderr


def test_huge_pages_that_are_not_to_be_had_are_said(tmp_path, caplog):
    """Whatever the kernel answers, the store works."""
    caplog.set_level(logging.WARNING, logger="rmq_store")
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_backend="fdatasync", pool_hugepages=True, **SMALL) as store:
        assert store.put("T", b"x", wait=True).status == 0
    said = [r.getMessage() for r in caplog.records if r.event == "HUGEPAGES_REFUSED"]
    assert (said == []) == (limits.huge_pages() is None)
    assert all("shmem_enabled is" in text for text in said)


def test_windows_are_whole_pages_of_the_kernel(tmp_path, monkeypatch):
    """Those of arm64 may have 64 KiB, and a ring that is mapped twice, back to back, ends where a page does."""
    monkeypatch.setattr(_core, "PAGESIZE", 65536)
    options = {**SMALL, "pool_window_size_bytes": 12288}
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_backend="fdatasync", **options) as store:
        maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
        bounds = [line.split()[0].split("-") for line in maps if "rmq_store pool" in line]
        assert len(bounds) == 2 and {int(end, 16) - int(begin, 16) for begin, end in bounds} == {8 * 65536}
        assert store.put("T", b"x", wait=True).status == 0


def test_what_the_kernel_says_about_huge_pages(tmp_path):
    file = tmp_path / "sys/kernel/mm/transparent_hugepage/shmem_enabled"
    assert limits.huge_pages(str(tmp_path)) is None
    file.parent.mkdir(parents=True)
    file.write_text("always within_size [advise] never deny force")
    assert limits.huge_pages(str(tmp_path)) is None
    file.write_text("always within_size advise [never] deny force")
    assert "is always within_size advise [never]" in limits.huge_pages(str(tmp_path))
