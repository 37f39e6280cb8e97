"""The compaction log of one queue: its last pair of files is fed with messages of the queue, the pairs before it are compacted.

RocketMQ: kv.CompactionLog. It feeds in the dispatch of each message; here a thread does (service.py), behind the flush of the
log: nothing gets into a compaction log that a power cut can take from the queue. Thread-safety: any, the locks are here; one thread
at a time compacts.
"""
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC
from typing import TYPE_CHECKING

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.errors import CorruptionError, DurabilityError, StoreStateError, exceeds
from rmq_store.events import Event, emit
from rmq_store.services.compaction import files as disk
from rmq_store.services.compaction._rewrite import Compaction, PairWriter, feed
from rmq_store.services.compaction._segments import Segments

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait
    from rmq_store.config.load import Options

__all__ = ["Compacted", "CompactionLog", "file_sizes"]

SLICE = 4 << 20                 # bytes between two looks whether to pause, or to stop
Compacted = tuple[int, int, int]        # messages before, messages kept, last queue offset of the map


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
        if writable:
            for place in disk.settle(files, places):
                emit(Event.COMPACTION_FILE_ASIDE, path=place)
        self.segments = self._load()

    def _load(self) -> Segments:
        return disk.load(self._files, self.places, *file_sizes(self._options), self._options.guard_maps)

    def follow(self) -> Segments:
        """For reading beside a process that writes: the files as they are now."""
        identity = _listing(self.places)
        if identity != self._listed:
            self.segments, self._listed = self._load(), identity
        self.segments.look()
        return self.segments

    # ---- feeding

    def feed(self, store: "StoreWait", stop: Callable[[], bool] = lambda: False) -> int:
        """Takes in what the queue has, as far as it is flushed. Durable when it returns. Returns how many messages that were.
        Raises OSError (also for a write or sync that failed before), CorruptionError, StoreStateError."""
        with self._lock:
            if self._failed is not None:
                raise self._failed
            try:
                return self._feed(store, stop)
            except BaseException as error:
                self._end_writer()              # what was gathered is fed again
                self._next = -1
                if isinstance(error, OSError) and error.errno not in (ENOSPC, EDQUOT):
                    self._failed = DurabilityError(error.errno or 0, "feeding a compaction log", self.places.log)
                raise

    def _feed(self, store: "StoreWait", stop: Callable[[], bool]) -> int:
        topic, queue_id = self.places.topic, self.places.queue_id
        rows = [row for row in store._queues_of(topic) if row[0] == queue_id]
        if not rows:
            return 0
        _, low, high = rows[0]
        if self._next < 0:
            self._trim(high)
            self._next = self.segments.bounds()[1] + 1
        at = max(self._next, low)
        fed = 0
        while at < high and not stop():
            writer = self._open_writer()
            before = writer.count
            at, why = feed(store, writer, topic, queue_id, at, high)
            count = writer.write()
            if count > before:
                self.segments.grown(count)
                fed += count - before
            self._next = at
            if why == "full":
                self._roll(writer)
            elif why == "end":
                break
        if fed and self._writer is not None:
            self._writer.sync()
        return fed

    def _open_writer(self) -> PairWriter:
        if self._writer is None:
            last = self.segments.pair_count - 1
            if last < 0 or self.segments.pair(last)[3]:
                return self._new_pair(0 if last < 0 else self.segments.pair(last)[0] + self.segments.log_size)
            start, count, end, _ = self.segments.pair(last)
            self._fds, self._writer = self._writer_of(self.places.log, self.places.entries, start, count, end)
        return self._writer

    def _roll(self, writer: PairWriter) -> None:
        if writer.count == 0:
            raise StoreStateError(exceeds(f"a message of {self.places.topic}, queue {self.places.queue_id}, offset {self._next}",
                                          "larger than a file of its compaction log", f"{writer.log_size} bytes",
                                          "move the compaction log away, and open with a greater compaction_file_size_bytes"))
        writer.close_pair()
        start = writer.start + writer.log_size
        self._end_writer()
        self._new_pair(start)

    def _new_pair(self, start: int) -> PairWriter:
        disk.new_pair(self._files, self.places, start, self.segments.log_size, self.segments.entry_size, under_way=False)
        self.segments = self._load()
        self._fds, self._writer = self._writer_of(self.places.log, self.places.entries, start, 0, 0)
        return self._writer

    def _writer_of(self, log_dir: str, entry_dir: str, start: int, count: int, end: int) -> tuple[tuple[int, int], PairWriter]:
        fds: list[int] = []
        try:
            for directory in (log_dir, entry_dir):
                fds.append(self._files.open(os.path.join(directory, f"{start:020d}"), os.O_RDWR))
            return (fds[0], fds[1]), PairWriter(self._files.table, os.path.join(log_dir, f"{start:020d}"), fds[0], fds[1], start,
                                                self.segments.log_size, self.segments.entry_size, count, end)
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

    def _trim(self, high: int) -> None:
        """A log that was cut, or a broker that lost power, leaves entries that the queue does not have: other messages get their
        offsets. Pairs of such entries alone are put aside; of the pair before them a copy of the entries is."""
        found = self.segments.place(high)
        if found is None:
            return
        first, index = found
        for i in reversed(range(first if index == 0 else first + 1, self.segments.pair_count)):
            start = self.segments.pair(i)[0]
            for directory in reversed(self.places.both):
                emit(Event.COMPACTION_FILE_ASIDE, path=disk.put_aside(self._files, self.places, directory, start))
        if index > 0:
            emit(Event.COMPACTION_FILE_ASIDE, path=disk.cut_entries(self._files, self.places, self.segments.pair(first)[0],
                                                                    index * 46))
        self.segments = self._load()

    # ---- compacting

    def compact(self, positions: disk.Positions, map_bytes: int, pause: Callable[[], bool]) -> Compacted | None:
        """One compaction, if there is a pair before the last one that the last compaction did not have. pause: called between
        slices of the work, True ends it without a change. Returns (messages before, kept, last offset), None where there was
        nothing to do. Raises OSError, CorruptionError."""
        topic, queue_id = self.places.topic, self.places.queue_id
        with self._lock:
            if disk.replace_all(self._files, self.places):      # one that an error has stopped
                self.segments = self._load()
            disk.sweep(self._files, self.places)
            segments = self.segments
        closed, position = segments.pair_count - 1, positions.get(topic, queue_id)
        if closed < 1 or all(segments.last_of(i) <= position for i in range(closed)):
            return None
        work = Compaction(segments, self.places.log, closed, position, map_bytes)
        while work.map_some(SLICE):
            if pause():
                return None
        stays = segments.pair(closed)[0]
        new = self._copy(work, stays, pause)
        if new is None:
            return None
        with self._lock:
            disk.begin_replacing(self._files, self.places, new, stays)
            disk.replace_all(self._files, self.places)
            self.segments = self._load()
        if work.last_offset >= 0:
            positions.set(topic, queue_id, work.last_offset)
        return work.kept + work.dropped, work.kept, work.last_offset

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
                                      os.path.join(self.places.entries, disk.COMPACTING), start, 0, 0)
        try:
            yield writer
        finally:
            for fd in fds:
                self._files.close(fd)

    def end(self) -> None:
        """Nothing more is fed."""
        with self._lock, suppress(OSError):     # all of it was made durable by the feed
            self._end_writer()


def _listing(places: disk.Places) -> tuple[int, ...]:
    """Changes with each name in the directories of the queue."""
    found = []
    for directory in places.both:
        try:
            found.append(os.stat(directory).st_mtime_ns)
        except FileNotFoundError:
            found.append(-1)
    return tuple(found)
