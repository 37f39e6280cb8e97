"""updateBrokerConfig (code 25) over restarts, the keys of a broker.conf that have no effect, and clients of other protocols."""
import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys

import pytest

from rmq_store import Broker, errors
from rmq_store.base.io._io import ProbeIo
from tests.broker.peer import Peer
from tests.soon import until


def shown(peer):
    return dict(line.split("=", 1) for line in peer.ask(26).body.decode().splitlines())


def opened(path, **more):
    return Broker.open(path, profile="test", **more)


@pytest.mark.parametrize(("line", "names"), [
    ("brokerPermission=4", {"brokerPermission": "4"}),
    ("autoCreateTopicEnable=false\nfileReservedTime=48", {"autoCreateTopicEnable": "false", "fileReservedTime": "48"}),
    ("broker_permission=2\nretention_hours=7", {"brokerPermission": "2", "fileReservedTime": "7"})])
def test_a_restart_keeps_what_was_changed(tmp_path, caplog, line, names):
    with opened(tmp_path / "s") as broker, Peer(broker.address) as peer:
        assert peer.ask(25, line.encode()).code == 0
        assert shown(peer).items() >= names.items()
    for _ in range(2):
        caplog.clear()
        with opened(tmp_path / "s") as broker, Peer(broker.address) as peer:
            assert shown(peer).items() >= names.items()
        assert "has changed hold again" in caplog.text


def test_a_kill_keeps_what_was_answered(tmp_path):
    code = ("import os, signal, sys; from rmq_store import Broker; from tests.broker.peer import Peer\n"
            "with Broker.open(sys.argv[1], profile='test') as broker, Peer(broker.address) as peer:\n"
            "    assert peer.ask(25, b'brokerPermission=4').code == 0\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n")
    ended = subprocess.run([sys.executable, "-c", code, tmp_path / "s"], timeout=60)
    assert ended.returncode == -signal.SIGKILL
    with opened(tmp_path / "s") as broker, Peer(broker.address) as peer:
        assert shown(peer)["brokerPermission"] == "4"


def test_who_starts_it_with_another_value_decides_anew(tmp_path, caplog):
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerPermission=6\nfileReservedTime=48\n")
    with opened(tmp_path / "s", config=conf) as broker, Peer(broker.address) as peer:
        assert peer.ask(25, b"brokerPermission=4\nfileReservedTime=24").code == 0
        assert peer.ask(25, b"brokerPermission=2").code == 0
    with opened(tmp_path / "s", config=conf) as broker, Peer(broker.address) as peer:
        assert shown(peer).items() >= {"brokerPermission": "2", "fileReservedTime": "24"}.items()
    conf.write_text("brokerPermission=6\nfileReservedTime=12\n")
    with opened(tmp_path / "s", config=conf) as broker, Peer(broker.address) as peer:
        assert shown(peer).items() >= {"brokerPermission": "2", "fileReservedTime": "12"}.items()
    assert "forgets that updateBrokerConfig has set fileReservedTime=24: it begins with 12, and not with 48" in caplog.text
    conf.write_text("brokerPermission=6\nfileReservedTime=48\n")
    with opened(tmp_path / "s", config=conf) as broker, Peer(broker.address) as peer:
        assert shown(peer).items() >= {"brokerPermission": "2", "fileReservedTime": "48"}.items()
        assert peer.ask(25, b"brokerPermission=6").code == 0        # as it began: nothing is left to keep
    assert json.loads((tmp_path / "s/config/brokerChanges.json").read_text()) == {"changed": {}}


@pytest.mark.parametrize("more", [b"", b"\nputMessageTimeout=8000"], ids=["again", "with a key without effect"])
def test_a_change_that_could_not_be_written_is_kept_by_the_next_try(tmp_path, more):
    io = ProbeIo(keep_bytes=False)
    with opened(tmp_path / "s", _io=io) as broker, Peer(broker.address) as peer:
        io.fail("open", 1, errno.ENOSPC, path="brokerChanges.json", sticky=True)
        assert peer.ask(25, b"brokerPermission=4").code == 1        # it holds now, and the answer says that it is not kept
        assert shown(peer)["brokerPermission"] == "4"
        io.clear()
        assert peer.ask(25, b"brokerPermission=4" + more).code == 0
    with opened(tmp_path / "s") as broker, Peer(broker.address) as peer:
        assert shown(peer)["brokerPermission"] == "4"


def test_what_is_refused_or_not_written_is_told(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with opened(tmp_path / "s", _io=io) as broker, Peer(broker.address) as peer:
        assert peer.ask(25, b"brokerPermission=9").code == 1
        assert peer.ask(25, b"brokerPermission=4\nbrokerName=other").code == 1
        assert not os.path.exists(tmp_path / "s/config/brokerChanges.json")
        io.fail("pwrite", errno=28, path="brokerChanges")
        answer = peer.ask(25, b"brokerPermission=4")
        assert answer.code == 1 and "have changed, but a restart of the broker forgets that" in answer.remark
        assert shown(peer)["brokerPermission"] == "4"
        assert peer.ask(25, b"brokerPermission=2").code == 0
        broker.reconfigure(autoCreateTopicEnable=False)             # the program's own, which it can make again
    with opened(tmp_path / "s") as broker, Peer(broker.address) as peer:
        assert shown(peer).items() >= {"brokerPermission": "2", "autoCreateTopicEnable": "true"}.items()
    for name in ("brokerChanges.json", "brokerChanges.json.bak"):
        (tmp_path / "s/config" / name).write_text('{"changed": {"x": 1}}')
    with pytest.raises(errors.ConfigFileCorrupted, match=r"brokerChanges\.json"):
        opened(tmp_path / "s")


def test_keys_without_effect_are_named_and_those_that_are_obeyed_are_not(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="rmq_store")
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=b1\nautoCreateTopicEnable=false\nmetricsExporterType=PROM\nenableSlaveActingMaster=true\n"
                    "fileReservedTime=48\nlistenPort=0\nbrokerIP1=127.0.0.1\nstorePathIndex=/x\n")
    with opened(tmp_path / "s", config=conf, broker_cluster_name="C"):
        pass
    (line,) = [r for r in caplog.records if getattr(r, "event", "") == "OPTION_NO_EFFECT"]
    assert line.levelno == logging.WARNING
    assert line.fields["options"] == "enableSlaveActingMaster; metricsExporterType; storePathIndex"
    assert "OPTIONS_IGNORED" not in {getattr(r, "event", "") for r in caplog.records}


@pytest.mark.parametrize("port", ["address", "namesrv_address"])
@pytest.mark.parametrize(("hello", "words"), [
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", "gRPC clients of RocketMQ 5"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32), "tls.server.mode is disabled")])
def test_a_client_of_another_protocol_is_named_once_a_minute(tmp_path, caplog, port, hello, words):
    with opened(tmp_path / "s") as broker:
        host, _, number = getattr(broker, port).rpartition(":")
        for _ in range(5):
            with socket.create_connection((host, int(number)), timeout=10) as client:
                client.sendall(hello)
                try:
                    assert client.recv(100) == b""
                except ConnectionResetError:
                    pass
        with Peer(broker.address) as peer:
            peer.ask(30, topic="T", queueId=0)
        until(lambda: words in caplog.text)
    assert caplog.text.count("this server has") == 1
