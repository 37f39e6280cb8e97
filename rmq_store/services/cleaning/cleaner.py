"""Deleting what is old: rounds by the clock and the disk in the control thread, and by hand (RocketMQ: CleanCommitLogService,
CleanConsumeQueueService, executeDeleteFilesManually).

A round deletes commit-log files from the oldest on, never the newest, never one that is not flushed and dispatched, at most
clean_files_max, with a pause between two. Then queues and index follow the log's beginning. Deleting is the steps of
_clean.pyx; here is only their order, and what is said about it.

Thread-safety: one lock; a round by hand waits for the one that runs. Crash-safety: any step may be the last one; the next open
finds a shorter log, and queues and index that begin earlier than it, which their readers correct.
"""
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from rmq_store.access.core._building import set_full
from rmq_store.base.io._lock import StoreLock, owing
from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.config.values import path_list
from rmq_store.errors import ArgumentIllegal
from rmq_store.events import Event, emit
from rmq_store.fields import Fields, NamedTuple
from rmq_store.log.recovery import checkpoint
from rmq_store.log.recovery.places import Places
from rmq_store.services.cleaning import _clean
from rmq_store.services.cleaning.clock import MADE_MS, AgeClock
from rmq_store.services.cleaning.rules import Limits, expired, judge, used_percent

if TYPE_CHECKING:
    from rmq_store.access.reader._query import StoreQuery

__all__ = ["Cleaned", "Cleaner", "Lost", "keep_ms"]

HOUR_MS = 3_600_000
HOURS_MAX = 1_000_000        # as of retention_hours
SLICE_S = 0.1
# Of a store: (topic, group) -> queue id -> next offset to consume. Called with the store, so that nobody holds it for that.
Known = Callable[[Any], Mapping[tuple[str, str], Mapping[int, int]]]


class Lost(NamedTuple):
    """Messages that went before a known group had consumed them: `count` of them, from queue offset `begin` to below `end`."""

    group: str
    topic: str
    queue_id: int
    begin: int
    end: int

    @property
    def count(self) -> int:     # type: ignore[override]
        return self.end - self.begin


class Cleaned(Fields):
    """What cleaning did. `held`: path of a file that is withdrawn from the log and waits for message views; "" none."""

    __slots__ = ("held", "index_files", "log_bytes", "log_files", "lost", "min_log_offset", "queue_files")

    def __init__(self) -> None:
        self.log_files = self.log_bytes = self.queue_files = self.index_files = self.min_log_offset = 0
        self.held = ""
        self.lost: list[Lost] = []


def keep_ms(options: Options, hours: float | None) -> int | None:
    """For clean and due: `hours`, or retention_hours, in ms; None: whatever the age. Raises ArgumentIllegal."""
    if hours is None:
        hours = options.retention_hours
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours <= HOURS_MAX:
        raise ArgumentIllegal(f"hours is {hours!r}: give the age of the files to delete, 0 to {HOURS_MAX} hours, here or "
                         "as retention_hours")
    return int(hours * HOUR_MS) if hours else None


def _counted(name: str, value: int | None) -> int | None:
    """`value` where it is None, or a number from 0 on. Raises ArgumentIllegal."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ArgumentIllegal(f"{name} is {value!r}: give a whole number, 0 or more")
    return value


class Stop(Protocol):
    """What ends a round early, between two files: the event of the control thread, or its like."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float) -> bool: ...


class _ByHand:
    """Of a round by hand: the store closes, or a signal handler wants to close it and has put that off until the round ends."""

    def __init__(self, store: "StoreQuery") -> None:
        self._store = store

    def is_set(self) -> bool:
        return owing() or self._store.closed

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while not self.is_set() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, SLICE_S))
        return self.is_set()


