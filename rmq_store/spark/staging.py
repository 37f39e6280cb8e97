"""Getting staged records into a store exactly once: staging files, a journal, and the one commit that appends.

    tasks       <root>/.spark/<job>/part-00003-<attempt>.stage   records without a place, behind them count and crc32c
    commit      1 verify every file   2 open the store: its lock   3 finish what a crashed commit had decided
                4 would the store take every record?   5 journal "pending": version, files, where the log ended
                6 append, flush   7 journal "done"   8 sweep

The journal of an application (txnAppId) is one small file, replaced whole. Once "pending" is on the device the commit is
decided: whoever comes next appends what is missing, which it finds by comparing the log behind the noted end with the staged
records (resume.py). Nothing is stored twice and nothing is left out, whichever step a crash fell between; a version that is
done is not done again. Versions of a stream are the numbers of one query's batches, so its id stands in the journal as well:
another query's batches have the same numbers and other rows. Paths in a journal begin at the root, which may be moved.
"""
import errno
import json
import logging
import os
import re
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import crc32c

from rmq_store.access.bulk._staged import append_staged, check_staged, whole_records
from rmq_store.base.io.files import open_regular, read_text
from rmq_store.errors import ConfigError, CorruptionError, StoreStateError
from rmq_store.log.recovery.places import Places
from rmq_store.spark.journal import below, jobs_of, journal_of, stored_with, was_stored, wrong_in
from rmq_store.spark.leftovers import drop, sync
from rmq_store.spark.resume import behind, present
from rmq_store.spark.store_options import chosen_options
from rmq_store.store import MessageStore

__all__ = ["CommitResult", "StageFile", "Staged", "abandon", "commit_staged", "enter", "sweep"]

log = logging.getLogger("rmq_store.spark")

_FOOTER = struct.Struct(">8sqI")
_MAGIC = b"RMQSTAGE"
CHUNK = 8 << 20
HOLE_MAX = (1 << 30) + (1 << 20)        # no record is longer
STALE_S = 7 * 86400         # what no task has touched for so long belongs to a job that died
_POOL_FROM = 64 << 20       # bytes from which it pays to make a pool: a new map would fault in every page of the log
_STEPS = ("verified", "opened", "recovered", "pending", "appended", "flushed", "done")


@dataclass(frozen=True)
class Staged:
    """One staging file that is whole and on the device."""

    path: str
    size: int
    records: int
    crc: int


@dataclass(frozen=True)
class CommitResult:
    """What a commit did. records: appended now; 0 where the version was done before."""

    version: int
    records: int
    begin: int
    end: int
    repeated: bool = False


def directory_of(root: str, job: str) -> str:
    return os.path.join(root, ".spark", job)


def enter(root: str, job: str, app: str, version: int) -> bool:
    """Makes the directory of a job for one of its tasks; False, and none, where the version is done.

    An attempt may begin when another one of its task has won and the commit is over: nothing of it may stay. The commit writes
    "done" and then sweeps, so whoever makes the directory after that sees it here; who made it before has it taken away.
    """
    directory = directory_of(root, job)
    _make_root(root)
    os.makedirs(directory, exist_ok=True)
    done = last_done(root, app)
    if done is None or version > done:
        return True
    with suppress(OSError):         # others are in it: they, or the commit, remove it
        os.rmdir(directory)
    return False


def _make_root(root: str) -> None:
    """The root, and what leads to it, with names that the device has: a commit is durable only with them."""
    if os.path.isdir(root):
        return
    root = os.path.abspath(root)
    parent = os.path.dirname(root)
    _make_root(parent)
    with suppress(FileExistsError):     # another task was quicker
        os.mkdir(root)
    sync(parent)


