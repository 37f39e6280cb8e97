"""One client that asks for too much, in a way of its own, until its input ends: the other side of bench/load/fairness.py.

    python -m bench.load.hostile KIND HOST PORT

It says "ready" when what it needs is there and its first requests are under way, and at the end one line of JSON: bytes that it
sent and got. It goes to the given address alone, over one connection.
"""
import itertools
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rmq_store.remoting.frame import ONEWAY, Frame, decode, encode

TOPIC, QUEUES = "T", 8          # of the honest client
WAIT_S = 30.0
Requests = Iterator[bytes]


class Client:
    def __init__(self, host: str, port: int) -> None:
        self.sock = socket.create_connection((host, port), WAIT_S)
        self.sent = self.got = 0

    def ask(self, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Frame:
        """Before the flood: one request and its answer; requests of the broker's own are passed over."""
        self.sock.sendall(encode(Frame(code, 1, ext or {}, body, language="JAVA")))
        while True:
            size = self._exactly(4)
            frame = decode(size + self._exactly(int.from_bytes(size, "big")))
            if frame.flag & 1 and frame.opaque == 1:
                return frame

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.sock.recv(size - len(found))
            if not more:
                raise ConnectionError("the broker has closed the connection")
            found += more
        return found

    def read_all(self) -> None:
        while data := self.sock.recv(1 << 20):
            self.got += len(data)


def _beat(groups: dict[str, list[dict[str, Any]]]) -> bytes:
    return json.dumps({"clientID": f"hostile{os.getpid()}", "producerDataSet": [], "consumerDataSet": [
        {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False,
         "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subs}
        for group, subs in groups.items()]}).encode()


def _subs(count: int, version: int = 1, kind: str = "TAG", text: str = "*") -> list[dict[str, Any]]:
    return [{"topic": f"topic{n}", "subString": text, "subVersion": version, "expressionType": kind, "tagsSet": [],
             "codeSet": [], "classFilterMode": False} for n in range(count)]


def _pipelined(code: int, ext: dict[str, str], flag: int = ONEWAY, body: bytes = b"", at_once: int = 100) -> Requests:
    frames = b"".join(encode(Frame(code, n, ext, body, flag, language="JAVA")) for n in range(at_once))
    return itertools.repeat(frames)


def new_groups(client: Client) -> Requests:
    """Heartbeats with 1,024 consumer groups that nobody knows yet."""
    for n in itertools.count():
        yield encode(Frame(34, n, {}, _beat({f"g{n}-{i}": [] for i in range(1024)}), language="JAVA"))


def large_topic(client: Client) -> Requests:
    """One-way requests for the figures of a topic with 65,535 queues (202)."""
    client.ask(17, {"topic": "large", "readQueueNums": "65535", "writeQueueNums": "65535", "perm": "6", "order": "false",
                    "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"})
    return _pipelined(202, {"topic": "large"})


def large_group(client: Client) -> Requests:
    """One-way requests for the connections of a group with 4,096 subscriptions (203)."""
    client.ask(34, {}, _beat({"large": _subs(4096)}))
    return _pipelined(203, {"consumerGroup": "large"})


def json_bodies(client: Client) -> Requests:
    """Heartbeats of 15 MB that are lists of nothing."""
    return itertools.repeat(encode(Frame(34, 1, {}, b'{"clientID":"x","consumerDataSet":[' + b"[]," * 5_000_000 + b"[]]}",
                                         language="JAVA")))


def subscriptions(client: Client) -> Requests:
    """Heartbeats that change 4 groups with 4,090 subscriptions each time."""
    for n in itertools.count(1):
        yield encode(Frame(34, n, {}, _beat({f"h{i}": _subs(4090, n) for i in range(4)}), language="JAVA"))


def _pulls(client: Client, count: int, kind: str, text: Callable[[int], str]) -> Requests:
    client.ask(34, {}, _beat({"held": [sub | {"topic": TOPIC} for sub in _subs(1)]}))
    for queue_id in range(QUEUES):      # a JVM registers a group after it has answered
        client.ask(31, {"topic": TOPIC, "queueId": str(queue_id)})
    for n in range(count):
        yield encode(Frame(11, n, {
            "consumerGroup": "held", "topic": TOPIC, "queueId": str(n % QUEUES), "queueOffset": "0", "maxMsgNums": "32",
            "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "60000", "subVersion": "1", "subscription": text(n),
            "expressionType": kind}, language="JAVA"))
    while True:
        yield b""


def held_tags(client: Client) -> Requests:
    """20,000 pulls that are held for tags which no message has."""
    return _pulls(client, 20_000, "TAG", lambda n: f"tag{n}")


def held_filters(client: Client) -> Requests:
    """4,000 pulls that are held, each with an SQL92 filter of its own that no message passes."""
    return _pulls(client, 4000, "SQL92", lambda n: f"a = {n} AND b IS NOT NULL")


def new_topics(client: Client) -> Requests:
    """Sends of ten bytes, each to a topic that nobody knows yet."""
    for n in itertools.count():
        yield encode(Frame(310, n, {"a": "P", "b": f"new{os.getpid()}-{n}", "c": "TBW102", "d": "4", "e": "0", "f": "0",
                                    "g": "1", "h": "0", "i": "", "j": "0"}, b"0123456789", language="JAVA"))


KINDS: dict[str, Callable[[Client], Requests]] = {kind.__name__: kind for kind in (
    new_groups, large_topic, large_group, json_bodies, subscriptions, held_tags, held_filters, new_topics)}


def flood(client: Client, requests: Requests) -> None:
    for data in requests:
        if not data:
            return
        client.sock.sendall(data)
        client.sent += len(data)


def main(argv: list[str]) -> None:
    kind, host, port = argv
    client = Client(host, int(port))
    requests = KINDS[kind](client)
    first = next(requests)
    client.sock.settimeout(None)
    for work in (client.read_all, lambda: flood(client, itertools.chain([first], requests))):
        threading.Thread(target=_quietly, args=(work,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps({"sent_bytes": client.sent, "got_bytes": client.got}), flush=True)
    os._exit(0)


def _quietly(work: Callable[[], None]) -> None:
    """Until the broker closes the connection, which is its right."""
    try:
        work()
    except OSError:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
