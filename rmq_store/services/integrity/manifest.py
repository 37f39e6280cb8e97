"""Manifests: checksums of the blocks of a sealed commit-log file, beside the store where RocketMQ does not look.

    <root>/.manifest/<20 digits>        for commitlog/<20 digits>; all numbers big-endian

    0   magic "RMQM"           4        28  block size             4
    4   version, 1             4        32  blocks                 4
    8   log offset of the file 8        36  time of its making, ms 8
    16  size of the file       8        44  CRC-32C of each block  4 each
    24  reserved, 0            4        …   CRC-32C of all before  4

RocketMQ has a CRC over bodies alone: headers, topics and properties rot unseen. A file is sealed when all of it is on the
device; from then on nothing in it changes. Control plane; any thread, one writer a store.
"""
import errno
import os
import re
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.machinery import PathFinder

from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.errors import CorruptionError
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.log.recovery.places import MANIFESTS

__all__ = ["DIRECTORY", "Manifest", "compare", "drop", "drop_stale", "listed", "make", "path_of", "read", "refuse_link",
           "write"]

DIRECTORY = MANIFESTS
BLOCK_SIZE = 64 << 10
CHUNK = 4 << 20                 # read at once: some milliseconds
_HEAD = struct.Struct(">4sIqqIIIq")
LONGEST = (1 << 31) // BLOCK_SIZE * 4 * 16 + _HEAD.size      # bytes of a manifest that are looked at
_MAGIC, _VERSION = b"RMQM", 1
_NAME = partial(re.fullmatch, r"[0-9]{20}")

Read = Callable[[int, int], bytes]      # (position, size) -> bytes, fewer only at the end of the file
Pace = Callable[[int], None]            # told the bytes just looked at; may wait, may raise


class Manifest(NamedTuple):
    """What one file held when it was sealed."""

    start: int              # log offset of the file
    size: int
    block_size: int
    made_ms: int
    sums: "array[int]"      # CRC-32C of each block


def path_of(root: str, start: int) -> str:
    """Where the manifest of the commit-log file at `start` lies."""
    return os.path.join(root, DIRECTORY, f"{start:020d}")


def refuse_link(root: str) -> None:
    """Raises OSError where the directory is a link: what lies behind one is not the store's, and none of it is written, deleted
    or believed."""
    directory = os.path.join(root, DIRECTORY)
    if os.path.islink(directory):
        raise OSError(errno.ELOOP, "is a symbolic link, and manifests are deleted now and then: remove it", directory)


