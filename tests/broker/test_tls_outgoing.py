"""TLS of what a broker asks of others: name servers, and a slave its master's broker."""
import socket
import ssl
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmq_store import Broker, NameServer
from rmq_store.errors import ConfigError
from rmq_store.remoting.client import Client
from tests.broker.peer import Peer
from tests.broker.test_tls import HERE, SERVER, TlsPeer
from tests.replication.pairs import SMALL, caught_up, joined
from tests.soon import until

FAST = {"ha_metadata_interval_ms": 100, "waitTimeMillsInSendQueue": 60_000}
CHECKED = {"tls.enable": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": str(HERE / "ca.pem")}
SHOWN = {"tls.client.certPath": str(HERE / "client.pem"), "tls.client.keyPath": str(HERE / "client.key")}
ASKS = {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(HERE / "ca.pem")}
WAIT_MS = 30_000


def name_server(**more: object) -> NameServer:
    return NameServer.open(**SERVER | {"tls.server.mode": "enforcing"} | more)


def registers(path: Path, names: NameServer, **more: object) -> Broker:
    return Broker.open(path, namesrv=names.address, namesrv_listen=None, **{**SMALL, **FAST, **more})


def brokers(names: NameServer) -> str:
    with TlsPeer(names.address, certificate=True) as peer:
        return peer.ask(106).body.decode()


@pytest.mark.parametrize("more", [CHECKED, {"tls.enable": "true"}, {"tls_enable": True, "tls_client_auth_server": False}])
def test_a_broker_registers_over_tls(tmp_path: Path, more: dict) -> None:
    """Whoever signed the certificate, where nobody asks."""
    with name_server() as names, registers(tmp_path / "s", names, **more) as broker:
        until(lambda: broker.address in brokers(names), WAIT_MS)
        with pytest.raises((EOFError, OSError)), Peer(names.address) as plain:
            plain.ask(106)


def test_a_broker_shows_its_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with name_server(**ASKS) as names:
        with registers(tmp_path / "without", names, **CHECKED):
            until(lambda: "if it asks for a certificate, give tls.client.certPath" in caplog.text, WAIT_MS)
        with registers(tmp_path / "with", names, **CHECKED, **SHOWN) as broker:
            until(lambda: broker.address in brokers(names), WAIT_MS)


@pytest.mark.parametrize(("server", "client", "says"), [
    ({}, {**CHECKED, "tls.client.trustCertPath": str(HERE / "client.pem")},         # signed by somebody else
     "tls.client.trustCertPath has to name who signed"),
    ({}, {"tls.enable": "true", "tls.client.authServer": "true"},                   # nor by whom the system trusts
     "tls.client.trustCertPath has to name who signed"),
    ({"tls.server.mode": "disabled"}, CHECKED, "does it serve TLS there?")])
def test_a_name_server_that_is_not_the_one(tmp_path: Path, server: dict, client: dict, says: str,
                                           caplog: pytest.LogCaptureFixture) -> None:
    with name_server(**server) as names, registers(tmp_path / "s", names, **client):
        until(lambda: "does not take the registration: the TLS handshake failed" in caplog.text, WAIT_MS)
        assert says in caplog.text and names.address in caplog.text


def test_a_slave_copies_over_tls(tmp_path: Path) -> None:
    """It learns of its master at a name server that takes nothing else, and copies from a broker that takes nothing else."""
    secret = SERVER | {"tls.server.mode": "enforcing"} | CHECKED
    with name_server() as names, registers(tmp_path / "m", names, brokerRole="ASYNC_MASTER", haListenPort=0, **secret) as m:
        until(lambda: m.address in brokers(names), WAIT_MS)
        with registers(tmp_path / "s", names, brokerRole="SLAVE", brokerId=1, **secret) as s:
            joined(m.store)
            with TlsPeer(m.address) as peer:
                assert peer.put("T").code == 0
                assert peer.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=1).code == 0
            caught_up(s.store, m.store)
            until(lambda: s.store.offsets.query("G", "T", 0) == 1, WAIT_MS)
            until(lambda: s.store.topic_table.get("T") is not None, WAIT_MS)


def test_a_slave_without_tls_says_why_it_copies_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = SERVER | {"tls.server.mode": "enforcing"}
    with Broker.open(tmp_path / "m", brokerRole="ASYNC_MASTER", haListenPort=0, **SMALL, **secret) as m, Broker.open(
            tmp_path / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=m.store.replication().address,
            ha_master_broker=m.address, **SMALL, **FAST) as s:
        until(lambda: "If it takes nothing but TLS, see tls.enable" in caplog.text, WAIT_MS)
        assert s.store.replication().copied_ms is None


@contextmanager
def silent_server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"127.0.0.1:{server.getsockname()[1]}"


def unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_a_peer_that_does_not_shake_hands(tmp_path: Path) -> None:
    """The wait has one end, and whoever closes the client ends it before."""
    with silent_server() as (_, address), pytest.raises(TimeoutError, match=r"TLS handshake within 0\.05 s"):
        Client(address, timeout_s=0.05, tls=unchecked()).ask(106)
    with silent_server() as (server, address):
        client, said = Client(address, timeout_s=600.0, tls=unchecked()), []

        def ask() -> None:
            try:
                client.ask(106)
            except OSError as error:
                said.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        peer, _ = server.accept()
        with peer:
            assert peer.recv(1) == b"\x16"
            client.close()
            thread.join(60)
            assert not thread.is_alive() and len(said) == 1


@pytest.mark.parametrize(("more", "says"), [
    ({"tls.client.trustCertPath": str(HERE / "ca.pem")}, "set tls.client.authServer=true"),
    ({"tls.client.certPath": str(HERE / "client.pem")}, "tls.client.keyPath together"),
    ({"tls.client.authServer": "true", "tls.client.trustCertPath": "/nowhere"}, "/nowhere"),
    ({"tls.client.certPath": str(HERE / "server.pem"), "tls.client.keyPath": str(HERE / "locked.key")}, "cannot be used")])
def test_options_that_are_wrong(tmp_path: Path, more: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Broker.open(tmp_path / "s", profile="test", **{"tls.enable": "true"} | more)
    assert not (tmp_path / "s").exists()


def test_a_certificate_without_tls_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker.open(tmp_path / "s", profile="test", **SHOWN, tls_client_key_password="secret") as broker:
        assert "set tls.enable=true" in caplog.text
        with Peer(broker.address) as peer:
            config = peer.ask(26).body.decode()
        assert "tls.client.certPath=" in config and "secret" not in config


@pytest.mark.parametrize("secret", [False, True])
def test_a_question_after_the_server_was_begun_anew(secret: bool) -> None:
    """It is asked once more, on a new connection: a broker is not missing until its registration after next."""
    with NameServer.open(**(SERVER | {"tls.server.mode": "enforcing"} if secret else {})) as names:
        address = names.address
        client = Client(address, tls=unchecked() if secret else None)
        assert client.ask(106).code == 0
    with pytest.raises(OSError):
        client.ask(106)
    with NameServer.open(address, **(SERVER | {"tls.server.mode": "enforcing"} if secret else {})):
        assert client.ask(106).code == 0
    with pytest.raises(OSError) as told:
        client.ask(106)
    assert type(told.value).__name__ != "_Kept"
    client.close()
    with pytest.raises(OSError, match="closed here"):
        client.ask(106)
