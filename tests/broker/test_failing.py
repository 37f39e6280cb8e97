"""Messages that fail, wait, are undecided or locked: codes 36, 37 and 39, delay levels, 41 and 42, 46, and replies."""
import json
import time

import pytest

from rmq_store.codec._codec import decode_record
from tests.broker.peer import Peer


def dispatched(broker):
    assert broker.store.wait_dispatched(10)
    return broker.store


def test_a_message_that_fails_is_retried_and_then_dead(broker, peer):
    peer.put(body=b"bad", properties={"KEYS": "k"})
    peer.beat(consumers={"G": {"T": "*"}})
    store = dispatched(broker)
    offset = store.get("T", 0, 0)[0].offset
    ask = {"group": "G", "originMsgId": "M", "originTopic": "T", "unitMode": False, "maxReconsumeTimes": 1}
    assert peer.ask(36, offset=offset, delayLevel=0, **ask).code == 0
    (waiting,) = dispatched(broker).get("SCHEDULE_TOPIC_XXXX", 2, 0)
    kept = waiting.properties
    assert (kept["REAL_TOPIC"], kept["RETRY_TOPIC"], kept["ORIGIN_MESSAGE_ID"]) == ("%RETRY%G", "T", "M")
    assert waiting.reconsume_times == 1
    assert peer.ask(36, offset=waiting.offset, delayLevel=0, **ask).code == 0
    (dead,) = dispatched(broker).get("%DLQ%G", 0, 0)
    assert (bytes(dead.body), dead.reconsume_times, dead.keys) == (b"bad", 2, "k")
    assert peer.ask(36, offset=offset, delayLevel=-1, **ask).code == 0
    assert len(dispatched(broker).get("%DLQ%G", 0, 0)) == 2
    for wrong in (offset + 1, -1, 1 << 40):
        assert peer.ask(36, offset=wrong, delayLevel=0, **ask).code == 1
    assert peer.ask(36, offset=offset, delayLevel=0, **ask | {"group": "no good"}).code == 26


def test_a_client_that_sends_its_retry_itself(broker, peer):
    peer.beat(consumers={"G": {"T": "*"}})
    assert peer.put("%RETRY%G", b"again", j=1, l=3).code == 0
    assert peer.put("%RETRY%G", b"dead", j=3, l=3, properties={"DELAY": "3"}).code == 0
    store = dispatched(broker)
    assert [bytes(m.body) for m in store.get("%RETRY%G", 0, 0)] == [b"again"]
    assert [bytes(m.body) for m in store.get("%DLQ%G", 0, 0)] == [b"dead"]


def test_a_delayed_message_comes_later(broker, peer):
    broker.store.topic_table.set("T", readQueueNums=1, writeQueueNums=1)
    peer.beat(consumers={"G": {"T": "*"}})
    number = peer.ask_pull()
    with Peer(broker.address) as producer:
        assert producer.put(body=b"late", properties={"DELAY": "1"}).code == 0
        assert producer.put(body=b"late", properties={"DELAY": "x"}).code == 13
    answer = peer.answer(number)
    assert bytes(decode_record(answer.body).body) == b"late"


def half(peer, body=b"half", **properties):
    marks = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": body.decode()}
    return peer.put(body=body, f=4, g=int(time.time() * 1000), properties=marks | properties)


def end(peer, answer, decision, **more):
    return peer.ask(37, **{
        "producerGroup": "P", "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": int(answer.ext["msgId"][16:], 16), "commitOrRollback": decision, "fromTransactionCheck": False,
        "msgId": "m", "transactionId": "t"} | more)


def test_transactions_are_committed_and_rolled_back(broker, peer):
    kept, dropped, open_ = half(peer, b"kept"), half(peer, b"dropped"), half(peer, b"open")
    assert kept.code == 0 and kept.ext["transactionId"] == "kept"
    dispatched(broker)
    assert end(peer, kept, 8, producerGroup="other").code == 1
    assert end(peer, kept, 8, tranStateTableOffset=7).code == 1
    assert end(peer, kept, 8, commitLogOffset=3).code == 1
    assert end(peer, kept, 8).code == 0
    assert end(peer, kept, 8).code == 0
    assert end(peer, kept, 12).code == 1
    assert end(peer, dropped, 12).code == 0
    (message,) = dispatched(broker).get("T", 0, 0)
    assert bytes(message.body) == b"kept" and message.prepared_transaction_offset == int(kept.ext["msgId"][16:], 16)
    assert [t.id for t in broker.store.transactions()] == ["open"] == [open_.ext["transactionId"]]
    broker._core.options.change({"rejectTransactionMessage": True})
    assert half(peer, b"more").code == 16


