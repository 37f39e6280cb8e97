"""Where the log ends, and making it end there (RocketMQ: CommitLog.recoverNormally, recoverAbnormally).

The opening thread runs this before it serves anything. The steps: choose the file to start from, walk records to the first bad
one, keep aside what a cut would destroy, cut, make sure that the device has what the page cache shows.
Recovering twice gives the same log: every step may be interrupted and done again.
"""
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NoReturn

from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec._layout import MAGIC_V1, MAGIC_V2
from rmq_store.errors import StoreRefusesToLoad
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.log.recovery._scan import LogRecovery, Scan
from rmq_store.log.recovery.salvage import keep_stretch

__all__ = ["Outcome", "Rules", "find_end", "is_number", "load_names", "make_end", "no_file",
           "rules_of"]

MARGIN_MS = 3000
OFFSET_MAX = (1 << 63) - 1


class Rules(NamedTuple):
    """What decides where recovery starts and what it checks."""

    clean: bool                     # no abort file: the last exit was in order
    compat: str                     # "4.9" or "5.x"
    check_crc: bool
    crc_property: bool              # record_crc_required
    index_safe: bool                # the index's time counts as well
    checkpoint: bool                # there is one
    physical_timestamp: int         # of it, ms; 0 where there is none
    logics_timestamp: int
    index_timestamp: int
    flushed_offset: int = 0         # the log is flushed up to here; 0: only the times tell


def rules_of(options: Any, clean: bool, checkpoint: bool, times: Sequence[int]) -> Rules:
    """Of a store with these options. clean: it was closed in order. checkpoint: there is one; times: what it holds."""
    return Rules(clean=clean, compat=options.compat, check_crc=options.recover_check_crc,
                 crc_property=options.record_crc_required, index_safe=options.index_enabled and options.index_recover_safe,
                 checkpoint=checkpoint, physical_timestamp=times[0], logics_timestamp=times[1], index_timestamp=times[2],
                 flushed_offset=times[5])


class Outcome(NamedTuple):
    """Where the log ends, and what below that is known to be on the device. Log offsets."""

    end: int
    begin: int                      # where the walk began: queue and index entries of what lies below are safe
    queued_to: int                  # the first record whose queue entry no checkpoint calls safe; the end if there is none
    flushed_to: int                 # the first record that no checkpoint calls flushed; the end if there is none
    last_timestamp: int
    records: int
    reason: str
    believed: Rules | None = None   # None: the checkpoint's times were; else as far as they were


def find_end(log: LogRecovery, rules: Rules, queued_end: int) -> Outcome:
    """Walks the log; changes nothing. queued_end: end of the last record that has a queue entry, -1 none (of use where clean).

    A time or an offset of the checkpoint that is ahead of the log is not believed: it comes from a record that is not there,
    and such as take its place may be older. Where nothing tells how far the log is flushed all of it is written again, and
    nothing is taken for torn: what is a rest of a record, and what a message with strange properties, only its place can tell.
    """
    outcome = _walk(log, rules, queued_end)
    last = outcome.last_timestamp
    derived = max(rules.logics_timestamp, rules.index_timestamp) > last
    flushed = rules.physical_timestamp > last
    beyond = rules.flushed_offset > outcome.end
    if not rules.clean and (derived or flushed or beyond):
        rules = rules._replace(checkpoint=rules.checkpoint and not flushed,
                               physical_timestamp=0 if flushed else rules.physical_timestamp,
                        logics_timestamp=0 if derived else rules.logics_timestamp,
                        index_timestamp=0 if derived else rules.index_timestamp,
                        flushed_offset=0 if flushed or beyond else rules.flushed_offset)
        outcome = _walk(log, rules, queued_end)._replace(believed=rules)
    return outcome


