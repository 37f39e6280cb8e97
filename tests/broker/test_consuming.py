"""Heartbeats, pulls that are answered at once and pulls that are held, offsets, and the word that a group has changed."""
import json
import threading

import pytest

from rmq_store import Broker
from tests.broker.peer import Peer


def bodies(answer):
    """The bodies of the records of an answer."""
    from rmq_store.codec._codec import decode_record

    found, at = [], 0
    while at < len(answer.body):
        record = decode_record(answer.body, at)
        found.append(bytes(record.body))
        at += record.size
    return found


def none_held(broker, peer):
    """Returns when no pull is held: one that is answered is forgotten a moment later."""
    while broker._core.held_count:
        peer.ask(30, topic="T", queueId=0)


def test_a_push_consumer_from_heartbeat_to_commit(broker, peer, names):
    peer.put(body=b"one", properties={"TAGS": "A"})
    peer.put(body=b"two", properties={"TAGS": "B"})
    broker.store.wait_dispatched(10)
    assert peer.beat(consumers={"G": {"T": "A", "%RETRY%G": "*"}}).code == 0
    push = peer.push()
    assert (push.code, push.flag, push.ext) == (40, 2, {"consumerGroup": "G"})
    assert json.loads(peer.ask(38, consumerGroup="G").body) == {"consumerIdList": ["c1"]}
    assert peer.ask(38, consumerGroup="none").code == 1
    assert json.loads(names.ask(105, topic="%RETRY%G").body)["queueDatas"][0]["writeQueueNums"] == 1
    answer = peer.pull()
    assert (answer.code, answer.remark, bodies(answer)) == (0, "FOUND", [b"one"])
    assert answer.ext == {"suggestWhichBrokerId": "0", "nextBeginOffset": answer.ext["nextBeginOffset"], "minOffset": "0",
                          "maxOffset": "2"}
    assert peer.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=2).code == 0
    assert peer.ask(14, consumerGroup="G", topic="T", queueId=0).ext == {"offset": "2"}
    assert broker.store.offsets.query("G", "T", 0) == 2
    assert peer.ask(35, clientID="c1", consumerGroup="G", producerGroup="").code == 0
    assert peer.ask(38, consumerGroup="G").code == 1


def test_every_member_hears_of_a_change(broker):
    with Peer(broker.address) as one, Peer(broker.address) as two:
        one.beat("c1", consumers={"G": {"T": "*"}})
        assert one.push().code == 40
        two.beat("c2", consumers={"G": {"T": "*"}})
        assert one.push().code == two.push().code == 40
        assert sorted(json.loads(one.ask(38, consumerGroup="G").body)["consumerIdList"]) == ["c1", "c2"]
        two.sock.close()
        assert one.push().code == 40
        assert json.loads(one.ask(38, consumerGroup="G").body)["consumerIdList"] == ["c1"]


def test_a_held_pull_is_answered_when_its_message_comes(broker, peer):
    peer.put(body=b"old")
    broker.store.wait_dispatched(10)
    peer.beat(consumers={"G": {"T": "A"}})
    number = peer.ask_pull(offset=1)
    with Peer(broker.address) as producer:
        producer.put(body=b"other", properties={"TAGS": "B"})
        producer.put(body=b"mine", properties={"TAGS": "A"})
    answer = peer.answer(number)
    assert (answer.code, bodies(answer), answer.ext["nextBeginOffset"]) == (0, [b"mine"], "3")
    none_held(broker, peer)


def test_a_put_of_the_process_answers_a_held_pull(broker, peer):
    broker.store.topic_table.set("T", readQueueNums=1, writeQueueNums=1)
    peer.beat(consumers={"G": {"T": "*"}})
    number = peer.ask_pull()
    broker.store.put("T", b"from within")
    assert bodies(peer.answer(number)) == [b"from within"]


def test_a_pull_that_finds_nothing_in_its_time(broker, peer):
    peer.put()
    broker.store.wait_dispatched(10)
    peer.beat(consumers={"G": {"T": "A"}})
    answer = peer.pull(offset=1, suspend=1)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (19, "1")
    at_once = peer.pull(offset=1, bits=0, suspend=10_000_000)
    assert (at_once.code, at_once.remark) == (19, "OFFSET_OVERFLOW_ONE")
    number = peer.ask_pull(offset=1, suspend=300)
    with Peer(broker.address) as producer:
        producer.put(properties={"TAGS": "B"})      # what does not match is passed over, and the answer says so
    answer = peer.answer(number)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (19, "2")


def test_held_pulls_end_with_their_connection(broker):
    with Peer(broker.address) as peer:
        peer.put()
        broker.store.wait_dispatched(10)
        peer.beat(consumers={"G": {"T": "*"}})
        for _ in range(100):
            peer.ask_pull(offset=1)
        peer.ask(38, consumerGroup="G")
        assert broker._core.held_count == 100
    closed = threading.Event()
    with Peer(broker.address) as other:
        while broker._core.held_count:
            other.ask(38, consumerGroup="G")
            closed.wait(0.001)
        other.put(body=b"nobody waits")


