"""What one client asks costs the others no more than a turn: heartbeats in steps, tables by entry, notices with a pace, bodies
with a bound."""
import gc
import json
import threading
import types
import weakref

import pytest

from rmq_store import Broker, NameServer
from rmq_store.broker import clients, heartbeats, notices, request
from rmq_store.broker.notices import AT_ONCE, Notices
from rmq_store.namesrv import bodies
from rmq_store.remoting.frame import Frame
from tests.broker.peer import Peer
from tests.network.peer import Peer as RawPeer
from tests.soon import until


def beat_of(groups, topics=("T",)):
    subs = [{"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"} for topic in topics]
    return json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": [
        {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
         "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subs} for group in groups]}).encode()


@pytest.fixture
def broker(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker:
        yield broker


@pytest.fixture
def told(broker, monkeypatch):
    """Per call of `tell`: {shard: rows}."""
    found, tell = [], broker._front.tell

    def spy(shards):
        shards = list(shards)
        found.append({shard: len(topics) + len(subs) for shard, (topics, subs) in shards})
        tell(shards)

    monkeypatch.setattr(broker._front, "tell", spy)
    return found


def test_a_change_tells_its_own_entries_however_many_others_there_are(broker, told):
    with Peer(broker.address) as many, Peer(broker.address) as one:
        for n in range(4):
            assert many.ask(34, beat_of([f"many{n}"], [f"t{i}" for i in range(1500)])).code == 0
        assert one.put("T").code == 0 and one.put("T").code == 0
        sends = broker._front.requests()[310] + broker._front.requests()[10]
        told.clear()
        many.ask(34, beat_of(["many0"], ["u1", "u2"]))          # a client that changes its mind
        assert told and all(len(shards) <= 2 for shards in told)
        told.clear()
        assert one.put("new").code == 0
        assert 1 <= sum(len(shards) for shards in told) <= 2
        assert one.put("T").code == 0               # known all the time: the network thread answers
        assert broker._front.requests()[310] + broker._front.requests()[10] == sends + 1


def test_a_new_topic_or_group_copies_no_table(broker, monkeypatch):
    """What one more costs does not depend on how many there are."""
    with Peer(broker.address) as peer:
        assert peer.put("T").code == 0
        copies = []
        for table in (type(broker._core.topics._rows), type(broker.store.topic_table), type(broker.store.group_table)):
            for name in ("snapshot", "entries", "content"):
                if hasattr(table, name):
                    monkeypatch.setattr(table, name, lambda *_, name=name: copies.append(name))
        assert peer.put("new").code == 0
        assert peer.ask(34, beat_of(["newcomers"], ["new"])).code == 0
        assert peer.put("new").code == 0
        assert copies == []


def test_what_was_deleted_or_forbidden_is_known_no_more(broker, told):
    with Peer(broker.address) as peer:
        assert peer.put("T").code == 0 and peer.put("U").code == 0
        before = broker._front.requests()[310] + broker._front.requests()[10]
        broker._core.topics.remove("T")
        shard = broker._front.shard("T")
        assert [sorted(shards) for shards in told if shards][-1] == [shard]
        broker._core.options.change({"brokerPermission": 4})
        broker._core.look()
        assert len(told[-1]) == 256
        assert peer.put("U").code == 16
        assert broker._front.requests()[310] + broker._front.requests()[10] == before


def test_a_telling_that_fails_is_made_good(broker, told, monkeypatch):
    tell = broker._front.tell

    def fails(shards):
        raise MemoryError("table")

    monkeypatch.setattr(broker._front, "tell", fails)
    with pytest.raises(MemoryError):
        broker._core.topics.set("T", readQueueNums=4, writeQueueNums=4, perm=6)
    monkeypatch.setattr(broker._front, "tell", tell)
    broker._core.look()
    assert len(told[-1]) == 256


def test_a_heartbeat_of_many_groups_lets_others_in_between(broker, monkeypatch):
    """And the next request of its own client comes behind it."""
    monkeypatch.setattr(heartbeats, "STEP_S", 0.0)
    begun, go, answered = threading.Event(), threading.Event(), threading.Event()
    registered, in_time, register = [], [], heartbeats.Heartbeats._register

    def slowly(self, client, data, told):
        register(self, client, data, told)
        registered.append(data["groupName"])
        if len(registered) == 2:
            begun.set()
            go.wait(30)
        if len(registered) == 100:          # far behind the next turn
            in_time.append(answered.wait(30))

    monkeypatch.setattr(heartbeats.Heartbeats, "_register", slowly)
    host, port = broker.address.rsplit(":", 1)
    many, one = RawPeer((host, int(port))), RawPeer((host, int(port)))
    names = [f"g{n}" for n in range(200)]
    many.send(34, body=beat_of(names))
    assert begun.wait(30)
    passed = broker._front.counts()["passed"]
    one.send(38, {"consumerGroup": "nobody"})
    many.send(38, {"consumerGroup": "g199"})
    until(lambda: broker._front.counts()["passed"] == passed + 2)
    go.set()
    assert one.receive().code == 1
    answered.set()
    answers = [frame for frame in (many.receive() for _ in range(202)) if frame.code != 40]     # and notices of its groups
    assert [frame.code for frame in answers] == [0, 0]      # its own next request finds it done
    assert registered == names and in_time == [True]
    many.close()
    one.close()


def test_a_heartbeat_of_many_filters_lets_others_in_between(broker, monkeypatch):
    """A group alone can have 4,096 filters to read."""
    monkeypatch.setattr(heartbeats, "STEP_S", 0.0)
    read, registered = [], []
    monkeypatch.setattr(heartbeats, "subscription_of", lambda *what: read.append(what) or clients.subscription_of(*what))
    register = heartbeats.Heartbeats._register
    monkeypatch.setattr(heartbeats.Heartbeats, "_register",
                        lambda self, *what: registered.append(len(read)) or register(self, *what))
    subs = [{"topic": f"t{n}", "subString": f"a = {n}", "subVersion": 1, "expressionType": "SQL92"} for n in range(300)]
    body = json.dumps({"clientID": "c", "consumerDataSet": [
        {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
         "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subs}]}).encode()
    steps = broker._processors.answer(Connection(), Frame(34, 1, {}, body))
    for n in range(1, 300):
        assert len(read) == n and not registered
        next(steps)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    assert end.value.value.code == 0 and registered == [300]
    assert len(broker._core.clients.group("g").subscriptions) == 300


@pytest.mark.parametrize("code", [34, 41, 42, 46, 200])
def test_a_body_has_a_bound_that_is_looked_at_before_it_is_read(broker, code, monkeypatch):
    read = []
    monkeypatch.setattr(request, "json", types.SimpleNamespace(loads=read.append, dumps=json.dumps))
    with Peer(broker.address) as peer:
        for body in (b'{"a":[' + b"[]," * 300_000 + b"0]}", b'{"a":' + b'"' * (5 << 20), b" " * (5 << 20)):
            answer = peer.ask(code, body)
            assert answer.code == 1 and "the limit is" in answer.remark
    assert read == []


def test_a_name_server_reads_no_body_of_brackets(monkeypatch):
    with NameServer.open() as names, Peer(names.address) as peer:
        monkeypatch.setattr(bodies, "json", types.SimpleNamespace(loads=None, dumps=json.dumps))
        monkeypatch.setattr(bodies, "_decode", None)
        ext = {"brokerName": "b", "brokerAddr": "1.1.1.1:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0"}
        answer = peer.ask(103, b'{"a":[' + b"[]," * 2_000_000 + b"0]}", **ext)
        assert answer.code == 1 and "the limit is" in answer.remark
        answer = peer.ask(322, b'"' + b"x" * (1 << 17) + b'"', **ext)
        assert answer.code == 1 and "the limit is" in answer.remark


def test_a_refused_request_is_freed_at_once(broker):
    class Kept(Frame):
        __slots__ = ("__weakref__",)

    data = {"topic": "T", "subString": "(#", "expressionType": "SQL92"}
    frame = Kept(46, 1, {}, json.dumps({"subscriptionData": data}).encode())
    gone, connection = weakref.ref(frame), Connection()
    gc.disable()
    try:
        answer = broker._processors.answer(connection, frame)
        del frame
        assert answer.code == 23 and gone() is None
    finally:
        gc.enable()


class Connection:
    id, peer, local = 1 << 31, "1.2.3.4:5", "1.2.3.4:6"

    def send(self, data):
        return True


def test_a_group_that_changes_often_is_told_once_in_an_interval(monkeypatch):
    monkeypatch.setattr(notices, "INTERVAL_S", 3600.0)
    pushed = []
    told = Notices(lambda group: list(range(10)), lambda client, group: pushed.append((group, client)))
    for _ in range(100):
        for group in ("a", "b"):
            told.changed(group)
    assert pushed == [(group, n) for group in ("a", "b") for n in range(10)]
    told.stop()
    told.changed("c")
    assert len(pushed) == 20


def test_the_last_change_is_told_and_a_large_group_by_another_thread(monkeypatch):
    monkeypatch.setattr(notices, "INTERVAL_S", 0.01)
    pushed = []
    told = Notices(lambda group: list(range(3 if group == "small" else AT_ONCE + 1)),
                   lambda client, group: pushed.append((group, threading.current_thread())))
    told.changed("small")
    told.changed("small")
    until(lambda: len(pushed) == 6)
    told.changed("large")
    until(lambda: len(pushed) == 6 + AT_ONCE + 1)
    assert threading.current_thread() not in [thread for group, thread in pushed if group == "large"]
    told.stop()


def test_a_broker_that_closes_tells_nobody(tmp_path, monkeypatch):
    pushed = []
    with Broker.open(tmp_path / "s", profile="test") as broker:
        peers = [Peer(broker.address) for _ in range(5)]
        for peer in peers:
            assert peer.ask(34, beat_of([f"g{n}" for n in range(20)])).code == 0
        push = broker._core.push
        monkeypatch.setattr(broker._core, "push", lambda *a, **k: pushed.append(a) or push(*a, **k))
        broker._heartbeats.stop()
        pushed.clear()
    assert pushed == []
