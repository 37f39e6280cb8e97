"""close() against everything that may be under way: calls without the GIL, callbacks, signal handlers, Ctrl-C, failures."""
import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import PutStatus

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}


def in_thread(call):
    """Runs `call` in a thread. Returns (thread, list that gets its result or exception)."""
    out = []

    def run():
        try:
            out.append(call())
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, out


def script(text, *, signal_number=None, timeout=60):
    """Runs a script that prints "ready" when it may get the signal; returns its exit code and the rest it printed."""
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        if signal_number is not None:
            child.send_signal(signal_number)
        rest, _ = child.communicate(timeout=timeout)
    finally:
        child.kill()
        child.wait()
    return child.returncode, rest


@pytest.mark.parametrize("call", [lambda s: s.get("T", 0, 0), lambda s: s.raw_entry("T", 0, 0)], ids=["get", "raw_entry"])
def test_close_waits_for_a_reader_that_is_in_a_call_of_the_kernel(tmp_path, call):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put_many("T", [b"x" * 100_000] * 6)
    io = ProbeIo(keep_bytes=False)
    s = MessageStore.open(tmp_path / "s", readonly=True, _io=io, **SMALL | {"recover_check_crc": False})
    io.hold("pread", "/consumequeue/T/0/")
    reader, read = in_thread(lambda: type(call(s)))
    io.wait_held(1)
    closer, closed = in_thread(s.close)
    closer.join(0.2)
    assert closer.is_alive()            # else what the reader works on is gone
    io.release()
    reader.join(30)
    closer.join(30)
    assert not isinstance(read[0], BaseException) and closed == [None]


class ClosingProperties(Mapping):
    """Properties whose reading closes the store, as any Python code in the middle of a put may."""

    def __init__(self, store):
        self.store = store

    def __getitem__(self, name):
        return "v"

    def __len__(self):
        return 1

    def __iter__(self):
        self.store.close()
        return iter(["n"])


@pytest.mark.parametrize("name", ["put", "put_many", "put_async", "put_batch"])
def test_a_put_that_close_overtakes_is_refused(tmp_path, name):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    batch = bytes.fromhex("00000017 00000000 00000000 00000000 00000001 78 0000")
    body = {"put_many": [b"x"], "put_batch": batch}.get(name, b"x")
    with pytest.raises(errors.StoreClosed):
        getattr(s, name)("T", body, properties=ClosingProperties(s))
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.stats()["wrote"] == 0


def test_a_wait_without_end_does_not_keep_the_store_open(tmp_path):
    io = ProbeIo(keep_bytes=False)
    s = MessageStore.open(tmp_path / "s", close_timeout_ms=10, _io=io, **SMALL)
    io.fail("open", errno=errno.ENOSPC, path="consumequeue.ne", sticky=True)
    s.put("T", b"x")
    waiter, waited = in_thread(s.wait_dispatched)
    while s.stats()["dispatch_behind_bytes"] and not io.hits:
        pass
    with pytest.warns(RuntimeWarning, match="the abort file stays"):
        s.close()
    waiter.join(30)
    assert not waiter.is_alive() and isinstance(waited[0], errors.StoreClosed)
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.max_offset("T", 0) == 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_close_inside_a_callback(tmp_path, mode):
    s = MessageStore.open(tmp_path / "s", flush_mode=mode, **SMALL)
    closed = threading.Event()

    def close(_):
        s.close()
        closed.set()

    first = s.put_async("T", b"1", wait=True)
    first.add_done_callback(close)
    more = []
    try:
        for _ in range(1000):
            more.append(s.put_async("T", b"2", wait=True))
    except errors.StoreClosed:
        pass
    assert closed.wait(30)
    assert all(f.result(30).status is PutStatus.PUT_OK for f in [first, *more])
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.max_offset("T", 0) == 1 + len(more)


def test_a_future_made_while_the_store_closes_is_completed(tmp_path):
    s = MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL)
    s.put_async("T", b"1").result(30)
    r = s.put("T", b"2")
    s._completer.close()            # as if close() had come this far after the append of a put_async
    assert s._completer.pending(r, r.offset + r.size).result(30).status is PutStatus.PUT_OK
    s.close()
    assert s._completer.pending(r, r.offset + r.size).result(30).status is PutStatus.PUT_OK


def test_an_interrupted_close_goes_on_when_called_again(tmp_path):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    s.put("T", b"x")
    stop = s._watch.stop
    s._watch.stop = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        s.close()
    with pytest.raises(errors.StoreClosed):
        s.put("T", b"y")
    s._watch.stop = stop
    s.close()
    assert not (tmp_path / "s" / "abort").exists()
    MessageStore.open(tmp_path / "s", **SMALL).close()


def test_close_in_a_handler_inside_close(tmp_path):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    stop, calls = s._watch.stop, []

    def interrupted():
        calls.append(s.close())
        stop()

    s._watch.stop = interrupted
    s.close()
    assert calls == [None] and s.closed and not (tmp_path / "s" / "abort").exists()


@pytest.mark.parametrize(("kind", "path"), [("unlink", "abort"), ("pwrite", "/checkpoint"), ("ftruncate", "/lock")])
def test_a_failure_at_the_end_of_close_frees_the_lock(tmp_path, kind, path):
    io = ProbeIo(keep_bytes=False)
    s = MessageStore.open(tmp_path / "s", _io=io, **SMALL)
    s.put("T", b"x")
    assert s.wait_dispatched(10)
    io.fail(kind, errno=errno.EIO, path=path, sticky=True)
    with pytest.raises(OSError, match=r"[Ii]nput/output"):
        s.close()
    s.close()
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.max_offset("T", 0) == 1


