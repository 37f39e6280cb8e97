"""Everything the store raises on purpose. A message names the thing, its value, the limit and the cure.

    RmqStoreError
    ├─ ConfigError(ValueError)            an option: unknown, twice, out of range
    ├─ ArgumentIllegal(ValueError, TypeError)    an argument of a call: of another type, out of range
    ├─ StoreStateError                    StoreClosed, StoreLocked(pid), ForkedProcess, StoreNotWriteable
    ├─ PutError(status)                   MessageIllegal(ValueError), PropertiesSizeExceeded, ServiceNotAvailable,
    │                                     CreateMappedFileFailed, OsPageCacheBusy, PoolExhausted
    ├─ DurabilityError(OSError)           SyncFailed, WriteFailed, ShortWrite, DiskFull; errno is the kernel's
    ├─ CorruptionError(path, offset, …)   StoreRefusesToLoad, UnknownVersion
    ├─ BackendUnavailable(backend, reason, cure)
    └─ ViewsAlive(BufferError)            close(strict=True): message views are alive

What is stored but not yet as safe as asked is no error: it is a
status on the result (status.PutStatus). All are raised in the caller's thread, never in a native one; all can be pickled.
"""
import os
from errno import EDQUOT, ENOSPC
from typing import NamedTuple

from rmq_store.status import PutStatus

__all__ = [
    "ArgumentIllegal", "BackendUnavailable", "ConfigError", "ConfigFileCorrupted", "CorruptionError",
    "CreateMappedFileFailed", "DiskFull", "DurabilityError", "ForkedProcess", "MessageIllegal", "OsPageCacheBusy",
    "PoolExhausted", "PropertiesSizeExceeded", "PutError", "RmqStoreError", "ServiceNotAvailable", "ShortWrite",
    "StoreClosed", "StoreLocked", "StoreNotWriteable", "StoreRefusesToLoad", "StoreStateError", "StoredPart", "SyncFailed",
    "UnknownVersion", "ViewsAlive", "WriteFailed", "exceeds", "foreign", "illegal", "tell_stored",
]


def exceeds(thing: str, value: object, limit: object, cure: str) -> str:
    """Words a broken limit: `exceeds("body size", "5000000 bytes", "4194304", "split it or raise …")`."""
    return f"{thing} is {value}, the limit is {limit}: {cure}"


class StoredPart(NamedTuple):
    """Where the first messages of a put_many lie that failed before the last one: log offsets and queue offsets."""

    offsets: list[int]
    queue_offsets: list[int]


class RmqStoreError(Exception):
    """Base of all errors of this package.

    stored: of put_many, the messages from the first one on that were stored before the error came; they stay, and their readers
    see them. None: none was.
    """

    stored: StoredPart | None = None


def tell_stored(error: BaseException, offsets: list[int], queue_offsets: list[int], count: int) -> None:
    """Has an error say that the first messages of `count` are stored: `stored`, and words."""
    part = StoredPart(offsets, queue_offsets)
    error.stored = part                 # type: ignore[attr-defined]
    error.add_note(f"{len(offsets)} of {count} messages were stored before that and stay: put the others, not all, again")


class ConfigError(RmqStoreError, ValueError):
    """An option is unknown, given twice, of the wrong type, out of range, or contradicts another one."""


class ArgumentIllegal(RmqStoreError, ValueError, TypeError):
    """An argument of a call that stores no message is of another type than it must be, or out of range."""


def illegal(name: str, value: object, cure: str) -> ArgumentIllegal:
    """Words a wrong argument: `illegal("max_count", -1, "give a whole number from 1 on")`."""
    text = repr(value)
    return ArgumentIllegal(f"{name} is {text if len(text) <= 80 else text[:79] + '…'}: {cure}")


# ---- the store's own state

class StoreStateError(RmqStoreError):
    """The call does not fit the state of the store. `status` is what upstream would answer a put."""

    status = PutStatus.SERVICE_NOT_AVAILABLE


