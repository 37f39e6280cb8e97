"""The number of hash slots of an index file, which is written nowhere in it. Read-only; any thread.

It is the one for which the last entry leads to the record that the header calls the last, and every slot leads to an entry
whose hash belongs there; the last entry is the one that its slot leads to. Files are read, not mapped: somebody may cut them
meanwhile. A writer in another process may add entries: then slots lead beyond the last one, and back to it by the chain.
"""
import errno
import os
import struct
from collections.abc import Callable, Iterator

from rmq_store.codec._layout import (
    ENTRY_AT_KEY_HASH,
    ENTRY_AT_PHYSICAL_OFFSET,
    ENTRY_AT_PREVIOUS,
    INDEX_AT_COUNT,
    INDEX_AT_END_PHYSICAL,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_SLOT_SIZE,
)
from rmq_store.codec.layout import get32, get64

__all__ = ["find_geometry", "geometry_of"]

Read = Callable[[int, int], bytes]      # (position, size) -> bytes, fewer at the end of the file

_ENTRY = struct.Struct(">iqii")
_CHUNK, _MARGIN = 1 << 20, 64
_CHECKED_SLOTS, _CHECKED_ENTRIES = 4096, 256
_LOOKS = 1000               # while a writer adds entries faster than the header is read


def geometry_of(fd: int) -> tuple[int, int] | None:
    """find_geometry of the open file behind `fd`; its holes are not read."""
    def data(at: int) -> int:
        try:
            return os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return size                 # only a hole follows

    size = os.fstat(fd).st_size
    for _ in range(_LOOKS):
        header = os.pread(fd, INDEX_HEADER_SIZE, 0)
        if found := find_geometry(lambda at, n: os.pread(fd, n, at), size, data):
            return found
        if os.pread(fd, INDEX_HEADER_SIZE, 0) == header:
            break
    return None


def find_geometry(read: Read, size: int, data: Callable[[int], int] = lambda at: at) -> tuple[int, int] | None:
    """(hash slots, entries) of an index file of `size` bytes; None where it has no entry yet or no geometry fits.

    data(at): where the first bytes at or behind `at` are that are no hole.
    """
    header = read(0, INDEX_HEADER_SIZE)
    if len(header) < INDEX_HEADER_SIZE:
        return None
    last = get32(header, INDEX_AT_COUNT) - 1
    if last < 1:
        return None
    for at in _places(read, size, header[INDEX_AT_END_PHYSICAL:INDEX_AT_END_PHYSICAL + 8], data):
        slots, rest = divmod(at - ENTRY_AT_PHYSICAL_OFFSET - INDEX_ENTRY_SIZE * last - INDEX_HEADER_SIZE, INDEX_SLOT_SIZE)
        entries, odd = divmod(size - INDEX_HEADER_SIZE - INDEX_SLOT_SIZE * slots, INDEX_ENTRY_SIZE)
        if slots > 0 and rest == odd == 0 and last < entries and _fits(read, slots, entries, last, header):
            return slots, entries
    return None


def _places(read: Read, size: int, text: bytes, data: Callable[[int], int]) -> Iterator[int]:
    """Positions behind the header where `text` stands, some of them twice. Holes are left out but for _MARGIN at their ends:
    the entry that `text` is of has other bytes beside it."""
    start = data(INDEX_HEADER_SIZE)
    while start < size:
        chunk = read(start, _CHUNK + _MARGIN)
        at = chunk.find(text)
        while at >= 0:
            yield start + at
            at = chunk.find(text, at + 1)
        start = max(start + _CHUNK, data(start + _CHUNK) - _MARGIN)


def _fits(read: Read, slots: int, count: int, last: int, header: bytes) -> bool:
    """Whether the first slots are empty or lead to an entry of theirs, and the first entries are possible ones."""
    entries = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slots
    # One may not be counted yet; no more than fit.
    newest = min(max(last, get32(read(0, INDEX_HEADER_SIZE), INDEX_AT_COUNT)), count - 1)
    key_hash = get32(read(entries + INDEX_ENTRY_SIZE * last + ENTRY_AT_KEY_HASH, 4), 0)
    if key_hash < 0:
        return False
    n = get32(read(INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * (key_hash % slots), 4), 0)
    while last < n <= newest:               # added since the header was read
        newest, n = n - 1, get32(read(entries + INDEX_ENTRY_SIZE * n + ENTRY_AT_PREVIOUS, 4), 0)
    if n != last:
        return False            # first, as zeros are almost everywhere
    raw = read(INDEX_HEADER_SIZE, min(slots, _CHECKED_SLOTS) * INDEX_SLOT_SIZE)
    for slot, (n,) in enumerate(struct.iter_unpack(">i", raw)):
        if not 0 <= n <= newest:
            return False
        if n and get32(read(entries + INDEX_ENTRY_SIZE * n + ENTRY_AT_KEY_HASH, 4), 0) % slots != slot:
            return False
    end = get64(header, INDEX_AT_END_PHYSICAL)
    raw = read(entries + INDEX_ENTRY_SIZE, min(last, _CHECKED_ENTRIES) * INDEX_ENTRY_SIZE)
    return all(key_hash >= 0 and 0 <= offset <= end and 0 <= previous <= n
               for n, (key_hash, offset, _, previous) in enumerate(_ENTRY.iter_unpack(raw)))
