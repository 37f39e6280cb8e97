"""Registrations as brokers send them: JSON and compressed, and read in steps, between which other connections are served."""
import json
import struct
import zlib

import pytest

from rmq_store import NameServer
from rmq_store.namesrv import bodies, routes
from rmq_store.namesrv.routes import Routes
from rmq_store.remoting.frame import Frame
from tests.broker.peer import Peer
from tests.namesrv.test_bounds import WHO, whole

# RegisterBrokerBody.encode(true) of RocketMQ 5.3.3: Orders 4 8 6, %RETRY%g 1 1 6, Attr 2 3 4 with an attribute, counter 7
JAVA = bytes.fromhex(
    "78da636060b0a8564ace2fcd2b492d52b232d7512a2e492c490d4b2d2acecccf53b232d0512ac9cc4d050ae6162859199a1b20402d03030333104bf917"
    "a500952b982858289829047bfab9fbb8c68738ba2b548354c8a806b9860445aaa62b180221a6bcbe6349499182918231503fb29c927661696a69aa5e49"
    "6541aa929592536249728673a012480b53742c906400004c16303a")
JAVA_CRC = 1426645126


def ask(server, code, body=b"", **ext):
    return whole(server.answer("channel", Frame(code, 7, ext, body)))


def packed(topics, version=b'{"counter":1}', count=None):
    parts = [version, *topics]
    text = [struct.pack(">i", len(part)) + part for part in parts]
    text.insert(1, struct.pack(">i", len(topics) if count is None else count))
    return zlib.compress(b"".join(text) + struct.pack(">i", 2) + b"[]" + struct.pack(">i", 0), 9)


def test_a_compressed_registration_of_a_real_broker():
    server = Routes()
    who = WHO | {"compressed": "true", "bodyCrc32": str(JAVA_CRC)}
    assert ask(server, 103, JAVA, **who).code == 0
    assert json.loads(ask(server, 206).body) == {"topicList": ["%RETRY%g", "Attr", "Orders"]}
    queues = {topic: json.loads(ask(server, 105, topic=topic).body)["queueDatas"] for topic in ("Orders", "%RETRY%g", "Attr")}
    assert [(q[0]["readQueueNums"], q[0]["writeQueueNums"], q[0]["perm"]) for q in queues.values()] == [(4, 8, 6), (1, 1, 6),
                                                                                                        (2, 3, 4)]
    said = ask(server, 322, b'{"counter":7,"stateVersion":0,"timestamp":1700000000000}', **WHO)
    assert said.ext["changed"] == "false"
    refused = ask(server, 103, JAVA, **who | {"bodyCrc32": "5"})
    assert refused.code == 1 and refused.remark == "crc32 not match"


@pytest.mark.parametrize("body", [
    b"", b"{}", JAVA[:-20], JAVA[:40], JAVA[:2] + b"\xff" * 50, zlib.compress(b""), zlib.compress(struct.pack(">i", -1)),
    zlib.compress(struct.pack(">i", 1 << 30) + bytes(100)), packed([b"T 1 1"]), packed([b"T a b c"]), packed([b"\xff 1 1 6"]),
    packed([b"T 1 1 -6"]), packed([b"T 1 1 6"], count=2), packed([b"x" * 256 + b" 1 1 6"]), packed([], version=b"{"),
    packed([], version=b'{"counter":NaN}'), packed([b"T 1 " + b"1" * 5000 + b" 6"])])
def test_what_is_no_compressed_registration_changes_nothing(body):
    server = Routes()
    assert ask(server, 103, packed([b"Kept 4 4 6 SINGLE_TAG"]), compressed="true", **WHO).code == 0
    answer = ask(server, 103, body, compressed="true", **WHO)
    assert (answer.code == 1 and answer.remark) or not body         # without a body: alive, and nothing new
    assert json.loads(ask(server, 206).body) == {"topicList": ["Kept"]}


def test_a_small_body_that_inflates_to_much(monkeypatch):
    topics = [b"T%d %s" % (n, b"4 4 6 " + b"x" * 60_000) for n in range(50)]
    monkeypatch.setattr(bodies, "INFLATED_MAX", 1 << 20)
    body = packed(topics)
    assert len(body) < 20_000
    refused = ask(Routes(), 103, body, compressed="true", **WHO)
    assert refused.code == 1 and "more than 1048576 bytes" in refused.remark
    monkeypatch.setattr(routes, "TOPICS_MAX", 10)
    for body, more in ((packed([b"t%d 1 1 6" % n for n in range(20)]), {"compressed": "true"}), (table(20), {})):
        refused = ask(Routes(), 103, body, **WHO | more)
        assert refused.code == 1 and "more than 10 topics" in refused.remark


