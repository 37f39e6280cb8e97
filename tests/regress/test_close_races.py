"""close() against threads of the store's own and signal handlers: each race is stopped at its one exact place."""
import os
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("where", ["callback", "listener"])
def test_close_in_a_callback_while_another_thread_closes(tmp_path, where):
    """The other one waits for the callback to end: if that waited for the other one, both would wait for ever."""
    io = ProbeIo(keep_bytes=False)
    s = MessageStore.open(tmp_path / "s", _io=io, flush_mode="sync", flush_backend="fdatasync", **SMALL)
    inside, closing, outcome = threading.Event(), threading.Event(), []

    def close(*_):
        inside.set()
        closing.wait(30)
        outcome.append(s.close())

    if where == "callback":
        io.hold("fdatasync", "/commitlog/")     # a future that is done already would call it in this thread
        s.put_async("T", b"x", wait=True).add_done_callback(close)
        io.release()
    else:
        s.add_arriving_listener(close)
        s.put("T", b"x")
    part = s._completer if where == "callback" else s._listeners
    assert inside.wait(30) and part is not None
    refuse = s._refuse_calls

    def refuse_and_tell():
        refuse()
        closing.set()

    s._refuse_calls = refuse_and_tell       # close() has its lock by then, and will join the callback's thread
    closer = in_thread(s.close)
    closer.join(30)
    assert not closer.is_alive() and outcome == [None] and s.closed and closing.is_set()
    MessageStore.open(tmp_path / "s", **SMALL).close()


def test_a_handler_that_closes_where_a_listener_is_added(tmp_path, monkeypatch):
    """A signal handler runs between any two steps of the main thread, also under the lock that guards the listeners."""
    s = MessageStore.open(tmp_path / "s", **SMALL)
    real = os.eventfd

    def interrupted(*arguments):
        monkeypatch.undo()
        s.close()
        return real(*arguments)

    monkeypatch.setattr(os, "eventfd", interrupted)
    outcome = []

    def add():
        try:
            s.add_arriving_listener(print)
        except errors.StoreClosed as e:
            outcome.append(e)

    adder = in_thread(add)
    adder.join(30)
    assert not adder.is_alive() and len(outcome) == 1
    assert not [t for t in threading.enumerate() if t.name == "rmq-arrivals"]


def test_what_is_asked_of_a_store_that_was_closed_meanwhile(tmp_path):
    """As where close() comes between the look whether it is open and the question."""
    s = MessageStore.open(tmp_path / "s", **SMALL)
    s.put("T", b"x")
    end = s.flush()
    s.close()
    assert s._position("flushed") >= end        # of a flush that was awaited
    with pytest.raises(errors.StoreClosed):
        s._position("wrote")


def test_offsets_are_never_written_ahead_of_a_log_that_closes(tmp_path):
    """close() refuses calls before it flushes the log: who writes offsets in between must not leave the log behind."""
    s = MessageStore.open(tmp_path / "s", **SMALL)
    offsets, topics = s.offsets, s.topic_table
    s.put("T", b"x")
    offsets.commit("G", "T", 0, 1)
    file, stop = tmp_path / "s/config/consumerOffset.json", s._stop

    def closing(timeout_ms):
        with pytest.raises(errors.StoreClosed):
            offsets.flush()
        assert not file.exists()
        return stop(timeout_ms)

    s._stop = closing
    s.close()
    assert '"T@G":{0:1' in file.read_text()
    offsets.commit("G", "T", 0, 2)
    topics.set("U")
    for table in (offsets, topics):         # the directory may be another process's
        with pytest.raises(errors.StoreClosed):
            table.flush()
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.offsets.query("G", "T", 0) == 1


def test_a_close_inside_of_a_lock_is_put_off(tmp_path, monkeypatch):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    s.put("T", b"x")
    s.offsets.commit("G", "T", 0, 1)
    seen = []
    save = s.offsets._file.save

    def interrupted(content):
        s.close()
        seen.append(s.closed)
        with pytest.raises(errors.StoreStateError, match="in use by this thread"):
            s.offsets.flush()
        save(content)

    monkeypatch.setattr(s.offsets._file, "save", interrupted)
    flusher = in_thread(s.offsets.flush)
    flusher.join(30)
    assert not flusher.is_alive() and seen == [False] and s.closed
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.offsets.query("G", "T", 0) == 1


def test_a_round_of_cleaning_ends_for_a_close_that_is_put_off(tmp_path, monkeypatch):
    s = MessageStore.open(tmp_path / "s", **SMALL)
    s.put_many("T", [b"x" * 100_000] * 12)
    s.flush()
    s.wait_dispatched(30)
    monkeypatch.setattr(s._cleaner, "_note_lost", lambda *_: s.close())
    done = []
    cleaner = in_thread(lambda: done.append(s.clean(0, pace_ms=3_600_000)))
    cleaner.join(30)
    assert not cleaner.is_alive() and done[0].log_files == 1 and s.closed


def test_an_exception_of_a_handler_leaves_no_lock_behind(tmp_path, monkeypatch):
    """Ctrl-C inside of a lock, and a close() that was put off just before."""
    s = MessageStore.open(tmp_path / "s", **SMALL)
    offsets = s.offsets
    offsets.commit("G", "T", 0, 1)
    save = offsets._file.save

    def interrupted(content):
        monkeypatch.setattr(offsets._file, "save", save)
        s.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(offsets._file, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        offsets.flush()
    assert s.closed and offsets.query("G", "T", 0) == 1
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.offsets.query("G", "T", 0) == 1


def test_arrivals_made_while_the_store_closes(tmp_path, monkeypatch):
    """Making the eventfd lets the GIL go: the queues may be gone when it is back."""
    s = MessageStore.open(tmp_path / "s", **SMALL)
    real = os.eventfd

    def overtaken(*arguments):
        monkeypatch.undo()
        closer = in_thread(s.close)
        closer.join(30)
        return real(*arguments)

    monkeypatch.setattr(os, "eventfd", overtaken)
    with pytest.raises(errors.StoreClosed):
        Arrivals(s, everything=True)


def test_a_handler_that_closes_right_after_close_began(tmp_path):
    """The handler finds the lock of close() taken by its own thread."""
    class Interrupted(MessageStore):
        def _shut(self):
            self.close()
            return super()._shut()

    s = Interrupted.open(tmp_path / "s", **SMALL)
    s.put("T", b"x")
    closer = in_thread(s.close)
    closer.join(30)
    assert not closer.is_alive() and not s._unfinished()
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.max_offset("T", 0) == 1 and not s.stats()["recovered"]
