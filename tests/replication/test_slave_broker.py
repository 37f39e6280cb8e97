"""A broker that is a slave: its name server, what it answers, and what it refuses."""
import errno
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_store import Broker, MessageStore, NameServer, promote
from rmq_store.errors import ConfigError, ServiceNotAvailable, StoreStateError
from rmq_store.replication import metadata, service
from rmq_store.replication.mark import read_mark
from tests.broker.peer import Peer
from tests.replication.pairs import SMALL, caught_up, joined, master, slave
from tests.replication.test_metadata import FAST, copied, follower, leader
from tests.soon import until


def slave_broker(path: Path, names: str, **more: object) -> Broker:
    return Broker.open(path, namesrv=names, namesrv_listen=None, brokerRole="SLAVE", brokerId=1, **{**SMALL, **FAST, **more})


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Broker, Broker]]:
    """A master with a name server, and a slave that learns of the master there."""
    more: dict[str, Any] = getattr(request, "param", {})
    with leader(tmp_path / "m", **more) as m, slave_broker(tmp_path / "s", m.namesrv_address, **more) as s:
        joined(m.store)
        yield m, s


def test_a_slave_learns_its_master_from_the_name_server(pair: tuple[Broker, Broker]) -> None:
    m, s = pair
    with Peer(m.address) as peer, Peer(m.namesrv_address) as names:
        peer.put("T")
        caught_up(s.store, m.store)
        state = s.store.replication()
        assert (state.master, state.broker) == (m.store.replication().address, m.address)
        route = json.loads(names.ask(105, topic="T").body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": m.address, "1": s.address}
        assert json.loads(names.ask(106).body)["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": m.address, "1": s.address}
        copied(s.store)
        assert s.store.topic_table.get("T") is not None


def test_a_slave_refuses_what_changes_its_store(pair: tuple[Broker, Broker]) -> None:
    _, s = pair
    with Peer(s.address) as peer:
        sent = peer.put("New")
        assert (sent.code, "is a slave" in sent.remark) == (14, True)
        assert peer.put("New", properties={"TRAN_MSG": "true", "PGROUP": "P"}, f=4).code == 14
        assert peer.ask(36, group="G", offset=0, delayLevel=0).code == 14
        assert peer.ask(37, producerGroup="P", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8).code == 11
        assert json.loads(peer.ask(28).body)["table"]["brokerRole"] == "SLAVE"
        assert b"brokerId=1\n" in peer.ask(26).body
    with pytest.raises(ServiceNotAvailable, match=r"is a slave: put to the master$"):
        s.store.put("New", b"x")


def test_a_slave_removes_no_queues_of_its_own(pair: tuple[Broker, Broker]) -> None:
    """Its master would not know. The groups' offsets stay, too."""
    m, s = pair
    with Peer(m.address) as peer, Peer(s.address) as other:
        peer.put("T", queue=1)
        peer.ask(15, consumerGroup="G", topic="T", queueId=1, commitOffset=1)
        caught_up(s.store, m.store)
        copied(s.store)
        assert other.ask(215, topic="T").code == 14
        for remove in (lambda: s.store.delete_topics("T"), lambda: s.store.clean_unused_topics(()),
                       s.store.clean_expired_queues):
            with pytest.raises(StoreStateError, match="remove topics and queues on the master"):
                remove()
        assert s.store.offsets.query("G", "T", 1) == s.store.max_offset("T", 1) == 1
        assert s.store.topic_table.get("T") is not None
    assert s.store.topic_table.get("New") is None


def on_both_ports(path: Path, **more: object) -> Broker:
    """The system gives a free port, whose neighbour others may have."""
    for _ in range(20):
        broker = leader(path, **more)
        if broker.fast_address is not None:
            return broker
        broker.close()
    raise AssertionError("the second port was taken twenty times")


def test_a_master_answers_a_slave_on_both_ports(tmp_path: Path) -> None:
    with on_both_ports(tmp_path / "m") as m, on_both_ports(tmp_path / "old", compat="4.9") as old:
        for broker, codes, others in ((m, (21, 43, 45, 201, 402, 60, 61), ()), (old, (21, 43, 45, 201), (402, 60, 61))):
            for address in (broker.address, broker.fast_address):
                with Peer(address) as peer:
                    assert [peer.ask(code).code for code in codes] == [0] * len(codes)
                    assert [peer.ask(code).code for code in others] == [3] * len(others)


def pull(peer: Peer, offset: int = 0, **more: object) -> tuple[int, str, int]:
    """(code, suggested broker, bytes) of a pull that is not held."""
    answer = peer.pull("G", "T", offset=offset, bits=4, subscription="*", **more)
    return answer.code, answer.ext["suggestWhichBrokerId"], len(answer.body)


def test_a_slave_without_slave_reads(pair: tuple[Broker, Broker]) -> None:
    m, s = pair
    with Peer(m.address) as to_master, Peer(s.address) as to_slave:
        to_master.put("T")
        caught_up(s.store, m.store)
        copied(s.store)
        assert pull(to_slave) == (20, "0", 0)
        assert pull(to_slave, 1) == (20, "0", 0)


@pytest.mark.parametrize("pair", [{"slaveReadEnable": True, "compat": compat} for compat in ("4.9", "5.x")], indirect=True)
def test_a_slave_with_slave_reads(pair: tuple[Broker, Broker]) -> None:
    """What a consumer does at each: PullMessageProcessor of 4.9.8 and of 5.3.3."""
    m, s = pair
    modern = m.store.options.compat == "5.x"
    with Peer(m.address) as to_master, Peer(s.address) as to_slave:
        for _ in range(3):
            to_master.put("T")
        caught_up(s.store, m.store)
        copied(s.store)
        code, suggested, size = pull(to_slave)
        assert (code, suggested) == (0, "0") and size > 0           # the rest is in memory: back to the master
        assert pull(to_slave, 3)[:2] == ((20 if modern else 19), "0")
        assert pull(to_slave, 99)[:2] == (20, "0")                  # no event, and no correction: the master knows better
        for broker in pair:
            broker.store.reconfigure(memory_ratio_pct=0)            # everything is far behind the end, but for the last message
        assert pull(to_slave, maxMsgNums=1)[:2] == (0, "1")
        assert pull(to_master, maxMsgNums=1)[:2] == (0, "1")
        m.store.group_table.set("G", whichBrokerWhenConsumeSlowly=3)
        assert pull(to_master, maxMsgNums=1)[:2] == (0, "3")
        m.store.reconfigure(memory_ratio_pct=40)
        m.store.group_table.set("G", brokerId=2)
        assert pull(to_master, maxMsgNums=1)[:2] == (0, "2")
    assert m.store.max_offset("OFFSET_MOVED_EVENT", 0) == s.store.max_offset("OFFSET_MOVED_EVENT", 0) == 0


def test_a_master_suggests_nobody_without_slave_reads(pair: tuple[Broker, Broker]) -> None:
    m, _ = pair
    m.store.reconfigure(memory_ratio_pct=0)
    with Peer(m.address) as peer:
        for _ in range(3):
            peer.put("T")
        m.store.wait_dispatched(10)
        assert pull(peer, maxMsgNums=1)[:2] == (0, "0")


def test_a_slave_that_is_there_before_its_master(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It asks the name server again, and not with its next registration only."""
    with NameServer.open() as names, slave_broker(tmp_path / "s", names.address, registerNameServerPeriod=60_000) as s:
        until(lambda: "knows no master of broker-a" in caplog.text, 30_000)
        with leader(tmp_path / "m", namesrv=names.address, namesrv_listen=None) as m:
            until(lambda: s.store.replication().state == "follows", 30_000)
            assert s.store.replication().master == m.store.replication().address


def test_a_master_that_listens_for_no_slaves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker.open(tmp_path / "m", brokerRole="ASYNC_MASTER", **SMALL) as m, \
            slave_broker(tmp_path / "s", m.namesrv_address) as s:
        until(lambda: f"the master at {m.address} listens for no slaves" in caplog.text, 20_000)
        assert s.store.replication().state == "waits"


def test_consumers_find_a_slave_whose_master_is_gone(tmp_path: Path) -> None:
    with NameServer.open() as names:
        with leader(tmp_path / "m", namesrv=names.address, namesrv_listen=None) as m, Peer(m.address) as peer:
            until(lambda: asks(names, 106)["brokerAddrTable"] != {}, 20_000)
            s = slave_broker(tmp_path / "s", names.address, slaveReadEnable=True)
            joined(m.store)
            peer.put("T")
            caught_up(s.store, m.store)
            copied(s.store)
        with s, Peer(s.address) as peer:
            s._registration.changed()           # it registers every 30 s
            until(lambda: s._core.master_address == "", 20_000)
            assert asks(names, 105, topic="T")["brokerDatas"][0]["brokerAddrs"] == {"1": s.address}
            assert pull(peer)[0] == 0
            held = peer.ask_pull("G", "T", offset=1, bits=6, subscription="*", suspend=50)
            assert peer.answer(held).code == 19


def test_another_slave_follows_the_promoted_one(tmp_path: Path) -> None:
    """It learns the new addresses from the name server, and its log goes on."""
    with NameServer.open() as names:
        given = {"namesrv": names.address, "namesrv_listen": None}
        with leader(tmp_path / "m", **given) as m, Peer(m.address) as peer:
            first = follower(tmp_path / "first", m)
            until(lambda: asks(names, 106)["brokerAddrTable"] != {}, 20_000)
            second = slave_broker(tmp_path / "second", names.address)
            until(lambda: sum(r.offset >= 0 for r in m.store.replicas()) == 2, 20_000)
            peer.put("T", b"one")
            for s in (first, second.store):
                caught_up(s, m.store)
            copied(first)
            first.close()
        promote(tmp_path / "first", **SMALL)
        with second, leader(tmp_path / "first", **given) as m, Peer(m.address) as peer:
            until(lambda: asks(names, 106)["brokerAddrTable"]["broker-a"]["brokerAddrs"].get("0") == m.address, 20_000)
            second._registration.changed()
            until(lambda: second.store.replication().master == m.store.replication().address, 20_000)
            joined(m.store)
            peer.put("T", b"two")
            caught_up(second.store, m.store)
            assert [bytes(x.body) for x in second.store.scan("T")] == [b"one", b"two"]
            until(lambda: second.store.replication().broker == m.address, 20_000)       # the old one's thread ends first
            assert read_mark(second.store.path).master == m.store.replication().address


def test_a_slave_of_a_master_with_accounts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It signs nothing, as RocketMQ's own, so its address has to be one that needs no signature."""
    pytest.importorskip("yaml")
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n  - {accessKey: somebody, secretKey: something}\n")
    with leader(tmp_path / "m", aclEnable=True, aclFile=str(accounts)) as m, slave_broker(
            tmp_path / "s", m.namesrv_address) as s:
        joined(m.store)
        m.store.topic_table.set("T", readQueueNums=3)
        until(lambda: "answers request 21 with code 1" in caplog.text, 20_000)
        assert s.store.topic_table.get("T") is None
        accounts.write_text("globalWhiteRemoteAddresses: [127.0.0.1]\n" + accounts.read_text())
        copied(s.store)
        assert s.store.topic_table.get("T")["readQueueNums"] == 3


def asks(names: NameServer, code: int, **ext: object) -> dict:
    with Peer(names.address) as peer:
        return json.loads(peer.ask(code, **ext).body)


def test_options_of_a_slave(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give ha_master='host:port'"):
        MessageStore.open(tmp_path / "none", role="slave", **SMALL)
    assert not (tmp_path / "none").exists()
    with pytest.raises(ConfigError, match="brokerId is 0"):
        Broker.open(tmp_path / "a", brokerRole="SLAVE", haMasterAddress="127.0.0.1:1", **SMALL)
    with pytest.raises(ConfigError, match="no option names its master"):
        Broker.open(tmp_path / "b", brokerRole="SLAVE", brokerId=1, **SMALL)
    with Broker.open(tmp_path / "c", brokerId=5, **SMALL) as broker, Peer(broker.namesrv_address) as names:
        table = json.loads(names.ask(106).body)["brokerAddrTable"]
        assert table["broker-a"]["brokerAddrs"] == {"0": broker.address}


def test_a_slave_with_given_addresses(tmp_path: Path) -> None:
    with leader(tmp_path / "m") as m, Broker.open(
            tmp_path / "s", brokerRole="SLAVE", brokerId=2, haMasterAddress=m.store.replication().address,
            ha_master_broker=m.address, **{**SMALL, **FAST}) as s:
        joined(m.store)
        m.store.put("T", b"x")
        caught_up(s.store, m.store)
        until(lambda: s.store.replication().copied_ms is not None, 20_000)


def test_what_a_name_server_says_amiss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that is none changes nothing, and a change that fails is made by the next registration."""
    class Failing:
        def __init__(self, *_: object) -> None:
            raise OSError(errno.EAGAIN, "no more threads")

    with master(tmp_path / "m") as m, slave(tmp_path / "s", m) as s:
        replication, address = s._replication, m.replication().address
        joined(m)

        def follow(master: str, broker: str | None = None) -> None:
            replication.follow(s, s.options, master, broker)

        for odd in ("host", "host:99999", "a b:1", ":1", "\ud800:1", "h" * 300 + ":1"):
            with pytest.raises(ValueError, match="is no address of a master"):
                follow(odd)
            with pytest.raises(ValueError, match="is no address of a master"):
                follow(address, odd)
        assert read_mark(str(tmp_path / "s"))[1:3] == (address, "")
        with monkeypatch.context() as patch, pytest.raises(OSError, match="threads"):
            patch.setattr(service, "Slave", Failing)
            follow("127.0.0.1:1")
        assert s.replication().state == "waits"
        follow(address)
        m.put("T", b"x")
        caught_up(s, m)


def test_a_second_registration_before_topics_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is not followed before the first copy of topics ends, however often the name server names the master."""
    asked, answered = threading.Event(), threading.Event()

    def copy(self: metadata.Metadata, *told: object) -> None:
        asked.set()
        assert answered.wait(60)
        raise OSError(errno.ECONNREFUSED, "nobody")

    monkeypatch.setattr(metadata.Metadata, "copy", copy)
    with master(tmp_path / "m") as m, slave(tmp_path / "s", m, ha_master_broker="127.0.0.1:1") as s:
        try:
            assert asked.wait(60)
            s._replication.follow(s, s.options, m.replication().address, "127.0.0.1:1")
            assert s._replication.slave is None
        finally:
            answered.set()
        until(lambda: s.replication().state == "follows", 20_000)
