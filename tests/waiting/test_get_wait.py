"""get(wait=) and listeners: woken by the dispatcher, ended by messages, time, close and signals; nothing polls."""
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rmq_store import MessageStore, errors
from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.status import GetStatus

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture(params=["mmap", "pool", "sync"])
def store(request, tmp_path):
    mode = {"flush_mode": "sync"} if request.param == "sync" else {"write_path": request.param}
    with MessageStore.open(tmp_path / "s", **mode, **SMALL) as s:
        yield s


class Call(threading.Thread):
    """A call in a thread; result() is what it returned or raised."""

    def __init__(self, call):
        super().__init__()
        self.call = call
        self.out = None
        self.start()

    def run(self):
        try:
            self.out = self.call()
        except BaseException as error:
            self.out = error

    def result(self):
        self.join(60)
        assert not self.is_alive()
        return self.out


def sleeping(thread):
    """Waits until the thread sleeps in the kernel, in a futex."""
    while True:
        with open(f"/proc/self/task/{thread.native_id}/wchan") as f:
            if "futex" in f.read():
                return
        time.sleep(0.001)


def test_a_waiting_get_is_woken_by_the_message(store):
    call = Call(lambda: bytes(store.get("T", 3, 0, wait=60)[0].body))
    store.put("T", b"other queue")
    store.put("T", b"first", queue_id=3)
    assert call.result() == b"first"


def test_what_is_there_is_returned_at_once(store):
    store.put("T", b"x")
    store.wait_dispatched()
    assert len(store.get("T", 0, 0, wait=3600)) == 1
    assert store.get("T", 0, 0, wait=0).status is GetStatus.FOUND
    assert store.get("T", 0, 5, wait=3600).status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert store.get("Never", 0, 7, wait=3600).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_the_time_ends_it(store):
    assert store.get("T", 0, 0, wait=0.01).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.put("T", b"x")
    store.wait_dispatched()
    result = store.get("T", 0, 1, wait=0.01)
    assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)


def test_wait_true_takes_the_option(tmp_path):
    with MessageStore.open(tmp_path / "s", long_polling_timeout_ms=1, **SMALL) as s:
        assert s.get("T", 0, 0, wait=True).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert s.get("T", 0, 0, wait=False).status is GetStatus.NO_MESSAGE_IN_QUEUE
        for bad in (-1, "1", float("nan")):
            with pytest.raises(ValueError, match="seconds"):
                s.get("T", 0, 0, wait=bad)


def test_other_tags_do_not_end_it_and_are_not_looked_at_again(store):
    call = Call(lambda: store.get("T", 0, 0, tags="wanted", wait=60).next_offset)
    for _ in range(5):
        store.put("T", b"x", tags="other")
    store.put("T", b"x", tags="wanted")
    assert call.result() == 6
    store.put("T", b"x", tags="other")
    store.wait_dispatched()
    result = store.get("T", 0, 6, tags="wanted", wait=0.01)
    assert (len(result), result.next_offset) == (0, 7)


def test_every_message_reaches_a_consumer_that_always_waits(store):
    def consume():
        seen, at = [], 0
        while len(seen) < 2000:
            result = store.get("T", 0, at, wait=60)
            seen += [int(bytes(m.body)) for m in result]
            at = result.next_offset
        return seen

    call = Call(consume)
    for i in range(2000):
        store.put("T", b"%d" % i, wait=False)
    store.flush()
    assert call.result() == list(range(2000))


def test_close_ends_every_waiting_call(tmp_path):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    calls = [Call(lambda i=i: s.get("T", i % 7, 0, wait=3600)) for i in range(40)]
    calls.append(Call(lambda: s.wait_for_message("T", 0, 0)))
    for call in calls:
        sleeping(call)
    s.close()
    assert {type(call.result()) for call in calls} == {errors.StoreClosed}


def test_idle_waiters_never_run(tmp_path):
    """Their context switches stand still: a timer or a poll would show."""
    def switches():
        total = 0
        for call in calls:
            with open(f"/proc/self/task/{call.native_id}/status") as f:
                total += sum(int(line.split()[1]) for line in f if "ctxt_switches" in line)
        return total

    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        calls = [Call(lambda i=i: s.get("T", i, 0, wait=3600)) for i in range(50)]
        for call in calls:
            sleeping(call)
        before = switches()
        for _ in range(20):
            s.put("Another", b"x")
            s.wait_dispatched()
            time.sleep(0.01)
        assert switches() == before
        for i in range(50):
            s.put("T", b"x", queue_id=i)
        assert all(len(call.result()) == 1 for call in calls)
        del call
        calls.clear()


def test_a_readonly_store_says_that_nothing_arrives(tmp_path):
    MessageStore.open(tmp_path / "s", **SMALL).close()
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as s:
        with pytest.raises(errors.StoreStateError, match="read-only"):
            s.get("T", 0, 0, wait=1)
        with pytest.raises(errors.StoreStateError, match="read-only"):
            s.wait_for_message("T", 0, 0, 1)


def test_ctrl_c_ends_it(tmp_path):
    text = (f"from rmq_store import MessageStore\ns = MessageStore.open({str(tmp_path / 's')!r})\nprint('ready', flush=True)\n"
            "s.get('T', 0, 0, wait=True)")
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with child:
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == -signal.SIGINT


# ---- listeners

def test_listeners_hear_of_every_queue(store):
    heard, all_heard = {}, threading.Event()

    def listener(topic, queue_id, max_offset):
        assert heard.get((topic, queue_id), 0) <= max_offset
        heard[topic, queue_id] = max_offset
        if heard == {(f"T{t}", q): 3 for t in range(4) for q in range(5)}:
            all_heard.set()

    store.put("T0", b"before", queue_id=0)
    store.wait_dispatched()
    store.add_arriving_listener(listener)
    for i in range(60):
        if i:
            store.put(f"T{i % 4}", b"x", queue_id=i % 5, wait=False)
    store.flush()
    assert all_heard.wait(60)
    store.remove_arriving_listener(listener)
    with pytest.raises(ValueError, match="not added"):
        store.remove_arriving_listener(listener)


def test_a_hub_may_be_woken_while_it_closes(store, monkeypatch):
    """The store's close() wakes the listeners' thread, which closes its eventfd when it finds the store closed."""
    hub, real = Arrivals(store, everything=True), os.close
    closed = []

    def close(fd):
        real(fd)
        if not closed:
            closed.append(fd)
            hub.wake()

    monkeypatch.setattr(os, "close", close)
    hub.close()
    assert closed


def test_a_listener_that_raises_is_logged_and_the_next_one_is_called(store, caplog):
    heard = threading.Event()
    store.add_arriving_listener(lambda *arrival: 1 / 0)
    store.add_arriving_listener(lambda *arrival: heard.set())
    store.put("T", b"x")
    assert heard.wait(60)
    assert "listener raised" in caplog.text


def test_a_listener_may_close_the_store(tmp_path):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    closed = threading.Event()

    def listener(*arrival):
        s.close()
        closed.set()

    s.add_arriving_listener(listener)
    s.put("T", b"x")
    assert closed.wait(60) and s.closed
    with pytest.raises(errors.StoreClosed):
        s.add_arriving_listener(listener)