class StoreClosed(StoreStateError):
    """A call on a closed store."""

    def __init__(self, path: object = None) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store{_at(self.path)} is closed: open it again with MessageStore.open"


class StoreLocked(StoreStateError):
    """Another process, or this one, has the store open for writing. `pid` is None where the holder does not tell."""

    def __init__(self, path: object = None, pid: int | None = None) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        if self.pid == os.getpid():
            holder = "this process"
        elif self.pid:
            holder = f"process {self.pid}"
        else:
            holder = "another process (a Java broker leaves no process id)"
        return f"the store{_at(self.path)} is open in {holder}: close it there, or look at it with readonly=True"


class ForkedProcess(StoreStateError):
    """A call in a forked child on a store that its parent opened: threads and locks did not come along."""

    def __init__(self, path: object = None) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (f"the store{_at(self.path)} was opened before a fork and belongs to the parent process: "
                f"open it after the fork, or with readonly=True in the child (process {os.getpid()})")


class StoreNotWriteable(StoreStateError):
    """A put, or a flush, on a store that was opened with readonly=True."""

    def __init__(self, path: object = None) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store{_at(self.path)} is open with readonly=True: open it without to write"


class ViewsAlive(RmqStoreError, BufferError):
    """From close(strict=True): the store is closed, and `leases` groups of message views are alive. They stay good, and their
    files mapped, until the last of them is gone."""

    def __init__(self, path: object = None, leases: int = 0) -> None:
        super().__init__(path, leases)
        self.path = path
        self.leases = leases

    def __str__(self) -> str:
        return (f"the store{_at(self.path)} is closed, but {self.leases} groups of message views are alive, which "
                "strict=True does not allow: let go of the messages first, or keep message.copy() or bytes(message.body)")


# ---- a message that was not stored

class PutError(RmqStoreError):
    """A message was refused and is not stored; of put_many, `stored` has those before it. `status` is the upstream status."""

    status: PutStatus = PutStatus.UNKNOWN_ERROR

    def __init__(self, reason: str, status: PutStatus | None = None) -> None:
        super().__init__(reason, status)
        self.reason = reason
        if status is not None:
            self.status = PutStatus(status)

    def __str__(self) -> str:
        return f"{self.status.name}: {self.reason}{_notes(self)}"


class MessageIllegal(PutError, ValueError):
    """Topic, body, size, queue id or a separator inside a property is outside what a record can hold."""

    status = PutStatus.MESSAGE_ILLEGAL


class PropertiesSizeExceeded(PutError, ValueError):
    """The encoded properties are longer than 32767 bytes."""

    status = PutStatus.PROPERTIES_SIZE_EXCEEDED


class ServiceNotAvailable(PutError):
    """The store takes no messages now: it starts, it stops, or it has no way to handle this kind."""

    status = PutStatus.SERVICE_NOT_AVAILABLE


class CreateMappedFileFailed(PutError):
    """The next commit-log file did not come in time."""

    status = PutStatus.CREATE_MAPPED_FILE_FAILED


class OsPageCacheBusy(PutError):
    """The put lock has been held for longer than busy_after_ms: the device does not keep up. Try later."""

    status = PutStatus.OS_PAGE_CACHE_BUSY


class PoolExhausted(PutError):
    """No room in the transient store pool, and pool_empty is "fail"."""

    status = PutStatus.SERVICE_NOT_AVAILABLE


# ---- the device

class DurabilityError(RmqStoreError, OSError):
    """The kernel refused to write or to sync. `errno` is its reason, `filename` the file.

    After SyncFailed, WriteFailed and ShortWrite the store is failed for writing: reads go on, nothing more is acknowledged.
    """

    status = PutStatus.SERVICE_NOT_AVAILABLE
    cure = "close the store, look after the device, open it again: recovery finds out what is really there"

    def __init__(self, errno: int, what: str = "I/O", path: object = None) -> None:
        text = None if path is None else os.fsdecode(os.fspath(path))   # type: ignore[call-overload]
        if text is None:
            super().__init__(abs(errno), what)
        else:
            super().__init__(abs(errno), what, text)
        self.what = what

    def __str__(self) -> str:
        code = self.errno or 0
        return f"{self.what}{_at(self.filename)} failed with errno {code} ({os.strerror(code)}): {self.cure}{_notes(self)}"


