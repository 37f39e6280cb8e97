"""The rows of files that log and queues are: without a gap, each file at its length (RocketMQ: MappedFileQueue.checkSelf).

Names and lengths alone, no file is opened: a look that costs little, also beside a running writer. Any thread.
"""
import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from rmq_store.config.load import Options
from rmq_store.log.recovery.places import Places
from rmq_store.services.integrity.findings import SEVERITY, Finding

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["live_log_findings", "live_row_findings", "row_findings"]

_NAME = re.compile(r"[0-9]{20}").fullmatch


def row_findings(places: Places, options: Options) -> list[Finding]:
    """Of the files in a directory, whether somebody has the store open or not. Raises OSError."""
    return _twice(lambda: [*_row(places.commitlog, options.segment_size_bytes, "log_file", "log_gap"),
                           *_queue_rows(places, options)])


def live_row_findings(store: "StoreWait", places: Places) -> list[Finding]:
    """Of an open store, against what it knows of its log. Raises OSError, StoreStateError."""
    return live_log_findings(store, places) + _twice(lambda: list(_queue_rows(places, store.options)))


def live_log_findings(store: "StoreWait", places: Places) -> list[Finding]:
    """The same of the log alone."""
    return _twice(lambda: _live_log(store, places))


def _twice(look: Callable[[], list[Finding]]) -> list[Finding]:
    """A listing is of no one moment: files made and deleted meanwhile may look like a gap, but not twice like the same one."""
    found = look()
    again = look() if found else []
    return [f for f in found if f in again]


def _live_log(store: "StoreWait", places: Places) -> list[Finding]:
    size = store.options.segment_size_bytes
    before = _known(store)
    found = _listed(places.commitlog)
    known = before & _known(store)      # in the row all the while, so the listing must have them
    if store.readonly and found:        # but for the oldest, which a writer in another process may have deleted
        known = {start for start in known if start >= min(found)}
    return list(_judge(places.commitlog, found, size, known, "log_file", "log_gap"))


def _known(store: "StoreWait") -> set[int]:
    """Starts of the log's files, as the store has them."""
    stats, size = store._stats(), store.options.segment_size_bytes
    return {stats["min_log_offset"] + n * size for n in range(stats["log_files"])}


def _queue_rows(places: Places, options: Options) -> Iterator[Finding]:
    sizes = [(places.consumequeue, options.consumequeue_file_size_bytes)]
    if options.consumequeue_ext_enabled:
        sizes.append((places.consumequeue_ext, options.consumequeue_ext_file_size_bytes))
    for base, size in sizes:
        for topic in _directories(base):
            for queue in _directories(topic):
                yield from _row(queue, size, "queue_file", "queue_file")


def _directories(base: str) -> list[str]:
    try:
        with os.scandir(base) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:           # removed meanwhile, or there never was a queue
        return []


def _row(directory: str, size: int, length_kind: str, gap_kind: str) -> Iterator[Finding]:
    return _judge(directory, _listed(directory), size, (), length_kind, gap_kind)


def _listed(directory: str) -> dict[int, int]:
    """Start -> length of the files of a row; other names are not looked at."""
    found = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.isascii() and _NAME(entry.name) and entry.is_file(follow_symlinks=False):
                    try:
                        found[int(entry.name)] = entry.stat(follow_symlinks=False).st_size
                    except FileNotFoundError:
                        continue        # deleted meanwhile
    except FileNotFoundError:
        return {}
    return found


def _judge(directory: str, found: dict[int, int], size: int, known: Collection[int], length_kind: str,
           gap_kind: str) -> Iterator[Finding]:
    for start, length in sorted(found.items()):
        if length != size:
            yield Finding(length_kind, SEVERITY[length_kind], os.path.join(directory, f"{start:020d}"), expected=size,
                          found=length, detail=f"the file has {length} bytes instead of {size}")
    at = min([*found, *known], default=0)
    end = max(known) + size if known else 0
    for start in sorted(found):
        if start != at:
            yield _gap(directory, gap_kind, at, start)
        at = start + size
    if at < end:
        yield _gap(directory, gap_kind, at, end)


def _gap(directory: str, kind: str, at: int, behind: int) -> Finding:
    return Finding(kind, SEVERITY[kind], directory, offset=at if kind == "log_gap" else None,
                   size=behind - at if kind == "log_gap" else None, expected=f"{at:020d}", found=f"{behind:020d}",
                   detail=f"file {at:020d} is missing: the next file begins at {behind}")
