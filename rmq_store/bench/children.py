"""Work in a process of its own: a store that is left dirty, an open in a process that holds nothing else.

The processes begin anew (spawn), they are no forks: a child of fork in a process with threads may need a lock that one of them
held, and Python 3.12 warns of it. So `work` is a function of a module, and what it gets and gives can be pickled.
"""
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_SPAWN = multiprocessing.get_context("spawn")


def _tell(pipe: Connection, work: Callable[..., dict[str, Any]], given: tuple[Any, ...]) -> None:
    pipe.send(work(*given))


def _die(work: Callable[..., object], given: tuple[Any, ...]) -> None:
    work(*given)
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(work: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    """Runs `work` in a process of its own and returns its figures."""
    receive, send = _SPAWN.Pipe(duplex=False)
    child = _SPAWN.Process(target=_tell, args=(send, work, given))
    child.start()
    send.close()
    try:
        figures: dict[str, Any] | None = receive.recv()
    except EOFError:
        figures = None
    finally:
        receive.close()
        child.join()
    if figures is None or child.exitcode != 0:
        raise RuntimeError(f"the child process ended with status {child.exitcode}")
    return figures


def killed(work: Callable[..., object], *given: object) -> None:
    """Runs `work` in a process of its own that then kills itself: whatever it had open stays as it is."""
    child = _SPAWN.Process(target=_die, args=(work, given))
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the child process ended with status {child.exitcode} before its time")
