"""Which file of a store a path is, and reading it without trusting it: no mapping (a running store may cut it), no offset or
length is used before it was compared with the file's end. Control plane, the main thread only."""
import os
import stat
from pathlib import Path

from rmq_store.base.io._io import IoTable
from rmq_store.codec._layout import RECORD_AT_MAGIC
from rmq_store.codec.layout import MAGIC_NAMES

_IO = IoTable()
CHUNK = 1 << 20
_ZEROS = bytes(CHUNK)
KINDS = ("commitlog", "consumequeue", "consumequeue_ext", "index", "checkpoint", "abort", "lock")
MAGICS = tuple(magic.to_bytes(4, "big", signed=True) for magic in MAGIC_NAMES)


class StoreFile:
    """One open file: its kind, the offset its name stands for, and bounded reads. Use as a context."""

    def __init__(self, path: str, kind: str | None = None) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)        # a pipe would make it wait
        try:
            found = os.fstat(self._fd)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(21, "the path is a directory: name the files in it, such as commitlog/*", path)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(22, "a pipe, a socket or a device: name regular files", path)
            self.size = found.st_size
            self.kind = kind or self._guess()
        except BaseException:
            os.close(self._fd)
            raise
        name = Path(path).name
        self.start = int(name) if name.isascii() and name.isdigit() else 0
        self._chunk, self._chunk_at = b"", 0

    def __enter__(self) -> "StoreFile":
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def read(self, at: int, size: int) -> bytes:
        """Up to `size` bytes at position `at`; fewer at the end of the file. Small reads in a row come out of one chunk."""
        if at < 0 or size <= 0:
            return b""
        begin = at - self._chunk_at
        if begin >= 0 and begin + size <= len(self._chunk):
            return self._chunk[begin:begin + size]
        data = os.pread(self._fd, max(size, CHUNK), at)
        self._chunk, self._chunk_at = data, at
        return data[:size]

    def data(self, at: int) -> int:
        """Position of the first byte at or behind `at` that is in no hole; the file's size where only a hole follows."""
        return min(_IO.next_data(self._fd, at), self.size) if at < self.size else self.size

    def first_nonzero(self, at: int) -> int | None:
        """Position of the first byte that is not zero, from `at` on; None where there is none. Holes cost nothing."""
        while at < self.size:
            at = self.data(at)
            data = os.pread(self._fd, CHUNK, at)
            if not data:
                return None
            if data != _ZEROS[:len(data)]:
                return at + len(data) - len(data.lstrip(b"\0"))
            at += len(data)
        return None

    def _guess(self) -> str:
        path = Path(os.path.abspath(self.path))
        folders = [p.name for p in path.parents]
        if path.name in ("checkpoint", "abort", "lock"):
            return path.name
        if path.name.isdigit() and len(path.name) == 17:
            return "index"
        if path.name.isdigit() and len(path.name) == 20:
            if os.pread(self._fd, 4, RECORD_AT_MAGIC) in MAGICS or folders[0] == "commitlog":
                return "commitlog"
            if folders[0].isdigit():
                return "consumequeue_ext" if "consumequeue_ext" in folders[2:3] else "consumequeue"
        raise OSError(22, f"not a file of a message store; if it is, name its kind with --kind {'|'.join(KINDS)}", self.path)


def queue_of(path: str) -> tuple[str, str]:
    """Topic and queue id out of a consume-queue file's path."""
    parents = Path(os.path.abspath(path)).parents
    return parents[1].name, parents[0].name

