"""A client of raw frames for the tests of the broker: it sends one request at a time and keeps what the broker pushes."""
import json
import socket

from rmq_store.remoting.frame import RESPONSE, Frame, decode, encode

TIMEOUT_S = 30


class Frames:
    """One connection, to a broker or a name server, and the frames that come. Not thread-safe."""

    def __init__(self, host, port):
        self.sock = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)     # as RocketMQ's clients

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.sock.close()

    def exactly(self, size):
        data = b""
        while len(data) < size:
            data += (more := self.sock.recv(size - len(data)))
            if not more:
                raise EOFError
        return data

    def read(self):
        head = self.exactly(4)
        return decode(head + self.exactly(int.from_bytes(head, "big")))


class Peer(Frames):
    """A client of a broker. hear(fields of a send, its answer): told of each answer, where the trace of a test is
    judged (tests/trace/recorder.py)."""

    hear = None

    def __init__(self, address, serialize=0):
        super().__init__(*address.rsplit(":", 1))
        self.serialize = serialize
        self.pushed = []
        self.answers = {}
        self.asked = {}
        self._opaque = 0

    def send(self, code, body=b"", frame_flag=0, **ext):
        """Sends a request; `answer` fetches its answer by the number that this returns."""
        self._opaque += 1
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        ext = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in ext.items()}
        if code in (10, 310, 320):
            self.asked[self._opaque] = ext
        self.sock.sendall(encode(Frame(code, self._opaque, ext, body, frame_flag, language="JAVA",
                                       serialize=self.serialize)))
        return self._opaque

    def answer(self, opaque):
        while opaque not in self.answers:
            self._take()
        return self.answers.pop(opaque)

    def push(self):
        """The next request that the broker sends of its own."""
        while not self.pushed:
            self._take()
        return self.pushed.pop(0)

    def _take(self):
        frame = self.read()
        if frame.flag & RESPONSE:
            self.answers[frame.opaque] = frame
            asked = self.asked.pop(frame.opaque, None)
            if asked is not None and self.hear is not None:
                self.hear(asked, frame)
        else:
            self.pushed.append(frame)

    def ask(self, code, body=b"", **ext):
        return self.answer(self.send(code, body, **ext))

    # ---- what clients do

    def put(self, topic="T", body=b"body", *, queue=0, properties=None, code=310, **more):
        """A send by 310, with one-letter names."""
        text = "\x02".join(f"{k}\x01{v}" for k, v in (properties or {}).items())
        ext = {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1700000000000, "h": 0, "i": text, "j": 0,
               "k": "false", "m": "false"} | more
        return self.ask(code, body, **ext)

    def beat(self, client="c1", *, producers=(), consumers=None, kind="TAG", version=1):
        """consumers: {group: {topic: expression}}."""
        groups = [{"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                   "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False, "subscriptionDataSet": [
                       {"topic": topic, "subString": text, "tagsSet": [], "codeSet": [], "subVersion": version,
                        "expressionType": kind, "classFilterMode": False} for topic, text in topics.items()]}
                  for group, topics in (consumers or {}).items()]
        return self.ask(34, {"clientID": client, "producerDataSet": [{"groupName": g} for g in producers],
                             "consumerDataSet": groups})

    def ask_pull(self, group="G", topic="T", queue=0, offset=0, *, bits=2, suspend=15000, **more):
        return self.send(11, **{
            "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32, "sysFlag": bits,
            "commitOffset": 0, "suspendTimeoutMillis": suspend, "subVersion": 0} | more)

    def pull(self, *args, **more):
        return self.answer(self.ask_pull(*args, **more))
