"""The thread that calls what add_done_callback was given, once a flush. Its parts are woken from any thread, and from a signal
handler that closes the store."""
import logging
import os
import select
import threading
from collections.abc import Callable
from typing import Any

from rmq_store.base.io.threads import start_thread

__all__ = ["Callbacks", "call_now"]


def call_now(callback: Callable[[Any], object], future: Any) -> None:
    """Logs what the callback raises, but for what ends the caller's own thread."""
    try:
        callback(future)
    except Exception:
        _say_raised()


def _say_raised() -> None:
    logging.getLogger("rmq_store.flush").exception("a callback of put_async raised")


class Callbacks:
    """The daemon thread that runs callbacks, woken once a flush. waited_of(fd): the WaitedFutures behind an eventfd."""

    def __init__(self, waited_of: Callable[[int], Any]) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.waited = waited_of(self.fd)
        self.waited.watch = self.wake           # what waits too long is told so also where no flush ends
        self.closing = self.closed_here = False
        self.thread = start_thread(self.run, "rmq-complete")

    def run(self) -> None:
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while not self.closing or self.waited.waiting:
            self.waited.watched = False         # first: whoever adds something from here on wakes this thread
            due = self.waited.overdue_in
            self.waited.watched = due is not None
            poll.poll(None if due is None else due * 1000 + 1)
            self.turn()
        if self.closed_here:
            self._let_go()

    def turn(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass
        for f, callback in self.waited.take():
            try:
                callback(f)
            except BaseException:       # sys.exit() too: the thread is that of all callbacks
                _say_raised()

    def wake(self) -> None:
        if self.fd >= 0:
            os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """After the last flush. In a callback, which is the thread itself, it only runs the others. Idempotent."""
        if self.thread is threading.current_thread():
            self.closing = self.closed_here = True
            while self.waited.waiting:
                self.turn()
        elif self.fd >= 0:
            self.closing = True
            self.wake()
            self.thread.join()
            self._let_go()

    def _let_go(self) -> None:
        # The thread has ended, or does so now: nobody writes to the descriptor any more.
        self.waited.close()
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # No lock is taken here: it may be in a forked child, where nobody lets go of it.
        if self.fd >= 0:
            os.close(self.fd)
