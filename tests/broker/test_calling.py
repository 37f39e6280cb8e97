"""Requests that are passed on to a client, timer messages that are taken back, and the event of a moved offset."""
import json
import struct
import time

import pytest

from rmq_store import Broker
from rmq_store.broker import calling
from rmq_store.codec.timer import recall_handle
from rmq_store.remoting.frame import encode
from tests.broker.peer import Peer
from tests.soon import until

HOUR = 3_600_000


@pytest.fixture
def consumer(broker):
    """A consumer c1 of the group G, which has heard that it is a member."""
    with Peer(broker.address) as consumer:
        broker.store.put("T", b"body")
        consumer.beat(consumers={"G": {"T": "*"}})
        consumer.push()
        yield consumer


@pytest.mark.parametrize("code", [307, 309])
def test_a_client_answers_another_one(broker, peer, consumer, code):
    (message,) = broker.store.scan("T")
    asked = peer.send(code, b"from mqadmin", consumerGroup="G", clientId="c1", msgId=message.msg_id, jstackEnable=True)
    request = consumer.push()
    assert (request.code, request.ext["clientId"], request.flag) == (code, "c1", 0)
    assert request.body == (b"from mqadmin" if code == 307 else message.raw)
    assert request.ext.get("brokerName") == (None if code == 307 else "broker-a")
    for opaque in (request.opaque + 1, request.opaque):         # the first answers nothing
        answer = request.answer(5, "said", {"a": "b"}, b"%d" % opaque)
        answer.opaque = opaque
        consumer.sock.sendall(encode(answer))
    found = peer.answer(asked)
    assert (found.code, found.remark, found.ext, found.body) == (5, "said", {"a": "b"}, b"%d" % request.opaque)


def test_a_client_that_cannot_answer(broker, peer, consumer):
    assert peer.ask(307, consumerGroup="G", clientId="c2").code == 1
    assert peer.ask(307, consumerGroup="H", clientId="c1").code == 1
    for wrong in ("no id", "7F000001" + "00002A9F" + "7FFFFFFFFFFFFFFF"):
        assert peer.ask(309, consumerGroup="G", clientId="c1", msgId=wrong).code == 1
    asked = [peer.send(307, consumerGroup="G", clientId="c1") for _ in range(5)]
    until(lambda: len(broker._calls._waiting) == 4)         # of one connection
    with Peer(broker.address) as other:
        others = [other.send(307, consumerGroup="G", clientId="c1") for _ in range(3)]
        refused = other.read()                      # more than may wait
        assert refused.code == 2
        consumer.sock.close()
        assert [other.answer(one).code for one in others if one != refused.opaque] == [207] * 2
    assert {peer.answer(one).code for one in asked} <= {207, 1}         # the fifth finds it gone


def test_a_broker_that_closes_does_not_wait_for_a_client(tmp_path, monkeypatch):
    monkeypatch.setattr(calling, "TIMEOUT_S", 3600)
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as consumer, Peer(broker.address) as peer:
        consumer.beat(consumers={"G": {"T": "*"}})
        peer.send(307, consumerGroup="G", clientId="c1")
        while consumer.push().code != 307:
            pass


def test_a_timer_message_is_taken_back(broker, peer):
    broker._core.options.change({"recallMessageEnable": True})
    later = int(time.time() * 1000) + HOUR
    sent = peer.put(properties={"TIMER_DELIVER_MS": str(later), "UNIQ_KEY": "U1"})
    assert sent.code == 0, sent.remark
    (waiting,) = broker.store.timers()
    assert sent.ext["recallHandle"] == recall_handle("T", "broker-a", waiting.deliver_ms - 1000, "U1")
    answer = peer.ask(370, producerGroup="P", topic="T", recallHandle=sent.ext["recallHandle"])
    assert (answer.code, answer.ext) == (0, {"msgId": "U1", "MSG_REGION": "DefaultRegion"}), answer.remark
    assert list(broker.store.timers()) == []


def test_what_cannot_be_taken_back(broker, peer):
    now = int(time.time() * 1000)
    handle = recall_handle("T", "broker-a", now + HOUR, "U1")
    assert peer.ask(370, topic="T", recallHandle=handle).code == 16         # off by default, as in RocketMQ
    broker._core.options.change({"recallMessageEnable": True})
    assert peer.ask(370, topic="T", recallHandle=handle).code == 17
    assert "recallHandle" not in peer.put(properties={"TIMER_DELIVER_MS": "1"}).ext
    for wrong in ("no handle", recall_handle("U", "broker-a", now + HOUR, "U1"), recall_handle("T", "other", now + HOUR, "U1"),
                  recall_handle("T", "broker-a", now - HOUR, "U1"), recall_handle("T", "broker-a", now + 10_000 * HOUR, "U1")):
        assert peer.ask(370, topic="T", recallHandle=wrong).code == 604
    broker._core.options.change({"brokerPermission": 4, "allowRecallWhenBrokerNotWriteable": False})
    assert peer.ask(370, topic="T", recallHandle=handle).code == 14


def test_what_a_slave_copies_of_the_timer(broker, peer):
    assert struct.unpack(">7q", peer.ask(60).body) == (0,) * 7
    assert json.loads(peer.ask(61).body)["timingCount"] == {}
    peer.put(properties={"TIMER_DELIVER_MS": str(int(time.time() * 1000) + HOUR)})
    broker.store.wait_dispatched(10)
    until(lambda: peer.ask(60).body != bytes(56), 20_000)      # the control thread writes it, and nobody beside that
    numbers = struct.unpack(">7q", peer.ask(60).body)
    with open(f"{broker.store.path}/config/timercheck", "rb") as f:
        assert struct.unpack(">7q", f.read(56)) == numbers
    broker.store._timer._metrics.write(broker.store._timer.wheel, now=True)
    with open(f"{broker.store.path}/config/timermetrics") as f:
        assert json.loads(peer.ask(61).body) == json.load(f)


def test_4_9_knows_no_timer(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", compat="4.9") as broker, Peer(broker.address) as peer:
        assert [peer.ask(code).code for code in (60, 61, 370)] == [3] * 3


def test_a_moved_offset_is_told_in_a_topic(broker, peer):
    peer.put()
    broker.store.wait_dispatched(10)
    answer = peer.pull(offset=7, bits=4, subscription="*")
    assert answer.code == 21
    broker.store.wait_dispatched(10)
    (event,) = broker.store.scan("OFFSET_MOVED_EVENT")
    assert json.loads(bytes(event.body)) == {
        "consumerGroup": "G", "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
        "offsetNew": int(answer.ext["nextBeginOffset"]), "offsetRequest": 7}
    assert (event.tags, event.keys, event.born_host) == ("G", "G", broker.address)


def test_listen_port_of_a_configuration_file(tmp_path):
    with Broker.open(tmp_path / "free", profile="test") as other:
        port = other.address.rpartition(":")[2]         # free once it is closed
    (tmp_path / "broker.conf").write_text(f"listenPort={port}\n")
    with Broker.open(tmp_path / "s", profile="test", config=tmp_path / "broker.conf") as broker:
        assert broker.address == f"127.0.0.1:{port}"
        assert broker.store.options.store_host == broker.address
    with Broker.open(tmp_path / "s", profile="test", config=tmp_path / "broker.conf", listen="127.0.0.1:0") as broker:
        assert broker.address != f"127.0.0.1:{port}"
