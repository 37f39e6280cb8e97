"""A deletion that meets a want, at any of its calls: a pause and never a fence. Nobody reads what was removed, and its files go
by themselves; what was not removed yet is whole, and another call removes it."""
import errno
import os
import shutil
import threading
from contextlib import suppress

import pytest

from rmq_store import MessageStore, errors, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from rmq_store.services.compaction import files as compaction
from tests.crash.scenario import SMALL
from tests.replication.pairs import caught_up, joined, master, same_queues, slave
from tests.soon import until
from tests.wants.calls import BATCH

WANTS = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN]
CHANGES = "open|unlink|rmdir|rename|mkdir|fallocate|ftruncate|pwrite"
ALIKE = (errno.ENFILE, errno.EDQUOT, errno.EAGAIN)
wants = pytest.mark.parametrize("code", [pytest.param(code, marks=[pytest.mark.slow] * (code in ALIKE),
                                                      id=errno.errorcode[code]) for code in WANTS])
OTHERS = [("unlink", 1), ("unlink", 2), ("rmdir", 1)]       # the moments of one queue of two files
LIGHT = {"enable_lmq": True, "enable_multi_dispatch": True}


def refuse(probe, kind, nth, code, path="/consumequeue/T"):
    probe.fail(kind, nth, code, path=path, sticky=True)


def bodies(store, topic="T", queue_id=0):
    return [bytes(m.body) for m in store.scan(topic, queue_id)]


def filled(store, count=70):
    """Two files of queue 0, one of queue 1, and another topic."""
    for n in range(count):
        store.put("T", b"old%d" % n)
    store.put("T", b"old", queue_id=1)
    store.put("Other", b"0")
    assert store.wait_dispatched(30)


def stays_whole(store):
    assert store.stats()["errno"] == 0
    assert store.put("Other", b"1").status == 0 and store.flush() > 0


def begun_anew(root, topic="T", **options):
    """The store at `root` has of that topic what was put after the deletion, and continues."""
    with MessageStore.open(root, **{**SMALL, **options}) as store:
        assert bodies(store, topic) == [b"new"] and store.put(topic, b"next").queue_offset == 1
        assert store.wait_dispatched(30) and bodies(store, topic) == [b"new", b"next"]
    assert [found for found in verify(root, **{**SMALL, **options}) if found.severity == "damage"] == []


@wants
@pytest.mark.parametrize(("kind", "nth"), OTHERS)
def test_the_files_go_when_the_want_is_over(tmp_path, code, kind, nth):
    probe, root = ProbeIo(), tmp_path / "s"
    with MessageStore.open(root, _io=probe, **SMALL) as store:
        filled(store)
        refuse(probe, kind, nth, code)
        done = store.delete_topics("T")
        assert (done.removed, done.kept) == ([("T", 0), ("T", 1)], []) and ("T", 0) in done.pending
        assert store.topics() == ["Other"] and bodies(store) == [] and store.max_offset("T", 0) == 0
        stays_whole(store)
        assert store.wait_dispatched(30)                        # others are dispatched
        until(lambda: probe.hits > 3)                           # it is tried again
        assert os.path.isdir(root / "consumequeue" / "T" / "0") and store.stats()["errno"] == 0
        probe.clear()
        until(lambda: not os.path.exists(root / "consumequeue" / "T" / "0"))
        assert store.put("T", b"new").queue_offset == 0 and store.wait_dispatched(30) and bodies(store) == [b"new"]
    begun_anew(root)


@wants
@pytest.mark.parametrize("end", ["continues", "closed", "closed later", "killed"])
def test_messages_come_while_the_files_are_there(tmp_path, code, end):
    probe, root = ProbeIo(), tmp_path / "s"
    with MessageStore.open(root, _io=probe, **{**SMALL, "close_timeout_ms": 200}) as store:
        filled(store)
        refuse(probe, "unlink", 2, code)
        assert store.delete_topics("T").pending == [("T", 0), ("T", 1)]
        assert store.put("T", b"new").queue_offset == 0
        assert not store.wait_dispatched(0.3) and bodies(store) == []
        stays_whole(store)
        if end == "killed":
            shutil.copytree(root, tmp_path / "killed")
        if end == "closed":
            with suppress(RmqStoreError):
                store.close()
        probe.clear()
        if end == "continues":
            assert store.wait_dispatched(30) and bodies(store) == [b"new"] and store.max_offset("T", 1) == 0
    begun_anew(tmp_path / "killed" if end == "killed" else root)


