"""Finds the index files of a store on the disk (RocketMQ: IndexService.load).

    <dir>/<17 digits: local time of its making, yyyyMMddHHmmssSSS>     each file of the one size that the geometry gives

The opening thread runs it once, before recovery. What has another name was not made by a store: it is left alone, with a
warning. A file of the right name and the wrong size is an error: it was written with another geometry, or it is cut. If it has
no entry it leads to nothing, and is left alone, too: a broker with another geometry makes it so, and was killed.
"""
import errno
import os
import re
from functools import partial

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import open_regular
from rmq_store.codec._layout import INDEX_AT_COUNT, INDEX_HEADER_SIZE
from rmq_store.codec.layout import get32
from rmq_store.errors import CorruptionError
from rmq_store.events import Event, emit
from rmq_store.queues.index._owner import IndexOwner

__all__ = ["has_nothing", "load_index"]

_PIECE = 1 << 20
_NAME = partial(re.fullmatch, r"[0-9]{17}")


def load_index(io: IoTable | None, path: str, tmp_path: str, slots: int, entries_max: int, readonly: bool) -> IndexOwner:
    """The index of the directory `path`, every file of it mapped; a missing directory holds none.

    tmp_path: where new files are made. slots, entries_max: the geometry (maxHashSlotNum, maxIndexNum).
    Raises CorruptionError (path, expected, found) for a file of another size, OSError where something cannot be read.
    """
    owner = IndexOwner(path, tmp_path, slots, entries_max, readonly, io)
    for name in _names(path):
        try:
            owner.add_file(name)
        except OSError as error:
            if not readonly or error.errno != errno.ENOENT:
                raise                       # else a writer in another process deleted it meanwhile
        except CorruptionError as error:
            if not has_nothing(str(error.path), readonly):
                raise
            if not readonly:
                emit(Event.FOREIGN_FILE_SKIPPED, file=str(error.path), reason="an index file of another size, without an entry")
    return owner


def has_nothing(path: str, by_header: bool = False) -> bool:
    """Whether an index file has no entry yet. by_header: whether its header says so; another process may write it. Raises
    OSError."""
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        header = file.read(INDEX_HEADER_SIZE)
        if len(header) < INDEX_HEADER_SIZE or get32(header, INDEX_AT_COUNT) not in (0, 1):
            return False
        try:
            while not by_header and (piece := os.pread(
                    file.fileno(), _PIECE, os.lseek(file.fileno(), file.tell(), os.SEEK_DATA))):
                if piece.count(0) < len(piece):
                    return False
                file.seek(len(piece), os.SEEK_CUR)
        except OSError as error:
            if error.errno != errno.ENXIO:      # only a hole follows
                raise
    return True


def _names(path: str) -> list[int]:
    found = []
    try:
        entries = os.scandir(path)
    except FileNotFoundError:
        return []
    with entries:
        for entry in entries:
            if not _NAME(entry.name):
                emit(Event.FOREIGN_FILE_SKIPPED, file=entry.path, reason="an index file has a name of 17 digits")
            elif not entry.is_file(follow_symlinks=False):
                emit(Event.FOREIGN_FILE_SKIPPED, file=entry.path, reason="it has the name of an index file and is none")
            else:
                found.append(int(entry.name))
    return sorted(found)
