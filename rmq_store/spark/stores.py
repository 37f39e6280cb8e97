"""Store directories as a reader finds them: files, sizes, names. Only lists and stats; reads a file's first record when asked.

Nothing is locked, opened for writing or made, so that the store may be live or dead, Java's or ours. Any thread.
"""
import glob
import json
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from rmq_store.access.bulk._queues import record_time
from rmq_store.base.io.files import open_regular
from rmq_store.config import values
from rmq_store.config.options import INT_MAX
from rmq_store.config.recorded import read_recorded
from rmq_store.errors import ConfigError, CorruptionError, LogDirectoryMissing
from rmq_store.events import Event, emit
from rmq_store.log.recovery.lockfile import in_use
from rmq_store.services.backup.met import Met, met_at

__all__ = ["Broker", "LogFile", "brokers_of", "index_files", "is_gone", "local_path", "log_files", "log_files_in",
           "queue_files", "queues", "recorded_logs", "store_root", "whole_before", "whole_path", "within"]


class Broker(NamedTuple):
    """One store: the name its rows carry, its root directory, and the directories of its log where they are not in the root, or
    are several."""

    name: str
    root: str
    logs: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogFile:
    """One CommitLog file: log offset of its first byte, length, and whether the log ends in it or before it.

    A live store has files made ahead, which hold nothing yet: the last file with a record in it is where the log ends.
    """

    path: str
    start: int
    size: int
    newest: bool

    @property
    def end(self) -> int:
        return self.start + self.size

    def first_time(self) -> int | None:
        """storeTimestamp of its first record in ms; None where none lies there, or it was deleted."""
        return record_time(self.path, 0)

    def head(self) -> Met | None:
        """Its first record; None where none begins it, or the file was deleted."""
        try:
            return met_at(self.path, self.start, self.start)
        except FileNotFoundError:
            return None


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)|(file):", re.ASCII | re.IGNORECASE)


def local_path(text: str, option: str = "path") -> str:
    """A path as an option has it, without "file:" (file:/x, file:///x and file://localhost/x are /x; nothing is decoded, as in
    Spark). Any thread. Raises ConfigError for other schemes and hosts: files are opened, mapped and locked, not fetched."""
    match = _SCHEME.match(text)
    if match is None:
        return text
    scheme, rest = (match[1] or match[2]).lower(), text[match.end():]
    if scheme != "file":
        raise ConfigError(f"option {option} is {text!r}: Spark reads and writes a store as files of this machine, not over "
                          f"{scheme}: mount it there and give the directory (./ in front of a name with a colon)")
    host, slash, place = rest[2:].partition("/") if rest.startswith("//") else rest.partition("/")
    if not slash or host.lower() not in ("", "localhost" if rest.startswith("//") else ""):
        raise ConfigError(f"option {option} is {text!r}: after file: give a whole path of this machine, as in "
                          "file:///data/store")
    return "/" + place.lstrip("/")


def whole_path(text: str) -> str:
    """A path as an option has it, seen from this directory; one with a scheme is whole."""
    return os.path.abspath(text.strip()) if text.strip() and _SCHEME.match(text.strip()) is None else text


def brokers_of(path: str, broker_name: str | None = None, logs: str | None = None) -> tuple[Broker, ...]:
    """The stores that option `path` names: one root, a comma list, globs, or JSON {"broker-a": "/mnt/a/store"}. logs: option
    commitLogPath, for one store directories with commas between them, else JSON {"broker-a": "/mnt/a/log,/mnt/b/log"}.

    Without JSON a broker is called after its directory. Raises ConfigError (two brokers of one name), FileNotFoundError.
    """
    text = path.strip()
    if text.startswith("{"):
        try:
            named = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"option path looks like JSON but is not JSON ({error}): {text[:200]!r}") from error
        if not named or not all(isinstance(v, str) and k for k, v in named.items()):
            raise ConfigError(f'option path is {text[:200]!r}: as JSON it is {{"broker name": "store directory"}}')
        found = [Broker(name, os.path.abspath(local_path(root))) for name, root in named.items()]
    else:
        roots: list[str] = []
        for part in (local_path(p.strip()) for p in text.split(",") if p.strip()):
            matches = sorted(glob.glob(part)) if glob.has_magic(part) else [part]
            if not matches:
                raise FileNotFoundError(2, "option path: no directory matches", part)
            roots += matches
        found = [Broker(os.path.basename(os.path.abspath(root)), os.path.abspath(root)) for root in roots]
        found = _told_apart(found)
        if broker_name is not None:
            if len(found) > 1:
                raise ConfigError(f"option brokerName is {broker_name!r}, but path names {len(found)} stores: "
                                  'give path as JSON {"broker name": "store directory"}')
            found = [Broker(broker_name, f.root) for f in found]
    if not found:
        raise ConfigError("option path is missing: name the root directory of a store, a comma list, a glob, or JSON")
    found = _with_logs(found, logs) if logs else found
    found = [broker if broker.logs else broker._replace(logs=recorded_logs(broker.root)) for broker in found]
    seen: dict[str, str] = {}
    for broker in found:
        if broker.name in seen:
            raise ConfigError(f"option path: the stores {seen[broker.name]} and {broker.root} are both called {broker.name!r}: "
                              'give path as JSON {"broker name": "store directory"}')
        seen[broker.name] = broker.root
        if not broker.logs:
            commitlog_of(broker.root)
        elif not any(os.path.isdir(log) for log in broker.logs):
            raise FileNotFoundError(2, "no such directory of the commit log (option commitLogPath, else "
                                    "config/storeOptions.json; on a cluster: on every node)", broker.logs[0])
    return tuple(found)


