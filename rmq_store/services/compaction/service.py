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
from typing import TYPE_CHECKING, NamedTuple

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import StoreClosed, StoreStateError
from rmq_store.events import Event, emit
from rmq_store.services.compaction import files as disk
from rmq_store.services.compaction.log import CompactionLog

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["Compacted", "Compactions"]

FEED_S = 1.0
PAUSE_MAX_S = 0.5


class Compacted(NamedTuple):
    """One queue that was compacted: so many messages were in the files before the newest one, and so many stayed."""

    topic: str
    queue_id: int
    messages: int
    kept: int


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
        self._failed: dict[str, str] = {}
        self._closed = False
        self.thread: threading.Thread | None = None

    # ---- which there are

    def take(self, topics: frozenset[str]) -> None:
        """The topics whose cleanup policy is COMPACTION from now on."""
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
        log = self._log(topic, queue_id, False)
        if log is None:
            return None
        segments = log.segments if self._writable else log.follow()
        first, last = segments.bounds()
        if last < offset or first >= limit:
            return None
        messages, beyond, unreadable = segments.read(store, topic, queue_id, offset, limit, count_max, bytes_max)
        return messages, beyond, first, unreadable

    def first(self, topic: str, queue_id: int) -> int:
        """The first queue offset of a compaction log; -1: there is none. Raises CorruptionError, OSError."""
        log = self._log(topic, queue_id, False)
        return -1 if log is None else (log.segments if self._writable else log.follow()).bounds()[0]

    # ---- feeding and compacting

    def feed(self, store: "StoreWait", stop: threading.Event | None = None) -> None:
        """Takes in what the queues of all compaction topics have, as far as it is flushed. Durable when it returns. Raises
        OSError, CorruptionError, StoreStateError."""
        for topic in self._topics:
            for queue_id, _, _ in store._queues_of(topic):
                log = self._log(topic, queue_id, True)
                if log is not None:
                    log.feed(store, (lambda: False) if stop is None else stop.is_set)

    def compact(self, store: "StoreWait", topic: str | None, stop: threading.Event | None = None) -> list[Compacted]:
        """Feeds and compacts every queue of a compaction topic, or of all. Returns those that had something to do. Raises as
        feed."""
        done: list[Compacted] = []
        with self._busy:
            if self._positions is None:
                self._positions = disk.Positions.of(self._files, self._path)
            for name in sorted(self._topics if topic is None else self._topics & {topic}):
                for queue_id, _, _ in store._queues_of(name):
                    log = self._log(name, queue_id, True)
                    if log is None:
                        continue
                    log.feed(store)
                    found = log.compact(self._positions, self._options.compaction_map_bytes, _Pause(stop or self._stop))
                    if found is not None:
                        before, kept, _ = found
                        emit(Event.COMPACTED, topic=name, queue_id=queue_id, count=before, kept=kept, path=self._path)
                        done.append(Compacted(name, queue_id, before, kept))
        return done

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
        """The queue is gone, and begins at offset 0 again. Raises OSError."""
        places = disk.Places(self._path, topic, queue_id)
        if not os.path.isdir(places.log) and not os.path.isdir(places.entries):
            return
        with self._busy:
            with self._lock:
                log = self._logs.pop((topic, queue_id), None)
            if log is not None:
                log.end()
            disk.remove(self._files, places)
            if self._positions is None:
                self._positions = disk.Positions.of(self._files, self._path)
            self._positions.set(topic, queue_id, None)

    def stop(self) -> None:
        """Waits for the slice that is under way."""
        self._stop.set()
        if self.thread is not None and threading.current_thread() is not self.thread:
            self.thread.join()

    def finish(self, store: "StoreWait") -> None:
        """close(): feeds what is left. Raises OSError."""
        if self._topics and self._services:
            store._flush()
            store._wait_dispatched(None)
            self.feed(store)

    def close(self) -> None:
        """Lets go of the files; views keep those that they show."""
        with self._lock:
            self._closed = True
            for log in self._logs.values():
                log.end()
            self._logs.clear()


class _Pause:
    """Called between two slices: rests as long as the last one took. True once it is to end."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._since = time.monotonic()

    def __call__(self) -> bool:
        ended = self._stop.wait(min(time.monotonic() - self._since, PAUSE_MAX_S))
        self._since = time.monotonic()
        return ended
