"""What mqadmin asks for, and what a slave copies."""
import json
import threading
from pathlib import Path

import pytest

from rmq_store import Broker, errors
from rmq_store.broker import offsets
from rmq_store.broker.request import json_body
from rmq_store.remoting.frame import Frame
from tests.broker.peer import Peer

TOPIC = {"defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG",
         "topicSysFlag": 0, "order": False}


def table(answer):
    """{(topic, queue id): value} of a body whose keys are queues."""
    text = answer.body.decode()
    assert answer.code == 0, answer.remark
    found, at, decoder = {}, text.index('"offsetTable":{') + len('"offsetTable":{'), json.JSONDecoder()
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        value, at = decoder.raw_decode(text, at + 1)
        found[key["topic"], key["queueId"]] = value
        at += text[at] == ","
    return found


def test_topics_are_made_changed_and_deleted(broker, peer, names):
    assert peer.ask(17, topic="T", **TOPIC, attributes="+message.type=FIFO").code == 0
    entry = json.loads(peer.ask(351, topic="T").body)
    assert (entry["readQueueNums"], entry["writeQueueNums"], entry["attributes"]) == (3, 2, {"message.type": "FIFO"})
    assert peer.ask(17, topic="T", **TOPIC, attributes="-message.type").code == 0
    assert json.loads(peer.ask(351, topic="T").body)["attributes"] == {}
    assert json.loads(names.ask(105, topic="T").body)["queueDatas"][0]["readQueueNums"] == 3
    peer.put(queue=1)
    broker.store.wait_dispatched(10)
    assert peer.ask(215, topic="T").code == 0
    assert names.ask(105, topic="T").code == 17
    assert broker.store.topics() == []
    assert peer.ask(351, topic="T").code == 17
    for wrong in ({"topic": "TBW102"}, {"topic": "a b"}, {"perm": 8}, {"readQueueNums": 1 << 20}, {"attributes": "x"}):
        assert peer.ask(17, **{"topic": "U"} | TOPIC | wrong).code == 29
    assert peer.ask(215, topic="TBW102").code == 29


def test_what_is_done_is_in_the_files(broker, peer):
    """A kill behind the answer takes nothing of it back. The keeper, who writes what clients make, hears of nothing here."""
    broker._dirty = threading.Event()

    def entries(name, key):
        path = Path(broker.store.path, "config", name)
        return json_body(Frame(200, 1, {}, path.read_bytes()))[key] if path.exists() else {}

    assert peer.ask(17, topic="T", **TOPIC).code == 0
    assert entries("topics.json", "topicConfigTable")["T"]["writeQueueNums"] == 2
    assert peer.ask(215, topic="T").code == 0
    assert "T" not in entries("topics.json", "topicConfigTable")
    assert peer.ask(200, {"groupName": "G", "retryMaxTimes": 3}).code == 0
    assert entries("subscriptionGroup.json", "subscriptionGroupTable")["G"]["retryMaxTimes"] == 3
    assert peer.put().code == peer.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=1).code == 0
    broker.store.offsets.flush()
    assert "T@G" in entries("consumerOffset.json", "offsetTable")
    assert peer.ask(207, groupName="G", cleanOffset=True).code == 0
    assert "G" not in entries("subscriptionGroup.json", "subscriptionGroupTable")
    assert "T@G" not in entries("consumerOffset.json", "offsetTable")


def test_how_far_topics_and_groups_are(broker, peer):
    for _ in range(3):
        peer.put()
    peer.beat(consumers={"G": {"T": "*"}})
    broker.store.wait_dispatched(10)
    times = [m.store_timestamp for m in broker.store.get("T", 0, 0)]
    stats = table(peer.ask(202, topic="T"))
    assert stats["T", 0] == {"lastUpdateTimestamp": times[2], "maxOffset": 3, "minOffset": 0}
    assert stats["T", 3] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    assert peer.ask(202, topic="none").code == 17
    peer.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=2)
    progress = table(peer.ask(208, consumerGroup="G", topic=""))
    assert progress["T", 0] == {"brokerOffset": 3, "consumerOffset": 2, "lastTimestamp": times[1], "pullOffset": 2}
    assert len(progress) == 4
    assert json.loads(peer.ask(300, topic="T").body) == {"groupList": ["G"]}


