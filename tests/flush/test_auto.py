"""flush_backend="auto": the best that works here, one log line with the reason, tried once; a named one is not tried."""
import errno
import json
import logging
import os
import tempfile

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.log.flush import backend
from rmq_store.log.flush._uring import uring_probe
from tests.diagnosis.limited import little_memlock, no_io_uring, run

SMALL = {"segment_size_bytes": 1 << 20, "index_enabled": False, "message_size_max_bytes": 1000}

CHILD = """
import json, logging, sys
lines = []
class Keep(logging.Handler):
    def emit(self, record):
        lines.append((record.event, record.getMessage()))
logging.getLogger("rmq_store").addHandler(Keep())
logging.getLogger("rmq_store").setLevel(logging.INFO)
from rmq_store import MessageStore
try:
    with MessageStore.open(sys.argv[1], **json.loads(sys.argv[2])) as store:
        store.put("T", b"x", wait=True)
        backend = store.options.flush_backend
except Exception as error:
    backend = f"{type(error).__name__}: {error}"
print(json.dumps([backend, lines]))
"""


@pytest.fixture(autouse=True)
def nothing_tried_yet(monkeypatch):
    monkeypatch.setattr(backend, "_tried", {})


def chosen(caplog):
    return [r.getMessage() for r in caplog.records if r.event == "BACKEND_CHOSEN"]


def opened(path, caplog, io=None, **options):
    caplog.clear()
    caplog.set_level(logging.INFO, logger="rmq_store")
    with MessageStore.open(path, _io=io, **{**SMALL, **options}) as store:
        assert store.put("T", b"x", wait=True).status == 0
        return store.options.flush_backend, store.options.origin("flush_backend")


def direct_here(path):
    found = uring_probe(path)
    return not any(found[s] for s in ("setup", "write", "sync", "direct", "direct_write", "direct_sync"))


def test_the_pool_gets_io_uring_where_it_works(tmp_path, caplog):
    if not direct_here(tmp_path):
        pytest.skip("no io_uring with direct I/O here")
    assert opened(tmp_path / "s", caplog, write_path="pool") == ("io_uring", "auto")
    assert chosen(caplog) == ["flush_backend auto chose io_uring, because io_uring and direct I/O work here"]


def test_the_map_gets_fdatasync_and_nothing_is_tried(tmp_path, caplog):
    io = ProbeIo()
    assert opened(tmp_path / "s", caplog, io) == ("fdatasync", "auto")
    assert chosen(caplog) == ["flush_backend auto chose fdatasync, because write_path "
                              "mmap leaves the writing to the page cache"]
    assert not any(kind.startswith("ring") for kind in io.counts())


def test_a_master_whose_puts_wait_writes_through_the_page_cache(tmp_path, caplog):
    """A write that waits for the device would be in front of every acknowledgement, with asynchronous flush, too."""
    io = ProbeIo()
    master = {"write_path": "pool", "role": "sync_master", "ha_listen": "127.0.0.1:0"}
    caplog.set_level(logging.INFO, logger="rmq_store")
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL, **master) as store:
        assert (store.options.flush_backend, store.options.origin("flush_backend")) == ("fdatasync", "auto")
    assert chosen(caplog) == ["flush_backend auto chose fdatasync, because puts wait until they are committed and replicated, "
                              "and a page cache takes them sooner than a device"]
    assert not any(kind.startswith("ring") for kind in io.counts())
    if direct_here(tmp_path):
        with MessageStore.open(tmp_path / "t", flush_mode="sync", **SMALL, **master) as store:
            assert store.options.flush_backend == "io_uring"        # its puts wait for the device anyway


def test_a_named_back_end_is_taken_without_trying(tmp_path, caplog):
    io = ProbeIo()
    assert opened(tmp_path / "s", caplog, io, write_path="pool", flush_backend="fdatasync") == ("fdatasync", "keyword")
    assert chosen(caplog) == [] and not any(kind.startswith("ring") for kind in io.counts())
    assert opened(tmp_path / "t", caplog, io, profile="ssd")[0] == "fdatasync"
    assert not any(kind.startswith("ring") for kind in io.counts())


