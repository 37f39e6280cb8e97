"""A body larger than its request may have is refused before it is read; a large frame that may be is passed on whole."""
import pytest

from rmq_store import Broker
from rmq_store.network._front import Front
from rmq_store.remoting.frame import ONEWAY, RESPONSE, Frame, encode
from tests.network.peer import Peer, serving
from tests.soon import until

LIMIT = 4 << 20
PIECE = 10_000


class Echo:
    def __init__(self):
        self.bodies = []

    def __call__(self, connection, frame):
        self.bodies.append(frame.body)
        return frame.answer(body=frame.body[:8])


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def peer(echo):
    front = Front("127.0.0.1", 0, echo, lambda connection: None)
    with serving(front):
        yield Peer(front.address)


def large(code, *, flag=0, size=LIMIT + 1, opaque=7):
    return encode(Frame(code, opaque, {"some": "field"}, bytes(size), flag, language="JAVA"))


@pytest.mark.parametrize("code", [34, 310, 25, 9999])
def test_the_answer_comes_before_the_body(peer, echo, code):
    data = large(code)
    peer.sock.sendall(data[:PIECE])
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (7, 13 if code == 310 else 1)
    assert f"{LIMIT + 1} bytes, the limit is {LIMIT}" in answer.remark
    peer.sock.sendall(data[PIECE:] + encode(Frame(1, 8, {}, b"next")))
    assert peer.receive().body == b"next"
    assert echo.bodies == [b"next"]


def test_a_header_in_pieces_is_waited_for(peer, echo):
    data = large(34)
    for n in range(40):
        peer.sock.sendall(data[n:n + 1])
    peer.sock.sendall(data[40:] + encode(Frame(1, 8, {}, b"next")))
    assert [peer.receive().opaque for _ in range(2)] == [7, 8]
    assert echo.bodies == [b"next"]


def test_a_one_way_request_is_dropped_in_silence(peer, echo):
    peer.sock.sendall(large(34, flag=ONEWAY) + encode(Frame(1, 8, {}, b"next")))
    assert peer.receive().body == b"next"
    assert echo.bodies == [b"next"]


def test_an_answer_that_nobody_can_have_asked_for_is_dropped_in_silence(peer, echo):
    peer.sock.sendall(large(34, flag=RESPONSE) + encode(Frame(1, 8, {}, b"next")))
    assert peer.receive().body == b"next"
    assert echo.bodies == [b"next"]


@pytest.mark.parametrize(("code", "flag", "size"), [(103, 0, 15 << 20), (103, ONEWAY, LIMIT + 1), (34, 0, LIMIT),
                                                    (1, RESPONSE, LIMIT)])
def test_what_may_be_large_is_passed_on_whole(peer, echo, code, flag, size):
    """Registrations, and bodies at the limit."""
    peer.sock.sendall(large(code, flag=flag, size=size))
    until(lambda: len(echo.bodies) == 1)
    assert echo.bodies == [bytes(size)]
    peer.sock.sendall(encode(Frame(1, 9, {}, b"next")))
    until(lambda: len(echo.bodies) == 2)


def test_large_frames_of_one_connection_keep_their_order_and_bytes(peer, echo):
    bodies = [bytes([n]) * (n * 70_001 + 1) for n in range(1, 30)]
    peer.sock.sendall(b"".join(encode(Frame(103, n, {}, body)) for n, body in enumerate(bodies)))
    assert [peer.receive().opaque for _ in bodies] == list(range(len(bodies)))
    assert echo.bodies == bodies


def test_a_refused_header_that_is_none_closes_the_connection(peer, echo):
    data = bytearray(large(34))
    data[8:12] = b"none"
    peer.sock.sendall(bytes(data[:PIECE]))
    assert peer.receive() is None
    assert echo.bodies == []


SEND = {"a": "P", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "", "j": "0"}


def test_a_broker_takes_messages_up_to_its_own_limit(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", segment_size_bytes=32 << 20, message_size_max_bytes=6 << 20) as broker:
        host, port = broker.address.rsplit(":", 1)
        peer = Peer((host, int(port)))
        assert peer.ask(310, SEND, bytes(6 << 20)).code == 0
        for code, body, expected in ((310, bytes((6 << 20) + 1), 13), (320, bytes(7 << 20), 13), (103, bytes(5 << 20), 1)):
            data = encode(Frame(code, 7, SEND, body, language="JAVA"))
            peer.sock.sendall(data[:PIECE])
            assert peer.receive().code == expected
            peer.sock.sendall(data[PIECE:])
        broker.store.reconfigure(message_size_max_bytes=8 << 20)
        assert peer.ask(310, SEND, bytes(7 << 20)).code == 0
        peer.close()
