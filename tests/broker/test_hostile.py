"""Peers that send what no client sends: each loses its request or its connection, and the others go on."""
import json
import random
import struct

import pytest

from rmq_store.broker import clients, heartbeats, holding, workers
from rmq_store.remoting import frame as frames
from rmq_store.remoting.frame import BINARY, Frame, encode
from tests.broker.peer import Peer


def test_half_a_character(broker, peer):
    """JSON can name half a surrogate pair, and UTF-8 cannot."""
    bad = b'"\\ud800"'
    with Peer(broker.address, BINARY) as other:
        for code, body in ((34, b'{"clientID":%s,"consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":%s}]}]}'),
                           (46, b'{"subscriptionData":{"expressionType":%s,"subString":%s}}'),
                           (41, b'{"clientId":%s,"consumerGroup":%s,"mqSet":[]}'), (200, b'{"groupName":%s,"x":%s}')):
            other.ask(code, body % (bad, bad))
        assert other.ask(38, consumerGroup="G").code == 0
    assert peer.put().code == 0
    assert peer.ask(38, consumerGroup="none").code == 1


def test_offsets_of_queues_that_are_not_there(peer):
    peer.put()
    assert peer.ask(15, consumerGroup="G", topic="T", queueId=4, commitOffset=0).code == 1
    assert peer.ask(15, consumerGroup="G", topic="T", queueId=-1, commitOffset=0).code == 1


def test_too_many_held_pulls_are_answered(broker, peer, monkeypatch):
    monkeypatch.setattr(holding, "HELD_OF_ONE_MAX", 3)
    peer.put()
    broker.store.wait_dispatched(10)
    numbers = [peer.ask_pull(offset=1, bits=6, subscription="a IS NULL", expressionType="SQL92") for _ in range(4)]
    assert peer.answer(numbers[3]).code == 19
    assert broker._core.held.count == 3


def test_too_much_work_is_answered_busy(broker, peer, monkeypatch):
    monkeypatch.setattr(workers, "WAITING_MAX", 1)
    monkeypatch.setattr(broker._core.workers, "submit", lambda job, size, owner, stays: False)
    assert peer.ask(28).code == 2
    assert peer.put(properties={"TRAN_MSG": "true"}).code == 2
    assert peer.put().code == 0


def test_a_handler_that_fails_costs_one_connection(broker, peer, monkeypatch):
    def fail(request):
        raise RuntimeError("planned")

    with monkeypatch.context() as patch:
        patch.setitem(broker._processors._table, 9999, (fail, False))
        patch.setitem(broker._processors._table, 9998, (fail, True))
        assert peer.ask(9999).code == 1
        assert peer.ask(9998).remark == "RuntimeError: planned"
        patch.setattr(broker._core, "dressed", fail)
        with Peer(broker.address) as other, pytest.raises((EOFError, OSError)):
            other.ask(30, topic="T", queueId=0)
    assert peer.ask(30, topic="T", queueId=0).code == 0


SEND = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
FRAMES = [
    Frame(310, 1, SEND | {"i": "k\x01v\x02"}, b"x"),
    Frame(11, 2, {"consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6",
                  "commitOffset": "0", "suspendTimeoutMillis": "10", "subVersion": "0", "subscription": "*"}),
    Frame(34, 3, {}, json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "P"}], "consumerDataSet": [
        {"groupName": "G", "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}]}]}).encode()),
    Frame(320, 4, SEND | {"m": "true"}, struct.pack(">iiiii1sh", 23, 0, 0, 0, 1, b"b", 0)),
    Frame(17, 5, {"topic": "U", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "attributes": "+a=b"}),
    Frame(36, 6, {"group": "G", "offset": "0", "delayLevel": "1"}),
    Frame(37, 7, {"commitOrRollback": "8", "producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": "0"}),
    Frame(41, 8, {}, b'{"clientId":"c","consumerGroup":"G","mqSet":[]}')]


@pytest.mark.parametrize("seed", range(4))
def test_mutated_frames(broker, seed):
    """Random changes of real frames, JSON and binary: afterwards the broker answers a good peer."""
    dice = random.Random(seed)
    for _ in range(150):
        frame = dice.choice(FRAMES)
        frame.serialize = dice.choice((0, BINARY))
        data = bytearray(encode(frame))
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(data))
            if dice.random() < 0.5:
                data[at] = dice.randrange(256)
            elif dice.random() < 0.5:
                del data[at:at + dice.randrange(1, 8)]
            else:
                data[at:at] = dice.randbytes(dice.randrange(1, 8))
            data = data or bytearray(b"\0")
        if dice.random() < 0.7:
            data[0:4] = (len(data) - 4).to_bytes(4, "big", signed=True)
        with Peer(broker.address) as bad:
            bad.sock.sendall(data)
    with Peer(broker.address) as good:
        assert good.ask(30, topic="none", queueId=0).code == 0
        assert good.put("good", b"still here").code == 0


