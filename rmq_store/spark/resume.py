"""What a commit that broke off has in the log: found again by comparing its staged records with the log, also where cleaning
took the beginning since. Reads only; the store is open in the caller, so nobody else changes it.

Records of a commit lie behind each other from where the log ended when it was decided. Others may have put behind the last one
that the crash let through.
"""
import os
from collections.abc import Callable, Iterable, Iterator

from rmq_store.access.bulk._columns import Split
from rmq_store.access.bulk._staged import matching, places_before, staged_count
from rmq_store.base.io.files import open_regular
from rmq_store.errors import StoreStateError
from rmq_store.log.recovery.places import Places
from rmq_store.spark.stores import log_files_in
from rmq_store.store import MessageStore

__all__ = ["behind", "present"]


def present(store: MessageStore, staged: Callable[[], Iterable[memoryview]], begin: int) -> int:
    """How many of the staged records, from the first on, were appended from log offset `begin` on, one behind the other.

    staged(): the records in pieces, from the first one again at each call. Raises StoreStateError where it cannot be told: the
    log is not the one that ended at `begin`, or cleaning took the records that would tell.
    """
    first, end = store.min_log_offset, store.max_log_offset
    if end < begin:
        raise StoreStateError(f"the log ends at {end}, but it ended at {begin} when the commit was decided: is it another log "
                              "(store.commitlog_path), or was it cut?")
    if first <= begin:
        return _run(_records_from(store, begin), staged())
    # Whole files are gone. Where each record would lie is known: so is which of them would be the first one in the files left.
    gone, at = 0, begin
    for piece in staged():
        n, at = places_before(store, piece, at, first)
        gone += n
        if n < staged_count(piece):
            break
    found = _run(_records_from(store, first), behind(staged(), gone))
    if not found:
        raise StoreStateError(f"the log begins at {first} now, but the records of the commit begin at {begin}: cleaning "
                              "deleted the records that show how many of them were stored")
    return gone + found


def _run(stored: Iterator[bytes], pieces: Iterable[memoryview]) -> int:
    """How many staged records the stored ones begin with."""
    count = 0
    for piece in pieces:
        at = 0
        while at < len(piece):
            record = next(stored, None)
            sizes = None if record is None else matching(piece, at, record, 0)
            if sizes is None:
                return count
            at += sizes[0]
            count += 1
    return count


def _records_from(store: MessageStore, begin: int) -> Iterator[bytes]:
    """The raw records of a log from `begin` on."""
    for file in log_files_in(Places(store.path, store.options).commitlogs):
        if file.end <= begin:
            continue
        with Split(file.path, file.start, max(begin, file.start), file.end, newest=file.newest, aligned=True) as split, \
                open(file.path, "rb", buffering=0, opener=open_regular) as raw:
            while (batch := split.batch(["physicalOffset", "storeSize"], max_rows=1024)) is not None:
                if split.take_bad():
                    raise StoreStateError(f"{file.path}: damage behind offset {begin}: audit the store")
                places = memoryview(batch[1]["physicalOffset"]).cast("q")
                sizes = memoryview(batch[1]["storeSize"]).cast("i")
                for place, size in zip(places, sizes, strict=True):
                    yield os.pread(raw.fileno(), size, place - file.start)


def behind(pieces: Iterable[memoryview], skip: int) -> Iterator[memoryview]:
    """The pieces without their first `skip` records."""
    for piece in pieces:
        records = staged_count(piece) if skip else 0
        if skip and skip >= records:
            skip -= records
            continue
        at = 0
        for _ in range(skip):
            at += int.from_bytes(piece[at:at + 4], "big")
        skip = 0
        yield piece[at:]
