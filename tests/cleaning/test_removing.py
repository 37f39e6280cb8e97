"""Removing queues of an open store: what may go, what stays and why, what begins anew, and that a crash loses nothing."""
import errno
import json
import os
import shutil

import pytest

from rmq_store import MessageStore, errors, verify
from tests.cleaning.aged import BODY, SMALL
from tests.soon import until


def dirs(a):
    return sorted(f"{t}/{q}" for t in os.listdir(a.root / "consumequeue") for q in os.listdir(a.root / "consumequeue" / t))


def test_a_queue_whose_messages_are_gone_goes(aged):
    a = aged(files=6, old=3, retention_hours=1)
    a.store.offsets.commit("G", "T", 0, 5)
    assert a.store.clean_expired_queues().removed == []         # it has messages
    put = a.store.put("Old", b"x", queue_id=3)
    assert put.queue_offset == 0
    for _ in range(3):
        a.store.put("T", BODY)
    a.settle()
    assert a.store.clean(0).log_files > 0
    assert a.store.min_log_offset > put.offset and ("Old", 3) in [(t, q) for t, q, _, _ in a.store._queue_list()]
    a.store.offsets.commit("G", "Old", 3, 1)
    done = a.store.clean_expired_queues()
    assert (done.removed, done.kept) == ([("Old", 3)], [])
    assert a.store.topics() == ["T"] and "Old/3" not in dirs(a)
    assert a.store.offsets.query("G", "Old", 3) == 0            # else the group would pass over what comes
    assert a.store.offsets.query("G", "T", 0) == 5
    assert a.store.put("Old", b"again", queue_id=3).queue_offset == 0
    assert a.store.wait_dispatched(30)
    assert [bytes(m.body) for m in a.store.scan("Old", 3)] == [b"again"]


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_what_comes_after_a_removal_is_found_again(aged, end):
    """Also after a crash that the checkpoint knows nothing of, which walks the log from an older file on."""
    a = aged(files=1)
    for i in range(40):
        a.store.put("Gone", BODY if i % 4 == 3 else b"x", queue_id=i % 2)
    a.store.topic_table.set("Gone", writeQueueNums=2)
    a.store.offsets.commit("G", "Gone", 0, 7)
    done = a.store.delete_topics("Gone")
    assert (done.removed, done.kept) == ([("Gone", 0), ("Gone", 1)], [])
    assert a.store.topic_table.get("Gone") is None and a.store.offsets.topics("G") == []
    assert a.store.put("Gone", b"new life").queue_offset == 0
    a.store.flush()
    if end == "crashed":
        a.probe.freeze()
    a.store.close()
    with MessageStore.open(a.root, **SMALL) as s:
        assert [bytes(m.body) for m in s.scan("Gone", 0)] == [b"new life"] and s.queues("Gone") == [0]
        assert s.put("Gone", b"more", queue_id=1).queue_offset == 0
        while s.min_log_offset == 0 or s.cleanable(0):      # what is noted goes with the messages
            s.put("T", BODY)
            s.flush()
            s.wait_dispatched()
            s.clean(0)
        s.delete_topics("T")
        assert "Gone" not in (a.root / "config" / "removedQueues.json").read_text()


def test_what_is_in_use_stays(aged):
    a = aged(files=2)
    a.store.topic_table.set("T", writeQueueNums=2)
    with a.store.consumer("G", "T"):
        done = a.store.delete_topics("T")
        assert done.removed == [] and ("T", 0) in done.kept
    assert a.store.topic_table.get("T") is not None
    assert a.store.clean_unused_topics(["T"]).kept == []


def test_upstreams_own_topics_are_in_use(aged):
    a = aged(files=1)
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "%LMQ%a", "Mine"):
        a.store.put(topic, b"x")
    a.settle()
    assert [t for t, _ in a.store.clean_unused_topics([]).removed] == ["T", "Mine"]


def test_read_only_nothing_goes(tmp_path):
    with MessageStore.open(tmp_path / "ro", **SMALL) as s:
        s.put("T", b"x")
    with MessageStore.open(tmp_path / "ro", readonly=True, **SMALL) as s:
        for call in (s.clean_expired_queues, s.delete_topics, lambda: s.clean_unused_topics(["T"])):
            with pytest.raises(errors.StoreNotWriteable):
                call()


