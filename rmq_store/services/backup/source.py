"""The log of a store that messages are copied from: its records as they lie there, block by block. Reads files alone.

Nothing is locked, made or written, nor mapped, as what a failing disk does not give would be a SIGBUS; so the store may be live
or dead, ours or a broker's. Where its log is damaged and good records follow, it is not copied as if they were not there:
CorruptionError. Control plane; one thread.
"""
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from rmq_store.access.bulk._columns import Split
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.config.load import Options
from rmq_store.errors import CorruptionError, StoreRefusesToLoad
from rmq_store.log.recovery import checkpoint
from rmq_store.log.recovery.directories import files_missing, known_end, look_for_directories, missing_end
from rmq_store.log.recovery.holes import LostRow, explained, lost_rows, lost_stretches
from rmq_store.log.recovery.places import Places
from rmq_store.log.recovery.recover import load_names
from rmq_store.log.recovery.versions import other_version, refusal
from rmq_store.services.integrity.choosing import chosen_options, told_since

__all__ = ["Block", "LogPart", "Source", "parts_of"]

ROWS, BYTES = 8192, 4 << 20
COLUMNS = ("physicalOffset", "storeSize", "sysFlag", "queueId", "queueOffset", "topic")


@dataclass(frozen=True)
class LogPart:
    """One file of a log: log offset of its first byte, and whether nothing was written behind it. length: bytes that are left
    of it, where it is read all the same."""

    path: str
    start: int
    size: int
    newest: bool
    length: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass
class Block:
    """Some records in a row: their bytes, and what is to be known of each."""

    end: int                        # log offset up to which the walk has come
    data: bytes                     # from `begin` on, with what may lie between them
    begin: int
    offsets: "memoryview[int]"      # log offsets
    sizes: "memoryview[int]"
    flags: "memoryview[int]"
    queue_ids: "memoryview[int]"
    queue_offsets: "memoryview[int]"
    topics: list[bytes]

    def raw(self, i: int) -> bytes:
        """The bytes of record `i`."""
        at = self.offsets[i] - self.begin
        return self.data[at:at + self.sizes[i]]


def parts_of(places: Places, options: Options) -> list[LogPart]:
    """The files of a log that hold something, oldest first, without those that are made ahead. Raises StoreRefusesToLoad for a
    file of another length, a gap and a missing end: a listing beside a writer may show such things once, but not twice."""
    size, said = options.segment_size_bytes, ""
    look_for_directories(places, False)
    times = checkpoint.read(ControlFiles(IoTable()), places.checkpoint)     # before the files: it is never ahead of them
    while True:
        try:
            rests: dict[int, str] = {}
            starts = load_names(places.commitlogs, size, options.compat, None, rests if options.skip_holes else None)
            if (missing := files_missing(places, options, starts)) is not None and not options.skip_holes:
                raise missing
            missing_end(places, options.inferred({"readonly": False}), max((start + size for start in starts), default=0),
                        known_end(places, times, False, -1, 0))
            break
        except StoreRefusesToLoad as error:
            if str(error) == said:
                explained(error, places, options)
                raise
            said = str(error)
    while len(starts) > 1 and _empty(places.log_path(starts[-1])):
        starts.pop()
    return [LogPart(places.log_path(start), start, size, start == starts[-1],
                    min(os.stat(rests[start]).st_size, size) if start in rests else size) for start in starts]


def _empty(path: str) -> bool:
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            return not file.read(8).strip(b"\0")
    except FileNotFoundError:           # deleted since it was listed, or made ahead and taken away
        return True


