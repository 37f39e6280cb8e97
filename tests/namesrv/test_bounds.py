"""What a peer can make a name server keep, and what it can make it answer, has bounds."""
import json

import pytest

from rmq_store.namesrv import routes as module
from rmq_store.namesrv.routes import Routes
from rmq_store.remoting import frame as frames
from rmq_store.remoting.frame import Frame

WHO = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "C", "brokerId": "0", "haServerAddr": "h:2"}


def whole(answer):
    """All steps of a request at once."""
    while not isinstance(answer, Frame):
        try:
            next(answer)
        except StopIteration as end:
            answer = end.value
    return answer


@pytest.fixture
def ask():
    routes = Routes()

    def ask(code, body=b"", **ext):
        return whole(routes.answer("channel", Frame(code, 7, ext, body)))

    return ask


def _register(ask, topics=("T",), version=None, queues=4, **ext):
    table = {topic: {"readQueueNums": queues, "writeQueueNums": 4, "perm": 6} for topic in topics}
    body = {"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}}
    return ask(103, json.dumps(body).encode(), **WHO | ext)


def _put(ask, value, key="k"):
    return ask(100, namespace="ORDER_TOPIC_CONFIG", key=key, value=value)


def test_kv_entries_have_room_for_so_many_bytes(ask, monkeypatch):
    monkeypatch.setattr(module, "KV_BYTES_MAX", 1000)
    assert _put(ask, "v" * 500).code == 0
    assert _put(ask, "v" * 900).code == 0               # in place of the first
    refused = _put(ask, "v" * 100, "other")
    assert refused.code == 1 and "limit is 1000" in refused.remark
    assert _put(ask, "\0" * 300).code == 1              # as JSON it has six times as many
    assert len(_register(ask).body) < 1000
    ask(102, namespace="ORDER_TOPIC_CONFIG", key="k")
    ask(102, namespace="ORDER_TOPIC_CONFIG", key="none")
    assert _put(ask, "v" * 900, "other").code == 0


def test_a_number_that_is_too_large_for_one(ask):
    """Python reads 1e999 as infinity, and writes that as what no JSON parser reads."""
    assert ask(103, b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1e999},"topicConfigTable":{}}}', **WHO).code == 1
    assert ask(106).body.decode().count('"b"') == 0


@pytest.mark.parametrize("ext", [{name: "x" * 256} for name in ("brokerName", "brokerAddr", "clusterName", "haServerAddr")])
def test_names_of_a_broker(ask, ext):
    refused = _register(ask, **ext)
    assert refused.code == 1 and "at most 255" in refused.remark
    assert _register(ask, **{name: value[:255] for name, value in ext.items()}).code == 0


@pytest.mark.parametrize("what", [{"topics": ["x" * 256]}, {"queues": 1 << 31}, {"queues": 10 ** 4000},
                                  {"version": "v" * 5000}, {"version": {"timestamp": float("nan")}},
                                  {"version": float("-inf")}])
def test_topics_of_a_broker(ask, what):
    assert _register(ask, **what).code == 1
    assert ask(105, topic="T").code == 17
    assert json.loads(ask(106).body)["clusterAddrTable"] == {}


def test_an_answer_that_no_frame_has_room_for(ask, monkeypatch):
    _register(ask, topics=[f"T{number}" for number in range(100)])
    assert ask(206).code == 0
    monkeypatch.setattr(frames, "BODY_MAX", 100)
    refused = ask(206)
    assert (refused.code, refused.body, refused.opaque, refused.flag) == (1, b"", 7, 1)
    assert "room for 100" in refused.remark
    assert ask(105, topic="none").code == 17


def test_registrations_that_take_long_are_done_in_the_order_in_which_they_came():
    """Those that wait for another one stay before those that come when it is done."""
    routes = Routes()

    def begun(address, connection, topics):
        table = {f"t{n}": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for n in range(topics)}
        body = json.dumps({"topicConfigSerializeWrapper": {"dataVersion": None, "topicConfigTable": table}}).encode()
        return routes.answer(connection, Frame(103, 7, WHO | {"brokerAddr": address}, body))

    first = begun("h:1", "1", 5000)
    old = begun("h:2", "2", 10)
    assert not isinstance(first, Frame) and not isinstance(old, Frame)      # both take long
    whole(first)
    new = begun("h:3", "3", 10)
    assert not isinstance(new, Frame)
    done, waits = [], {"new": new, "old": old}
    while waits:                                        # in turns, the newer one first
        for name in list(waits):
            try:
                next(waits[name])
            except StopIteration:
                done.append(name)
                del waits[name]
    assert done == ["old", "new"]
    addresses = json.loads(whole(routes.answer("c", Frame(106, 8, {}))).body)["brokerAddrTable"]["b"]["brokerAddrs"]
    assert addresses == {"0": "h:3"}
    assert not routes._row