def listed(root: str) -> list[int]:
    """Starts of the files that have a manifest, ascending; none behind a link."""
    if os.path.islink(os.path.join(root, DIRECTORY)):
        return []
    try:
        return sorted(int(name) for name in os.listdir(os.path.join(root, DIRECTORY)) if name.isascii() and _NAME(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


@cache
def crc32c_function() -> Callable[[bytes | memoryview], int]:
    """crc32c of the package of that name. Its extension is loaded alone: the package asks for its own version, and loads for
    that what reads mail and archives, which takes longer than the open of a store."""
    package = None if "crc32c" in sys.modules else PathFinder.find_spec("crc32c")
    found = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if found and found.loader:
        module = found.loader.create_module(found)
        if module is not None:
            found.loader.exec_module(module)
            return module.crc32c        # type: ignore[no-any-return]
    from crc32c import crc32c  # it is there already, or a release keeps it elsewhere

    return crc32c


def _crc32c(data: bytes | memoryview) -> int:
    return crc32c_function()(data)


def _sums(read: Read, size: int, block_size: int, pace: Pace) -> Iterator[tuple[int, int]]:
    """(position, CRC-32C) of each block."""
    step = max(CHUNK // block_size, 1) * block_size
    for at in range(0, size, step):
        data = memoryview(read(at, min(step, size - at)))
        for i in range(0, len(data), block_size):
            yield at + i, _crc32c(data[i:i + block_size])
        if len(data) < min(step, size - at):
            return
        pace(len(data))


def make(read: Read, start: int, size: int, pace: Pace) -> Manifest:
    """The manifest of what `read` gives now."""
    sums = array("I", (crc for _, crc in _sums(read, size, BLOCK_SIZE, pace)))
    return Manifest(start, size, BLOCK_SIZE, time.time_ns() // 1_000_000, sums)


def write(files: ControlFiles, root: str, manifest: Manifest) -> None:
    """Puts it beside the store, whole or not at all. Raises OSError."""
    refuse_link(root)
    directory = os.path.join(root, DIRECTORY)
    if files.mkdir(directory):
        files.sync_dir(root)
    data = _HEAD.pack(_MAGIC, _VERSION, manifest.start, manifest.size, 0, manifest.block_size, len(manifest.sums),
                      manifest.made_ms) + struct.pack(f">{len(manifest.sums)}I", *manifest.sums)
    files.write_new(directory, f"{manifest.start:020d}", data + struct.pack(">I", _crc32c(data)))


def read(root: str, start: int) -> Manifest | None:
    """The manifest of the file at `start`; None where there is none. Raises CorruptionError for one that is damaged itself."""
    path = path_of(root, start)
    if os.path.islink(os.path.dirname(path)):
        return None
    try:
        with open(path, "rb", opener=open_regular) as f:
            data = f.read(LONGEST)
    except FileNotFoundError:
        return None
    if len(data) < _HEAD.size + 4 or data[:4] != _MAGIC:
        raise CorruptionError(path, 0, "a manifest", f"{len(data)} bytes that are none")
    if _crc32c(data[:-4]) != struct.unpack(">I", data[-4:])[0]:
        raise CorruptionError(path, None, "the checksum at its end", "another one")
    _, version, begin, size, _, block_size, count, made_ms = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptionError(path, 4, f"version {_VERSION}", f"version {version}")
    if (begin != start or block_size < 1 or size < 1 or count != -(-size // block_size)
            or len(data) != _HEAD.size + 4 * count + 4):
        raise CorruptionError(path, 8, f"a manifest of the file at {start}", f"one of {begin}, {size} bytes in {count} blocks")
    return Manifest(begin, size, block_size, made_ms, array("I", struct.unpack_from(f">{count}I", data, _HEAD.size)))


def compare(manifest: Manifest, read_at: Read, pace: Pace) -> Iterator[tuple[int, int, int, int]]:
    """(position, size, CRC-32C expected, found) of each block of the file that is not as it was."""
    count = 0
    for (at, found), expected in zip(_sums(read_at, manifest.size, manifest.block_size, pace), manifest.sums, strict=False):
        count += 1
        if found != expected:
            yield at, min(manifest.block_size, manifest.size - at), expected, found
    if count < len(manifest.sums):
        at = count * manifest.block_size
        yield at, manifest.size - at, manifest.sums[count], 0


def drop(files: ControlFiles, root: str, keep: Callable[[int, int], bool]) -> int:
    """Removes manifests for which keep(start, size) says no, damaged ones too. Returns how many. A size of 0: damaged."""
    dropped = 0
    for start in listed(root):
        try:
            manifest = read(root, start)
        except CorruptionError:
            manifest = None
        if manifest is None or not keep(start, manifest.size):
            with suppress(FileNotFoundError):       # cleaning, or the sealer, was first
                files.unlink(path_of(root, start))
            dropped += 1
    if dropped:
        files.sync_dir(os.path.join(root, DIRECTORY))
    return dropped


def drop_stale(files: ControlFiles, root: str, end: int) -> None:
    """Before a store is written: what lies at or behind the log's end is no sealed file any more. Raises OSError."""
    directory = os.path.join(root, DIRECTORY)
    if os.path.islink(directory):
        emit(Event.FOREIGN_FILE_SKIPPED, file=directory, reason="a link, what is behind it is not the store's")
        return
    if not os.path.isdir(directory):
        return
    count = drop(files, root, lambda start, size: start + size <= end)
    if count:
        emit(Event.MANIFESTS_DROPPED, path=root, count=count, offset=end)
