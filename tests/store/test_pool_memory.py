"""The pool's memory: a lock that was asked for and refused is an error with the cure; one that only a profile wants is done
without."""
import ctypes
import logging
import os
import pathlib
import resource
import subprocess
import sys

from rmq_store import MessageStore, _core, machine

SMALL = {"segment_size_bytes": 1 << 20, "message_size_max_bytes": 1000, "index_enabled": False, "pool_window_size_bytes": 65536}

CAP_IPC_LOCK, PR_CAPBSET_DROP = 14, 24
CHILD = """
import logging, sys
from rmq_store import MessageStore, machine
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
    libc = ctypes.CDLL(None)

    def limited():
        libc.prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)      # refused where it is not root: then the limit counts anyhow
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    return subprocess.run([sys.executable, "-c", CHILD, str(path), repr({**SMALL, **keywords})], capture_output=True, text=True,
                          preexec_fn=limited, env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])})


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
    assert (said == []) == (machine.huge_pages() is None)
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
    assert machine.huge_pages(str(tmp_path)) is None
    file.parent.mkdir(parents=True)
    file.write_text("always within_size [advise] never deny force")
    assert machine.huge_pages(str(tmp_path)) is None
    file.write_text("always within_size advise [never] deny force")
    assert "is always within_size advise [never]" in machine.huge_pages(str(tmp_path))
