"""The life of a broker: routes, what is written, its end; the command as a process."""
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from rmq_store import AsyncBroker, Broker, MessageStore, errors
from rmq_store.broker.registration import advertised, registered
from tests.broker.peer import Peer
from tests.soon import until


def test_routes_of_topics_that_clients_and_puts_make(broker, peer, names):
    assert names.ask(105, topic="T").code == 17
    template = json.loads(names.ask(105, topic="TBW102").body)
    assert template["brokerDatas"] == [{"brokerAddrs": {"0": broker.address}, "brokerName": "broker-a",
                                        "cluster": "DefaultCluster"}]
    assert template["queueDatas"][0] == {"brokerName": "broker-a", "perm": 7, "readQueueNums": 8, "topicSysFlag": 0,
                                         "writeQueueNums": 8}
    peer.put()
    assert json.loads(names.ask(105, topic="T").body)["queueDatas"][0]["readQueueNums"] == 4
    assert json.loads(names.ask(106).body)["clusterAddrTable"] == {"DefaultCluster": ["broker-a"]}
    assert "T" in json.loads(names.ask(206).body)["topicList"]
    names.ask(216, topic="T")
    assert names.ask(105, topic="T").code == 0


def test_topics_of_puts_are_there_when_a_broker_opens_and_after(tmp_path):
    with MessageStore.open(tmp_path / "s", profile="test") as store:
        store.put("old", b"x", queue_id=2)
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.namesrv_address) as names:
        assert json.loads(names.ask(105, topic="old").body)["queueDatas"][0]["readQueueNums"] == 3
        broker.store.put("new", b"x")
        broker.store.wait_dispatched(10)
        assert names.ask(105, topic="new").code == 0
    text = (tmp_path / "s" / "config" / "topics.json").read_text()
    assert '"old"' in text and '"new"' in text and '"TBW102"' in text


@pytest.mark.parametrize(("listen", "local", "given", "found"), [
    ("127.0.0.1:10911", "127.0.0.1:9876", "", "127.0.0.1:10911"), ("0.0.0.0:10911", "172.17.0.2:9876", "", "172.17.0.2:10911"),
    ("[::]:10911", "[fd00::2]:9876", "", "[fd00::2]:10911"),
    ("0.0.0.0:10911", "172.17.0.2:9876", "broker.local", "broker.local:10911"),
    ("0.0.0.0:10911", "172.17.0.2:9876", "10.0.0.1:99", "10.0.0.1:99"), ("127.0.0.1:10911", "", "", "127.0.0.1:10911")])
def test_the_address_in_a_route(listen, local, given, found):
    assert advertised(listen, local, given) == found


def test_a_slow_client_holds_only_its_connection(broker, peer):
    for _ in range(32):
        peer.put(body=bytes(1 << 20), topic="big")
    broker.store.wait_dispatched(10)
    broker.store.reconfigure(get_bytes_max_memory=15 << 20)
    with Peer(broker.address) as slow:
        for _ in range(20):
            slow.ask_pull("G", "big", 0, 0, bits=4, subscription="*")
        assert peer.ask(30, topic="big", queueId=0).ext == {"offset": "32"}
        assert peer.put().code == 0


def test_options_that_are_wrong(tmp_path):
    for wrong in ({"listen": "nowhere"}, {"brokerName": "a b"}, {"defaultTopicQueueNums": 0}, {"namesrv": "x"}, {"unknown": 1}):
        with pytest.raises(errors.ConfigError):
            Broker.open(tmp_path / "s", profile="test", **wrong)
    with Broker.open(tmp_path / "s", profile="test", broker_name="b7", brokerClusterName="C") as broker:
        with Peer(broker.namesrv_address) as names:
            assert json.loads(names.ask(106).body)["clusterAddrTable"] == {"C": ["b7"]}
        with pytest.raises(OSError):
            Broker.open(tmp_path / "t", profile="test", listen=broker.address)
        assert not (tmp_path / "t").exists()
    with pytest.raises(errors.ArgumentIllegal):
        Broker(tmp_path)
    broker.close()
    assert "closed" in repr(broker)


def test_a_broker_registers_with_another_name_server_and_off(tmp_path):
    with Broker.open(tmp_path / "a", profile="test") as first, Peer(first.namesrv_address) as names:
        with Broker.open(tmp_path / "b", profile="test", namesrv_listen=None, namesrv=first.namesrv_address,
                         brokerName="b2") as second:
            assert second.namesrv_address is None
            while "b2" not in json.loads(names.ask(106).body)["brokerAddrTable"]:
                pass
            with Peer(second.address) as peer:
                peer.put("only-there")
            while names.ask(105, topic="only-there").code == 17:
                pass
            route = json.loads(names.ask(105, topic="only-there").body)
            assert route["brokerDatas"][0]["brokerAddrs"] == {"0": second.address}
        assert "b2" not in json.loads(names.ask(106).body)["brokerAddrTable"]


