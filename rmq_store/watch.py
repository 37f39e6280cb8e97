"""One daemon thread a store that says in the log what native threads noted: a fence, long-held locks, a full disk.

It decides nothing and takes the GIL twice a second for some microseconds. Ends with the store.
"""
import threading
import weakref
from typing import TYPE_CHECKING

from rmq_store.events import Event, emit

if TYPE_CHECKING:
    from rmq_store.store import MessageStore

PERIOD_S = 0.5
BEHIND_BYTES = 256 << 20


class Watch:
    """Starts with the store; holds it weakly, so that a forgotten store can be collected."""

    def __init__(self, store: "MessageStore") -> None:
        self._store = weakref.ref(store)
        self._stop = threading.Event()
        self._seen: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="rmq-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Says what is left to say, then ends."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            if not self._look():
                return

    def _look(self) -> bool:
        store = self._store()
        if store is None:
            return False
        now = store._notes()
        if now is None:
            return True
        before, self._seen = self._seen, now
        if now["fence"] and not before.get("fence"):
            emit(Event.STORE_FAILED, what="write" if now["fence_step"] == 1 else "sync", file=store.path, errno=now["fence"],
                 offset=now["flushed"])
        if now["slow_locks"] > before.get("slow_locks", 0):
            emit(Event.PUT_LOCK_HELD_LONG, ms=now["slow_lock_ms"], phase=now["slow_lock_phase"], count=now["slow_locks"])
        if now["allocate_error"] and not before.get("allocate_error"):
            emit(Event.DISK_FULL, file=store.path, size=store.options.segment_size_bytes, errno=now["allocate_error"])
        elif before.get("allocate_error") and not now["allocate_error"]:
            emit(Event.DISK_SPACE_BACK, file=store.path)
        if now["behind"] > BEHIND_BYTES and before.get("behind", 0) <= BEHIND_BYTES:
            emit(Event.DISPATCH_BEHIND, size=now["behind"])
        return True
