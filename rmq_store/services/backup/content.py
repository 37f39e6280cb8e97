"""What a backup holds: a list of its files with their checksums, and the copying of a file so that it is on the device.

    <backup>/.backup.json      one line of JSON, one with its CRC-32C

A file's checksum is over its blocks that are not zero, each with its place: a hole and zeros are the same. Control plane.
"""
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import crc32c

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.errors import CorruptionError
from rmq_store.services.integrity.findings import SEVERITY, Finding

__all__ = ["LIST", "OTHER_BACKUP", "copy_file", "fingerprint", "read_list", "tree", "write_list", "wrong_files"]

JOURNALS = ".moving"       # how far copies into a store are
LIST = ".backup.json"
BLOCK, CHUNK = 64 << 10, 4 << 20
LIST_MAX = 1 << 30
OTHER_BACKUP = "choose another backup: `rmqstore restore DIR` lists them, and --backup NAME takes one"
NAMES = {"source", "made_ms", "begin", "end", "file_count", "copied_bytes", "linked_bytes", "files"}
FICLONE = 0x40049409
_ZEROS = bytes(BLOCK)


def copy_file(io: IoTable, source: str, target: str, stop: int | None = None,
              pace: Callable[[int], None] = lambda size: None) -> os.stat_result:
    """Makes `target` a copy of `source`, durable but for its name, with its times and mode; shared blocks where the file system
    can, holes where there are holes. stop: what lies from there on is left out, and zero. Returns what `source` was when it was
    opened. Raises FileNotFoundError, also where it is cut meanwhile; OSError."""
    files = ControlFiles(io)
    fd = files.open(source, os.O_RDONLY)
    try:
        about = os.fstat(fd)
        out = files.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            end = about.st_size if stop is None else min(stop, about.st_size)
            if end != about.st_size or not _clone(fd, out):
                _copy(io, fd, out, end, pace)
            files.truncate(out, about.st_size)
            if os.fstat(fd).st_size < about.st_size:
                raise FileNotFoundError(2, "was cut while it was copied", source)
            os.fchmod(out, about.st_mode & 0o777)
            os.utime(out, ns=(about.st_atime_ns, about.st_mtime_ns))
            files.sync(out)
        except OSError as error:
            error.filename = error.filename or target
            raise
        finally:
            files.close(out)
    finally:
        files.close(fd)
    return about


def _clone(fd: int, out: int) -> bool:
    try:
        fcntl.ioctl(out, FICLONE, fd)
    except OSError:             # another file system, or one that cannot: the bytes are copied
        return False
    return True


def _stretches(io: IoTable, fd: int, end: int, step: int) -> Iterator[tuple[int, int]]:
    """What lies in no hole below `end`, in pieces of CHUNK bytes at most that begin and end at multiples of `step` or at `end`.
    A queue of a few messages is a file of megabytes, and without its holes it would be read, and written, as such."""
    at = io.next_data(fd, 0) // step * step if end else 0
    while at < end:
        try:
            stop = os.lseek(fd, at, os.SEEK_HOLE)       # `at` itself is in a hole where the data begins behind it
            if stop <= at:
                stop = os.lseek(fd, io.next_data(fd, at), os.SEEK_HOLE)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENXIO):
                raise
            stop = end          # a file system that knows no holes, or a file that was cut meanwhile
        stop = min(-(-stop // step) * step, end)
        while at < stop:
            size = min(CHUNK, stop - at)
            yield at, size
            at += size
        at = max(at, io.next_data(fd, at) // step * step) if at < end else end


def _copy(io: IoTable, fd: int, out: int, end: int, pace: Callable[[int], None]) -> None:
    for at, size in _stretches(io, fd, end, 1):
        data = io.read_all(fd, size, at)
        io.write_all(out, data, at)
        pace(len(data))
        if len(data) < size:
            return


def fingerprint(io: IoTable, path: str) -> int:
    """The checksum of a file's content. Raises OSError."""
    files = ControlFiles(io)
    fd = files.open(path, os.O_RDONLY)
    crc = 0
    try:
        for at, size in _stretches(io, fd, os.fstat(fd).st_size, BLOCK):
            data = memoryview(io.read_all(fd, size, at))
            for i in range(0, len(data), BLOCK):
                block = data[i:i + BLOCK]
                if block != _ZEROS[:len(block)]:
                    crc = crc32c.crc32c(block, crc32c.crc32c((at + i).to_bytes(8, "big"), crc))
    finally:
        files.close(fd)
    return crc


def tree(root: str) -> list[str]:
    """The regular files under `root`, relative to it, without the list and what a store makes while it is open."""
    found = []
    for place, names, files in os.walk(root):
        if place == root:
            names[:] = [n for n in names if n != ".alloc"]
        names.sort()
        found += [os.path.relpath(os.path.join(place, name), root) for name in sorted(files)]
    return [name for name in found if name not in (LIST, "lock")]


def write_list(files: ControlFiles, root: str, content: dict[str, Any]) -> None:
    """Durable when it returns. Raises OSError."""
    line = json.dumps(content).encode() + b"\n"
    files.write_new(root, LIST, line + b"%08x\n" % crc32c.crc32c(line))


def read_list(root: str) -> dict[str, Any]:
    """Raises CorruptionError, FileNotFoundError where the directory holds no backup."""
    path = os.path.join(root, LIST)
    with open(path, "rb") as file:
        data = file.read(LIST_MAX)
    line, _, crc = data.partition(b"\n")
    with suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError):
        content = json.loads(line)
        if int(crc, 16) == crc32c.crc32c(line + b"\n") and _whole(content):
            return dict(content)
    error = CorruptionError(path, None, "the list of a backup's files", "something else")
    error.cure = OTHER_BACKUP
    raise error


def _whole(content: Any) -> bool:
    """Whether it is a list, and one of files in the backup."""
    files = content["files"]
    return (content.keys() == NAMES and all(type(content[name]) is int for name in NAMES - {"files", "source"})
            and isinstance(content["source"], str)
            and all(os.path.normpath(name) == name and not os.path.isabs(name) and name.partition("/")[0] not in ("", ".", "..")
                    and "\0" not in name and "source" in about
                    and all(type(about[k]) is int for k in ("size", "mtime_ns", "crc"))
                    for name, about in files.items()))


def wrong_files(io: IoTable, root: str, pace: Callable[[int], None] = lambda size: None) -> list[Finding]:
    """Holds each file of a backup against its list. Raises CorruptionError, FileNotFoundError, OSError."""
    known = read_list(root)["files"]
    found = []
    for name in sorted({*known, *tree(root)}):
        path, about = os.path.join(root, name), known.get(name)
        if about is None:
            found.append(_finding(path, "not on the list: the backup was opened for writing, or the file was added"))
        elif not os.path.isfile(path):
            found.append(_finding(path, "the file is missing"))
        elif os.path.getsize(path) != about["size"]:
            found.append(_finding(path, f"the file has {os.path.getsize(path)} bytes, but {about['size']} were written"))
        elif fingerprint(io, path) != about["crc"]:
            found.append(_finding(path, "the bytes of the file have changed"))
        pace(0 if about is None else about["size"])
    return found


def _finding(path: str, detail: str) -> Finding:
    return Finding("backup_file", SEVERITY["backup_file"], path, detail=detail)
