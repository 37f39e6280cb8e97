"""Stores that are still open when their process ends: at the exit of the interpreter, on a signal where that is asked for, and
at the end of a worker of multiprocessing; and what a child of fork does with those of its parent."""
import atexit
import functools
import os
import signal
import sys
import threading
import weakref
from typing import Any, Protocol

from rmq_store.base.io._lock import put_off
from rmq_store.base.io.threads import members
from rmq_store.errors import RmqStoreError, StoreStateError
from rmq_store.events import Event, emit

__all__ = ["close_at_end_of_worker", "close_on_signals", "need_main_thread", "open_stores"]


class Open(Protocol):
    """A store that is open."""

    path: str

    def close(self) -> object: ...


open_stores: "weakref.WeakSet[Any]" = weakref.WeakSet()
_worker = 0                     # process id of the worker for which its end is noted


def close_at_end_of_worker() -> None:
    """A forked child of multiprocessing ends without the interpreter's exit, with what is registered there alone."""
    global _worker
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _worker != os.getpid() and sys.modules["multiprocessing.process"].parent_process() is not None:
        _worker = os.getpid()
        util.Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    for store in members(open_stores):
        emit(Event.CLOSED_AT_EXIT, path=store.path)
        _close_quietly(store)


def _close_quietly(store: Open) -> None:
    try:
        store.close()
    except (RmqStoreError, OSError):
        pass        # it is logged; there is nobody left to raise to, and other stores are to be closed


def _in_child() -> None:
    """After fork: the stores are the parent's."""
    open_stores.clear()


def need_main_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise StoreStateError("signals=True needs the main thread: open the store there, or close it in your own handler")


def close_on_signals() -> None:
    """SIGTERM and SIGINT close every open store, then act as they would have."""
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if getattr(before, "_rmq_store", False):
            continue

        def handler(signum: int, frame: Any, before: Any = before) -> None:
            act = functools.partial(_act_on_signal, signum, before)
            if not put_off(act):        # else acting would end the process before the stores are closed
                act(frame)

        handler._rmq_store = True       # type: ignore[attr-defined]
        signal.signal(number, handler)


def _act_on_signal(signum: int, before: Any, frame: Any = None) -> None:
    for store in members(open_stores):
        emit(Event.CLOSED_BY_SIGNAL, path=store.path, signal=signal.Signals(signum).name)
        _close_quietly(store)
    if callable(before):
        before(signum, frame)
    elif before == signal.SIG_DFL:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
        if os.getpid() == 1:        # of a container: the kernel keeps from it what it has no handler for
            raise SystemExit(128 + signum)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_in_child)