def test_groups_are_made_changed_and_deleted(broker, peer):
    assert peer.ask(200, {"groupName": "G", "retryMaxTimes": 3, "consumeEnable": False, "attributes": {"+a": "b"},
                          "unknown": 1}).code == 0
    entry = json.loads(peer.ask(352, group="G").body)
    assert (entry["retryMaxTimes"], entry["consumeEnable"], entry["attributes"]) == (3, False, {"a": "b"})
    assert json.loads(peer.ask(201).body)["subscriptionGroupTable"]["G"] == entry
    broker.store.offsets.commit("G", "T", 0, 1)
    assert peer.ask(207, groupName="G", cleanOffset=True).code == 0
    assert broker.store.offsets.groups() == []
    assert peer.ask(352, group="G").code == 26
    assert peer.ask(200, {"groupName": "a b"}).code == 29


def test_offsets_are_reset_at_the_members(broker, peer):
    for _ in range(3):
        peer.put()
    peer.beat(consumers={"G": {"T": "*"}})
    broker.store.wait_dispatched(10)
    peer.push()
    for queue in range(4):
        peer.ask(15, consumerGroup="G", topic="T", queueId=queue, commitOffset=3 if queue == 0 else 0)
    answer = peer.ask(222, topic="T", group="G", timestamp=0, isForce=True)
    assert table(answer) == {("T", queue): 0 for queue in range(4)}
    pushed = peer.push()
    assert (pushed.code, pushed.ext["topic"], pushed.body) == (220, "T", answer.body)
    assert broker.store.offsets.query("G", "T", 0) == 0
    assert peer.ask(222, topic="T", group="Nobody", timestamp=0, isForce=True).code == 1


@pytest.mark.parametrize("compat", ["5.x", "4.9"])
@pytest.mark.parametrize("queues", [(0,), (2,), (0, 3), ()])
def test_offsets_of_a_group_that_is_not_connected(tmp_path, compat, queues):
    """A group has committed some queues. 5.3.3 resets them all, 4.9 refuses: so do the two faces."""
    with Broker.open(tmp_path / "s", profile="test", compat=compat) as broker, Peer(broker.address) as peer:
        for queue in range(4):
            for _ in range(3):
                assert peer.put("T", queue=queue).code == 0
        broker.store.wait_dispatched(10)
        assert peer.ask(222, topic="T", group="G", timestamp=-1, isForce=True).code == 1          # it does not exist
        assert peer.ask(200, {"groupName": "G"}).code == 0
        for queue in queues:
            assert peer.ask(15, consumerGroup="G", topic="T", queueId=queue, commitOffset=1).code == 0
        answer = peer.ask(222, topic="T", group="G", timestamp=-1, isForce=True)
        if compat == "4.9":
            assert answer.code == 1
            return
        assert table(answer) == {("T", queue): 3 for queue in range(4)}
        assert [broker.store.offsets.query("G", "T", queue) for queue in range(4)] == [3] * 4
        assert table(peer.ask(222, topic="T", group="G", timestamp=0, isForce=True)) == {("T", queue): 0 for queue in range(4)}
        assert [broker.store.offsets.query("G", "T", queue) for queue in range(4)] == [0] * 4


