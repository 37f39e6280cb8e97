"""Bad days, above all of io_uring: a machine that refuses it, no memory to lock, a slow device, a signal, a fork."""
import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import BackendUnavailable, ForkedProcess, PoolExhausted
from rmq_store.log.flush import backend
from rmq_store.log.flush._uring import uring_probe
from tests.crash import scenario
from tests.crash.states import Scratch
from tests.forks import fork

ROOT = Path(__file__).parents[2]
SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 4000, "message_size_max_bytes": 60_000}
ring_needed = pytest.mark.skipif(not scenario.RING_HERE, reason="the kernel refuses a ring")
backends = pytest.mark.parametrize("backend_name", [pytest.param("io_uring", marks=ring_needed), "fdatasync", "msync"])


def uring(path, **more):
    return MessageStore.open(path, **{**SMALL, "flush_backend": "io_uring", **more})


def child(code, *arguments):
    """Runs Python code in a process of its own; what it printed last, from JSON."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], cwd=ROOT, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# ---- io_uring refused

SECCOMP = """
    import ctypes, json, struct, sys, errno
    from rmq_store import MessageStore
    from rmq_store.errors import BackendUnavailable
    code = int(sys.argv[2])
    # allow everything but io_uring_setup, which fails with `code` (asm-generic and x86-64: system call 425)
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050000 | code), (0x06, 0, 0, 0x7fff0000)]
    program = b"".join(struct.pack("HBBI", *r) for r in rules)
    class Program(ctypes.Structure):
        _fields_ = [("n", ctypes.c_ushort), ("rules", ctypes.c_char_p)]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(len(rules), program)), 0, 0):
        print(json.dumps({"skipped": ctypes.get_errno()}))
        sys.exit()
    try:
        MessageStore.open(sys.argv[1], flush_backend="io_uring").close()
        said = "opened"
    except BackendUnavailable as e:
        said = str(e)
    with MessageStore.open(sys.argv[1], flush_backend="auto", write_path="pool") as store:
        store.put("T", b"all the same")
        store.flush()
    print(json.dumps({"said": said}))
"""


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS], ids=errno.errorcode.get)
def test_a_sandbox_without_io_uring(tmp_path, code):
    found = child(SECCOMP, tmp_path / "s", code)
    if "skipped" in found:
        pytest.skip(f"no seccomp filter can be set: {os.strerror(found['skipped'])}")
    assert "io_uring" in found["said"] and "flush_backend='auto'" in found["said"]
    assert ("forbidden" if code == errno.EPERM else "has no io_uring") in found["said"]


@pytest.mark.parametrize("kind,code,text", [
    ("ring_setup", errno.EPERM, "forbidden"), ("ring_setup", errno.ENOMEM, "memlock"),
    ("ring_setup", errno.EMFILE, "descriptor"),
    ("ring_write", errno.EOPNOTSUPP, "a write by io_uring failed"), ("ring_sync", errno.EINVAL, "a sync by io_uring failed"),
])
def test_a_refusal_names_its_reason_and_leaves_nothing_behind(tmp_path, kind, code, text):
    io = ProbeIo()
    io.fail(kind, 1, code, sticky=code == errno.ENOMEM)     # for that the kernel is asked again
    with pytest.raises(BackendUnavailable, match=text):
        uring(tmp_path / "s", _io=io)
    with MessageStore.open(tmp_path / "s", **SMALL) as store:       # the lock is free, no file half made
        store.put("T", b"x")


def test_the_mapped_write_path_has_no_ring(tmp_path):
    with pytest.raises(BackendUnavailable, match="write_path"):
        uring(tmp_path / "s", write_path="mmap")


@ring_needed
def test_memory_that_the_kernel_gives_back_late_is_waited_for(tmp_path):
    """It counts a ring that was closed against the limit until it has taken it down."""
    io = ProbeIo()
    io.fail("ring_setup", 1, errno.ENOMEM)
    with uring(tmp_path / "s", _io=io) as store:
        assert store.put("T", b"x", wait=True).status.name == "PUT_OK" and io.hits == 1


# ---- no memory to lock

MEMLOCK = """
    import json, logging, os, resource, sys, crc32c      # while this user can read it
    from rmq_store import MessageStore
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)      # and with it CAP_IPC_LOCK
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    said = []
    class Keep(logging.Handler):
        def emit(self, record):
            said.append(record.event)
    logging.getLogger("rmq_store").addHandler(Keep())
    logging.getLogger("rmq_store").setLevel(logging.INFO)
    with MessageStore.open(sys.argv[1], flush_backend="io_uring", segment_size_bytes=1 << 20) as store:
        for i in range(500):
            store.put("T", b"%04d" % i * 500, queue_id=0)
        store.flush()
        store.wait_dispatched(30)
        right = [bytes(m.body) for m in store.scan("T", 0)] == [b"%04d" % i * 500 for i in range(500)]
    print(json.dumps({"right": right, "said": said}))
