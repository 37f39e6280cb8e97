"""The name server over sockets: a broker registers, clients ask, bad peers are cut off; and the command as a process."""
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import zlib

import pytest

from rmq_store import NameServer
from rmq_store.errors import ArgumentIllegal, ConfigError
from rmq_store.network import front
from rmq_store.remoting.frame import BINARY, RESPONSE, Frame, encode
from tests.broker.peer import Frames
from tests.broker.test_tls import SERVER, TlsPeer
from tests.forks import fork

TOPIC = {"order": False, "perm": 6, "readQueueNums": 4, "writeQueueNums": 8, "topicFilterType": "SINGLE_TAG", "topicName": "T",
         "topicSysFlag": 0}
VERSION = {"counter": 1, "timestamp": 5}


@pytest.fixture
def server():
    with NameServer.open() as server:
        yield server


class Peer(Frames):
    def __init__(self, address):
        super().__init__(*address.split(":"))

    def ask(self, code, body=b"", **ext):
        self.sock.sendall(encode(Frame(code, code + 1, ext, body)))
        answer = self.read()
        assert (answer.opaque, answer.flag) == (code + 1, 1)
        return answer

    def register(self, name="b", number=0, topics=("T",), **ext):
        body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
            "dataVersion": VERSION, "topicConfigTable": {t: TOPIC | {"topicName": t} for t in topics}}}).encode()
        ext = {"brokerName": name, "brokerAddr": f"127.0.0.1:{10911 + number}", "clusterName": "C", "haServerAddr": "h:1",
               "brokerId": str(number), "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)} | ext
        return self.ask(103, body, **ext)


def test_a_route_of_a_master_and_its_slave(server):
    with Peer(server.address) as broker, Peer(server.address) as slave, Peer(server.address) as client:
        assert broker.register().code == 0
        assert slave.register(number=1).ext == {"haServerAddr": "h:1", "masterAddr": "127.0.0.1:10911"}
        assert json.loads(client.ask(105, topic="T").body) == {
            "brokerDatas": [{"brokerAddrs": {"0": "127.0.0.1:10911", "1": "127.0.0.1:10912"}, "brokerName": "b",
                             "cluster": "C"}],
            "filterServerTable": {},
            "queueDatas": [{"brokerName": "b", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 8}]}
        cluster = json.loads(client.ask(106).body)
        assert cluster["clusterAddrTable"] == {"C": ["b"]}
        assert cluster["brokerAddrTable"]["b"]["brokerAddrs"]["0"] == "127.0.0.1:10911"


def test_topics_come_and_go(server):
    with Peer(server.address) as broker, Peer(server.address) as client:
        broker.register(topics=("T", "U"))
        broker.register(topics=("V",))      # only the topic that changed
        assert json.loads(client.ask(206).body) == {"topicList": ["T", "U", "V"]}
        assert json.loads(client.ask(224, cluster="none").body) == {"topicList": []}
        client.ask(216, topic="T")
        missing = client.ask(105, topic="T")
        assert (missing.code, missing.remark) == (17, "No topic route info in name server for the topic: T")
        broker.ask(104, brokerName="b", brokerId="0", brokerAddr="x", clusterName="C")
        assert client.ask(105, topic="U").code == 17


def test_a_broker_whose_connection_ends_is_forgotten(server):
    with Peer(server.address) as client:
        with Peer(server.address) as broker:
            broker.register()
        while client.ask(105, topic="T").code != 17:      # the end of the connection is on its way
            pass


def test_version_and_kv(server):
    with Peer(server.address) as peer:
        peer.register()
        who = {"brokerName": "b", "brokerId": "0"}
        assert peer.ask(322, json.dumps(VERSION).encode(), **who).ext == {"changed": "false"}
        assert peer.ask(322, b"{}", **who).ext == {"changed": "true"}
        assert peer.ask(101, namespace="n", key="k").code == 22
        peer.ask(100, namespace="n", key="k", value="v")
        assert peer.ask(101, namespace="n", key="k").ext == {"value": "v"}
        assert json.loads(peer.ask(219, namespace="n").body) == {"table": {"k": "v"}}
        assert peer.register().body == b""
        peer.ask(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="b:4")
        assert json.loads(peer.register().body) == {"table": {"T": "b:4"}}
        assert json.loads(peer.ask(105, topic="T").body)["orderTopicConf"] == "b:4"
        peer.ask(102, namespace="n", key="k")
        assert peer.ask(219, namespace="n").code == 22


@pytest.mark.parametrize(("code", "body", "ext", "answer"), [
    (9999, b"", {}, 3), (105, b"", {}, 1), (103, b"{", {}, 1), (322, b"[", {"brokerName": "b", "brokerId": "0"}, 1),
    (104, b"", {"brokerName": "b", "brokerId": "-1"}, 1)])
def test_a_request_that_cannot_be_done(server, code, body, ext, answer):
    with Peer(server.address) as peer:
        assert peer.ask(code, body, **ext).code == answer


@pytest.mark.parametrize("change", [{"bodyCrc32": "1"}, {"brokerId": "x"}, {"compressed": "true"}])
def test_a_registration_that_is_refused_leaves_nothing(server, change):
    with Peer(server.address) as peer:
        assert peer.register(**change).code == 1
        assert peer.ask(105, topic="T").code == 17


def test_byte_by_byte_pipelined_binary_and_oneway(server):
    with Peer(server.address) as peer:
        for byte in encode(Frame(206, 3, serialize=BINARY)):
            peer.sock.sendall(bytes([byte]))
        assert (peer.read().opaque) == 3
        peer.sock.sendall(encode(Frame(206, 1, flag=2)) + encode(Frame(206, 2)) + encode(Frame(206, 9)))
        assert [peer.read().opaque, peer.read().opaque] == [2, 9]


@pytest.mark.parametrize("start", [
    b"\xff\xff\xff\xff", (20 << 20).to_bytes(4, "big"), b"\x16\x03\x01\0", b"\0\0\0\x08\0\0\0\x04oops"])
def test_a_bad_peer_loses_only_its_connection(server, start):
    with Peer(server.address) as bad, Peer(server.address) as good:
        bad.sock.sendall(start)
        assert bad.sock.recv(1) == b""
        assert good.ask(206).code == 0


@pytest.mark.parametrize(("options", "peers"), [({}, Peer), (SERVER | {"tls.server.mode": "enforcing"}, TlsPeer)])
def test_the_command(tmp_path, options, peers):
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    process = subprocess.Popen([sys.executable, "-m", "rmq_store", "namesrv", "--listen", "127.0.0.1:0", "--ready-file",
                                str(tmp_path / "ready"), *given], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert select.select([process.stdout], [], [], 60)[0]
        said = process.stdout.readline()
        address = json.loads((tmp_path / "ready").read_text())["namesrv"]
        assert said == f"namesrv listens on {address}\n"
        with peers(address) as peer:
            assert peer.ask(206).code == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_answers_of_peers_are_nobodys(server):
    with Peer(server.address) as peer:
        peer.sock.sendall(encode(Frame(206, 1, flag=RESPONSE)) + encode(Frame(206, 2)))
        assert peer.read().opaque == 2


@pytest.mark.parametrize(("given", "says"), [
    ({"brokerName": "b"}, "option brokerName is none of a name server"), ({"flush_mode": "sync"}, "option flush_mode is none"),
    ({"tls.server.mode": "on"}, "give disabled, permissive, enforcing"),
    ({"tls_server_mode": "enforcing"}, "give tls.server.certPath"), ({"listen": "9876"}, "give HOST:PORT")])
def test_options_of_a_name_server(given, says):
    with pytest.raises(ConfigError, match=says):
        NameServer.open(**given)


def test_a_name_server_is_opened_and_closed(server):
    with pytest.raises(ArgumentIllegal, match="is not made by a call"):
        NameServer("127.0.0.1:0")
    with pytest.raises(OSError, match="another process listens there"):
        NameServer.open(server.address)
    assert server.address in repr(server)
    threads = [threading.Thread(target=server.close) for _ in range(3)]
    for thread in threads:
        thread.start()
    server.close()
    for thread in threads:
        thread.join()
    with pytest.raises(OSError):
        Peer(server.address)


def test_what_it_had_goes_with_it():
    """Descriptors and threads, without the help of the collector of cycles."""
    gc.collect()                # what other tests have left
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        server = NameServer.open()
        with Peer(server.address) as peer:
            peer.register()
            server.close()
        del server
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


def test_a_thread_that_cannot_start_ends_the_open(monkeypatch):
    monkeypatch.setattr(front, "start_thread", failing)
    gc.collect()                # what other tests have left
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no more threads"):
        NameServer.open()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def failing(*_):
    raise OSError("no more threads")


def test_a_child_of_fork_closes_while_a_thread_of_the_parent_does():
    for _ in range(20):
        server = NameServer.open()
        thread = threading.Thread(target=server.close)
        thread.start()
        child = fork()
        if child == 0:
            server.close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        thread.join()


def test_half_a_pair_of_a_character_is_no_text(server):
    """JSON can spell it, and an answer with binary headers could not."""
    with Peer(server.address) as bad, Peer(server.address) as good:
        with pytest.raises((EOFError, OSError)):
            bad.ask(100, namespace="n", key="k", value="\udfff")
        assert good.ask(101, namespace="n", key="k").code == 22
