"""Getting staged records into a store exactly once: staging files, a journal, and the one commit that appends.

    tasks       <root>/.spark/<job>/part-00003-<attempt>.stage   records without a place, behind them count and crc32c
    commit      1 verify every file   2 open the store: its lock   3 finish what a crashed commit had decided
                4 journal "pending": version, files, where the log ended   5 append, flush   6 journal "done"   7 sweep

The journal of an application (txnAppId) is one small file, replaced whole. Once "pending" is on the device the commit is
decided: whoever comes next appends what is missing, which it finds by comparing the log behind the noted end with the staged
records. Nothing is stored twice and nothing is left out, whichever step a crash fell between; a version that is done is not
done again.
"""
import hashlib
import json
import os
import shutil
import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import crc32c

from rmq_store import MessageStore
from rmq_store.bulk._staged import append_staged, matching
from rmq_store.errors import CorruptionError, StoreStateError
from rmq_store.spark.stores import log_files

__all__ = ["CommitResult", "StageFile", "Staged", "commit_staged", "sweep"]

_FOOTER = struct.Struct(">8sqI")
_MAGIC = b"RMQSTAGE"
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


class StageFile:
    """A staging file in the making, under a name no other attempt has. finish() makes it durable; discard() forgets it."""

    def __init__(self, root: str, job: str, partition: int) -> None:
        directory = directory_of(root, job)
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, f"part-{partition:05d}-{uuid.uuid4().hex}.stage")
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
        """Removes what was written."""
        self._file.close()
        os.unlink(self.path)


def load(staged: Staged) -> bytes:
    """The staged records of a file. Raises CorruptionError where it is not what its task wrote, FileNotFoundError."""
    with open(staged.path, "rb", buffering=0) as file:
        data = file.read()
    if len(data) != staged.size + _FOOTER.size:
        raise CorruptionError(staged.path, len(data), f"{staged.size + _FOOTER.size} bytes", f"{len(data)}")
    magic, records, crc = _FOOTER.unpack_from(data, staged.size)
    data = data[:staged.size]
    if magic != _MAGIC or records != staged.records or crc != staged.crc:
        raise CorruptionError(staged.path, staged.size, "the footer its task wrote", "another one")
    found = crc32c.crc32c(data)
    if found != crc:
        raise CorruptionError(staged.path, 0, f"crc32c {crc:#010x}", f"{found:#010x}")
    return data


# ---- the journal

def _journal(root: str, app: str) -> str:
    name = hashlib.sha256(app.encode()).hexdigest()[:32]
    return os.path.join(root, ".spark", "journal", f"{name}.json")


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CorruptionError(path, None, "a journal of commits", str(error)) from error