def table(count):
    topics = {f"topic-{n}": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for n in range(count)}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 3}, "mappingDataVersion": {}, "topicConfigTable": topics}}, indent=1).encode()


@pytest.mark.parametrize("body", [
    b"[", b"[]", b"{", b'{"a":1', b'{"a" 1}', b'{"a":1,}', b"{1:2}", b"{} x", b"{}", b'{"topicConfigSerializeWrapper":[]}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":[]}}', b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":5}}}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"6"}}}}', b'{"a":' + b"[" * 100_000 + b"}", b"\xff",
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":6}'])
def test_what_is_no_registration_changes_nothing(body):
    server = Routes()
    answer = ask(server, 103, body, **WHO)
    assert answer.code == 1 and answer.remark
    assert json.loads(ask(server, 106).body)["brokerAddrTable"] == {}


def test_json_with_blanks_twice_the_same_name_and_nothing():
    server = Routes()
    blanks = b' { "topicConfigSerializeWrapper" : {"topicConfigTable":{ } , "dataVersion" : null } } '
    assert ask(server, 103, blanks, **WHO).code == 0
    one = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":2},"T":{"perm":6}}}}'
    assert ask(server, 103, one, **WHO).code == 0
    assert json.loads(ask(server, 105, topic="T").body)["queueDatas"][0]["perm"] == 6


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_registration_and_the_list_of_all_topics_let_others_in_between(monkeypatch, compressed):
    """Each step is as short as it can be here: the requests of another connection need not wait for the end."""
    monkeypatch.setattr(routes, "STEP_S", 0.0)
    monkeypatch.setattr(routes, "NAMES_AT_ONCE", 1)
    server = Routes()
    body = packed([b"topic-%d 4 4 6 SINGLE_TAG" % n for n in range(500)]) if compressed else table(500)
    steps = server.answer("one", Frame(103, 1, WHO | {"compressed": str(compressed).lower()}, body))
    for _ in range(400):
        next(steps)
        assert ask(server, 105, topic="topic-0").code == 17     # nothing is there before all is read
    waits = server.answer("two", Frame(206, 1))                 # what takes long is done one after the other
    next(waits)
    assert whole(steps).code == 0
    names = {f"topic-{n}" for n in range(500)}
    assert set(json.loads(whole(waits).body)["topicList"]) == names
    server.gone("nobody")                                       # changes nothing
    server._changed()
    steps = server.answer("one", Frame(206, 1))
    for _ in range(100):
        next(steps)
    ask(server, 216, topic="topic-7")
    assert set(json.loads(whole(steps).body)["topicList"]) == names         # as it began
    assert set(json.loads(ask(server, 206).body)["topicList"]) == names - {"topic-7"}
    monkeypatch.setattr(routes, "body_of", None)                            # made once
    assert len(json.loads(ask(server, 206).body)["topicList"]) == 499


def test_one_registration_at_a_time_and_the_next_when_its_client_has_gone(monkeypatch):
    monkeypatch.setattr(routes, "STEP_S", 0.0)
    server = Routes()
    many = [server.answer(n, Frame(103, 1, WHO | {"brokerName": f"b{n}"}, table(50))) for n in range(3)]
    for steps in many * 3:
        next(steps)
    many[0].close()                                             # its connection has ended
    next(many[2])                                               # waits for the one before
    assert whole(many[1]).code == 0 and whole(many[2]).code == 0
    assert json.loads(ask(server, 106).body)["brokerAddrTable"].keys() == {"b1", "b2"}
    twice = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%s}}}' % b",".join([b'"T":{"perm":6}'] * 60)
    monkeypatch.setattr(routes, "TOPICS_MAX", 50)
    assert "more than 50 topics" in ask(server, 103, twice, **WHO).remark      # also of one name


def test_a_real_server_with_a_client_that_registers_all_the_time():
    with NameServer.open() as names, Peer(names.address) as many, Peer(names.address) as one:
        body = table(20_000)
        for n in range(5):
            many.send(103, body, **WHO | {"brokerName": f"b{n % 2}"})
            many.send(206)
        answers = [one.ask(106).code for _ in range(20)]
        assert set(answers) == {0}
        assert [many.answer(opaque).code for opaque in range(1, 11)] == [0] * 10