class SyncFailed(DurabilityError):
    """fdatasync, msync or a directory sync failed. It is never tried again on the same pages."""


class WriteFailed(DurabilityError):
    """A write failed."""


class ShortWrite(DurabilityError):
    """A write stored fewer bytes than given, and could not be continued."""


class DiskFull(DurabilityError):
    """No space for the next file. Not final: puts are taken again once there is space. From open(): for what it writes."""

    status = PutStatus.CREATE_MAPPED_FILE_FAILED
    cure = "make room on that file system; the store goes on by itself"
    codes = ENOSPC, EDQUOT          # the kernel's reasons: a device, or somebody's share of it, is full

    @classmethod
    def at_open(cls, error: OSError, root: str) -> "DiskFull":
        """What open() raises for an error whose errno is one of `codes`."""
        full = cls(error.errno or 0, "opening", error.filename or root)
        full.cure = "make room on that file system and open it again; readonly=True opens it as it is"
        return full


# ---- what is on the device

class CorruptionError(RmqStoreError):
    """Bytes on the device are not what they must be."""

    cure = ("keep a copy of the store; `rmqstore verify` tells what is damaged, `rmqstore repair` bridges damage in the log "
            "and makes queues and index from it again")

    def __init__(self, path: object, offset: int | None, expected: object, found: object) -> None:
        super().__init__(path, offset, expected, found)
        self.path = path
        self.offset = offset
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.path}{where}: expected {self.expected}, found {self.found}: {self.cure}"


def foreign(path: str, expected: str, found: str) -> CorruptionError:
    """A file of queues or index of another size than all: damaged, of another geometry, or somebody else's."""
    error = CorruptionError(path, None, expected, found)
    error.cure = ("move it out of the directory where it is none of the store's, open the store with the sizes it was written "
                  "with, or run `rmqstore repair`, which makes queues and index from the log again")
    return error


class ConfigFileCorrupted(CorruptionError):
    """A JSON file under config/ and its .bak are both unreadable: offsets, topics, groups or delay offsets."""

    cure = ("mend the JSON by hand, put either file back from a copy of the store, or move both away: then its content begins "
            "anew, as in a new store")


class StoreRefusesToLoad(CorruptionError):
    """The directory as a whole cannot be a store of these options: a commit-log file of another size, a hole in the log."""

    cure = ("open it with the file sizes it was written with, or put the file back from a copy of the store; a file that is "
            "none of the store's: move it out of the directory; `rmqstore repair` gives a short last file its length back")


class UnknownVersion(StoreRefusesToLoad):
    """The log has records of a version of the format that this library does not know. Nothing was changed."""

    cure = ("nothing was changed: open it with the RocketMQ that wrote it, or with a newer release of this library; "
            "readonly=True shows what lies in front of them")


class BackendUnavailable(RmqStoreError):
    """A flush back end was asked for by name, and this machine does not allow it."""

    def __init__(self, backend: str, reason: str, cure: str) -> None:
        super().__init__(backend, reason, cure)
        self.backend = backend
        self.reason = reason
        self.cure = cure

    def __str__(self) -> str:
        return f"flush_backend {self.backend!r} cannot be used here: {self.reason}: {self.cure}"


def _notes(error: BaseException) -> str:
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()))


def _at(path: object) -> str:
    return "" if path is None else f" {path}"


def no_thread(code: int, name: str, path: str) -> OSError:
    """The error of a native thread of the store at `path` that could not be started."""
    return OSError(code, f"{os.strerror(code)}: starting the {name} thread: raise the limit of address space (ulimit -v), of "
                   "threads (ulimit -u, pids.max), or of memory", path)