def _write(path: str, entry: dict[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = path + ".tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(entry, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    for directory in (os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def last_done(root: str, app: str) -> int | None:
    """The newest version of an application that is surely in the store."""
    entry = _read(_journal(root, app))
    return None if entry is None else entry.get("done")


# ---- the commit

def commit_staged(root: str, app: str, version: int, parts: Iterable[Staged], store_options: dict[str, Any] | None = None,
                  job: str | None = None, fsync: bool = True) -> CommitResult:
    """Appends the records of `parts`, in order, to the store at `root`, which is made where there is none; once per version.

    app, version: what is idempotent; versions of an application grow. Raises CorruptionError (a staging file is damaged;
    nothing was appended), StoreLocked (a broker or another process has the store), PutError, OSError.
    """
    parts = list(parts)
    done = last_done(root, app)
    if done is not None and version <= done:
        sweep(root, job)
        return CommitResult(version, 0, 0, 0, repeated=True)
    for part in parts:
        load(part)
    _step("verified")
    # Nothing may come between the records of a commit, so nothing is delivered meanwhile.
    with MessageStore.open(root, **{"delay": "store_only", **(store_options or {})}) as store:
        _step("opened")
        _finish_pending(root, store, fsync)
        _step("recovered")
        done = last_done(root, app)
        if done is not None and version <= done:    # the one that was pending was this one
            sweep(root, job)
            return CommitResult(version, 0, 0, 0, repeated=True)
        store.flush()
        entry = {"app": app, "done": done, "pending": version, "begin": store.max_log_offset, "job": job,
                 "parts": [asdict(p) for p in parts]}
        _write(_journal(root, app), entry)
        _step("pending")
        result = _redo(root, store, entry, fsync, resumed=False)
    sweep(root, job)
    return result


def _finish_pending(root: str, store: MessageStore, fsync: bool) -> None:
    """Completes the commits that a crash left decided but not done, of any application."""
    directory = os.path.join(root, ".spark", "journal")
    if not os.path.isdir(directory):
        return
    for name in sorted(os.listdir(directory)):
        entry = _read(os.path.join(directory, name)) if name.endswith(".json") else None
        if entry is not None and entry.get("pending") is not None:
            _redo(root, store, entry, fsync, resumed=True)
            sweep(root, entry.get("job"))


def _redo(root: str, store: MessageStore, entry: dict[str, Any], fsync: bool, resumed: bool) -> CommitResult:
    parts = [Staged(**p) for p in entry["parts"]]
    present = _present(store, parts, entry["begin"]) if resumed else 0
    skip, records, begin, end = present, 0, None, store.max_log_offset
    for part in parts:
        if skip >= part.records:
            skip -= part.records
            continue
        data = memoryview(load(part))
        data, skip = data[_offset_of(data, skip):], 0
        n, first, last = append_staged(store, data, part.path)
        records += n
        begin = first if begin is None else begin
        end = last if last is not None else end
    _step("appended")
    if fsync or resumed:
        store.flush()
    _step("flushed")
    _write(_journal(root, entry["app"]), {"app": entry["app"], "done": entry["pending"], "begin": entry["begin"], "end": end})
    _step("done")
    return CommitResult(entry["pending"], records, entry["begin"] if begin is None else begin, end)


def _present(store: MessageStore, parts: list[Staged], begin: int) -> int:
    """How many of the staged records, from the first on, are in the log already: those that follow each other from `begin`."""
    stored = _records_from(store.path, begin)
    count = 0
    for part in parts:
        data = load(part)
        at = 0
        while at < len(data):
            found = next(stored, None)
            sizes = None if found is None else matching(data, at, found, 0)
            if sizes is None:
                return count
            at += sizes[0]
            count += 1
    return count


def _records_from(root: str, begin: int) -> Iterator[bytes]:
    """The raw records of a log from `begin` on. The store is open here, so nobody else changes it."""
    from rmq_store.bulk._columns import Split

    for file in log_files(root):
        if file.end <= begin:
            continue
        with Split(file.path, file.start, max(begin, file.start), file.end, newest=file.newest, aligned=True) as split, \
                open(file.path, "rb", buffering=0) as raw:
            while (batch := split.batch(["physicalOffset", "storeSize"], max_rows=1024)) is not None:
                if split.take_bad():
                    raise StoreStateError(f"{file.path}: damage behind offset {begin}: audit the store")
                places = memoryview(batch[1]["physicalOffset"]).cast("q")
                sizes = memoryview(batch[1]["storeSize"]).cast("i")
                for place, size in zip(places, sizes, strict=True):
                    yield os.pread(raw.fileno(), size, place - file.start)


def _offset_of(data: memoryview, records: int) -> int:
    at = 0
    for _ in range(records):
        at += int.from_bytes(data[at:at + 4], "big")
    return at


def sweep(root: str, job: str | None) -> None:
    """Removes the staging files of a job that is over."""
    if job is not None:
        shutil.rmtree(directory_of(root, job), ignore_errors=True)


def _step(name: str) -> None:
    """A step of the commit is over. Tests crash here."""
