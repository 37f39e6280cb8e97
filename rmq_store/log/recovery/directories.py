"""The directories of a log, one or several: which of them are there, and whether the log can be opened with what is there
(RocketMQ: MultiPathMappedFileQueue.load, which takes what it finds).

RocketMQ passes over a directory that it cannot list, and its recovery then cuts the queues to what is left, or deletes them.
Here an open for writing refuses before it changes anything; an open for reading reads what is there, and says what is not. The
opening thread.
"""
import os
from itertools import pairwise

from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.errors import ConfigError, LogDirectoryMissing, StoreRefusesToLoad
from rmq_store.events import Event, emit
from rmq_store.log.recovery.checkpoint import Times
from rmq_store.log.recovery.places import Places, numbered

__all__ = ["HOLE_MOST", "files_missing", "known_end", "look_for_directories", "make_directories", "missing_end", "say_empty",
           "say_missing"]

HOLE_MOST = 1 << 20            # files: a name that is further away than that is damage, not a disk that is gone
_ACCEPT = ("mount the disk that has them and open the store again; readonly=True reads what the other directories have; if the "
           "files are lost for good, commitlog_loss_accepted=True (-o commitlog_loss_accepted=true of a command) opens the "
           "store without them")
_GAP_ONE = ("if the log lies in several directories, name all of them in commitlog_path; if one of them is on a disk that is "
            "not mounted, mount it, or name it all the same: readonly=True then reads what the others have")
_ACCEPT_ONE = ("if the log lies in another directory, or in several, name all of them in commitlog_path; if it is on a disk "
               "that is not mounted, mount it; if these files are lost for good, commitlog_loss_accepted=True "
               "(-o commitlog_loss_accepted=true of a command) opens the store without them")


def look_for_directories(places: Places, readonly: bool, follow: bool = False, accepted: bool = False) -> None:
    """Says which directories of the log are not there; raises ConfigError for one that is given twice, by a link, and where
    none may have new files. For writing, or following, raises LogDirectoryMissing; of a new store none need be there. accepted:
    the only directory of a log may be gone."""
    if not places.growing and not readonly:
        raise ConfigError(f"commitlog_paths_readonly has every directory of the log ({', '.join(places.commitlogs)}), which "
                          "leaves none for new files: give another one as commitlog_path")
    if not places.several:
        if not readonly and not accepted and _is_gone(places.commitlog) and _was_used(places):
            error = LogDirectoryMissing(places.commitlog, None, "the directory of the commit log, because the store has a "
                                        "checkpoint or queues", "none")
            error.cure = "nothing was changed: " + _ACCEPT_ONE
            raise error
        return
    _refuse_same(places)
    missing = places.missing()
    if not missing or (not readonly and _is_new(places)):
        return
    if not readonly or follow:
        error = LogDirectoryMissing(missing[0], None, "a directory of the commit log (commitlog_path)", "none")
        error.cure = ("if it is a new directory, make it (mkdir); else " + LogDirectoryMissing.cure)
        raise error
    emit(Event.LOG_DIRECTORY_MISSING, path=places.root, directories=", ".join(missing))


def _is_new(places: Places) -> bool:
    """Whether nothing was ever put into this store: then its directories are made, and none can be lost. One that gets no new
    files has some."""
    return (not places.missing_links() and not os.path.exists(places.checkpoint) and not os.path.isdir(places.consumequeue)
            and not places.log_files() and all(os.path.isdir(path) for path in places.commitlogs if path not in places.growing))