@pytest.mark.parametrize(("kind", "code", "reason"), [
    ("ring_setup", errno.EPERM, "io_uring is forbidden here (a container's seccomp profile, or kernel.io_uring_disabled)"),
    ("ring_setup", errno.ENOSYS, "the kernel, or a container's seccomp profile, has no io_uring"),
    ("ring_sync", errno.EINVAL, "a sync by io_uring failed: Invalid argument"),
    ("direct_align", errno.EOPNOTSUPP, "there is no direct I/O here, and without it io_uring gains nothing"),
])
def test_what_is_refused_is_the_reason(tmp_path, caplog, kind, code, reason):
    if uring_probe(tmp_path)["setup"]:
        pytest.skip("no io_uring here")
    io = ProbeIo()
    io.fail(kind, 1, code, sticky=True)
    assert opened(tmp_path / "s", caplog, io, write_path="pool")[0] == "fdatasync"
    assert chosen(caplog) == [f"flush_backend auto chose fdatasync, because {reason}"]


def test_switched_off_by_an_option(tmp_path, caplog):
    assert opened(tmp_path / "s", caplog, write_path="pool", uring_direct="off")[0] == "fdatasync"
    assert "uring_direct is off" in chosen(caplog)[0]


@pytest.mark.untraced       # what a probe makes of the calls is tried each time
def test_tried_once_a_process_for_each_device_and_set_of_options(tmp_path, caplog, monkeypatch):
    tries = []
    real = backend.choose_uring
    monkeypatch.setattr(backend, "choose_uring", lambda *a: tries.append(a) or real(*a))
    first = opened(tmp_path / "a", caplog, write_path="pool")
    assert opened(tmp_path / "b", caplog, write_path="pool") == first and len(tries) == 1
    assert len(chosen(caplog)) == 1         # and is said all the same
    opened(tmp_path / "c", caplog, write_path="pool", flush_mode="sync")
    assert len(tries) == 2
    opened(tmp_path / "d", caplog, ProbeIo(), write_path="pool")
    opened(tmp_path / "e", caplog, ProbeIo(), write_path="pool")
    assert len(tries) == 4


def test_a_file_system_in_memory(caplog):
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs at /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        assert opened(os.path.join(place, "s"), caplog, write_path="pool")[0] == "fdatasync"
    assert "no direct I/O" in chosen(caplog)[0] or "io_uring" in chosen(caplog)[0]


def test_a_sandbox_without_io_uring(tmp_path):
    """auto goes on with the next best; asked for by name it is an error with the cure, and no store is left half made."""
    if uring_probe(tmp_path)["setup"]:
        pytest.skip("no io_uring here")
    got, lines = run(no_io_uring, CHILD, tmp_path / "s", json.dumps({**SMALL, "write_path": "pool"}))
    assert got == "fdatasync"
    assert [text for event, text in lines if event == "BACKEND_CHOSEN"] == [
        "flush_backend auto chose fdatasync, because io_uring is forbidden here (a container's seccomp profile, or "
        "kernel.io_uring_disabled)"]
    got, _ = run(no_io_uring, CHILD, tmp_path / "t", json.dumps({**SMALL, "flush_backend": "io_uring"}))
    assert got.startswith("BackendUnavailable: flush_backend 'io_uring' cannot be used here: io_uring is forbidden here")
    assert "allow io_uring_setup" in got


def test_little_memory_to_lock(tmp_path):
    if not direct_here(tmp_path):
        pytest.skip("no io_uring with direct I/O here")
    got, lines = run(little_memlock, CHILD, tmp_path / "s", json.dumps({**SMALL, "write_path": "pool"}))
    assert got == "io_uring" and any(event == "BUFFERS_REFUSED" for event, _ in lines)