"""


@ring_needed
def test_memlock_of_64_kib(tmp_path):
    """Registration refused: each write names its memory, with one line that says so."""
    place = tmp_path
    for part in (tmp_path, *tmp_path.parents[:3]):
        if os.getuid() == 0 and part != Path("/tmp"):
            part.chmod(0o777)
            place = tmp_path
    found = child(MEMLOCK, place / "s")
    assert found["right"]
    assert found["said"].count("BUFFERS_REFUSED") == 1, found


@ring_needed
@pytest.mark.parametrize("kind", ["ring_buffers", "ring_files", "ring_file"])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_refused_registrations_are_done_without(tmp_path, kind, mode):
    io = ProbeIo(keep_bytes=False)
    io.fail(kind, 1, errno.ENOMEM, sticky=True)
    sent = [b"%05d" % i * 300 for i in range(300)]
    with uring(tmp_path / "s", _io=io, flush_mode=mode) as store:
        for body in sent:
            store.put("T", body, queue_id=0, wait=False)
        store.flush()
        assert store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent


# ---- no direct I/O

@ring_needed
def test_direct_io_on_tmpfs(tmp_path):
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs at /dev/shm")
    with Scratch(tmp_path) as scratch:
        with pytest.raises(BackendUnavailable, match="direct I/O"):
            uring(scratch.write({}), uring_direct="on")
        with uring(scratch.write({})) as store:
            store.put("T", b"through the page cache")
            store.flush()
            assert store.wait_dispatched(30) and len(store.get("T", 0, 0)) == 1


@ring_needed
def test_a_device_with_larger_blocks_is_written_through_the_page_cache(tmp_path, caplog):
    io = ProbeIo()
    io.fail("open", 2, errno.EINVAL, path=".uring-probe")       # as a file system that knows O_DIRECT but refuses it
    with caplog.at_level("INFO", "rmq_store"), uring(tmp_path / "s", _io=io) as store:
        store.put("T", b"x")
    assert [r.event for r in caplog.records if r.event in ("DIRECT_REFUSED", "RING_READY")] == ["DIRECT_REFUSED", "RING_READY"]


@ring_needed
def test_a_device_that_takes_only_larger_blocks_than_ours(tmp_path, caplog, monkeypatch):
    """It writes through the page cache, with one line that says so; direct I/O asked for by name is an error."""
    monkeypatch.setattr(backend, "uring_probe", lambda *a, **more: {**uring_probe(*a, **more), "align": 16384})
    with caplog.at_level("INFO", "rmq_store"), uring(tmp_path / "s") as store:
        assert store.put("T", b"x", wait=True).status == 0
    assert ["16384" in r.getMessage() for r in caplog.records if r.event == "DIRECT_REFUSED"] == [True]
    with pytest.raises(BackendUnavailable, match="alignment of 16384"):
        uring(tmp_path / "s", uring_direct="on")


@ring_needed
def test_files_of_odd_size_are_written_through_the_page_cache(tmp_path):
    with pytest.raises(BackendUnavailable, match="segment_size_bytes"):
        uring(tmp_path / "s", segment_size_bytes=(1 << 20) + 100, uring_direct="on")
    with uring(tmp_path / "t", segment_size_bytes=(1 << 16) + 100, message_size_max_bytes=20_000) as store:
        sent = [bytes([i]) * 9000 for i in range(40)]
        for body in sent:
            store.put("T", body, queue_id=0)
        store.flush()
        assert store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("T", 0)] == sent


# ---- a device that hangs, then answers

@backends
@pytest.mark.parametrize("empty", ["wait", "fail"])
def test_a_stalled_device_is_back_pressure_and_bounded(tmp_path, empty, backend_name):
    io = ProbeIo(keep_bytes=False)
    body = b"x" * 50_000
    with uring(tmp_path / "s", _io=io, pool_empty=empty, pool_window_size_bytes=64 << 10, segment_size_bytes=64 << 20,
               commit_interval_max_ms=1, flush_backend=backend_name, write_path="pool") as store:
        store.put("T", body, queue_id=0)
        store.flush()
        io.hold("ring_submit|pwrite|map_store|msync")
        if empty == "fail":
            refused, stored = 0, 1
            while not refused:
                try:
                    store.put("T", body, queue_id=0)
                    stored += 1
                except PoolExhausted as error:
                    refused += 1
                    assert "the device does not keep up" in str(error)
            io.release()
        else:
            stored = 21
            producer = threading.Thread(target=lambda: [store.put("T", body, queue_id=0) for _ in range(20)])
            producer.start()
            pause = threading.Event()
            while store.stats()["pool_waits"] == 0:
                pause.wait(0.001)
            assert store._position("wrote") - store.stats()["committed"] <= store.stats()["pool_bytes"]
            io.release()
            producer.join()
        store.put("T", b"and on", queue_id=0)
        store.flush()
        assert store.wait_dispatched(30)
        got = [bytes(m.body) for m in store.scan("T", 0)]
        assert got[:-1] == [body] * stored and got[-1] == b"and on"


@ring_needed
def test_a_device_that_answers_late_loses_nothing(tmp_path):
    """Every submission and sync waits for another thread to let it go: a hundred times slower than the others expect."""
    io = ProbeIo(keep_bytes=False)
    sent = [b"%04d" % i * 100 for i in range(200)]
    with uring(tmp_path / "s", _io=io, flush_interval_ms=1, commit_interval_max_ms=1) as store:
        done = threading.Event()

        def gate():
            while not done.is_set():
                io.hold("ring_submit|fdatasync")
                done.wait(0.005)
                io.release()
                done.wait(0.0005)

        slow = threading.Thread(target=gate)
        slow.start()
        for body in sent:
            store.put("T", body, queue_id=0)
        store.flush()
        done.set()
        slow.join()
        io.release()
        assert store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent


# ---- fork and signals

FORKED = {"direct": {}, "buffered": {"uring_direct": "off"}, "fdatasync": {"flush_backend": "fdatasync", "write_path": "pool"},
          "mmap": {"flush_backend": "fdatasync"}}


@pytest.mark.parametrize("way", [pytest.param(w, marks=ring_needed if w in ("direct", "buffered") else ()) for w in FORKED])
def test_fork_while_writes_are_in_flight(tmp_path, way):
    sent = [b"%05d" % i * 1500 for i in range(900)]
    with uring(tmp_path / "s", commit_interval_max_ms=1, **FORKED[way]) as store:
        producer = threading.Thread(target=lambda: [store.put("T", body, queue_id=0) for body in sent])
        producer.start()
        for _ in range(6):
            pid = fork()
            if pid == 0:
                try:
                    store.put("T", b"from the child")
                except ForkedProcess:
                    os._exit(7)
                os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        producer.join()
        store.flush()
        assert store.wait_dispatched(30)
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert [bytes(m.body) for m in store.scan("T", 0)] == sent


VICTIM = """
    import json, os, sys, threading
    from rmq_store import MessageStore
    from rmq_store.errors import RmqStoreError
    store = MessageStore.open(sys.argv[1], flush_mode="sync", signals=True, segment_size_bytes=1 << 20,
                              **json.loads(sys.argv[2]))
    def produce(k):
        i = 0
        try:
            while True:
                body = b"%d-%d" % (k, i)
                if store.put("T", body, queue_id=k).status == 0:
                    os.write(1, body + b"\\n")
                i += 1
        except RmqStoreError:
            pass
    threads = [threading.Thread(target=produce, args=(k,), daemon=True) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
"""


@pytest.mark.parametrize(("write_path", "backend_name"), [
    pytest.param("pool", "io_uring", marks=ring_needed), ("pool", "fdatasync"), ("pool", "msync"), ("mmap", "fdatasync"),
    ("mmap", "msync")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_signal_in_the_middle_of_a_group_commit(tmp_path, number, write_path, backend_name):
    options = json.dumps({"write_path": write_path, "flush_backend": backend_name})
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(VICTIM), str(tmp_path / "s"), options], cwd=ROOT,
                          stdout=subprocess.PIPE) as victim:
        head = [victim.stdout.readline() for _ in range(200)]
        victim.send_signal(number)
        acknowledged = {line.strip() for line in [*head, *victim.stdout] if line.endswith(b"\n")}
    assert len(acknowledged) >= 200
    assert (tmp_path / "s/abort").exists() == (number == signal.SIGKILL)
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        there = {bytes(m.body) for m in store.scan("T")}
    assert not acknowledged - there
