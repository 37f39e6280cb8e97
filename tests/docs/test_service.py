"""The service of docs/running-as-a-service.md, run as a process: it stops in order, and has all that it acknowledged."""
import contextlib
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from rmq_store import MessageStore

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "service"


class Running:
    """The program, started as systemd starts it: with directories, and a socket that it tells that it is ready."""

    def __init__(self, place, notify, *wrapper):
        self.path = place / "run" / "orders.sock"
        env = {**os.environ, "PYTHONPATH": str(ROOT), "RMQ_STORE_PROFILE": "test", "STATE_DIRECTORY": str(place / "state"),
               "RUNTIME_DIRECTORY": str(place / "run"), "NOTIFY_SOCKET": str(place / "notify")}
        self.process = subprocess.Popen([*wrapper, sys.executable, str(EXAMPLE / "orders_service.py")], env=env,
                                        stderr=subprocess.PIPE, text=True)
        self.notify = notify

    def told(self):
        """The next thing that it tells systemd."""
        assert select.select([self.notify], [], [], 60)[0], self.process.poll()
        return self.notify.recv(100).decode()

    def client(self):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(str(self.path))
        return client

    def end(self, number):
        """Sends a signal; exit code, and what it logged."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@pytest.fixture
def start(tmp_path):
    for name in ("state", "run"):
        (tmp_path / name).mkdir()
    started = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))

        def call(*wrapper):
            started.append(Running(tmp_path, notify, *wrapper))
            assert started[-1].told() == "READY=1", started[-1].end(signal.SIGKILL)
            return started[-1]
        yield call
        for service in started:
            if service.process.poll() is None:
                service.process.kill()
                service.process.wait()
            service.process.stderr.close()


def ask(client, *lines):
    """Sends lines; their answers."""
    client.sendall(b"".join(line + b"\n" for line in lines))
    with client.makefile("rb", buffering=0) as answers:
        return [answers.readline() for _ in lines]


def kept(tmp_path):
    with MessageStore.open(tmp_path / "state" / "orders-store", profile="test") as store:
        return store.stats()["recovered"], [bytes(m.body) for m in store.scan("orders", 0)]


def test_sigterm_closes_in_order(start, tmp_path):
    service = start()
    clients = [service.client() for _ in range(3)]
    assert all(answer.startswith(b"ok ") for n, client in enumerate(clients) for answer in ask(client, b"order %d" % n))
    clients[0].sendall(b"half a li")            # is no message
    code, log = service.end(signal.SIGTERM)
    assert code == 0 and service.told() == "STOPPING=1"
    assert [client.recv(100) for client in clients] == [b""] * 3
    for client in clients:
        client.close()
    assert log.splitlines()[-1].startswith("<6>rmq_store.store: closed ") and "<4>" not in log and "<3>" not in log
    assert not service.path.exists() and not (tmp_path / "state" / "orders-store" / "abort").exists()
    assert kept(tmp_path) == (False, [b"order 0", b"order 1", b"order 2"])


def test_killed_and_started_again_it_has_all_that_it_acknowledged(start, tmp_path):
    bodies = []
    for life in range(3):
        service = start()
        with service.client() as client:
            sent = [b"life %d order %d" % (life, n) for n in range(20)]
            assert all(answer.startswith(b"ok ") for answer in ask(client, *sent))
            bodies += sent
            code, _ = service.end(signal.SIGKILL)
        assert code == -signal.SIGKILL
    assert kept(tmp_path) == (True, bodies)


def test_a_line_that_is_too_long_is_not_taken(start, tmp_path):
    """Its sender is hung up on; the others go on."""
    service = start()
    with service.client() as client, service.client() as other:
        assert ask(client, b"x" * 500_000)[0].startswith(b"ok ")
        with contextlib.suppress(ConnectionError):
            client.sendall(b"y" * (2 << 20) + b"\n")
            assert client.recv(100) == b""
        assert ask(other, b"the others go on")[0].startswith(b"ok ")
    assert service.end(signal.SIGTERM)[0] == 0
    assert [len(body) for body in kept(tmp_path)[1]] == [500_000, 16]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_the_unit_is_one(tmp_path):
    text = (EXAMPLE / "orders.service").read_text()
    program = "/opt/orders/venv/bin/python /opt/orders/orders_service.py"
    assert f"ExecStart={program}\n" in text
    unit = tmp_path / "orders.service"

    def verify(text):
        unit.write_text(text)
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
        return done.returncode, [line for line in done.stderr.splitlines() if "orders.service" in line]

    text = text.replace(program, f"{os.path.realpath(sys.executable)} {EXAMPLE / 'orders_service.py'}")
    code, said = verify(text)
    if code and not said:
        pytest.skip("systemd-analyze cannot verify here")
    assert (code, said) == (0, [])
    assert verify(text.replace("Restart=", "Restrat="))[1], "systemd-analyze sees nothing"
