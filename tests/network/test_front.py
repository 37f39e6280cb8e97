"""The network thread: frames in, answers out, and what a peer cannot do."""
import os
import socket
import struct
import subprocess
import sys
import threading

import pytest

from rmq_store.network import _front
from rmq_store.network._front import BUFFERED_MAX, Front
from rmq_store.remoting.frame import BINARY, JSON, ONEWAY, RESPONSE, Frame, encode
from tests.network.peer import LIMIT_S, Peer, serving
from tests.soon import until


def echo(_connection, frame):
    return frame.answer(0, ext=dict(frame.ext), body=frame.body)


def behind(gate):
    """Answers when the gate is open."""
    def on_request(_connection, frame):
        gate.wait(LIMIT_S)
        return frame.answer()

    return on_request


@pytest.fixture
def closed():
    return []


@pytest.fixture
def front(closed):
    front = Front("127.0.0.1", 0, echo, closed.append, connections_max=8)
    with serving(front):
        yield front


@pytest.mark.parametrize("serialize", [JSON, BINARY])
def test_a_request_goes_to_python_and_its_answer_comes_back(front, serialize):
    peer = Peer(front.address)
    answer = peer.ask(105, {"topic": "T", "p": "a\1b\2é\U0001F600"}, b"body", serialize=serialize)
    assert (answer.code, answer.flag, answer.serialize) == (0, RESPONSE, serialize)
    assert answer.ext == {"topic": "T", "p": "a\1b\2é\U0001F600"} and answer.body == b"body"


def test_frames_that_come_byte_by_byte_and_many_at_once(front):
    peer = Peer(front.address)
    data = encode(Frame(1, 7, {"a": "b"}, b"x"))
    for i in range(len(data)):
        peer.sock.sendall(data[i:i + 1])
    assert peer.receive().opaque == 7
    peer.sock.sendall(b"".join(encode(Frame(1, n, {}, bytes(n))) for n in range(500)))
    assert [peer.receive().opaque for _ in range(500)] == list(range(500))


def test_a_frame_of_sixteen_mebibytes_passes(front):
    body = os.urandom(1 << 20) * 15
    assert Peer(front.address).ask(103, {}, body).body == body


