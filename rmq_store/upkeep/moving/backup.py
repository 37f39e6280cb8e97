"""A backup of a store by its path; of an open one there is MessageStore.backup."""
from collections.abc import Callable
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.services.backup.backup import BackupInfo, backup_source
from rmq_store.services.backup.source import Source
from rmq_store.store import MessageStore

__all__ = ["backup"]


def backup(source: Any, directory: Any, *, progress: Callable[[int], None] | None = None, _io: IoTable | None = None,
           **options: Any) -> BackupInfo:
    """Backs the store in directory `source` up into the directory of backups `directory`. It makes a missing directory.

    The call only reads the source, which may be open, here or elsewhere. The backup ends after a whole record, and has at least
    every message that was committed when the call began. (For a store of this process use store.backup, which flushes first.)
    When the call returns, the backup is a cleanly closed store for this library and for RocketMQ, checked and on the device;
    before that it does not exist. Earlier backups never change. docs/backup.md says what a backup lacks. progress(bytes
    copied). options: of the source, as of open. Thread-safety: any; one call at a time for a directory. Raises ConfigError,
    StoreStateError (the directory has other content), CorruptionError (a damaged source), DiskFull, OSError.
    """
    return backup_source(Source(source, options), directory, 0, MessageStore.open, progress, _io)
