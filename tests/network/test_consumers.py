"""Offsets that the network thread reads and sets itself, beside Python that makes and removes them."""
import threading

import pytest

from rmq_store.network._front import Front
from rmq_store.remoting.frame import ONEWAY
from rmq_store.services.consumer import _offsets
from rmq_store.store import MessageStore
from tests.network.conftest import PASSED
from tests.network.peer import Peer, serving
from tests.soon import until

WHERE = {"consumerGroup": "G", "topic": "T", "queueId": "1"}


def test_an_offset_is_read_and_set_without_python(opened, passed):
    store, front = opened()
    store.offsets.commit("G", "T", 1, 7)
    peer = Peer(front.address)
    assert peer.ask(14, WHERE).ext == {"offset": "7"}
    answer = peer.ask(15, WHERE | {"commitOffset": str((1 << 63) - 1)})
    assert (answer.code, answer.ext, answer.body, answer.remark) == (0, {}, b"", "")
    peer.send(15, WHERE | {"commitOffset": "0"}, flag=ONEWAY)
    assert peer.ask(14, WHERE).ext == {"offset": "0"} and store.offsets.query("G", "T", 1) == 0
    assert passed == [] and (front.requests()[14], front.requests()[15]) == (2, 2)


@pytest.mark.parametrize("change", [
    {"consumerGroup": "other"}, {"consumerGroup": "G2"}, {"topic": "none"}, {"queueId": "0"}, {"queueId": "4"},
    {"queueId": "-1"}, {"queueId": "x"}, {"commitOffset": "-1"}, {"commitOffset": ""}, {"commitOffset": "9223372036854775808"}])
def test_what_is_not_ordinary_goes_to_python(opened, passed, change):
    store, front = opened(subscriptions=[("G", "", 0, ()), ("G2", "", 0, ())])
    for group, topic, queue_id in (("G", "T", 1), ("G", "none", 1), ("G", "T", 4), ("other", "T", 1)):
        store.offsets.commit(group, topic, queue_id, 7)
    ext = WHERE | {"commitOffset": "9"} | change
    assert Peer(front.address).ask(15, ext).code == PASSED and passed[0].ext == ext
    assert {offset for queues in store.offsets.table().values() for offset in queues.values()} == {7}


def test_many_offsets_and_more_than_native_threads_know(opened, passed, monkeypatch):
    monkeypatch.setattr(_offsets, "ROWS_MAX", 1000)
    store, front = opened()
    for n in range(1010):
        store.offsets.commit("G", f"t{n % 10}", n // 10, n)
    peer = Peer(front.address)
    for n in range(1010):
        answer = peer.ask(14, {"consumerGroup": "G", "topic": f"t{n % 10}", "queueId": str(n // 10)})
        assert answer.code == PASSED if n >= 1000 else answer.ext == {"offset": str(n)}
    assert len(passed) == 10 and store.offsets.remove("G", "t0") == 101 and store.offsets.remove("G", "t0") == 0
    assert sum(len(queues) for queues in store.offsets.table().values()) == 909


def test_commits_of_both_sides_at_once(opened):
    store, front = opened(topics=[("T", 6, 4, 4)])
    for queue_id in range(4):
        store.offsets.commit("G", "T", queue_id, 0)
    stop = threading.Event()

    def python():
        n = 0
        while not stop.is_set():
            n += 1
            store.offsets.remove("G", "T")
            store.offsets.commit("G", "T", 3, n)
            store.offsets.commit(f"H{n % 500}", "T", 0, n)      # the table grows
            store.offsets.flush()

    other = threading.Thread(target=python)
    other.start()
    try:
        peer = Peer(front.address)
        for n in range(3000):
            peer.send(15, WHERE | {"queueId": "3", "commitOffset": str(n)})
        assert {peer.receive().code for _ in range(3000)} <= {0, PASSED}
    finally:
        stop.set()
        other.join()
    store.offsets.commit("G", "T", 3, 5)
    assert peer.ask(15, WHERE | {"queueId": "3", "commitOffset": "6"}).code == 0
    store.offsets.flush()
    table = store.offsets.table()
    assert table["T", "G"] == {3: 6}
    reopened = type(store.offsets)(store.offsets._file, compat="4.9", readonly=True)
    assert reopened.table() == table


def test_a_heartbeat_that_was_remembered(opened, passed, connections):
    _store, front = opened()
    peer, other = Peer(front.address), Peer(front.address)
    body = b'{"clientID":"c"}'
    assert peer.ask(34, body=body).code == PASSED and other.ask(34, body=body).code == PASSED
    mine = connections[0].id
    front.remember(mine, body, passed[0].version, front.generation)
    assert front.heard(mine) == 0.0
    assert peer.ask(34, body=body).code == 0 and front.heard(mine) > 0
    for who, said in ((peer, {"body": body + b" "}), (other, {"body": body}),
                      (peer, {"body": body, "ext": {"Signature": "x"}})):
        assert who.ask(34, **said).code == PASSED
    front.publish([("T", 6, 4, 4)], [])
    assert peer.ask(34, body=body).code == PASSED       # of an older generation
    front.remember(mine, body, passed[0].version, front.generation)
    assert peer.ask(34, body=body).code == 0
    front.forget(mine)
    assert peer.ask(34, body=body).code == PASSED
    front.remember(mine, body, passed[0].version, front.generation)
    front.publish([], [])
    front.remember(mine, body, passed[0].version, front.generation)
    assert peer.ask(34, body=body).code == PASSED       # who knows no topic answers nothing


def test_a_heartbeat_counts_when_it_comes(tmp_path):
    """And not when Python gets to it, which other clients can keep busy."""
    gate, seen = threading.Semaphore(0), []

    def on_request(connection, _frame):
        gate.acquire(timeout=30)
        seen.append(connection)

    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20) as store:
        front = Front("127.0.0.1", 0, on_request, lambda connection: None)
        front.use(store)
        with serving(front):
            peer, busy = Peer(front.address), Peer(front.address)
            peer.send(99)
            gate.release()
            until(lambda: seen)
            busy.send(99)
            until(lambda: front.counts()["passed"] == 2)
            assert front.heard(seen[0].id) == 0.0
            peer.send(34, body=b"{}")
            until(lambda: front.heard(seen[0].id) > 0)
            assert len(seen) == 1
            gate.release(10)
