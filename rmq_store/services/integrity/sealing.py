"""The thread that gives sealed commit-log files their manifest, away from puts.

It looks every manifest_interval_ms for files whose last byte is on the device and that have none, oldest first, at no more than
RATE bytes a second. What a stop leaves undone the next open does. An error is said in the log once for a file, which is tried
again later: no manifest is worth a store.
"""
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import StoreStateError
from rmq_store.events import Event, emit
from rmq_store.log.recovery.places import Places
from rmq_store.services.integrity import manifest

# As a scrub reads. The page cache does not have a file that direct writes made, so its bytes come from the device, beside those
# of the puts: a stream that fills one file after the other must not lose a processor to the manifests of the files before.
RATE = 64 << 20
AGAIN, AGAIN_MAX_S = 60, 600.0  # intervals after which what failed is tried again
_ROUND, _DROP, _WRITE = -3, -2, -1      # in place of a start


class _Stopped(Exception):
    pass


class Sealer:
    """Starts with the store; holds it weakly, so that a forgotten store can be collected."""

    def __init__(self, store: StoreWait, files: ControlFiles, places: Places) -> None:
        self._store = weakref.ref(store)
        self._files, self._root, self._places = files, store.path, places
        self._size = store.options.segment_size_bytes
        self._interval_s = store.options.manifest_interval_ms / 1000
        self._stop = threading.Event()
        self._failed: dict[int, float] = {}     # when to try again (monotonic), by start of the file
        # Loaded here, not in the thread: by then this process may have dropped its rights, or changed its root.
        manifest.crc32c_function()
        self.thread = start_thread(self._run, "rmq-manifest")

    def stop(self) -> None:
        """Ends at the next piece of a file."""
        self._stop.set()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            store = self._store()
            if store is None or store.closed:
                return
            try:
                low, flushed = store.min_log_offset, store._position("flushed")
                del store
                self._tried(_ROUND, self._root, partial(self.seal, low, flushed))
            except _Stopped:
                return
            except StoreStateError:     # closed between two lines
                return

    def seal(self, low: int, flushed: int) -> None:
        """Makes what is missing for the files in [low, flushed), and drops manifests of files that are gone. A file that cannot
        be read keeps no other from its manifest."""
        self._failed = {start: again for start, again in self._failed.items() if start >= low or start < 0}
        manifest.refuse_link(self._root)
        have = set(manifest.listed(self._root))
        if have and min(have) < low:
            self._tried(_DROP, self._root, lambda: manifest.drop(self._files, self._root, lambda start, size: start >= low))
        for start in range(low, flushed - self._size + 1, self._size):
            if self._waits(_WRITE):         # and no file is read for nothing
                return
            if start not in have:
                self._tried(start, self._places.log_path(start), partial(self._seal, start))

    def _waits(self, what: int) -> bool:
        return time.monotonic() < self._failed.get(what, -math.inf)

    def _tried(self, what: int, path: str, work: Callable[[], object]) -> bool:
        """Whether it worked. What fails is said once, and tried again later: each try reads the file up to its bad place."""
        if self._waits(what):
            return False
        try:
            work()
        except (_Stopped, StoreStateError):
            raise
        except Exception as error:      # of whatever kind: no manifest is worth a thread, let alone a store
            if what not in self._failed:
                emit(Event.MANIFEST_FAILED, path=path, reason=error)
            self._failed[what] = time.monotonic() + min(AGAIN * self._interval_s, AGAIN_MAX_S)
            return False
        self._failed.pop(what, None)
        return True

    def _seal(self, start: int) -> None:
        try:
            fd = self._files.open(self._places.log_path(start), os.O_RDONLY)
        except FileNotFoundError:
            return                      # cleaned meanwhile
        try:
            made = manifest.make(lambda at, size: self._files.read(fd, at, size), start, self._size, self._pace)
        finally:
            self._files.close(fd)
        if len(made.sums) == -(-self._size // made.block_size):
            self._tried(_WRITE, self._root, partial(manifest.write, self._files, self._root, made))
            if not os.path.lexists(self._places.log_path(start)):      # cleaned meanwhile: a manifest alone tells of a loss
                manifest.drop(self._files, self._root, lambda other, size: other != start)

    def _pace(self, size: int) -> None:
        if self._stop.wait(size / RATE):
            raise _Stopped


def pacer(bytes_per_s: int | None) -> manifest.Pace:
    """Waits so that no more than `bytes_per_s` are looked at; None: as fast as it goes. Raises ValueError."""
    if bytes_per_s is not None and (isinstance(bytes_per_s, bool) or not isinstance(bytes_per_s, int) or bytes_per_s < 1):
        raise ValueError(f"bytes_per_s is {bytes_per_s!r}: give bytes a second, 1 or more, or None for as fast as it goes")
    begin, done = time.monotonic(), 0

    def pace(size: int) -> None:
        nonlocal done
        done += size
        if bytes_per_s is not None:
            time.sleep(max(0.0, done / bytes_per_s - (time.monotonic() - begin)))

    return pace


__all__ = ["Sealer", "pacer"]
