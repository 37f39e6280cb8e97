"""Offsets of groups and heartbeats that the network thread answers by itself (14, 15, 34): the processors in Python are the
reference for what is answered and what becomes of it."""
import threading
import time

import pytest

from rmq_store import Broker
from rmq_store.remoting.frame import BINARY
from tests.broker.peer import Peer
from tests.broker.test_native_batches import python_only
from tests.soon import until

WHERE = {"consumerGroup": "G", "topic": "T", "queueId": 1}
READS_T = {"consumers": {"G": {"T": "*"}}}


def native(broker, code):
    return broker._front.requests()[code]


def consuming(peer, **how):
    """A group that reads T: all that Python has to do for it is done."""
    assert peer.put(queue=1).code == 0
    for _ in range(2):
        assert peer.beat(**(READS_T | how)).code == 0


def fields(frame):
    return {name: value for name, value in frame._asdict().items() if name != "opaque"}


@pytest.mark.parametrize("serialize", [0, BINARY])
@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_answers_are_those_of_python(tmp_path, compat, serialize):
    with Broker.open(tmp_path / "s", profile="test", compat=compat) as broker, Peer(broker.address, serialize) as peer:
        consuming(peer)
        assert peer.ask(15, **WHERE, commitOffset=1).code == 0      # Python's, which makes the row
        found = []
        for by_python in (False, True):
            before = {code: native(broker, code) for code in (14, 15, 34)}
            if by_python:
                python_only(broker)
            answers = [peer.ask(15, **WHERE, commitOffset=7), peer.ask(14, **WHERE, setZeroIfNotFound=False),
                       peer.beat(**READS_T)]
            assert {code: native(broker, code) - n for code, n in before.items()} == dict.fromkeys(before, int(not by_python))
            assert broker.store.offsets.query("G", "T", 1) == 7
            found.append([fields(answer) for answer in answers])
            broker.store.offsets.commit("G", "T", 1, 1)
        assert found[0] == found[1] and found[0][1]["ext"] == {"offset": "7"}