class StageFile:
    """A staging file in the making, under a name no other attempt has. finish() makes it durable; discard() forgets it.

    Its directory is there (enter), unless the job is over: FileNotFoundError.
    """

    def __init__(self, root: str, job: str, partition: int) -> None:
        self.path = os.path.join(directory_of(root, job), f"part-{partition:05d}-{uuid.uuid4().hex}.stage")
        self._file = open(self.path, "xb", buffering=0)     # noqa: SIM115 (finish or discard closes it)
        self._size = self._records = self._crc = 0

    def add(self, data: bytes, records: int) -> None:
        """Appends staged records."""
        view = memoryview(data)
        while view:
            view = view[self._file.write(view):]
        self._crc = crc32c.crc32c(data, self._crc)
        self._size += len(data)
        self._records += records

    def finish(self) -> Staged:
        """Writes the footer, syncs, closes."""
        self._file.write(_FOOTER.pack(_MAGIC, self._records, self._crc))
        os.fsync(self._file.fileno())
        self._file.close()
        return Staged(self.path, self._size, self._records, self._crc)

    def discard(self) -> None:
        """Removes what was written, if the commit has not done so."""
        self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self.path)


def verify(staged: Staged) -> None:
    """Reads a staging file. Raises CorruptionError where it is not what its task wrote, FileNotFoundError."""
    buffer = memoryview(bytearray(min(CHUNK, max(1, staged.size))))
    crc = at = 0
    with open(staged.path, "rb", buffering=0, opener=open_regular) as file:
        found = os.fstat(file.fileno()).st_size
        if found != staged.size + _FOOTER.size:
            raise CorruptionError(staged.path, found, f"{staged.size + _FOOTER.size} bytes", f"{found}")
        while at < staged.size and _written(file.fileno(), at, staged) and (n := file.readinto(buffer[:staged.size - at])):
            crc = crc32c.crc32c(buffer[:n], crc)
            at += n
        footer = file.read(_FOOTER.size)
    if footer != _FOOTER.pack(_MAGIC, staged.records, staged.crc):
        raise CorruptionError(staged.path, staged.size, "the footer its task wrote", "another one")
    if crc != staged.crc:
        raise CorruptionError(staged.path, 0, f"crc32c {staged.crc:#010x}", f"{crc:#010x}")


def _written(fd: int, at: int, staged: Staged) -> bool:
    """True where a task can have written what is at `at`: records have heads, so no hole is longer than the longest one. Raises
    CorruptionError. So what is read is bounded by what is there, not by the length in a journal."""
    try:
        data = os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:      # a file system that cannot tell
            return True
        data = staged.size
    os.lseek(fd, at, os.SEEK_SET)
    if data - at > HOLE_MAX:
        raise CorruptionError(staged.path, at, "staged records", f"a hole of {data - at} bytes")
    return True


def pieces(staged: Staged) -> Iterator[memoryview]:
    """The staged records, some MiB of whole ones at a time; a piece is good until the next one is asked for.

    One buffer is used again and again: memory that is touched for the first time costs more than the read.
    """
    buffer = bytearray(CHUNK)
    kept, left = 0, staged.size
    with open(staged.path, "rb", buffering=0, opener=open_regular) as file:
        while left or kept:
            view = memoryview(buffer)
            n = file.readinto(view[kept:kept + left]) or 0
            left -= n
            whole = whole_records(view[:kept + n])
            if whole:
                yield view[:whole]
                kept += n - whole
                view[:kept] = bytes(view[whole:whole + kept])
            elif n == 0 and kept < len(buffer):
                raise CorruptionError(staged.path, staged.size - left - kept, "a whole staged record", f"{kept} bytes")
            else:
                kept += n
                if kept == len(buffer):         # one record is longer
                    buffer = buffer + bytes(len(buffer))


# ---- the journal

