"""Batches that the network thread answers by itself (320): the processor in Python is the reference for what is stored and
answered."""
import pytest

from rmq_store import Broker, verify
from rmq_store.codec.batch import encode_batch
from rmq_store.remoting.frame import BINARY
from tests.broker.peer import Peer

PATIENT = {"profile": "test", "waitTimeMillsInSendQueue": 60_000}       # a busy machine is no fault


def messages_of(count):
    return [{"body": b"m%d" % n * (n % 7 + 1), "properties": {"TAGS": "A", "UNIQ_KEY": f"U{n}"}} for n in range(count)]


def native(broker):
    return broker._front.requests()[320]


def python_only(broker):
    """The network thread knows no topic any more, until the next one changes."""
    broker._front._network.publish([], [])


def stored(broker, queue=1):
    assert broker.store.wait_dispatched(10)
    return [(bytes(m.body), m.flag, m.sys_flag, m.properties, m.born_timestamp, m.born_host, m.store_host, m.reconsume_times,
             m.size, m.body_crc) for m in broker.store.scan("T", queue)], [m.msg_id for m in broker.store.scan("T", queue)]


def answered(answer):
    return answer.code, answer.remark, answer.flag, answer.language, answer.version, {
        name: value for name, value in answer.ext.items() if name not in ("msgId", "queueOffset")}


@pytest.mark.parametrize("serialize", [0, BINARY])
@pytest.mark.parametrize("options", [{}, {"compat": "4.9"}, {"flush_mode": "sync"}], ids=str)
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_batch_is_what_python_makes_of_it(tmp_path, options, count, serialize):
    body = encode_batch(messages_of(count), options.get("compat", "5.x"))
    with Broker.open(tmp_path / "s", **PATIENT, **options) as broker, Peer(broker.address, serialize) as peer:
        assert peer.put(body=b"first", queue=0).code == 0           # makes the topic
        found = []
        for by_python in (False, True):
            if by_python:
                python_only(broker)
            before = native(broker)
            answer = peer.put(body=body, code=320, queue=1, m="true", f=1, j=2, properties={
                "WAIT": "true", "UNIQ_KEY": "whole", "own": "x"})
            assert native(broker) == before + (not by_python)
            records, ids = stored(broker)
            assert answer.ext["msgId"].split(",") == ids[-count:] and answer.ext["queueOffset"] == str(len(ids) - count)
            found.append((answered(answer), records[-count:]))
        assert found[0] == found[1] and found[0][0][0] == 0
        assert not broker.store.scrub().findings


def test_batches_that_only_python_can_judge(tmp_path):
    with Broker.open(tmp_path / "s", **PATIENT) as broker, Peer(broker.address) as peer:
        assert peer.put(body=b"first").code == 0
        good = encode_batch(messages_of(2))
        for body, more, code in ((b"", {}, 13), (good[:-1], {}, 13), (good, {"properties": {"DELAY": "1"}}, 13),
                                 (encode_batch(messages_of(1025)), {}, 0), (good, {"queue": 99}, 29), (good, {"queue": -1}, 0)):
            before = native(broker)
            answer = peer.put(body=body, code=320, m="true", **more)
            assert answer.code == code, answer.remark
            assert native(broker) == before + (more.get("queue") == -1)


def test_a_checksum_of_a_client_is_none_of_the_store_s(tmp_path):
    with Broker.open(tmp_path / "s", **PATIENT) as broker, Peer(broker.address) as peer:
        assert peer.put(body=b"first").code == 0
        for properties in ({"a": "b", "__CRC32#": "0123456789"}, {"__CRC32#": "0123456789"}):
            assert peer.put(body=encode_batch([{"body": b"x", "properties": properties}]), code=320, m="true").code == 0
            assert peer.put(body=b"y", properties=properties).code == 0
        assert not broker.store.scrub().findings
        broker.store.backup(tmp_path / "b")
    assert [f for f in verify(tmp_path / "s") if f.severity != "note"] == []


def test_oneway_and_waived_batches(tmp_path):
    with Broker.open(tmp_path / "s", **PATIENT, flush_mode="sync") as broker, Peer(broker.address) as peer:
        assert peer.put(body=b"first", queue=1).code == 0
        good = encode_batch(messages_of(3))
        ext = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 1, "h": 0, "m": "true"}
        peer.send(320, good, frame_flag=2, **ext)
        answer = peer.put(body=good, code=320, queue=1, m="true", properties={"WAIT": "false"})
        assert (answer.code, answer.ext["queueOffset"]) == (0, "4") and native(broker) == 2
        assert len(stored(broker)[0]) == 7