@pytest.mark.parametrize(("kind", "path"), [
    ("fsync", "/abort"), ("open", "/abort"), ("pwrite", "/abort"), ("open", "/checkpoint"), ("mmap", "/commitlog/"),
    ("pread", "/checkpoint"), ("sync_dir", "/s")])
def test_a_failed_open_leaves_nothing_behind(tmp_path, kind, path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put("T", b"x", keys="k")
    io = ProbeIo(keep_bytes=False)
    io.fail(kind, errno=errno.EIO, path=path, sticky=True)
    before = threading.active_count()
    with pytest.raises(OSError, match=r"[Ii]nput/output"):
        MessageStore.open(tmp_path / "s", _io=io, **SMALL)
    assert threading.active_count() == before
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.max_offset("T", 0) == 1


def test_signals_outside_the_main_thread_open_nothing(tmp_path):
    thread, out = in_thread(lambda: MessageStore.open(tmp_path / "s", signals=True, **SMALL))
    thread.join(30)
    assert isinstance(out[0], errors.StoreStateError)
    assert not (tmp_path / "s").exists()


def test_a_forgotten_store_is_closed(tmp_path):
    s = MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL)
    s.put("T", b"x")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del s
        gc.collect()
    assert [w.category for w in seen] == [ResourceWarning]
    assert not (tmp_path / "s" / "abort").exists()
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.max_offset("T", 0) == 1


def test_a_closed_readonly_store_leaves_no_thread(tmp_path):
    MessageStore.open(tmp_path / "s", **SMALL).close()
    before = threading.active_count()
    s = MessageStore.open(tmp_path / "s", readonly=True, **SMALL)
    s.close()
    assert threading.active_count() == before


def descriptors():
    """What this process has open, but for the listing itself."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(found)


@pytest.mark.parametrize("options", [{}, {"write_path": "pool", "flush_mode": "sync"}], ids=["mmap", "pool-sync"])
def test_a_closed_store_keeps_no_descriptor(tmp_path, options):
    """However long somebody keeps it: a service that opens and closes stores has its own idea of when they are collected."""
    before = descriptors()
    s = MessageStore.open(tmp_path / "s", **SMALL, **options)
    timer = s._delay.timer
    s.put("T", b"x", keys="k", delay_level=1, wait=True)
    told = threading.Event()
    s.put_async("T", b"y", wait=True).add_done_callback(lambda _: told.set())
    assert s.wait_dispatched(30) and told.wait(30) and len(descriptors()) > len(before)
    s.close()
    assert descriptors() == before
    others = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    try:
        timer.poke()            # by somebody who was late: not into a descriptor that now is somebody else's
        for fd in others:
            with pytest.raises(BlockingIOError):
                os.eventfd_read(fd)
    finally:
        for fd in others:
            os.close(fd)
    assert s.closed


WAITS = {"message": "s.wait_for_message('T', 0, 0)",
         "dispatch": "s.confirm(0); s.put('T', b'x'); s.confirm(1); s.wait_dispatched()"}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_reaches_a_waiting_call(tmp_path, wait):
    root = str(tmp_path / "s")
    code, _ = script(f"from rmq_store import MessageStore\ns = MessageStore.open({root!r}, duplication_enabled=True, "
                     f"close_timeout_ms=1)\nprint('ready', flush=True)\n{WAITS[wait]}", signal_number=signal.SIGINT)
    assert code == -signal.SIGINT


@pytest.mark.parametrize("wait", WAITS)
def test_a_handler_may_close_the_store_under_a_waiting_call(tmp_path, wait):
    root = str(tmp_path / "s")
    code, out = script(f"""
import signal
from rmq_store import MessageStore, errors
s = MessageStore.open({root!r}, duplication_enabled=True, close_timeout_ms=1)
signal.signal(signal.SIGUSR1, lambda *_: s.close())
print('ready', flush=True)
try:
    {WAITS[wait]}
except errors.StoreClosed:
    print('closed')
""", signal_number=signal.SIGUSR1)
    assert (code, out) == (0, "closed\n")


def test_a_signal_ends_the_process_although_views_are_alive(tmp_path):
    root = str(tmp_path / "s")
    code, _ = script(f"""
import time
from rmq_store import MessageStore
s = MessageStore.open({root!r}, signals=True)
s.put('T', b'x')
s.wait_dispatched()
view = s.get('T', 0, 0)[0]
print('ready', flush=True)
while True:     # one long sleep that begins just behind the handler of Python would not be cut short
    time.sleep(0.1)
""", signal_number=signal.SIGTERM)
    assert code == -signal.SIGTERM and not (tmp_path / "s" / "abort").exists()


def test_ctrl_c_right_behind_the_end_of_close(tmp_path):
    """Everything is freed then: the close() at exit must not go on with it."""
    class Interrupted(MessageStore):
        def _end(self):
            super()._end()
            raise KeyboardInterrupt

    store = Interrupted.open(tmp_path / "s")
    store.put("T", b"x")
    with pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()
    with MessageStore.open(tmp_path / "s") as again:
        assert again.max_offset("T", 0) == 1