def test_a_disk_that_refuses_is_no_fence(aged):
    """Nothing that was acknowledged is wrong: the files of a removed queue are tried again."""
    a = aged(files=1)
    a.store.put("Old", b"x")
    for _ in range(3):
        a.store.put("T", BODY)
    a.settle()
    assert a.store.clean(0).log_files > 0
    a.probe.fail("unlink", errno=errno.EIO, path="/consumequeue/Old", sticky=True)
    with pytest.raises(OSError):
        a.store.clean_expired_queues()
    assert a.store.put("T", BODY).status == 0 and a.store.topics() == ["T"]
    a.probe.clear()
    until(lambda: "Old/0" not in dirs(a))
    assert a.store.put("Old", b"y").queue_offset == 0
    a.store.close()
    with MessageStore.open(a.root, **SMALL) as s:
        assert [bytes(m.body) for m in s.scan("Old", 0)] == [b"y"]


def test_the_bound_of_a_queue_that_stayed_goes_at_the_next_open(tmp_path):
    """A message came while its topic was to be deleted, and the process died before that was written."""
    root, old = tmp_path / "s", [b"0", b"1", b"2"]
    with MessageStore.open(root, **SMALL) as s:
        bound = [s.put("T", body) for body in old][-1]
        s.put("T", b"3")
        s.put("Gone", b"0")
        assert s.delete_topics("Gone").removed == [("Gone", 0)]
    file = root / "config" / "removedQueues.json"
    said = json.loads(file.read_text())
    said["removed"]["T@0"] = bound.offset + bound.size
    file.write_text(json.dumps(said))
    for _ in range(2):
        (root / "abort").touch()
        with MessageStore.open(root, **SMALL) as s:
            assert s.wait_dispatched(30) and [bytes(m.body) for m in s.scan("T", 0)] == [*old, b"3"]
            assert s.queues("Gone") == []
        assert "T@0" not in file.read_text() and "Gone@0" in file.read_text()
        shutil.rmtree(root / "consumequeue")        # the queues are made of the log again


def test_verify_knows_what_was_removed(tmp_path):
    root = tmp_path / "v"
    with MessageStore.open(root, **SMALL) as s:
        for i in range(20):
            s.put("Gone", b"old", queue_id=i % 2, keys=f"k{i}")
            s.put("Kept", b"x")
        assert s.delete_topics("Gone").removed == [("Gone", 0), ("Gone", 1)]
        s.put("Gone", b"new", queue_id=0)       # it has queue offset 0, as an old one has
    assert list(verify(root)) == []
    with MessageStore.open(root, **SMALL) as s:
        s.put("Kept", b"x")
        s.wait_dispatched()
    (root / "consumequeue" / "Kept" / "0" / f"{0:020d}").unlink()
    assert {(f.kind, f.topic) for f in verify(root)} == {("queue_missing", "Kept")}
    (root / "config" / "removedQueues.json").write_text("{")
    assert {(f.kind, f.topic) for f in verify(root)} == {("queue_missing", "Kept"), ("queue_missing", "Gone"),
                                                         ("queue_other", "Gone"), ("config_file", None)}


@pytest.mark.parametrize("removed", [
    'T@0":9223372036854775808', 'T@0":-1', 'T@2147483648":7', 'T@-1":7', 'T@0":true', 'T@0":1.5'])
def test_numbers_that_no_store_has_are_damage(tmp_path, removed):
    (tmp_path / "s" / "config").mkdir(parents=True)
    (tmp_path / "s" / "config" / "removedQueues.json").write_text('{"removed":{"' + removed + "}}")
    with pytest.raises(errors.ConfigFileCorrupted, match="removedQueues"):
        MessageStore.open(tmp_path / "s", **SMALL)


def test_files_of_a_queue_that_somebody_removed_by_hand_end_no_removal(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for topic in ("T", "U"):
            store.put(topic, BODY)
        assert store.wait_dispatched(10)
        for file in (tmp_path / "s/consumequeue/T/0").iterdir():
            file.unlink()
        assert store.delete_topics("T").removed == [("T", 0)]
        store.put("T", b"new", wait=True)
        assert store.wait_dispatched(10)
        assert [bytes(m.body) for m in store.get("T", 0, 0, 9)] == [b"new"]
