"""Room that an open store keeps for the small files that a deletion writes: on a full disk it is the way out, and has to work.

A few files in .alloc, which is swept at every open. It is no promise: whoever else fills the disk may be faster. Thread-
safety: the caller's lock.
"""
import os
from contextlib import suppress

from rmq_store.base.io.files import ControlFiles

__all__ = ["Reserve"]

SIZES = 64 << 10, 4096, 4096        # of the files: inodes may be what is lacking


class Reserve:
    """Of the store under `root`. Nothing is there before `keep`."""

    def __init__(self, files: ControlFiles, root: str) -> None:
        self._files = files
        self._directory = os.path.join(root, ".alloc")
        self._there: list[str] = []

    def keep(self) -> None:
        """Takes the room, where there is some. A store without it works as well, until its disk is full: so no error is one."""
        if not os.path.isdir(self._directory):
            return
        with suppress(OSError):
            for i in range(len(self._there), len(SIZES)):
                self._take(os.path.join(self._directory, f"reserve.{i}"), SIZES[i])

    def _take(self, path: str, size: int) -> None:
        fd = self._files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self._files.table.fallocate(fd, 0, size)
        except OSError:
            self._files.unlink(path)        # an empty one would count as kept
            raise
        finally:
            self._files.close(fd)
        self._there.append(path)

    def give(self) -> bool:
        """Gives the room to whoever writes next; False where it is given already. Raises OSError."""
        given = bool(self._there)
        while self._there:
            self._files.unlink(self._there.pop())
        return given