def _told_apart(brokers: list[Broker]) -> list[Broker]:
    """Stores whose directories have one name, as /mnt/a/store and /mnt/b/store, are called after the first part of the path,
    from its end, in which they differ: a and b. Where that does not tell them apart they stay as they are."""
    if len({b.name for b in brokers}) == len(brokers):
        return brokers
    parts = [[part for part in b.root.split(os.sep) if part][::-1] for b in brokers]
    for names in zip(*parts, strict=False):
        if len(set(names)) == len(names):
            return [b._replace(name=name) for b, name in zip(brokers, names, strict=True)]
    return brokers


def within(broker: Broker, path: str) -> bool:
    """Whether `path` is a directory of this store, or would lie in one, links followed."""
    there = os.path.realpath(local_path(path))
    return any(os.path.commonpath([place, there]) == place for place in map(os.path.realpath, (broker.root, *broker.logs)))


def _with_logs(brokers: list[Broker], text: str) -> list[Broker]:
    """The stores with the directories of their logs. Raises ConfigError."""
    try:
        named = json.loads(text) if text.lstrip().startswith("{") else None
        if named is None and len(brokers) > 1:
            raise ValueError('several stores take JSON {"broker name": "directories"}')
        given = {brokers[0].name: text} if named is None else named
        if unknown := set(given) - {broker.name for broker in brokers}:
            raise ValueError(f"option path has no store {min(unknown)!r}")
        logs = {name: values.path_list(values.to_paths(_local_paths(value))) for name, value in given.items()}
    except ValueError as error:
        raise ConfigError(f"option commitLogPath is {text[:200]!r}: {error}") from None
    return [Broker(broker.name, broker.root, tuple(logs.get(broker.name, ()))) for broker in brokers]