@pytest.mark.parametrize("cleaned", [False, True], ids=["", "cleaned"])
@pytest.mark.parametrize(("topic", "nth"), [("T", 1), ("T", 2), ("T", 3), ("%LMQ%T", 1)])
def test_closed_in_the_pause_without_new_messages(tmp_path, topic, nth, cleaned):
    """The next open deletes them, also where the log was cleaned of what they lead to."""
    probe, root, light = ProbeIo(), tmp_path / "s", topic != "T"
    with MessageStore.open(root, _io=probe, **SMALL, **LIGHT) as store:
        for _ in range(150):
            store.put("P", b"old", light_queues=["T"]) if light else store.put("T", b"old")
        store.put("Other", b"0")
        assert store.wait_dispatched(30)
        refuse(probe, "unlink", nth, errno.EMFILE, f"/consumequeue/{topic}")
        assert store.delete_topics(topic).pending == [(topic, 0)]
        while cleaned and store.min_log_offset == 0:
            store.put("Other", bytes(4000))
            store.flush()
            assert store.wait_dispatched(30)
            store.clean(0)
        store.delete_topics("Nobody")                           # which leaves out what counts no more
        assert bodies(store, topic) == [] and store.stats()["errno"] == 0
    probe.clear()
    with MessageStore.open(root, **SMALL, **LIGHT) as store:
        assert store.max_offset(topic, 0) == 0 and topic not in store.topics()
        store.put("P", b"new", light_queues=["T"]) if light else store.put("T", b"new")
        assert store.wait_dispatched(30) and bodies(store, topic) == [b"new"]


def calls_of_a_deletion(root):
    probe = ProbeIo()
    with MessageStore.open(root, _io=probe, **SMALL) as store:
        filled(store)
        begun = probe.length
        store.delete_topics("T")
        return sum(call.kind in CHANGES.split("|") for call in probe.trace(begun))


@wants
def test_every_call_of_a_deletion(tmp_path, code):
    """Done, or raised with its name; and whole or gone wherever the process is killed."""
    count = calls_of_a_deletion(tmp_path / "count")
    assert count > 10
    for nth in range(1, count + 1):
        probe, root, killed = ProbeIo(), tmp_path / f"s{nth}", tmp_path / f"k{nth}"
        with MessageStore.open(root, _io=probe, **SMALL) as store:
            filled(store)
            store.offsets.commit("G", "T", 0, 5)
            refuse(probe, CHANGES, nth, code, None)
            removed, raised = [], None
            try:
                removed = store.delete_topics("T").removed
            except RmqStoreError as error:
                raised = error
                assert error.errno == code
            assert store.stats()["errno"] == 0
            shutil.copytree(root, killed)
            probe.clear()
            assert bodies(store) == [] if removed else raised is not None
            assert not bodies(store) or len(bodies(store)) == 70
            store.delete_topics("T")
            until(lambda: not store.delete_topics("T").pending)
            assert store.topic_table.get("T") is None and store.offsets.topics("G") == []
            assert store.put("T", b"new").queue_offset == 0 and store.wait_dispatched(30) and bodies(store) == [b"new"]
            stays_whole(store)
        begun_anew(root)
        with MessageStore.open(killed, **SMALL) as store:
            assert len(bodies(store)) in ((0,) if removed else (0, 70)), nth
            assert bodies(store, "Other")[:1] == [b"0"]
            assert store.put("T", b"x").queue_offset == (70 if bodies(store) else 0)


