"""A call in a process of its own, with an end to its time and its memory; how it ended is an answer like any other."""
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MEMORY = 8 << 30        # of addresses: a default store maps gigabytes


@dataclass(frozen=True)
class Ending:
    """answer: what the call returned, None where it did not. died: how the process ended otherwise, empty where it did not."""

    answer: Any
    died: str


def apart(function: Callable[..., Any], *arguments: Any, seconds: float = 120.0) -> Ending:
    """function(*arguments) in a child; its answer goes through JSON. The caller has one thread."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(reader)
        _serve(writer, function, arguments)
    os.close(writer)
    late = True         # also where this process is told to end
    try:
        said, late = _read(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        if late:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    if late:
        return Ending(None, f"did not end within {seconds:.0f} s")
    if said:
        return Ending(json.loads(said), "")
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    return Ending(None, how)


def _serve(writer: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Never returns; and leaves without what exit would do: an open store stays as the call left it."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        answer = function(*arguments)
    except BaseException:
        answer = {"raised": traceback.format_exc()}
    said = json.dumps(answer).encode()
    while said:
        said = said[os.write(writer, said):]
    os.kill(os.getpid(), signal.SIGKILL)


def _read(reader: int, end: float) -> tuple[bytes, bool]:
    """All that comes until the other side is gone; and whether that was too late."""
    parts = []
    while True:
        if not select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
            return b"", True
        part = os.read(reader, 1 << 16)
        if not part:
            return b"".join(parts), False
        parts.append(part)
