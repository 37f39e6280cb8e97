"""Codes 10, 310 and 320: what is stored, what is answered, and what is refused."""
import struct

import pytest

from rmq_store import Broker
from rmq_store.remoting.frame import BINARY
from tests.broker.peer import Peer


def stored(broker, topic="T", queue=0):
    broker.store.wait_dispatched(10)
    return list(broker.store.get(topic, queue, 0))


def test_a_send_is_stored_as_a_broker_stores_it(broker, peer):
    answer = peer.put(body=b"hello", queue=2, properties={"TAGS": "A", "KEYS": "k", "WAIT": "true", "UNIQ_KEY": "U1"})
    assert (answer.code, answer.flag, answer.version, answer.language) == (0, 1, 479, "JAVA")
    (message,) = stored(broker, queue=2)
    assert answer.ext == {"msgId": message.msg_id, "queueId": "2", "queueOffset": "0", "MSG_REGION": "DefaultRegion",
                          "TRACE_ON": "true", "transactionId": "U1"}
    assert bytes(message.body) == b"hello"
    assert message.properties == {"TAGS": "A", "KEYS": "k", "WAIT": "true", "UNIQ_KEY": "U1", "CLUSTER": "DefaultCluster",
                                  "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert message.born_timestamp == 1700000000000
    assert message.born_host.startswith("127.0.0.1:") and message.store_host == broker.address
    assert broker.store.topic_table.get("T")["writeQueueNums"] == 4


def test_the_face_of_4_9(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", compat="4.9") as broker, Peer(broker.address) as peer:
        answer = peer.put(body=b"", properties={"WAIT": "true", "UNIQ_KEY": "U1"})
        assert (answer.code, answer.version) == (0, 409)
        assert "transactionId" not in answer.ext
        (message,) = stored(broker)
        assert message.properties == {"UNIQ_KEY": "U1", "CLUSTER": "DefaultCluster"}
        assert not message.properties_raw.endswith(b"\x02")
        assert peer.put("no spaces").code == 1


def test_long_names_binary_header_and_oneway(broker):
    with Peer(broker.address, BINARY) as peer:
        ext = {"producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
               "sysFlag": 1, "bornTimestamp": 5, "flag": 7, "properties": "a\x01b", "reconsumeTimes": 0, "unitMode": "0"}
        peer.send(10, b"one", frame_flag=2, **ext)
        answer = peer.ask(10, b"two", **ext)
        assert (answer.code, answer.ext["queueOffset"], answer.serialize) == (0, "1", BINARY)
    assert [(bytes(m.body), m.flag, m.sys_flag & 1) for m in stored(broker)] == [(b"one", 7, 1), (b"two", 7, 1)]


def one_of_a_batch(body, properties):
    return struct.pack(f">iiiii{len(body)}sh", 4 * 5 + len(body) + 2 + len(properties), 0, 0, 3, len(body), body,
                       len(properties)) + properties


def test_a_batch_answers_with_all_ids(broker, peer):
    batch = b"".join(one_of_a_batch(b"m%d" % i, b"TAGS\x01A\x02UNIQ_KEY\x01U%d\x02" % i) for i in range(3))
    answer = peer.put(body=batch, code=320, m="true")
    messages = stored(broker)
    assert answer.code == 0, answer.remark
    assert answer.ext["msgId"].split(",") == [m.msg_id for m in messages]
    assert answer.ext["queueOffset"] == "0"
    assert [(bytes(m.body), m.flag, m.unique_key) for m in messages] == [(b"m0", 3, "U0"), (b"m1", 3, "U1"), (b"m2", 3, "U2")]
    assert messages[0].properties["CLUSTER"] == "DefaultCluster"
    assert peer.put(body=b"\0\0\0\xff", code=320, m="true").code == 13


@pytest.mark.parametrize(("change", "code"), [
    ({"b": "no spaces"}, 29), ({"b": ""}, 29), ({"b": "x" * 128}, 29), ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
    ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16), ({"e": 4}, 29), ({"e": "x"}, 1), ({"e": 1 << 31}, 1), ({"c": "none"}, 17),
    ({"f": "9" * 300}, 1), ({"i": "a\x01" + "b" * 32768}, 13), ({"g": "²"}, 1)])
def test_a_send_that_is_refused(broker, peer, change, code):
    assert peer.put(**({"topic": change.pop("b")} if "b" in change else {}), **change).code == code
    assert peer.put("U").code == 0
    assert broker.store.topics() == ["U"] or not stored(broker)


def test_limits_and_permissions(broker, peer):
    assert peer.put(body=bytes((4 << 20) + 1)).code == 13
    assert peer.put(body=b"").code == 13
    broker.store.topic_table.set("R", perm=4)
    assert peer.put("R").code == 16
    assert peer.put("Q", queue=-1).code == 0
    missing = peer.ask(310, b"x", a="P", b="T")
    assert missing.code == 1 and "queueId" in missing.remark


def test_without_creation_on_demand(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", autoCreateTopicEnable=False) as broker, Peer(broker.address) as peer:
        assert peer.put().code == 17
        broker.store.topic_table.set("T", readQueueNums=1, writeQueueNums=1)
        assert peer.put().code == 0
        assert peer.put(queue=1).code == 29


def test_a_synchronous_flush_answers_when_the_message_is_durable(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", flush_mode="sync") as broker, Peer(broker.address) as peer:
        numbers = [peer.send(310, b"x", a="P", b="T", c="TBW102", d=4, e=0, f=0, g=1, h=0) for _ in range(20)]
        assert sorted(int(peer.answer(n).ext["queueOffset"]) for n in numbers) == list(range(20))
        assert len(stored(broker)) == 20


def test_unknown_codes_and_bad_fields(peer):
    answer = peer.ask(9999)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
    assert peer.ask(34, b"{").code == 1
    assert peer.ask(34, b"[" * 100_000).code == 1


def test_a_query_finds_no_record_of_another_topic(broker, peer):
    """The index knows the hash of topic and key alone, and Aa#k has that of BB#k."""
    peer.put("Aa", b"secret", properties={"KEYS": "k"})
    broker.store.wait_dispatched(10)
    ask = {"key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    assert peer.ask(12, topic="Aa", **ask).code == 0
    assert peer.ask(12, topic="BB", **ask).code == 22