class Source:
    """A store to read from. Raises FileNotFoundError where there is none, ConfigError.

    gone: bytes of its log that were cleaned while `blocks` came to them. holes: parts of the log, (begin, end), that `blocks`
    passed over because nothing can be read there (option skip_holes)."""

    def __init__(self, path: Any, options: dict[str, Any] | None = None) -> None:
        self._asked: dict[str, Any] | None = options or {}
        self.root, self.options = chosen_options(path, options or {})
        self.places = Places(self.root, self.options)
        self.root = os.path.realpath(self.root)
        self.gone = 0
        self.holes: list[tuple[int, int]] = []

    @classmethod
    def of(cls, root: str, options: Options) -> "Source":
        """Of a store whose options are known."""
        self = cls.__new__(cls)
        self.root, self.options, self.places, self.gone = root, options, Places(root, options), 0
        self._asked, self.holes = None, []
        return self

    def look_again(self) -> bool:
        """Takes sizes that files tell by now: a writer made the first of their kind after this look began. Whether there are
        any."""
        options = None if self._asked is None else told_since(self.root, self._asked, self.options)
        self.options = options or self.options
        return options is not None

    def has(self, path: str) -> bool:
        """Whether `path` is a directory of this store, or would lie in one."""
        there, places = os.path.realpath(path), self.places
        own = (self.root, *places.commitlogs, places.consumequeue, places.index)
        return any(os.path.commonpath([place, there]) == place for place in map(os.path.realpath, own))

    def parts(self) -> list[LogPart]:
        try:
            return parts_of(self.places, self.options)
        except StoreRefusesToLoad:
            if not self.look_again():
                raise
            return self.parts()

    def begin(self) -> int:
        """Log offset of the first byte there is; 0 of an empty log."""
        return next((p.start for p in self.parts()), 0)

    def end(self) -> int:
        """About where the log ends: log offset of the end of its last file."""
        return max((int(os.path.basename(path)) + size for path, size in self.places.log_files()), default=0)

    def blocks(self, begin: int, end: int | None = None, *, since: int | None = None, until: int | None = None,
               topics: list[bytes] | None = None) -> Iterator[Block]:
        """The records of [begin, end) that are of `topics` and were stored from `since` to `until`, both included, ms since
        1970. A block may be empty: its `end` tells how far the walk is. `begin` is the place of a record."""
        damage: CorruptionError | None = None
        missing, parts, skips = 0, self.parts(), self.options.skip_holes
        self.holes = [(a, b) for a, b in lost_stretches(self.places, self.options.segment_size_bytes)
                      if a >= begin and (end is None or a < end)] if skips else []
        for part in parts:
            if part.end <= begin or (end is not None and part.start >= end):
                continue
            with ExitStack() as stack:
                stop = min(part.start + part.length, part.end if end is None else end)
                if max(begin, part.start) >= stop:
                    continue
                try:
                    split = stack.enter_context(Split(part.path, part.start, max(begin, part.start), stop, newest=part.newest,
                                                      aligned=True, verify="crc", mapped=False))
                    file = stack.enter_context(open(part.path, "rb", buffering=0, opener=open_regular))
                except FileNotFoundError:       # cleaned, or another writer has taken back what was made ahead
                    missing += stop - max(begin, part.start)
                    continue
                self.gone, missing = self.gone + missing, 0
                split.choose(selectors=None if topics is None else [(t, None, -1 << 62, 1 << 62) for t in topics],
                             time_low=since, time_high=None if until is None else until + 1)
                while True:
                    before = split.records
                    batch = split.batch(COLUMNS, max_rows=ROWS, max_bytes=BYTES)
                    bad = split.take_bad()
                    if damage is not None and split.records > before:
                        raise damage
                    if bad and skips:
                        self.holes += [(region.begin, region.end) for region in bad]
                    elif bad and damage is None:
                        damage = self._damage(part, bad[0])
                    if batch is None:
                        break
                    block = _block(file.fileno(), part, batch, split.position)
                    if damage is not None and damage.offset is not None:
                        block.end = min(block.end, damage.offset)
                    yield block
                if stop == part.end:
                    known = split.position if damage is None or damage.offset is None else damage.offset
                    self.refuse_version(part, file.fileno(), known)

    def lost(self) -> list[LostRow]:
        """Which messages lay in `holes`, as the queues tell. Raises OSError."""
        return lost_rows(self.places, self.options, self.holes)

    def refuse_version(self, part: LogPart, fd: int, at: int) -> None:
        """Raises UnknownVersion where the records that this library knows end in front of others, at log offset `at`: what is
        made without those must not look whole. fd: of that file, which may have been cleaned."""
        magic = other_version(lambda begin, end: os.pread(fd, end - begin, begin - part.start), at, part.end)
        if magic is not None:
            raise refusal(os.path.dirname(part.path), part.start, at, magic)

    def _damage(self, part: LogPart, bad: Any) -> CorruptionError:
        error = CorruptionError(part.path, bad.begin, "a record", f"{bad.end - bad.begin} bytes that are none ({bad.kind})")
        error.add_note(f"messages follow behind that: `rmqstore repair {self.root}` brings back what is good, in a copy if you "
                       "like, and keeps what it replaces")
        return error


def _block(fd: int, part: LogPart, batch: tuple[int, dict[str, Any]], position: int) -> Block:
    count, columns = batch
    ints = {name: memoryview(columns[name]).cast("i") for name in ("storeSize", "sysFlag", "queueId")}
    longs = {name: memoryview(columns[name]).cast("q") for name in ("physicalOffset", "queueOffset")}
    ends, names = memoryview(columns["topic"].offsets).cast("i"), columns["topic"].data
    offsets, sizes = longs["physicalOffset"], ints["storeSize"]
    data, begin = b"", position
    if count:
        begin, stop = offsets[0], offsets[count - 1] + sizes[count - 1]
        data = os.pread(fd, stop - begin, begin - part.start)
        while len(data) < stop - begin:
            more = os.pread(fd, stop - begin - len(data), begin - part.start + len(data))
            if not more:
                raise CorruptionError(part.path, begin, f"{stop - begin} bytes of records", f"{len(data)}: the file was cut")
            data += more
    return Block(position, data, begin, offsets, sizes, ints["sysFlag"], ints["queueId"], longs["queueOffset"],
                 [names[ends[i]:ends[i + 1]] for i in range(count)])