@pytest.mark.parametrize(("change", "code"), [
    ({"topic": "none"}, 17), ({"queue": 4}, 29), ({"queue": -1}, 29), ({"offset": 7}, 21), ({"group": "other"}, 24),
    ({"subVersion": 2}, 25), ({"topic": "U"}, 24), ({"offset": -5}, 21), ({"bits": 4, "subscription": "A", "group": "new"}, 20),
    ({"bits": 4, "subscription": "a >", "expressionType": "SQL92"}, 23), ({"queueOffset": 1 << 63}, 1), ({"sysFlag": ""}, 1),
    ({"group": "no good"}, 26), ({"queue": 3, "offset": 9}, 21), ({"queue": 3, "bits": 0}, 19)])
def test_pulls_that_are_not_found(broker, peer, change, code):
    peer.put()
    peer.put("U")
    broker.store.wait_dispatched(10)
    peer.beat(consumers={"G": {"T": "*"}})
    assert peer.pull(**change).code == code


def test_permissions(broker, peer):
    peer.put()
    peer.beat(consumers={"G": {"T": "*"}})
    broker.store.group_table.set("G", consumeEnable=False)
    assert peer.pull().code == 16
    broker.store.group_table.set("G", consumeEnable=True)
    broker.store.topic_table.set("T", perm=2)
    assert peer.pull().code == 16


def test_a_pull_with_the_subscription_of_the_request_and_a_commit(broker, peer):
    peer.put(body=b"red", properties={"color": "red"})
    peer.put(body=b"blue", properties={"color": "blue"})
    broker.store.wait_dispatched(10)
    answer = peer.pull(bits=5, subscription="color = 'blue'", expressionType="SQL92", commitOffset=1)
    assert bodies(answer) == [b"blue"]
    assert broker.store.offsets.query("G", "T", 0) == 1
    lite = peer.ask(361, consumerGroup="G", topic="T", queueId=0, queueOffset=0, maxMsgNums=1, sysFlag=20, commitOffset=0,
                    suspendTimeoutMillis=0, subVersion=0, subscription="*")
    assert bodies(lite) == [b"red"]


def test_offsets_of_queues_and_groups(broker, peer):
    peer.put()
    where = {"topic": "T", "queueId": 0}
    broker.store.wait_dispatched(10)
    first = broker.store.get("T", 0, 0)[0].store_timestamp
    assert peer.ask(30, **where).ext == {"offset": "1"}
    assert peer.ask(31, **where).ext == {"offset": "0"}
    assert peer.ask(32, **where).ext == {"timestamp": str(first)}
    assert peer.ask(29, timestamp=first, **where).ext == {"offset": "0"}
    assert peer.ask(30, topic="none", queueId=0).ext == {"offset": "0"}
    assert peer.ask(32, topic="none", queueId=0).ext == {"timestamp": "-1"}
    assert peer.ask(14, consumerGroup="G", topic="T", queueId=0).ext == {"offset": "0"}
    assert peer.ask(14, consumerGroup="G", topic="T", queueId=0, setZeroIfNotFound=False).code == 22
    assert peer.ask(14, consumerGroup="G", topic="T", queueId=1).code == 22
    assert peer.ask(15, consumerGroup="G", topic="none", queueId=0, commitOffset=1).code == 17
    assert peer.ask(15, consumerGroup="G@", topic="T", queueId=0, commitOffset=1).code == 26
    assert peer.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=-2).code == 1


def test_an_empty_queue_begins_at_zero_in_4_9(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", compat="4.9") as broker, Peer(broker.address) as peer:
        peer.put()
        assert peer.ask(14, consumerGroup="G", topic="T", queueId=1).ext == {"offset": "0"}


def test_no_arrival_is_missed_among_others(broker, peer):
    """Messages that do not match come while a held pull looks through those before; the one that matches wakes it."""
    peer.put()
    broker.store.wait_dispatched(10)
    offset = 1
    for number in range(60):
        pulled = peer.ask_pull(offset=offset, bits=6, subscription="A", suspend=60_000)
        for _ in range(number % 7):
            broker.store.put("T", b"other", tags="B")
        broker.store.put("T", b"%d" % number, tags="A")
        answer = peer.answer(pulled)
        while answer.code == 20:        # it came after the first of them: a client pulls again at once
            answer = peer.pull(offset=answer.ext["nextBeginOffset"], bits=6, subscription="A", suspend=60_000)
        assert bodies(answer) == [b"%d" % number]
        offset = int(answer.ext["nextBeginOffset"])
    none_held(broker, peer)


def test_a_held_pull_is_checked_again_when_it_wakes_up(broker, peer):
    """By SQL, which Python holds; for the others see tests/network/test_pulls.py."""
    assert peer.put(properties={"color": "blue"}).code == 0
    broker.store.wait_dispatched(10)
    number = peer.ask_pull(offset=1, bits=6, subscription="color = 'blue'", expressionType="SQL92")
    assert peer.ask(200, {"groupName": "G", "consumeEnable": False}).code == 0
    assert broker._core.held.count == 1
    assert peer.put(properties={"color": "blue"}).code == 0
    answer = peer.answer(number)
    assert (answer.code, answer.body) == (16, b"")
