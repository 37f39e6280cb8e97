"""One daemon thread a store, the control thread: says in the log what native threads noted (a fence, long-held locks, a full
disk), and runs the tasks of the control plane that come round, cleaning for one.

It takes the GIL twice a second for some microseconds, and for as long as a task wants. Ends with the store.
"""
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rmq_store.base.io.threads import start_thread
from rmq_store.base.io.wants import lacking, want
from rmq_store.base.machine.stacks import dump_threads
from rmq_store.errors import DiskFull, StoreStateError
from rmq_store.events import Event, emit
from rmq_store.log.pool.memory import say_unlocked
from rmq_store.opened.serving import StoreServes
from rmq_store.services.statistics._counts import flush_times, lock_ms, pool_use

PERIOD_S = 0.5
BEHIND_BYTES = 256 << 20
SLOW_FLUSH_NS = 500_000_000
DUMP_MS = 1000          # as RocketMQ

# (name, ms between two runs, what to run). It is given the store and an event that is set when the store closes: a task that
# takes long looks at it. What it raises is logged and it is run again in its time.
Task = tuple[str, int, Callable[[StoreServes, threading.Event], object]]


class Watch:
    """Starts with the store; holds it weakly, so that a forgotten store can be collected."""

    def __init__(self, store: StoreServes, tasks: Sequence[Task] = ()) -> None:
        self._store = weakref.ref(store)
        self._stop = threading.Event()
        self._seen: dict[str, Any] = {}
        self._tasks = list(tasks)
        self._due = [time.monotonic() + ms / 1000 for _, ms, _ in self._tasks]
        self._failed: dict[str, str] = {}
        self._dumped = False
        self.thread = start_thread(self._run, "rmq-watch")

    def stop(self) -> None:
        """Says what is left to say, then ends."""
        self._stop.set()
        if threading.current_thread() is not self.thread:
            self.thread.join()
        self._say()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            if not self._say() or not self._run_tasks():
                return

    def _run_tasks(self) -> bool:
        for i, (name, ms, run) in enumerate(self._tasks):
            store = self._store()
            if store is None:
                return False
            if self._stop.is_set() or time.monotonic() < self._due[i]:
                continue
            try:
                run(store, self._stop)
                self._failed.pop(name, None)
            except StoreStateError:
                return False            # it closes
            except BaseException as error:      # of whatever kind, also of a put hook: the other tasks and this thread continue
                text = str(error) if isinstance(error, Exception) else repr(error)
                if self._failed.get(name) != text:      # said once, not every ten seconds
                    self._failed[name] = text
                    emit(Event.TASK_FAILED, task=name, path=store.path, error=text)
            self._due[i] = time.monotonic() + ms / 1000
            del store
        return True

    def _say(self) -> bool:
        """_look(), but where there is no memory for it: what is not said now is said the next time, and close() continues."""
        try:
            return self._look()
        except MemoryError:
            return True

    def _look(self) -> bool:
        store = self._store()
        if store is None:
            return False
        now = store._notes()
        if now is None:
            return True
        now |= _slow_flushes(store)
        now |= _pool(store, self._seen)
        if store.options.put_lock_dump:
            self._dump_if_held(store)
        before, self._seen = self._seen, now
        if now["fence"] and not before.get("fence"):
            messages, begin, end = store._unwritten() or (0, now["flushed"], now["flushed"])
            emit(Event.STORE_FAILED, what="write" if now["fence_step"] == 1 else "sync", file=store.path, errno=now["fence"],
                 offset=now["flushed"], messages=messages, begin=begin, end=end)
        elif now["want"] and not before.get("want"):
            messages, begin, end = store._unwritten() or (0, now["flushed"], now["flushed"])
            emit(Event.COMMITS_PAUSE, file=store.path, reason=str(want(now["want"], "writing the log of", store.path)),
                 messages=messages, begin=begin, end=end)
        elif before.get("want") and not now["want"] and not now["fence"]:
            emit(Event.COMMITS_CONTINUE, file=store.path)
        if now["slow_locks"] > before.get("slow_locks", 0):
            emit(Event.PUT_LOCK_HELD_LONG, ms=now["slow_lock_ms"], phase=now["slow_lock_phase"], count=now["slow_locks"])
        if now["allocate_error"] and not before.get("allocate_error"):
            code, size = now["allocate_error"], store.options.segment_size_bytes
            if code in DiskFull.codes:
                emit(Event.DISK_FULL, file=store.path, size=size, errno=code)
            else:
                emit(Event.FILE_REFUSED, file=store.path, size=size, errno=code, reason=lacking(code))
        elif before.get("allocate_error") and not now["allocate_error"]:
            emit(Event.DISK_SPACE_BACK, file=store.path)
        if now["lock_error"] and not before.get("lock_error"):
            say_unlocked("segment_mlock", 2 * store.options.segment_size_bytes, now["lock_error"])
        if now["slow_flushes"] > before.get("slow_flushes", 0):
            emit(Event.FLUSH_SLOW, count=now["slow_flushes"], ms=now["slowest_flush_ms"])
        if now["pool_waits"] > before.get("pool_waits", 0) and not before.get("pool_was_empty"):
            emit(Event.POOL_EMPTY, count=now["pool_waits"] - before.get("pool_waits", 0), size=now["pool_size"])
        elif now["pool_low"] and not before.get("pool_low"):
            emit(Event.POOL_LOW, free=now["pool_free"], size=now["pool_size"])
        if now["nameless_at"] >= 0 and before.get("nameless_at", -1) < 0:
            emit(Event.RECORDS_NAMELESS, path=store.path, offset=now["nameless_at"])
        if now["behind"] > BEHIND_BYTES and before.get("behind", 0) <= BEHIND_BYTES:
            emit(Event.DISPATCH_BEHIND, size=now["behind"])
        return True

    def _dump_if_held(self, store: StoreServes) -> None:
        """Once a holder: the threads while it still has the put lock, as afterwards nobody can tell what it waited for."""
        try:
            ms = lock_ms(store)
        except StoreStateError:
            return          # it closes
        if ms >= DUMP_MS and not self._dumped:
            emit(Event.PUT_LOCK_THREADS, ms=ms, threads=dump_threads())
        self._dumped = ms >= DUMP_MS


def _pool(store: StoreServes, before: dict[str, Any]) -> dict[str, Any]:
    """How full the pool is. Low: less than a quarter is free at two looks in a row, until half of it is. Was empty: puts waited
    for room, until none did between two looks. So a burst is told once, and so is a device that is slow for an hour."""
    size, free, waits = pool_use(store)
    short = size > 0 and free * 4 < size
    return {"pool_size": size, "pool_free": free, "pool_waits": waits, "pool_short": short,
            "pool_low": free * 2 < size and (bool(before.get("pool_low")) or (short and bool(before.get("pool_short")))),
            "pool_was_empty": waits > before.get("pool_waits", 0)}


def _slow_flushes(store: StoreServes) -> dict[str, float]:
    """How many flushes took longer than 500 ms, and the longest one."""
    times = flush_times(store)
    slow = sum(count for low, _, count in times.buckets() if low >= SLOW_FLUSH_NS) if times.highest >= SLOW_FLUSH_NS else 0
    return {"slow_flushes": slow, "slowest_flush_ms": times.highest / 1e6}