def _walk(log: LogRecovery, rules: Rules, queued_end: int) -> Outcome:
    starts = log.starts()
    if not starts:
        return Outcome(0, 0, 0, 0, 0, 0, "no files")
    first = _clean_start(starts, rules, queued_end) if rules.clean else _crash_start(log, starts, rules)
    end, timestamp, records, reason, queued_to, flushed_to = starts[first], 0, 0, "end of file", -1, -1
    queued_until = OFFSET_MAX if rules.clean else max(0, rules.logics_timestamp - MARGIN_MS)
    # An offset needs no margin, but a record below it that is newer than its time was not there when it was written.
    flushed_end = OFFSET_MAX if rules.clean else rules.flushed_offset or OFFSET_MAX
    flushed_until = OFFSET_MAX if rules.clean else max(0, rules.physical_timestamp - (0 if rules.flushed_offset else MARGIN_MS))
    for start in starts[first:]:
        scan: Scan = log.scan(start, queued_until=queued_until, flushed_until=flushed_until if flushed_to < 0 else -1,
                              flushed_end=flushed_end, torn=rules.checkpoint and not rules.crc_property,
                              check_crc=rules.check_crc, crc_property=rules.crc_property)
        end, reason = scan.end, scan.reason
        records += scan.records
        timestamp = max(timestamp, scan.last_timestamp)
        queued_to = scan.first_unqueued if queued_to < 0 else queued_to
        flushed_to = scan.first_unflushed if flushed_to < 0 else flushed_to
        if reason != "end of file":
            break
    return Outcome(end, min(starts[first], end), end if queued_to < 0 else queued_to, end if flushed_to < 0 else flushed_to,
                   timestamp, records, reason)


def _clean_start(starts: list[int], rules: Rules, queued_end: int) -> int:
    if rules.compat == "4.9":
        return max(0, len(starts) - 3)
    index = len(starts) - 1
    while index > 0 and starts[index] > queued_end:
        index -= 1
    return index


def _crash_start(log: LogRecovery, starts: list[int], rules: Rules) -> int:
    """The newest file whose first message the checkpoint covers (isMappedFileMatchedRecover); the oldest if there is none."""
    covered = max(0, min(rules.physical_timestamp, rules.logics_timestamp) - MARGIN_MS)
    if rules.index_safe:
        covered = min(covered, rules.index_timestamp)
    for index in range(len(starts) - 1, 0, -1):
        magic, timestamp = log.first_record(starts[index])
        if magic in (MAGIC_V1, MAGIC_V2) and 0 < timestamp <= covered:
            return index
    return 0


def make_end(log: LogRecovery, files: ControlFiles, root: str, outcome: Outcome, rules: Rules, queued_end: int) -> int:
    """Makes the log end at outcome.end on the device. queued_end: of the last record that has a queue entry. Returns how many
    bytes that were not zero it cut off."""
    starts = log.starts()
    if not starts:
        return 0
    closed = rules.clean and outcome.reason in ("end of data", "end of file")
    if closed and outcome.end >= starts[-1] and queued_end <= outcome.end:
        return 0        # as it was closed: zeros behind the end, no need to look at all of them
    cut = _keep_aside(log, files, root, outcome)
    # Newest first: whatever instant the power fails, the files that are left have no gap between them.
    while starts and starts[-1] > outcome.end:
        log.drop_last()
        starts.pop()
    if starts and outcome.end < starts[-1] + log.file_size():
        dirty = log.dirty_end(outcome.end)
        if dirty > outcome.end:
            log.zero(outcome.end, dirty)
    if not rules.clean:
        _rewrite(log, starts, outcome)
    return cut


def _keep_aside(log: LogRecovery, files: ControlFiles, root: str, outcome: Outcome) -> int:
    """Whatever is cut is copied to .salvage/ first. Good records behind the bad one may have been acknowledged, which is said.
    The checksum of their bodies is enough: where one of the whole record is required, those that never had it are cut."""
    size, starts = log.file_size(), log.starts()
    pieces = []
    begin = outcome.end
    for start in starts:
        if start + size <= begin:
            continue
        at = max(begin, start)
        dirty = log.dirty_end(at)
        if dirty > at:
            pieces.append((at, dirty))
    cut = sum(b - a for a, b in pieces)
    if cut == 0:
        return 0
    good = any(log.next_good(a, b) is not None for a, b in pieces)
    what = "`rmqstore repair --restore` puts the good records among them again" if good else "no good record is among them"
    for a, b in pieces:
        copy = keep_stretch(files, root, f"{a:020d}", log.read, log.next_data, (a, b))
        emit(Event.SALVAGED, size=b - a, offset=a, copy=copy, what=what)
    emit(Event.TRUNCATED, path=root, offset=outcome.end, reason=outcome.reason, size=cut)
    return cut


def _rewrite(log: LogRecovery, starts: list[int], outcome: Outcome) -> None:
    """Whatever no checkpoint calls flushed is written over itself and synced. The page cache shows it, and the device may not
    have it: a page whose write-back failed is clean, no sync writes it again, and once it is evicted there is a hole."""
    for start in starts:
        begin, stop = max(start, outcome.flushed_to), min(start + log.file_size(), outcome.end)
        if begin < stop:
            log.rewrite(begin - (begin - start) % 4096, stop)


