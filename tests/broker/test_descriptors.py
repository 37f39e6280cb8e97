"""Servers at their limit of open files: peers that only connect take no descriptor that the store needs."""
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys

import pytest

from tests.broker.peer import Peer
from tests.soon import until

SEND = {"producerGroup": "p", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
        "bornTimestamp": "1", "flag": "0", "reconsumeTimes": "0", "unitMode": "false"}


@contextlib.contextmanager
def served(tmp_path, soft, hard, *command):
    ready = tmp_path / "ready.json"
    with open(tmp_path / "err", "wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmq_store", *command, "--ready-file", ready], stdout=err, stderr=err,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
        try:
            until(lambda: ready.exists() or process.poll() is not None, looks=30_000)
            yield process, json.loads(ready.read_text())
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (tmp_path / "err").read_text()


@contextlib.contextmanager
def idle(address, count):
    host, _, port = address.rpartition(":")
    peers = []
    try:
        for _ in range(count):
            peers.append(socket.create_connection((host, int(port)), 10))
        yield peers
    finally:
        for peer in peers:
            peer.close()


def descriptors(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def cut(peers):
    """How many the server has closed."""
    count = 0
    for peer in peers:
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            count += peer.recv(1) == b""
    return count


@pytest.mark.parametrize("limit", [96, 200])
def test_idle_connections_leave_the_store_what_it_needs(tmp_path, limit):
    command = ("serve", tmp_path / "s", "--profile", "test", "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0")
    with served(tmp_path, limit, limit, *command) as (process, ready), Peer(ready["listen"]) as client:
        def send(topic, properties=""):
            return client.ask(10, b"x", topic=topic, properties=properties, **SEND).code

        assert send("before") == 0
        for address in (ready["listen"], ready["namesrv"]):
            with idle(address, limit + 50) as peers:
                until(lambda peers=peers: cut(peers) > 50, looks=500)
                assert descriptors(process) <= limit // 2 + 40
                for n in range(5):
                    assert send(f"new-{address.rpartition(':')[2]}-{n}") == 0
                    assert send("before", f"KEYS\x01k{n}\x02") == 0
                    assert send("before", "DELAY\x011\x02") == 0
        assert send("after") == 0
        with Peer(ready["listen"]) as other:
            assert other.ask(10, b"x", topic="before", properties="", **SEND).code == 0
    said = (tmp_path / "err").read_text()
    assert f"the limit on open files is {limit}, of which {limit // 2} stay for the store" in said
    assert said.count("connections are closed at once") == 1        # in a minute


@pytest.mark.parametrize("command", [("namesrv", "--listen", "127.0.0.1:0"), ("serve", "s", "--profile", "test", "--listen",
                                     "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0")])
def test_a_server_raises_its_soft_limit(tmp_path, command):
    command = [str(tmp_path / "s") if word == "s" else word for word in command]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with served(tmp_path, 80, hard, *command) as (process, ready):
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        with idle(ready.get("listen") or ready["namesrv"], 200) as peers:
            until(lambda: descriptors(process) >= 200)
            assert cut(peers) == 0