def test_a_silent_name_server_does_not_hold_the_end(tmp_path):
    """What is asked is cut, and nothing more is asked: each question would last as long as the patience of one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        broker = Broker.open(tmp_path, profile="test", namesrv_listen=None, namesrv=address)
        asked, _ = silent.accept()
        with asked:
            assert asked.recv(4)
            broker.close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_broker_whose_name_another_one_has(tmp_path, caplog):
    with Broker.open(tmp_path / "a", profile="test") as first:
        with Broker.open(tmp_path / "b", profile="test", namesrv_listen=None, namesrv=first.namesrv_address) as second:
            until(lambda: "clients get now one, now the other" in caplog.text)
            assert first.address in caplog.text and second.address in caplog.text and "another brokerName" in caplog.text
        caplog.clear()
        with Broker.open(tmp_path / "c", profile="test", namesrv_listen=None, namesrv=first.namesrv_address,
                         brokerName="c") as third, Peer(first.namesrv_address) as names:
            until(lambda: "c" in json.loads(names.ask(106).body)["brokerAddrTable"])
            assert third.address and "now the other" not in caplog.text


@pytest.mark.parametrize("answer, address", [
    (b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"a"}}}', "h:2"), (b"", ""), (b"[1]", ""),
    (b'{"brokerAddrTable":{"a":[]}}', ""), (b'{"brokerAddrTable":{"a":{"brokerAddrs":{"1":7}}}}', ""), (b"\xff", "")])
def test_what_a_name_server_says_of_a_name(answer, address):
    assert registered(answer, "a", 1) == address


def test_the_command(tmp_path):
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-m", "rmq_store", "serve", str(tmp_path / "s"), "--profile", "test",
                                "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--ready-file", str(ready), "-o",
                                "brokerName=b9", "-o", "flush_mode=sync"], stdout=subprocess.PIPE,
                               text=True, env=dict(os.environ))
    try:
        said = process.stdout.readline()
        addresses = json.loads(ready.read_text())
        assert said == f"broker listens on {addresses['listen']}, namesrv listens on {addresses['namesrv']}\n"
        with Peer(addresses["listen"]) as peer, Peer(addresses["namesrv"]) as names:
            assert peer.put(body=b"kept").code == 0
            assert list(json.loads(names.ask(106).body)["brokerAddrTable"]) == ["b9"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert not (tmp_path / "s" / "abort").exists()
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        assert [bytes(m.body) for m in store.get("T", 0, 0)] == [b"kept"]
        assert store.topic_table.get("T")["readQueueNums"] == 4


def test_the_second_port_answers_all_but_pulls(broker):
    if broker.fast_address is None:
        pytest.skip("the second port is taken")
    ports = [int(address.rpartition(":")[2]) for address in (broker.address, broker.fast_address)]
    assert ports[1] == ports[0] - 2
    with Peer(broker.fast_address) as peer:
        assert peer.ask(21).code == 0
        assert peer.put().code == 0
        assert peer.pull(bits=4).code == 3


def test_metrics(tmp_path):
    pytest.importorskip("prometheus_client")
    with Broker.open(tmp_path / "s", profile="test", metrics_listen="127.0.0.1:0") as broker, Peer(broker.address) as peer:
        peer.put()
        peer.beat(producers=["P"], consumers={"G": {"T": "*"}})
        peer.ask_pull(queue=1)
        peer.ask(9999)
        with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=30) as answer:
            page = answer.read().decode().splitlines()
        assert 'rocketmq_producer_connections{group="P"} 1' in page
        assert 'rocketmq_consumer_connections{group="G"} 1' in page
        assert "rmq_store_broker_held_pulls 1" in page
        assert 'rmq_store_broker_requests_total{code="310"} 1' in page
        assert 'rmq_store_broker_requests_total{code="-1"} 1' in page
        assert any(line.startswith("rmq_store_puts_total{") for line in page)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{broker.metrics_address}/other", timeout=30)


def test_the_asyncio_form(tmp_path):
    async def run():
        async with await AsyncBroker.open(tmp_path / "s", profile="test") as broker:
            put = await broker.store.put("T", b"x")
            with Peer(broker.address) as peer:
                return put.queue_offset, peer.ask(30, topic="none", queueId=0).code, broker.namesrv_address is not None

    assert asyncio.run(run()) == (0, 0, True)


def test_nothing_acknowledged_is_missing_after_a_kill(tmp_path):
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-m", "rmq_store", "serve", str(tmp_path / "s"), "--profile", "test",
                                "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--ready-file", str(ready)],
                               stdout=subprocess.PIPE, env=dict(os.environ))
    acknowledged = []
    try:
        process.stdout.readline()
        with Peer(json.loads(ready.read_text())["listen"]) as peer, contextlib.suppress(EOFError, OSError):
            for number in range(10_000):
                answer = peer.put(body=b"%d" % number)
                assert answer.code == 0
                acknowledged.append(answer.ext["queueOffset"])
                if number == 200:
                    process.kill()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with Broker.open(tmp_path / "s", profile="test") as broker:
        assert len(acknowledged) > 200
        assert broker.store.max_offset("T", 0) >= len(acknowledged)
        assert bytes(broker.store.get("T", 0, len(acknowledged) - 1, 1)[0].body) == b"%d" % (len(acknowledged) - 1)


@pytest.mark.parametrize("listen, told, warned", [
    ("127.0.0.1:0", "10.1.2.3", True), ("127.0.0.1:0", "broker.example:1", True), ("127.0.0.1:0", "127.0.0.1", False),
    ("127.0.0.1:0", "localhost", False), ("0.0.0.0:0", "10.1.2.3", False), ("127.0.0.1:0", "", False)])
def test_routes_to_an_address_where_nobody_listens(tmp_path, caplog, listen, told, warned):
    """A broker.conf with brokerIP1, and no --listen: clients would be sent to a closed port, and nobody would know why."""
    more = {"brokerIP1": told} if told else {}
    with Broker.open(tmp_path / "s", profile="test", listen=listen, **more):
        assert (f"routes name {told}:" in caplog.text or f"routes name {told}," in caplog.text) == warned
