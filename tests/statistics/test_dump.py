"""The dump of threads: native and Python ones, what they wait for; by itself while the put lock is held long."""
import logging
import re
import threading
import time

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 18, "index_enabled": False}
BODY = b"x" * 100_000           # large enough to be copied without the GIL


def test_every_thread_is_there_with_what_it_waits_for(tmp_path):
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_backend="fdatasync", **SMALL) as s:
        s.put("T", b"x", wait=True)
        waiting = threading.Event()

        def wait_for_something():
            waiting.wait(60)

        thread = threading.Thread(target=wait_for_something, name="somebody")
        thread.start()
        try:
            text = s.dump_threads()
        finally:
            waiting.set()
            thread.join()
    assert text.splitlines()[0] == f"put lock of {s.path}: held for 0 ms"
    native = dict(re.findall(r"^(\d+) (.*)$", text, re.MULTILINE))
    for name in ("rmq-commit", "rmq-flush", "rmq-dispatch", "rmq-checkpoint", "rmq-allocate"):
        assert any(re.fullmatch(rf"{name} [A-Z] \S+", line) for line in native.values()), (name, text)
    assert re.search(rf"^{thread.native_id} .*\n  Python thread somebody\n(    .*\n)*.*wait_for_something", text, re.MULTILINE)
    here = threading.get_native_id()
    assert re.search(rf"^{here} .*\n  Python thread MainThread\n(    .*\n)*.*dump_threads", text, re.MULTILINE)


@pytest.mark.parametrize("asked", [True, False])
def test_once_while_a_put_holds_the_lock(tmp_path, caplog, asked):
    caplog.set_level(logging.WARNING, logger="rmq_store")
    io = ProbeIo(keep_bytes=False)

    def the_holder():
        s.put("T", BODY)

    with MessageStore.open(tmp_path / "s", _io=io, put_lock_dump=True, **SMALL) as s:
        s._watch._stop.set()            # its looks are this test's
        s._watch.thread.join()
        if not asked:
            s.reconfigure(put_lock_dump=False)
        s.put("T", BODY)
        now = int(time.time() * 1000)
        io.set_clock(now)
        io.hold("map_store")
        holder = threading.Thread(target=the_holder)
        holder.start()
        io.wait_held(1)
        assert s._watch._look() and not dumps(caplog)           # not held for a second yet
        io.set_clock(now + 3000)
        assert s._watch._look() and s._watch._look()
        io.release()
        holder.join()
        io.set_clock(None)
        assert s._watch._look()
    assert len(dumps(caplog)) == asked
    if asked:
        (record,) = dumps(caplog)
        assert record.fields["ms"] > 1000 and "the_holder" in record.fields["threads"] and "rmq-flush" in record.getMessage()


def dumps(caplog):
    return [r for r in caplog.records if r.event == "PUT_LOCK_THREADS"]