def read_journal(path: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(read_text(path))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise CorruptionError(path, None, "a journal of commits", str(error)) from error
    wrong = wrong_in(entry)
    if wrong is not None:
        raise CorruptionError(path, None, "a journal of commits", wrong)
    return _with_paths(entry, lambda part: located(os.path.dirname(os.path.dirname(os.path.dirname(path))), part))


def located(root: str, path: str) -> str:
    """Where that staging file, or new store, is now. Raises ConfigError for what is not in the directory of a job."""
    inner = below(path)
    if inner is None:
        raise ConfigError(f"{path} is not below {os.path.join(root, '.spark')}, where tasks stage")
    return os.path.join(root, ".spark", inner)


def journals(root: str) -> Iterator[dict[str, Any]]:
    """The journals of all applications. Raises CorruptionError."""
    directory = os.path.join(root, ".spark", "journal")
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        entry = read_journal(os.path.join(directory, name)) if name.endswith(".json") else None
        if entry is not None:
            yield entry


def _with_paths(entry: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    if "parts" not in entry:
        return dict(entry)
    return entry | {"parts": [part | {"path": change(part["path"])} for part in entry["parts"]]}


def sync_names(root: str, paths: Iterable[str]) -> None:
    """Has the device hold the names of what tasks made below .spark/<job>/: a journal must not speak of what a crash takes."""
    directories = {os.path.dirname(path) for path in paths}
    for directory in sorted(directories):
        sync(directory)
    if directories:
        sync(os.path.join(root, ".spark"))
        sync(root)


def write_journal(path: str, entry: dict[str, Any]) -> None:
    """Replaces a journal. Staging files are named from the root: the store may be moved, or called by another path."""
    entry = _with_paths(entry, lambda part: os.path.join(".spark", below(part) or part))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8", opener=open_regular) as file:
        json.dump(entry, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync(os.path.dirname(path))
    sync(os.path.dirname(os.path.dirname(path)))


def stored_before(root: str, app: str) -> list[int]:
    """The versions of an application that are known to be stored; of a journal of an earlier release its last one."""
    entry = read_journal(journal_of(root, app)) or {}
    return entry.get("stored") or ([] if entry.get("done") is None else [entry["done"]])


def last_done(root: str, app: str) -> int | None:
    """The newest version of an application that is surely in the store."""
    entry = read_journal(journal_of(root, app))
    return None if entry is None else entry.get("done")


# ---- the commit

def commit_staged(root: str, app: str, version: int, parts: Iterable[Staged], store_options: dict[str, Any] | None = None,
                  job: str | None = None, fsync: bool = True, query: str | None = None,
                  rows: int | None = None) -> CommitResult:
    """Appends the records of `parts`, in order, to the store at `root`, which is made where there is none; once per version.

    app, version: what is idempotent; versions of an application grow. query: the id of the streaming query whose batch the
    version is; rows: how many it has, to tell a repeated batch from another one. Raises ConfigError (another query, another
    log, a bulk load), CorruptionError (a staging file is damaged), MessageIllegal (a record that the store does not take),
    StoreLocked (a broker or another process has the store), StoreStateError (an older batch; what a crash left cannot be
    completed): nothing was appended. PutError, OSError.
    """
    refuse_bulk(root)
    parts = [replace(part, path=located(root, part.path)) for part in parts]
    if is_done(root, app, version, query, rows):
        sweep(root, job)
        return CommitResult(version, 0, 0, 0, repeated=True)
    # Nothing may come between the records of a commit, so nothing is delivered meanwhile.
    write_path = "pool" if sum(part.size for part in parts) >= _POOL_FROM else "mmap"
    options = {"write_path": write_path, **(store_options or {})}
    place = _refuse_other_log(root, options)
    for part in parts:
        verify(part)
    _step("verified")
    with MessageStore.open(root, _services=False, **options) as store:
        _step("opened")
        _finish_pending(root, store, fsync, app)
        _step("recovered")
        forget_once(root)
        sweep_stale(root)
        if is_done(root, app, version, query, rows):    # the one that was pending was this one
            sweep(root, job)
            return CommitResult(version, 0, 0, 0, repeated=True)
        for part in parts:          # once it is journalled, a commit must be possible
            for piece in pieces(part):
                check_staged(store, piece, part.path)
        store.flush()
        entry = {"app": app, "done": last_done(root, app), "pending": version, "begin": store.max_log_offset, "job": job,
                 "parts": [asdict(p) for p in parts], "query": query, "log": place, "once": app == job,
                 "stored": stored_before(root, app)}
        sync_names(root, (part.path for part in parts))
        write_journal(journal_of(root, app), entry)
        _step("pending")
        result = _redo(root, store, entry, fsync, resumed=False)
    sweep(root, job)
    return result


def refuse_bulk(root: str) -> None:
    """Raises ConfigError where a root holds, or is about to hold, the stores of a bulk load: nothing may be made there then."""
    if os.path.isdir(root) and any(name.startswith("shard-") for name in os.listdir(root)):
        raise ConfigError(f"{root} holds the stores of a bulk load: name one of them, or write with shards=N again")
    for entry in journals(root):
        if entry.get("pending") is not None and "shards" in entry:
            raise ConfigError(f"{root} is for the stores of a bulk load, version {entry['pending']} of application "
                              f"{entry['app']!r}, which was interrupted: complete it with shards=N, or write to another path")


def is_done(root: str, app: str, version: int, query: str | None, rows: int | None) -> bool:
    """True where the store has this version. Raises ConfigError and StoreStateError where it has it, or a later one, from
    somebody else, or with other rows: to take it for a repeat would lose it without a word."""
    entry = read_journal(journal_of(root, app))
    if entry is None:
        return False
    noted, done = entry.get("query"), entry.get("done")
    last = -1 if done is None else int(done)
    # A journal of an older release does not tell whose the batches are: the last one may come again, others are new.
    if noted != query and ((noted and query) or (version <= last and "query" in entry)):
        raise ConfigError(f"option txnAppId is {app!r}, and {root} has versions of {_who(noted)} under this name, but this "
                          f"is version {version} of {_who(query)}: give this write a txnAppId of its own. A query with a new "
                          "checkpoint is another query: its batches begin at 0 again, and have other rows")
    if query is None:
        return was_stored(root, app, version, entry, rows)
    if version < (newest := last if entry.get("pending") is None else entry["pending"]):
        raise StoreStateError(f"{root} has batch {newest} of {_who(query)} as txnAppId {app!r}, and Spark writes batch "
                              f"{version} again: the checkpoint is older than the store, and its batches may have other rows: "
                              "restore the newer checkpoint, or begin anew with another checkpoint and another txnAppId")
    if version > last:
        return False
    if rows is not None and entry.get("records") not in (None, rows):
        raise StoreStateError(f"{root} has batch {last} of {_who(query)} as txnAppId {app!r} with {entry['records']} rows, "
                              f"and Spark writes it again with {rows} rows: its source or its checkpoint has changed: begin "
                              "anew with another checkpoint and another txnAppId")
    return True


def _who(query: str | None) -> str:
    return f"query {query}" if query else "writes of no streaming query"


def _refuse_other_log(root: str, options: dict[str, Any]) -> str:
    """The log of a store, as journals name it: from the root if it lies there. Raises ConfigError where commits went to
    another one: the store would get a second log, and queues that fit neither."""
    root = os.path.abspath(root)
    places = Places(root, chosen_options(options, root))
    place = os.path.abspath(places.commitlog)
    for entry in journals(root):
        noted = os.path.normpath(os.path.join(root, entry.get("log") or place))
        if noted not in map(os.path.abspath, places.commitlogs) and (os.path.isdir(noted) or not os.path.isdir(place)):
            raise ConfigError(f"application {entry['app']!r} has written to the log {noted} of {root}, and this write names "
                              f"{place}: give store.commitlog_path={noted}, or the path to which that log was moved")
    inside = os.path.relpath(place, root)
    return place if inside.startswith("..") else inside


def _finish_pending(root: str, store: MessageStore, fsync: bool, app: str) -> None:
    """Completes the commits that a crash left decided but not done, of any application. One that cannot be completed stays as
    it is and stops its own application only: others append behind it, and take nothing of what tells what it lacks."""
    for entry in journals(root):
        if entry.get("pending") is None:
            continue
        try:
            entry = _count(root, store, entry)
        except (CorruptionError, FileNotFoundError, StoreStateError) as error:
            unfinished = StoreStateError(
                f"{root}: version {entry['pending']} of application {entry['app']!r} was decided when its commit was "
                f"interrupted, and it cannot be completed: {error}; to give it up, move {journal_of(root, entry['app'])} away, "
                "and write again the rows that the store lacks")
            if entry["app"] == app:
                raise unfinished from error
            log.warning("%s", unfinished)
            continue
        _redo(root, store, entry, fsync, resumed=True)
        for job in jobs_of(entry):
            sweep(root, job)


def _count(root: str, store: MessageStore, entry: dict[str, Any]) -> dict[str, Any]:
    """Writes into the journal how many of the records the log holds, and where the others begin. A program that puts between
    this and the next crash puts behind that place, so the records that follow need not be those of the commit."""
    parts = [Staged(**p) for p in entry["parts"]]
    for part in parts:
        verify(part)
    skip = entry.get("skip") or 0
    skip += present(store, lambda: behind((piece for part in parts for piece in pieces(part)), skip), entry["begin"])
    store.flush()
    entry = entry | {"skip": skip, "begin": store.max_log_offset}
    write_journal(journal_of(root, entry["app"]), entry)
    _step("counted")
    return entry


def _redo(root: str, store: MessageStore, entry: dict[str, Any], fsync: bool, resumed: bool) -> CommitResult:
    parts = [Staged(**p) for p in entry["parts"]]
    skip = entry.get("skip") or 0
    records, begin, end = 0, None, store.max_log_offset
    for part in parts:
        if skip >= part.records:
            skip -= part.records
            continue
        for piece in behind(pieces(part), skip):
            n, first, last = append_staged(store, piece, part.path)
            records += n
            begin = first if begin is None else begin
            end = last if last is not None else end
        skip = 0
    _step("appended")
    if fsync or resumed:
        store.flush()
    else:
        store._flush(commit=True)     # not from memory of this process: what is called done outlives it
    _step("flushed")
    write_journal(journal_of(root, entry["app"]),
                  {"app": entry["app"], "done": entry["pending"], "begin": entry["begin"], "end": end,
                   "records": sum(part.records for part in parts), "query": entry.get("query"), "log": entry.get("log"),
                   "once": entry.get("once"), "stored": None if entry.get("query") else stored_with(entry)})
    _step("done")
    return CommitResult(entry["pending"], records, entry["begin"] if begin is None else begin, end)


def forget_once(root: str) -> None:
    """Removes the journals of writes that nobody can repeat (without txnAppId) and that are done. The newest stays until the
    next commit: an attempt of its job that is late sees by it that the job is over."""
    for entry in journals(root):
        if entry.get("once") and entry.get("pending") is None:
            os.unlink(journal_of(root, entry["app"]))


def sweep(root: str, job: str | None) -> None:
    """Removes the staging files of a job that is over, also under attempts that still write."""
    if job is not None:
        drop(directory_of(root, job))


def abandon(root: str, job: str) -> None:
    """Removes the staging files of a job that failed, unless its commit is decided: the next commit needs them then.

    Spark calls abort also after a commit that failed, on a full disk for instance.
    """
    if job not in _pending_jobs(root):
        sweep(root, job)


def _pending_jobs(root: str) -> set[str]:
    return {job for entry in journals(root) if entry.get("pending") is not None for job in jobs_of(entry)}


def sweep_stale(root: str) -> None:
    """Removes what jobs left that died before their commit was decided. Job directories have 32 hex digits."""
    long_ago, kept = time.time() - STALE_S, _pending_jobs(root)
    directory = os.path.join(root, ".spark")
    for job in os.scandir(directory) if os.path.isdir(directory) else ():
        if re.fullmatch(r"[0-9a-f]{32}", job.name) and job.name not in kept and job.is_dir(follow_symlinks=False):
            times = [os.stat(place).st_mtime for place, _, _ in os.walk(job.path)]
            times += [entry.stat().st_mtime for entry in os.scandir(job.path)]
            if max(times) < long_ago:
                sweep(root, job.name)


def _step(name: str) -> None:
    """A step of the commit is over. Tests crash here."""
