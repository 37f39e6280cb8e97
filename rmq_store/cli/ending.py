"""How a command that runs until SIGTERM waits for it."""
import os
import select
import signal
import threading
import time
from types import TracebackType

__all__ = ["Ending"]


class Ending:
    """Between __enter__ and __exit__ SIGTERM sets it. The main thread alone.

    Python runs a handler in the main thread, and does not wake it if the kernel gave the signal to another thread. The kernel
    does so where the process is stopped meanwhile (Ctrl-Z and `kill %1`): the thread that runs first takes the signal. So the
    main thread sleeps in a pipe, into which Python writes whichever thread has the signal.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()

    def __enter__(self) -> "Ending":
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._handler = signal.signal(signal.SIGTERM, lambda number, frame: self._ended.set())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.signal(signal.SIGTERM, self._handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is set, now or within this time. None: sleeps until it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while not self._ended.is_set():
            left_ms = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
            if poll.poll(left_ms):
                os.read(self._read, 4096)
            elif deadline is not None and time.monotonic() >= deadline:
                break
        return self._ended.is_set()