def test_many_deletions_and_puts_at_once(tmp_path):
    """Of topics that get messages all the while, under a want that comes and goes."""
    probe, root, end = ProbeIo(keep_bytes=False), tmp_path / "s", threading.Event()
    failed = []

    def run(step):
        while not end.is_set():
            try:
                step()
            except (errors.DiskFull, errors.OutOfResources):
                pass
            except BaseException as error:
                failed.append(error)
                raise

    with MessageStore.open(root, _io=probe, **SMALL) as store:
        steps = [lambda t=t: store.put(t, b"x") for t in ("A", "B", "C")]
        steps += [lambda t=t: store.delete_topics(t) for t in ("A", "B")] + [lambda: store.delete_topics("A", "C")]
        threads = [threading.Thread(target=run, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        for n in range(12):
            refuse(probe, "unlink|rmdir", 1 + n % 3, WANTS[n % len(WANTS)], "/consumequeue/")
            end.wait(0.05)
            probe.clear()
            end.wait(0.02)
        end.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert failed == [] and store.stats()["errno"] == 0
        assert store.wait_dispatched(30)
        last = {topic: store.put(topic, b"last").queue_offset for topic in ("A", "B", "C")}
        assert store.wait_dispatched(30)
        for topic, offset in last.items():
            assert len(bodies(store, topic)) == offset + 1 and bodies(store, topic)[-1] == b"last"
        found = {topic: bodies(store, topic) for topic in last}
    with MessageStore.open(root, **SMALL) as store:
        assert {topic: bodies(store, topic) for topic in last} == found


@pytest.mark.parametrize("again", [False, True], ids=["nothing comes", "messages come"])
def test_a_topic_with_batch_queues_keeps_its_entry_until_they_are_gone(tmp_path, again):
    """Else no open would know what kind of queues they are."""
    probe, root = ProbeIo(), tmp_path / "s"
    with MessageStore.open(root, _io=probe, **SMALL) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
        store.put_inner_batch("B", BATCH)
        assert store.wait_dispatched(30)
        refuse(probe, "unlink", 1, errno.EMFILE, "/batchconsumequeue/")
        done = store.delete_topics("B")
        assert (done.removed, done.kept, done.pending) == ([("B", 0)], [], [("B", 0)])
        assert store.topics() == [] and store.topic_table.get("B") is not None
        shutil.copytree(root, tmp_path / "killed")
        if again:
            store.put_inner_batch("B", BATCH)
            assert not store.wait_dispatched(0.2)
        probe.clear()
        if again:
            assert store.wait_dispatched(30) and store.max_offset("B", 0) == 3
            assert [bytes(m.body) for m in store.scan("B", 0)] == [b"0", b"1", b"2"]
        else:
            until(lambda: store.topic_table.get("B") is None)
            store.delete_topics("Nobody")                       # waits for the control thread, which deletes the entry
            store.put("B", b"plain")                            # its queues are of no kind any more
            assert store.wait_dispatched(30) and bodies(store, "B") == [b"plain"]
        assert store.stats()["errno"] == 0
    with MessageStore.open(tmp_path / "killed", **SMALL) as store:
        assert store.max_offset("B", 0) == 0
        store.put_inner_batch("B", BATCH)
        assert store.wait_dispatched(30) and store.max_offset("B", 0) == 3


@pytest.mark.parametrize("kind", ["expired", "ext", "light"])
def test_other_removals(tmp_path, kind):
    probe, root, options = ProbeIo(), tmp_path / "s", {**SMALL, **LIGHT}
    topic = "%LMQ%T" if kind == "light" else "T"
    path = f"/consumequeue_ext/{topic}" if kind == "ext" else f"/consumequeue/{topic}"
    if kind == "ext":
        options |= {"consumequeue_ext_enabled": True, "consumequeue_ext_file_size_bytes": 4096, "enable_lmq": False}

    def put(body):
        return store.put("P", body, light_queues=["T"]) if kind == "light" else store.put("T", body)

    with MessageStore.open(root, _io=probe, **options) as store:
        put(b"old")
        store.put("Other", b"0")
        assert store.wait_dispatched(30)
        while kind == "expired" and store.min_log_offset == 0:
            store.put("Other", bytes(4000))
            store.flush()
            assert store.wait_dispatched(30)
            store.clean(0)
        refuse(probe, "unlink", 1, errno.ENFILE, path)
        done = store.clean_expired_queues() if kind == "expired" else store.delete_topics(topic)
        assert (done.removed, done.pending) == ([(topic, 0)], [(topic, 0)])
        put(b"new")
        assert not store.wait_dispatched(0.2) and bodies(store, topic) == []
        assert store.flush() > 0 and store.stats()["errno"] == 0
        shutil.copytree(root, tmp_path / "killed")
        probe.clear()
        assert store.wait_dispatched(30) and bodies(store, topic) == [b"new"]
    for place in (root, tmp_path / "killed"):
        with MessageStore.open(place, **options) as store:
            assert bodies(store, topic) == [b"new"]
            put(b"next")
            assert store.wait_dispatched(30) and bodies(store, topic) == [b"new", b"next"]


def test_a_slave_whose_queue_begins_anew(tmp_path):
    probe = ProbeIo()
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m, _io=probe) as s:
        joined(m)
        m.put("T", b"old")
        caught_up(s, m)
        refuse(probe, "unlink", 1, errno.EMFILE)
        m.delete_topics("T")
        m.put("T", b"new")
        m.put("Other", b"0")
        until(lambda: probe.hits > 2)
        assert s.stats()["errno"] == 0 and bodies(s) == []
        probe.clear()
        caught_up(s, m)
        same_queues(m, s)
        assert bodies(s) == [b"new"]


def test_the_compaction_log_of_a_removed_queue(tmp_path):
    probe, root = ProbeIo(), tmp_path / "s"
    with MessageStore.open(root, _io=probe, **SMALL) as store:
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
        store.put("C", b"old", keys="k")
        store.flush()
        assert store.wait_dispatched(30)
        store.compact("C")
        places = compaction.Places(str(root), "C", 0)
        assert compaction.starts(places.log)
        refuse(probe, "unlink", 1, errno.EMFILE, "/compaction/")
        assert store.delete_topics("C").removed == [("C", 0)]
        assert store.compaction_states() == [] and store.stats()["errno"] == 0
        probe.clear()
        until(lambda: not compaction.starts(places.log))


def test_a_sync_of_a_deletion_that_fails_is_a_fence(tmp_path):
    """Whatever its errno: it is not made again."""
    probe = ProbeIo()
    with pytest.raises(errors.SyncFailed), MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store:
        filled(store)
        probe.fail("sync_dir", 1, errno.ENOSPC, path="/consumequeue/T")
        with pytest.raises(OSError):
            store.delete_topics("T")
        assert store.stats()["errno"] == errno.ENOSPC
        store.put("T", b"x")


def test_a_sync_of_a_deletion_that_fails_before_an_entry_is_a_fence(tmp_path):
    probe = ProbeIo()
    with pytest.raises(errors.DurabilityError) as raised, \
            MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store:
        filled(store)
        probe.fail("unlink", 1, errno.EMFILE, path="/consumequeue/T/0")
        probe.fail("sync_dir", 1, errno.ENOSPC, path="/consumequeue/T/0", sticky=True)
        assert store.delete_topics("T").pending == [("T", 0)]
        store.put("T", b"new")
        until(lambda: store.stats()["errno"])
        assert probe.hits == 2                                  # it was not made again
    assert raised.value.errno == errno.ENOSPC


def test_files_that_nobody_may_delete_are_no_fence(tmp_path):
    """The caller is told, and the store continues."""
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store:
        filled(store)
        refuse(probe, "unlink", 1, errno.EACCES)
        with pytest.raises(PermissionError):
            store.delete_topics("T")
        assert bodies(store) == []
        stays_whole(store)
        assert store.wait_dispatched(30)
        probe.clear()
        until(lambda: not os.path.exists(tmp_path / "s" / "consumequeue" / "T" / "0"))
        store.delete_topics("T")
        assert store.put("T", b"new").queue_offset == 0 and store.wait_dispatched(30)
