"""Work in a process of its own: a store that is left dirty, an open in a process that holds nothing else.

The parent must not have a store open (or any thread running) when it forks.
"""
import json
import os
import signal
from collections.abc import Callable
from typing import Any


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Runs `work` in a forked child and returns its figures."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(receive)
            figures = json.dumps(work())
            with open(send, "w") as pipe:
                pipe.write(figures)
            status = 0
        finally:
            os._exit(status)
    os.close(send)
    with open(receive) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise RuntimeError(f"the child process ended with status {status}")
    result: dict[str, Any] = json.loads(text)
    return result


def killed(work: Callable[[], object]) -> None:
    """Runs `work` in a forked child that then kills itself: whatever it had open stays as it is."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        raise RuntimeError(f"the child process ended with status {status} before its time")
