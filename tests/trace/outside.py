"""What Spark's commits do beside the I/O table: Python's own calls on journals and staging files. Here they go through the
probe, so that they stand in its trace, and what a journal says is noted there. In no production code."""
import builtins
import functools
import io
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from rmq_store.base.io._io import ProbeIo

__all__ = ["watch_commits"]


class _File(io.RawIOBase):
    """A file that is written."""

    def __init__(self, probe: ProbeIo, path: str, mode: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if "x" in mode else os.O_TRUNC)
        self._probe, self._at = probe, 0
        self._fd = probe.open(path, flags)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def write(self, data: Any) -> int:
        n = self._probe.pwrite(self._fd, bytes(data), self._at)
        self._at += n
        return n

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._probe.close(self._fd)


class _Os:
    """The module `os`, as the patched modules see it."""

    def __init__(self, table: Callable[[], ProbeIo]) -> None:
        self._table = table
        self._directories: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        if os.path.isdir(path):
            fd = os.open(path, flags)
            self._directories[fd] = path
            return fd
        if flags & os.O_ACCMODE == os.O_RDONLY:     # read, and closed, by a file of Python's
            return os.open(path, flags, mode)
        return self._table().open(path, flags)

    def fsync(self, fd: int) -> None:
        if fd in self._directories:
            self._table().sync_dir(self._directories[fd])
        else:
            self._table().fsync(fd)

    def close(self, fd: int) -> None:
        if self._directories.pop(fd, None) is not None:
            os.close(fd)
        else:
            self._table().close(fd)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if os.path.isdir(path):
            if not exist_ok:
                raise FileExistsError(path)
            return
        if not os.path.isdir(os.path.dirname(path)):
            self.makedirs(os.path.dirname(path))
        self._table().mkdir(path)

    def mkdir(self, path: str) -> None:
        self._table().mkdir(path)

    def rmdir(self, path: str) -> None:
        self._table().rmdir(path)

    def rename(self, source: str, target: str) -> None:
        self._table().rename(source, target)

    def unlink(self, path: str) -> None:
        self._table().unlink(path)


def _open(table: Callable[[], ProbeIo]) -> Callable[..., Any]:
    def opened(path: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, **more: Any) -> Any:
        if not set(mode) & set("wx"):
            return builtins.open(path, mode, buffering, encoding, **more)
        raw = _File(table(), os.fspath(path), mode)
        return raw if "b" in mode else io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding)

    return opened


def watch_commits(patch: pytest.MonkeyPatch, table: Callable[[], ProbeIo]) -> None:
    """From here on commits of staged records and of shards, made in this process, are recorded on the probe that `table` gives.
    That a job's directory goes is not seen: nothing is promised of it."""
    from rmq_store.spark import leftovers, shards, staging

    fake, promised = _Os(table), [True]
    holds: dict[str, bool] = {}         # journal -> whether the commit it speaks of has messages
    real_write, real_redo = staging.write_journal, staging._redo

    @functools.wraps(real_write)
    def write_journal(path: str, entry: dict[str, Any]) -> None:
        path = os.path.abspath(path)
        root = os.path.dirname(os.path.dirname(os.path.dirname(path)))
        if entry.get("pending") is not None:
            holds[path] = bool(entry.get("parts") or entry.get("shards"))
        table().mark(("journal", root, path, dict(entry), promised[0]))
        real_write(path, entry)
        if holds.get(path, True):       # a commit of nothing may be done again
            table().mark(("journalled", path))

    @functools.wraps(real_redo)
    def redo(root: str, store: Any, entry: dict[str, Any], fsync: bool, resumed: bool) -> Any:
        promised[0] = fsync or resumed
        try:
            return real_redo(root, store, entry, fsync, resumed)
        finally:
            promised[0] = True

    for module in (staging, shards, leftovers):
        patch.setattr(module, "os", fake)
    for module in (staging, shards):
        patch.setattr(module, "write_journal", write_journal)
    patch.setattr(staging, "open", _open(table), raising=False)
    patch.setattr(staging, "drop", lambda directory: shutil.rmtree(directory, ignore_errors=True))
    patch.setattr(staging, "_redo", redo)
    patch.setattr(shards, "IoTable", table)