def test_offsets_that_clients_make_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(offsets, "OFFSETS_MAX", 10)
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        assert peer.ask(17, topic="T", readQueueNums=100, writeQueueNums=100, perm=6).code == 0
        fields = {"consumerGroup": "G", "topic": "T"}
        assert [peer.ask(15, **fields, queueId=queue, commitOffset=0).code for queue in range(12)] == [0] * 10 + [1, 1]
        answer = peer.ask(15, **fields, queueId=10, commitOffset=0)
        assert "the limit is 10 offsets" in answer.remark and "delete groups" in answer.remark
        assert peer.ask(15, **fields, queueId=3, commitOffset=1).code == 0         # it is there
        for _ in range(2):      # a pull is answered, and its offset is not kept
            assert peer.pull("G", queue=11, bits=1 | 4, commitOffset=5, subscription="*").code == 19
        assert peer.ask(15, **fields, queueId=100, commitOffset=0).code == 1       # the topic has no such queue
        assert sum(map(len, broker.store.offsets.table().values())) == 10


def test_what_a_slave_copies(broker, peer):
    peer.put()
    peer.put(properties={"DELAY": "2"})
    peer.beat(consumers={"G": {"T": "*"}})
    peer.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=1)
    broker.store.wait_dispatched(10)
    topics = json.loads(peer.ask(21).body)
    assert topics["topicConfigTable"]["T"]["writeQueueNums"] == 4 and topics["dataVersion"]["counter"] > 0
    assert topics == json.loads(Path(broker.store.path, "config/topics.json").read_text())
    offsets = json.loads(peer.ask(43).body)
    assert offsets["offsetTable"] == {"T@G": {"0": 1}}
    assert offsets["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
    assert peer.ask(45).body == b'{"offsetTable":{2:0}}'


def test_figures_and_options(broker, peer):
    peer.put()
    figures = json.loads(peer.ask(28).body)["table"]
    assert figures["brokerVersionDesc"] == "V5_3_3" and figures["putMessageTimesTotal"] == "1"
    assert all(isinstance(value, str) for value in figures.values())
    config = dict(line.split("=", 1) for line in peer.ask(26).body.decode().splitlines())
    assert (config["brokerName"], config["flushDiskType"], config["listenPort"]) == (
        "broker-a", "ASYNC_FLUSH", broker.address.rpartition(":")[2])
    assert peer.ask(25, b"maxMessageSize=100\nautoCreateTopicEnable=false").code == 0
    assert broker.store.options.message_size_max_bytes == 100
    assert peer.put("new").code == 17
    for wrong in (b"maxMessageSize=x", b"brokerName=other", b"unknownName=1", b"maxMessageSize=200\nbrokerName=other",
                  b"maxMessageSize=200\nstorePathRootDir=/elsewhere", b"listenPort=1"):
        assert peer.ask(25, wrong).code == 1
    assert broker.store.options.message_size_max_bytes == 100
    assert peer.ask(25, peer.ask(26).body).remark == ""        # what the broker tells is what it has


def test_options_change_from_python(broker, peer):
    broker.reconfigure(message_size_max_bytes=100, defaultTopicQueueNums=3)
    assert broker.store.options.message_size_max_bytes == 100
    assert b"defaultTopicQueueNums=3\n" in peer.ask(26).body
    for wrong in ({"defaultTopicQueueNums": "x"}, {"brokerName": "other"}, {"nosuch": 1}, {"flush_mode": "sync"}):
        with pytest.raises(errors.ConfigError, match=next(iter(wrong))):
            broker.reconfigure(message_size_max_bytes=200, **wrong)
    for wrong in ({"message_size_max_bytes": "x"}, {"query_count_max": 0}):
        with pytest.raises(errors.ConfigError, match=next(iter(wrong))):
            broker.reconfigure(defaultTopicQueueNums=5, **wrong)
    assert broker.store.options.message_size_max_bytes == 100 and b"defaultTopicQueueNums=3\n" in peer.ask(26).body
    with pytest.raises(errors.ConfigError, match=r"defaultTopicQueueNums is a broker's.*Broker\.reconfigure"):
        broker.store.reconfigure(defaultTopicQueueNums=3)


def test_who_is_connected(broker, peer):
    peer.beat("c1", producers=["P"], consumers={"G": {"T": "A || B"}})
    found = json.loads(peer.ask(203, consumerGroup="G").body)
    assert [c["clientId"] for c in found["connectionSet"]] == ["c1"]
    assert found["subscriptionTable"]["T"]["tagsSet"] == ["A", "B"]
    assert json.loads(peer.ask(204, producerGroup="P").body)["connectionSet"][0]["language"] == "JAVA"
    assert peer.ask(203, consumerGroup="none").code == 206
    assert peer.ask(204, producerGroup="none").code == 1


def test_messages_by_key_and_by_id(broker, peer):
    peer.put(body=b"found", properties={"KEYS": "k1 k2", "UNIQ_KEY": "U1"})
    broker.store.wait_dispatched(10)
    (message,) = broker.store.get("T", 0, 0)
    ask = {"topic": "T", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    answer = peer.ask(12, key="k2", **ask)
    assert (answer.code, answer.body) == (0, message.raw)
    assert int(answer.ext["indexLastUpdateTimestamp"]) == message.store_timestamp
    assert peer.ask(12, key="U1", _UNIQUE_KEY_QUERY=True, **ask).body == message.raw
    assert peer.ask(12, key="none", **ask).code == 22
    assert peer.ask(33, offset=message.offset).body == message.raw
    for wrong in (message.offset + 4, -1, (1 << 63) - 1):
        assert peer.ask(33, offset=wrong).code == 1


@pytest.mark.parametrize("text", [b'{"a":{0:1,1:2},"b":"{3:4"}'])
def test_fastjson_is_read(text):
    assert json_body(Frame(200, 1, {}, text)) == {"a": {"0": 1, "1": 2}, "b": "{3:4"}


def test_a_retry_topic_has_a_route_before_its_group(broker, names):
    assert json.loads(names.ask(105, topic="%RETRY%G").body)["queueDatas"][0]["readQueueNums"] == 1
    assert broker.store.topic_table.get("%RETRY%G") is None
    with Peer(broker.address) as peer:
        broker._core.options.change({"autoCreateSubscriptionGroup": False})
        assert names.ask(105, topic="%RETRY%H").code == 17
        assert peer.pull("H", bits=4).code == 26


def test_figures_by_minute(broker, peer):
    peer.put()
    broker.store.wait_dispatched(10)
    assert peer.pull(bits=4, subscription="*").code == 0
    assert peer.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="T").code == 1
    for at in (0.0, 20.0):      # what the control thread does every ten seconds
        broker.store._windows.take(broker.store, broker.store._consuming.counts(), at=at + 1e9)
        peer.put()
        broker.store.wait_dispatched(10)
        assert peer.pull(bits=4, subscription="*").code == 0
    found = json.loads(peer.ask(315, statsName="TOPIC_PUT_NUMS", statsKey="T").body)
    assert found["statsMinute"]["sum"] >= 1 and set(found) == {"statsMinute", "statsHour", "statsDay"}
    assert json.loads(peer.ask(315, statsName="GROUP_GET_NUMS", statsKey="T@G").body)["statsMinute"]["sum"] >= 1
    assert peer.ask(315, statsName="BROKER_PUT_NUMS", statsKey="DefaultCluster").code == 0
    assert peer.ask(315, statsName="other", statsKey="T").code == 1
    assert [(row["group"], row["topic"]) for row in broker.store.group_stats()] == [("G", "T")]


def test_filters_of_groups_are_registered(broker, peer):
    def registered():
        """What stands in the table once the workers have done what was asked of them before."""
        peer.ask(28)
        return [(f.group, f.topic, f.sql, f.dead) for f in broker.store.consumer_filters.list()]

    peer.put()
    peer.beat(consumers={"G": {"T": "a > 1"}}, kind="SQL92")
    while registered() != [("G", "T", "a > 1", False)]:
        pass
    peer.beat(consumers={"G": {"T": "a > 2"}}, kind="SQL92", version=2)
    while registered() != [("G", "T", "a > 2", False)]:
        pass
    peer.ask(35, clientID="c1", consumerGroup="G", producerGroup="")
    while registered() != [("G", "T", "a > 2", True)]:
        pass
