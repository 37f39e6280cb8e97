"""A master and a slave of this library: the slave's log is the master's, byte for byte, whatever comes between them."""
import itertools
import random
import re
import shutil
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.status import GetStatus
from tests.replication.pairs import (
    SMALL,
    Listening,
    caught_up,
    connected,
    content_of,
    fill,
    joined,
    log_of,
    master,
    queues_of,
    same_log,
    same_queues,
    slave,
)
from tests.soon import until


@pytest.mark.parametrize("how", [{}, {"write_path": "pool"}, {"flush_mode": "sync"},
                                 {"flush_mode": "sync", "compat": "4.9", "write_path": "pool"},
                                 {"write_path": "pool", "flush_backend": "fdatasync"}])
def test_slave_has_what_the_master_has(tmp_path: Path, how: dict) -> None:
    with master(tmp_path / "m", **how) as m, slave(tmp_path / "s", m) as s:
        joined(m)
        fill(m, 300)
        caught_up(s, m)
        assert same_log(m, s) > 2 * SMALL["segment_size_bytes"]
        same_queues(m, s)
        assert [bytes(x.body) for x in s.query_key("T1", "k4")] == [bytes(x.body) for x in m.query_key("T1", "k4")] != []
        until(lambda: [r.lag_bytes for r in m.replicas()] == [0])
        (replica,) = m.replicas()
        assert (replica.offset, replica.lag_ms) == (m.max_log_offset, 0)
        assert s.replication().state == "follows"
        assert s.replication().master_offset == m.max_log_offset


def test_an_empty_slave_follows_an_empty_master_at_once(tmp_path: Path) -> None:
    """It is told that there is nothing; a heartbeat would come a minute later."""
    with master(tmp_path / "m", ha_send_heartbeat_interval_ms=60_000, ha_housekeeping_interval_ms=120_000) as m, \
            slave(tmp_path / "s", m) as s:
        until(lambda: s.replication().state == "follows", 30_000)
        fill(m, 3)
        caught_up(s, m)


