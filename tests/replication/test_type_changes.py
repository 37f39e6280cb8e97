"""A name gets queues of the other kind on the master. The slave's queues and its topics.json never part, and it ends with the
messages that its master has."""
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore, promote, verify
from rmq_store.replication import anew
from rmq_store.services.cleaning import _clean
from tests.replication.pairs import SMALL, Listening, caught_up, joined, log_of, same_log, slave
from tests.replication.test_batch_topics import bodies, settled
from tests.replication.test_metadata import copied, follower, leader
from tests.soon import until

BATCHED = {"queue.type": "BatchCQ"}


def type_of(store: MessageStore, topic: str) -> object:
    return ((store.topic_table.get(topic) or {}).get("attributes") or {}).get("queue.type", "SimpleCQ")


def test_an_inner_batch_beside_an_answer_that_is_stale(tmp_path: Path) -> None:
    """The master was asked before its topic got batch queues; its first inner batch comes while the answer is written."""
    with settled(tmp_path) as (m, s):
        m.store.topic_table.set("B", readQueueNums=2)
        table, get = s.topic_table, s.topic_table.get
        makers: list[threading.Thread] = []

        def got(name: str) -> object:
            found = get(name)
            if name == "B" and not makers and threading.current_thread() is s._replication.metadata.thread:
                maker = threading.Thread(target=table.set_queue_type, args=("B", "BatchCQ"))
                maker.start()
                maker.join(0.5)             # it waits for the copy, or has made the entry
                makers.append(maker)
            return found

        table.get = got
        s._replication.metadata._wake.set()
        until(lambda: makers, 20_000)
        makers[0].join()
        with table._types:                  # another copy may have said since that the master has none
            assert (type_of(s, "B") == "BatchCQ") == (s.batch_topics == {"B"})
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        caught_up(s, m.store)
        assert bodies(s, "B") == [b"a", b"b"]
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as p:
        assert bodies(p, "B") == [b"a", b"b"]


def test_a_copy_that_takes_a_type_away_and_cannot_be_written(tmp_path: Path) -> None:
    with settled(tmp_path) as (m, s):
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        s._replication.metadata._wake.set()
        until(lambda: s.topic_table.get("B"), 20_000)
        m.store.topic_table.remove("B")             # and comes again with queues of the usual type
        m.store.topic_table.set("B", readQueueNums=2)
        save = s.topic_table._file.save
        fails: list[int] = []

        def full(*content: object) -> None:
            fails.append(1)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        s.topic_table._file.save = full
        s._replication.metadata._wake.set()
        until(lambda: fails, 20_000)
        until(lambda: s._replication.metadata._failed, 20_000)
        s.topic_table._file.save = save
        assert type_of(s, "B") == "BatchCQ" and s.batch_topics == {"B"}
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        caught_up(s, m.store)
        s._replication.metadata._wake.set()
        copied(s)
        assert bodies(s, "B") == [b"a", b"b"]
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as p:
        assert bodies(p, "B") == [b"a", b"b"]


def put(store: MessageStore, kind: str, *texts: bytes) -> None:
    """To two queues: each gets all texts."""
    for queue_id in (0, 1):
        if kind == "batch":
            store.topic_table.set_queue_type("B", "BatchCQ")
            store.put_inner_batch("B", [text + b"%d" % queue_id for text in texts], queue_id=queue_id)
        else:
            for text in texts:
                store.put("B", text + b"%d" % queue_id, queue_id=queue_id)
    store.wait_dispatched(30)


def promoted(path: Path, kind: str, expected: list[bytes]) -> None:
    """It has the master's messages, takes those of the same kind, and is as that of a master after another open."""
    promote(path, force=True, **SMALL)
    with MessageStore.open(path, **SMALL) as p:
        assert split(p) == expected
        put(p, kind, b"new")
    with MessageStore.open(path, **SMALL) as p:
        assert split(p) == sorted([*expected, b"new0", b"new1"])
    assert [f for f in verify(path) if f.severity not in ("note", "warning")] == []


def split(store: MessageStore) -> list[bytes]:
    if "B" not in store.topics():
        return []
    return sorted(bytes(m.body) for queue in store.queues("B") for m in store.scan("B", queue))


