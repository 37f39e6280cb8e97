"""One client does not hold up others: connections take turns at Python, and leave what they asked when they go."""
import threading
import time

import pytest

from rmq_store import MessageStore
from rmq_store.network import _front
from rmq_store.network._front import Front
from rmq_store.remoting.frame import ONEWAY, Frame, encode
from tests.network.peer import LIMIT_S, Peer, serving
from tests.soon import until


class Gate:
    """on_request of a front: each request needs a permission; what came is in `served`."""

    def __init__(self):
        self.permissions, self.served, self.gone, self.begun = threading.Semaphore(0), [], [], threading.Event()

    def __call__(self, connection, frame):
        self.begun.set()
        self.permissions.acquire(timeout=LIMIT_S)
        self.served.append((frame.code, frame.opaque))
        return frame.answer()


def test_a_flood_of_one_connection_costs_another_one_turn():
    gate = Gate()
    front = Front("127.0.0.1", 0, gate, gate.gone.append)
    with serving(front):
        many, one = Peer(front.address), Peer(front.address)
        many.sock.sendall(b"".join(encode(Frame(1, n, flag=ONEWAY)) for n in range(200)))
        until(lambda: front.counts()["passed"] == 200)
        one.send(2)
        until(lambda: front.counts()["passed"] == 201)
        gate.permissions.release(3)
        assert one.receive() is not None
        assert len(gate.served) <= 3
        gate.permissions.release(1000)
        until(lambda: len(gate.served) == 201)
        assert [opaque for code, opaque in gate.served if code == 1] == list(range(200))


def test_one_connection_has_not_all_places():
    gate = Gate()
    front = Front("127.0.0.1", 0, gate, gate.gone.append)
    with serving(front):
        many = Peer(front.address)
        many.sock.sendall(b"".join(encode(Frame(1, n)) for n in range(1000)))
        until(lambda: front.counts()["stalls"] > 0)
        assert front.counts()["passed"] <= 256
        gate.permissions.release(2000)
        assert [many.receive().opaque for _ in range(1000)] == list(range(1000))


def test_what_a_gone_connection_asked_is_dropped_but_not_what_it_stored():
    gate = Gate()
    front = Front("127.0.0.1", 0, gate, gate.gone.append)
    with serving(front):
        many, one = Peer(front.address), Peer(front.address)
        many.sock.sendall(b"".join(encode(Frame(310 if n == 150 else 1, n, flag=ONEWAY)) for n in range(200)))
        until(lambda: front.counts()["passed"] == 200 and gate.begun.is_set())
        many.close()
        until(lambda: front.counts()["connections"] == 1)
        one.send(2)
        until(lambda: front.counts()["passed"] == 201)
        gate.permissions.release(1000)
        assert one.receive() is not None
        until(lambda: len(gate.gone) == 1)
        assert sorted(gate.served) == [(1, 0), (2, 1), (310, 150)]


def test_a_connection_that_goes_before_python_has_seen_it_is_not_told_of():
    gate = Gate()
    front = Front("127.0.0.1", 0, gate, gate.gone.append)
    with serving(front):
        busy, short, one = Peer(front.address), Peer(front.address), Peer(front.address)
        busy.send(1)
        until(gate.begun.is_set)
        short.send(1)
        until(lambda: front.counts()["passed"] == 2)
        short.close()
        until(lambda: front.counts()["connections"] == 2)
        one.send(2)
        gate.permissions.release(10)
        assert one.receive() is not None and busy.receive() is not None
    assert len(gate.served) == 2 and len(gate.gone) == 2        # of those that were there


def test_a_long_request_lets_others_in_between_its_steps():
    steps, ended = [], []

    def long(frame):
        try:
            for n in range(1_000_000):
                if frame.opaque == 7 and n == 50:
                    break
                steps.append(n)
                yield
            return frame.answer(5)
        finally:
            ended.append(len(steps))

    front = Front("127.0.0.1", 0, lambda _c, frame: long(frame) if frame.code == 1 else frame.answer(), ended.append)
    with serving(front):
        many, one, third = Peer(front.address), Peer(front.address), Peer(front.address)
        many.send(1)
        assert one.ask(2).code == 0 and one.ask(2).code == 0
        assert not ended                # the long one is not done
        many.close()
        until(lambda: ended)            # and ends with its connection
        third.sock.sendall(encode(Frame(1, 7)) + encode(Frame(2, 8)))
        assert [(third.receive().opaque) for _ in range(2)] == [7, 8]       # its own requests stay in their order


