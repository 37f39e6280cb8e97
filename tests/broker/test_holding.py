"""Pulls that Python holds: one look at a message for all requests with a filter, and connections take turns."""
import contextlib
import threading
import time

import pytest

from rmq_store import Broker, MessageStore
from rmq_store.broker.holding import Held, HeldPulls
from tests.network.peer import LIMIT_S, Peer
from tests.network.test_pulls import HEAD, bodies
from tests.soon import until

SQL = HEAD | {"queueId": "0", "sysFlag": "6", "expressionType": "SQL92"}


@pytest.fixture
def broker(tmp_path):
    with Broker.open(tmp_path / "s", profile="test") as broker:
        broker.store.topic_table.add("T")
        broker._core.groups.find("G")
        yield broker


def peer_of(broker):
    host, port = broker.address.rsplit(":", 1)
    return contextlib.closing(Peer((host, int(port))))


def hold(broker, peer, count, **change):
    before = broker._core.held.count
    for _ in range(count):
        peer.send(11, SQL | change)
    until(lambda: broker._core.held.count == before + count)


def test_a_message_is_looked_at_once_for_all_pulls_with_a_filter(broker):
    with peer_of(broker) as many, peer_of(broker) as one:
        hold(broker, many, 500, subscription="a = 1")
        hold(broker, many, 100, subscription="a = 2")
        hold(broker, one, 1, subscription="a = 3")
        before = broker.store.stats()["gets_missed"]
        for n in range(5):
            broker.store.put("T", b"%d" % n, properties={"a": "0"})
            assert broker.store.wait_dispatched(10)
        broker.store.put("T", b"yes", properties={"a": "3"})
        answer = one.receive()
        assert bodies(answer) == [b"yes"] and answer.ext["nextBeginOffset"] == "6"
        assert broker.store.stats()["gets_missed"] - before <= 3 * 6
        broker.store.put("T", b"both", properties={"a": "2"})
        for _ in range(100):
            answer = many.receive()
            assert bodies(answer) == [b"both"] and answer.ext["nextBeginOffset"] == "7"
        until(lambda: broker._core.held.count == 500)


def test_pulls_by_sql_whose_time_is_over(broker):
    with peer_of(broker) as peer:
        hold(broker, peer, 20, subscription="a = 1", suspendTimeoutMillis="1000")
        broker.store.put("T", b"no")
        answers = [peer.receive() for _ in range(20)]
        assert {(answer.code, answer.ext["nextBeginOffset"]) for answer in answers} <= {(19, "0"), (19, "1"), (20, "1")}
        assert broker._core.held.count == 0


def test_one_connection_with_many_pulls_costs_another_one_turn(tmp_path):
    """A thousand different filters look, or a thousand pulls are tried: another connection's comes in between."""
    looks, tries, gate = [], [], threading.Semaphore(0)

    def look(at):
        gate.acquire(timeout=LIMIT_S)
        looks.append(at)
        return None, at + 1

    def run(last):
        gate.acquire(timeout=LIMIT_S)
        tries.append(last)
        return True

    answered = threading.Event()
    with MessageStore.open(tmp_path / "s", profile="test") as store:
        held = HeldPulls(store)
        try:
            end = time.monotonic() + 3600
            for n in range(500):
                assert held.add(Held(1, "T", 0, 0, end, run, n, look))
                assert held.add(Held(1, "T", 0, 0, end, run))
            assert held.add(Held(2, "T", 0, 0, end, lambda last: answered.set() or True, "x", lambda at: (at, at + 1)))
            store.put("T", b"x")
            assert store.wait_dispatched(10)
            gate.release(8)             # of a thousand
            assert answered.wait(LIMIT_S) and len(looks) + len(tries) <= 8
            held.drop(1)
            gate.release(2000)
            until(lambda: held.count == 0)
        finally:
            held.stop()


def test_a_look_that_fails_lets_each_pull_tell_its_client(tmp_path):
    def look(at):
        raise RuntimeError("a filter")

    told = []
    with MessageStore.open(tmp_path / "s", profile="test") as store:
        held = HeldPulls(store)
        try:
            for _ in range(3):
                held.add(Held(1, "T", 0, 0, time.monotonic() + 3600, lambda last: told.append(last) or True, "x", look))
            store.put("T", b"x")
            until(lambda: told == [False] * 3 and held.count == 0)
        finally:
            held.stop()


def test_messages_that_come_all_the_time_beside_pulls_of_all_kinds(broker):
    """Every pull gets the first message that its filter lets through, from where it asked."""
    with peer_of(broker) as peer:
        for n in range(200):
            offset = broker.store.max_offset("T", 0)
            subscription = f"a = {n % 7}" if n % 3 else "TRUE"
            opaque = peer.send(11, SQL | {"subscription": subscription, "queueOffset": str(offset), "maxMsgNums": "1"})
            for a in range(7):
                broker.store.put("T", b"%d" % a, properties={"a": str(a)})
            answer = peer.receive()
            while answer.code == 20:
                opaque = peer.send(11, SQL | {"subscription": subscription, "queueOffset": answer.ext["nextBeginOffset"],
                                                "maxMsgNums": "1"})
                answer = peer.receive()
            assert answer.opaque == opaque and bodies(answer) == [b"%d" % (n % 7 if n % 3 else 0)]
            broker.store.wait_dispatched(10)


def test_who_waits_behind_the_end_of_a_queue_costs_no_look_at_what_is_in_it(tmp_path):
    """An offset of a message that is put and not dispatched yet, or of nobody's."""
    looks, tries = [], []

    def look(at):
        looks.append(at)
        return None, at + 1

    with MessageStore.open(tmp_path / "s", profile="test") as store:
        store.put_many("T", [b"x"] * 500)
        assert store.wait_dispatched(10)
        held = HeldPulls(store)
        try:
            assert held.add(Held(1, "T", 0, 505, time.monotonic() + 3600, lambda last: tries.append(last) or last, "x", look))
            store.put("T", b"x")
            until(lambda: tries == [False])
            assert looks == [] and held.count == 1
            store.put_many("T", [b"x"] * 10)
            until(lambda: looks == [505, 506, 507, 508, 509, 510])
        finally:
            held.stop()


def test_want_of_memory_ends_no_held_pull(tmp_path, monkeypatch):
    with MessageStore.open(tmp_path / "s", profile="test") as store:
        held = HeldPulls(store)
        try:
            hub, lacking = held._hub, [True, True]

            class Lacking:
                def __getattr__(self, name):
                    return getattr(hub, name)

                def watch(self, *queue):
                    if lacking.pop(0):
                        raise MemoryError
                    hub.watch(*queue)

                def take(self):
                    if lacking:
                        lacking.pop()
                        raise MemoryError
                    return hub.take()

            held._hub = Lacking()
            answered = threading.Event()
            one = Held(1, "T", 0, 0, time.monotonic() + 3600, lambda last: answered.set() or True)
            lacking.insert(1, False)
            with pytest.raises(MemoryError):
                held.add(one)
            assert held.count == 0
            assert held.add(one)
            store.put("T", b"x")
            until(lambda: not lacking)
            store.put("T", b"x")
            assert answered.wait(LIMIT_S)
            until(lambda: held.count == 0)
        finally:
            held.stop()
