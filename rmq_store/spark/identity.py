"""Which log a place is in: the record that the log begins with, and the last one before the place, as they were met.

Stream offsets and export manifests carry both, a piece of a read carries them for its file. Whoever reads there later, or on
another machine, compares. Files are only read.
"""
from collections.abc import Mapping, Sequence
from typing import Any

from rmq_store.access.bulk._columns import Split
from rmq_store.errors import StoreStateError
from rmq_store.services.backup.met import Met, met_at
from rmq_store.spark.stores import Broker, LogFile, whole_before

__all__ = ["Identity", "identity_of", "is_identity", "last_before", "refuse_another"]

Identity = dict[str, Any]           # {"head": [log offset, CRC], "last": ...}: JSON data; None in place of a record that is not
_BACK = (1 << 16, 1 << 23, 1 << 62)


def identity_of(broker: Broker, files: Sequence[LogFile], position: int, mapped: bool) -> Identity:
    """Of a place in a log. A record at or behind it may be torn, or still be written: it identifies nothing. Raises OSError."""
    head = next((found for file in files if file.start < position and (found := file.head()) is not None), None)
    last = last_before(broker, files, position, mapped)
    return {"head": None if head is None else list(head), "last": None if last is None else list(last)}


def is_identity(value: Any) -> bool:
    """Whether this is one, as it comes from a file."""
    def good(found: Any) -> bool:
        return found is None or (isinstance(found, list) and len(found) == 2
                                 and all(type(n) is int and 0 <= n < 1 << 63 for n in found))

    return isinstance(value, dict) and {"head", "last"} <= value.keys() and good(value["head"]) and good(value["last"])


def last_before(broker: Broker, files: Sequence[LogFile], position: int, mapped: bool = True) -> Met | None:
    """The last record that begins before log offset `position`; None: none is there. Raises OSError."""
    for file in reversed(files):
        end = min(position, file.end)
        for back in _BACK if end > file.start else ():
            begin = max(file.start, end - back)
            found = _last(broker, file, begin, end, mapped)
            if found is not None:
                return met_at(file.path, file.start, found)
            if begin == file.start:
                break
    return None


def _last(broker: Broker, file: LogFile, begin: int, end: int, mapped: bool) -> int | None:
    last = None
    try:
        split = Split(file.path, file.start, begin, end, newest=file.newest, aligned=begin == file.start, mapped=mapped,
                      whole_before=whole_before(broker.root))
    except FileNotFoundError:           # cleaned meanwhile
        return None
    with split:
        while (batch := split.batch(["physicalOffset"], max_rows=8192)) is not None:
            split.take_bad()
            if batch[0]:
                last = memoryview(batch[1]["physicalOffset"]).cast("q")[batch[0] - 1]
    return last


def refuse_another(broker: Broker, files: Sequence[LogFile], known: Mapping[str, Any], end: int, anew: str) -> None:
    """Raises StoreStateError where the log, which ends at `end`, is not the one that `known` is of. What was cleaned since
    cannot be compared. Of a log that was only cut the end tells. anew: words for how to begin anew."""
    for name in ("head", "last"):
        record = known.get(name)
        if record is None or (files and record[0] < files[0].start) or (name == "last" and record[0] >= end):
            continue
        file = next((file for file in files if file.start <= record[0] < file.end), None)
        try:
            found = None if file is None else met_at(file.path, file.start, record[0])
        except FileNotFoundError:       # cleaned meanwhile
            continue
        if found is None or list(found) != list(record):
            raise StoreStateError(
                f"{broker.root} (broker {broker.name}) does not have the record at log offset {record[0]} that was read "
                "there before: another store is at this path now, or it lost its end in a crash and wrote on. Put the store "
                f"back that was read, or {anew}")
