"""Verification of the timer log: the units that config/timercheck counts. Reads only; beside a writer, too, which only appends
behind them and deletes files from the first one on."""
import os
import struct
import zlib
from collections.abc import Iterator

from rmq_store.base.io.files import ControlFiles
from rmq_store.errors import CorruptionError
from rmq_store.services.integrity.findings import SEVERITY, Finding
from rmq_store.services.timer.service import load_check, log_starts

__all__ = ["timer_findings"]

UNIT = struct.Struct(">iqiqiqiiQ")
SEALED, SEAL = UNIT.size - 8, 0x554E4954    # bytes that the checksum in the last 8 covers; what stands before it there
TAIL = 16                                   # of a file: room for a blank
CURE = "the next open for writing copies and cuts the timer log there, and takes the messages from their queue again"
_PIECE = UNIT.size * 20_000


def timer_findings(files: ControlFiles, root: str) -> Iterator[Finding]:
    """The first unit of the timer log that is damaged or missing, if there is one. Raises OSError."""
    directory = os.path.join(root, "timerlog")
    try:
        end = load_check(root)[1]
    except CorruptionError as error:
        yield Finding("config_file", SEVERITY["config_file"], str(error.path), expected=error.expected, found=error.found,
                      detail="the store does not open for writing: move the file away, and timer messages that were delivered "
                      "already may be delivered again")
        return
    starts = log_starts(directory)
    size = _file_size(directory, starts)
    position = starts[0] if starts else 0
    for start in starts:
        path = os.path.join(directory, f"{start:020d}")
        if start == position < end:
            try:
                position = _first_bad(files, path, start, size, end)
            except FileNotFoundError:
                position = start + size     # deleted since it was listed: no message needs it
            except OSError as error:
                yield Finding("timer_unit", SEVERITY["timer_unit"], path, offset=start, size=end - start, detail=str(error))
                return
            if position < min(start + size, end):
                yield Finding("timer_unit", SEVERITY["timer_unit"], path, offset=position, size=end - position,
                              detail=f"no good unit is there, and config/timercheck counts units up to {end}: {CURE}")
                return
    if position < end:
        yield Finding("timer_unit", SEVERITY["timer_unit"], directory, offset=position, size=end - position,
                      detail=f"a file is missing, and config/timercheck counts units up to {end}: if it is the last, {CURE}")


def _file_size(directory: str, starts: list[int]) -> int:
    """All files have one size. The first one's length says it where there is no other."""
    if len(starts) > 1:
        return starts[1] - starts[0]
    try:
        return os.stat(os.path.join(directory, f"{starts[0]:020d}")).st_size if starts else 0
    except FileNotFoundError:
        return 0


def _first_bad(files: ControlFiles, path: str, start: int, size: int, end: int) -> int:
    """Position of the first unit of this file that is not good; the end of the file, or `end`, where all are."""
    fd = files.open(path, os.O_RDONLY)
    try:
        room = min((size - TAIL) // UNIT.size * UNIT.size, end - start)
        for at in range(0, room, _PIECE):
            want = min(_PIECE, room - at) // UNIT.size * UNIT.size
            piece = files.read(fd, at, want)
            for n in range(0, len(piece) - UNIT.size + 1, UNIT.size):
                if not _good(piece[n:n + UNIT.size], start + at + n):
                    return start + at + n
            if len(piece) < want:
                return start + at + len(piece) // UNIT.size * UNIT.size
        return start + size
    finally:
        files.close(fd)


def _good(unit: bytes, position: int) -> bool:
    """As the open judges it. A broker's unit has no checksum, but 0."""
    length, before, magic, entered, delay, physical, size, _, seal = UNIT.unpack(unit)
    return bool(length == UNIT.size and before < position and magic & 1 == 1 and 0 <= magic < 8 and entered > 0
                and delay > -86_400_000 and physical >= 0 and size > 0
                and (seal == 0 or seal == SEAL << 32 | zlib.crc32(unit[:SEALED]) & 0x7FFFFFFF))
