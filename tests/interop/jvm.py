"""The real RocketMQ store behind a pipe: one JVM for many questions (tools/interop/session_with_rocketmq.sh).

A command is sent with `send`, its answer fetched with `answer`, in order: so several versions can work at the same time.
"""
import json
import os
import select
import subprocess
import time
from pathlib import Path

import pytest

VERSIONS = ("4.9.8", "5.3.3", "5.5.1")
SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "session_with_rocketmq.sh"
FETCH_SECONDS = 600     # the first start may download the jars
ANSWER_SECONDS = 90


class NotHere(Exception):
    """The machine lacks java, javac, mvn or the jars; the message says what."""


class JavaError(Exception):
    """The real store, or its JVM, failed."""


class JavaStore:
    """A JVM with one version of the store. Not thread-safe. Ends when it is killed, or with its input."""

    def __init__(self, version: str, log: Path) -> None:
        self.version = version
        self.compat = "4.9" if version.startswith("4.") else "5.x"
        self.log = log
        with open(log, "wb") as err:
            self._process = subprocess.Popen([SCRIPT, "--rocketmq", version], stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=err)
        self._rest = b""
        self._ready = False
        self._open_questions = 0

    def wait_ready(self) -> None:
        """Raises NotHere where the script skips."""
        if not self._ready:
            self._line(FETCH_SECONDS)
            self._ready = True

    def send(self, *fields: object) -> None:
        self.wait_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(("\t".join(map(str, fields)) + "\n").encode())
        self._process.stdin.flush()
        self._open_questions += 1

    def answer(self) -> dict:
        self._open_questions -= 1
        got = json.loads(self._line(ANSWER_SECONDS))
        if not got["ok"]:
            raise JavaError(f"RocketMQ {self.version}: {got['error']}, log {self.log}:\n{self._log_tail()}")
        return got

    def ask(self, *fields: object) -> dict:
        self.send(*fields)
        return self.answer()

    def forget(self) -> None:
        """Waits for the answers that nobody fetched, as after a test that failed."""
        while self._open_questions > 0:
            self._open_questions -= 1
            self._line(ANSWER_SECONDS)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._process.kill()
        self._process.communicate()

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                raise JavaError(f"RocketMQ {self.version} did not answer within {seconds} s:\n{self._log_tail()}")
            chunk = os.read(self._process.stdout.fileno(), 1 << 16)
            if not chunk:
                if self._process.wait() == 77:
                    raise NotHere(self._log_tail().strip())
                raise JavaError(f"RocketMQ {self.version} ended with {self._process.returncode}:\n{self._log_tail()}")
            self._rest += chunk
        line, self._rest = self._rest.split(b"\n", 1)
        return line


def wait_listens(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until the broker of broker_with_rocketmq.sh listens. Skips the test where it cannot run here."""
    assert process.stdout is not None
    if b"ready\n" in iter(process.stdout.readline, b""):
        return
    if process.wait(60) == 77:
        pytest.skip(log.read_text())
    raise AssertionError(log.read_text()[-4000:])


def settings(options: dict[str, object]) -> list[str]:
    """MessageStoreConfig properties as `name=value`."""
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in options.items()]
