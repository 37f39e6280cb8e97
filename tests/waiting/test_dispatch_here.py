"""A put that finds a reader and the dispatcher asleep dispatches for itself; what goes wrong there is the dispatcher's."""
import errno
import threading
import time
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}


def native_threads(name):
    """/proc's folders of this process's threads of that name."""
    return [t for t in Path("/proc/self/task").iterdir() if (t / "comm").read_text().strip() == name]


def native_thread(name):
    """/proc's folder of the only one."""
    [found] = native_threads(name)
    return found


def sleeps(task):
    """How often the thread went to sleep by itself, once it sleeps in a futex for good."""
    before = None
    while True:
        status = (task / "status").read_text()
        now = int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
        if now == before and "futex" in (task / "wchan").read_text():
            return now
        before = now
        time.sleep(0.001)


def reader(call):
    """A thread that is in `call`, asleep: (thread, list with its result or error)."""
    out = []

    def run():
        try:
            out.append(call())
        except errors.RmqStoreError as error:
            out.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    sleeps(Path(f"/proc/self/task/{thread.native_id}"))
    return thread, out


def test_the_dispatcher_sleeps_through_it(tmp_path):
    with MessageStore.open(tmp_path / "s", delay="refuse", **SMALL) as s:
        dispatcher = native_thread("rmq-dispatch")
        thread, out = reader(lambda: s.get("T", 0, 0, 1, wait=60))     # while somebody waits it does not look around
        before = sleeps(dispatcher)
        for i in range(50):
            s.put("T", b"%d" % i)
            assert s.max_offset("T", 0) == i + 1        # readable when put returns
            thread.join()
            assert bytes(out[0][0].body) == b"%d" % i
            thread, out = reader(lambda at=i + 1: s.get("T", 0, at, 1, wait=60))
        assert sleeps(dispatcher) == before
        s.put_many("T", [b"a", b"b"])
        assert s.max_offset("T", 0) == 52
        thread.join()
        assert sleeps(dispatcher) == before


def test_a_stream_is_the_dispatchers(tmp_path):
    """Else each put of it would write to queue files, and the reader slow the writer down."""
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", delay="refuse", _io=io, **SMALL) as s:
        io.hold("pwrite", path=tmp_path / "s" / "consumequeue")
        first, out = reader(lambda: s.get("T", 0, 0, 1, wait=60))
        put = threading.Thread(target=s.put, args=("T", b"slow"))
        put.start()
        io.wait_held()              # that put dispatches
        s.put("T", b"fast")         # this one does not wait for it
        assert s.max_offset("T", 0) == 0
        io.release()
        put.join()
        first.join()
        assert s.wait_dispatched(60) and s.max_offset("T", 0) == 2 and bytes(out[0][0].body) == b"slow"


def test_a_full_disk_heals(tmp_path):
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", delay="refuse", _io=io, **SMALL) as s:
        thread, out = reader(lambda: s.get("T", 0, 0, 1, wait=60))
        io.fail("pwrite", 1, errno.ENOSPC, path=tmp_path / "s" / "consumequeue", sticky=True)
        s.put("T", b"x")
        while io.hits < 1:              # the dispatcher's own thread may have been there first
            time.sleep(0.001)
        assert s.max_offset("T", 0) == 0
        io.clear()
        thread.join()
        assert bytes(out[0][0].body) == b"x"


def test_a_bad_disk_fences(tmp_path):
    io = ProbeIo()
    s = MessageStore.open(tmp_path / "s", delay="refuse", _io=io, **SMALL)
    thread, out = reader(lambda: s.get("T", 0, 0, 1, wait=60))
    io.fail("pwrite", 1, errno.EIO, path=tmp_path / "s" / "consumequeue", sticky=True)
    s.put("T", b"x")
    with pytest.raises(errors.DurabilityError):
        s.wait_dispatched(30)       # the dispatcher's own thread may have been there first
    with pytest.raises(errors.DurabilityError):
        s.put("T", b"y")
    with pytest.raises(errors.DurabilityError):
        s.close()
    thread.join()
    assert isinstance(out[0], errors.StoreClosed)


def test_nobody_waits_in_a_store_without_readers(tmp_path):
    """Who waits makes the dispatcher sleep until a put wakes it, which costs that put some microseconds: the timer of delay
    messages, which every store has, counted as one."""
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.stats()["waiting_readers"] == 0
        thread, _ = reader(lambda: s.get("T", 0, 0, 1, wait=60))
        assert s.stats()["waiting_readers"] == 1
        s.put("T", b"x")
        thread.join()
        assert s.stats()["waiting_readers"] == 0
        s.add_arriving_listener(lambda *_: None)
        assert s.stats()["waiting_readers"] == 1
