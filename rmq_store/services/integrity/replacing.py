"""A file of the log made anew with some bytes changed, to be put in the place of the old one. Control plane; one thread."""
import os
from collections.abc import Iterable

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles

__all__ = ["copy_with"]

CHUNK = 4 << 20


def copy_with(io: IoTable, old: str, new: str, parts: Iterable[tuple[int, bytes]], *, sparse: bool = False) -> None:
    """Makes `new` a copy of `old` with other bytes at these positions: reserved, or sparse, synced, with its times, owner and
    mode.

    Raises OSError, and then leaves no `new`.
    """
    files = ControlFiles(io)
    source = files.open(old, os.O_RDONLY)
    try:
        about = os.fstat(source)
        to = files.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            os.fchmod(to, about.st_mode & 0o7777)
            os.fchown(to, about.st_uid, about.st_gid)
            if sparse or about.st_size == 0:
                files.truncate(to, about.st_size)
            else:
                io.fallocate(to, 0, about.st_size)
            at = io.next_data(source, 0) if about.st_size else 0
            while at < about.st_size:
                files.write(to, at, files.read(source, at, CHUNK))
                at = io.next_data(source, at + CHUNK) if at + CHUNK < about.st_size else about.st_size
            for position, data in parts:
                files.write(to, position, data)
            os.utime(to, ns=(about.st_atime_ns, about.st_mtime_ns))      # cleaning goes by it
            files.sync(to)
        except BaseException:
            files.unlink(new)
            raise
        finally:
            files.close(to)
    finally:
        files.close(source)