class Cleaner:
    """Made when a store is opened; of a readonly one only `due` is asked. `used` measures a disk: tests put their own there."""

    def __init__(self, files: ControlFiles, places: Places, known: Known,
                 before: Callable[[Any], object] = lambda store: None) -> None:
        """before: called with the store before each log file is deleted: it saves what must outlive them, or raises."""
        self._files = files
        self._places, root = places, places.root
        self._full: set[str] = set()                    # directories of the log that get no new files now
        self._refused_pct: int | None = None            # the disk_full_pct above which puts were refused last
        self._told_fixed = ""
        self._known = known
        self._before = before
        self._clock = AgeClock(files, root, checkpoint.read(files, places.checkpoint)[0])
        self._lock = StoreLock(root, "cleaning")
        self._held: _clean.Withdrawn | None = None      # withdrawn, but somebody looks at it
        self._told_held = False
        self._followed = 0                              # queues and index were cleaned up to this log offset
        self.used = used_percent

    @staticmethod
    def wanted(options: Options) -> bool:
        """True where `tick` has something to look at."""
        return (options.retention_hours is not None or options.disk_full_pct is not None
                or len(path_list(options.commitlog_path)) > 1)

    # ---- by the clock and the disk

    def tick(self, store: "StoreQuery", stop: Stop, *, services: bool = True) -> Cleaned:
        """One look, and a round if there is a reason; without `services` the look alone, which refuses puts where the disk is
        full. Ends early, between two files, once `stop` is set."""
        options = store.options
        if store.disk_full and options.disk_full_pct is None:       # there is no limit any more
            store._set_disk_full(False)
            emit(Event.DISK_LIMIT_GONE, path=store.path)
        if not self.wanted(options):
            return self._go_on(store, stop, services)
        log_pct, queue_pct = self._log_percent(store), self.used(self._places.consumequeue)
        limits = Limits(options.retention_hours_of_day, options.disk_clean_pct, options.disk_force_pct, options.disk_full_pct,
                        options.clean_forced)
        verdict = judge(time.localtime(self._files.wall_ms() / 1000).tm_hour, log_pct, queue_pct, limits,
                        self._refused_pct)
        if verdict.full:
            self._refused_pct = limits.full_pct
        if verdict.full is not None and verdict.full != store.disk_full:
            store._set_disk_full(verdict.full)
            emit(Event.DISK_FULL_PERCENT if verdict.full else Event.DISK_PERCENT_BACK, path=store.path,
                 used=max(log_pct, queue_pct), limit=limits.full_pct)
        if options.retention_hours is None or not services:
            return self._go_on(store, stop, services)
        keep_ms = options.retention_hours * HOUR_MS
        reason = "forced" if verdict.any_age else verdict.reason
        with self._lock:
            now = self._clock.now_ms(keep_ms)
            if self._clock.was_unset:
                self._make_young()
                self._clock.was_unset = False
            return self._round(store, None if verdict.any_age else keep_ms, now, bool(verdict.reason), reason,
                               options.clean_files_max, options.clean_pace_ms, stop)

    def _go_on(self, store: "StoreQuery", stop: Stop, services: bool) -> Cleaned:
        """Nothing new goes, but a file that was withdrawn does once nobody looks at it."""
        if not services or self._held is None:
            return Cleaned()
        with self._lock:
            return self._round(store, None, 0, False, "begun before", 0, 0, stop)

    def _log_percent(self, store: "StoreQuery") -> int:
        """Of the emptiest disk of those that get new files, as in RocketMQ; of several, what is full gets no new file while
        another is not."""
        growing, limit = self._places.growing, store.options.disk_force_pct
        used = [self.used(path) for path in growing]
        for number, (path, percent) in enumerate(zip(growing, used, strict=True)) if len(growing) > 1 else ():
            full = percent > limit
            set_full(store, number, full)
            if full != (path in self._full):
                self._full ^= {path}
                emit(Event.LOG_DIRECTORY_FULL if full else Event.LOG_DIRECTORY_BACK, path=store.path, directory=path,
                     used=percent, limit=limit)
        return min(used)

    # ---- by hand

    def clean(self, store: "StoreQuery", keep_ms: int | None, files_max: int | None, pace_ms: int | None) -> Cleaned:
        """One round whatever the hour. keep_ms None: whatever the age. Raises ArgumentIllegal."""
        files_max, pace_ms = _counted("files_max", files_max), _counted("pace_ms", pace_ms)
        with self._lock:
            return self._round(store, keep_ms, self._files.wall_ms(), True, "asked for",
                               files_max if files_max is not None else 1 << 62,
                               store.options.clean_pace_ms if pace_ms is None else pace_ms, _ByHand(store))

    def due(self, store: "StoreQuery", keep_ms: int | None, files_max: int | None) -> list[int]:
        """Log offsets of the files that `clean` would delete. Raises ArgumentIllegal."""
        files_max, now = _counted("files_max", files_max), self._files.wall_ms()
        found: list[int] = []
        for start, modified in _clean.log_files(store):
            if len(found) == files_max or (keep_ms is not None and not expired(modified, now, keep_ms)):
                break
            found.append(start)
        return found

    def finish(self) -> None:
        """At closing: a withdrawn file that nobody looks at any more goes now; else it stays, and the next open has it."""
        with self._lock:
            if self._held is not None and self._held.users == 0:
                self._delete(self._held)
            self._held = None

    # ---- a round

    def _round(self, store: "StoreQuery", keep_ms: int | None, now: int, look: bool, reason: str, files_max: int,
               pace_ms: int, stop: Stop) -> Cleaned:
        """keep_ms None: whatever their age at `now`. look False: nothing new goes, only what an earlier round has begun."""
        done = Cleaned()
        self._delete_held(store, done)
        if look and self._held is None:
            self._delete_old(store, keep_ms, now, files_max, pace_ms, stop, done)
        done.min_log_offset = store.min_log_offset
        if done.min_log_offset > self._followed and not stop.is_set():
            self._follow(store, done, stop)
        if self._held is not None:
            done.held = self._held.path
        if done.log_files:
            emit(Event.LOG_FILES_DELETED, path=store.path, count=done.log_files, size=done.log_bytes, reason=reason,
                 min_offset=done.min_log_offset, queue_files=done.queue_files, index_files=done.index_files)
        return done

    def _delete_old(self, store: "StoreQuery", keep_ms: int | None, now: int, files_max: int, pace_ms: int,
                    stop: Stop, done: Cleaned) -> None:
        synced = False
        for start, modified in _clean.log_files(store):
            if done.log_files >= files_max or (keep_ms is not None and not expired(modified, now, keep_ms)):
                break
            if stop.is_set() or (done.log_files and stop.wait(pace_ms / 1000)):
                break
            if self._is_fixed(start):
                break
            if not synced:
                _clean.sync_queues(store)       # nothing else can tell how far they were, once the records are gone
                synced = True
            self._before(store)
            self._held = _clean.withdraw(store, start)
            self._told_held = False
            moved = _clean.correct_queues(store, start + self._held.size)
            self._note_lost(store, moved, done)
            self._delete_held(store, done)
            if self._held is not None:
                break

    def _make_young(self) -> None:
        """Files that were modified while the clock was not set look decades old, for ever: they count as modified now."""
        count = 0
        for path, _ in self._places.log_files():
            if os.stat(path).st_mtime_ns < MADE_MS * 1_000_000 and os.access(os.path.dirname(path), os.W_OK):
                fd = self._files.open(path, os.O_RDWR)
                try:
                    os.utime(fd, ns=(self._files.wall_ms() * 1_000_000,) * 2)
                    self._files.sync(fd)
                finally:
                    self._files.close(fd)
                count += 1
        emit(Event.CLOCK_FIRST_SET, path=self._places.root, count=count)

    def _is_fixed(self, start: int) -> bool:
        """Whether the file lies in one of several directories that cannot be written: it stays, and so do those behind it."""
        if not self._places.several:
            return False
        path = self._places.log_path(start)
        if os.access(os.path.dirname(path), os.W_OK):
            return False
        if path != self._told_fixed:
            self._told_fixed = path
            emit(Event.LOG_FILE_FIXED, file=path)
        return True

    def _delete_held(self, store: "StoreQuery", done: Cleaned) -> None:
        """Deletes the withdrawn file unless somebody looks at it; after clean_hanged_ms only its name, the views stay good."""
        held = self._held
        if held is None:
            return
        patience_ms = store.options.clean_hanged_ms
        hanged_ms = (self._files.mono_ns() - held.since_ns) / 1e6
        if held.users:
            if not self._told_held:
                self._told_held = True
                emit(Event.LOG_FILE_HELD, file=held.path, users=held.users, ms=patience_ms)
            if hanged_ms < patience_ms:
                return
            emit(Event.LOG_FILE_HANGED, file=held.path, users=held.users, ms=hanged_ms)
        self._delete(held)
        self._held = None
        done.log_files += 1
        done.log_bytes += held.size

    def _delete(self, file: _clean.Withdrawn) -> None:
        """The manifest goes first: one without its file tells of a lost file."""
        path = os.path.join(self._places.manifests, f"{file.start:020d}")
        if os.path.lexists(path) and not os.path.islink(self._places.manifests):
            with suppress(FileNotFoundError):       # the sealer was first
                self._files.unlink(path)
            self._files.sync_dir(self._places.manifests)
        file.delete()

    def _follow(self, store: "StoreQuery", done: Cleaned, stop: Stop) -> None:
        """Queues and index lose the files that lead below the log's beginning; a pause follows each queue that lost one."""
        low = done.min_log_offset if self._held is None else self._held.start
        for number in range(_clean.queue_total(store)):
            dropped = _clean.drop_queue_files(store, number, low)
            done.queue_files += dropped
            if dropped and stop.wait(store.options.clean_queue_pace_ms / 1000):
                return
        done.index_files += _clean.drop_index_files(store, low)
        self._followed = low

    def _note_lost(self, store: "StoreQuery", moved: list[tuple[str, int, int, int]], done: Cleaned) -> None:
        if not moved:
            return
        for (topic, group), offsets in self._known(store).items():
            for name, queue_id, before, now in moved:
                begin = max(offsets.get(queue_id, before), before)
                if name == topic and begin < now:
                    lost = Lost(group, topic, queue_id, begin, now)
                    done.lost.append(lost)
                    emit(Event.UNCONSUMED_DELETED, group=group, topic=topic, queue_id=queue_id, count=lost.count, begin=begin,
                         end=now)
