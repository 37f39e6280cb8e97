"""What the watch says of the notes that native threads leave."""
import errno
import logging
import threading
import time

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.opened import watch

SMALL = {"segment_size_bytes": 1 << 18, "index_enabled": False}
BODY = b"x" * 100_000           # large enough to be copied without the GIL


@pytest.mark.parametrize("phase", ["encode", "roll"])
def test_a_long_held_put_lock_is_told_with_its_phase(tmp_path, caplog, phase):
    caplog.set_level(logging.WARNING, logger="rmq_store")
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as s:
        s.put("T", BODY)
        if phase == "roll":
            s.put("T", BODY)
            s.put("T", b"y" * 60_000)       # the next one does not fit: the end-of-file record is stored first
        io.hold("map_store")
        holder = threading.Thread(target=s.put, args=("T", BODY))
        holder.start()
        io.wait_held(1)
        io.set_clock(int(time.time() * 1000) + 3000)
        with pytest.raises(errors.OsPageCacheBusy):
            s.put("T", b"no")
        while s.stats()["slow_put_locks"] == 0:
            time.sleep(0.01)
        io.release()
        holder.join()
        io.set_clock(None)
    told = [r for r in caplog.records if r.event == "PUT_LOCK_HELD_LONG"]
    assert [(r.fields["phase"], r.fields["count"]) for r in told] == [(phase, 1)] and told[0].fields["ms"] > 500
    assert f"phase {phase}" in told[0].getMessage()


def test_what_failed_last_is_said_before_the_store_closes(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="rmq_store")
    io = ProbeIo(keep_bytes=False)
    s = MessageStore.open(tmp_path / "s", flush_mode="sync", _io=io, **SMALL)
    io.fail("fdatasync", errno=errno.EIO, path="/commitlog/", sticky=True)
    with pytest.raises(errors.SyncFailed):
        s.put("T", b"x")
    with pytest.raises(errors.SyncFailed):
        s.close()
    assert [r.event for r in caplog.records].count("STORE_FAILED") == 1
    assert "DISK_SPACE_BACK" not in [r.event for r in caplog.records]


def test_a_device_that_is_too_slow_for_the_pool_is_told(tmp_path, caplog, monkeypatch):
    """Before puts wait, and when they do; once each, however long it lasts."""
    caplog.set_level(logging.INFO, logger="rmq_store")
    monkeypatch.setattr(watch, "PERIOD_S", 3600)         # looks are taken here
    io = ProbeIo(keep_bytes=False)

    def looked(*expected):
        caplog.clear()
        s._watch._look()
        told = [r for r in caplog.records if r.event.startswith("POOL_")]
        assert [r.event for r in told] == list(expected)
        return told

    with MessageStore.open(tmp_path / "s", _io=io, write_path="pool", flush_backend="fdatasync", pool_window_size_bytes=1 << 16,
                           **SMALL) as s:
        size = s.stats()["pool_bytes"]
        looked()
        io.hold("pwrite")
        while s.stats()["wrote"] - s.stats()["committed"] < size * 4 // 5:
            s.put("T", b"x" * 10_000)
        looked()                    # it may be a moment's burst
        low = looked("POOL_LOW")[0]
        assert low.fields["size"] == size and 0 < low.fields["free"] < size // 4
        looked()
        producer = threading.Thread(target=lambda: [s.put("T", BODY) for _ in range(3)])
        producer.start()
        while s.stats()["pool_waits"] == 0:
            time.sleep(0.001)
        assert looked("POOL_EMPTY")[0].fields["count"] >= 1
        io.release()
        producer.join()
        s.flush()
        s._watch._look()
        looked()
