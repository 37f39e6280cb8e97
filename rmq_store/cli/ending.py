"""How a command that runs until SIGTERM says that it is ready, and waits for its end."""
import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rmq_store.errors import ConfigError

__all__ = ["Ending", "ReadyFile"]

READY_BYTES_MAX = 4096
READY_WORDS = {"pid", "listen", "namesrv", "offset"}        # of which a ready file has at least one


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


class ReadyFile:
    """The file of --ready-file: it is there while a process serves, and says where. The main thread alone.

    Made before anything is opened; path None: there is no such file. A script waits for the file. So one that a killed process
    left behind goes then; one of a process that still serves stays until this one serves in its place. Who serves holds a lock
    on its file: a process number says less, as another process may have it by now. As a context it removes the file at the end.
    """

    def __init__(self, path: str | None) -> None:
        """Raises OSError where no file can be made, and ConfigError for a file that is something else."""
        self._path, self._file = path, -1
        if path is None:
            return
        place = os.path.dirname(path) or "."
        if not os.path.isdir(place):
            raise FileNotFoundError(errno.ENOENT, "the directory of the ready file does not exist: make it first", path)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "the ready file is a directory: give the path of a file", path)
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "this process may not write the directory of the ready file: give another path",
                                  path)
        with contextlib.suppress(FileNotFoundError):    # also where it went meanwhile
            _remove_left(path)

    def write(self, content: Mapping[str, object]) -> None:
        """As a whole or not at all; with the pid of this process. Raises OSError."""
        if self._path is None:
            return
        whole = f"{self._path}.{os.getpid()}"
        file = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            with contextlib.suppress(OSError):          # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, json.dumps({**content, "pid": os.getpid()}).encode())
            os.replace(whole, self._path)
        except OSError:
            os.close(file)
            os.unlink(whole)
            raise
        self._close()
        self._file = file

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        """A file that another process has written since stays."""
        if self._path is not None and self._file >= 0:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._file), os.stat(self._path)):
                    os.unlink(self._path)
            self._close()


def _remove_left(path: str) -> None:
    """What nobody holds any more. Raises ConfigError for what is no ready file, FileNotFoundError, OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not _is_ready(os.read(file, READY_BYTES_MAX)):
            raise ConfigError(f"--ready-file {path}: this is no ready file, and would be replaced: give another path, or "
                              "delete it")
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                os.unlink(path)
    finally:
        os.close(file)


def _is_ready(text: bytes) -> bool:
    """Also of an empty file, as mktemp makes it."""
    try:
        found = json.loads(text or b'{"pid":0}')
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool(found.keys() & READY_WORDS)
