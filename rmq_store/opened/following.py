"""A read-only store that follows another process's writing: what is looked at once a second, by the control thread.

The native thread (dispatch/_follow.pyx) reads on in log and queues. This one sees that the writer has deleted files of the log,
lets them go, so that their space comes back, and takes in new index files. Where the native thread has not come to records that
are deleted by now, this one tells it which queues have a directory. It also sees that the store was replaced, or its log
cut: then this reader would show the old one, and wait for what never comes.
"""
import os
import threading

from rmq_store.errors import StoreRefusesToLoad
from rmq_store.log.recovery.places import Places, numbered
from rmq_store.opened.serving import StoreServes
from rmq_store.queues.consumequeue.loader import queue_dirs

__all__ = ["LOOK_MS", "look_at_files"]

LOOK_MS = 1000


def look_at_files(store: StoreServes, stop: threading.Event) -> None:
    """Raises OSError where the files cannot be read, by this thread or the native one, and StoreRefusesToLoad where they have
    other sizes than this store was opened with; whoever waits for a message gets the same."""
    places = Places(store.path, store.options)
    try:
        known = store._position("dispatched")       # before the look at the files, which continue
        log = places.log_files()
        if not store.stats()["log_files"]:
            _refuse_size(log, store.options.segment_size_bytes)
        _refuse_other(store, known, places, [int(os.path.basename(path)) for path, _ in log])
        starts = [int(os.path.basename(path)) for path, length in log if length == store.options.segment_size_bytes]
        index = [int(os.path.basename(path)) for path, _ in numbered(places.index, 17)]
        try:
            store._follow_files(min(starts, default=-1), index)
        finally:                        # one queue that cannot be read hides no new ones
            if store._records_unseen():
                store._follow_queues((topic, queue_id, batched) for directory, batched in (
                    (places.consumequeue, False), (places.batchconsumequeue, True))
                    for topic, queue_id, _ in queue_dirs(os.fsencode(directory)))
    except (OSError, StoreRefusesToLoad) as problem:
        store._set_problem(problem)
        raise
    store._set_problem(None)


def _refuse_other(store: StoreServes, known: int, places: Places, starts: list[int]) -> None:
    """The file with the last record that is known must stay what it is."""
    if known == 0 or (starts and starts[0] >= known):       # nothing is known, or it was cleaned
        return
    start = max((start for start in starts if start < known), default=-1)
    path, found = places.log_path(max(start, 0)), "none"
    if starts and start + store.options.segment_size_bytes >= known:
        try:
            status = os.stat(path)
        except FileNotFoundError:       # cleaned since, or gone: the next look tells
            return
        seen = (start, status.st_dev, status.st_ino)
        if store._followed is None or store._followed[0] != start:
            store._followed = seen
        if store._followed == seen:
            return
        found = "another one"
    raise StoreRefusesToLoad(path, None, "the file that was there", f"{found}: the store was replaced, or cut, since this "
                             "reader opened it: open it again")


def _refuse_size(log: list[tuple[str, int]], size: int) -> None:
    """A store that was empty when it was opened told no sizes."""
    for path, length in log:
        if length not in (0, size):
            raise StoreRefusesToLoad(path, 0, f"{size} bytes, as segment_size_bytes says", f"{length} bytes: the writer has "
                                     "other sizes than this reader, which was opened before there was a file to tell them")