def test_an_undecided_transaction_is_checked(broker, peer):
    broker.store.reconfigure(transaction_timeout_ms=1, transaction_check_interval_ms=10)
    peer.beat("producer", producers=["P"])
    answer = half(peer, CHECK_IMMUNITY_TIME_IN_SECONDS="0")
    assert answer.code == 0
    asked = peer.push()
    assert (asked.code, asked.flag, asked.ext["transactionId"]) == (39, 2, "half")
    record = decode_record(asked.body)
    assert (record.topic, record.queue_id, bytes(record.body)) == ("T", 0, b"half")
    assert record.physical_offset == int(asked.ext["commitLogOffset"])
    assert peer.ask(37, producerGroup="P", commitOrRollback=8, fromTransactionCheck=True, msgId="", transactionId="",
                    commitLogOffset=asked.ext["commitLogOffset"],
                    tranStateTableOffset=asked.ext["tranStateTableOffset"]).code == 0
    assert [bytes(m.body) for m in dispatched(broker).get("T", 0, 0)] == [b"half"]


def test_locks_of_queues(broker, peer):
    queues = [{"topic": "T", "brokerName": "broker-a", "queueId": n} for n in (0, 1)]
    ask = {"consumerGroup": "G", "clientId": "c1", "mqSet": queues}
    assert json.loads(peer.ask(41, ask).body)["lockOKMQSet"] == queues
    assert json.loads(peer.ask(41, ask).body)["lockOKMQSet"] == queues
    assert json.loads(peer.ask(41, ask | {"clientId": "c2"}).body)["lockOKMQSet"] == []
    assert peer.ask(42, ask | {"mqSet": queues[:1], "clientId": "c2"}).code == 0
    assert peer.ask(42, ask | {"mqSet": queues[:1]}).code == 0
    assert json.loads(peer.ask(41, ask | {"clientId": "c2"}).body)["lockOKMQSet"] == queues[:1]
    for wrong in ({}, ask | {"mqSet": 1}, ask | {"mqSet": [1]}, ask | {"mqSet": [{"topic": "T"}]}):
        assert peer.ask(41, wrong).code == 1


@pytest.mark.parametrize(("kind", "text", "code"), [
    ("SQL92", "a = 1", 0), ("SQL92", "a >", 23), ("TAG", "x", 0), ("other", "x", 1)])
def test_a_subscription_is_checked(peer, kind, text, code):
    assert peer.ask(46, {"clientId": "c", "group": "G", "subscriptionData": {
        "topic": "T", "subString": text, "expressionType": kind}}).code == code


def test_a_reply_goes_to_the_producer_that_asked(broker, peer):
    peer.beat("asker", producers=["P"])
    with Peer(broker.address) as other:
        answer = other.put("DefaultCluster_REPLY_TOPIC", b"reply", code=325, properties={
            "REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "7"})
        assert answer.code == 0
        assert other.put("DefaultCluster_REPLY_TOPIC", b"reply", code=325, properties={"REPLY_TO_CLIENT": "gone"}).code == 1
    pushed = peer.push()
    assert (pushed.code, pushed.body) == (326, b"reply")
    assert "CORRELATION_ID\x017\x02" in pushed.ext["properties"] and pushed.ext["topic"] == "DefaultCluster_REPLY_TOPIC"


def test_a_put_hook_that_would_end_the_process_costs_its_message(broker, peer, caplog):
    """Of a send, a half message, and one that goes back, whose threads serve all clients."""
    def hook(message):
        if bytes(message.body) == b"bad":
            raise SystemExit(3)

    assert peer.put(body=b"bad").code == 0
    broker.store.wait_dispatched(10)
    broker.store.add_put_hook(hook)
    for answer in (peer.put(body=b"bad"), half(peer, b"bad"), peer.ask(36, group="G", offset=0, delayLevel=0)):
        assert answer.code == 1 and "SystemExit" in answer.remark
    assert peer.put(body=b"good").code == 0
    caplog.clear()          # what was logged holds the store


@pytest.mark.parametrize("level", [-1, 0])
@pytest.mark.parametrize("kind", ["full properties", "counted to the end", "larger than the limit now"])
def test_what_cannot_be_a_retry_is_a_dead_letter(broker, peer, kind, level):
    put = {"full properties": {"properties": {"k": "x" * 32_700}}, "counted to the end": {"reconsume_times": (1 << 31) - 1},
           "larger than the limit now": {}}[kind]
    offset = broker.store.put("T", b"b" * 1000, **put).offset
    peer.beat(consumers={"G": {"T": "*"}})
    if kind == "larger than the limit now":
        broker.store.reconfigure(message_size_max_bytes=10)
    ask = {"group": "G", "originMsgId": "M" * 50, "originTopic": "T", "unitMode": False, "maxReconsumeTimes": 16}
    store = dispatched(broker)
    assert peer.ask(36, offset=offset, delayLevel=level, **ask).code == 0
    topic = "SCHEDULE_TOPIC_XXXX" if kind == "larger than the limit now" and level == 0 else "%DLQ%G"
    (found,) = dispatched(broker).get(topic, 2 if topic != "%DLQ%G" else 0, 0)
    assert bytes(found.body) == b"b" * 1000 and found.properties.get("k") == put.get("properties", {}).get("k")
    assert [(row.sent_back, row.dead_letters) for row in store._consuming.counts()] == [(1, int(topic == "%DLQ%G"))]
