"""The I/O table for the control plane: small files whole, directories, the lock.

For the opening and closing thread; data goes through the table's C functions. Errors are OSError, with the path if any.
Thread-safety: any thread.
"""
import errno
import os
from collections.abc import Callable
from functools import partial

from rmq_store.base.io._dirs import sync_dirs
from rmq_store.base.io._io import IoTable
from rmq_store.errors import DiskFull

__all__ = ["ControlFiles", "no_room", "open_regular", "read_text"]

_NO_FILE = {errno.ELOOP: "a symbolic link", errno.EISDIR: "a directory", errno.ENXIO: "a pipe or a device"}


def no_room(number: int, path: str) -> DiskFull:
    """Returns the error that open() raises where it cannot reserve the space of a file that has holes."""
    about = os.stat(path)
    return DiskFull(number, f"reserving the {about.st_size - 512 * about.st_blocks} bytes that a sparse file of "
                    f"{about.st_size} bytes lacks,", path)


class ControlFiles:
    """What opening and closing a store needs, built from the bare calls of one I/O table."""

    def __init__(self, table: IoTable) -> None:
        self._table = self.table = table
        self.close = table.close
        self.lock = table.lock
        self.rename = table.rename
        self.sync = table.fsync
        self.sync_dir = table.sync_dir
        self.sync_dirs = partial(sync_dirs, table)
        self.truncate = table.ftruncate
        self.unlink = table.unlink
        self.unlock = table.unlock
        self.mono_ns = table.mono_ns
        self.wall_ms = table.wall_ms

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """Descriptor of a regular file: int. Links are not followed: inside a store there are none. Raises OSError that says
        what is there instead."""
        try:
            return self._table.open(path, flags | os.O_NOFOLLOW, mode)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise _no_file(error.errno, path) from None
            raise

    def open_dir(self, path: str) -> int:
        """Descriptor of a directory, to lock it: int."""
        return self._table.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def read(self, fd: int, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`, fewer only at the end of the file."""
        return self._table.read_all(fd, size, offset)

    def write(self, fd: int, offset: int, data: bytes) -> None:
        """All of it, or an error."""
        self._table.write_all(fd, data, offset)

    def mkdir(self, path: str) -> bool:
        """Makes one directory; False where it exists."""
        try:
            self._table.mkdir(path, 0o755)
        except FileExistsError:
            return False
        return True

    def make_dirs(self, path: str) -> None:
        """Makes a directory and those above it that are not there; durable when it returns."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent and parent != path:
            self.make_dirs(parent)
        if self.mkdir(path):
            self.sync_dir(parent)

    def write_new(self, directory: str, name: str, data: bytes) -> None:
        """A small file, whole or not at all: written beside its name, synced, renamed into place, directory synced."""
        path = os.path.join(directory, name)
        tmp = path + ".tmp"
        fd = self.open(tmp, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self.write(fd, 0, data)
            self.sync(fd)
        except OSError as error:        # of a descriptor: it does not say the path
            raise OSError(error.errno, error.strerror, path) from error
        finally:
            self.close(fd)
        self.rename(tmp, path)
        self.sync_dir(directory)


_SYSTEM = ControlFiles(IoTable())
_TEXT_PART = 1 << 20


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """ControlFiles.open of the real system calls, for `open(path, "rb", opener=open_regular)`: how whoever reads a file of a
    store, and has no I/O table, opens it. Raises OSError."""
    return _SYSTEM.open(path, flags)


def read_text(path: str, opener: Callable[[str, int], int] = open_regular) -> str:
    """All of a file of text, as JSON is. What is read is bounded by what was written, not by the file's length: no text has a
    NUL, and a hole is made of them. Raises OSError, ValueError."""
    parts: list[bytes] = []
    with open(path, "rb", buffering=0, opener=opener) as file:
        while part := file.read(_TEXT_PART):
            if b"\0" in part:
                raise ValueError(f"it has a NUL at byte {len(parts) * _TEXT_PART + part.index(0)}, text has none")
            parts.append(part)
    return b"".join(parts).decode()


def _no_file(code: int, path: str) -> OSError:
    return OSError(code, f"is {_NO_FILE[code]}, a store has a regular file there: move it away", path)
