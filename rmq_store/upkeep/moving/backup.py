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
    """Backs the store in directory `source` up into the directory of backups `directory`, which is made if it is not there.

    The source is only read; it may be open, here or elsewhere: the backup ends behind a whole record, not before what was
    committed when the call began (of a store of this process use store.backup, which flushes first). It is a store that was
    closed in order, for us and RocketMQ, checked and on the device when the call returns; until then it is not there. Earlier
    backups stay as they are. What it lacks: docs/backup.md. progress(bytes copied). options: of the source, as of open.
    Thread-safety: any; one call at a time for a directory. Raises ConfigError, StoreStateError (a directory that is not for
    backups of this store), CorruptionError (a damaged source), DiskFull, OSError.
    """
    return backup_source(Source(source, options), directory, 0, MessageStore.open, progress, _io)
