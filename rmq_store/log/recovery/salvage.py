"""Copies of what a store takes away, under STORE/.salvage/: made before it goes, and never one in the place of another.

The opening thread, or repair's. Durable when `keep` returns.
"""
import os
import re
from collections.abc import Callable

from rmq_store.base.io.files import ControlFiles, open_regular

__all__ = ["DIRECTORY", "keep", "keep_stretch", "offset_of"]

DIRECTORY = ".salvage"
_PIECE = 4 << 20
_NAME = r"([0-9]{20})(\.[0-9]+)?"


def keep(files: ControlFiles, root: str, name: str, data: bytes) -> str:
    """Writes `data` to .salvage/<name>, or, where other bytes have that name, to <name>.2, .3 ...; where the same bytes have it
    they stay. Returns the path. Raises OSError."""
    return keep_stretch(files, root, name, lambda begin, end: data[begin:end], lambda begin, end: begin, (0, len(data)))


def keep_stretch(files: ControlFiles, root: str, name: str, read: Callable[[int, int], bytes],
                 next_data: Callable[[int, int], int], stretch: tuple[int, int]) -> str:
    """`keep` for a stretch, begin and end, of what `read` reads, that may be long: piece by piece, and a hole stays one.
    next_data(begin, end): where the next one that is none begins."""
    begin, end = stretch
    directory = os.path.join(root, DIRECTORY)
    if files.mkdir(directory):
        files.sync_dir(root)
    tmp = os.path.join(directory, name + ".tmp")
    fd = files.open(tmp, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        at = next_data(begin, end)
        while at < end:
            piece = min(at + _PIECE, end)
            files.write(fd, at - begin, read(at, piece))
            at = next_data(piece, end) if piece < end else end
        files.truncate(fd, end - begin)
        files.sync(fd)
    except BaseException:
        files.unlink(tmp)           # on a full disk it holds what little there was
        raise
    finally:
        files.close(fd)
    number = 1
    while os.path.lexists(path := os.path.join(directory, name if number == 1 else f"{name}.{number}")):
        if _same(path, tmp):
            files.unlink(tmp)
            files.sync_dir(directory)       # who made that copy may have died before
            return path
        number += 1
    files.rename(tmp, path)
    files.sync_dir(directory)
    return path


def offset_of(name: str) -> int | None:
    """The log offset of what recovery kept under this name; None for another name."""
    match = re.fullmatch(_NAME, name)
    return int(match[1]) if match else None


def _same(path: str, other: str) -> bool:
    if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) != os.path.getsize(other):
        return False
    with open(path, "rb", opener=open_regular) as a, open(other, "rb", opener=open_regular) as b:
        while piece := a.read(_PIECE):
            if piece != b.read(_PIECE):
                return False
    return True
