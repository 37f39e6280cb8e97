"""Where the files of compaction topics lie, and the one step in which a compaction replaces files by others.

    compaction/compactionLog/TOPIC/QUEUE/        log files; compacting/: a compaction under way
    compaction/compactionCq/TOPIC/QUEUE/         their entries, under the same names; compacting/ as well
    compaction/position-checkpoint               how far each queue is compacted, as RocketMQ keeps it
    compaction/TOPIC_QUEUE.replacing             a replacement under way, which RocketMQ does not know
    compaction/TOPIC_QUEUE.unfed                 cleaning has deleted messages that were not fed, as nobody compacted the topic

A compaction writes new files under compacting/ and makes them durable. Then the file .replacing names them, and the first file
that stays: from that moment on the new files count, and nobody believes the old ones. Names of files that are not there, or a
wrong checksum, are damage: nothing is deleted for them. What follows (moving the new files over
the old ones, deleting the others) can be done again by whoever finds the file, after a crash in the middle of it too. A reader
without the right to write takes the new files from where they are. Control plane; thread-safety: the caller's.
"""
import json
import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rmq_store.base.io.files import ControlFiles
from rmq_store.base.machine.limits import in_memory
from rmq_store.errors import ConfigFileCorrupted, CorruptionError, StoreRefusesToLoad
from rmq_store.fields import NamedTuple
from rmq_store.services.compaction._segments import Segments
from rmq_store.services.consumer.config_file import ConfigFile

__all__ = ["Pair", "Places", "Positions", "Replacing", "pairs_of", "queues_on_disk", "replace_all"]

DIRECTORY, COMPACTING = "compaction", "compacting"
REPLACING, UNFED = ".replacing", ".unfed"
TRIES = 100
_TEXT_MAX = 1 << 24
_CHUNK = 1 << 20


class Places(NamedTuple):
    """The directories of one queue."""

    root: str
    topic: str
    queue_id: int

    @property
    def log(self) -> str:
        return os.path.join(self.root, DIRECTORY, "compactionLog", self.topic, str(self.queue_id))

    @property
    def entries(self) -> str:
        return os.path.join(self.root, DIRECTORY, "compactionCq", self.topic, str(self.queue_id))

    @property
    def both(self) -> tuple[str, str]:
        return self.entries, self.log           # in the order in which a pair gets its names

    @property
    def replacing(self) -> str:
        return os.path.join(self.root, DIRECTORY, f"{self.topic}_{self.queue_id}{REPLACING}")

    @property
    def unfed(self) -> str:
        return os.path.join(self.root, DIRECTORY, f"{self.topic}_{self.queue_id}{UNFED}")


class Pair(NamedTuple):
    """A pair of files, and where each of them is."""

    start: int
    log_dir: str
    entry_dir: str


class Replacing(NamedTuple):
    """What .replacing says: the new pairs, and the first pair that stays."""

    new: tuple[int, ...]
    stays: int


def queues_on_disk(root: str) -> list[tuple[str, int]]:
    """The queues that have a compaction log: sorted list of (topic, queue id)."""
    base = os.path.join(root, DIRECTORY, "compactionLog")
    found = []
    for topic in _names(base):
        found += [(topic, int(name)) for name in _names(os.path.join(base, topic)) if name.isascii() and name.isdigit()]
    return sorted(found)


def read_replacing(files: ControlFiles, places: Places) -> Replacing | None:
    """None: nothing is being replaced. Raises CorruptionError, OSError."""
    for _ in range(TRIES):
        text = _text_of(files, places.replacing)
        if text is None:
            return None
        try:
            return _replacing(text, places)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if _text_of(files, places.replacing) == text:       # else another process has ended it meanwhile
                raise CorruptionError(places.replacing, None, "the names of a compaction's files", str(error)) from error
    raise _restless(places)


def _text_of(files: ControlFiles, path: str) -> bytes | None:
    try:
        fd = files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return files.read(fd, 0, _TEXT_MAX)
    finally:
        files.close(fd)


def _replacing(text: bytes, places: Places) -> Replacing:
    """Whoever believes it deletes all other files before `stays`. So the files that it names have to be there, from its first
    moment to its last one. Raises ValueError, KeyError, TypeError, RecursionError."""
    content = json.loads(text)
    new, stays = tuple(content["new"]), content["stays"]
    if any(type(at) is not int or at < 0 for at in (*new, stays)) or any(at >= stays for at in new):
        raise ValueError("places of files that are none")
    if content.get("crc", _crc(new, stays)) != _crc(new, stays):        # files of before have none
        raise ValueError(f"a checksum of {content['crc']!r}, not {_crc(new, stays)}, that of the names")
    for directory in places.both:
        for at in (*new, stays):
            if not os.path.exists(_path(_where(directory, at) if at != stays else directory, at)):
                raise ValueError(f"the name {at:020d} of a file that is not in {directory}")
    return Replacing(new, stays)


