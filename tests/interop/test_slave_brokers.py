"""Whole brokers as master and slave: a real slave of our broker, our broker as the slave of a real one, and a Java consumer
that reads from our slave when the real master is gone."""
import json
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmq_store import Broker, MessageStore, NameServer, promote
from rmq_store.config.upstream_json import parse_json
from tests.broker.peer import Peer
from tests.broker.test_tls import SERVER, TlsPeer
from tests.broker.test_tls_outgoing import CHECKED
from tests.interop.jvm import wait_listens
from tests.interop.test_frames import free_ports
from tests.interop.test_moving_broker import TOOLS, Clients, our, started
from tests.soon import until

pytestmark = pytest.mark.slow       # JVMs; a slave of 5.3.3 copies for the first time after a minute
SIZE = 64 << 20
LOOKS = 180_000


@contextmanager
def java(version, directory, port, log, *options):
    """A real broker in a process of its own, which the test may kill."""
    bind = [] if version.startswith("4.") else ["bindAddress=127.0.0.1"]
    with open(log, "ab") as err:
        process = subprocess.Popen([TOOLS / "broker_with_rocketmq.sh", "--rocketmq", version, directory, str(port), *bind,
                                    *options],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
    try:
        wait_listens(process, log)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def config(directory, name):
    try:
        return parse_json((directory / "config" / name).read_text())
    except (OSError, ValueError):
        return {}


@pytest.mark.parametrize("version", ["5.3.3", "4.9.8"])
def test_a_real_slave_of_our_broker(tmp_path, version):
    """Topics, groups, offsets and delay offsets, by both ports."""
    port, slave_port = free_ports(2)
    compat = "4.9" if version.startswith("4.") else "5.x"
    log = tmp_path / "log"
    log.touch()
    with Broker.open(tmp_path / "m", listen=f"127.0.0.1:{port}", brokerRole="ASYNC_MASTER", haListenPort=0, compat=compat,
                     segment_size_bytes=SIZE, profile="test") as m, Peer(m.address) as peer:
        assert m.fast_address == f"127.0.0.1:{port - 2}"
        with java(version, tmp_path / "s", slave_port, log, "brokerRole=SLAVE", "brokerId=1", "brokerName=broker-a",
                  f"namesrvAddr={m.namesrv_address}"):
            until(lambda: any(r.offset >= 0 for r in m.store.replicas()), LOOKS)
            assert peer.ask(17, topic="Copied", defaultTopic="TBW102", readQueueNums=3, writeQueueNums=3, perm=6,
                            topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False).code == 0
            assert peer.ask(200, {"groupName": "CopiedG", "retryMaxTimes": 5}).code == 0
            for n in range(5):
                assert peer.put("Copied", b"%d" % n, queue=n % 3).code == 0
            assert peer.put("Copied", b"late", properties={"DELAY": "1"}).code == 0
            assert peer.ask(15, consumerGroup="CopiedG", topic="Copied", queueId=1, commitOffset=2).code == 0
            until(lambda: m.store.max_offset("Copied", 0) + m.store.max_offset("Copied", 1)
                  + m.store.max_offset("Copied", 2) == 6,
                  LOOKS)
            table = "topicConfigTable"
            until(lambda: config(tmp_path / "s", "topics.json").get(table, {}).get("Copied", {}).get("readQueueNums") == 3,
                  LOOKS)
            until(lambda: config(tmp_path / "s", "subscriptionGroup.json").get("subscriptionGroupTable", {}).get(
                "CopiedG", {}).get("retryMaxTimes") == 5, LOOKS)
            until(lambda: config(tmp_path / "s", "consumerOffset.json").get("offsetTable", {}).get("Copied@CopiedG", {}).get(
                "1") == 2, LOOKS)
            until(lambda: config(tmp_path / "s", "delayOffset.json").get("offsetTable", {}).get("1") == 1, LOOKS)
            with Peer(m.namesrv_address) as names:
                addresses = json.loads(names.ask(106).body)["brokerAddrTable"]["broker-a"]["brokerAddrs"]
                assert addresses == {"0": m.address, "1": f"127.0.0.1:{slave_port}"}
            until(lambda: [r.offset for r in m.store.replicas()] == [m.store.max_log_offset], LOOKS)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_our_slave_of_a_real_broker(tmp_path, version):
    """What a Java consumer had read is not read again from the slave, what it had not read is; then the slave is promoted."""
    port, slave_port, names_port = free_ports(3)
    log, names = tmp_path / "log", f"127.0.0.1:{names_port}"
    log.touch()
    compat = "4.9" if version.startswith("4.") else "5.x"
    clients = process = None
    more = ["-o", f"mappedFileSizeCommitLog={SIZE}", "-o", f"compat={compat}"]
    slave = ["serve", str(tmp_path / "s"), "--listen", f"127.0.0.1:{slave_port}", "--namesrv", names, "-o", "brokerRole=SLAVE",
             "-o",
             "brokerId=1", "-o", "slaveReadEnable=true", "-o", "ha_metadata_interval_ms=500", "-o",
             "registerNameServerPeriod=10000",
             *more]
    try:
        with our(["namesrv", "--listen", names], log):
            with java(version, tmp_path / "m", port, log, f"namesrvAddr={names}", "brokerName=broker-a",
                      "flushConsumerOffsetInterval=500", "slaveReadEnable=true") as real:
                process = started(slave, log)
                clients = Clients(names, tmp_path / "clients.log")
                clients.until("ready")
                for n in range(10):
                    clients.tell(f"send m{n}")
                clients.await_got(*(f"m{n}" for n in range(10)))
                clients.tell("delay late 1")
                clients.await_got("late")
                clients.tell("again", "done again")             # commits
                until(lambda: sum(config(tmp_path / "s", "consumerOffset.json").get("offsetTable", {}).get(
                    "Moving@moving-c", {}).values()) == 11, LOOKS)
                until(lambda: config(tmp_path / "s", "delayOffset.json").get("offsetTable", {}).get("1") == 1, LOOKS)
                assert "Moving" in config(tmp_path / "s", "topics.json")["topicConfigTable"]
                clients.tell("group other", "done group")
                clients.until(lambda: clients.others < 11)
                real.kill()
                real.wait()
            clients.others = 0
            clients.tell("group third", "done group")           # finds the slave in the route, and reads all of it there
            clients.until(lambda: clients.others < 11)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        assert set(clients.got.values()) == {1}, clients.got
    finally:
        if clients is not None:
            clients.kill()
        if process is not None:
            process.kill()
            process.communicate()
    done = promote(tmp_path / "s", segment_size_bytes=SIZE, compat=compat)
    assert done.moved == []
    with MessageStore.open(tmp_path / "s", segment_size_bytes=SIZE, compat=compat) as store:
        store.put("Moving", b"new")
        until(lambda: sum(store.max_offset("Moving", q) for q in store.queues("Moving")) >= 12, LOOKS)
        bodies = sorted(bytes(m.body) for m in store.scan("Moving"))
        assert bodies == sorted([b"late", b"new", *(b"m%d" % n for n in range(10))])
        assert sum(store.offsets.table()["Moving", "moving-c"].values()) == 11


def test_files_of_a_promoted_slave_are_a_real_brokers(tmp_path):
    """A real master takes the promoted directory over: it ignores config/replica.json."""
    port, master_port = free_ports(2)
    log = tmp_path / "log"
    log.touch()
    with Broker.open(tmp_path / "m", listen=f"127.0.0.1:{master_port}", brokerRole="ASYNC_MASTER", haListenPort=0,
                     segment_size_bytes=SIZE, profile="test") as m, Peer(m.address) as peer, \
            MessageStore.open(tmp_path / "s", profile="test", segment_size_bytes=SIZE, role="slave",
                              ha_metadata_interval_ms=100, ha_master=m.store.replication().address,
                              ha_master_broker=m.address) as s:
        until(lambda: any(r.offset >= 0 for r in m.store.replicas()), 20_000)
        peer.put("T", b"one")
        until(lambda: s.max_offset("T", 0) == 1 and s.topic_table.get("T") is not None, 20_000)
    promote(tmp_path / "s", profile="test", segment_size_bytes=SIZE)
    with MessageStore.open(tmp_path / "s", readonly=True, segment_size_bytes=SIZE) as s:
        about = {"mappedFileSizeConsumeQueue": s.options.consumequeue_file_size_bytes, "maxHashSlotNum": s.options.index_slots,
                 "maxIndexNum": s.options.index_entries_max}
    with java("5.3.3", tmp_path / "s", port, log, "timerWheelEnable=false", *(f"{k}={v}" for k, v in about.items())), \
            Peer(f"127.0.0.1:{port}") as peer:
        deadline = time.monotonic() + 60
        while (answer := peer.pull("G", "T", bits=4, subscription="*")).code != 0:
            assert time.monotonic() < deadline, answer
        assert b"one" in answer.body
        assert peer.put("T", b"two").code == 0
    assert Path(tmp_path / "s/config/replica.json").exists()


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_a_pair_over_tls(tmp_path, version, monkeypatch):
    """A real master and our slave register at our name server, and the slave copies topics. All three take nothing but TLS."""
    port, slave_port = free_ports(2)
    log = tmp_path / "log"
    log.touch()
    certified = {"tls.server.mode": "enforcing"} | SERVER
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(f"-D{name}={value}" for name, value in {
        **certified, "tls.test.mode.enable": "false"}.items()))
    with NameServer.open(**certified) as names, java(
            version, tmp_path / "m", port, log, f"namesrvAddr={names.address}", "brokerName=broker-a", "useTLS=true"
            ), Broker.open(tmp_path / "s", listen=f"127.0.0.1:{slave_port}", namesrv=names.address, namesrv_listen=None,
            brokerRole="SLAVE", brokerId=1, segment_size_bytes=SIZE, compat="4.9" if version.startswith("4.") else "5.x",
            profile="test", ha_metadata_interval_ms=500, **certified, **CHECKED) as s:
        until(lambda: s.store.replication().copied_ms is not None, LOOKS)
        assert s.store.replication().broker == f"127.0.0.1:{port}"
        with TlsPeer(names.address) as peer:
            addresses = json.loads(peer.ask(106).body)["brokerAddrTable"]["broker-a"]["brokerAddrs"]
            assert addresses == {"0": f"127.0.0.1:{port}", "1": s.address}
        with TlsPeer(f"127.0.0.1:{port}") as real:
            assert real.put("Secret").code == 0
        until(lambda: s.store.max_offset("Secret", 0) == 1, LOOKS)
        until(lambda: s.store.topic_table.get("Secret") is not None, LOOKS)
