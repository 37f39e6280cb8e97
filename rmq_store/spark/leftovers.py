"""Directories that tasks write in, closed to attempts that are late; and what of them is to last. Nobody waits at a pipe.

An attempt of a task may continue when its job is over: another attempt was faster (speculation), or the driver lost its
executor. The attempt works by path, so a directory that has another name is out of its reach: it fails, and nobody waits for it
any more. Any thread; POSIX file systems, also shared ones.
"""
import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["drop", "missing_here", "open_file", "sync", "work_directory"]

_UNIQUE = r"[0-9a-f]{32}"


@contextmanager
def work_directory(parent: str, name: str) -> Iterator[str]:
    """A directory <parent>/<name>-<unique> for one run of a job. What is worth keeping is moved out of it, or it is itself
    renamed; then it is removed, and so is what runs left there that died. Raises OSError."""
    os.makedirs(parent, exist_ok=True)
    for left in os.listdir(parent):
        if re.fullmatch(re.escape(name) + "-" + _UNIQUE, left):
            drop(os.path.join(parent, left))
    path = os.path.join(parent, f"{name}-{uuid.uuid4().hex}")
    os.mkdir(path)
    try:
        yield path
    finally:
        drop(path)


def open_file(path: str, flags: int) -> int:
    """An opener for what lies outside of stores, where links may be followed; what is no file is an OSError."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENXIO, "is not a regular file: move it away", path)
    return fd


def sync(path: str) -> None:
    """Has the device hold a file, or the names in a directory. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.fsync(fd)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from error
    finally:
        os.close(fd)


def drop(path: str) -> None:
    """Removes a directory tree that others may be writing in; nothing if it is not there. Raises OSError where it cannot be
    renamed; what cannot be deleted then (files that are open on NFS) is left to those who sweep later."""
    parent, name = os.path.split(path)
    unique = re.fullmatch(f"(.*?){_UNIQUE}", name)
    gone = os.path.join(parent, (unique[1] if unique else name + "-") + uuid.uuid4().hex)
    try:
        os.rename(path, gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)


def missing_here(error: FileNotFoundError) -> FileNotFoundError:
    """Of a task that writes where the driver made a directory: the same error with the cure."""
    return FileNotFoundError(2, "no such file or directory, where the driver made one: on a cluster the target has to be at "
                             "this path on every node (a late attempt at a task that is done also ends so)", error.filename)
