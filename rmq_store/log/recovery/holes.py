"""What a log lacks of which files are not there, or have another length: where, which messages, and how many behind are whole.

Names, lengths and the entries of queues tell. Reads only. The opening thread, or that of a command.
"""
import os
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import open_regular
from rmq_store.base.machine.limits import descriptors_of_queues
from rmq_store.codec._codec import DecodedRecord, decode_record
from rmq_store.codec._layout import BLANK_SIZE, RECORD_AT_MAGIC, RECORD_AT_SIZE
from rmq_store.codec.layout import MAGIC_BYTES, get32
from rmq_store.config.load import Options
from rmq_store.errors import CorruptionError, StoreRefusesToLoad
from rmq_store.events import printable
from rmq_store.fields import NamedTuple
from rmq_store.log.recovery.places import Places
from rmq_store.log.recovery.recover import OFFSET_MAX
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue.loader import batch_dirs, load_batch_queues, load_queues

__all__ = ["LostRow", "explained", "lost_rows", "lost_stretches", "padded_looks_whole", "rows_text", "whole_end"]

_LIGHT = b"%LMQ%"
_WINDOW = 16 << 20          # of a file, looked at once for its last record
SHOWN = 8                   # rows in one line


class LostRow(NamedTuple):
    """Messages of one queue that lie in a lost part of the log: their queue offsets are [begin, end)."""

    topic: str
    queue_id: int
    begin: int
    end: int


def lost_stretches(places: Places, size: int) -> list[tuple[int, int]]:
    """The parts of the log, (begin, end), that its files do not have. Of the newest file all may be there that ever was."""
    log = {int(os.path.basename(path)): length for path, length in places.log_files()}
    starts = sorted(log)
    short = [(start + log[start], start + size) for start in starts[:-1] if log[start] < size]
    return sorted(short + [(a + size, b) for a, b in pairwise(starts) if b > a + size])


def whole_end(path: str, start: int, size: int) -> int:
    """Behind which byte of a cut file of the log its last whole record ends; 0: it has none; `size` of one that is whole. With
    zeros behind it, a record of which a part is lost may look whole: no checksum covers its properties. Raises OSError."""
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        if (length := os.fstat(file.fileno()).st_size) >= size:
            return size
        end = length
        while end > 0:
            begin = max(0, end - _WINDOW)
            data = os.pread(file.fileno(), min(length - begin, 2 * _WINDOW), begin)
            at = end - begin
            while (at := max(data.rfind(magic, 0, at) for magic in MAGIC_BYTES)) >= RECORD_AT_MAGIC:
                with suppress(CorruptionError):
                    record = decode_record(memoryview(data)[at - RECORD_AT_MAGIC:])
                    if isinstance(record, DecodedRecord) and record.physical_offset == start + begin + at - RECORD_AT_MAGIC:
                        return begin + at - RECORD_AT_MAGIC + record.size
            end = begin + RECORD_AT_MAGIC if begin else 0
    return 0


def padded_looks_whole(path: str, start: int, length: int, size: int) -> bool:
    """Whether zeros up to `size` make the file's last record, of which a part is lost, look whole. Raises OSError."""
    at = whole_end(path, start, size)
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        head = os.pread(file.fileno(), BLANK_SIZE, at)
        told = get32(head, RECORD_AT_SIZE) if len(head) == BLANK_SIZE else 0
        if not 0 < told <= size - at:
            return False
        data = os.pread(file.fileno(), min(told, length - at), at).ljust(told, b"\0")
    try:
        return isinstance(decode_record(data), DecodedRecord)
    except CorruptionError:
        return False


class _Queues:
    """The queues of a store, for looking up entries by the place to which they lead."""

    def __init__(self, places: Places, options: Options) -> None:
        bad: list[CorruptionError] = []         # such queues tell nothing
        self.table = QueueTableOwner(places.consumequeue, file_size=options.consumequeue_file_size_bytes, readonly=True,
                                     fd_max=descriptors_of_queues(16), io=IoTable())
        load_batch_queues(self.table, places.batchconsumequeue, options.batch_consumequeue_file_size_bytes,
                          batch_dirs(places.batchconsumequeue), bad.append)
        load_queues(self.table, bad.append)
        self.table.recover(True, OFFSET_MAX)

    def names(self) -> list[tuple[bytes, int]]:
        return self.table.queues()

    def first(self, name: tuple[bytes, int], offset: int) -> tuple[int, int]:
        """(queue offset of the first message that lies at log offset `offset` or behind it, or ends behind it; the end)."""
        def ends(index: int) -> int:
            entries = self.table.read(*name, index, 1)
            return entries[0][0] + entries[0][1] if entries else 0

        low, high, _ = self.table.offsets(*name)
        indexes = range(max(low, 0), max(high, 0))
        return (indexes.start + bisect_left(indexes, offset + 1, key=ends)), indexes.stop


def lost_rows(places: Places, options: Options, stretches: Iterable[tuple[int, int]]) -> list[LostRow]:
    """Which messages entries of queues lead into these parts of the log. Raises OSError."""
    rows: list[LostRow] = []
    wanted: list[tuple[int, int]] = []
    for begin, end in sorted(stretches):
        if wanted and begin <= wanted[-1][1]:       # one message may lie in both
            begin, end = wanted[-1][0], max(end, wanted.pop()[1])
        wanted.append((begin, end))
    queues = _Queues(places, options) if wanted else None
    for name in queues.names() if queues is not None else ():
        assert queues is not None
        for begin, end in wanted:
            first, stop = queues.first(name, begin)[0], queues.first(name, end)
            # The one that ends behind the stretch may begin in it.
            last = stop[0] + 1 if stop[0] < stop[1] and queues.table.read(*name, stop[0], 1)[0][0] < end else stop[0]
            if first < last:
                rows.append(LostRow(name[0].decode("utf-8", "surrogateescape"), name[1], first, last))
    return rows


def rows_text(rows: list[LostRow]) -> str:
    """The same for people, not all of many."""
    shown = ", ".join(f"{row.topic}/{row.queue_id} {row.begin} to {row.end - 1}" for row in rows[:SHOWN])
    return printable(shown) + (f" and {len(rows) - SHOWN} more rows" if len(rows) > SHOWN else "")


def explained(error: StoreRefusesToLoad, places: Places, options: Options) -> None:
    """Adds to `error`, which is of a file that is not there or has another length, what is whole behind it, and both cures."""
    if error.offset is None:
        return                  # no part of the log is lost: something stands in a file's place
    name = os.path.basename(str(error.path))
    start = int(name) if len(name) == 20 and name.isdecimal() else error.offset
    log = [(int(os.path.basename(path)), length) for path, length in places.log_files()]
    behind = min((begin for begin, length in log if begin > start and length == options.segment_size_bytes), default=None)
    if behind is None:
        return                  # nothing is behind it that fits the options
    try:
        queues = _Queues(places, options)
        count = sum(stop - first for name, (first, stop) in ((name, queues.first(name, behind)) for name in queues.names())
                    if not name[0].startswith(_LIGHT))
        whole = f"queues lead to {count} messages"
    except (OSError, CorruptionError):
        whole = "there are files"
    error.cure = (f"{whole} behind that, from log offset {behind} on: `--skip-holes` of get, export, copy and readback "
                  f"(readonly=True with skip_holes=True) reads these, and `rmqstore repair {places.root}` puts tombstones in "
                  f"place of lost messages; {error.cure}")