def _crc(new: Iterable[int], stays: int) -> int:
    return zlib.crc32(json.dumps([*new, stays]).encode())


def starts(directory: str) -> list[int]:
    """Of the files in a directory of a queue, ascending."""
    return sorted(int(name) for name in _names(directory) if len(name) == 20 and name.isascii() and name.isdigit())


def pairs_of(files: ControlFiles, places: Places) -> list[Pair]:
    """The pairs that count now, oldest first; also beside a process that replaces some. Raises CorruptionError, OSError."""
    for _ in range(TRIES):
        before = read_replacing(files, places)
        found = [Pair(at, places.log, places.entries) for at in sorted(set(starts(places.log)) & set(starts(places.entries)))
                 if before is None or at >= before.stays]
        if before is None:
            if read_replacing(files, places) is None:
                return found
            continue
        new = [Pair(at, *(_where(directory, at) for directory in (places.log, places.entries))) for at in before.new]
        if read_replacing(files, places) == before:
            return new + found
    raise _restless(places)


def _restless(places: Places) -> StoreRefusesToLoad:
    return StoreRefusesToLoad(places.log, None, "files that stay for a moment", "files that another process changes each time")


def halves(files: ControlFiles, places: Places) -> list[tuple[str, int]]:
    """Files that lack the one of the same name in the other directory: (directory, start); beside a process that makes pairs,
    none that appears only for a moment. Raises CorruptionError, OSError."""
    found: set[tuple[str, int]] | None = None
    for _ in range(2):
        if read_replacing(files, places) is not None:
            return []
        log, entries = set(starts(places.log)), set(starts(places.entries))
        now = {(places.log, at) for at in log - entries} | {(places.entries, at) for at in entries - log}
        found = now if found is None else found & now
    return sorted(found or ())


def replace_all(files: ControlFiles, places: Places) -> bool:
    """Ends a replacement that is under way, from wherever it stopped; False where there is none. Durable. Raises OSError."""
    what = read_replacing(files, places)
    if what is None:
        return False
    files.sync_dir(os.path.dirname(places.replacing))       # a kill may have come before that
    for directory in places.both:
        under = os.path.join(directory, COMPACTING)
        for at in what.new:
            name = f"{at:020d}"
            if os.path.exists(os.path.join(under, name)):
                files.rename(os.path.join(under, name), os.path.join(directory, name))
        for at in starts(directory):
            if at < what.stays and at not in what.new:
                files.unlink(os.path.join(directory, f"{at:020d}"))
        if os.path.isdir(under):
            files.sync_dir(under)
        files.sync_dir(directory)
    files.unlink(places.replacing)
    files.sync_dir(os.path.dirname(places.replacing))
    return True


def begin_replacing(files: ControlFiles, places: Places, new: list[int], stays: int) -> None:
    """The moment from which the new files count. Durable. Raises OSError."""
    files.write_new(os.path.dirname(places.replacing), os.path.basename(places.replacing),
                    json.dumps({"new": new, "stays": stays, "crc": _crc(new, stays)}).encode())


def sweep(files: ControlFiles, places: Places) -> None:
    """Deletes what a compaction, or the making of a pair, left unfinished; nothing is being replaced. Raises OSError."""
    for directory in places.both:
        for name in _names(os.path.join(directory, COMPACTING)):
            files.unlink(os.path.join(directory, COMPACTING, name))


def load(files: ControlFiles, places: Places, log_size: int, entry_size: int, guarded: bool) -> Segments:
    """The pairs that count, opened. Files of other sizes than asked for are taken as they are. Raises CorruptionError,
    OSError."""
    for _ in range(TRIES):
        try:
            pairs = pairs_of(files, places)
            before = identity(pairs)
            if pairs:
                log_size, entry_size = before[-1][1], before[-1][3]
            made = Segments(files.table, log_size, entry_size, guarded)
            for pair in pairs:
                made.add(pair.log_dir, pair.entry_dir, pair.start)
            if identity(pairs) == before:
                return made
        except FileNotFoundError:       # moved or deleted meanwhile by the process that compacts
            continue
    raise _restless(places)


def identity(pairs: list[Pair]) -> list[tuple[int, ...]]:
    """Inode and size of each file, log file first."""
    found: list[tuple[int, ...]] = []
    for pair in pairs:
        log, entries = (os.stat(_path(directory, pair.start)) for directory in (pair.log_dir, pair.entry_dir))
        found.append((log.st_ino, log.st_size, entries.st_ino, entries.st_size))
    return found


