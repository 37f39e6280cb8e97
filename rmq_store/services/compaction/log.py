"""The compaction log of one queue: its last pair of files is fed with messages of the queue, the pairs before it are compacted.

RocketMQ: kv.CompactionLog. It feeds in the dispatch of each message; here a thread does (service.py), behind the flush of the
log: nothing gets into a compaction log that a power cut can take from the queue. Thread-safety: any, the locks are here; one
thread at a time compacts.
"""
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.wants import is_want
from rmq_store.errors import CorruptionError, DurabilityError, StoreStateError, exceeds
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.services.compaction import files as disk
from rmq_store.services.compaction._rewrite import Compaction, PairWriter, agrees, feed
from rmq_store.services.compaction._segments import Segments

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait
    from rmq_store.config.load import Options

__all__ = ["CompactionLog", "Weighed", "file_sizes", "weigh"]

SETTLED_NS = 100_000_000        # more than the clock of any file system takes between two ticks
SLICE = 4 << 20                 # bytes between two looks whether to pause, or to stop

class Weighed(NamedTuple):
    """What a compaction finds and what stays of it: messages, and bytes of their records."""

    messages: int
    kept: int
    size: int
    kept_size: int


def file_sizes(options: "Options") -> tuple[int, int]:
    """Of a log file and of its entries, as RocketMQ makes them of its options (CompactionLog.getCompactionLogSize)."""
    entries = options.compaction_cq_file_size_bytes // 46 * 46
    count, rest = divmod(options.compaction_file_size_bytes, entries)
    if count < 5:
        return 5 * entries, entries
    return (count if 0 < rest < entries >> 1 else count + 1) * entries, entries


