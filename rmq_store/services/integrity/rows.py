"""The rows of files that log and queues are: without a gap, each file at its length (RocketMQ: MappedFileQueue.checkSelf).

Names and lengths alone, no file is opened: a look that costs little, also beside a running writer. Any thread.
"""
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.log.recovery import checkpoint
from rmq_store.log.recovery.directories import HOLE_MOST, known_end
from rmq_store.log.recovery.places import Places
from rmq_store.log.recovery.recover import OFFSET_MAX, no_file
from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.services.integrity.findings import SEVERITY, Finding

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["files_in", "live_log_findings", "live_row_findings", "missing_directory", "missing_log", "row_findings",
           "twice_findings"]

_NAME = partial(re.fullmatch, r"[0-9]{20}")


def row_findings(places: Places, options: Options) -> list[Finding]:
    """Of the files in a directory, whether somebody has the store open or not. Raises OSError."""
    size, files = options.segment_size_bytes, ControlFiles(IoTable())
    return _twice(lambda: [*_log(places, size, ()), *_queue_rows(places, options), *(
        () if options.commitlog_loss_accepted else missing_log(places, files, False, size, None))])


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
    found = {start for path in places.commitlogs for start in _listed(path)}
    known = before & _known(store)      # in the row all the while, so the listing must have them
    if store.readonly and found:        # but for the oldest, which a writer in another process may have deleted
        known = {start for start in known if start >= min(found)}
    return list(_log(places, size, known))


def _log(places: Places, size: int, known: Collection[int]) -> Iterator[Finding]:
    """The log's files, in whichever of its directories they lie."""
    listed = {path: _listed(path) for path in places.commitlogs}
    for path in places.missing() if places.several else ():
        yield missing_directory(path)
    for path, found in listed.items():
        yield from _lengths(path, found, size, "log_file")
    yield from twice_findings(list(listed.items()))
    yield from _gaps(places.commitlog, {start for found in listed.values() for start in found}, size, known, "log_gap")


def files_in(directory: str, size: int, starts: list[int]) -> Iterator[Finding]:
    """Adds the starts of the log's files in one directory to `starts`; yields what else is there."""
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        named = entry.name.isascii() and _NAME(entry.name) and int(entry.name) <= OFFSET_MAX - size
        if not named or not entry.is_file(follow_symlinks=False):
            if os.path.lexists(entry.path):
                yield Finding("foreign_file", SEVERITY["foreign_file"], entry.path,
                              detail=f"not a file, but the name of one of the log: {no_file(entry.path).cure}" if named else
                              "not a commit-log file: move it away; RocketMQ 4.9 refuses a directory here")
            continue
        try:
            length = entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue                # deleted since it was listed
        if length != size:
            yield from _lengths(directory, {int(entry.name): length}, size, "log_file",
                                ": the store does not load")
        else:
            starts.append(int(entry.name))


def missing_directory(path: str) -> Finding:
    """Of a directory of a log in several that is not there."""
    return Finding("log_directory", SEVERITY["log_directory"], path, detail="the directory of the log is not there: the "
                   "messages in its files cannot be read; mount its disk")


def missing_log(places: Places, files: ControlFiles, clean: bool, size: int,
                queues: QueueTableOwner | None) -> Iterator[Finding]:
    """Of a log without a file, or without its newest files. size: of a file; queues: what leads to the log."""
    times = checkpoint.read(files, places.checkpoint)       # before the names: it never is ahead of them
    log = places.log_files()
    end = max((int(os.path.basename(path)) + size for path, _ in log), default=0)
    ends = [queues.max_physical_offset(*name) for name in queues.queues()] if queues is not None else []
    queued = max(ends, default=-1)
    sure = queues is not None and queued > end and _lead_beyond(queues, end)
    known = known_end(places, times, clean and not log, queued if sure or not log else -1, 0, sure)
    if log and known > end and (known - end) // size <= HOLE_MOST:
        yield Finding("log_gap", SEVERITY["log_gap"], places.commitlog, offset=end, size=known - end,
                      expected=f"{(known - 1) // size * size:020d}", found=f"{end - size:020d}",
                      detail=f"the log ends at {end}, but the queues or the checkpoint lead to {known}: its newest files are "
                      "missing, and every open for writing refuses the store; find them, or give commitlog_loss_accepted=True "
                      "(-o commitlog_loss_accepted=true of a command) if they are lost for good")
    if known > 0 and not log:
        yield Finding("log_directory", SEVERITY["log_directory"], places.commitlog, detail="the directory has no file of the "
                      "log, and the queues or the checkpoint lead to messages: name the directories of the log in "
                      "commitlog_path, or mount its disk")


def _lead_beyond(queues: QueueTableOwner, end: int) -> bool:
    """Whether more than one entry leads behind log offset `end`: a single one may be damaged."""
    found = 0
    for name in queues.queues():
        low, high, _ = queues.offsets(*name)
        found += sum(entry[0] >= end for entry in queues.read(*name, max(low, high - 2), 2)) if 0 <= low < high else 0
        if found > 1:
            return True
    return False


def twice_findings(listed: Sequence[tuple[str, Collection[int]]]) -> Iterator[Finding]:
    """Of files of one name in two directories. listed: starts of the files by directory."""
    seen: dict[int, str] = {}
    for path, found in listed:
        for start in sorted(found):
            other = seen.setdefault(start, path)
            if other != path:
                yield Finding("log_twice", SEVERITY["log_twice"], os.path.join(path, f"{start:020d}"), offset=start,
                              found=os.path.join(other, f"{start:020d}"), detail=f"{other} has a file of this name as well: "
                              "the store does not load")


def _known(store: "StoreWait") -> set[int]:
    """Starts of the log's files, as the store has them."""
    stats, size = store._stats(), store.options.segment_size_bytes
    return {stats["min_log_offset"] + n * size for n in range(stats["log_files"])}


def _queue_rows(places: Places, options: Options) -> Iterator[Finding]:
    sizes = [(places.consumequeue, options.consumequeue_file_size_bytes),
             (places.batchconsumequeue, options.batch_consumequeue_file_size_bytes)]
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
    yield from _lengths(directory, found, size, length_kind)
    yield from _gaps(directory, found, size, known, gap_kind)


def _lengths(directory: str, found: dict[int, int], size: int, kind: str, then: str = "") -> Iterator[Finding]:
    for start, length in sorted(found.items()):
        if length != size:
            yield Finding(kind, SEVERITY[kind], os.path.join(directory, f"{start:020d}"), expected=size, found=length,
                          detail=f"the file has {length} bytes instead of {size}{then}")


def _gaps(directory: str, found: Collection[int], size: int, known: Collection[int], gap_kind: str) -> Iterator[Finding]:
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
