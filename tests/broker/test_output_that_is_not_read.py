"""Whoever reads the output of a broker, or its log, may stop and stay. The broker serves, and ends, all the same."""
import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore
from rmq_store.cli import output
from tests.broker.peer import Peer
from tests.soon import until

SERVE = "serve", "--profile", "test", "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"


@pytest.fixture
def stuck() -> Iterator[tuple[int, int]]:
    """A pipe that takes nothing more, as its reader has stopped: both ends."""
    read, write = os.pipe()
    filled(write)
    yield read, write
    os.close(read)
    os.close(write)


def filled(write: int) -> None:
    os.set_blocking(write, False)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(write, b"." * size)
    os.set_blocking(write, True)


@contextlib.contextmanager
def running(*words: object, **how: Any) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen([sys.executable, "-m", "rmq_store", *map(str, words)], **how)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ends(process: "subprocess.Popen[bytes]") -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


def address(ready: Path, name: str = "listen") -> str:
    until(lambda: ready.exists(), 60_000)
    return str(json.loads(ready.read_text())[name])


@pytest.fixture
def stopped_terminal() -> Iterator[int]:
    """A terminal that nobody looks at. It says that it takes something, and does not take a line."""
    watcher, terminal = pty.openpty()
    os.set_blocking(terminal, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(terminal, b".")
    os.set_blocking(terminal, True)
    yield terminal
    os.close(watcher)
    os.close(terminal)


@pytest.mark.parametrize("more", [[], ["--watch"]])
def test_a_broker_ends_whose_output_nobody_reads(tmp_path: Path, stuck: tuple[int, int], more: list[str]) -> None:
    ready = tmp_path / "ready"
    with running(*SERVE, tmp_path / "s", "--ready-file", ready, *more, stdout=stuck[1]) as process, \
            Peer(address(ready)) as peer:
        assert peer.put("T", b"one").code == 0
        assert ends(process) == 0
    assert not (tmp_path / "s/abort").exists()


def test_a_broker_ends_on_a_terminal_that_is_stopped(tmp_path: Path, stopped_terminal: int) -> None:
    ready = tmp_path / "ready"
    with running(*SERVE, "-v", "--watch", tmp_path / "s", "--ready-file", ready, stdout=stopped_terminal,
                 stderr=stopped_terminal) as process, Peer(address(ready)) as peer:
        assert peer.put("T", b"one").code == 0
        assert peer.ask(215, topic="T").code == 0
        assert ends(process) == 0


def test_a_slave_begins_and_ends_whose_output_nobody_reads(tmp_path: Path, stuck: tuple[int, int]) -> None:
    """It has something to say before its master is there, and says that it follows by its ready file."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ready = tmp_path / "ready"
    with running("follow", f"127.0.0.1:{port}", tmp_path / "s", "--profile", "test", "--ready-file", ready,
                 stdout=stuck[1]) as process:
        until(lambda: (tmp_path / "s/config/replica.json").exists(), 60_000)
        with MessageStore.open(tmp_path / "m", profile="test", ha_listen=f"127.0.0.1:{port}"):
            until(lambda: ready.exists(), 60_000)
            assert ends(process) == 0


@pytest.mark.parametrize("fd", ["stdout", "stderr"])
def test_a_name_server_answers_whose_output_nobody_reads(tmp_path: Path, stuck: tuple[int, int], fd: str) -> None:
    ready = tmp_path / "ready"
    plain = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running("namesrv", "--listen", "0.0.0.0:0", "--ready-file", ready, **{**plain, fd: stuck[1]}) as process, \
            Peer(address(ready, "namesrv").replace("0.0.0.0", "127.0.0.1")) as peer:
        assert peer.ask(106).code == 0
        assert ends(process) == 0


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])     # of the latter something is said
def test_a_log_that_nobody_reads_costs_no_answer(tmp_path: Path, stuck: tuple[int, int], listen: str) -> None:
    ready = tmp_path / "ready"
    with running("serve", "--profile", "test", "--listen", listen, "--namesrv-listen", "127.0.0.1:0", "-v", tmp_path / "s",
                 "--ready-file", ready, stdout=subprocess.DEVNULL, stderr=stuck[1]) as process, \
            Peer(address(ready).replace("0.0.0.0", "127.0.0.1")) as peer:
        assert peer.put("T", b"one").code == 0
        assert peer.ask(215, topic="T").code == 0       # the log tells of it
        assert ends(process) == 0


@pytest.mark.parametrize("tells", [False, True])
def test_what_is_lost_is_told_on_standard_error_alone(stuck: tuple[int, int], monkeypatch: pytest.MonkeyPatch,
                                                      tells: bool) -> None:
    read, write = stuck
    monkeypatch.setattr(output, "MOST", 20_000)
    monkeypatch.setattr(output, "WAIT_S", 0.01)
    with os.fdopen(os.dup(write), "w") as stream:
        patient = output.Patient(stream, tells)
        patient.write("x" * 10_000 + "\n")
        patient.flush()
        for n in range(3):
            print(f"lost {n}" + "x" * 10_000, file=patient)
            patient.flush()
        monkeypatch.setattr(output, "WAIT_S", 60)
        found = b""
        while b"\n" not in found:
            found += os.read(read, 1 << 16).lstrip(b".")
        until(lambda: not patient._losing)
        patient.write("there\n")
        patient.end()
        found += os.read(read, 1 << 16)
    told = "" if tells else "rmqstore: nobody read this for a while; lines lost: 3\n"
    assert found.decode() == f"{'x' * 10_000}\n{told}there\n"


@pytest.mark.parametrize("tells", [False, True])
def test_an_output_that_is_gone(tells: bool) -> None:
    """Standard output ends the command, standard error does not."""
    read, write = os.pipe()
    os.close(read)
    with contextlib.suppress(BrokenPipeError), os.fdopen(write, "w") as stream:
        patient = output.Patient(stream, tells)
        patient.write("one\n")
        for _ in range(2):
            with pytest.raises(BrokenPipeError) if tells else contextlib.nullcontext():
                patient.flush()
                patient.write("two\n")
        patient.end()
