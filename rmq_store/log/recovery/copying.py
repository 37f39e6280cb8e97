"""A copy of the files of a store, made by reading alone: holes stay holes, and times stay, which cleaning and 4.9's search by
time go by. For a store that nobody writes. One thread.
"""
import errno
import os
import shutil

from rmq_store.base.io.files import open_regular
from rmq_store.log.recovery.places import Places

__all__ = ["copy_store"]

_CHUNK = 64 << 20


def copy_store(places: Places, to: str) -> None:
    """Copies what a store is read from to the directory `to`, under the usual names, wherever its parts lie. Raises OSError,
    also for what is no file where a store has one."""
    parts = {"consumequeue": places.consumequeue, "consumequeue_ext": places.consumequeue_ext,
             "index": places.index, "config": os.path.join(places.root, "config"), "checkpoint": places.checkpoint,
             "abort": places.abort}
    for name, source in (*(("commitlog", path) for path in places.commitlogs), *parts.items()):
        target = os.path.join(to, name)
        if os.path.isdir(source):
            shutil.copytree(source, target, symlinks=True, copy_function=_copy, dirs_exist_ok=name == "commitlog")
        elif os.path.lexists(source):
            _copy(source, target)


def _copy(source: str, target: str) -> str:
    fd = open_regular(source)
    try:
        size = os.fstat(fd).st_size
        out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            at = _data(fd, 0, size)
            while at < size:
                end = min(os.lseek(fd, at, os.SEEK_HOLE), at + _CHUNK)
                os.lseek(out, at, os.SEEK_SET)
                while at < end and (sent := os.sendfile(out, fd, at, end - at)) > 0:
                    at += sent
                at = _data(fd, at, size) if at == end else size     # it has become shorter
            os.ftruncate(out, size)
        except OSError as error:
            error.filename = target
            raise
        finally:
            os.close(out)
    finally:
        os.close(fd)
    shutil.copystat(source, target)
    return target


def _data(fd: int, at: int, size: int) -> int:
    """The first position from `at` on that is in no hole; `size`: none."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size             # a hole up to the end
