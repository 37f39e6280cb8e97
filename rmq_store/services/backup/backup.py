"""Backups of a store, also of one that is open: each a directory of its own that is a store, whole or not there.

    DIR/.rmqstore-backups       of which store they are; locked while one is made
    DIR/20261123T091500Z/       a backup: a store, closed in order, and .backup.json (content.py)
    DIR/.partial/               one that is being made, or was broken off

Log files that an earlier backup has are not copied again: they are the same file under two names. Everything else is copied.
Nothing is ever deleted but .partial. Control plane; one thread.
"""
import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, read_text
from rmq_store.base.io.wants import limits_named
from rmq_store.config.recorded import RECORDED
from rmq_store.errors import ConfigError, CorruptionError, DiskFull, StoreStateError
from rmq_store.log.recovery.places import completing, root_of
from rmq_store.services.backup.content import (
    LIST,
    OTHER_BACKUP,
    copy_file,
    fingerprint,
    read_list,
    tree,
    write_list,
    wrong_files,
)
from rmq_store.services.backup.image import Image
from rmq_store.services.backup.source import Source
from rmq_store.services.integrity.findings import Finding

__all__ = ["BackupInfo", "backup_source", "check_backup", "list_backups", "newest_backup", "restore"]

MARKER, PARTIAL, RESTORING = ".rmqstore-backups", ".partial", ".restoring"
DISPATCH_TIMEOUT_S = 3600


@dataclass(frozen=True)
class BackupInfo:
    """One backup."""

    path: str
    source: str                     # the store it is of
    made_ms: int
    begin: int                      # log offsets: what it holds
    end: int
    file_count: int
    copied_bytes: int               # when it was made
    linked_bytes: int               # of log files that an earlier backup had

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@limits_named()
def backup_source(source: Source, directory: Any, least: int, open_store: Callable[..., Any],
                  progress: Callable[[int], None] | None, io: IoTable | None) -> BackupInfo:
    """Backs up what is known of a store; least: log offset up to which it must reach; open_store: MessageStore.open, which
    settles the copy."""
    source.parts()              # refuses half a log before anything is made
    maker = _Backup(source, root_of(directory), open_store, io or IoTable(), progress or (lambda size: None))
    try:
        with maker.locked():
            return maker.make(least)
    except OSError as error:
        if error.errno not in DiskFull.codes:
            raise
        full = DiskFull(error.errno or 0, "writing a backup at", error.filename or maker.directory)
        full.cure = "make room there and give the command again: earlier backups are whole, of this one nothing is left"
        raise full from error


