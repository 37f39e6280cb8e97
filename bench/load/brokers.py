"""Brokers to measure, each a process of its own: this library's, by `rmqstore serve`, and the real ones.

A broker is ready when it answers a request. `ready_ms` counts from exec: the script of a real broker says when that was. The
real broker needs java and, the first time, mvn; without them NotHere says why.
"""
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from rmq_store.remoting.frame import Frame, encode

ROOT = Path(__file__).parents[2]
INTEROP = ROOT / "tools" / "interop"
HEADERS = f"-I{ROOT / 'native' / 'include'}"
START_S = 120.0
ASKS = encode(Frame(28, 1, {}))         # runtime figures: every broker answers them


class NotHere(Exception):
    """A broker that cannot run here, and why."""


@dataclass
class Running:
    """A broker that answers. `cpu_s()` is the processor time of all its threads."""

    address: str
    process: "subprocess.Popen[str]"
    ready_ms: float

    def cpu_s(self) -> float:
        return cpu_s(self.process.pid)

    def rss_mib(self) -> float:
        return float(psutil.Process(self.process.pid).memory_info().rss) / (1 << 20)


def cpu_s(pid: int) -> float:
    """Seconds of processor time of a process, all its threads, to the nanosecond. Raises OSError if it has ended."""
    return time.clock_gettime((~pid << 3) | 2)      # its CPUCLOCK_SCHED, as clock_getcpuclockid() makes it


def free_port() -> int:
    """One whose neighbours, which a real broker takes as well, are likely to be free, too."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def compiled(base: Path, name: str) -> Path:
    """A program of this directory, built into `base`."""
    program, source = base / name, Path(__file__).with_name(f"{name}.c")
    if not program.exists():
        subprocess.run(["cc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", HEADERS, "-o", program, source],
                       check=True)
    return program


def _answers(port: int, process: "subprocess.Popen[str]", log: Path) -> float:
    """When it answered its first request (time.time). Raises NotHere if it ends, or says nothing, instead."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()
            raise NotHere(said[-1] if said else f"the broker ended with {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as peer:
                peer.sendall(ASKS)
                if peer.recv(8):
                    return time.time()
        except OSError:
            time.sleep(0.0005)
    raise NotHere(f"the broker does not answer within {START_S:.0f} s")


def _stopped(process: "subprocess.Popen[str]") -> None:
    """Asks it to end: a real one by the end of its input, ours by SIGTERM."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    if "rmq_store" in process.args:     # type: ignore[operator]
        process.terminate()
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _broker(command: Sequence[object], port: int, log: Path) -> Iterator[Running]:
    with open(log, "wb") as errors:
        begun = time.time()
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=errors, text=True)
    try:
        assert process.stdout is not None
        if command[0] != sys.executable:
            words = process.stdout.readline().split()       # "exec SECONDS", or nothing where it cannot run
            begun = float(words[1]) if words[:1] == ["exec"] else begun
        at = _answers(port, process, log)
        yield Running(f"127.0.0.1:{port}", process, (at - begun) * 1e3)
    finally:
        _stopped(process)


@contextmanager
def ours(path: Path, namesrv: str | None = None, **options: Any) -> Iterator[Running]:
    """`rmqstore serve` over a store, with a name server of its own unless `namesrv` names another."""
    port = free_port()
    names = ("--namesrv", namesrv) if namesrv else ("--namesrv-listen", "127.0.0.1:0")
    more = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    command = [sys.executable, "-m", "rmq_store", "serve", path, "--listen", f"127.0.0.1:{port}", *names, *more]
    with _broker(command, port, path.with_suffix(".log")) as broker:
        yield broker


@contextmanager
def real(path: Path, version: str, namesrv: str | None = None, **options: Any) -> Iterator[Running]:
    """The broker of a release of RocketMQ over a store. Raises NotHere."""
    port = free_port()
    more = [f"{name}={value}" for name, value in (options | ({"namesrvAddr": namesrv} if namesrv else {})).items()]
    command = [INTEROP / "broker_with_rocketmq.sh", "--rocketmq", version, path, port, *more]
    with _broker(command, port, path.with_suffix(".log")) as broker:
        yield broker


@contextmanager
def bare(program: Path, body: int, batch: int, queues: int) -> Iterator[Running]:
    """bare_answer.c: answers of the same size, and no store behind them."""
    port = free_port()
    with _broker([program, "127.0.0.1", port, body, batch, queues], port, program.with_suffix(".log")) as broker:
        yield broker
