"""Stand-ins for files of the log that are not there, or have another length: what verification walks over, and what repair then
puts in their place.

A stand-in has the length of a log file and the bytes that are left of the lost file, with zeros behind them. So a lost file is
a damaged stretch of the log like others. The log itself stays as it is until a whole file replaces the lost one. One thread.
"""
import os
import shutil
import tempfile
from collections.abc import Iterable
from typing import Protocol

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec._layout import RECORD_AT_MAGIC, RECORD_AT_PHYSICAL_OFFSET
from rmq_store.codec.layout import MAGIC_BYTES, get64
from rmq_store.errors import DiskFull
from rmq_store.fields import NamedTuple
from rmq_store.log.recovery.holes import LostRow, whole_end
from rmq_store.log.recovery.places import Places
from rmq_store.log.recovery.recover import is_number, no_file
from rmq_store.log.recovery.salvage import DIRECTORY as SALVAGE
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX
from rmq_store.services.integrity.bridging import COUNT_MAX, Lost
from rmq_store.services.integrity.replacing import copy_with

__all__ = ["StandIn", "StandIns", "keep_file", "lost_files", "refuse_odd", "rows_of", "told_by"]

MOST = 4096                 # files: a name that is further away is damage, and no gap
LOG_DIGITS = 20             # of the name of a file of the log
NAME_MOST = 255             # bytes of a topic in a note
_PIECE = 4 << 20


class Walked(Protocol):
    """What is asked of a verification (verification.py)."""

    astray: list[tuple[int, int, str, int, int]]
    queues: QueueTableOwner | None


class StandIn(NamedTuple):
    """A file of the log that is lost or has another length."""

    path: str               # where it is, or would be
    start: int
    length: int | None      # bytes that it has; None: it is not there


def lost_files(log: list[tuple[str, int]], size: int, passed: set[str]) -> list[StandIn]:
    """Which files between the first and the last of `log`, path and length by name, need a stand-in; none where names do not
    fit together. passed: paths that may have another length."""
    starts = [int(os.path.basename(path)) for path, _ in log]
    if any((start - starts[0]) % size or start == other for start, other in zip(starts, [-1, *starts], strict=False)):
        return []
    found = []
    for (path, length), start, follows in zip(log, starts, [*starts[1:], starts[-1] + size] if starts else [], strict=True):
        if length != size and path not in passed:
            found.append(StandIn(path, start, length))
        if (follows - start) // size <= MOST:
            found += [StandIn(os.path.join(os.path.dirname(path), f"{gone:020d}"), gone, None)
                      for gone in range(start + size, follows, size)]
    return found if not found or all(_fits(path, start) for (path, _), start in zip(log, starts, strict=True)) else []


def refuse_odd(places: Places) -> None:
    """A link, or anything else that is no file, in the place of one is not a lost file: what it leads to may be whole. Nor does
    the content of a directory that is a link belong to this store alone. Raises StoreRefusesToLoad, OSError."""
    for directory in places.commitlogs:
        for entry in _entries(directory):
            if len(entry.name) == LOG_DIGITS and is_number(entry.name) and not entry.is_file(follow_symlinks=False):
                raise no_file(entry.path)
    for base, depth in ((places.consumequeue, 3), (places.batchconsumequeue, 3), (places.consumequeue_ext, 3),
                        (places.index, 1), (os.path.join(places.root, "config"), 1)):
        if os.path.lexists(base) and (os.path.islink(base) or not os.path.isdir(base)):
            raise no_file(base, "a directory")
        _refuse_in(base, depth)


def _entries(directory: str) -> list["os.DirEntry[str]"]:
    if not os.path.isdir(directory):
        return []
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _refuse_in(directory: str, depth: int) -> None:
    """depth: of the files. What has another name than those of a store lies there at nobody's peril."""
    for entry in _entries(directory):
        if depth > 1 and entry.is_dir(follow_symlinks=False):
            _refuse_in(entry.path, depth - 1)
        elif depth > 1 and not entry.is_file(follow_symlinks=False):
            raise no_file(entry.path, "a directory")
        elif depth == 1 and not entry.is_file(follow_symlinks=False) and (
                is_number(entry.name) or entry.name.endswith((".json", ".json.bak"))):
            raise no_file(entry.path)


def _fits(path: str, start: int) -> bool:
    """False where the file begins with a record of another place: it has another file's name."""
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        head = file.read(RECORD_AT_PHYSICAL_OFFSET + 8)
    known = head[RECORD_AT_MAGIC:RECORD_AT_MAGIC + 4] in MAGIC_BYTES and len(head) == RECORD_AT_PHYSICAL_OFFSET + 8
    return not known or get64(head, RECORD_AT_PHYSICAL_OFFSET) == start


def keep_file(io: IoTable, root: str, lost: StandIn) -> str | None:
    """Copies the file, which has another length than one of the log, to .salvage/, once. Returns the name of the copy; None
    where there is no file. Raises OSError."""
    if lost.length is None:
        return None
    files, directory = ControlFiles(io), os.path.join(root, SALVAGE)
    number, name = 1, f"{lost.start:020d}.replaced"
    while os.path.lexists(os.path.join(directory, name)):
        number, name = number + 1, f"{lost.start:020d}.replaced.{number + 1}"
    files.make_dirs(directory)
    copy_with(io, lost.path, os.path.join(directory, name + ".tmp"), [], sparse=True)
    files.rename(os.path.join(directory, name + ".tmp"), os.path.join(directory, name))
    files.sync_dir(directory)
    return name