@pytest.mark.parametrize("broker", [True, False])
@pytest.mark.parametrize("when", ["live", "reopened", "new", "late"])
@pytest.mark.parametrize("kinds", ["batch plain", "plain batch", "batch plain batch", "plain batch plain", "batch batch plain"])
def test_a_name_of_the_other_kind(kinds: str, when: str, broker: bool, tmp_path: Path,
                                  caplog: pytest.LogCaptureFixture) -> None:
    """The slave follows; or it is opened again between two kinds, or at the end; or it is a new one that gets all at once."""
    more = {} if broker else {"ha_master_broker": None}
    with contextlib.ExitStack() as stack:
        m = stack.enter_context(leader(tmp_path / "m"))
        ends = m.address, m.store.replication().address
        m.store.put("Other", b"x")
        if when != "new":
            s = follower(tmp_path / "s", m, **more)
            joined(m.store)
            caught_up(s, m.store)
            if when != "live":
                s.close()
        for n, kind in enumerate(kinds.split()):
            if n > 0:
                m.store.delete_topics("B")
                m.close()                   # plain messages were put since this open
                m = stack.enter_context(leader(tmp_path / "m", listen=ends[0], ha_listen=ends[1]))
            put(m.store, kind, b"%d" % n * (n + 1), b"second")
            if when == "reopened":
                with follower(tmp_path / "s", m, **more) as s:
                    caught_up(s, m.store)
                    assert split(s) == split(m.store) != []
            elif when == "live":
                caught_up(s, m.store)
                assert split(s) == split(m.store) != []
        if when != "live":
            s = follower(tmp_path / "s", m, **more)
        stack.callback(s.close)
        caught_up(s, m.store)
        expected = split(m.store)
        assert split(s) == expected and len(expected) == 4
        if broker:
            copied(s)
        s.close()
        s = follower(tmp_path / "s", m, **more)
        stack.callback(s.close)
        caught_up(s, m.store)
        assert split(s) == expected
        assert (type_of(s, "B") == "BatchCQ") == kinds.endswith("batch") == ("B" in s.batch_topics)
        same_log(m.store, s)
    assert not [r for r in caplog.records if getattr(r, "event", "") in ("BATCH_UNKNOWN", "TASK_FAILED")]
    promoted(tmp_path / "s", kinds.split()[-1], expected)


KILLED = """
import os, signal, sys
from pathlib import Path
from rmq_store import MessageStore
from rmq_store.services.cleaning import _clean
from rmq_store.services.consumer.config_file import ConfigFile
from tests.replication.pairs import SMALL
left = int(sys.argv[4])
def step():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
def stepped(call):
    def made(*arguments):
        step()
        found = call(*arguments)
        step()
        return found
    return made
s = MessageStore.open(sys.argv[1], **SMALL, role="slave", ha_master=sys.argv[2])
ConfigFile.save = stepped(ConfigFile.save)
_clean.remove_queue = stepped(_clean.remove_queue)
while s.max_log_offset < int(sys.argv[3]) or not s.wait_dispatched(60):
    pass
os._exit(0)
"""


@pytest.mark.parametrize("kinds", ["batch plain", "plain batch"])
def test_a_kill_between_any_two_steps(kinds: str, tmp_path: Path) -> None:
    """The slave opens again, and is promoted, and has what its master has."""
    first, second = kinds.split()
    with contextlib.ExitStack() as stack:
        m = stack.enter_context(leader(tmp_path / "m"))
        put(m.store, first, b"old", b"er")
        with follower(tmp_path / "before", m, ha_master_broker=None) as s:
            caught_up(s, m.store)
            address = m.store.replication().address
        m.store.delete_topics("B")
        broker = m.address
        m.close()
        m = stack.enter_context(leader(tmp_path / "m", listen=broker, ha_listen=address))
        put(m.store, second, b"new")
        expected = split(m.store)
        for steps in range(30):
            killed, to_promote = tmp_path / f"s{steps}", tmp_path / f"p{steps}"
            shutil.copytree(tmp_path / "before", killed)
            command = [sys.executable, "-P", "-c", KILLED, killed, address, str(m.store.max_log_offset), str(steps)]
            found = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False).returncode
            assert found in (0, -signal.SIGKILL)
            shutil.copytree(killed, to_promote)
            with follower(killed, m, ha_master_broker=None) as s:
                caught_up(s, m.store)
                assert split(s) == expected
            promote(to_promote, force=True, **SMALL)
            with MessageStore.open(to_promote, **SMALL) as p:
                if p.max_log_offset == m.store.max_log_offset:      # else it was killed before the messages came
                    assert split(p) == expected
                    assert (type_of(p, "B") == "BatchCQ") == (second == "batch")
            if found == 0:
                break
        assert found == 0 and steps > 6