def test_a_commit_without_python_is_written(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        consuming(peer)
        for offset in (1, 2, 3):
            assert peer.ask(15, **WHERE, commitOffset=offset).code == 0
        peer.send(15, frame_flag=2, **WHERE, commitOffset=4)
        assert peer.ask(14, **WHERE).ext == {"offset": "4"} and native(broker, 15) == 3
        broker.store.offsets.flush()
        assert '"T@G":{1:4\n' in (tmp_path / "s/config/consumerOffset.json").read_text()
        assert peer.ask(15, **WHERE, commitOffset=5).code == 0
        broker.store.put_many("T", [b"x"] * 5, queue_id=1)      # an open sets offsets beyond the end back
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        assert broker.store.offsets.query("G", "T", 1) == 5
        consuming(peer)
        assert peer.ask(14, **WHERE).ext == {"offset": "5"} and native(broker, 14) == 1


def test_what_a_pull_commits_needs_no_python(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        consuming(peer)
        broker.store.offsets.commit("G", "T", 1, 0)
        assert broker.store.wait_dispatched(20)
        for offset in (1, 2):
            assert peer.pull(queue=1, bits=1, commitOffset=offset).code == 0
            until(lambda: broker.store.offsets.query("G", "T", 1) == offset)    # the answer goes out first  # noqa: B023
        assert broker._processors.counts().get(15, 0) == 0


def test_removed_offsets_stay_removed(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        consuming(peer)
        offsets = broker.store.offsets
        for _ in range(3):
            assert peer.ask(15, **WHERE, commitOffset=7).code == 0      # Python's: it makes the row, or fills it again
            assert peer.ask(15, **WHERE, commitOffset=8).code == 0
            assert offsets.table() == {("T", "G"): {1: 8}} and offsets.groups() == ["G"] and offsets.topics("G") == ["T"]
            assert offsets.remove("G") == 1 and offsets.remove("G") == 0
            assert offsets.query("G", "T", 1) == -1 and offsets.table() == {} and offsets.groups() == []
            assert peer.ask(14, **WHERE, setZeroIfNotFound=False).code == 22
        assert native(broker, 15) == 3 and native(broker, 14) == 0


def test_the_same_heartbeat_again_needs_no_python(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer, Peer(broker.address) as other:
        consuming(peer, producers=["P"])
        for n in range(3):
            assert peer.beat(producers=["P"], **READS_T).code == 0 and native(broker, 34) == n + 1
        # what is said otherwise, by another one, or by another client is Python's
        for who, said in ((peer, {"producers": ["Q"]}), (other, {"producers": ["P"]}),
                          (peer, {"client": "c2", "producers": ["P"]}), (peer, {"producers": ["P"], "version": 2})):
            assert who.beat(**(READS_T | said)).code == 0 and native(broker, 34) == 3


def another(broker):
    with Peer(broker.address) as peer:
        peer.beat("c2", consumers={"G": {"U": "*"}})


@pytest.mark.parametrize("change", [
    lambda broker, peer: broker.store.topic_table.set("new"),
    lambda broker, peer: broker.store.group_table.set("G", consumeEnable=False),
    lambda broker, peer: another(broker),
    lambda broker, peer: peer.ask(35, clientID="c1", consumerGroup="G"),
    lambda broker, peer: peer.ask(35, clientID="c1", producerGroup="P")],
    ids=["topic", "group", "subscription", "consumer gone", "producer gone"])
def test_a_change_makes_the_next_heartbeat_pythons(tmp_path, change):
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        consuming(peer, producers=["P"])
        change(broker, peer)
        assert peer.beat(producers=["P"], **READS_T).code == 0 and native(broker, 34) == 0
        clients = broker._core.clients
        assert [c.id for c in clients.producers("P")] == ["c1"] and "c1" in [c.id for c in clients.consumers("G")]


def test_a_client_that_was_heard_stays(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        consuming(peer)
        clients = broker._core.clients
        seen = clients.consumers("G")[0].seen
        assert peer.beat(**READS_T).code == 0 and native(broker, 34) == 1
        heard = broker._front.heard(clients.consumers("G")[0].connection.id)
        assert heard > seen == clients.consumers("G")[0].seen
        clients.expire((seen + heard) / 2)
        assert len(clients.consumers("G")) == 1
        clients.expire(heard + 1)
        assert clients.consumers("G") == []


def test_a_client_that_reads_slowly_stays(tmp_path):
    """Its heartbeats wait behind answers that it has not read yet. That is no silence: it reads."""
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        consuming(peer)
        for _ in range(10):
            assert peer.put(queue=1, body=bytes(30_000)).code == 0
        client = broker._core.clients.consumers("G")[0].connection.id
        sent = broker._front.counts()["bytes_in"]
        for _ in range(100):
            peer.ask_pull(queue=1)
        until(lambda: broker._front.counts()["bytes_in"] > sent)
        moment = time.monotonic()
        peer.send(34)                   # is not read before all of them are
        until(lambda: peer.sock.recv(1 << 16) and broker._front.heard(client) > moment)
        broker._core.clients.expire(moment)
        assert [c.connection.id for c in broker._core.clients.consumers("G")] == [client]


def test_nothing_overtakes_a_request_that_python_has_not_served(tmp_path):
    """And no other connection waits for Python."""
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer, Peer(broker.address) as other:
        consuming(peer)
        consuming(other)
        assert peer.ask(15, **WHERE, commitOffset=1).code == 0
        begun, go = threading.Event(), threading.Event()

        def busy(request):
            begun.set()
            go.wait(30)
            return request.answer()

        broker._processors.add({30: busy})
        first = peer.send(30, topic="T", queueId=1)
        assert begun.wait(30)
        passed = broker._front.counts()["passed"]
        second = peer.send(15, **WHERE, commitOffset=2)
        until(lambda: broker._front.counts()["passed"] == passed + 1)
        for offset in (5, 6):
            assert other.ask(15, **WHERE, commitOffset=offset).code == 0
            assert other.ask(14, **WHERE).ext == {"offset": str(offset)} and other.beat(**READS_T).code == 0
        go.set()
        assert peer.answer(first).code == 0 == peer.answer(second).code
        assert broker.store.offsets.query("G", "T", 1) == 2
        assert peer.ask(15, **WHERE, commitOffset=3).code == 0 and native(broker, 15) == 3