class CompactionLog:
    """Of one queue. writable: the store is; then what a crash left unfinished is ended here."""

    def __init__(self, files: ControlFiles, places: disk.Places, options: "Options", writable: bool) -> None:
        self.places = places
        self._files, self._options = files, options
        self._lock = StoreLock(places.root, f"the compaction log of {places.topic}, queue {places.queue_id}")
        self._writer: PairWriter | None = None
        self._fds: tuple[int, int] = (-1, -1)
        self._next = -1                     # the queue offset to feed next; -1: the files say it
        self._failed: OSError | None = None
        self._listed: tuple[int, ...] | None = None
        self._settled = False               # what comes after the last look has another time than the listing
        self._ended = self._unsynced = False
        self._replaced = self._cuts = 0
        self._damaged: set[int] = set()     # where pairs begin whose entries have a gap that nothing can fill
        if writable:
            for place in disk.settle(files, places):
                emit(Event.COMPACTION_FILE_ASIDE, path=place)
        self.segments = self._load()
        if writable:
            self._heal()

    def _heal(self) -> None:
        """Entries behind a damaged one are invisible. The records have all that entries say; where these are not whole, the
        pair gets no more messages, and is not compacted."""
        for i, slots in disk.unread_entries(self._files, self.places, self.segments):
            start, size = self.segments.pair(i)[0], self.segments.entry_size
            made = self.segments.rebuilt(i, slots, self.places.topic, self.places.queue_id)
            if made is None:
                self._damaged.add(start)
            else:
                emit(Event.COMPACTION_FILE_ASIDE,
                     path=disk.replace_entries(self._files, self.places, start, made + bytes(size - len(made))))
        self.segments = self._load()

    def _load(self) -> Segments:
        return disk.load(self._files, self.places, *file_sizes(self._options), self._options.guard_maps)

    @property
    def version(self) -> object:
        """Changes when files are replaced."""
        return self._replaced, self._listed

    def follow(self) -> Segments:
        """For reading beside a process that writes: the files as they are now."""
        identity = _listing(self.places)
        if identity != self._listed or not self._settled:
            self._settled = time.time_ns() - max(identity) > SETTLED_NS
            self.segments, self._listed = self._load(), identity
        self.segments.look()
        return self.segments

    # ---- feeding

    def feed(self, store: "StoreWait", low: int, high: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Takes in what the queue has in [low, high), as far as it is flushed. Durable when it returns. Returns how many
        messages that were. Raises OSError (also for a write or sync that failed before), CorruptionError, StoreStateError."""
        with self._lock:
            if self._ended:
                return 0
            if self._failed is not None:
                raise self._failed
            try:
                return self._feed(store, low, high, stop)
            except BaseException as error:          # what was gathered is fed again
                synced = self._writer is None or not self._writer.sync_failed
                if isinstance(error, OSError) and not (is_want(error) and synced):
                    self._failed = DurabilityError(error.errno or 0, "feeding a compaction log", self.places.log)
                raise
            finally:
                self._end_writer()

    def _feed(self, store: "StoreWait", low: int, high: int, stop: Callable[[], bool]) -> int:
        topic, queue_id = self.places.topic, self.places.queue_id
        if self._next < 0:
            self._trim(store, low, high)
            self._next = self.segments.bounds()[1] + 1
        at, fed, before = max(self._next, low), 0, -1
        while at < high and not stop():
            writer = self._open_writer()
            before = writer.count if before < 0 else before
            at, why = feed(store, writer, topic, queue_id, at, high)
            if why == "more" and at < high and not writer.filled() and not stop():
                continue
            count = writer.write()
            if count > before:
                self._unsynced = True
                self.segments.grown(count)
                fed, before = fed + count - before, count
            self._next = at
            if why == "full":
                self._roll(writer)
                before = -1
            elif why == "end":
                break
        if self._unsynced:
            self._open_writer().sync()
            self._unsynced = False
        return fed

    def _open_writer(self) -> PairWriter:
        if self._writer is None:
            last = self.segments.pair_count - 1
            if last < 0 or self.segments.pair(last)[3] or self.segments.pair(last)[0] in self._damaged:
                return self._new_pair(0 if last < 0 else self.segments.pair(last)[0] + self.segments.log_size)
            start, count, end, _ = self.segments.pair(last)
            self._fds, self._writer = self._writer_of(self.places.log, self.places.entries, start, count, end, True)
        return self._writer

    def _roll(self, writer: PairWriter) -> None:
        if writer.count == 0:
            which = f"a message of {self.places.topic}, queue {self.places.queue_id}, offset {self._next}"
            raise StoreStateError(exceeds(which, "larger than a file of its compaction log", f"{writer.log_size} bytes",
                                          "move the compaction log away, and open with a greater compaction_file_size_bytes"))
        writer.close_pair()
        self._unsynced = False
        start = writer.start + writer.log_size
        self._end_writer()
        self._new_pair(start)

    def _new_pair(self, start: int) -> PairWriter:
        disk.new_pair(self._files, self.places, start, self.segments.log_size, self.segments.entry_size, under_way=False)
        self.segments = self._load()
        self._fds, self._writer = self._writer_of(self.places.log, self.places.entries, start, 0, 0, True)
        return self._writer

    def _writer_of(self, log_dir: str, entry_dir: str, start: int, count: int, end: int,
                   ordered: bool) -> tuple[tuple[int, int], PairWriter]:
        fds: list[int] = []
        try:
            for directory in (log_dir, entry_dir):
                fds.append(self._files.open(os.path.join(directory, f"{start:020d}"), os.O_RDWR))
            path = os.path.join(log_dir, f"{start:020d}")
            return (fds[0], fds[1]), PairWriter(self._files.table, path, fds[0], fds[1], start, self.segments.log_size,
                                                self.segments.entry_size, count, end, ordered)
        except BaseException:
            for fd in fds:
                self._files.close(fd)
            raise

    def _end_writer(self) -> None:
        self._writer = None
        for fd in self._fds:
            if fd >= 0:
                self._files.close(fd)
        self._fds = (-1, -1)

    def _trim(self, store: "StoreWait", low: int, high: int) -> None:
        """A log that was cut, or a broker that lost power, leaves entries that the queue does not have, or has for other
        messages by now. Pairs of such entries alone are put aside; of the pair before them a copy of the entries is."""
        found = self._strange(store, low, high)
        if found is None:
            return
        first, index = found
        self._put_aside(first if index == 0 else first + 1)
        if index > 0:
            emit(Event.COMPACTION_FILE_ASIDE, path=disk.cut_entries(self._files, self.places, self.segments.pair(first)[0],
                                                                    index * 46))
        self.segments = self._load()

    def _strange(self, store: "StoreWait", low: int, high: int) -> tuple[int, int] | None:
        """The first entry of those that the queue does not have as they are: (pair, index). All behind it are such, too."""
        beyond = self.segments.place(high)
        sure, open_end = self._number(self.segments.place(low)), self._number(beyond)
        if sure == open_end or self._agrees(store, open_end - 1):
            return beyond
        open_end -= 1
        while sure < open_end:
            middle = (sure + open_end) // 2
            sure, open_end = (middle + 1, open_end) if self._agrees(store, middle) else (sure, middle)
        return self._of_number(sure)

    def _agrees(self, store: "StoreWait", number: int) -> bool:
        pair, index = self._of_number(number)
        return agrees(store, self.segments, self.places.topic, self.places.queue_id, pair, index)

    def _number(self, place: tuple[int, int] | None) -> int:
        """Of an entry among all entries of the queue; None: one past the last."""
        counts = [self.segments.pair(i)[1] for i in range(self.segments.pair_count)]
        return sum(counts) if place is None else sum(counts[:place[0]]) + place[1]

    def _of_number(self, number: int) -> tuple[int, int]:
        for i in range(self.segments.pair_count):
            count = self.segments.pair(i)[1]
            if number < count:
                return i, number
            number -= count
        raise IndexError(number)

    # ---- compacting

    def compact(self, positions: disk.Positions, map_bytes: int, pause: Callable[[], bool]) -> Weighed | None:
        """One compaction, if there is a pair before the last one that the last compaction did not have. pause: called between
        slices of the work, True ends it without a change. Returns None where there was nothing to do. Raises OSError,
        CorruptionError."""
        with self._lock:
            if self._ended:
                return None
            if self._failed is not None:
                raise self._failed
            if disk.replace_all(self._files, self.places):      # one that an error has stopped
                self.segments = self._load()
            disk.sweep(self._files, self.places)
            segments, cuts = self.segments, self._cuts
        work = _mapped(self._files, self.places, segments, positions, map_bytes, pause)
        if work is None or not self._copied(work, segments.pair(segments.pair_count - 1)[0], cuts, pause):
            return None
        if work.last_offset >= 0:
            positions.set(self.places.topic, self.places.queue_id, work.last_offset)
        return _weight(work)

    def _copied(self, work: Compaction, stays: int, cuts: int, pause: Callable[[], bool]) -> bool:
        """Replaces the pairs before the one that begins at `stays`. False: it was ended, and nothing has changed."""
        new: list[int] | None = None
        try:
            new = self._copy(work, stays, pause)
        finally:
            with self._lock:
                if self._ended or self._cuts != cuts:       # what was copied may not count any more
                    new = None
                if new is not None:
                    self._replace(new, stays)
                elif not self._ended:
                    disk.sweep(self._files, self.places)    # a full disk may be why it ended: the space is needed
        return new is not None

    def _replace(self, new: list[int], stays: int) -> None:
        try:
            disk.begin_replacing(self._files, self.places, new, stays)
            disk.replace_all(self._files, self.places)
        except OSError as error:
            if not is_want(error):      # the next open ends it
                self._failed = DurabilityError(error.errno or 0, "replacing files of a compaction log", self.places.log)
            raise
        self.segments = self._load()
        self._replaced += 1

    def _copy(self, work: Compaction, stays: int, pause: Callable[[], bool]) -> list[int] | None:
        """Makes the new pairs under compacting/, durable. Returns where they begin."""
        new: list[int] = []
        why = "full"
        while why == "full":
            start = len(new) * self.segments.log_size
            if start >= stays:
                raise CorruptionError(self.places.log, stays, "files whose names are their places", "names that leave no room")
            new.append(start)
            with self._pair_under_way(start) as writer:
                why = "more"
                while why == "more":
                    why = work.copy_some(writer, SLICE)
                    if pause():
                        return None
                if why == "full":
                    writer.close_pair()
                else:
                    writer.write()
                    writer.sync()
                empty = writer.count == 0
        if empty:
            new.pop()
        return new

    @contextmanager
    def _pair_under_way(self, start: int) -> Iterator[PairWriter]:
        disk.new_pair(self._files, self.places, start, self.segments.log_size, self.segments.entry_size, under_way=True)
        fds, writer = self._writer_of(os.path.join(self.places.log, disk.COMPACTING),
                                      os.path.join(self.places.entries, disk.COMPACTING), start, 0, 0, False)
        try:
            yield writer
        finally:
            for fd in fds:
                self._files.close(fd)

    def end(self) -> None:
        """Nothing more is fed."""
        with self._lock, suppress(OSError):     # all of it was made durable by the feed
            self._ended = True
            self._end_writer()

    def take_up(self, low: int) -> None:
        """The topic is compacted from now on. If cleaning has deleted messages of the queue that were never fed, values here
        may not be the newest, and all of them are put aside: the queue begins at `low`. Raises OSError."""
        with self._lock:
            if os.path.exists(self.places.unfed):
                if 0 <= self.segments.bounds()[1] < low - 1:
                    self._next = -1
                    self._put_aside(0)
                    self.segments = self._load()
                disk.forget_unfed(self._files, self.places)

    def _put_aside(self, first: int) -> None:
        self._cuts += 1
        for i in reversed(range(first, self.segments.pair_count)):
            start = self.segments.pair(i)[0]
            for directory in reversed(self.places.both):
                emit(Event.COMPACTION_FILE_ASIDE, path=disk.put_aside(self._files, self.places, directory, start))


def weigh(files: ControlFiles, places: disk.Places, segments: Segments, positions: disk.Positions, map_bytes: int,
          pause: Callable[[], bool]) -> Weighed | None:
    """What CompactionLog.compact would find and leave. Changes nothing. Raises OSError, CorruptionError."""
    work = _mapped(files, places, segments, positions, map_bytes, pause)
    while work is not None and work.copy_some(None, SLICE) == "more":
        if pause():
            return None
    return None if work is None else _weight(work)


def _mapped(files: ControlFiles, places: disk.Places, segments: Segments, positions: disk.Positions, map_bytes: int,
            pause: Callable[[], bool]) -> Compaction | None:
    """A compaction that knows the newest message of each key. None: there is nothing to do, or it was ended."""
    closed, position = segments.pair_count - 1, positions.get(places.topic, places.queue_id)
    if closed < 1 or all(segments.last_of(i) <= position for i in range(closed)):
        return None
    for i, _ in disk.unread_entries(files, places, segments):
        start, count, _, _ = segments.pair(i)
        if i < closed:
            raise CorruptionError(os.path.join(places.entries, f"{start:020d}"), None, "entries without a gap",
                                  f"a damaged entry behind {count} good ones")
    work = Compaction(segments, places.log, closed, position, map_bytes)
    while work.map_some(SLICE):
        if pause():
            return None
    return work


def _weight(work: Compaction) -> Weighed:
    return Weighed(work.kept + work.dropped, work.kept, work.kept_bytes + work.dropped_bytes, work.kept_bytes)


def _listing(places: disk.Places) -> tuple[int, ...]:
    """Changes with each name in the directories of the queue."""
    found = []
    for directory in places.both:
        try:
            found.append(os.stat(directory).st_mtime_ns)
        except FileNotFoundError:
            found.append(-1)
    return tuple(found)