def _beat(peer, group, topics, version=1):
    return peer.ask(34, {"clientID": "c", "consumerDataSet": [{"groupName": group, "subscriptionDataSet": [
        {"topic": topic, "subString": "*", "subVersion": version} for topic in topics]}]})


@pytest.mark.parametrize("version", [1 << 63, 10 ** 40])
def test_a_version_that_no_long_has(broker, peer, version):
    """It stays for as long as another member keeps the group, and every change of anybody tells the network thread of it."""
    assert _beat(peer, "G", ["T"], -1).code == 0
    with Peer(broker.address) as bad:
        assert _beat(bad, "G", ["T"], version).code == 0
    with Peer(broker.address) as other:
        assert other.put("new").code == 0
        assert other.beat("o", consumers={"other": {"new": "*"}}).code == 0
    assert _beat(peer, "G", ["T"], 5).code == 0


@pytest.mark.parametrize("limit", ["SUBSCRIPTIONS_OF_ONE_MAX", "TEXT_OF_ONE_MAX"])
def test_more_subscriptions_than_a_client_has(peer, monkeypatch, limit):
    monkeypatch.setattr(heartbeats, limit, {"TEXT_OF_ONE_MAX": 7}.get(limit, 3))
    assert _beat(peer, "G", ["T", "U", "V"]).code == 0
    answer = _beat(peer, "G", ["T", "U", "V", "W"])
    assert answer.code == 1 and "4 subscriptions with 8 characters" in answer.remark


def test_no_long_expression_is_kept_when_its_client_is_gone(peer):
    clients._kept.cache_clear()
    assert peer.beat("c", consumers={"G": {"T": "x" * 4096}}).code == 0
    assert clients._kept.cache_info().currsize == 0
    assert peer.beat("c", consumers={"G": {"T": "short"}}, version=2).code == 0
    assert clients._kept.cache_info().currsize == 1


def test_attributes_have_bounds(peer):
    many = {f"+k{number}": "v" for number in range(257)}
    for attributes in (many, {"+k": "v" * 4097}, {"+" + "k" * 4097: "v"}):
        assert "the limits are 256 and 4096" in peer.ask(200, {"groupName": "G", "attributes": attributes}).remark
        text = ",".join(f"{key}={value}" for key, value in attributes.items())
        assert "the limits are 256 and 4096" in peer.ask(17, topic="U", attributes=text).remark


def test_a_remark_fits_into_a_header(peer):
    answer = peer.ask(25, b"x" * (1 << 19))
    assert answer.code == 1 and answer.remark.startswith("option xxx")


def test_an_answer_that_no_frame_has_room_for(peer, monkeypatch):
    monkeypatch.setattr(frames, "BODY_MAX", 100)
    for code in (21, 28):           # in the network thread, and in a worker
        answer = peer.ask(code)
        assert answer.code == 1 and "room for 100" in answer.remark
    assert peer.put().code == 0


def test_quotes_without_an_end_hold_up_nobody(peer):
    """A regular expression with a square of steps would hold the GIL for hours."""
    assert peer.ask(34, b'{' + b'\\"' * 500_000).code == 1
    assert peer.put().code == 0


VALUES = [None, True, -1, 1 << 31, 1 << 63, 10 ** 40, 1.5, "", "x" * 300, "\ud800", "\0", [], {}, [None], {"a": 1}]
BODIES = {
    34: {"clientID": "c", "producerDataSet": [{"groupName": "P"}], "consumerDataSet": [
        {"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "x",
         "unitMode": False, "withoutSub": False, "subscriptionDataSet": [
             {"topic": "T", "subString": "*", "subVersion": 3, "expressionType": "TAG", "tagsSet": [], "codeSet": []}]}]},
    41: {"consumerGroup": "G", "clientId": "c", "mqSet": [{"topic": "T", "queueId": 0, "brokerName": "b"}]},
    46: {"subscriptionData": {"expressionType": "SQL92", "subString": "a = 1", "topic": "T"}},
    200: {"groupName": "G", "retryQueueNums": 1, "retryMaxTimes": 3, "consumeEnable": True, "brokerId": 0,
          "attributes": {"+a": "b"}}}


def _with_each_value(found):
    """Copies of a JSON value in which one part, however deep, is another value."""
    yield from VALUES
    for key in found if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ():
        for other in _with_each_value(found[key]):
            copy = found.copy()
            copy[key] = other
            yield copy


@pytest.mark.parametrize("code", BODIES)
def test_any_value_in_a_body(broker, peer, code):
    """What is wrong costs its sender at most: the others change groups and topics, while a member keeps the group alive."""
    peer.beat("member", consumers={"G": {"T": "*"}})
    with Peer(broker.address) as bad:
        for body in _with_each_value(BODIES[code]):
            bad.ask(code, json.dumps(body).encode())
            assert peer.beat("member", producers=["P"], consumers={"G": {"T": "*"}}, version=2).code == 0
        with Peer(broker.address) as other:
            assert other.put("new").code == 0
            assert other.beat("o", consumers={"other": {"new": "*"}}).code == 0