def test_slave_refuses_puts(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        for put in (lambda: s.put("T", b"x"), lambda: s.put_many("T", [b"x"]), lambda: s.put_async("T", b"x")):
            with pytest.raises(errors.ServiceNotAvailable, match="is a slave of"):
                put()
        assert s.max_log_offset == 0


def test_waiting_reader_of_a_slave(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        m.put("T", b"one")
        result = s.get("T", 0, 0, wait=20)
        assert result.status == GetStatus.FOUND
        assert [bytes(x.body) for x in result] == [b"one"]


def test_either_side_comes_back(tmp_path: Path) -> None:
    """Also a slave that is far behind when it does."""
    port = 0
    r = random.Random(3)
    with master(tmp_path / "m") as m:
        port = int(m.replication().address.rpartition(":")[2])
        with slave(tmp_path / "s", m) as s:
            fill(m, 50)
            caught_up(s, m)
        fill(m, 200, 1)
        s = slave(tmp_path / "s", m)
        caught_up(s, m)
    for i in range(3):
        with master(tmp_path / "m", ha_listen=f"127.0.0.1:{port}") as m:
            fill(m, r.randrange(80), i)
            caught_up(s, m)
    with master(tmp_path / "m", ha_listen=f"127.0.0.1:{port}") as m:
        caught_up(s, m)
        same_log(m, s)
        same_queues(m, s)
    s.close()


def test_empty_slave_begins_with_the_last_file(tmp_path: Path) -> None:
    """As RocketMQ's: what is older it never gets. Opened again, it continues."""
    with master(tmp_path / "m") as m:
        fill(m, 300)
        last = m.max_log_offset - m.max_log_offset % SMALL["segment_size_bytes"]
        with slave(tmp_path / "s", m) as s:
            caught_up(s, m)
            assert s.min_log_offset == last > 0
            same_log(m, s)
        fill(m, 100, 5)
        with slave(tmp_path / "s", m) as s:
            caught_up(s, m)
            assert s.min_log_offset == last
            same_log(m, s)
            for queue in queues_of(s):
                mine = content_of(s, *queue)
                assert mine == [x for x in content_of(m, *queue) if x[0] >= mine[0][0]]
            assert queues_of(s) == queues_of(m)


def test_promoted_slave_takes_puts(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        joined(m)
        fill(m, 100)
        caught_up(s, m)
        ends = {q: m.max_offset(*q) for q in queues_of(m)}
    with master(tmp_path / "s") as s:
        assert {q: s.max_offset(*q) for q in queues_of(s)} == ends
        result = s.put("T0", b"after")
        assert result.queue_offset == ends["T0", 0]


def test_logs_that_part(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A slave whose log is another one's is refused with the place where they part, and keeps every byte."""
    with MessageStore.open(tmp_path / "s", **SMALL) as s, MessageStore.open(tmp_path / "m", **SMALL) as m:
        at = [store.put("T", b"same", born_timestamp=1).offset for store in (s, m)]
        for _ in range(20):
            s.put("T", b"slave's own", wait=False)
            m.put("T", b"the master's", wait=False)
        m.put("T", b"x" * 5000)
    assert at == [0, 0]
    before = (tmp_path / "s" / "commitlog" / f"{0:020d}").read_bytes()
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        until(lambda: s.replication().state == "refused", 20_000)
        end = s.max_log_offset
        until(lambda: "the logs part at or before offset" in caplog.text, 20_000)
        assert s.max_log_offset == end
    assert (tmp_path / "s" / "commitlog" / f"{0:020d}").read_bytes() == before


def test_slave_that_is_ahead(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        joined(m)
        fill(m, 100)
        caught_up(s, m)
        end = m.max_log_offset
    with master(tmp_path / "empty") as m, slave(tmp_path / "s", m) as s:
        until(lambda: f"offset {end}" in caplog.text or "it wants to compare from" in caplog.text, 20_000)
        assert s.max_log_offset == end
        with connected(m) as peer:
            peer.report(end)
            assert peer.closed_by_peer()


@pytest.mark.parametrize("since", [0, 3])
@pytest.mark.parametrize("more", [1, 10, 300])
def test_a_slave_with_more_than_its_master_stays_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture, more: int,
                                                         since: int) -> None:
    """An old master beside its successor: between two attempts, too, and the log says where they part, and what to do. more:
    messages of 10,000 bytes that the slave has; since: those that the master has in their place."""
    small = {**SMALL, "segment_size_bytes": 8 << 20, "ha_send_heartbeat_interval_ms": 100}
    with MessageStore.open(tmp_path / "m", **small) as m:
        m.put("T", b"both", wait=True)
        end = m.max_log_offset
    shutil.copytree(tmp_path / "m", tmp_path / "s")
    for name, count in ("s", more), ("m", since):
        with MessageStore.open(tmp_path / name, **small) as store:
            for _ in range(count):
                store.put("T", name.encode() * 10_000)
    with master(tmp_path / "m", **small) as m, slave(tmp_path / "s", m, **small) as s:
        until(lambda: s.replication().state == "refused", 20_000)
        until(lambda: "does not follow master" in caplog.text, 20_000)
        where = re.search("the logs part at or before offset ([0-9]+)|the master's log ends at offset ([0-9]+)", caplog.text)
        assert where is not None and end <= int(where[1] or where[2]) < end + 200, caplog.text
        tries: set[str] = set()
        seen: set[str] = set()

        def again() -> bool:
            seen.add(s.replication().state)
            tries.update(r.address for r in m.replicas())
            return len(tries) >= 4

        until(again, 20_000)
        assert seen == {"refused"}


def test_a_slave_reports_what_came_in_long_pieces(tmp_path: Path) -> None:
    """Of a stream it reports a part only, but always its end, and each piece that nothing follows."""
    large = {"segment_size_bytes": 8 << 20, "message_size_max_bytes": 1 << 20}
    late = {"ha_send_heartbeat_interval_ms": 3_000_000, "ha_housekeeping_interval_ms": 3_600_000}
    with master(tmp_path / "source", **large) as m:
        begins = [m.put("T", bytes(200_000)).offset for _ in range(30)]
        end = m.max_log_offset
        log = log_of(tmp_path / "source", 0, end)
    with Listening() as listening, slave(tmp_path / "s", listening.address, **late, **large), listening.accept() as peer:
        assert peer.read_report() == 0
        for begin, behind in itertools.pairwise([*begins[:8], end]):      # the last piece is many messages
            for at in range(begin, behind, 32768):
                peer.frame(at, log[at:min(at + 32768, behind)])
            reported = begin
            while reported < behind:
                reported = peer.read_report()
            assert reported == behind


def test_names_of_rocketmq(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "m", **SMALL, brokerRole="ASYNC_MASTER", haListenPort=0) as m:
        address = m.replication().address
        assert address.startswith("127.0.0.1:")
        with MessageStore.open(tmp_path / "s", **SMALL, brokerRole="SLAVE", haMasterAddress=address) as s:
            m.put("T", b"x")
            caught_up(s, m)
    with pytest.raises(errors.ConfigError, match="haMasterAddress"):
        MessageStore.open(tmp_path / "x", brokerRole="SLAVE")
    with pytest.raises(errors.ConfigError, match="haListenPort"):
        MessageStore.open(tmp_path / "x", brokerRole="SYNC_MASTER")
    with MessageStore.open(tmp_path / "m", **SMALL, readonly=True, ha_listen="127.0.0.1:0") as reader:
        assert reader.replicas() == []
        with pytest.raises(errors.StoreStateError, match="read-only"):
            reader.replication()


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    with master(tmp_path / "m") as m, pytest.raises(OSError, match="Address already in use"):
        master(tmp_path / "other", ha_listen=m.replication().address)
    with master(tmp_path / "other") as other:
        other.put("T", b"x")
