"""A slave knows that a topic has batch queues before it adds the first message of it: the log does not say so, and the queues
that a topic has at first it keeps for good."""
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from rmq_store import MessageStore, promote
from rmq_store.events import Event
from rmq_store.status import PutStatus
from tests.replication.pairs import SMALL, caught_up, fill, joined, same_log
from tests.replication.test_metadata import copied, follower, leader
from tests.soon import until

NEVER = {"ha_metadata_interval_ms": 3_600_000}


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


def test_offsets_that_wait_for_the_log_do_not_hold_topics(tmp_path: Path) -> None:
    """The slave has copied offsets for messages that wait for a topic."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, **NEVER) as s:
        joined(m.store)
        copied(s)
        metadata = s._replication.metadata
        ask = metadata._client.ask
        made = False

        def asked(code: int, *more: object) -> object:
            nonlocal made
            found = ask(code, *more)
            if code == 201 and not made:        # topics were asked for, offsets not yet
                made = True
                m.store.topic_table.set_queue_type("B", "BatchCQ")
                m.store.put_inner_batch("B", [b"a", b"b"])
                m.store.offsets.commit("G", "B", 0, 2)
            return found

        metadata._client.ask = asked
        metadata.wake()
        until(lambda: m.store.max_log_offset > 0, 20_000)
        caught_up(s, m.store)
        assert bodies(s, "B") == [b"a", b"b"]
        until(lambda: s.offsets.query("G", "B", 0) == 2, 20_000)


def test_the_entry_is_in_its_file_first(tmp_path: Path) -> None:
    """A usual copy brings the entry, and the first message comes before the file is written: whoever kills the slave then finds
    a log and queues that fit the file."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, **NEVER) as s:
        joined(m.store)
        fill(m.store, 20)
        caught_up(s, m.store)
        copied(s)
        end, save = s.max_log_offset, s.topic_table._file.save
        asked: list[int] = []

        def saved(*content: object) -> None:
            if not asked:
                m.store.put_inner_batch("B", [b"a", b"b"])
                until(lambda: s._replication.slave.asked() == 2, 20_000)
                asked.append(s.max_log_offset)
            save(*content)

        m.store.topic_table.set_queue_type("B", "BatchCQ")
        s.topic_table._file.save = saved
        s._replication.metadata.wake()
        until(lambda: asked, 30_000)
        caught_up(s, m.store)
        assert asked == [end] and bodies(s, "B") == [b"a", b"b"]


def test_another_slave_does_not_go_on_with_the_time_of_the_one_before(tmp_path: Path) -> None:
    """The name server says another master, and this one again."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, ha_housekeeping_interval_ms=3000, **NEVER) as s:
        joined(m.store)
        copied(s)
        replication = s._replication
        replication._asked = 2, 0.0             # of a slave that asked long ago
        address, broker = m.store.replication().address, m.address
        replication.follow(s, s.options, "127.0.0.1:1", broker)
        replication.follow(s, s.options, address, broker)
        assert replication._asked[0] < 2


def test_a_slave_that_nobody_told_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It has the log, and says once that it cannot read these."""
    with leader(tmp_path / "m") as m, follower(tmp_path / "s", m, ha_master_broker=None) as s:
        joined(m.store)
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        for i in range(50):
            m.store.put_inner_batch("B", [b"a", b"b"], queue_id=i % 4)
        fill(m.store, 20)
        caught_up(s, m.store)
        same_log(m.store, s)
        until(lambda: said(caplog) == 1, 20_000)
        assert "give the address of the master's broker (ha_master_broker, --broker)" in caplog.text


def test_a_broker_that_does_not_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The slave waits as long as for a silent master, and then keeps the log rather than the queues."""
    with leader(tmp_path / "m") as m, socket.create_server(("127.0.0.1", 0)) as refuses:
        address = f"127.0.0.1:{refuses.getsockname()[1]}"
        refuses.close()
        with follower(tmp_path / "s", m, ha_master_broker=address, ha_housekeeping_interval_ms=1000) as s:
            joined(m.store)
            m.store.topic_table.set_queue_type("B", "BatchCQ")
            m.store.put_inner_batch("B", [b"a", b"b"])
            fill(m.store, 20)
            caught_up(s, m.store)
            same_log(m.store, s)
            until(lambda: said(caplog) == 1, 20_000)


def test_its_master_goes_while_it_waits(tmp_path: Path) -> None:
    """What came behind the last topics that were copied is not added, and comes again with the next connection."""
    with leader(tmp_path / "m") as m:
        ends = m.address, m.store.replication().address
        with follower(tmp_path / "s", m, ha_housekeeping_interval_ms=600_000, **NEVER) as s:
            joined(m.store)
            fill(m.store, 20)
            caught_up(s, m.store)
            copied(s)
            end = s.max_log_offset
            s._replication.metadata._client.ask = refused
            m.store.topic_table.set_queue_type("B", "BatchCQ")
            m.store.put_inner_batch("B", [b"a", b"b"])
            slave = s._replication.slave
            until(lambda: slave.asked() == 2, 20_000)
            m.close()
            until(lambda: s.replication().state == "waits", 20_000)
            assert s.max_log_offset == end
            del s._replication.metadata._client.ask
            with leader(tmp_path / "m", listen=ends[0], ha_listen=ends[1]) as again:
                caught_up(s, again.store)
                assert bodies(s, "B") == [b"a", b"b"]


def refused(code: int, *more: object) -> object:
    raise OSError("nobody is there")


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
