"""Records of a version of the format that this library does not know are no damage: they are told apart, and left alone."""
import os
from collections.abc import Callable

from rmq_store.codec._layout import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_AT_MAGIC,
    RECORD_AT_PHYSICAL_OFFSET,
    RECORD_AT_SIZE,
    RECORD_FIXED_SIZE,
    RECORD_PLACED_SIZE,
)
from rmq_store.codec.layout import get32, get64
from rmq_store.errors import UnknownVersion

__all__ = ["code_text", "other_version", "refusal"]

KNOWN = {MAGIC_V1: "version 1", MAGIC_V2: "version 2"}


def other_version(read: Callable[[int, int], bytes], at: int, end: int) -> int | None:
    """The magic code of the records that begin at log offset `at` of a file that ends at `end`, where that is an unknown one;
    None: there are none. Two of them, each at its own place, the second where the first one's size says: a single record of an
    unknown magic code is one of ours whose bits have rotted. read(begin, end): bytes of the log. Reads only."""
    magic = 0
    for _ in range(2):
        head = read(at, min(at + RECORD_PLACED_SIZE, end))      # size, magic code, its own log offset: so in every version
        if len(head) < RECORD_PLACED_SIZE:
            return None
        size, found, place = get32(head, RECORD_AT_SIZE), get32(head, RECORD_AT_MAGIC), get64(head, RECORD_AT_PHYSICAL_OFFSET)
        if found in KNOWN or found == 0 or found != (magic or found) or place != at:
            return None
        if not RECORD_FIXED_SIZE <= size <= end - at:
            return None
        magic, at = found, at + size
    return magic & 0xFFFFFFFF


def refusal(commitlog: str, start: int, offset: int, magic: int) -> UnknownVersion:
    """The error for records of magic code `magic` from log offset `offset` on, in the file that begins at `start`."""
    known = " or ".join(f"{code_text(code)} ({name})" for code, name in KNOWN.items())
    return UnknownVersion(os.path.join(commitlog, f"{start:020d}"), offset, f"records of magic code {known}",
                          f"records of magic code {code_text(magic)}, one behind the other")


def code_text(magic: int) -> str:
    """A magic code as RocketMQ's sources write it."""
    return f"0x{magic & 0xFFFFFFFF:08X}"