def test_a_step_that_fails_costs_its_connection_alone():
    def long(frame):
        yield
        raise ValueError(frame.opaque)

    front = Front("127.0.0.1", 0, lambda _c, frame: long(frame) if frame.code == 1 else frame.answer(), lambda c: None)
    with serving(front):
        bad, good = Peer(front.address), Peer(front.address)
        bad.send(1)
        assert bad.receive() is None and good.ask(2).code == 0


def test_requests_that_wait_get_as_much_time_as_the_steps_of_long_ones():
    """Not one request for each step, however long that takes."""
    steps, ended = [], threading.Event()

    def long(frame):
        while not ended.is_set():
            steps.append(time.sleep(0.02))
            yield
        return frame.answer(5)

    front = Front("127.0.0.1", 0, lambda _c, frame: long(frame) if frame.code == 1 else frame.answer(), lambda _c: None)
    with serving(front):
        many, one = [Peer(front.address) for _ in range(3)], Peer(front.address)
        for peer in many:
            peer.send(1)
        until(lambda: len(steps) > 3)
        before = len(steps)
        one.sock.sendall(b"".join(encode(Frame(2, n)) for n in range(200)))
        assert [one.receive().opaque for _ in range(200)] == list(range(200))
        assert len(steps) - before < 100
        ended.set()
        assert [peer.receive().code for peer in many] == [5, 5, 5]


@pytest.mark.parametrize(("size", "count", "bound"), [(300_000, 20, 1 << 20), (60_000, 80, 2 << 20)], ids=["large", "small"])
def test_what_python_works_on_in_steps_has_a_bound(monkeypatch, size, count, bound):
    """Requests of many connections: those that are under way, and those that are next. Others wait, and are all answered."""
    monkeypatch.setattr(_front, "PASSED_BYTES_MAX", 1 << 20)
    begun, ended = [], threading.Event()

    def long(frame):
        begun.append(len(frame.body))
        while not ended.is_set():
            yield
        return frame.answer(5)

    front = Front("127.0.0.1", 0, lambda _c, frame: long(frame) if frame.code == 1 else frame.answer(), lambda _c: None)
    with serving(front):
        many, one = [Peer(front.address) for _ in range(count)], Peer(front.address)
        for peer in many:
            peer.send(1, body=bytes(size))
        until(lambda: front.counts()["bytes_in"] >= count * size and sum(begun) + size > bound)
        stalls = front.counts()["stalls"]
        until(lambda: len(begun) == count or front.counts()["stalls"] > stalls + 3 * count)
        assert sum(begun) <= bound + (1 << 20)          # and those that were next when they were few
        if size > 1 << 16:
            assert one.ask(2).code == 0         # a small request waits for none of them
        ended.set()
        assert [peer.receive().code for peer in many] == [5] * count and len(begun) == count


@pytest.mark.parametrize("key", [b"known", b"unknown"])
def test_a_signed_request_without_room_is_checked_once(tmp_path, key):
    """A megabyte would cost the network thread its signature a thousand times a second."""
    gate = Gate()
    with MessageStore.open(tmp_path / "s", profile="test") as store:
        front = Front("127.0.0.1", 0, gate, gate.gone.append, of_one=1)
        front.use(store, signed=True)
        front.accounts(1, [(b"known", b"secret")])
        front.fresh(time.monotonic_ns() + 3600 * 10**9)
        with serving(front):
            peer = Peer(front.address)
            peer.send(1)
            until(gate.begun.is_set)
            ext = {"AccessKey": key.decode(), "Signature": "A" * 27 + "=", "topic": "T"}
            before = front.counts()["signatures"]
            peer.sock.sendall(b"".join(encode(Frame(10, 7 + n, ext, bytes(1 << 20))) for n in range(3)))
            until(lambda: front.counts()["stalls"] > 50)
            assert front.counts()["signatures"] == before + 1
            gate.permissions.release(10)
            assert [peer.receive().opaque for _ in range(4)] == [1, 7, 8, 9]
            assert front.counts()["signatures"] == before + 3


def test_a_request_of_ordinary_size_has_room_beside_large_ones_that_take_long():
    go = threading.Event()

    def handle(connection, frame):
        if frame.code == 1:
            return frame.answer()

        def steps():
            while not go.is_set():
                yield
            return frame.answer()
        return steps()

    front = Front("127.0.0.1", 0, handle, lambda connection: None)
    with serving(front):
        many, one = [Peer(front.address) for _ in range(6)], Peer(front.address)
        for peer in many:
            peer.send(103, {}, bytes(15 << 20))
        until(lambda: front.counts()["passed"] >= 4 and front.counts()["stalls"] > 0)
        for size in (1 << 10, 100 << 10, 1 << 20):
            assert one.ask(1, {}, bytes(size)) is not None
        assert front.counts()["passed"] == 3 + 4        # no more than the bound says of the large ones
        go.set()
        assert all(peer.receive() is not None for peer in many)
