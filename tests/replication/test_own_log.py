"""A slave changes nothing of its store for a master that is not its own: no mark, no topics, no offsets."""
import errno
import json
import os
import shutil
import socket
import struct
from pathlib import Path

import pytest

from rmq_store import Broker, MessageStore
from rmq_store.replication.mark import mark_path, read_mark
from tests.replication.pairs import SMALL, caught_up, connected, fill, joined, master, same_log, slave
from tests.replication.test_metadata import config, copied, follower, leader
from tests.soon import until


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return int(s.getsockname()[1])


@pytest.mark.parametrize("asks", [False, True])
def test_another_ones_directory(tmp_path: Path, asks: bool) -> None:
    """Somebody follows into the directory of a master that is stopped: it stays a master's, with its own topics."""
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        fill(s, 20, 2)
        s.topic_table.set("Own", readQueueNums=7)
    with leader(tmp_path / "m") as m:
        fill(m.store, 60, 1)
        m.store.topic_table.set("Own", readQueueNums=1)
        with follower(tmp_path / "s", m, **({} if asks else {"ha_master_broker": None})) as s:
            until(lambda: s.replication().state == "refused", 20_000)
            if asks:
                with pytest.raises(OSError, match="takes over nothing"):        # its log is long enough
                    s._replication.metadata.copy()
        assert not os.path.exists(mark_path(str(tmp_path / "s")))
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert s.topic_table.get("Own")["readQueueNums"] == 7
        assert s.put("T0", b"its own").queue_offset > 0


def test_the_directory_of_another_masters_slave(tmp_path: Path) -> None:
    """Its mark goes on to name its own master."""
    with master(tmp_path / "a") as a, master(tmp_path / "b") as b:
        with slave(tmp_path / "s", a) as s:
            joined(a)
            fill(a, 20, 1)
            fill(b, 20, 2)
            caught_up(s, a)
        before = read_mark(str(tmp_path / "s"))
        with slave(tmp_path / "s", b) as s:
            until(lambda: s.replication().state == "refused", 20_000)
        assert read_mark(str(tmp_path / "s")) == before
        with slave(tmp_path / "s", a) as s:
            fill(a, 20, 3)
            caught_up(s, a)


