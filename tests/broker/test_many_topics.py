"""What one more topic or group costs among many, and a table that no single frame holds."""
import itertools
import json
import zlib

import pytest

from rmq_store import Broker, NameServer
from rmq_store.broker import registration, topics
from rmq_store.namesrv.routes import Routes
from rmq_store.remoting.frame import FRAME_MAX
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.table import Table
from tests.broker.peer import Peer
from tests.soon import until

MANY = 2500


def made_store(root, count=MANY, name=lambda i: f"T{i:06d}"):
    """A directory whose files name so many topics and groups."""
    (root / "config").mkdir(parents=True)
    table = {name(i): {"order": False, "perm": 6, "readQueueNums": 1, "topicFilterType": "SINGLE_TAG", "topicName": name(i),
                       "topicSysFlag": 0, "writeQueueNums": 1} for i in range(count)}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    groups = {f"G{i:06d}": {"groupName": f"G{i:06d}"} for i in range(count)}
    (root / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    return root


@pytest.fixture
def work(monkeypatch):
    """How often what takes as long as the table is large was done, and how many rows were made."""
    counts = {"rows": 0, "copies": 0, "files": 0}

    def counting(owner, name, what):
        call = getattr(owner, name)

        def counted(*arguments, **keywords):
            counts[what] += 1
            return call(*arguments, **keywords)

        monkeypatch.setattr(owner, name, counted)

    counting(topics, "_topic", "rows")
    counting(topics, "_group", "rows")
    for name in ("entries", "content"):
        counting(Table, name, "copies")
    counting(ConfigFile, "save", "files")       # of these two tables, as consumerOffset.json has no entry
    return counts


def test_one_more_costs_the_same_among_many(tmp_path, work):
    with Broker.open(made_store(tmp_path / "s"), profile="test", waitTimeMillsInSendQueue=60_000) as broker, \
            Peer(broker.address) as peer:
        def make(i):
            assert peer.ask(17, topic=f"A{i}", readQueueNums=4, writeQueueNums=4, perm=6).code == 0
            assert peer.ask(200, {"groupName": f"A{i}"}).code == 0
            assert peer.put(f"S{i}").code == 0
            assert peer.beat(f"c{i}", consumers={f"H{i}": {f"S{i}": "*"}}).code == 0

        broker._settle_at = float("inf")
        make(0)         # the first changes write the files
        until(lambda: not broker.store.topic_table._whole and not broker.store.group_table._whole)
        before = dict(work)
        for i in range(1, 41):
            make(i)
        took = {what: count - before[what] for what, count in work.items()}
        assert took["files"] == took["copies"] == 0
        assert took["rows"] <= 40 * 5 * 3       # a topic by 17, by a send, of retries; two groups
        assert broker.store.topic_table.get("A40") and broker.store.group_table.get("H40")
    with Broker.open(tmp_path / "s", profile="test") as broker:
        assert {"A40", "S40", "%RETRY%H40"} <= broker.store.topic_table.entries().keys()
    content = json.loads((tmp_path / "s/config/topics.json").read_text())["topicConfigTable"]
    assert {"A40", "S40", "%RETRY%H40", "T000000"} <= content.keys()


def test_the_files_of_rocketmq_follow(tmp_path):
    with Broker.open(made_store(tmp_path / "s"), profile="test") as broker, Peer(broker.address) as peer:
        for i in range(5):
            assert peer.ask(17, topic=f"A{i}", readQueueNums=4, writeQueueNums=4, perm=6).code == 0
        path = tmp_path / "s" / "config" / "topics.json"
        until(lambda: "A4" in json.loads(path.read_text())["topicConfigTable"] and not broker.store.topic_table.unsettled)
        assert not (tmp_path / "s" / "config" / "topics.changes").exists()


@pytest.fixture
def heard(monkeypatch):
    """What a name server is registered with: (its frame, the topics in it, their version)."""
    found = []
    register = Routes._register

    def hear(self, channel, frame):
        wrapper = json.loads(frame.body)["topicConfigSerializeWrapper"]
        assert frame.ext["bodyCrc32"] == str(zlib.crc32(frame.body) & 0x7FFFFFFF)
        found.append((frame, list(wrapper["topicConfigTable"]), wrapper["dataVersion"]))
        return register(self, channel, frame)

    monkeypatch.setattr(Routes, "_register", hear)
    return found


def has_route(peer, topic):
    return peer.ask(105, topic=topic).code == 0


@pytest.mark.parametrize("compat", ["5.x", "4.9"])
def test_a_table_is_registered_in_pieces(tmp_path, heard, monkeypatch, compat):
    """RocketMQ's name server ignores a registration with the dataVersion of the one before."""
    monkeypatch.setattr(registration, "PIECE", 100)
    with NameServer.open() as names, \
            Broker.open(made_store(tmp_path / "s", 450), profile="test", compat=compat, namesrv_listen=None,
                        namesrv=names.address) as broker, Peer(names.address) as peer:
        until(lambda: len(heard) >= 5)
        assert {topic for _, some, _ in heard for topic in some} == broker.store.topic_table.entries().keys()
        assert all(len(some) <= 100 for _, some, _ in heard)
        versions = [json.dumps(version, sort_keys=True) for _, _, version in heard]
        assert all(a != b for a, b in itertools.pairwise(versions))
        assert heard[-1][2] == broker.store.topic_table.version()
        assert has_route(peer, "T000000") and has_route(peer, "T000449")


def test_names_of_many_mib_are_registered(tmp_path, heard):
    """With 45,000 names of 120 characters in one frame, which no name server reads, the broker would vanish."""
    def name(i):
        return f"{i:06d}" + "n" * 114

    with NameServer.open() as names, \
            Broker.open(made_store(tmp_path / "s", 15_000, name), profile="test", namesrv_listen=None,
                        namesrv=names.address), Peer(names.address) as peer:
        until(lambda: has_route(peer, name(14_999)), 20_000)
        assert has_route(peer, name(0))
        assert max(len(frame.body) for frame, _, _ in heard) < 1 << 20 < FRAME_MAX


def test_a_new_topic_is_registered_alone(tmp_path, heard, work):
    with NameServer.open() as names, \
            Broker.open(made_store(tmp_path / "s"), profile="test", namesrv_listen=None, namesrv=names.address,
                        registerNameServerPeriod=60_000) as broker, Peer(names.address) as peer, Peer(broker.address) as client:
        until(lambda: has_route(peer, "T002499"))
        count = len(heard)
        for i in range(10):
            assert client.put(f"A{i}").code == 0
            until(lambda i=i: has_route(peer, f"A{i}"))
        assert all(len(some) <= 20 for _, some, _ in heard[count:])
        assert len(heard) - count <= 10
        assert client.ask(215, topic="A0").code == 0
        assert client.put("B").code == 0
        until(lambda: has_route(peer, "B"))


def test_long_attributes_are_registered_nowhere(tmp_path, heard):
    """A client gives a topic 256 of them, each as long as it likes up to 4,096 characters."""
    with NameServer.open() as names, \
            Broker.open(tmp_path / "s", profile="test", namesrv_listen=None, namesrv=names.address) as broker, \
            Peer(names.address) as peer, Peer(broker.address) as client:
        text = ",".join(f"+k{j}={'v' * 4000}" for j in range(60))
        for i in range(8):
            assert client.ask(17, topic=f"X{i}", readQueueNums=1, writeQueueNums=1, perm=6, attributes=text).code == 0
        until(lambda: has_route(peer, "X7"))
        assert max(len(frame.body) for frame, _, _ in heard) < 20_000


def test_a_name_server_that_begins_anew_hears_of_all(tmp_path, heard):
    with NameServer.open() as names:
        address = names.address
        broker = Broker.open(made_store(tmp_path / "s", 300), profile="test", namesrv_listen=None, namesrv=address,
                             registerNameServerPeriod=10_000)
        with Peer(address) as peer:
            until(lambda: has_route(peer, "T000299"))
    with broker, NameServer.open(address) as names, Peer(address) as peer, Peer(broker.address) as client:
        assert client.put("A").code == 0        # the registration of one topic fails, and then all are registered
        until(lambda: has_route(peer, "T000299") and has_route(peer, "A"))
