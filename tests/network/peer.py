"""A peer of a front, in raw frames over a socket."""
import socket
import threading
from contextlib import contextmanager

from rmq_store.remoting.frame import JSON, Frame, decode, encode, frame_size

LIMIT_S = 30


class Peer:
    """hear(fields of a send, its answer): told of each answer where the trace of a test is judged (tests/trace/recorder.py)."""

    hear = None

    def __init__(self, address):
        self.sock = socket.create_connection(address, LIMIT_S)
        self.come = b""
        self.opaque = 0
        self.asked = {}

    @property
    def name(self):
        """host:port, as a front sees it."""
        return "{}:{}".format(*self.sock.getsockname())

    def send(self, code, ext=None, body=b"", flag=0, serialize=JSON):
        self.opaque += 1
        if code in (10, 310, 320):
            self.asked[self.opaque] = ext
        self.sock.sendall(encode(Frame(code, self.opaque, ext or {}, body, flag, serialize=serialize)))
        return self.opaque

    def receive(self):
        """The next frame; None at the end of the connection."""
        while not (size := frame_size(self.come[:8])) or len(self.come) < size:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.come += data
        frame, self.come = decode(self.come[:size]), self.come[size:]
        asked = self.asked.pop(frame.opaque, None)
        if asked is not None and self.hear is not None:
            self.hear(asked, frame)
        return frame

    def ask(self, code, ext=None, body=b"", **more):
        opaque = self.send(code, ext, body, **more)
        answer = self.receive()
        assert answer.opaque == opaque
        return answer

    def close(self):
        self.sock.close()


@contextmanager
def serving(front):
    """The front served in a thread of its own."""
    thread = threading.Thread(target=front.serve)
    thread.start()
    try:
        yield front
    finally:
        front.stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