def _local_paths(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError("expected text")
    return ",".join(local_path(part.strip(), "commitLogPath") for part in text.split(","))


def commitlog_of(root: str) -> str:
    """The directory with the CommitLog files: <root>/commitlog, or root itself where the files lie there."""
    directory = os.path.join(root, "commitlog")
    if os.path.isdir(directory):
        return directory
    if not os.path.isdir(root):
        raise FileNotFoundError(2, "option path: no such store directory (on a cluster: on every node)", root)
    if any(_is_offset(name) for name in os.listdir(root)):
        return root
    raise FileNotFoundError(2, "option path: not a message store, it has no commitlog directory", root)


def store_root(broker: Broker) -> str:
    """Where the other parts of a store lie; of a directory of log files, which may be that of a store, the one above."""
    alone = not broker.logs and commitlog_of(broker.root) == broker.root
    return os.path.dirname(broker.root) if alone else broker.root


def recorded_logs(root: str) -> tuple[str, ...]:
    """The directories of the log as the store's last writer recorded them (config/recorded.py); none where the log lies in the
    root alone. Raises OSError."""
    told: dict[str, Any] = read_recorded(root).others
    logs, fixed = (values.path_list(told.get(name)) for name in ("commitlog_path", "commitlog_paths_readonly"))
    return tuple(dict.fromkeys([*(logs or [os.path.join(root, "commitlog")]), *fixed])) if logs or fixed else ()


def log_files(where: str | Broker, holes: bool = False) -> list[LogFile]:
    """The CommitLog files of a root or a store, oldest first. A hole between two of them, or one that is longer than any
    may be, is a CorruptionError unless `holes`; then what is too long of a file is left out.

    A listing is of no one moment: files made and deleted meanwhile may look like a hole, but not twice like the same one. Of a
    log in several directories one may be gone where `holes` may be, which is logged once.
    """
    if isinstance(where, str):
        return log_files_in([commitlog_of(where)], holes)
    return log_files_in(where.logs or [commitlog_of(where.root)], holes)


_said: set[str] = set()             # directories of which was logged that they are gone


def _there(directories: Sequence[str], holes: bool) -> list[str]:
    """Those of several directories that are there. Raises CorruptionError where one is not, unless `holes`."""
    missing = [place for place in directories if not os.path.isdir(place)] if len(directories) > 1 else []
    if missing and not holes:
        raise LogDirectoryMissing(missing[0], None, "a directory of the commit log (commitLogPath)",
                                  "none: mount its disk, or read the other directories with onCorrupt=skip")
    if new := set(missing) - _said:
        _said.update(new)
        emit(Event.LOG_DIRECTORY_MISSING, path=os.path.commonpath(list(directories)), directories=", ".join(sorted(new)))
    return [place for place in directories if place not in missing]


def log_files_in(directories: Sequence[str], holes: bool = False) -> list[LogFile]:
    """log_files of directories of CommitLog files, wherever they lie."""
    seen: tuple[LogFile, LogFile] | None = None
    while True:
        found = sorted(row for directory in _there(directories, holes) for row in _listed(directory))
        last = len(found) - 1
        while last > 0 and _empty(found[last][1]):
            last -= 1
        long = next((row for row in found if row[2] > INT_MAX), None)
        if long is not None and not holes:
            raise CorruptionError(long[1], INT_MAX, f"at most {INT_MAX} bytes, Java's longest file", f"{long[2]} bytes")
        files = [LogFile(path, start, min(size, INT_MAX), i >= last) for i, (start, path, size) in enumerate(found)]
        hole = next((pair for pair in pairwise(files) if pair[0].end != pair[1].start), None)
        if hole is None or holes:
            return files
        if hole == seen:
            before, after = hole
            raise CorruptionError(after.path, after.start, f"the file that begins where {before.path} ends, at {before.end}",
                                  "another one")
        seen = hole


def is_gone(path: str, start: int, empty: bool) -> bool:
    """True where the CommitLog file `path`, which begins at `start` and was not there, was deleted as the oldest ones are, or
    as recovery does with one made ahead, which was `empty`. Else the store is not what, or where, it was: a copy of it that is
    behind lacks the newest files."""
    try:
        found = _listed(os.path.dirname(path))
    except FileNotFoundError:
        return False
    return bool(found) and (start < found[0][0] or (empty and start > found[-1][0]))


WRITTEN_MS = 10_000     # after so long no writer is still copying a record into its file


def whole_before(root: str) -> int:
    """The store time in ms before which no record is still being written: now, where nobody has the store open; root may also
    be its commitlog directory."""
    used = in_use(root) or in_use(os.path.dirname(root))
    return time.time_ns() // 1_000_000 + (-WRITTEN_MS if used else 1)


def _listed(directory: str) -> list[tuple[int, str, int]]:
    """(number, path, size) of the files that are called by an offset, ascending."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if _is_offset(entry.name):
                with suppress(FileNotFoundError):       # deleted since it was listed
                    found.append((int(entry.name), entry.path, entry.stat().st_size))
    return sorted(found)


def queues(root: str) -> list[tuple[str, int, str]]:
    """(topic, queue id, directory) of every consume queue, sorted."""
    base = os.path.join(root, "consumequeue")
    found = []
    if os.path.isdir(base):
        with os.scandir(base) as topics:
            for topic in topics:
                if topic.is_dir(follow_symlinks=False):
                    with suppress(FileNotFoundError), os.scandir(topic.path) as ids:
                        found += [(topic.name, int(q.name), q.path) for q in ids if q.name.isascii() and q.name.isdecimal()]
    return sorted(found)


def queue_files(directory: str) -> list[tuple[int, str, int]]:
    """(start in bytes, path, size) of the files of one consume queue, oldest first; none where it was removed."""
    try:
        return _listed(directory)
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(os.path.dirname(directory))):
            raise                       # all queues: the store is not here
        return []


def index_files(root: str) -> list[str]:
    """Paths of the index files, oldest first."""
    base = os.path.join(root, "index")
    if not os.path.isdir(base):
        return []
    with os.scandir(base) as entries:
        return sorted(e.path for e in entries if len(e.name) == 17 and e.name.isascii() and e.name.isdigit())


def _empty(path: str) -> bool:
    with suppress(FileNotFoundError), open(path, "rb", buffering=0, opener=open_regular) as file:
        return not file.read(8).strip(b"\0")
    return True


def _is_offset(name: str) -> bool:
    return len(name) == 20 and name.isascii() and name.isdigit()
