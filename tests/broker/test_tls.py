"""TLS on the broker's own ports. The real Java client's TLS: tests/interop/test_clients.py."""
import errno
import logging
import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest

from rmq_store import Broker, errors
from rmq_store.network import secure
from tests.broker.peer import TIMEOUT_S, Peer
from tests.forks import fork
from tests.soon import until

HERE = Path(__file__).parent / "certificates"
SERVER = {"tls.server.certPath": str(HERE / "server.pem"), "tls.server.keyPath": str(HERE / "server.key")}


def client_context(*, certificate=False):
    context = ssl.create_default_context(cafile=HERE / "ca.pem")
    if certificate:
        context.load_cert_chain(HERE / "client.pem", HERE / "client.key")
    return context


class TlsPeer(Peer):
    """A client that checks the server's certificate."""

    def __init__(self, address, *, certificate=False):
        super().__init__(address)
        self.sock = client_context(certificate=certificate).wrap_socket(self.sock, server_hostname="localhost")


def serve(tmp_path, mode="permissive", **more):
    return Broker.open(tmp_path / "s", profile="test", waitTimeMillsInSendQueue=60_000,
                       **SERVER | {"tls.server.mode": mode} | more)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker for all tests that need no other options."""
    with serve(tmp_path_factory.mktemp("tls")) as broker:
        yield broker


def test_permissive_serves_both_on_one_port(broker):
    with TlsPeer(broker.address) as secret, Peer(broker.address) as plain, TlsPeer(broker.namesrv_address) as names:
        assert secret.sock.version() in ("TLSv1.2", "TLSv1.3")
        for number, peer in enumerate((secret, plain, secret)):
            assert peer.put(body=b"%d" % number).ext["queueOffset"] == str(number)
        assert names.ask(105, topic="T").code == 0
        broker.store.wait_dispatched(10)
        held = secret.ask_pull(offset=3, bits=6, subscription="*")
        assert plain.put(body=b"3").code == 0
        assert secret.answer(held).code == 0            # a held pull is woken through TLS
        counts = broker._core.front.requests()
        assert counts[310] >= 3                         # the network thread answers what came by TLS, too


def test_the_peer_is_the_one_of_the_socket(broker):
    with TlsPeer(broker.address) as peer:
        peer.beat("c1", producers=["P"])
        client, = broker._core.clients.producers("P")
        assert client.connection.peer == f"127.0.0.1:{peer.sock.getsockname()[1]}"
        assert client.connection.local == broker.address


def test_large_frames_both_ways_and_a_slow_reader(broker):
    body = os.urandom(1 << 20)
    with TlsPeer(broker.address) as peer, TlsPeer(broker.address) as slow:
        broker.store.reconfigure(get_bytes_max_memory=15 << 20)
        for _ in range(6):
            assert peer.put("big", body).code == 0
        broker.store.wait_dispatched(10)
        for _ in range(8):
            slow.ask_pull("G", "big", 0, 0, bits=4, subscription="*")       # 6 MiB each, which it does not read yet
        assert peer.put("big", b"x").code == 0
        found = peer.pull("G", "big", 0, 0, bits=4, subscription="*")
        assert found.code == 0 and found.body.count(body) == 6
        assert slow.answer(1).body.count(body) == 6
        until(lambda: all(slow.answer(number).code == 0 for number in range(2, 9)))


def test_enforcing_closes_plain_connections(tmp_path):
    with serve(tmp_path, "enforcing") as broker:
        for address in (broker.address, broker.namesrv_address):
            with Peer(address) as plain, pytest.raises((EOFError, ConnectionResetError)):
                plain.ask(105, topic="T")
        with TlsPeer(broker.address) as peer:
            assert peer.put().code == 0


def test_clients_show_certificates(tmp_path):
    trust = {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(HERE / "ca.pem")}
    with serve(tmp_path, **trust) as broker:
        with pytest.raises((ssl.SSLError, EOFError, ConnectionResetError)), TlsPeer(broker.address) as peer:
            peer.put()
        with TlsPeer(broker.address, certificate=True) as peer:
            assert peer.put().code == 0


def test_what_is_no_tls_and_who_says_nothing_costs_its_own_connection(broker, monkeypatch):
    door = broker._front._tls
    host, port = broker.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as bad:
        bad.sendall(b"\x16\x03\x01 this is no handshake" + bytes(10_000))
        with pytest.raises(ConnectionResetError):
            while bad.recv(100):            # an alert
                pass
            raise ConnectionResetError
    monkeypatch.setattr(secure, "HANDSHAKE_S", 0.0)
    monkeypatch.setattr(secure, "LOOK_S", 0.01)
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as silent:
        silent.sendall(b"\x16")
        assert silent.recv(1) == b""
    monkeypatch.undo()
    monkeypatch.setattr(secure, "CONNECTIONS_MAX", 1)
    with TlsPeer(broker.address) as first:
        with pytest.raises((ssl.SSLError, OSError)):
            TlsPeer(broker.address)
        assert first.put().code == 0
    until(lambda: door._count == 0 and not door._pipes)
    until(lambda: broker._core.front.counts()["connections"] == 0)


def test_a_connection_that_cannot_be_watched_costs_itself(broker, monkeypatch):
    """The kernel has a limit for what is watched."""
    watch, full = secure.Tls._watch, [True]

    def failing(self, *what):
        if full:
            raise OSError(errno.ENOSPC, "planned")
        watch(self, *what)

    monkeypatch.setattr(secure.Tls, "_watch", failing)
    with pytest.raises((OSError, EOFError)), TlsPeer(broker.address) as peer:
        peer.put()
    full.clear()
    with TlsPeer(broker.address) as peer:
        assert peer.put().code == 0


def test_byte_by_byte(broker):
    """A handshake and a frame that come in single bytes."""
    host, port = broker.address.rsplit(":", 1)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def exchange(step):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    for byte in outgoing.read():
                        sock.sendall(bytes([byte]))
                    incoming.write(sock.recv(1 << 16))

        exchange(tls.do_handshake)
        peer = Peer.__new__(Peer)
        frame = b"\0\0\0\x28\0\0\0\x24" + b'{"code":30,"opaque":7,"version":409}'
        tls.write(frame)
        for byte in outgoing.read():
            sock.sendall(bytes([byte]))
        peer.exactly = lambda size: b"".join(exchange(lambda: tls.read(1)) for _ in range(size))
        assert peer.read().opaque == 7


def test_a_new_certificate_is_taken_without_a_restart(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(secure, "LOOK_S", 0.0)
    caplog.set_level(logging.INFO, "rmq_store.network")
    for name in ("server.pem", "server.key"):
        shutil.copy(HERE / name, tmp_path / name)
    paths = {"tls.server.certPath": str(tmp_path / "server.pem"), "tls.server.keyPath": str(tmp_path / "server.key")}

    def subject():
        with TlsPeer(broker.address) as peer:
            assert peer.put().code == 0
            return dict(pair for row in peer.sock.getpeercert()["subject"] for pair in row)["commonName"]

    with serve(tmp_path, **paths) as broker:
        assert subject() == "server"
        (tmp_path / "server.pem").write_text("broken")
        assert subject() == "server"
        assert "the certificate stays as it was" in caplog.text
        shutil.copy(HERE / "client.key", tmp_path / "server.key")
        shutil.copy(HERE / "client.pem", tmp_path / "server.pem")
        assert subject() == "client"


@pytest.mark.parametrize(("more", "said"), [
    ({"tls.server.keyPath": ""}, "give tls.server.certPath"), ({"tls.server.certPath": "/nowhere"}, "/nowhere"),
    ({"tls.server.keyPath": str(HERE / "client.key")}, "cannot be used"), ({"tls.server.mode": "on"}, "disabled, permissive"),
    ({"tls.server.keyPath": str(HERE / "locked.key"), "tls.server.keyPassword": "wrong"}, "cannot be used"),
    ({"tls.server.keyPath": str(HERE / "locked.key")}, "cannot be used"),
    ({"tls.server.need.client.auth": "require"}, "trustCertPath"),
    ({"tls.server.need.client.auth": "optional", "tls.server.trustCertPath": str(HERE / "make.sh")}, "make.sh")])
def test_options_that_are_wrong(tmp_path, more, said):
    with pytest.raises(errors.ConfigError, match=said):
        serve(tmp_path, **{"mode": more.pop("tls.server.mode", "permissive"), **more})
    assert not (tmp_path / "s").exists()


def test_a_locked_key_whose_password_nobody_is_told(tmp_path):
    with Broker.open(tmp_path / "s", profile="test", tls_server_mode="permissive",
                     tls_server_cert_path=str(HERE / "server.pem"), tls_server_key_path=str(HERE / "locked.key"),
                     tls_server_key_password="secret") as broker, TlsPeer(broker.address) as peer:
        config = peer.ask(26).body.decode()
        assert "tls.server.mode=permissive" in config and "secret" not in config


def test_a_fork_does_not_keep_connections(tmp_path):
    with serve(tmp_path) as broker, TlsPeer(broker.address) as peer:
        assert peer.put().code == 0
        read, write = os.pipe()
        child = fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        try:
            broker._front._tls.stop()
            assert peer.sock.recv(1) == b""         # else the child's copy would keep it open
        finally:
            os.close(write)
            os.close(read)
            os.waitpid(child, 0)


def test_the_end_answers_what_came(tmp_path):
    broker = serve(tmp_path, flush_mode="sync")
    with TlsPeer(broker.address) as peer:
        assert peer.put().code == 0
        broker.close()
        with pytest.raises((EOFError, OSError)):
            peer.put()
    assert broker._front._tls._count == 0