def told_by(v: Walked) -> list[tuple[int, Lost]]:
    """Log offset and message of each place to which entries of queues lead, and where no record is; ascending."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    for at, _, topic, queue_id, queue_offset in v.astray:
        if topic and len(topic.encode("utf-8", "surrogateescape")) < NAME_MOST:        # longer ones are cut in notes
            found.setdefault(at, []).append((topic, queue_id, queue_offset))
    told = []
    for at, entries in sorted(found.items()):
        lights = tuple((topic, n) for topic, _, n in entries if topic.startswith(LMQ_PREFIX))
        own = [entry for entry in entries if not entry[0].startswith(LMQ_PREFIX)]
        if not own:
            own, lights = [(lights[0][0], 0, lights[0][1])], lights[1:]
        topic, queue_id = own[0][:2]
        offsets = [n for name, number, n in own if (name, number) == (topic, queue_id)]
        batched = v.queues is not None and v.queues.is_batched(topic.encode("utf-8", "surrogateescape"))
        told.append((at, Lost(topic, queue_id, min(offsets), min(len(offsets), COUNT_MAX) if batched else 0, lights)))
    return told


def rows_of(lost: Iterable[Lost]) -> list[LostRow]:
    """Which queue offsets these messages had."""
    rows: list[LostRow] = []
    newest: dict[tuple[str, int], int] = {}         # queue -> its last row
    for message in lost:
        for topic, queue_id, at in ((message.topic, message.queue_id, message.queue_offset),
                                    *((name, 0, n) for name, n in message.lights)):
            n, end = newest.get((topic, queue_id), -1), at + (message.messages or 1)
            if n >= 0 and rows[n].end == at:
                rows[n] = rows[n]._replace(end=end)
            else:
                newest[topic, queue_id] = len(rows)
                rows.append(LostRow(topic, queue_id, at, end))
    return rows


class StandIns:
    """The stand-ins of one repair, in a directory that goes with `close`. dry: in the directory for temporary files, else in
    .salvage/."""

    def __init__(self, files: ControlFiles, root: str, dry: bool) -> None:
        self.files, self.root, self.dry = files, root, dry
        self.directory: str | None = None
        self.of: dict[int, StandIn] = {}

    def make(self, wanted: list[StandIn], size: int) -> None:
        """Raises OSError; DiskFull of a dry run, which needs room for what is left of the lost files."""
        try:
            self._make(wanted, size)
        except OSError as error:
            if not self.dry or error.errno not in DiskFull.codes:
                raise
            full = DiskFull(error.errno or 0, "copying the rest of short log files to", self.directory or tempfile.gettempdir())
            most = sum(min(lost.length or 0, size) for lost in wanted)
            full.cure = (f"this needs at most {most} bytes: name a directory with that much room in the environment variable "
                         "TMPDIR, and repeat the dry run")
            raise full from error

    def _make(self, wanted: list[StandIn], size: int) -> None:
        if not wanted:
            return
        if self.dry:
            self.directory = tempfile.mkdtemp(prefix="rmqstore-repair-")
        else:
            self.directory = os.path.join(self.root, SALVAGE, "stand-ins")
            self.files.make_dirs(self.directory)
            self._empty()
        times: dict[int, int] = {}
        for path, start, length in wanted:
            self.of[start] = StandIn(path, start, length)
            made = os.path.join(self.directory, f"{start:020d}")
            fd = self.files.open(made, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                if length:
                    self._copy(path, fd, whole_end(path, start, size))
                self.files.truncate(fd, size)
            finally:
                self.files.close(fd)
            # Cleaning goes by it: a lost file is as old as the one before it.
            before = os.path.join(os.path.dirname(path), f"{start - size:020d}")
            about = next((os.stat(place) for place in (path, before) if os.path.exists(place)), None)
            times[start] = about.st_mtime_ns if about is not None else times[start - size]
            os.utime(made, ns=(times[start], times[start]))
            if about is not None and not self.dry:
                os.chmod(made, about.st_mode & 0o7777)
                os.chown(made, about.st_uid, about.st_gid)

    def _copy(self, path: str, fd: int, size: int) -> None:
        at = 0
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            while at < size and (piece := file.read(min(_PIECE, size - at))):
                if piece.count(0) < len(piece):
                    self.files.write(fd, at, piece)
                at += len(piece)

    def path(self, start: int) -> str | None:
        """Of the stand-in for the file at `start`; None where the file stands for itself."""
        return os.path.join(self.directory, f"{start:020d}") if self.directory and start in self.of else None

    def _empty(self) -> None:
        assert self.directory is not None
        for name in os.listdir(self.directory):
            self.files.unlink(os.path.join(self.directory, name))

    def close(self) -> None:
        if self.directory is None:
            return
        if self.dry:
            shutil.rmtree(self.directory)
        else:
            self._empty()
            self.files.table.rmdir(self.directory)
        self.directory = None