@pytest.mark.parametrize("broker", [True, False])
def test_many_names_while_topics_are_copied(broker: bool, tmp_path: Path) -> None:
    """The answers of the master are of any moment, and dispatch is behind: queues and file fit all the same."""
    more = {} if broker else {"ha_master_broker": None}
    names = [f"B{n}" for n in range(12)]
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, **more) as s:
        joined(m.store)
        for round_ in range(3):
            for name in names:
                m.store.topic_table.set_queue_type(name, "BatchCQ")
                m.store.put_inner_batch(name, [b"%d" % round_, b"more"], queue_id=round_ % 2)
                if broker:
                    s._replication.metadata._wake.set()
            m.store.delete_topics(*names)
        for name in names:
            m.store.put(name, b"plain", queue_id=round_ % 2)
            m.store.put(name, b"last", queue_id=5)
        caught_up(s, m.store)
        if broker:
            copied(s)
        for name in names:
            assert bodies(s, name) == bodies(m.store, name) == [b"plain", b"last"]
            assert type_of(s, name) == "SimpleCQ"
        assert s.batch_topics == frozenset()
    promote(tmp_path / "s", force=True, **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as p:
        assert all(bodies(p, name) == [b"plain", b"last"] for name in names)


@pytest.mark.untraced       # a record is made behind the trace's back
@pytest.mark.parametrize("queue_id", [0, 5])
def test_a_plain_message_in_a_batch_topic_of_rocketmq(queue_id: int, tmp_path: Path) -> None:
    """RocketMQ stores what a producer sends there by mistake, and no queue leads to it. The topic keeps its batch queues."""
    with MessageStore.open(tmp_path / "m", **SMALL) as m:
        m.topic_table.set_queue_type("B", "BatchCQ")
        m.put_inner_batch("B", [b"a", b"b"])
        for body in (*[b"x"] * (0 if queue_id else 2), b"a mistake"):
            m.put("C", body, queue_id=queue_id)         # its queue offset is that of the batch queue
        m.put_inner_batch("B", [b"c"])
        m.wait_dispatched(30)
        end = m.max_log_offset
    data = log_of(tmp_path / "m", 0, end)
    assert data.count(b"a mistake\x01C") == 1
    with Listening() as master, slave(tmp_path / "s", master.address) as s, master.accept() as peer:
        peer.read_report()
        peer.frame(0, data.replace(b"a mistake\x01C", b"a mistake\x01B"))
        until(lambda: s.max_log_offset == end, 20_000)
        assert s.wait_dispatched(30)
        assert [bytes(x.body) for x in s.scan("B", 0)] == [b"a", b"b", b"c"]
        assert s.batch_topics == {"B"}


@pytest.mark.parametrize("says", ["BatchCQ", "deleted", "nothing", "no broker"])
def test_a_first_plain_message_in_a_queue_of_its_own(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                     caplog: pytest.LogCaptureFixture) -> None:
    """It lies in a queue that has no batches. RocketMQ's master stores such a mistake, and a deleted topic may go on so, too:
    its broker tells which it is. Nothing is removed that a broker does not call removed."""
    monkeypatch.setattr(anew, "AGAIN_S", 0.01)
    with leader(tmp_path / "m") as m:
        M, broker = m.store, m.address
        M.topic_table.set_queue_type("B", "BatchCQ")
        M.put_inner_batch("B", [b"a", b"b"])
        M.put("C", b"plain", queue_id=1)
        M.wait_dispatched(30)
        end = M.max_log_offset
        M.flush()
        data = log_of(tmp_path / "m", 0, end)
        if says == "deleted":
            M.delete_topics("B")
        assert data.count(b"plain\x01C") == 1
        with Listening() as master, contextlib.ExitStack() as stack:
            s = stack.enter_context(slave(tmp_path / "s", master.address,
                                          **({} if says == "no broker" else {"ha_master_broker": broker})))
            peer = stack.enter_context(master.accept())
            peer.read_report()
            if says == "nothing":
                until(lambda: s.topic_table.get("B"), 20_000)      # the gate is open
                m.close()
            peer.frame(0, data.replace(b"plain\x01C", b"plain\x01B"))
            until(lambda: s.max_log_offset == end, 20_000)
            assert s.wait_dispatched(30)
            deleted = says == "deleted"
            assert [bytes(x.body) for x in s.scan("B", 0)] == ([] if deleted else [b"a", b"b"])
            assert [bytes(x.body) for x in s.scan("B", 1)] == ([b"plain"] if deleted else [])
            assert s.batch_topics == (set() if deleted else {"B"})
            told = [text for text in caplog.messages if "does not give messages of topic B to readers" in text]
            assert len(told) == (not deleted) and all("queue 1 is a plain one" in text for text in told)


@pytest.mark.parametrize("nth", range(1, 4))
def test_a_queue_that_cannot_be_removed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    """The slave knows no broker to ask: what says that the topic was deleted says so again when it is tried again."""
    remove, calls = _clean.remove_queue, 0

    def removed(*args: object) -> object:
        nonlocal calls
        calls += threading.current_thread().name == "rmq-anew"
        if calls == nth:
            calls += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return remove(*args)

    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, ha_master_broker=None) as s:
        joined(m.store)
        m.store.topic_table.set_queue_type("X", "BatchCQ")
        for queue_id in range(3):
            m.store.put_inner_batch("X", [b"old"] * 3, queue_id=queue_id)
        caught_up(s, m.store)
        monkeypatch.setattr(_clean, "remove_queue", removed)
        m.store.delete_topics("X")
        for n in range(5):
            m.store.put("X", b"new%d" % n, queue_id=0)
        caught_up(s, m.store)
        assert bodies(s, "X") == [b"new%d" % n for n in range(5)]
        assert [s.max_offset("X", queue_id) for queue_id in range(3)] == [5, 0, 0]