class _Backup:
    def __init__(self, source: Source, directory: str, open_store: Callable[..., Any], io: IoTable,
                 progress: Callable[[int], None]) -> None:
        self.source, self.directory, self.open_store, self.io, self.progress = source, directory, open_store, io, progress
        self.files = ControlFiles(io)
        self.partial = os.path.join(directory, PARTIAL)
        if os.path.lexists(directory) and not os.path.isdir(directory):
            raise NotADirectoryError(errno.ENOTDIR, "the path is a file, and backups are in a directory: give the path of a "
                                     "directory", directory)
        self._refuse_nested()

    # ---- where

    def _refuse_nested(self) -> None:
        there = os.path.realpath(self.directory)
        places = self.source.places
        for place in {os.path.realpath(p) for p in (self.source.root, *places.commitlogs, places.consumequeue, places.index)}:
            if os.path.commonpath([place, there]) in (place, there):
                raise ConfigError(f"{self.directory} is the store {self.source.root}, in it or around it: give a directory "
                                  "beside it")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        marker = os.path.join(self.directory, MARKER)
        if not os.path.exists(marker):
            if os.path.isdir(self.directory) and (there := [n for n in os.listdir(self.directory) if n != MARKER + ".tmp"]):
                raise StoreStateError(f"{self.directory} holds something else ({sorted(there)[0]}): give a new or empty "
                                      "directory")
            self.files.make_dirs(self.directory)
            self.files.write_new(self.directory, MARKER, json.dumps({"source": os.path.realpath(self.source.root)}).encode())
        fd = self.files.open(marker, os.O_RDWR)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _is_still(fd, marker):       # two that were the first
                    raise BlockingIOError
            except BlockingIOError:
                raise StoreStateError(f"another backup into {self.directory} is being made: wait for it") from None
            self._refuse_other(marker)
            try:
                yield
            except OSError as error:
                if error.errno in DiskFull.codes:       # what there is of it takes the room
                    shutil.rmtree(self.partial, ignore_errors=True)
                raise
        finally:
            self.files.close(fd)

    def _refuse_other(self, marker: str) -> None:
        try:
            source = json.loads(read_text(marker))["source"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptionError(marker, None, "which store the backups are of", str(error)) from error
        if source != os.path.realpath(self.source.root):
            raise StoreStateError(f"{self.directory} holds backups of {source}, not of {self.source.root}: give another "
                                  "directory")

    # ---- making one

    def make(self, least: int) -> BackupInfo:
        shutil.rmtree(self.partial, ignore_errors=True)
        self.files.mkdir(self.partial)
        last = next(reversed(_names(self.directory)), "")
        base, known = os.path.join(self.directory, last), {}
        if last:
            with contextlib.suppress(CorruptionError):      # then nothing is taken from it
                known = read_list(base)["files"]

        rotten: set[str] = set()

        def same(name: str, about: os.stat_result) -> str | None:
            """The file of the last backup that has these bytes: made of that very file of the source, and not touched since."""
            then = {} if name in rotten else known.get(name, {})
            path = os.path.join(base, name)
            if then.get("source") != _identity(about) or not os.path.isfile(path):
                return None
            now = os.stat(path)
            return path if (now.st_size, now.st_mtime_ns) == (then["size"], then["mtime_ns"]) else None

        while True:
            image = Image(self.io, self.source, self.partial, same, self.progress)
            image.take(least)
            if not (found := self._rotten(image, known)):
                break
            rotten |= found             # it is copied again
            shutil.rmtree(self.partial)
            self.files.mkdir(self.partial)
        _step("image")
        self._recover(image.end)
        _step("recovered")
        listed = {name: self._about(name, known if name in image.linked else {}, image) for name in tree(self.partial)}
        name = self._name(last)
        info = BackupInfo(os.path.join(self.directory, name), os.path.realpath(self.source.root), time.time_ns() // 1_000_000,
                          image.begin, image.end, len(listed), image.copied_bytes,
                          len(image.linked) * self.source.options.segment_size_bytes)
        content = info.as_dict()
        del content["path"]
        write_list(self.files, self.partial, {**content, "files": listed})
        for place, _, _ in os.walk(self.partial, topdown=False):
            self.files.sync_dir(place)
        _step("listed")
        self.files.rename(self.partial, info.path)
        self.files.sync_dir(self.directory)
        return info

    def _rotten(self, image: Image, known: dict[str, Any]) -> set[str]:
        """Files of the last backup that are not as they were written. Recovery, which writes, must not meet them: it would cut
        the log there, in that backup too. So this looks first at what recovery would find."""
        if not image.linked:
            return set()
        with self._opened(readonly=True) as store:
            if store.max_log_offset == image.end:
                return set()
        return {name for name in image.linked if fingerprint(self.io, os.path.join(self.partial, name)) != known[name]["crc"]}

    def _opened(self, **options: Any) -> Any:
        mine = self.source.options
        return self.open_store(self.partial, _io=self.io, _services=False, _environment={}, **completing(self.partial),
                               **options, **{name: mine[name] for name in RECORDED})

    def _recover(self, end: int) -> None:
        """Queues and index are made to agree with the log, and the store is closed in order: it is whole."""
        with self._opened(manifest_enabled=False) as store:
            if store.max_log_offset != end or store.cut_bytes:
                raise CorruptionError(self.partial, store.max_log_offset, f"a log that ends at {end}", "another end")
            if not store.wait_dispatched(DISPATCH_TIMEOUT_S):
                raise StoreStateError(f"queues and index of the backup were not made within {DISPATCH_TIMEOUT_S} s: try again")
        for name in (".alloc", "lock"):
            path = os.path.join(self.partial, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)

    def _about(self, name: str, known: dict[str, Any], image: Image) -> dict[str, Any]:
        path = os.path.join(self.partial, name)
        about = os.stat(path)
        source = image.sources.get(name)
        crc = known[name]["crc"] if name in known else fingerprint(self.io, path)
        return {"size": about.st_size, "mtime_ns": about.st_mtime_ns, "crc": crc,
                "source": None if source is None else _identity(source)}

    def _name(self, last: str) -> str:
        name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        if name > last and not os.path.lexists(os.path.join(self.directory, name)):
            return name
        head, _, number = last.partition("-")       # the same second, or the clock was set back
        return f"{head}-{int(number or 1) + 1:04d}"


def _identity(about: os.stat_result) -> list[int]:
    return [about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns]


# ---- what there is

def list_backups(directory: Any) -> list[BackupInfo]:
    """Returns the backups in a directory, oldest first. Raises FileNotFoundError if it holds no backups, CorruptionError."""
    directory = root_of(directory)
    return [_info(directory, name) for name in _names(directory)]


def _names(directory: str) -> list[str]:
    """Of all backups in a directory, oldest first."""
    if not os.path.exists(os.path.join(directory, MARKER)):
        raise FileNotFoundError(2, "no directory of backups: `rmqstore backup STORE DIR` makes one", directory)
    return [name for name in sorted(os.listdir(directory))
            if name[:1] != "." and os.path.exists(os.path.join(directory, name, LIST))]


def _info(directory: str, name: str) -> BackupInfo:
    path = os.path.join(directory, name)
    return BackupInfo(path, **{k: v for k, v in read_list(path).items() if k != "files"})


def _chosen(directory: Any, name: str | None) -> BackupInfo:
    """That one, whatever is wrong with others."""
    directory = root_of(directory)
    found = _names(directory)
    if found and (name is None or name in found):
        return _info(directory, found[-1] if name is None else name)
    there = ", ".join(found) or "none"
    raise ConfigError(f"{os.fsdecode(directory)} has no backup {name or ''}: there are {there}")


def newest_backup(directory: Any) -> str | None:
    """Returns the name of the newest backup in a directory; None if there is none. Raises FileNotFoundError."""
    return next(reversed(_names(root_of(directory))), None)


def check_backup(directory: Any, name: str | None = None, *, _io: IoTable | None = None) -> list[Finding]:
    """Reads every byte of a backup (default: the newest), and returns the findings. Raises ConfigError,
    FileNotFoundError, CorruptionError (the backup's list is damaged), OSError."""
    return wrong_files(_io or IoTable(), _chosen(directory, name).path)


def restore(directory: Any, target: Any, name: str | None = None, *, progress: Callable[[int], None] | None = None,
            _io: IoTable | None = None) -> BackupInfo:
    """Copies a backup (default: the newest) to the directory `target`, which must be empty or must not exist. The result is a
    cleanly closed store. The call compares every byte with the backup's list; `target` exists only when all bytes are right
    and on the device. If the call is interrupted, call it again. Raises ConfigError, StoreStateError, CorruptionError (a byte
    changed), OSError.
    """
    io = _io or IoTable()
    files, info, root = ControlFiles(io), _chosen(directory, name), os.path.realpath(root_of(target))
    if os.path.lexists(root) and (not os.path.isdir(root) or os.listdir(root)):
        raise StoreStateError(f"{root} exists and is not empty: give a new directory, because a restore replaces nothing")
    if os.path.ismount(root):
        raise StoreStateError(f"another disk is mounted at {root}, and a backup is restored beside its target: give a "
                              f"directory on that disk ({os.path.join(root, 'store')})")
    partial = root.rstrip("/") + PARTIAL
    try:
        with _begun_restore(files, partial):
            _restore(io, files, info, partial, progress or (lambda size: None))
            files.rename(partial, root)
            files.sync_dir(os.path.dirname(root))
            files.unlink(os.path.join(root, RESTORING))
    except OSError as error:
        if error.errno not in DiskFull.codes:
            raise
        full = DiskFull(error.errno or 0, "restoring to", root)
        full.cure = "make room there, or choose a directory on another disk, and restore again: nothing of it is left"
        raise full from error
    return info


@contextlib.contextmanager
def _begun_restore(files: ControlFiles, partial: str) -> Iterator[None]:
    """Makes the directory in which a restore is made, anew if one was broken off, and holds a lock on it."""
    if os.path.lexists(partial):
        if not os.path.isdir(partial) or ((there := set(os.listdir(partial))) and not there & {RESTORING, RESTORING + ".tmp"}):
            raise StoreStateError(f"{partial} is in the way: move it away, because a restore works there")
        fd = files.open_dir(partial)
        try:
            _lock_restore(files, fd, partial)
            _clear(partial)
        finally:
            files.close(fd)
    files.make_dirs(os.path.dirname(partial))
    if not files.mkdir(partial):
        raise StoreStateError(f"{partial} is in the way: another restore has just been begun, or it cannot be removed")
    fd = files.open_dir(partial)
    try:
        _lock_restore(files, fd, partial)
        try:
            files.write_new(partial, RESTORING, b"")
            yield
        except OSError as error:
            if error.errno in DiskFull.codes:       # what there is of it takes the room
                _clear(partial)
            raise
    finally:
        files.close(fd)


def _lock_restore(files: ControlFiles, fd: int, partial: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreStateError(f"another restore is being made in {partial}: wait for it") from None
    if not _is_still(fd, partial):
        raise StoreStateError(f"another restore has just been begun in {partial}: wait for it")


def _is_still(fd: int, path: str) -> bool:
    """Whether what was opened has its name still: a lock on something else would lock nothing."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _restore(io: IoTable, files: ControlFiles, info: BackupInfo, partial: str, progress: Callable[[int], None]) -> None:
    done = 0

    def pace(size: int) -> None:
        nonlocal done
        done += size
        progress(done)

    listed = read_list(info.path)["files"]
    newest = max((n for n in listed if n.startswith("commitlog/")), default=None)
    files.make_dirs(os.path.join(partial, "commitlog"))     # a store has it, whether its log has a file or not
    for each, about in sorted(listed.items()):
        path = os.path.join(partial, each)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        copy_file(io, os.path.join(info.path, each), path, None, pace)
        if os.path.getsize(path) != about["size"] or fingerprint(io, path) != about["crc"]:
            error = CorruptionError(os.path.join(info.path, each), None, "the bytes that were written", "others")
            error.cure = OTHER_BACKUP
            raise error
        if each == newest:
            fd = files.open(path, os.O_RDWR)
            try:
                io.fallocate(fd, 0, about["size"])      # puts go there
                files.sync(fd)
            finally:
                files.close(fd)
    for place, _, _ in os.walk(partial, topdown=False):
        files.sync_dir(place)


def _clear(partial: str) -> None:
    """Takes away what a restore that was broken off left. What says that it is one goes last: this may be broken off, too."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(partial):
            if name != RESTORING:
                shutil.rmtree(os.path.join(partial, name), ignore_errors=True)
    shutil.rmtree(partial, ignore_errors=True)


def _step(name: str) -> None:
    """A step is over. Tests stop here."""