def no_file(path: str, wanted: str = "a regular file") -> StoreRefusesToLoad:
    """The error for what stands in the place of a file or a directory of a store. Raises OSError where nothing does."""
    mode = os.lstat(path).st_mode
    kinds = ((stat.S_ISLNK, "a link"), (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"),
             (stat.S_ISREG, "a file"))
    kind = next((name for is_kind, name in kinds if is_kind(mode)), "a device")
    target = f" to {os.readlink(path)}" if kind == "a link" else ""
    error = StoreRefusesToLoad(path, None, wanted, kind + target)
    what = wanted.removeprefix("a regular ").removeprefix("a ")
    error.cure = "nothing was changed: " + (f"remove the link, and move the {what} itself into its place" if target else
                                            f"move it away, and put the {what} that belongs there into its place")
    return error


def _refuse_odd(odd: list[tuple[int, str]], first: int, size: int) -> None:
    """A link or a directory where a file of the log belongs hides messages: passing it over would lose them silently."""
    for start, path in odd:
        if size == 0 or (start - first) % size == 0:
            raise no_file(path)
        emit(Event.FOREIGN_FILE_SKIPPED, file=path, reason="not the name of a commit-log file")


def is_number(name: str) -> bool:
    """True for a name of ASCII digits alone: other scripts' digits are digits to Python, and to no store."""
    return name.isascii() and name.isdecimal()


def load_names(directories: Sequence[str], size: int, compat: str, files: ControlFiles | None,
               rests: dict[int, str] | None = None) -> list[int]:
    """Log offsets of the commit-log files in `directories`, ascending.

    Every file must have `size` bytes. An empty last one is what a crash while it was made leaves in 5.x: removed (files is not
    None) or left out. Other names are left alone with a warning. rests: takes the paths of files of another length, instead of
    an error. Raises StoreRefusesToLoad.
    """
    found: list[tuple[int, int, str]] = []
    odd: list[tuple[int, str]] = []
    for directory in directories:
        if os.path.isdir(directory):
            _look_into(directory, size, found, odd)
    found.sort()
    _refuse_odd(odd, found[0][0] if found else 0, size)
    if found and found[-1][1] == 0 and size > 0:
        _, _, path = found.pop()
        if files is not None:
            files.unlink(path)
            emit(Event.EMPTY_FILE_REMOVED, file=path)
    for start, length, path in found:
        if length != size and rests is not None and size > 0:
            rests[start] = path
        elif length != size:
            raise StoreRefusesToLoad(path, 0, f"{size} bytes, as segment_size_bytes says", f"{length} bytes")
        if start % size != found[0][0] % size:
            raise StoreRefusesToLoad(path, 0, f"names that are multiples of {size} apart", os.path.basename(path))
    for (start, _, path), (other_start, _, other) in pairwise(found):
        if start == other_start:
            _refuse_twice(path, other)
    return [start for start, _, _ in found]


def _look_into(directory: str, size: int, found: list[tuple[int, int, str]], odd: list[tuple[int, str]]) -> None:
    """Adds the files of the log in one directory, (start, length, path), and what has such a name and is none."""
    for entry in os.scandir(directory):
        if len(entry.name) != 20 or not is_number(entry.name) or int(entry.name) > OFFSET_MAX - size:
            emit(Event.FOREIGN_FILE_SKIPPED, file=entry.path, reason="not the name of a commit-log file")
        elif entry.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):       # deleted meanwhile, by a writer in another process
                found.append((int(entry.name), entry.stat(follow_symlinks=False).st_size, entry.path))
        elif os.path.lexists(entry.path):
            odd.append((int(entry.name), entry.path))


def _refuse_twice(path: str, other: str) -> NoReturn:
    """Two directories have a file of one name: only a look into both tells which one is the log's."""
    empty = [place for place in (path, other) if _is_empty(place)]
    error = StoreRefusesToLoad(path, None, "the only file of this name in the directories of the log", f"{other} as well")
    error.cure = ("nothing was changed: move the file away that is not part of the log"
                  + (f"; {empty[0]} holds nothing" if len(empty) == 1 else ""))
    raise error


def _is_empty(path: str) -> bool:
    """True where the file begins with no record: it was made ahead, and never written."""
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            return not file.read(8).strip(b"\0")
    except OSError:
        return False
