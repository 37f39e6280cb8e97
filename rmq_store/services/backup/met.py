"""A record of a log as somebody met it: its log offset, and the CRC-32 of its bytes, which has its store time, hosts and body.

Who comes again, in another run or on another machine, tells by it whether the log is the one that was read: a store that was
replaced under the same path has another record at that place. Reads files alone; any thread.
"""
import os
import zlib

from rmq_store.base.io.files import open_regular
from rmq_store.codec._layout import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_AT_MAGIC,
    RECORD_AT_PHYSICAL_OFFSET,
    RECORD_AT_SIZE,
    RECORD_FIXED_SIZE,
)
from rmq_store.codec.layout import get32, get64

__all__ = ["Met", "met", "met_at"]

Met = tuple[int, int]           # log offset, CRC-32 of the record

_CHUNK = 1 << 20


def met(offset: int, record: bytes) -> Met:
    """Of a whole record at this log offset."""
    return offset, zlib.crc32(record)


def met_at(path: str, start: int, offset: int) -> Met | None:
    """Of the record at `offset` in the file `path`, which begins at log offset `start`; None where no record of this place
    begins there. Raises OSError."""
    fd = open_regular(path)
    try:
        head = os.pread(fd, RECORD_FIXED_SIZE, offset - start)
        left = get32(head, RECORD_AT_SIZE)
        if (len(head) < RECORD_FIXED_SIZE or left < RECORD_FIXED_SIZE or left > os.fstat(fd).st_size - (offset - start)
                or get32(head, RECORD_AT_MAGIC) not in (MAGIC_V1, MAGIC_V2)
                or get64(head, RECORD_AT_PHYSICAL_OFFSET) != offset):
            return None
        crc, at = 0, offset - start
        while left > 0:
            piece = os.pread(fd, min(left, _CHUNK), at)
            if not piece:
                return None             # the file was cut meanwhile
            crc, at, left = zlib.crc32(piece, crc), at + len(piece), left - len(piece)
        return offset, crc
    finally:
        os.close(fd)
