"""Starting a Python thread of a store, and looking at a set that other threads change. Any thread."""
import errno
import os
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["members", "start_thread"]

T = TypeVar("T")

LOOK_S = 0.5


class _Begun(threading.Event):
    """What Thread.start waits for. Python waits without end for a thread that found no memory to begin with; this looks whether
    the process has a thread that it did not have before."""

    def __init__(self) -> None:
        super().__init__()
        self._others = _threads()

    def wait(self, timeout: float | None = None) -> bool:
        while not super().wait(LOOK_S):
            if self._others and not _threads() - self._others and not self.is_set():
                raise RuntimeError("the thread ended before it began")
        return True


def _threads() -> set[str]:
    try:
        return set(os.listdir("/proc/self/task"))
    except OSError:             # no /proc
        return set()


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """A daemon thread that runs. Raises OSError where none can be had, as the native threads do; Python's own error has no
    type."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread._started = _Begun()      # type: ignore[attr-defined]
    try:
        thread.start()
    except BaseException as error:
        threading._limbo.pop(thread, None)      # type: ignore[attr-defined]    # one that never began is not counted
        if not isinstance(error, RuntimeError):
            raise
        raise OSError(errno.EAGAIN, f"thread {name} cannot be started: raise the limit on processes or on memory (ulimit -u, "
                      "ulimit -v, the container's pids.max)") from error
    return thread


def members(found: Iterable[T]) -> list[T]:
    """What is in a WeakSet now, held. Its own iterator gives up where another thread adds something, or drops what is gone."""
    while True:
        try:
            return list(found)
        except RuntimeError:        # changed size during iteration
            continue
