"""The compaction logs of a store: which there are, the thread that feeds and compacts them, and reading what the log of the
store has no more (RocketMQ: kv.CompactionStore, CompactionService).

The thread starts with the first compaction topic. It feeds each queue of those topics once a second, and compacts every
compaction_interval_ms; between slices of the work it pauses for as long as the last slice took. close() feeds what is left, so
that a broker which takes the directory over has all. Holds the store weakly.
"""
import os
import threading
import time
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.threads import start_thread
from rmq_store.base.io.wants import is_want
from rmq_store.errors import ConfigFileCorrupted, CorruptionError, StoreClosed, StoreStateError
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.services.compaction import files as disk
from rmq_store.services.compaction._segments import Segments
from rmq_store.services.compaction.log import CompactionLog, weigh

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["Compacted", "CompactionState", "Compactions", "Older"]

FEED_S = 1.0
PAUSE_MAX_S = 0.5


class Compacted(NamedTuple):
    """One queue that was compacted: so many messages, of records of `size` bytes, were in the files before the newest one, and
    so many stayed: int each."""

    topic: str
    queue_id: int
    messages: int
    kept: int
    size: int
    kept_size: int


class CompactionState(NamedTuple):
    """The compaction log of one queue. messages, size: of all its records, in bytes. file_size: of its files, in bytes.
    min_offset, max_offset: the first queue offset, and one past the last; compacted_to: one past the last queue offset that the
    last compaction knew, 0: never. behind: queue offsets that the compaction log has not taken in yet. damage: why the queue
    is not compacted, "" it is."""

    topic: str
    queue_id: int
    messages: int
    size: int
    file_size: int
    min_offset: int
    max_offset: int
    compacted_to: int
    behind: int
    damage: str


class Older:
    """The first `count` entries of a compaction log, those below `low`."""

    def __init__(self, segments: Segments, low: int, count: int) -> None:
        self._segments, self.low, self.count = segments, low, count

    def offset(self, index: int) -> int:
        return self._segments.entry(index)[0]

    def time(self, index: int) -> int:
        """Store time, ms since 1970."""
        return self._segments.entry(index)[1]

    def between(self, begin: int, end: int) -> int:
        """How many messages have a queue offset in [begin, end)."""
        return max(self._segments.rank(min(end, self.low)) - self._segments.rank(begin), 0)

    def by_time(self, timestamp: int, upper: bool) -> int | None:
        """As offset_by_time. None: what the log of the store says holds, as it has all messages of that time or later."""
        index = (bisect_right if upper else bisect_left)(range(self.count), timestamp, key=self.time)
        if index == self.count:
            return None
        return self.offset(max(index - upper, 0))


