"""Opening, closing, locking, forking, leases: what a service does to a store, in and out of order."""
import multiprocessing
import os
import pickle
import pydoc
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from rmq_store import MessageStore, errors
from tests.forks import fork

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}


def test_close_is_idempotent_and_final(tmp_path):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    s.put("T", b"x")
    s.close()
    s.close()
    for call in (lambda: s.put("T", b"y"), lambda: s.get("T", 0, 0), s.flush, s.stats, s.topics,
                 lambda: s.put_many("T", [b"a"]), lambda: s.put_async("T", b"a"), lambda: next(s.scan())):
        with pytest.raises(errors.StoreClosed):
            call()


def test_clean_close_leaves_what_upstream_leaves(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as s:
        assert (root / "abort").read_bytes() == str(os.getpid()).encode()
        s.put("T", b"x", keys="k")
    assert not (root / "abort").exists()
    assert (root / "lock").read_bytes() == b"lock" and (root / "checkpoint").stat().st_size == 4096
    assert [p.name for p in (root / "commitlog").iterdir()] == ["0" * 20]       # no pre-allocated file left
    assert list((root / ".alloc").iterdir()) == []


def test_second_opener_is_refused_with_the_pid(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as s:
        with pytest.raises(errors.StoreLocked) as caught:
            MessageStore.open(root, **SMALL)
        assert caught.value.pid == os.getpid()
        code = f"from rmq_store import MessageStore, errors\ntry: MessageStore.open({str(root)!r})\n" \
               "except errors.StoreLocked as e: print(e.pid)"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert out.stdout.strip() == str(os.getpid())
        assert s.put("T", b"still mine").status == 0
    MessageStore.open(root, **SMALL).close()


def test_forked_child_gets_a_typed_error(tmp_path):
    root = tmp_path / "s"
    s = MessageStore.open(root, write_path="pool", **SMALL)
    s.put("T", b"x")
    reader, writer = os.pipe()
    pid = fork()
    if pid == 0:
        said = []
        for call in (lambda: s.put("T", b"y"), lambda: s.get("T", 0, 0), s.flush, s.stats, s.close):
            try:
                call()
                said.append("no error")
            except errors.ForkedProcess:
                said.append("forked")
        os.write(writer, ",".join(said).encode())
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 1000) == b"forked,forked,forked,forked,forked"
    os.close(reader)
    assert os.waitpid(pid, 0)[1] == 0
    assert s.put("T", b"z").queue_offset == 1
    s.close()
    with MessageStore.open(root, **SMALL) as again:
        assert [bytes(m.body) for m in again.scan("T", 0)] == [b"x", b"z"]


def test_lock_goes_with_the_parent_although_a_child_lives(tmp_path):
    root = tmp_path / "s"
    s = MessageStore.open(root, **SMALL)
    reader, writer = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    s.close()
    MessageStore.open(root, **SMALL).close()
    os.close(writer)
    os.waitpid(pid, 0)


def test_views_outlive_the_store_and_a_strict_close_says_so(tmp_path):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    s.put("T", b"kept")
    s.wait_dispatched(10)
    view = s.get("T", 0, 0)[0].body
    with pytest.raises(errors.ViewsAlive, match="is closed, but 1 groups of message views are alive") as told:
        s.close(strict=True)
    assert isinstance(told.value, BufferError) and told.value.leases == 1
    with pytest.raises(errors.ViewsAlive):          # asked again, it says so again
        s.close(strict=True)
    s.close()
    assert s.closed and bytes(view) == b"kept"
    with MessageStore.open(tmp_path / "s", **SMALL) as again:       # lock, threads and abort file are gone all the same
        assert again.put("T", b"more").queue_offset == 1
    assert bytes(view) == b"kept"


def test_open_stores_are_closed_at_exit(tmp_path):
    root = tmp_path / "s"
    code = f"from rmq_store import MessageStore\ns = MessageStore.open({str(root)!r}, write_path='pool')\n" \
           "s.put('T', b'x')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert not (root / "abort").exists()
    with MessageStore.open(root) as s:
        assert [bytes(m.body) for m in s.scan("T", 0)] == [b"x"]


def put_and_return(root):
    s = MessageStore.open(root, write_path="pool", commit_interval_max_ms=10_000, commit_pages_min=1000)
    for _ in range(100):
        s.put("T", b"x")


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_worker_of_multiprocessing_closes_its_stores(tmp_path, method):
    worker = multiprocessing.get_context(method).Process(target=put_and_return, args=(tmp_path / "s",))
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0 and not (tmp_path / "s" / "abort").exists()
    with MessageStore.open(tmp_path / "s") as s:
        assert s.max_offset("T", 0) == 100


def test_signal_closes_when_asked(tmp_path):
    root = tmp_path / "s"
    code = f"import time\nfrom rmq_store import MessageStore\ns = MessageStore.open({str(root)!r}, signals=True)\n" \
           "s.put('T', b'x')\nprint('ready', flush=True)\nwhile True:\n    time.sleep(0.1)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == -signal.SIGTERM
    child.stdout.close()
    assert not (root / "abort").exists()


@pytest.mark.root
def test_signal_ends_process_1_of_a_container(tmp_path):
    """The kernel keeps a signal from process 1 that it has no handler for: it would go on, with a closed store."""
    new = ["unshare", "--pid", "--fork", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*new, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    root = tmp_path / "s"
    code = f"import os, signal\nfrom rmq_store import MessageStore\ns = MessageStore.open({str(root)!r}, signals=True)\n" \
           "s.put('T', b'x')\nassert os.getpid() == 1\nos.kill(1, signal.SIGTERM)\nprint('goes on')"
    done = subprocess.run([*new, sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, ""), done
    assert not (root / "abort").exists()


def test_a_store_cannot_be_pickled(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s, pytest.raises(TypeError, match="send its path"):
        pickle.dumps(s)


def test_readonly_writes_not_one_byte(tmp_path):
    root = tmp_path / "s"
    with MessageStore.open(root, **SMALL) as s:
        s.put_many("T", [b"%d" % i for i in range(100)])
        s.wait_dispatched(10)
        with MessageStore.open(root, readonly=True, **SMALL) as r:      # beside the live writer
            assert len(list(r.scan("T", 0))) == 100
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")}
    with MessageStore.open(root, readonly=True) as r:                   # sizes are inferred
        assert r.options.segment_size_bytes == 1 << 18
        assert [bytes(m.body) for m in r.scan("T", 0)] == [b"%d" % i for i in range(100)]
        assert not r.stats()["needs_recovery"]
        for call in (lambda: r.put("T", b"x"), r.flush, lambda: r.put_many("T", [b"x"])):
            with pytest.raises(errors.StoreNotWriteable):
                call()
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")} == before


def test_close_waits_for_calls_in_other_threads(tmp_path):
    s = MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL)
    acknowledged, begun = [], threading.Event()

    def produce():
        try:
            while True:
                acknowledged.append(s.put("T", b"x").queue_offset)
                begun.set()
        except errors.StoreClosed:
            pass

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for t in threads:
        t.start()
    begun.wait(30)
    s.close()
    for t in threads:
        t.join(30)
        assert not t.is_alive()
    with MessageStore.open(tmp_path / "s", **SMALL) as again:
        assert again.max_offset("T", 0) >= len(acknowledged)
        assert sorted(acknowledged) == list(range(len(acknowledged)))


def test_help_shows_no_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "not-for-help")
    text = pydoc.plain(pydoc.render_doc(MessageStore))
    assert "_environment" in text and "environ(" not in text and not any(v in text for v in os.environ.values() if len(v) > 8)
