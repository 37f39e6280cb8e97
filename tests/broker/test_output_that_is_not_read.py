"""Whoever reads the output of a broker, or its log, may stop and stay. The broker serves, and ends, all the same."""
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore
from rmq_store.cli import main
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
    with contextlib.suppress(OSError):
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


def address(ready: Path) -> str:
    until(lambda: ready.exists(), 60_000)
    return str(json.loads(ready.read_text())["listen"])


@pytest.mark.parametrize("more", [[], ["--watch"]])
def test_a_broker_ends_whose_output_nobody_reads(tmp_path: Path, stuck: tuple[int, int], more: list[str]) -> None:
    ready = tmp_path / "ready"
    with running(*SERVE, tmp_path / "s", "--ready-file", ready, *more, stdout=stuck[1]) as process, \
            Peer(address(ready)) as peer:
        assert peer.put("T", b"one").code == 0
        assert ends(process) == 0
    assert not (tmp_path / "s/abort").exists()


def test_a_slave_ends_whose_output_nobody_reads(tmp_path: Path, stuck: tuple[int, int]) -> None:
    with MessageStore.open(tmp_path / "m", profile="test", ha_listen="127.0.0.1:0") as m, \
            running("follow", m.replication().address, tmp_path / "s", "--profile", "test", stdout=stuck[1]) as process:
        until(lambda: m.replicas(), 60_000)
        threading.Event().wait(0.5)     # by then it has something to say
        assert ends(process) == 0


def test_a_log_that_nobody_reads_costs_no_answer(tmp_path: Path, stuck: tuple[int, int]) -> None:
    ready = tmp_path / "ready"
    with running(*SERVE, "-v", tmp_path / "s", "--ready-file", ready, stdout=subprocess.DEVNULL, stderr=stuck[1]) as process, \
            Peer(address(ready)) as peer:
        assert peer.put("T", b"one").code == 0
        assert peer.ask(215, topic="T").code == 0       # the log tells of it
        assert ends(process) == 0


def test_the_log_says_how_many_lines_are_lost(stuck: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = stuck
    monkeypatch.setattr(main, "LOG_WAIT_MS", 1)
    handler = main._LogHandler(os.fdopen(write, "w"))
    log = logging.Logger("of this test")
    log.addHandler(handler)
    for n in range(3):
        log.warning("lost %d", n)
    os.set_blocking(read, False)
    while len(os.read(read, 1 << 20)) == 1 << 20:
        pass
    log.warning("there")
    log.warning("%s", "x" * 10_000)
    found = os.read(read, 1 << 20).decode()
    assert found == f"WARNING rmq_store.cli: standard error took nothing for a while; lines lost: 3\nthere\n{'x' * 10_000}\n"
    handler.stream.close()
