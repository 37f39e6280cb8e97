"""Copies of what a store takes away, under STORE/.salvage/: made before it goes, and never one in the place of another.

The opening thread, or repair's. Durable when `keep` returns.
"""
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.errors import StoreRefusesToLoad

__all__ = ["DIRECTORY", "UNDOING", "keep", "keep_directories", "keep_stretch", "offset_of", "refuse_undoing"]

DIRECTORY = ".salvage"
UNDOING = ".undoing"           # behind the name of a repair's journal, while an undo of that repair is under way
_PIECE = 4 << 20
_NAME = r"([0-9]{20})(\.[0-9]+)?"


def refuse_undoing(root: str) -> None:
    """For every writer but the undo itself, which takes back whole files of the log, with what is put into them meanwhile.
    Raises StoreRefusesToLoad where an undo of a repair (services/integrity/undoing.py) was broken off."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(os.path.join(root, DIRECTORY)):
            if name.endswith(UNDOING):
                error = StoreRefusesToLoad(os.path.join(root, DIRECTORY, name), None, "no undo of a repair under way",
                                           "one that was broken off")
                error.cure = ("nothing was changed: finish the undo with "
                              f"`rmqstore repair --undo {root}`, then open the store; readonly=True reads what is there")
                raise error


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


def keep_directories(files: ControlFiles, root: str, name: str, directories: Iterable[str]) -> str | None:
    """Copies the files of `directories` to .salvage/<name>/, each directory under its own last name, before they are removed.
    Where a copy with the same files has that name it stays; where another one has it, this one is <name>.2, .3 ... Returns its
    path; None, and nothing is made, where no directory has a file. Raises OSError."""
    found = [(base, path) for base in directories for path in _files_of(base)]
    if not found:
        return None
    parent = os.path.join(root, DIRECTORY)
    if files.mkdir(parent):
        files.sync_dir(root)
    tmp = os.path.join(parent, name + ".tmp")
    _remove(files, tmp)             # of an open that was broken off
    try:
        made = {tmp}
        for base, path in found:
            target = os.path.join(tmp, os.path.basename(base), os.path.relpath(path, base))
            directory = os.path.dirname(target)
            files.make_dirs(directory)
            made.add(directory)
            _copy(files, path, target)
        for directory in sorted(made, reverse=True):
            files.sync_dir(directory)
    except BaseException:
        _remove(files, tmp)         # on a full disk it holds what little there was
        raise
    number = 1
    while os.path.lexists(copy := os.path.join(parent, name if number == 1 else f"{name}.{number}")):
        if _same_files(copy, tmp):
            _remove(files, tmp)
            files.sync_dir(parent)
            return copy
        number += 1
    files.rename(tmp, copy)
    files.sync_dir(parent)
    return copy


def _files_of(directory: str) -> list[str]:
    return sorted(os.path.join(parent, name) for parent, _, names in os.walk(directory) for name in names
                  if not os.path.islink(path := os.path.join(parent, name)) and os.path.isfile(path))


def _copy(files: ControlFiles, source: str, target: str) -> None:
    """The whole file, durable; a hole stays one."""
    fd = files.open(source, os.O_RDONLY)
    try:
        size, at = files.table.size(fd), 0
        out = files.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            while (at := files.table.next_data(fd, at) if at < size else size) < size:
                piece = files.read(fd, at, min(_PIECE, size - at))
                if not piece:
                    break               # it has become shorter
                files.write(out, at, piece)
                at += len(piece)
            files.truncate(out, size)
            files.sync(out)
        finally:
            files.close(out)
    finally:
        files.close(fd)


def _same_files(directory: str, other: str) -> bool:
    mine, theirs = _files_of(directory), _files_of(other)
    return ([os.path.relpath(path, directory) for path in mine] == [os.path.relpath(path, other) for path in theirs]
            and all(_same(a, b) for a, b in zip(mine, theirs, strict=True)))


def _remove(files: ControlFiles, directory: str) -> None:
    """A copy that is not needed, if there is one. Deepest first."""
    for parent, _, names in os.walk(directory, topdown=False):
        for name in names:
            files.unlink(os.path.join(parent, name))
        files.table.rmdir(parent)


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