@pytest.mark.parametrize("asks", [False, True])
def test_the_mark_is_there_before_the_first_byte(tmp_path: Path, asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the master's directory has no mark, and becomes a slave's once it was compared."""
    from rmq_store.replication import service

    ends, write = [], service.write_mark
    with leader(tmp_path / "m") as m:
        fill(m.store, 20, 1)
        end = m.store.max_log_offset
    shutil.copytree(tmp_path / "m", tmp_path / "s")
    with leader(tmp_path / "m") as m:
        fill(m.store, 20, 2)
        follows: list[MessageStore] = []

        def noted(*arguments: object) -> None:
            ends.append(follows[0].max_log_offset)
            write(*arguments)

        monkeypatch.setattr(service, "write_mark", noted)
        monkeypatch.setattr(service.Replication, "tend", lambda self: None)
        with follower(tmp_path / "s", m, **({} if asks else {"ha_master_broker": None})) as s:
            follows.append(s)
            until(lambda: s._replication.slave is not None and s._replication.slave.compared(), 20_000)
            assert (s.replication().state, s.max_log_offset) == ("compares", end)
            monkeypatch.undo()
            monkeypatch.setattr(service, "write_mark", noted)
            caught_up(s, m.store)
            assert ends == [end]
            same_log(m.store, s)
    assert read_mark(str(tmp_path / "s")).role == "slave"


def test_the_mark_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is added, and whoever watches the slave sees it."""
    from rmq_store.replication import service

    tries: list[int] = []

    def full(*arguments: object) -> None:
        tries.append(0)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with master(tmp_path / "m") as m:
        fill(m, 20, 1)
        end = m.max_log_offset
    shutil.copytree(tmp_path / "m", tmp_path / "s")
    with master(tmp_path / "m") as m:
        fill(m, 20, 2)
        monkeypatch.setattr(service, "write_mark", full)
        with slave(tmp_path / "s", m) as s:
            until(lambda: len(tries) > 2, 20_000)
            until(lambda: s.replication().state == "stalled", 20_000)
            assert s.max_log_offset == end
            monkeypatch.undo()
            caught_up(s, m)
            until(lambda: s.replication().state == "follows", 20_000)
    (failed,) = (r.fields for r in caplog.records if getattr(r, "event", "") == "REPLICATION_FAILED")
    assert failed["reason"] == f"config/replica.json: {os.strerror(errno.ENOSPC)}" and failed["offset"] == end


def test_a_master_that_came_back_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As after a disk that was not mounted: what the slave has is all that is left."""
    with leader(tmp_path / "m") as m:
        m.store.topic_table.set("Kept", readQueueNums=3)
        m.store.group_table.set("G", retryMaxTimes=3)
        with follower(tmp_path / "s", m) as s:
            joined(m.store)
            fill(m.store, 60)
            m.store.offsets.commit("G", "T0", 0, 5)
            caught_up(s, m.store)
            copied(s)
        addresses = m.address, m.store.replication().address
    before = {name: config(tmp_path / "s", name) for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json")}
    assert "Kept" in before["topics.json"]["topicConfigTable"]
    with Broker.open(tmp_path / "empty", listen=addresses[0], brokerRole="ASYNC_MASTER", ha_listen=addresses[1], **SMALL) as m:
        m.store.offsets.commit("G", "T0", 0, 1)
        with follower(tmp_path / "s", m) as s:
            until(lambda: "it wants to compare from" in caplog.text, 20_000)
            with pytest.raises(OSError, match="nothing of it is taken over"):
                s._replication.metadata.copy()
            assert s.topic_table.get("Kept")["readQueueNums"] == 3 and s.offsets.query("G", "T0", 0) == 5
    assert {name: config(tmp_path / "s", name) for name in before} == before


def test_the_broker_of_another_master(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The slave follows its master, and takes over nothing of a broker that has less than itself."""
    with leader(tmp_path / "m") as m, leader(tmp_path / "other") as other:
        other.store.topic_table.set("Own", readQueueNums=1)
        with follower(tmp_path / "s", m, ha_master_broker=None) as s:
            joined(m.store)
            fill(m.store, 20, 1)
            caught_up(s, m.store)
            s.topic_table.set("Own", readQueueNums=7)
        with follower(tmp_path / "s", m, ha_master_broker=other.address) as s:
            until(lambda: "it is not this slave's master" in caplog.text, 20_000)
            fill(m.store, 20, 2)
            caught_up(s, m.store)
            assert s.topic_table.get("Own")["readQueueNums"] == 7


def test_a_topic_with_batch_queues_came_while_the_slave_was_away(tmp_path: Path) -> None:
    with leader(tmp_path / "m") as m:
        with follower(tmp_path / "s", m) as s:
            joined(m.store)
            fill(m.store, 20)
            caught_up(s, m.store)
        m.store.topic_table.set_queue_type("B", "BatchCQ")
        m.store.put_inner_batch("B", [b"a", b"b"])
        with follower(tmp_path / "s", m) as s:
            caught_up(s, m.store)
            assert [bytes(x.body) for x in s.scan("B", 0)] == [b"a", b"b"]


@pytest.mark.parametrize("host, at, full", [("127.0.0.1", "127.0.0.1", False), ("0.0.0.0", "localhost", True),
                                            ("0.0.0.0", "127.0.1.1", True), ("127.0.0.1", "[::ffff:127.0.0.1]", False)])
def test_a_slave_is_not_its_own_master(tmp_path: Path, host: str, at: str, full: bool,
                                       caplog: pytest.LogCaptureFixture) -> None:
    if full:
        with MessageStore.open(tmp_path / "s", **SMALL) as s:
            fill(s, 20)
    port = free_port()
    with slave(tmp_path / "s", f"{at}:{port}", ha_listen=f"{host}:{port}") as s:
        until(lambda: s.replication().state == "refused", 20_000)
        until(lambda: "listens for slaves itself" in caplog.text, 20_000)
        assert s.replicas() == [] or all(r.offset < 0 for r in s.replicas())


def test_a_master_at_the_same_port_of_another_address(tmp_path: Path) -> None:
    port = free_port()
    with master(tmp_path / "m", ha_listen=f"127.0.0.2:{port}") as m, \
            slave(tmp_path / "s", f"127.0.0.2:{port}", ha_listen=f"127.0.0.1:{port}") as s:
        joined(m)
        fill(m, 5)
        caught_up(s, m)


def test_the_two_families_of_addresses(tmp_path: Path) -> None:
    port = free_port()
    try:
        m = master(tmp_path / "m", ha_listen=f"[::1]:{port}")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with m, slave(tmp_path / "s", f"[::1]:{port}", ha_listen=f"0.0.0.0:{port}") as s:
        joined(m)
        fill(m, 5)
        caught_up(s, m)


def test_a_log_whose_files_have_another_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    size = SMALL["segment_size_bytes"]
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m, segment_size_bytes=2 * size) as s:
        joined(m)
        fill(m, 200)
        until(lambda: s.replication().state == "refused", 20_000)
        until(lambda: f"a file of its log ends at offset {size}, and here one ends at {2 * size}" in caplog.text, 20_000)


def test_somebody_looks_whether_the_port_is_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with master(tmp_path / "m") as m:
        with connected(m):
            until(lambda: len(m.replicas()) == 1)
        until(lambda: m.replicas() == [])
        with connected(m) as peer:
            peer.report(0)
            until(lambda: any(r.offset == 0 for r in m.replicas()))
        until(lambda: "REPLICA_WENT" in [getattr(r, "event", "") for r in caplog.records], 20_000)
    assert [r.event for r in caplog.records if getattr(r, "event", "") == "REPLICA_WENT"] == ["REPLICA_WENT"]


def test_a_client_at_the_port_for_slaves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head = json.dumps({"code": 21, "language": "JAVA", "opaque": 1, "version": 479}).encode()
    with master(tmp_path / "m") as m, connected(m) as peer:
        peer.socket.sendall(struct.pack(">ii", 4 + len(head), len(head)) + head)
        assert peer.closed_by_peer()
        until(lambda: "it sends requests of RocketMQ's clients" in caplog.text, 20_000)


def test_a_page_of_the_master_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A hole in the map in the place of a page that the device does not give: the kernel meets it when it sends."""
    with master(tmp_path / "m") as m:
        fill(m, 40)
        m.flush()
        log = tmp_path / "m" / "commitlog" / f"{0:020d}"
        kept = log.read_bytes()
        os.truncate(log, 4096)
        try:
            with slave(tmp_path / "s", m) as s:
                until(lambda: "which it needs next, cannot be read: Input/output error" in caplog.text, 20_000)
                assert s.max_log_offset < m.max_log_offset
        finally:
            with log.open("r+b") as f:
                f.write(kept)
