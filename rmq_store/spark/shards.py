"""Bulk loads without one appender: each task builds a complete store of its own, the commit only gives them their names.

    tasks       <root>/.spark/<job>/shard-00003-<attempt>/      a store, closed and on the device
    commit      1 lock   2 finish what a crashed commit had decided   3 journal "pending": which directory gets which name
                4 rename each to <root>/shard-00007, ...   5 journal "done"   6 sweep

A write adds at most as many stores as it has tasks and never touches one that is there, so a read takes <root>/shard-*. As in
staging.py a pair of application and version is done once: what is pending is completed by the next commit, and a store that has
its name already is not looked at again.
"""
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmq_store.access.bulk._staged import append_staged
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.errors import ConfigError
from rmq_store.log.recovery import lockfile
from rmq_store.spark.journal import journal_of, stored_with, was_stored
from rmq_store.spark.staging import (
    directory_of,
    forget_once,
    journals,
    last_done,
    located,
    read_journal,
    stored_before,
    sweep,
    sweep_stale,
    sync_names,
    write_journal,
)
from rmq_store.store import MessageStore

__all__ = ["Shard", "ShardsMade", "build_shard", "commit_shards"]

_NAME = re.compile(r"shard-([0-9]{5,})")


@dataclass(frozen=True)
class Shard:
    """One store that a task has built."""

    path: str
    records: int


@dataclass(frozen=True)
class ShardsMade:
    """What a commit did. stores: their directories, empty where the version was done before."""

    version: int
    stores: tuple[str, ...]
    records: int
    repeated: bool = False


def build_shard(root: str, job: str, partition: int, encoded: Iterable[bytes], store_options: dict[str, Any]) -> Shard | None:
    """Builds a store of staged records (encode_rows), under a name no other attempt has; None where there are none.

    The directory of the job is there (staging.enter), unless the job is over: FileNotFoundError.
    """
    check_root(root)
    path = os.path.join(directory_of(root, job), f"shard-{partition:05d}-{uuid.uuid4().hex}")
    store: MessageStore | None = None
    records = 0
    try:
        for data in encoded:
            if store is None:
                os.mkdir(path)
                store = MessageStore.open(path, _services=False, **{"write_path": "pool", **store_options})
            records += append_staged(store, data, path)[0]
        if store is not None:
            store.flush()
    finally:
        if store is not None:
            store.close()
    return Shard(path, records) if records else None


def commit_shards(root: str, app: str, version: int, shards: list[Shard], job: str | None = None) -> ShardsMade:
    """Gives the stores that tasks have built their names under `root`; once per version of an application.

    Raises ConfigError (root is a store itself), StoreLocked (another commit is on its way), OSError.
    """
    check_root(root)
    directory = os.path.join(root, ".spark")
    os.makedirs(directory, exist_ok=True)
    files = ControlFiles(IoTable())
    lock = lockfile.acquire(files, directory)
    try:
        _finish_pending(files, root)
        sweep_stale(root)
        done = last_done(root, app)
        forget_once(root)
        if done is not None and was_stored(root, app, version, read_journal(journal_of(root, app)) or {}, None):
            sweep(root, job)
            return ShardsMade(version, (), 0, repeated=True)
        first = 1 + max((int(m[1]) for m in map(_NAME.fullmatch, os.listdir(root)) if m), default=-1)
        names = {os.path.relpath(located(root, shard.path), root): f"shard-{first + i:05d}" for i, shard in enumerate(shards)}
        entry = {"app": app, "done": done, "pending": version, "job": job, "shards": names, "once": app == job,
                 "stored": stored_before(root, app)}
        sync_names(root, (shard.path for shard in shards))
        write_journal(journal_of(root, app), entry)
        _step("pending")
        _finish(files, root, entry)
    finally:
        lockfile.release(files, lock)
    return ShardsMade(version, tuple(os.path.join(root, name) for name in names.values()), sum(s.records for s in shards))


def check_root(root: str) -> None:
    """Raises ConfigError for a directory that is a store, or is about to be one. The log of a store may lie elsewhere."""
    if any(os.path.exists(os.path.join(root, name)) for name in ("commitlog", "consumequeue", "checkpoint")) or any(
            entry.get("pending") is not None and "parts" in entry for entry in journals(root)):
        raise ConfigError(f"option shards: {root} is a store itself: name a directory that the stores are made in")


def _finish_pending(files: ControlFiles, root: str) -> None:
    for entry in journals(root):
        if entry.get("pending") is not None:
            _finish(files, root, entry)


def _finish(files: ControlFiles, root: str, entry: dict[str, Any]) -> None:
    for made, name in entry["shards"].items():
        if not os.path.isdir(os.path.join(root, name)):
            os.rename(os.path.join(root, made), os.path.join(root, name))
            _step("renamed")
    files.sync_dir(root)
    write_journal(journal_of(root, entry["app"]),
                  {"app": entry["app"], "done": entry["pending"], "once": entry.get("once"), "stored": stored_with(entry)})
    _step("done")
    sweep(root, entry["job"])


def _step(name: str) -> None:
    """A step of the commit is over. Tests crash here."""
