"""Who has the store: the lock goes with its holder, not with copies of a descriptor, and not with the name of a file."""
import os
import shutil
import subprocess
import sys
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.log.recovery import lockfile
from tests.forks import fork

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_the_lock_is_free_although_a_process_being_started_has_copies(tmp_path):
    """Between fork and exec, or before a child's first step, a copy of each descriptor is alive: closing ours frees nothing."""
    s = MessageStore.open(tmp_path / "s", **SMALL)
    copies = [os.dup(fd) for fd in (s._lock_fd, *lockfile._held[s._lock_fd])]
    assert len(copies) == 2
    try:
        s.close()
        MessageStore.open(tmp_path / "s", **SMALL).close()
    finally:
        for fd in copies:
            os.close(fd)


def test_a_child_forked_while_a_store_opens_does_not_keep_its_lock(tmp_path):
    io = ProbeIo()
    io.hold("open", path="/abort")
    opened = []
    opener = in_thread(lambda: opened.append(MessageStore.open(tmp_path / "s", _io=io, **SMALL)))
    io.wait_held(1)
    reader, writer = os.pipe()
    held_by_parent = len(lockfile._held) > 0
    pid = fork()
    if pid == 0:
        root = str(tmp_path / "s")
        mine = []
        for fd in os.listdir("/proc/self/fd"):
            try:
                path = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                continue
            if path in (root, root + "/lock"):
                mine.append(path)
        os.write(writer, b"%d %d" % (len(mine), len(lockfile._held)))
        os._exit(0)
    os.close(writer)
    try:
        assert (os.read(reader, 100), held_by_parent) == (b"0 0", True)
    finally:
        os.close(reader)
        os.waitpid(pid, 0)
        io.release()
        opener.join(30)
        for store in opened:
            store.close()


def test_a_lock_file_that_was_removed_lets_nobody_in(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        (tmp_path / "s/lock").unlink()
        with pytest.raises(errors.StoreLocked) as refused:
            MessageStore.open(tmp_path / "s", **SMALL)
        assert refused.value.pid == os.getpid()
        s.put("T", b"x")
    with MessageStore.open(tmp_path / "s", **SMALL) as s:       # and what is left is no obstacle
        assert s.max_offset("T", 0) == 1


def test_two_roots_over_one_log(tmp_path):
    log = str(tmp_path / "log")
    with MessageStore.open(tmp_path / "a", commitlog_path=log, **SMALL):
        with pytest.raises(errors.StoreLocked) as refused:
            MessageStore.open(tmp_path / "b", commitlog_path=log, **SMALL)
        assert refused.value.path == log
    MessageStore.open(tmp_path / "b", commitlog_path=log, **SMALL).close()


@pytest.mark.parametrize("text", [b"lock9999999999999999", b"lock-1", b"lock" + b"9" * 28, b""])
def test_a_lock_file_that_names_no_process(tmp_path, text):
    (tmp_path / "lock").write_bytes(text)
    assert lockfile.holder(str(tmp_path / "lock")) is None


def test_who_may_not_read_the_lock_is_told_nothing(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "lock").write_bytes(b"lock1")
    monkeypatch.setattr(lockfile, "open_regular", refuse)
    assert lockfile.holder(str(tmp_path / "lock")) is None


def test_a_holder_that_is_another_user_s(tmp_path, monkeypatch):
    def refuse(pid, signal):
        raise PermissionError(1, "Operation not permitted")

    (tmp_path / "lock").write_bytes(b"lock4321")
    monkeypatch.setattr(os, "kill", refuse)
    assert lockfile.holder(str(tmp_path / "lock")) == 4321


@pytest.mark.root
def test_process_1_of_another_container_is_not_this_process(tmp_path):
    """Each container has a process 1, and mostly it is the one that has the store."""
    new = ["unshare", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*new, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    root = str(tmp_path / "s")
    begin = f"import os, sys\nfrom rmq_store import MessageStore, errors\nassert os.getpid() == 1\nroot = {root!r}\n"
    ours = "    with MessageStore.open(root, segment_size_bytes=1 << 20):\n"
    first = subprocess.Popen([*new, sys.executable, "-c", begin + "if root:\n" + ours + "        print('open', flush=True)\n"
                              "        sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "open\n"
        second = begin + "try:\n" + ours + "        pass\nexcept errors.StoreLocked as error:\n    print(error.pid, error)\n"
        done = subprocess.run([*new, sys.executable, "-c", second], capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith("None ") and "is open in another process" in done.stdout, done
    finally:
        first.communicate(timeout=60)
    twice = begin + "if root:\n" + ours + "        try:\n    " + ours.replace("    with", "        with") + \
        "                pass\n        except errors.StoreLocked as error:\n            print(error.pid, error)\n"
    done = subprocess.run([*new, sys.executable, "-c", twice], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("1 ") and "is open in this process" in done.stdout, done