def _is_gone(path: str) -> bool:
    """Where this process may not look is another matter, with an error of its own."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _was_used(places: Places) -> bool:
    """Whether a store was opened in this root before: something leads to its log."""
    if os.path.exists(places.checkpoint):
        return True
    return any(os.path.isdir(base) and os.listdir(base) for base in (places.consumequeue, places.batchconsumequeue))


def _refuse_same(places: Places) -> None:
    seen: dict[tuple[int, int], str] = {}
    for path in places.commitlogs:
        try:
            about = os.stat(path)
        except OSError:
            continue
        other = seen.setdefault((about.st_dev, about.st_ino), path)
        if other != path:
            raise ConfigError(f"{path} and {other} of commitlog_path are one directory, by a link or a mount: give it once")


def make_directories(files: ControlFiles, places: Places) -> None:
    """For writing: what is not there of the directories for new files, and of those in which such files are made. A file gets
    its name by a rename, so both must lie on one file system. Raises ConfigError, OSError."""
    for directory in places.growing if places.several else ():
        if os.path.isdir(directory) and os.statvfs(directory).f_flag & os.ST_RDONLY:
            raise ConfigError(f"{directory} of commitlog_path is on a disk that is mounted read-only: mount it for writing, or "
                              "name the directory in commitlog_paths_readonly as well")
    # Of a store that is not new one that is gone since the look above is not made: the disk would only seem to be there.
    made = places.growing if not places.several or _is_new(places) else ()
    for directory in (places.root, *made, *places.tmps):
        files.make_dirs(directory)
    for directory, tmp in zip(places.growing, places.commitlog_tmps, strict=True) if places.several else ():
        if os.stat(directory).st_dev != os.stat(tmp).st_dev:
            raise ConfigError(f"{directory} of commitlog_path is on another file system than {tmp}, in which its files are "
                              "made: give a directory in that file system, not the place where it is mounted")


def files_missing(places: Places, options: Options, starts: list[int]) -> LogDirectoryMissing | None:
    """Of a log whose files begin at `starts`: what tells that files between them are not there. Files take turns in several
    directories, so one of these alone looks like that, too. Raises StoreRefusesToLoad for a gap that no disk ever held."""
    size = options.segment_size_bytes
    hole = next(((a + size, b) for a, b in pairwise(starts) if b != a + size), None)
    if hole is None:
        return None
    begin, end = hole
    where = ", ".join(places.commitlogs)
    if (end - begin) // size > HOLE_MOST:
        raise StoreRefusesToLoad(places.log_path(end), None, f"a name near that of the file before, {begin - size:020d}",
                                 f"one {(end - begin) // size} files away")
    error = LogDirectoryMissing(where, begin, f"the file {begin:020d}", f"none, and the next one is {end:020d}")
    if not places.several:
        error.cure = "nothing was changed: " + _GAP_ONE
    return error


def known_end(places: Places, times: Times, clean: bool, queued_end: int, newest: int, sure: bool = False) -> int:
    """How far the log reached for sure, by the checkpoint, `times`, and by queues that lead to `queued_end`; -1: nothing tells.
    newest: store time of the newest message that was found. sure: several entries lead behind the last file.

    In one directory one damaged entry must not look like a lost disk. The offset that this library seals in the checkpoint was
    on the device before it. RocketMQ writes none: there a queue counts where the checkpoint knows a newer message, too, or,
    after a crash, where more than one entry leads there. The name of a file that was begun is on the device as soon as
    anything of it, or of the queues, is.
    """
    physical, flushed = times[0], times[5]
    if places.several:
        return max(queued_end, flushed)
    if not places.log_files():
        return max(flushed, queued_end if clean else -1, 1 if physical > 0 else -1)
    if flushed > 0:
        return flushed
    return queued_end if (0 < newest < physical and clean) or (sure and not clean) else -1


def missing_end(places: Places, options: Options, end: int, known: int) -> bool:
    """Whether files at the end of the log are not there: those that are end at `end`, and what known_end says leads to `known`.
    For writing raises LogDirectoryMissing unless that was accepted, as for following in one directory; for reading says so."""
    size = options.segment_size_bytes
    if known <= end or (known - end) // size > HOLE_MOST:
        return False
    if options.readonly and end == 0 and places.log_files():    # made since, by a writer in another process
        return False
    if not options.readonly or (options.follow and not places.several):
        if options.commitlog_loss_accepted:
            return False
        error = LogDirectoryMissing(", ".join(places.commitlogs), end, f"files up to {(known - 1) // size * size:020d}, to "
                                    "which the queues or the checkpoint lead", f"none behind offset {end}")
        error.cure = "nothing was changed: " + (_ACCEPT if places.several else _ACCEPT_ONE)
        raise error
    say_missing(places, [(end, known)])
    return True


def say_missing(places: Places, stretches: list[tuple[int, int]]) -> None:
    """One line for the stretches of the log, (begin, end), whose files are not there."""
    emit(Event.LOG_FILES_MISSING, path=places.root, count=len(stretches), begin=stretches[0][0], end=stretches[-1][1],
         size=sum(end - begin for begin, end in stretches))


def say_empty(places: Places, count: int) -> None:
    """A directory without a file, where the log has `count` and each should have some, may be the place of a disk that is not
    mounted."""
    for path in places.growing if places.several and count > len(places.growing) else ():
        if os.path.isdir(path) and not numbered(path, 20):
            emit(Event.LOG_DIRECTORY_EMPTY, path=places.root, directory=path)
