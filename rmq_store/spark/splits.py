"""Planning: which parts of which files a read takes. Lists and stats files; the first record's time only for a time range."""
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rmq_store.services.backup.met import Met
from rmq_store.spark.identity import last_before
from rmq_store.spark.options import TOP, ReadOptions
from rmq_store.spark.stores import Broker, LogFile, log_files

__all__ = ["Piece", "in_time", "pack", "pieces_of", "plan", "with_end"]


@dataclass(frozen=True)
class Piece:
    """The records of one file whose first byte lies in log offsets [begin, end). aligned: a record begins at `begin`.

    head, last: the file's first record, and the last one before `end`, as the planner met them; last: of a log's last piece.
    full: the log had records up to `end`.
    """

    broker: str
    path: str
    start: int
    begin: int
    end: int
    newest: bool
    aligned: bool = False
    head: Met | None = None
    last: Met | None = None
    full: bool = False

    @property
    def size(self) -> int:
        return self.end - self.begin


def plan(options: ReadOptions, ends: Mapping[str, int] | None = None) -> list[tuple[Piece, ...]]:
    """The partitions of a batch read of the log; small files share one. At least one partition, which may be empty.

    ends: broker -> log offset that the read goes up to; None: as far as the logs go when they are read.
    """
    pieces: list[Piece] = []
    size = options.split_size
    ranges = []
    for broker in options.brokers:
        files = in_time(log_files(broker, options.on_corrupt != "fail"), options)
        low = options.starting_physical_offset or 0
        high = TOP if options.ending_physical_offset is None else options.ending_physical_offset
        ranges.append((broker, files, low, high if ends is None else min(high, ends[broker.name])))
    if options.min_partitions is not None:
        total = sum(max(0, min(f.end, high) - max(f.start, low)) for _, files, low, high in ranges for f in files)
        size = max(1, min(size, -(-total // options.min_partitions)))
    for broker, files, low, high in ranges:
        found = pieces_of(broker, files, low, high, size)
        if ends is not None:
            at_end = bool(found) and found[-1].end == ends[broker.name]
            found = with_end(found, last_before(broker, files, ends[broker.name], options.io != "pread") if at_end else None)
        pieces += found
    return pack(pieces, size) or [()]


def in_time(files: list[LogFile], options: ReadOptions) -> list[LogFile]:
    """Files that may hold records of the wanted times. storeTimestamp never falls inside a log."""
    low, high = options.starting_timestamp, options.ending_timestamp
    if low is None and high is None:
        return files
    times = [f.first_time() for f in files]
    found = []
    for i, file in enumerate(files):
        begins = times[i]
        ends = times[i + 1] if i + 1 < len(files) else None
        if low is not None and ends is not None and ends < low:
            continue
        if high is not None and begins is not None and begins >= high:
            continue
        found.append(file)
    return found


def pieces_of(broker: Broker, files: list[LogFile], low: int, high: int, size: int, aligned: bool = False) -> list[Piece]:
    """Log offsets [low, high) of a store cut at file ends and every `size` bytes. aligned: a record begins at `low`."""
    found = []
    for file in files:
        begin, end = max(low, file.start), min(high, file.end)
        head = file.head() if begin < end else None
        while begin < end:
            cut = min(end, file.start + ((begin - file.start) // size + 1) * size)
            found.append(Piece(broker.name, file.path, file.start, begin, cut, file.newest, aligned and begin == low, head))
            begin = cut
    return found


def with_end(pieces: list[Piece], last: Met | None) -> list[Piece]:
    """Pieces of one log that had records up to their ends. last: the record before the last of these."""
    full = [replace(piece, full=True) for piece in pieces]
    return [*full[:-1], replace(full[-1], last=last)] if full else []


def pack(pieces: list[Piece], size: int) -> list[tuple[Piece, ...]]:
    """Pieces in order, several small ones together up to `size` bytes."""
    parts: list[tuple[Piece, ...]] = []
    part: list[Piece] = []
    room = size
    for piece in pieces:
        if part and piece.size > room:
            parts.append(tuple(part))
            part, room = [], size
        part.append(piece)
        room -= piece.size
    if part:
        parts.append(tuple(part))
    return parts
