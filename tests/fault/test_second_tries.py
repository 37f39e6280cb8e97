"""A step that failed half-way is made again: what the first try did is neither forgotten nor taken for done."""
import errno
import os
from types import SimpleNamespace

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.reserve import SIZES, Reserve
from rmq_store.broker import notices
from rmq_store.services.cleaning import removing
from rmq_store.services.consumer.change_log import ChangeLog
from rmq_store.services.integrity import bridging
from tests.crash import scenario
from tests.soon import until
from tests.wants.calls import BATCH


def test_a_reserve_that_found_no_room_is_filled_later(tmp_path):
    (tmp_path / ".alloc").mkdir()
    probe = ProbeIo()
    reserve = Reserve(ControlFiles(probe), str(tmp_path))
    probe.fail("fallocate", 1, errno.ENOSPC)
    reserve.keep()
    reserve.keep()
    assert [os.path.getsize(path) for path in sorted((tmp_path / ".alloc").iterdir())] == list(SIZES)
    assert reserve.give() and not any((tmp_path / ".alloc").iterdir())


def test_a_change_log_that_begins_anew_is_gone_for_sure(tmp_path):
    probe = ProbeIo()
    log = ChangeLog(ControlFiles(probe), str(tmp_path / "t.json"))
    log.begins(_version(0))
    log.append(_version(1), {"a": {}})
    probe.fail("sync_dir", 1, errno.EMFILE)
    with pytest.raises(OSError):
        log.begins(_version(1))
    before = probe.length
    log.begins(_version(1))
    assert [call.kind for call in probe.trace()][before:].count("sync_dir") == 1 and not (tmp_path / "t.changes").exists()


def _version(counter):
    return {"counter": counter, "stateVersion": 0, "timestamp": 0}


def test_a_notice_whose_thread_could_not_start_is_given_later(monkeypatch):
    told = []
    notice = notices.Notices(lambda group: ["c"], lambda client, group: told.append(group))
    starts = iter([OSError(errno.EAGAIN, "no thread")])

    def start(run, name):
        for error in starts:
            raise error
        return real(run, name)

    real = notices.start_thread
    monkeypatch.setattr(notices, "start_thread", start)
    notice.changed("g")
    with pytest.raises(OSError):
        notice.changed("g")             # too soon: it is for the thread
    notice.changed("g")
    assert "g" in notice._due and notice._thread is not None
    notice.stop()


def test_a_queue_that_stays_gets_no_bound_by_the_second_try(tmp_path, monkeypatch):
    with MessageStore.open(tmp_path / "s", **scenario.SMALL) as store:
        store.put("T", b"x")
        assert store.wait_dispatched(10)
        save, calls = removing._save, []

        def full_once(file, known):
            calls.append(dict(known))
            if len(calls) == 2:
                raise errors.DiskFull(errno.ENOSPC, "writing", file.path)
            save(file, known)

        monkeypatch.setattr(removing, "_save", full_once)
        monkeypatch.setattr(removing._clean, "remove_queue", lambda *arguments: False)      # as if a message came meanwhile
        assert store.delete_topics("T").kept == [("T", 0)]
        assert calls[0] and len(calls) == 4 and calls[-1] == {}


def test_the_directory_of_a_batch_queue_is_synced_after_a_want(tmp_path):
    probe = ProbeIo()
    often = {"consumequeue_flush_interval_ms": 10, "consumequeue_flush_interval_max_ms": 20}
    base = str(tmp_path / "s/batchconsumequeue")

    def synced():
        return any(call.kind == "sync_dir" and call.path == base and call.result >= 0 for call in probe.trace())

    with MessageStore.open(tmp_path / "s", _io=probe, **scenario.SMALL | often) as store:
        store.topic_table.set_queue_type("I", "BatchCQ")
        probe.fail("sync_dir", 1, errno.EMFILE, path="/s/batchconsumequeue")
        store.put_inner_batch("I", BATCH)
        until(lambda: probe.hits > 0 and synced())


def test_a_rotten_queue_offset_makes_no_list(monkeypatch):
    def never(*arguments):
        raise AssertionError("as many parts as the field says")

    monkeypatch.setattr(bridging, "_lost_between", never)
    record = SimpleNamespace(sys_flag=0, topic="T", queue_id=0, queue_offset=1 << 40, properties={})
    misfits = {}
    bridging._gap({}, misfits, {("T", 0): (1, 0)}, [], 100, record)
    assert misfits[("T", 0)].queue_offset == 1 << 40