def new_pair(files: ControlFiles, places: Places, start: int, log_size: int, entry_size: int, *, under_way: bool) -> None:
    """Makes the files of a pair: of a compaction under compacting/, else there and then in their place. Durable with its
    directories. Raises OSError."""
    for directory, size in ((places.entries, entry_size), (places.log, log_size)):
        under = os.path.join(directory, COMPACTING)
        files.make_dirs(under)
        fd = files.open(_path(under, start), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            files.truncate(fd, size)
            _give_space(files, under, fd)
            files.sync(fd)
        finally:
            files.close(fd)
        files.sync_dir(under)
    for directory in () if under_way else places.both:
        files.rename(_path(os.path.join(directory, COMPACTING), start), _path(directory, start))
        files.sync_dir(directory)


def _give_space(files: ControlFiles, directory: str, fd: int) -> None:
    """In a file system in memory, where a read of a hole through a map takes space as a write does, and ends the process by
    SIGBUS when there is none: a file gets all of its space. Raises OSError."""
    about = os.fstat(fd)
    if about.st_blocks * 512 < about.st_size and in_memory(directory):
        files.table.fallocate(fd, 0, about.st_size)


def put_aside(files: ControlFiles, places: Places, directory: str, start: int) -> str:
    """Moves a file that cannot be used into .salvage. Returns its new place. Raises OSError."""
    salvage = os.path.join(places.root, ".salvage")
    files.make_dirs(salvage)
    kind = os.path.basename(os.path.dirname(os.path.dirname(directory)))
    base = os.path.join(salvage, f"{kind}-{places.topic}-{places.queue_id}-{start:020d}")
    to = next(name for name in (f"{base}.{n}" for n in range(1 << 20)) if not os.path.exists(name))
    files.rename(_path(directory, start), to)
    files.sync_dir(salvage)
    files.sync_dir(directory)
    return to


def cut_entries(files: ControlFiles, places: Places, start: int, keep: int) -> str:
    """Zeroes the entries of a pair behind `keep` bytes, when a copy of the file is in .salvage. Durable. Returns the copy's
    place. Raises OSError."""
    saved = _save_entries(files, places, start, "cut")
    fd = files.open(_path(places.entries, start), os.O_RDWR)
    try:
        files.write(fd, keep, bytes(os.fstat(fd).st_size - keep))
        files.sync(fd)
    finally:
        files.close(fd)
    return saved


def slots_used(files: ControlFiles, directory: str, start: int) -> int:
    """How many entries there is room for up to the last byte of a file of entries that is not zero. Raises OSError."""
    used = 0
    fd = files.open(_path(directory, start), os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        at = files.table.next_data(fd, 0)
        while at < size and (chunk := files.read(fd, at, _CHUNK)):
            if kept := len(chunk.rstrip(b"\0")):
                used = at + kept
            at = files.table.next_data(fd, at + len(chunk))
    finally:
        files.close(fd)
    return -(-used // 46)


def unread_entries(files: ControlFiles, places: Places, segments: Segments) -> list[tuple[int, int]]:
    """Pairs that have something behind the last good entry: (number of the pair, entries up to its end). Raises OSError."""
    found = []
    for i in range(segments.pair_count):
        start, count, _, closed = segments.pair(i)
        if not closed and (used := slots_used(files, _where(places.entries, start), start)) > count:
            found.append((i, used))
    return found


def replace_entries(files: ControlFiles, places: Places, start: int, content: bytes) -> str:
    """Replaces the file of entries of a pair, when a copy of it is in .salvage. Durable. Returns the copy's place. Raises
    OSError."""
    saved = _save_entries(files, places, start, "damaged")
    under = os.path.join(places.entries, COMPACTING)
    files.make_dirs(under)
    fd = files.open(_path(under, start), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        files.write(fd, 0, content)
        files.sync(fd)
    finally:
        files.close(fd)
    files.sync_dir(under)
    files.rename(_path(under, start), _path(places.entries, start))
    files.sync_dir(places.entries)
    return saved


def _save_entries(files: ControlFiles, places: Places, start: int, why: str) -> str:
    salvage = os.path.join(places.root, ".salvage")
    files.make_dirs(salvage)
    fd = files.open(_path(places.entries, start), os.O_RDONLY)
    try:
        content = files.read(fd, 0, os.fstat(fd).st_size)
    finally:
        files.close(fd)
    name = f"compactionCq-{places.topic}-{places.queue_id}-{start:020d}.{why}"
    name = next(n for n in (f"{name}.{i}" for i in range(1 << 20)) if not os.path.exists(os.path.join(salvage, n)))
    files.write_new(salvage, name, content)
    return os.path.join(salvage, name)


def settle(files: ControlFiles, places: Places) -> list[str]:
    """Before the first write: ends a replacement, deletes what is unfinished, and puts a newest file aside that has no other
    half: a crash came between the names of a pair. Returns what was put aside. Raises OSError, CorruptionError."""
    replace_all(files, places)
    sweep(files, places)
    for directory in places.both if in_memory(places.root) else ():
        for start in starts(directory):
            fd = files.open(_path(directory, start), os.O_RDWR)
            try:
                _give_space(files, directory, fd)
            finally:
                files.close(fd)
    halves = {directory: set(starts(directory)) for directory in places.both}
    newest = max(halves[places.log] & halves[places.entries], default=-1)
    return [put_aside(files, places, directory, at) for directory in places.both for at in sorted(halves[directory])
            if at > newest and at not in halves[places.log] & halves[places.entries]]


def remove(files: ControlFiles, places: Places) -> None:
    """The queue is gone. What a crash leaves of its files can be removed again. Raises OSError."""
    replace_all(files, places)
    sweep(files, places)
    for directory in places.both:
        for at in reversed(starts(directory)):
            files.unlink(_path(directory, at))
        if os.path.isdir(directory):
            files.sync_dir(directory)
    forget_unfed(files, places)


def mark_unfed(files: ControlFiles, places: Places) -> None:
    """Before cleaning deletes messages of a queue that has a compaction log and is not compacted now: its values may be old
    from then on. Durable. Raises OSError."""
    if not os.path.exists(places.unfed) and starts(places.log):
        files.write_new(os.path.dirname(places.unfed), os.path.basename(places.unfed), b"")


def forget_unfed(files: ControlFiles, places: Places) -> None:
    """Durable. Raises OSError."""
    if os.path.exists(places.unfed):
        files.unlink(places.unfed)
        files.sync_dir(os.path.dirname(places.unfed))


class Positions:
    """compaction/position-checkpoint: the queue offset up to which each queue is compacted. RocketMQ: CompactionPositionMgr."""

    def __init__(self, file: ConfigFile, known: dict[str, int]) -> None:
        self.file, self.known = file, known

    @classmethod
    def of(cls, files: ControlFiles, root: str) -> "Positions":
        """Raises ConfigFileCorrupted, OSError."""
        made = cls.none(files, root)
        made.known = made.file.load(_take) or {}
        return made

    @classmethod
    def none(cls, files: ControlFiles, root: str) -> "Positions":
        """As if there were no file."""
        file = ConfigFile(files, root, "position-checkpoint")
        file.directory = os.path.join(root, DIRECTORY)
        file.path = os.path.join(file.directory, file.name)
        return cls(file, {})

    @classmethod
    def begin(cls, files: ControlFiles, root: str) -> tuple["Positions", list[str]]:
        """For a store that compacts, and where files were put aside that nobody can read: then each queue is looked at from its
        beginning once more. Raises OSError."""
        try:
            return cls.of(files, root), []
        except ConfigFileCorrupted as error:
            base, salvage, aside = os.path.dirname(str(error.path)), os.path.join(root, ".salvage"), []
            files.make_dirs(salvage)
            for name in ("position-checkpoint", "position-checkpoint.bak"):
                to = next(n for n in (os.path.join(salvage, f"{name}.{i}") for i in range(1 << 20)) if not os.path.exists(n))
                with suppress(FileNotFoundError):
                    files.rename(os.path.join(base, name), to)
                    aside.append(to)
            files.sync_dir(salvage)
            files.sync_dir(base)
            return cls.of(files, root), aside

    def get(self, topic: str, queue_id: int) -> int:
        """-1: it was never compacted."""
        return self.known.get(f"{topic}_{queue_id}", -1)

    def set(self, topic: str, queue_id: int, offset: int | None) -> None:
        """Durable. None: the queue is gone. Raises OSError."""
        if offset is None:
            if self.known.pop(f"{topic}_{queue_id}", None) is None:
                return
        else:
            self.known[f"{topic}_{queue_id}"] = offset
        self.file.save({"queueOffsetMap": dict(sorted(self.known.items()))})


def _take(content: Any) -> dict[str, int]:
    table = content["queueOffsetMap"]
    if any(isinstance(offset, bool) or not isinstance(offset, int) for offset in table.values()):
        raise ValueError("a position is not a queue offset")
    return dict(table)


def _where(directory: str, at: int) -> str:
    under = os.path.join(directory, COMPACTING)
    return under if os.path.exists(_path(under, at)) else directory


def _path(directory: str, at: int) -> str:
    return os.path.join(directory, f"{at:020d}")


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
