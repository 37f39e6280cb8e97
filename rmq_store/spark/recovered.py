"""Where recovery will end the log of a store that was not closed and that nobody has open. The rules are those of
log/recovery/recover.py; here they only look. One thread.

What lies behind that place, whole or not, is cut by the next writer, which puts other messages there: whoever had read it would
have rows that no consumer ever sees, and would miss those.
"""
import logging
import mmap
import os
from itertools import pairwise
from typing import Any

from rmq_store.access.bulk._queues import record_time
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec._layout import MAGIC_V1
from rmq_store.log.recovery import checkpoint
from rmq_store.log.recovery._scan import LogRecovery, Scan, scan_bytes
from rmq_store.log.recovery.lockfile import in_use
from rmq_store.log.recovery.recover import Rules, find_end, rules_of
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.store_options import chosen_options
from rmq_store.spark.stores import Broker, LogFile, store_root

__all__ = ["CrashedLog"]

log = logging.getLogger("rmq_store.spark")


class CrashedLog:
    """The end that recovery will make. Kept while the store stays as it was left."""

    def __init__(self, broker: Broker, options: ReadOptions) -> None:
        self._root = store_root(broker)
        self._mapped = options.io != "pread"
        self._given = dict(options.store)
        self._seen: tuple[object, ...] | None = None        # how the store was left when `_end` was found
        self._end = -1
        self._behind = b""                                  # what lay at `_end`

    def end(self, files: list[LogFile]) -> int | None:
        """Log offset; None where a writer has the store or it was closed. Then the log ends where its records do. So it does
        where files are missing, as no writer opens that. Raises OSError."""
        try:
            left = os.stat(os.path.join(self._root, "abort"))
        except OSError:
            return None
        if not files or in_use(self._root) or any(a.end != b.start for a, b in pairwise(files)):
            return None
        seen = left.st_ino, left.st_mtime_ns
        if self._seen != seen:
            self._seen, self._end = seen, -1
        elif _bytes_at(files, self._end) == self._behind:
            return self._end
        # A writer on another machine has a lock that is not seen here: what it wrote since is looked at from there on.
        outcome = find_end(_Files(files, self._end, self._mapped), self._rules(), -1)
        if outcome.reason not in ("end of data", "end of file"):
            log.warning("%s was not closed, and nobody has it open: it is read up to %d, where recovery ends the log (%s)",
                        self._root, outcome.end, outcome.reason)
        self._end, self._behind = outcome.end, _bytes_at(files, outcome.end)
        return outcome.end

    def _rules(self) -> Rules:
        """Those of the next open: its options are what the last writer recorded, and above them what this read was given."""
        path = os.path.join(self._root, "checkpoint")
        times = checkpoint.read(ControlFiles(IoTable()), path)
        return rules_of(chosen_options(self._given, self._root), False, os.path.exists(path), times)


class _Files(LogRecovery):
    """A log as find_end looks at it. known: a place up to which it was looked at before, -1: none."""

    def __init__(self, files: list[LogFile], known: int, mapped: bool) -> None:
        self._files = {file.start: file for file in files if file.end > known}
        self._known, self._mapped = known, mapped

    def starts(self) -> list[int]:
        return list(self._files)

    def first_record(self, start: int) -> tuple[int, int]:
        stored = record_time(self._files[start].path, 0)
        return (0, 0) if stored is None else (MAGIC_V1, stored)

    def scan(self, begin: int, **rules: Any) -> Scan:
        file = self._files[begin]
        fd = open_regular(file.path)
        try:
            size = min(os.fstat(fd).st_size, file.size)
            with mmap.mmap(fd, size, prot=mmap.PROT_READ) if self._mapped else _read(fd, size) as data:
                view = memoryview(data).toreadonly()
                try:
                    return scan_bytes(view, file.start, min(max(begin, self._known), begin + size), **rules)
                finally:
                    view.release()
        finally:
            os.close(fd)


def _read(fd: int, size: int) -> mmap.mmap:
    """A file in memory of its own, for disks where a map must not be touched."""
    data = mmap.mmap(-1, size)
    while data.tell() < size:
        piece = os.pread(fd, min(size - data.tell(), 1 << 23), data.tell())
        if not piece:
            break                       # cut meanwhile: zeros, as behind the end of a log
        data.write(piece)
    return data


def _bytes_at(files: list[LogFile], offset: int) -> bytes:
    """What a writer that continues at `offset` would change."""
    for file in files:
        if file.start <= offset < file.end:
            fd = open_regular(file.path)
            try:
                return os.pread(fd, 64, offset - file.start)
            finally:
                os.close(fd)
    return b""