class Compactions:
    """Of one store. Thread-safety: any."""

    def __init__(self, store: "StoreWait", files: ControlFiles, services: bool) -> None:
        """services: whether the thread runs, which a tool must not have."""
        self._store, self._path = weakref.ref(store), store.path
        self._files, self._options = files, store.options
        self._writable, self._services = not store.readonly, services and not store.readonly
        self._lock = StoreLock(store.path, "the compaction logs")
        self._logs: dict[tuple[str, int], CompactionLog] = {}
        self._topics: frozenset[str] = frozenset()
        self._positions: disk.Positions | None = None
        self._stop = threading.Event()
        self._busy = StoreLock(store.path, "compacting")
        self._gone: set[tuple[str, int]] = set()        # removed queues whose files are still there: nobody opens them
        self._failed: dict[str, str] = {}
        self._closed = False
        self.thread: threading.Thread | None = None

    # ---- which there are

    def take(self, topics: frozenset[str]) -> None:
        """The topics whose cleanup policy is COMPACTION from now on. Raises OSError, CorruptionError."""
        store = self._store()
        for topic in topics - self._topics:
            for queue_id, low, _ in store._queues_of(topic) if store is not None else ():
                if os.path.exists(disk.Places(self._path, topic, queue_id).unfed):
                    log = self._log(topic, queue_id, True)
                    if log is not None:
                        log.take_up(low)
        self._topics = topics
        if topics and self._services and self.thread is None and not self._stop.is_set():
            self.thread = start_thread(self._run, "rmq-compact")

    @property
    def topics(self) -> frozenset[str]:
        return self._topics

    def _log(self, topic: str, queue_id: int, make: bool) -> CompactionLog | None:
        """make: also where there are no files yet. Raises CorruptionError, OSError."""
        with self._lock:
            if self._closed:
                raise StoreClosed(self._path)
            if (topic, queue_id) in self._gone:
                return None
            found = self._logs.get((topic, queue_id))
            if found is None:
                places = disk.Places(self._path, topic, queue_id)
                if not make and not os.path.isdir(places.log):
                    return None
                found = self._logs[topic, queue_id] = CompactionLog(self._files, places, self._options, self._writable)
            return found

    def on_disk(self) -> bool:
        return os.path.isdir(os.path.join(self._path, disk.DIRECTORY))

    # ---- reading

    def read(self, store: "StoreWait", topic: str, queue_id: int, offset: int, limit: int, count_max: int,
             bytes_max: int) -> "tuple[list[Message], int, int, int] | None":
        """Messages below `limit`, the first offset that the log of the store has: (messages, offset to continue at, first
        offset of the compaction log, entries without a record). None: the queue has no compaction log, or nothing from `offset`
        on. Raises CorruptionError, OSError."""
        segments = self._segments(topic, queue_id)
        if segments is None:
            return None
        first, last = segments.bounds()
        if last < offset or first >= limit:
            return None
        messages, beyond, unreadable = segments.read(store, topic, queue_id, offset, limit, count_max, bytes_max)
        return messages, beyond, first, unreadable

    def older(self, topic: str, queue_id: int, low: int) -> "Older | None":
        """What the compaction log of a queue has below `low`, the first offset that the log of the store has. None: nothing.
        Raises CorruptionError, OSError."""
        segments = self._segments(topic, queue_id)
        count = 0 if segments is None else segments.rank(low)
        return None if segments is None or count == 0 else Older(segments, low, count)

    def compacted(self, topic: str, queue_id: int) -> bool:
        """Whether a compaction has gone over the queue. Raises OSError."""
        return self._positions_now().get(topic, queue_id) >= 0

    def search(self, store: "StoreWait", topic: str, key: str, begin_time: int, end_time: int,
               count_max: int) -> "list[Message]":
        """The newest messages with a key that the log of the store has no more, each queue's in the order of their offsets.
        Reads the compaction log of each queue from its end. Raises CorruptionError, OSError."""
        found: list[Message] = []
        for queue_id, low, _ in store._queues_of(topic):
            segments = self._segments(topic, queue_id) if low > 0 else None
            if segments is not None:
                found += segments.search(store, topic, queue_id, key, begin_time, end_time, low, count_max)
        found.sort(key=lambda message: (message.store_timestamp, message.queue_id, message.queue_offset))
        return found[max(len(found) - count_max, 0):]

    def _segments(self, topic: str, queue_id: int) -> Segments | None:
        """As they are now. None: there is no compaction log, or its values may be old. Raises CorruptionError, OSError."""
        log = self._log(topic, queue_id, False)
        if log is None or (not self._writable and os.path.exists(log.places.unfed)):
            return None
        return log.segments if self._writable else log.follow()

    def weigh(self, store: "StoreWait", topics: Iterable[str]) -> list[Compacted]:
        """What a compaction of these topics would do with the files as they are. Changes nothing. Raises OSError,
        CorruptionError."""
        done: list[Compacted] = []
        for topic in sorted(topics):
            for queue_id, _, _ in store._queues_of(topic):
                segments, places = self._segments(topic, queue_id), disk.Places(self._path, topic, queue_id)
                found = None if segments is None else weigh(self._files, places, segments, self._positions_now(),
                                                            self._options.compaction_map_bytes, self._stop.is_set)
                if found is not None:
                    done.append(Compacted(topic, queue_id, *found))
        return done

    def _positions_now(self) -> disk.Positions:
        try:
            return disk.Positions.of(self._files, self._path)
        except ConfigFileCorrupted:             # a compaction moves it away
            return disk.Positions.none(self._files, self._path)

    def states(self, store: "StoreWait", topics: Iterable[str]) -> list[CompactionState]:
        """Of the queues of these topics that have a compaction log. Raises OSError."""
        done: list[CompactionState] = []
        positions = self._positions_now()
        for topic in sorted(topics):
            for queue_id, _, high in store._queues_of(topic):
                try:
                    segments = self._segments(topic, queue_id)
                except CorruptionError as error:
                    done.append(CompactionState(topic, queue_id, 0, 0, 0, -1, 0, 0, high, str(error)))
                    continue
                if segments is not None:
                    position = positions.get(topic, queue_id) + 1
                    done.append(_state(self._files, disk.Places(self._path, topic, queue_id), segments, position, high))
        return done

    def version(self, topic: str, queue_id: int) -> object:
        """What changes when a compaction replaces files of a queue. Raises CorruptionError, OSError."""
        log = self._log(topic, queue_id, False)
        if log is not None and not self._writable:
            log.follow()
        return None if log is None else log.version

    # ---- feeding and compacting

    def feed(self, store: "StoreWait", stop: threading.Event | None = None) -> None:
        """Takes in what the queues of all compaction topics have, as far as it is flushed. Durable when it returns. Raises
        OSError, CorruptionError, StoreStateError."""
        failed: Exception | None = None
        for topic in self._topics:
            for queue_id, low, high in store._queues_of(topic):
                try:
                    log = self._log(topic, queue_id, True)
                    if log is not None:
                        log.feed(store, low, high, (lambda: False) if stop is None else stop.is_set)
                except StoreClosed:
                    raise
                except (OSError, CorruptionError, StoreStateError) as error:        # of one queue: others are fed
                    failed = failed or error
        if failed is not None:
            raise failed

    def compact(self, store: "StoreWait", topic: str | None) -> list[Compacted]:
        """Feeds and compacts every queue of a compaction topic, or of all. Returns those that had something to do. Raises as
        feed, after all other queues were compacted."""
        done: list[Compacted] = []
        failed: Exception | None = None
        with self._busy:
            positions = self._take_positions()
            for name in sorted(self._topics if topic is None else self._topics & {topic}):
                for queue_id, low, high in store._queues_of(name):
                    try:
                        log = self._log(name, queue_id, True)
                        if log is None:
                            continue
                        log.feed(store, low, high)
                        found = log.compact(positions, self._options.compaction_map_bytes, _Pause(self._stop))
                    except StoreClosed:
                        raise
                    except (OSError, CorruptionError, StoreStateError) as error:
                        failed = failed or error
                        continue
                    if found is not None:
                        done.append(Compacted(name, queue_id, *found))
                        emit(Event.COMPACTED, topic=name, queue_id=queue_id, count=found.messages, kept=found.kept,
                             path=self._path)
        if failed is not None:
            raise failed
        return done

    def _take_positions(self) -> disk.Positions:
        """The caller holds _busy. Raises OSError."""
        if self._positions is None:
            self._positions, aside = disk.Positions.begin(self._files, self._path)
            for place in aside:
                emit(Event.COMPACTION_FILE_ASIDE, path=place)
        return self._positions

    def _run(self) -> None:
        due = time.monotonic() + self._options.compaction_interval_ms / 1000
        while not self._stop.wait(FEED_S):
            store = self._store()
            if store is None:
                return
            compacts = time.monotonic() >= due
            try:
                self.feed(store, self._stop)
                self._failed.pop("feeding compaction logs", None)
                if compacts:
                    self.compact(store, None)
                    self._failed.pop("compacting", None)
            except StoreStateError as error:
                if store.closed or self._stop.is_set():
                    return
                self._say("feeding compaction logs", error)
            except Exception as error:      # of whatever kind: it is tried again, and the thread continues
                self._say("compacting" if compacts else "feeding compaction logs", error)
            if compacts:
                due = time.monotonic() + self._options.compaction_interval_ms / 1000
            del store

    def _say(self, task: str, error: Exception) -> None:
        """Once, not every second."""
        if self._failed.get(task) != str(error):
            self._failed[task] = str(error)
            emit(Event.TASK_FAILED, task=task, path=self._path, error=str(error))

    # ---- the end

    def remove(self, topic: str, queue_id: int) -> None:
        """The queue is gone, and begins at offset 0 again. For want of something the files go later (remove_files). Raises
        OSError for another reason."""
        places = disk.Places(self._path, topic, queue_id)
        if os.path.isdir(places.log) or os.path.isdir(places.entries):
            with self._lock:
                self._gone.add((topic, queue_id))
            self.remove_files()

    def remove_files(self) -> None:
        """Deletes the compaction logs of removed queues that are still there. Raises OSError, but for a want."""
        for queue in list(self._gone):
            try:
                self._remove_files(*queue)
            except OSError as error:
                if not is_want(error):
                    raise

    def _remove_files(self, topic: str, queue_id: int) -> None:
        with self._busy:
            self._take_positions().set(topic, queue_id, None)       # first: a position beyond its queue is wrong
            with self._lock:                    # nobody opens them meanwhile
                log = self._logs.pop((topic, queue_id), None)
                if log is not None:
                    log.end()
                disk.remove(self._files, disk.Places(self._path, topic, queue_id))
                self._gone.discard((topic, queue_id))

    def mark_unfed(self) -> None:
        """Before cleaning deletes a file: the values of queues that are not fed may be old from then on. Raises OSError."""
        for topic, queue_id in disk.queues_on_disk(self._path):
            if topic not in self._topics:
                disk.mark_unfed(self._files, disk.Places(self._path, topic, queue_id))

    def stop(self) -> None:
        """Waits for the slice that is under way, also of a compaction by hand."""
        self._stop.set()
        if threading.current_thread() is self.thread:
            return
        if self.thread is not None:
            self.thread.join()
        with self._busy:
            pass

    def finish(self, store: "StoreWait") -> None:
        """close(): feeds what is left, so that whoever opens the directory next has it. What fails is logged: the next open of
        this library feeds it."""
        try:
            if self._topics and self._services:
                store._flush()
                store._wait_dispatched(self._options.close_timeout_ms / 1000)
                self.feed(store)
        except (OSError, CorruptionError, StoreStateError) as error:
            emit(Event.TASK_FAILED, task="feeding compaction logs", path=self._path, error=str(error))

    def close(self) -> None:
        """Lets go of the files; views keep those that they show."""
        with self._lock:
            self._closed = True
            for log in self._logs.values():
                log.end()
            self._logs.clear()


def _state(files: ControlFiles, places: disk.Places, segments: Segments, position: int, high: int) -> CompactionState:
    pairs = [segments.pair(i) for i in range(segments.pair_count)]
    first, last = segments.bounds()
    damage = [f"entries behind entry {pairs[i][1]} of {places.entries}/{pairs[i][0]:020d} cannot be read"
              for i, _ in disk.unread_entries(files, places, segments)]
    return CompactionState(places.topic, places.queue_id, sum(pair[1] for pair in pairs), sum(pair[2] for pair in pairs),
                           len(pairs) * (segments.log_size + segments.entry_size), first, last + 1, position,
                           max(high - 1 - last, 0), "; ".join(damage))


class _Pause:
    """Called between two slices: rests as long as the last one took. True once it is to end."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._since = time.monotonic()

    def __call__(self) -> bool:
        ended = self._stop.wait(min(time.monotonic() - self._since, PAUSE_MAX_S))
        self._since = time.monotonic()
        return ended
