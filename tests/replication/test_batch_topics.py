"""A slave knows that a topic has batch queues before it adds the first message of it: the log does not say so, and the queues
that a topic has at first it keeps for good."""
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rmq_store import Broker, MessageStore, promote
from rmq_store.events import Event
from rmq_store.status import PutStatus
from tests.replication.pairs import SMALL, Listening, caught_up, fill, joined, log_of, same_log, slave
from tests.replication.test_metadata import copied, follower, leader
from tests.soon import until

NEVER = {"ha_metadata_interval_ms": 3_600_000}


@contextmanager
def settled(tmp_path: Path) -> Iterator[tuple[Broker, MessageStore]]:
    """A master, and a slave that has copied all there is, and copies no topics by itself."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, **NEVER) as s:
        joined(m.store)
        fill(m.store, 20)
        caught_up(s, m.store)
        copied(s)
        yield m, s


def bodies(store: MessageStore, topic: str) -> list[bytes]:
    return [bytes(x.body) for queue in store.queues(topic) for x in store.scan(topic, queue)]


def said(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.event == Event.BATCH_UNKNOWN.name for record in caplog.records if hasattr(record, "event"))


@pytest.mark.parametrize("role", ["master", "sync_master"])
def test_topics_that_are_made_while_a_slave_follows(tmp_path: Path, role: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each gets its messages at once, among those of other topics, from several threads."""
    with leader(tmp_path / "m", role=role, slave_timeout_ms=20_000) as m, follower(tmp_path / "s", m, **NEVER) as s:
        joined(m.store)
        copied(s)

        def several(topic: str) -> None:
            m.store.topic_table.set_queue_type(topic, "BatchCQ")
            for i in range(20):
                found = m.store.put_inner_batch(topic, [b"%d" % i, b"more"], queue_id=i % 2)
                assert found.status == PutStatus.PUT_OK
                m.store.put("T0", b"x" * i)

        threads = [threading.Thread(target=several, args=(f"B{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        caught_up(s, m.store)
        same_log(m.store, s)
        for n in range(3):
            assert bodies(s, f"B{n}") == bodies(m.store, f"B{n}")
            assert len(bodies(s, f"B{n}")) == 40
    assert said(caplog) == 0
    promote(tmp_path / "s", **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as p:
        assert p.put_inner_batch("B0", [b"c"]).queue_offsets == [20]


def test_the_entry_is_in_its_file_first(tmp_path: Path) -> None:
    """Whoever kills the slave meanwhile finds a log and queues that fit the file."""
    with settled(tmp_path) as (m, s):
        end, save = s.max_log_offset, s.topic_table._file.save
        ends: list[int] = []

        def saved(*content: object) -> None:
            ends.append(s.max_log_offset)
            save(*content)

        s.topic_table._file.save = saved
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        caught_up(s, m.store)
        assert set(ends) == {end} and bodies(s, "B") == [b"a", b"b"]


def test_a_usual_copy_brings_the_entry_meanwhile(tmp_path: Path) -> None:
    """The first message comes while the file is being written for that copy."""
    with settled(tmp_path) as (m, s):
        end, save = s.max_log_offset, s.topic_table._file.save
        ends: list[int] = []

        def saved(*content: object) -> None:
            if not ends:
                m.store.put_inner_batch("B", [b"a", b"b"])
                until(lambda: s._replication.slave.topic() is not None, 20_000)
                ends.append(s.max_log_offset)
            save(*content)

        s.topic_table._file.save = saved
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        s._replication.metadata._wake.set()
        until(lambda: ends, 30_000)
        caught_up(s, m.store)
        assert set(ends) == {end} and bodies(s, "B") == [b"a", b"b"]
        copied(s)
        assert s.topic_table.get("B") == m.store.topic_table.get("B")


def test_a_copy_that_was_asked_for_before(tmp_path: Path) -> None:
    """Its answer does not name the topic yet, and does not take the entry away."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, **NEVER) as s:
        joined(m.store)
        copied(s)
        metadata, ask = s._replication.metadata, s._replication.metadata._client.ask

        def asked(code: int, *more: object) -> object:
            found = ask(code, *more)
            if code == 21 and m.store.max_log_offset == 0:
                m.store.topic_table.set_queue_type("B", "BatchCQ")
                m.store.put_inner_batch("B", [b"a", b"b"])
                until(lambda: s.topic_table.get("B") is not None, 20_000)
            return found

        metadata._client.ask = asked
        m.store.topic_table.set("Other", readQueueNums=2)
        metadata._wake.set()
        until(lambda: s.topic_table.get("B") is not None and s.topic_table.get("Other") is not None, 20_000)
        assert s.topic_table.get("B")["attributes"]["queue.type"] == "BatchCQ"
        caught_up(s, m.store)
        assert bodies(s, "B") == [b"a", b"b"]


@pytest.mark.parametrize("broker", ["", "127.0.0.1:1"])
def test_a_slave_that_cannot_ask(tmp_path: Path, broker: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody told it the master's broker, or that does not answer."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, ha_master_broker=broker or None) as s:
        joined(m.store)
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        for i in range(50):
            m.store.put_inner_batch("B", [b"a", b"b"], queue_id=i % 4)
        fill(m.store, 20)
        caught_up(s, m.store)
        same_log(m.store, s)
        assert bodies(s, "B") == bodies(m.store, "B") and len(bodies(s, "B")) == 100
    assert said(caplog) == 0
    promote(tmp_path / "s", **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as p:
        assert p.put_inner_batch("B", [b"c"]).queue_offsets == [26]


@pytest.mark.parametrize("follows", [True, False])
def test_the_master_deletes_the_topic_before_the_slave_has_it(tmp_path: Path, follows: bool,
                                                              caplog: pytest.LogCaptureFixture) -> None:
    """And makes it again: its broker does not name the topic while its first message is on its way."""
    with leader(tmp_path / "m") as m:
        if not follows:
            with follower(tmp_path / "s", m) as s:
                joined(m.store)
                fill(m.store, 20)
                caught_up(s, m.store)
        held = follower(tmp_path / "s", m) if follows else None
        try:
            if held is not None:
                joined(m.store)
            m.store.topic_table.set_queue_type("B", "BatchCQ")
            m.store.put_inner_batch("B", [b"a", b"b"])
            m.store.wait_dispatched(30)
            m.store.delete_topics("B")
            s = held or follower(tmp_path / "s", m)
            held = s
            caught_up(s, m.store)
            copied(s)
            m.store.topic_table.set_queue_type("B", "BatchCQ")
            m.store.put_inner_batch("B", [b"c", b"d"])
            m.store.put_inner_batch("B", [b"e"])
            caught_up(s, m.store)
            assert bodies(m.store, "B") == bodies(s, "B") == [b"c", b"d", b"e"]
        finally:
            if held is not None:
                held.close()
    assert said(caplog) == 0
    promote(tmp_path / "s", **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as p:
        p.topic_table.set_queue_type("B", "BatchCQ")
        assert p.put_inner_batch("B", [b"f"]).queue_offsets == [3]


def test_a_store_that_has_no_batch_queues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It has the log, and says once that it cannot read these."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, ha_master_broker=None, compat="4.9",
                                                    timer_wheel_enable=False) as s:
        joined(m.store)
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        for i in range(50):
            m.store.put_inner_batch("B", [b"a", b"b"], queue_id=i % 4)
        fill(m.store, 20)
        caught_up(s, m.store)
        same_log(m.store, s)
        until(lambda: said(caplog) == 1, 20_000)
        assert "does not give messages of topic B to readers" in caplog.text


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The entry cannot be written: the slave waits until it can, and says why."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, **NEVER) as s:
        joined(m.store)
        copied(s)
        save = s.topic_table._file.save

        def full(*content: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        s.topic_table._file.save = full
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        until(lambda: os.strerror(errno.ENOSPC) in caplog.text, 20_000)
        assert s.max_log_offset == 0
        until(lambda: s.replication().state == "stalled", 20_000)
        s.topic_table._file.save = save
        caught_up(s, m.store)
        until(lambda: s.replication().state == "follows", 20_000)
        assert bodies(s, "B") == [b"a", b"b"]


def test_what_came_before_is_acknowledged_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a slave waits for what the slave has, and not for the entry of another topic."""
    with leader(tmp_path / "m") as m:
        m.store.put("T", b"before")
        before = m.store.max_log_offset
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        end = m.store.max_log_offset
    log = log_of(tmp_path / "m", 0, end)
    with Listening() as listening, slave(tmp_path / "s", listening.address, ha_send_heartbeat_interval_ms=600_000,
                                         ha_housekeeping_interval_ms=3_600_000) as s, listening.accept() as peer:
        assert peer.read_report() == 0
        with monkeypatch.context() as patch:
            patch.setattr(s.topic_table, "set_queue_type", refused)
            peer.frame(0, log)
            assert peer.read_report() == before == s.max_log_offset
            assert s.wait_dispatched(30) and bodies(s, "T") == [b"before"]
        assert peer.read_report() == end


def test_it_says_that_it_cannot_write_the_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each time that the disk is full, once, and its state is not that of a slave that follows."""
    with settled(tmp_path) as (m, s):
        save = s.topic_table._file.save
        tries: list[int] = []

        def full(*content: object) -> None:
            tries.append(s.max_log_offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        for n in range(3):
            end, topic = s.max_log_offset, f"B{n}"
            tries.clear()
            s.topic_table._file.save = full
            m.store.topic_table.set_queue_type(topic, "BatchCQ")
            m.store.put_inner_batch(topic, [b"a", b"b"])
            until(lambda: s.replication().state == "stalled", 20_000)
            until(lambda: len(tries) > 3, 20_000)
            assert s.replication().state == "stalled" and set(tries) == {end}
            s.topic_table._file.save = save
            caught_up(s, m.store)
            until(lambda: s.replication().state == "follows", 20_000)
            assert bodies(s, topic) == [b"a", b"b"]
            failed = [r.fields for r in caplog.records if getattr(r, "event", "") == Event.REPLICATION_FAILED.name]
            assert len(failed) == n + 1 and failed[n]["offset"] == end
            assert failed[n]["reason"] == f"config/topics.json: {os.strerror(errno.ENOSPC)}"


def test_another_connection_is_not_stalled_before_it_has_tried(tmp_path: Path) -> None:
    """The write failed for the connection before it."""
    with leader(tmp_path / "m") as m:
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        end = m.store.max_log_offset
    log, states = log_of(tmp_path / "m", 0, end), []
    with Listening() as listening, slave(tmp_path / "s", listening.address) as s:
        save = s.topic_table.set_queue_type
        s.topic_table.set_queue_type = refused
        with listening.accept() as peer:
            assert peer.read_report() == 0
            peer.frame(0, log)
            until(lambda: s.replication().state == "stalled", 20_000)

        def tried(*arguments: object) -> object:
            states.append(s.replication().state)
            return save(*arguments)

        s.topic_table.set_queue_type = tried
        with listening.accept() as peer:
            assert peer.read_report() == 0
            peer.frame(0, log)
            until(lambda: s.max_log_offset == end, 20_000)
            assert states == ["compares"]


def test_its_master_goes_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came behind is not added, and comes again with the next connection."""
    with leader(tmp_path / "m") as m:
        ends = m.address, m.store.replication().address
        with follower(tmp_path / "s", m, ha_housekeeping_interval_ms=600_000, **NEVER) as s:
            joined(m.store)
            fill(m.store, 20)
            caught_up(s, m.store)
            copied(s)
            end, slave = s.max_log_offset, s._replication.slave
            with monkeypatch.context() as patch:
                patch.setattr(s.topic_table, "set_queue_type", refused)
                m.store.topic_table.set_queue_type("B", "BatchCQ")
                m.store.put_inner_batch("B", [b"a", b"b"])
                until(lambda: slave.topic() is not None, 20_000)
                m.close()
                until(lambda: s.replication().state == "waits", 20_000)
                assert s.max_log_offset == end and slave.topic() is None
            with leader(tmp_path / "m", listen=ends[0], ha_listen=ends[1]) as again:
                caught_up(s, again.store)
                assert bodies(s, "B") == [b"a", b"b"]


def refused(*arguments: object) -> object:
    raise OSError(errno.EAGAIN, "not now")


FOLLOW = """
import sys
from rmq_store import MessageStore
from tests.replication.pairs import SMALL
with MessageStore.open(sys.argv[1], **SMALL, role="slave", ha_master=sys.argv[2], ha_master_broker=sys.argv[3],
                       ha_metadata_interval_ms=3_600_000):
    print("open", flush=True)
    sys.stdin.readline()
"""


def test_killed_as_soon_as_it_has_the_message(tmp_path: Path) -> None:
    with leader(tmp_path / "m", role="sync_master", slave_timeout_ms=20_000) as m:
        for n in range(4):
            command = [sys.executable, "-P", "-c", FOLLOW, str(tmp_path / "s"), m.store.replication().address, m.address]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
            with closing(process.stdout), closing(process.stdin):
                assert process.stdout.readline() == b"open\n"
                until(lambda: any(r.lag_bytes == 0 and r.offset >= 0 for r in m.store.replicas()), 20_000)
                m.store.topic_table.set_queue_type(f"B{n}", "BatchCQ")
                found = m.store.put_inner_batch(f"B{n}", [b"a", b"b"])
                process.send_signal(signal.SIGKILL)
                process.wait()
            assert found.status == PutStatus.PUT_OK
            until(lambda: not m.store.replicas(), 20_000)
    promote(tmp_path / "s", **SMALL)
    with MessageStore.open(tmp_path / "s", **SMALL) as p:
        for n in range(4):
            assert bodies(p, f"B{n}") == [b"a", b"b"]
            assert p.put_inner_batch(f"B{n}", [b"c"]).queue_offsets == [2]
