"""A thousand connections that come and go, each in its own bad way: nothing of them stays, and the others do not notice."""
import ctypes
import os
import socket
import struct

from rmq_store.network._front import Front
from rmq_store.remoting.frame import Frame, encode
from tests.network.peer import Peer, serving
from tests.network.test_pulls import HEAD as PULL
from tests.network.test_sends import HEAD as SEND
from tests.soon import until

REQUEST = encode(Frame(310, 1, SEND, b"x" * 200))


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                                                     "uordblks", "fordblks", "keepcost")]


def allocated():
    """Bytes that C has of malloc; what Python makes small objects of is not among them."""
    call = ctypes.CDLL(None).mallinfo2
    call.restype = Mallinfo
    found = call()
    return found.uordblks + found.hblkhd


def silent(_sock):
    pass


def half_a_frame(sock):
    sock.sendall(REQUEST[:50])


def byte_by_byte(sock):
    for i in range(len(REQUEST)):
        sock.send(REQUEST[i:i + 1])


def does_not_read(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(0.01)
    pull = encode(Frame(11, 1, PULL | {"sysFlag": "0"}))
    try:
        for _ in range(20):
            sock.sendall(pull * 10)
    except TimeoutError:
        pass


def no_frame(sock):
    sock.sendall(b"GET / HTTP/1.1\r\n\r\n")


def holds_pulls(sock):
    sock.sendall(b"".join(encode(Frame(11, n, PULL | {"queueId": str(n)})) for n in (0, 2, 3)))


def passes_to_python(sock):
    sock.sendall(encode(Frame(99, 1)))


def resets(sock):
    sock.sendall(REQUEST)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


WAYS = (silent, half_a_frame, byte_by_byte, does_not_read, no_frame, holds_pulls, passes_to_python, resets)


def come_and_go(front, count, at_once=50):
    """Returns when all have been accepted and are closed: one that still waits to be accepted is no connection yet."""
    accepted = front.counts()["accepted"] + count
    open_ones = []
    for n in range(count):
        sock = socket.create_connection(front.address)
        open_ones.append(sock)
        try:
            WAYS[n % len(WAYS)](sock)
        except OSError:
            pass
        if len(open_ones) == at_once:
            for one in open_ones:
                one.close()
            open_ones = []
    for one in open_ones:
        one.close()
    until(lambda: front.counts()["accepted"] == accepted, 30_000)
    until(lambda: front.counts()["connections"] == 0 and front.held() == 0, 30_000)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_thousand_connections_leave_nothing(opened):
    store, front = opened()
    for _ in range(40):
        store.put("T", b"x" * 20_000, queue_id=1)
    store.wait_dispatched()
    come_and_go(front, 200)                     # what is made once is made
    fds, memory = descriptors(), allocated()
    come_and_go(front, 1000)
    until(lambda: descriptors() <= fds)         # a connection is counted out before it is closed
    until(lambda: allocated() - memory < 1 << 20)       # 1,000 of anything that stays would be more
    peer = Peer(front.address)
    assert peer.ask(310, SEND, b"x").code == 0
    assert front.counts()["bad"] == 1200 // len(WAYS)
    assert front.counts()["accepted"] == 1201


def test_a_held_pull_takes_less_than_two_kib(opened):
    _store, front = opened()
    peers = [Peer(front.address) for _ in range(20)]

    def hold(peers):
        held = front.held() + 25 * len(peers)
        for peer in peers:
            peer.sock.sendall(b"".join(encode(Frame(11, n, PULL | {"queueId": str(n % 4)})) for n in range(25)))
        until(lambda: front.held() == held)

    hold(peers[:1])                             # what is made once is made
    memory = allocated()
    hold(peers[1:])
    assert allocated() - memory < 19 * 25 * 2048


def test_half_open_connections_end_when_their_time_is_over(monkeypatch):
    from rmq_store.network import _front
    monkeypatch.setattr(_front, "IDLE_S", 0.5)
    front = Front("127.0.0.1", 0, lambda _c, frame: frame.answer(), lambda _c: None)
    with serving(front):
        silent_ones = [Peer(front.address) for _ in range(20)]
        for peer in silent_ones:
            assert peer.receive() is None
        until(lambda: front.counts()["connections"] == 0)