@pytest.mark.parametrize("bad", [
    struct.pack(">ii", 1 << 24, 0), struct.pack(">ii", -1, 0), struct.pack(">ii", 3, 0), struct.pack(">iI", 100, 97),
    struct.pack(">iI", 100, 2 << 24), struct.pack(">iI", 1 << 20, (1 << 18) + 1), struct.pack(">ii", 6, 2) + b"{}",
    struct.pack(">ii", 6, 2) + b"{x", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_frame_that_is_none_closes_its_connection_without_an_answer(front, bad):
    peer = Peer(front.address)
    peer.sock.sendall(bad)
    assert peer.receive() is None
    assert Peer(front.address).ask(1).code == 0


def test_oneway_requests_and_answers_get_no_answer(front):
    peer = Peer(front.address)
    peer.send(1, flag=ONEWAY)
    peer.send(1, flag=RESPONSE)
    assert peer.ask(2).opaque == 3


def test_more_connections_than_may_be_are_closed(front):
    peers = [Peer(front.address) for _ in range(8)]
    assert all(peer.ask(1).code == 0 for peer in peers)
    refused = Peer(front.address)
    assert refused.receive() is None
    peers[0].close()
    for _ in range(1000):       # the thread finds the end of the first one when it does
        peer = Peer(front.address)
        peer.send(1)
        if peer.receive() is not None:
            return
    raise AssertionError("a place that was given back is not taken")


def test_a_peer_that_does_not_read_is_not_read(front):
    slow, quick = Peer(front.address), Peer(front.address)
    slow.sock.setblocking(False)
    data, sent = encode(Frame(1, 1, {}, bytes(1 << 16))), 0
    with pytest.raises(BlockingIOError):
        while sent < 1 << 30:
            sent += slow.sock.send(data)
    assert quick.ask(1).code == 0
    assert front.counts()["bytes_in"] < 256 << 20


def test_unread_answers_of_all_connections_have_a_bound(closed, monkeypatch):
    monkeypatch.setattr(_front, "UNREAD_ALL", _front.UNREAD_MAX // 2)
    front = Front("127.0.0.1", 0, echo, closed.append)
    with serving(front):
        slow, data = Peer(front.address), encode(Frame(1, 1, {}, bytes(1 << 16)))
        slow.sock.settimeout(LIMIT_S)
        with pytest.raises(ConnectionError):        # not a timeout: it is closed, not just left unread
            while True:
                slow.sock.sendall(data)
        assert Peer(front.address).ask(1).code == 0


def test_the_bound_of_unread_answers_closes_who_leaves_most_unread(closed, monkeypatch):
    monkeypatch.setattr(_front, "UNREAD_ALL", _front.UNREAD_MAX)
    front = Front("127.0.0.1", 0, echo, closed.append)
    with serving(front):
        slow, good, probe = [Peer(front.address) for _ in range(3)]
        request, sent = encode(Frame(1, 1, {}, bytes(1 << 16))), {slow: 0, good: 0}

        def ask(peer):
            peer.sock.sendall(request)
            sent[peer] += 1
            probe.ask(1)                # its answer comes behind that

        while sent[slow] * (1 << 16) - front.counts()["bytes_out"] < 600 << 10:
            ask(slow)
        while front.counts()["connections"] == 3:
            ask(good)
        assert sum(good.receive() is not None for _ in range(sent[good])) == sent[good]
        assert probe.ask(1).code == 0


def test_unfinished_frames_of_all_connections_have_a_bound(front):
    peers, ended = [Peer(front.address) for _ in range(7)], 0
    piece = bytes(1 << 20)
    for peer in peers:
        peer.sock.sendall(struct.pack(">ii", (1 << 24) - 8, 2))
    for peer in peers:
        try:
            for _ in range(15):
                peer.sock.sendall(piece)
        except OSError:
            ended += 1
    assert BUFFERED_MAX < 7 * 15 << 20
    last = Peer(front.address)
    last.send(1)
    assert last.receive() is not None
    assert ended + sum(peer.receive() is None for peer in peers[:2]) > 0


def test_those_who_finish_no_frame_do_not_hold_up_others(closed, monkeypatch):
    monkeypatch.setattr(_front, "BUFFERED_MAX", 1 << 20)
    front = Front("127.0.0.1", 0, echo, closed.append)
    with serving(front):
        idle, sent = [Peer(front.address) for _ in range(5)], 0
        for peer in idle:
            for piece in (struct.pack(">ii", 1 << 20, 2), bytes(200_000)):
                peer.sock.sendall(piece)
                sent += len(piece)
        until(lambda: front.counts()["bytes_in"] == sent)
        good, frame = Peer(front.address), encode(Frame(1, 7, {}, bytes(150_000)))
        for n in range(3):
            good.sock.sendall(frame[:-1])
            sent += len(frame) - 1
            until(lambda wanted=sent + n: front.counts()["bytes_in"] == wanted)     # unfinished, too, but not for as long
            good.sock.sendall(frame[-1:])
            assert good.receive().opaque == 7
        assert idle[0].receive() is None and front.counts()["connections"] == 5


def test_requests_that_wait_for_room_are_no_unfinished_frames(closed, monkeypatch):
    monkeypatch.setattr(_front, "BUFFERED_MAX", 1 << 17)
    monkeypatch.setattr(_front, "PASSED_MAX", 1)
    gate = threading.Event()
    front = Front("127.0.0.1", 0, behind(gate), closed.append)
    with serving(front):
        busy, good = [Peer(front.address) for _ in range(4)], Peer(front.address)
        frame = encode(Frame(1, 7, {}, bytes(20_000)))
        for peer in busy:
            peer.sock.sendall(frame * 10)
        until(lambda: front.counts()["bytes_in"] > 200_000)
        read = front.counts()["bytes_in"]
        good.sock.sendall(frame[:-1])
        until(lambda: front.counts()["bytes_in"] >= read + len(frame) - 1)
        gate.set()
        good.sock.sendall(frame[-1:])
        assert good.receive().opaque == 7
        assert all(peer.receive() is not None for peer in busy for _ in range(10))


def test_who_has_most_unfinished_goes(closed, monkeypatch):
    """And not who began first: an ordinary upload that is slow does not pay for others that begin large frames."""
    monkeypatch.setattr(_front, "BUFFERED_MAX", 1 << 20)
    front = Front("127.0.0.1", 0, echo, closed.append)
    with serving(front):
        slow, large, frame = Peer(front.address), [], encode(Frame(1, 7, {}, bytes(100_000)))
        slow.sock.sendall(frame[:-1])
        until(lambda: front.counts()["bytes_in"] == len(frame) - 1)
        for n in range(4):
            large.append(Peer(front.address))
            large[n].sock.sendall(struct.pack(">ii", 1 << 20, 2) + bytes(600_000))
            until(lambda n=n: front.counts()["accepted"] == n + 2 and front.counts()["bad"] == n)
        slow.sock.sendall(frame[-1:])
        assert slow.receive().opaque == 7


def test_places_for_python_go_round(closed, monkeypatch):
    """A peer with many requests, whatever its place among connections, has no more turns than another one."""
    monkeypatch.setattr(_front, "PASSED_MAX", 4)
    gate, served = threading.Semaphore(0), []

    def on_request(_connection, frame):
        gate.acquire(timeout=LIMIT_S)
        served.append(frame.code)

    front = Front("127.0.0.1", 0, on_request, closed.append)
    with serving(front):
        many, one = Peer(front.address), Peer(front.address)
        many.sock.sendall(b"".join(encode(Frame(1, n)) for n in range(200)))
        until(lambda: front.counts()["passed"] == 5)        # four, and one in the hand of Python
        read = front.counts()["bytes_in"]
        one.send(2)
        until(lambda: front.counts()["bytes_in"] > read)
        for n in range(20):
            gate.release()
            until(lambda n=n: len(served) > n)
            stalls = front.counts()["stalls"]
            until(lambda stalls=stalls: front.counts()["stalls"] > stalls + 2)      # those who wait were asked again
        assert 2 in served
        gate.release(1000)


def test_what_waits_for_room_has_a_bound(closed, monkeypatch):
    """Whole frames, for which Python has no time: whoever has most of them goes, and nobody else."""
    monkeypatch.setattr(_front, "WAITING_MAX", 1 << 18)
    monkeypatch.setattr(_front, "PASSED_MAX", 1)
    gate = threading.Event()
    front = Front("127.0.0.1", 0, behind(gate), closed.append)
    with serving(front):
        small, large = [Peer(front.address) for _ in range(3)], [Peer(front.address) for _ in range(3)]
        for n, peer in enumerate(small):
            peer.send(1)
            until(lambda n=n: front.counts()["accepted"] > n and front.counts()["bytes_in"] > 0)
        for peer in large:
            peer.sock.sendall(encode(Frame(1, 7, {}, bytes(150_000))))
        until(lambda: front.counts()["bad"] == 2)
        gate.set()
        assert sum(peer.receive() is None for peer in large) == 2
        assert all(peer.receive() is not None for peer in small)


def test_one_by_one(closed):
    """Of each connection one request is with Python, whatever else has come; and all of them are answered, in their order."""
    gate, served = threading.Semaphore(0), []

    def on_request(_connection, frame):
        gate.acquire(timeout=LIMIT_S)
        served.append(frame.code)
        return frame.answer()

    front = Front("127.0.0.1", 0, on_request, closed.append, of_one=1)
    with serving(front):
        many, one = Peer(front.address), Peer(front.address)
        many.sock.sendall(b"".join(encode(Frame(1, n)) for n in range(100)))
        until(lambda: front.counts()["stalls"] > 2)
        assert front.counts()["passed"] == 1
        one.send(2)
        until(lambda: front.counts()["passed"] == 2)
        gate.release(1000)
        assert one.receive() is not None
        assert served.index(2) <= 2                 # behind the one before it, or one more
        assert [many.receive().opaque for _ in range(100)] == list(range(100))


def test_a_push_reaches_the_peer_and_close_comes_behind_it(front):
    seen = []

    def on_request(connection, frame):
        seen.append(connection)
        for n in range(3):
            connection.send(encode(Frame(40, n, flag=ONEWAY)))
        connection.close()

    address = front.address
    other = Front("127.0.0.1", 0, on_request, seen.append)
    with serving(other):
        peer = Peer(other.address)
        peer.send(34)
        assert [peer.receive().opaque for _ in range(3)] == [0, 1, 2]
        assert peer.receive() is None
        while len(seen) < 2:
            pass
    assert seen[0] is seen[1] and seen[0].closed and not seen[0].send(b"")
    assert seen[0].peer == peer.name and seen[0].local == "{}:{}".format(*other.address)
    assert Peer(address).ask(1).code == 0


def test_on_close_comes_once_for_each_connection_that_asked(front, closed):
    peers = [Peer(front.address) for _ in range(4)]
    for peer in peers[:3]:
        peer.ask(1)
    for peer in peers:
        peer.close()
    front.stop()
    while len(closed) < 3:
        pass
    assert len({c.id for c in closed}) == 3


def test_a_handler_that_fails_costs_its_connection(front, closed):
    def on_request(_connection, frame):
        if frame.code == 9:
            raise RuntimeError("planned")
        return frame.answer()

    def on_close(_connection):
        closed.append(_connection)
        raise RuntimeError("planned")

    other = Front("127.0.0.1", 0, on_request, on_close)
    with serving(other):
        bad, good = Peer(other.address), Peer(other.address)
        bad.send(9)
        assert bad.receive() is None
        while not closed:
            assert good.ask(1).code == 0


def test_stop_while_requests_are_in_flight():
    held, begun = threading.Event(), threading.Event()

    def on_request(_connection, frame):
        begun.set()
        held.wait(LIMIT_S)
        return frame.answer()

    front = Front("127.0.0.1", 0, on_request, lambda c: None)
    with serving(front):
        peer = Peer(front.address)
        for _ in range(100):
            peer.send(1)
        assert begun.wait(LIMIT_S)
        front.stop()
        front.stop()
        held.set()
        while peer.receive() is not None:
            pass


def test_two_addresses_have_handlers_of_their_own(front):
    other = Front("127.0.0.1", 0, echo, lambda c: None)
    second = other.listen("127.0.0.1", 0, lambda _c, frame: frame.answer(9))
    with serving(other):
        assert Peer(other.address).ask(1).code == 0
        assert Peer(second).ask(1).code == 9


def test_an_address_that_is_taken_raises(front):
    with pytest.raises(OSError):
        Front(*front.address, echo, lambda c: None)


def test_a_child_of_fork_closes_its_copies_of_the_sockets():
    code = """
import os, socket, sys
from tests.network.peer import Peer, serving
from rmq_store.network._front import Front
front = Front("127.0.0.1", 0, lambda c, f: f.answer(), lambda c: None)
with serving(front):
    peer = Peer(front.address)
    peer.ask(1)
    there, back = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(back)
        os.read(there, 1)
        os._exit(0 if front.counts() == {} else 1)
    front.stop()
    assert peer.receive() is None           # else the child's copy keeps it open
    os.write(back, b"x")
    assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=LIMIT_S)


def test_silent_half_open_connections_cost_no_thread(front):
    silent = [socket.create_connection(front.address) for _ in range(5)]
    assert Peer(front.address).ask(1).code == 0
    for sock in silent:
        sock.close()
