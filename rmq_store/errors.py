"""All errors that the store raises itself. The text of an error names the thing, its value, the limit and the cure.

    RmqStoreError
    ├─ ConfigError(ValueError)            an option: unknown, given twice, out of range
    ├─ ArgumentIllegal(ValueError, TypeError)    an argument of a call: wrong type, out of range
    │  └─ FilterIllegal(sql, position, …)        an expression of a SQL92 filter that cannot be parsed
    ├─ FilterFailed(ValueError)           a SQL92 filter cannot be evaluated for one message
    ├─ StoreStateError    StoreClosed, StoreLocked(pid), ForkedProcess, StoreNotWriteable, StoreIsSlave, NotASlave, MasterAlive
    ├─ StoreNotReadable   a get while set_readable(False) holds
    ├─ PutError(status)   MessageIllegal(ValueError), PropertiesSizeExceeded, ServiceNotAvailable, CreateMappedFileFailed,
    │                     OsPageCacheBusy, PoolExhausted, PutRefused(hook), LmqConsumeQueueNumExceeded, InSyncReplicasNotEnough
    ├─ DurabilityError(OSError)           SyncFailed, WriteFailed, ShortWrite, DiskFull, OutOfResources(errno)
    ├─ CorruptionError(path, offset, …)   StoreRefusesToLoad, LogDirectoryMissing, UnknownVersion
    ├─ BackendUnavailable(backend, reason, cure)
    ├─ TransactionUnknown(LookupError), TransactionDecided    a transaction that is not there, or that was decided differently
    └─ ViewsAlive(BufferError)            close(strict=True): message views are alive

A message that is stored, but not yet as durable as requested, is not an error: the result has a status that says so
(status.PutStatus). The caller's thread raises every error; a native thread raises none. All errors can be pickled.
"""
import os
from errno import EDQUOT, ENOSPC, ESTALE
from typing import Any

from rmq_store.fields import NamedTuple
from rmq_store.status import PutStatus

__all__ = [
    "ArgumentIllegal", "BackendUnavailable", "ConfigError", "ConfigFileCorrupted", "CorruptionError",
    "CreateMappedFileFailed", "DiskFull", "DurabilityError", "FilterFailed", "FilterIllegal", "ForkedProcess",
    "InSyncReplicasNotEnough", "LmqConsumeQueueNumExceeded", "LogDirectoryMissing", "MasterAlive", "MessageIllegal",
    "NotASlave", "OsPageCacheBusy", "OutOfResources", "PoolExhausted", "PropertiesSizeExceeded", "PutError", "PutRefused",
    "RmqStoreError", "ServiceNotAvailable", "ShortWrite", "StoreClosed", "StoreIsSlave", "StoreLocked", "StoreNotReadable",
    "StoreNotWriteable", "StoreRefusesToLoad", "StoreStateError", "StoredPart", "SyncFailed", "TransactionDecided",
    "TransactionUnknown", "UnknownVersion", "ViewsAlive", "WriteFailed", "exceeds", "foreign", "illegal", "reason",
    "tell_stored",
]


def exceeds(thing: str, value: object, limit: object, cure: str) -> str:
    """The text for a value beyond a limit: `exceeds("body size", "5000000 bytes", "4194304", "split it or raise …")`."""
    return f"{thing} is {value}, the limit is {limit}: {cure}"


def reason(code: int) -> str:
    """What an errno of the I/O table says; ESTALE is that of native/src/home.c."""
    return os.strerror(code) if code != ESTALE else (
        "a directory or file of the open store was renamed, replaced or mounted over, its name may be another's: nothing is "
        "made or removed by that name any more; close the store, and open it where its directory is now")


class StoredPart(NamedTuple):
    """The messages that a put_many stored before it failed: their log offsets and queue offsets."""

    offsets: list[int]
    queue_offsets: list[int]


class RmqStoreError(Exception):
    """Base class of all errors of this package.

    stored: the messages that put_many stored before the error, from the first message on. These messages stay stored, and
    readers see them. None: put_many stored no message.
    """

    stored: StoredPart | None = None


def tell_stored(error: BaseException, offsets: list[int], queue_offsets: list[int], count: int) -> None:
    """Adds to an error that the first messages of `count` are stored: sets `stored`, and adds a note."""
    part = StoredPart(offsets, queue_offsets)
    error.stored = part                 # type: ignore[attr-defined]
    error.add_note(f"{len(offsets)} of {count} messages were stored before that and stay stored: put only the others again")


class ConfigError(RmqStoreError, ValueError):
    """An option is unknown, given twice, has the wrong type, is out of range, or contradicts another option."""


class ArgumentIllegal(RmqStoreError, ValueError, TypeError):
    """An argument has the wrong type or is out of range. Calls that store messages raise MessageIllegal instead."""


def illegal(name: str, value: object, cure: str) -> ArgumentIllegal:
    """Returns the error for a wrong argument: `illegal("max_count", -1, "give a whole number from 1 on")`."""
    text = repr(value)
    return ArgumentIllegal(f"{name} is {text if len(text) <= 80 else text[:79] + '…'}: {cure}")


class FilterIllegal(ArgumentIllegal):
    """The text of a SQL92 filter is not an expression of RocketMQ's grammar. `position` is the index of the character where it
    is not; `reason` and `cure` say why, and what to write."""

    def __init__(self, sql: str, position: int, reason: str, cure: str) -> None:
        super().__init__(sql, position, reason, cure)
        self.sql = sql
        self.position = position
        self.reason = reason
        self.cure = cure

    def __str__(self) -> str:
        near = self.sql[max(self.position - 20, 0):self.position + 20]
        return f"sql, character {self.position + 1}, in {near!r}: {self.reason}: {self.cure}"


class FilterFailed(RmqStoreError, ValueError):
    """SqlFilter.evaluate met a property that the expression cannot compare, such as text where a number is compared. Reads do
    not raise it: for them such a message does not match, as for a broker."""


# ---- the store's own state

class StoreStateError(RmqStoreError):
    """The state of the store does not allow the call. `status` is the status that RocketMQ would return for a put."""

    status = PutStatus.SERVICE_NOT_AVAILABLE


class StoreClosed(StoreStateError):
    """The store is closed."""

    def __init__(self, path: object = None) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store{_at(self.path)} is closed: open it again with MessageStore.open"


class StoreLocked(StoreStateError):
    """Another process, or this one, has the store open for writing. `pid` is None if the holder leaves no process id."""

    def __init__(self, path: object = None, pid: int | None = None) -> None:
        super().__init__(path, pid)
        self.path, self.pid = path, pid
        self.cure = "close it there, or open it with readonly=True"

    def __str__(self) -> str:
        if self.pid == os.getpid():
            holder = "this process"
        elif self.pid:
            holder = f"process {self.pid}"
        else:
            holder = "another process (a Java broker leaves no process id)"
        return f"the store{_at(self.path)} is open in {holder}: {self.cure}"


class ForkedProcess(StoreStateError):
    """A forked child called a store that its parent opened. The threads and locks of the store do not exist in the child."""

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
        return f"the store{_at(self.path)} is open with readonly=True: to write, open it without readonly"


class StoreIsSlave(StoreStateError):
    """The directory is that of a slave (config/replica.json), and was opened for writing in another role. `master` is the
    address of its master."""

    def __init__(self, path: object = None, master: str = "") -> None:
        super().__init__(path, master)
        self.path = path
        self.master = master

    def __str__(self) -> str:
        return (f"the store{_at(self.path)} is a slave of {self.master or 'a master'}, whose log must not get messages of its "
                "own: open it with role='slave' or with readonly=True, or make it a master with `rmqstore promote` "
                "(rmq_store.promote)")


class NotASlave(StoreStateError):
    """promote() was called for a directory that is not a slave's: config/replica.json is missing, or says so. Or a directory
    that was promoted was opened with role="slave"."""

    def __init__(self, path: object = None, found: str = "", cure: str = "") -> None:
        super().__init__(path, found, cure)
        self.path, self.found = path, found
        self.cure = cure or "if it was the slave of a Java broker, promote it with force (--force)"

    def __str__(self) -> str:
        return f"the store{_at(self.path)} is not a slave's: {self.found}; {self.cure}"


class MasterAlive(StoreStateError):
    """promote() was called while the old master still answers at `address`."""

    def __init__(self, path: object = None, address: str = "") -> None:
        super().__init__(path, address)
        self.path = path
        self.address = address

    def __str__(self) -> str:
        return (f"the master of the store{_at(self.path)} still answers at {self.address}, and two masters take different "
                "messages for the same offsets: end the master first; with force (--force) the slave becomes a master all the "
                "same, and you make sure that nobody sends to the other one")


class StoreNotReadable(RmqStoreError):
    """A get on a store that set_readable(False) closed for readers. RocketMQ returns null, which a broker answers with
    SYSTEM_ERROR."""

    def __init__(self, path: object = None) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store{_at(self.path)} is not readable, because set_readable(False) was called: call set_readable(True)"


class ViewsAlive(RmqStoreError, BufferError):
    """Raised by close(strict=True): the store is closed, but `leases` groups of message views are alive. The views stay valid,
    and their files stay mapped, until the last view is gone."""

    def __init__(self, path: object = None, leases: int = 0) -> None:
        super().__init__(path, leases)
        self.path = path
        self.leases = leases

    def __str__(self) -> str:
        return (f"the store{_at(self.path)} is closed, but {self.leases} groups of message views are alive, which "
                "strict=True does not allow: delete the messages first, or keep message.copy() or bytes(message.body)")


# ---- a message that was not stored

class PutError(RmqStoreError):
    """A message was refused and is not stored. After put_many, `stored` has the messages before it. `status` is RocketMQ's."""

    status: PutStatus = PutStatus.UNKNOWN_ERROR

    def __init__(self, reason: str, status: PutStatus | None = None) -> None:
        super().__init__(reason, status)
        self.reason = reason
        if status is not None:
            self.status = PutStatus(status)

    def _name_message(self, i: int) -> None:
        """Says that it is message `i` of many, where the reason does not yet."""
        self.reason = self.reason if f"message {i}" in self.reason else f"message {i}: {self.reason}"

    def __str__(self) -> str:
        return f"{self.status.name}: {self.reason}{_notes(self)}"


class MessageIllegal(PutError, ValueError):
    """A record cannot hold the message: its topic, body, size or queue id, or a separator inside a property."""

    status = PutStatus.MESSAGE_ILLEGAL


class PropertiesSizeExceeded(PutError, ValueError):
    """The encoded properties are longer than 32767 bytes."""

    status = PutStatus.PROPERTIES_SIZE_EXCEEDED


class LmqConsumeQueueNumExceeded(PutError):
    """The message would make more light queues than lmq_count_max."""

    status = PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED


class ServiceNotAvailable(PutError):
    """The store takes no messages now, because of a running flag (the disk is fuller than disk_full_pct, set_writeable(False),
    set_fenced(True)), or it does not take this kind of message (a delay level with delay=refuse)."""

    status = PutStatus.SERVICE_NOT_AVAILABLE


class InSyncReplicasNotEnough(PutError):
    """Fewer replicas are in sync than in_sync_replicas asks for, or min_in_sync_replicas."""

    status = PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH

    @classmethod
    def of(cls, path: str, in_sync: int, options: Any) -> "InSyncReplicasNotEnough":
        return cls(f"replicas of {path} that are in sync: {in_sync}, the master counted; in_sync_replicas is "
                   f"{options.in_sync_replicas} and min_in_sync_replicas {options.min_in_sync_replicas}: connect more slaves "
                   "(store.replicas() lists them), or lower in_sync_replicas")


class CreateMappedFileFailed(PutError):
    """The next commit-log file was not made in time."""

    status = PutStatus.CREATE_MAPPED_FILE_FAILED


class OsPageCacheBusy(PutError):
    """Another put has held the put lock for longer than busy_after_ms: the device is too slow. Put again later."""

    status = PutStatus.OS_PAGE_CACHE_BUSY


class WheelTimerFlowControl(PutError):
    """Too many timer messages are due in the same slot (timer_congest_num_each_slot). Choose another time, or put later."""

    status = PutStatus.WHEEL_TIMER_FLOW_CONTROL


class WheelTimerMsgIllegal(PutError):
    """The time of delivery is no number, or beyond timer_max_delay_sec; or what is to be deleted was due already."""

    status = PutStatus.WHEEL_TIMER_MSG_ILLEGAL


class WheelTimerNotEnable(PutError):
    """The message has a time of delivery, and timer_wheel_enable is false."""

    status = PutStatus.WHEEL_TIMER_NOT_ENABLE


class PoolExhausted(PutError):
    """The transient store pool has no room, and pool_empty is "fail"."""

    status = PutStatus.SERVICE_NOT_AVAILABLE


class PutRefused(PutError):
    """A put hook refused the message. `hook` is the name of the hook, `reason` its words. `status` is the status that the hook
    gave; it is UNKNOWN_ERROR if the hook itself failed."""

    def __init__(self, hook: str, reason: str, status: PutStatus = PutStatus.UNKNOWN_ERROR) -> None:
        super().__init__(reason, status)
        self.args = (hook, reason, status)
        self.hook = hook

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return (f"{self.status.name}: put hook {self.hook} refused the message{reason}{_notes(self)}: correct the message, or "
                "remove the hook (remove_put_hook)")


# ---- the device

class DurabilityError(RmqStoreError, OSError):
    """The kernel refused to write or to sync. `errno` is the kernel's reason, `filename` the file.

    After SyncFailed, WriteFailed and ShortWrite the store takes no more puts and acknowledges no message. Reads still work.
    unwritten: what was put and is in the pool alone: (messages, first log offset, log offset behind them), or None.
    """

    status = PutStatus.SERVICE_NOT_AVAILABLE
    cure = "close the store, check the device, then open the store again: recovery finds which messages are really there"
    unwritten: tuple[int, int, int] | None = None

    def __init__(self, errno: int, what: str = "I/O", path: object = None) -> None:
        text = None if path is None else os.fsdecode(os.fspath(path))   # type: ignore[call-overload]
        super().__init__(abs(errno), what, *(() if text is None else (text,)))
        self.what = what

    def __str__(self) -> str:
        code = self.errno or 0
        return f"{self.what}{_at(self.filename)} failed with errno {code} ({reason(code)}): {self.cure}{_notes(self)}"


class SyncFailed(DurabilityError):
    """fdatasync, msync or a directory sync failed. The store never repeats a sync on the same pages."""


class WriteFailed(DurabilityError):
    """A write failed."""


class ShortWrite(DurabilityError):
    """A write stored only a part of its bytes, and the rest could not be written."""


class DiskFull(DurabilityError):
    """No space for the next file. The store accepts puts again when there is space. open() raises it for its own writes."""

    status = PutStatus.CREATE_MAPPED_FILE_FAILED
    cure = "make room on that file system; then the store accepts puts again by itself"
    codes = ENOSPC, EDQUOT          # the kernel's reasons: a device, or somebody's share of it, is full

    @classmethod
    def at_open(cls, error: OSError, root: str) -> "DiskFull":
        """Returns the error that open() raises for an errno of `codes`."""
        full = cls(error.errno or 0, getattr(error, "what", "opening"), error.filename or root)
        full.cure = "make room on that file system and open the store again; readonly=True opens it without writing"
        return full


class OutOfResources(DurabilityError):
    """The process or the machine has no descriptor, memory or thread left for work of the store, which waits for it."""


class CorruptionError(RmqStoreError):
    """Bytes on the device are wrong."""

    cure = ("keep a copy of the store; `rmqstore verify` lists the damage, `rmqstore repair` bridges damage in the log and "
            "builds the queues and the index again from the log")

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
    """A queue file or index file of the wrong size: damaged, written with other sizes, or not a file of the store."""
    error = CorruptionError(path, None, expected, found)
    error.cure = ("if the file does not belong to the store, move it away; else open the store with the sizes it was written "
                  "with, or run `rmqstore repair`, which builds the queues and the index again from the log")
    return error


class ConfigFileCorrupted(CorruptionError):
    """A JSON file under config/ (offsets, topics, groups or delay offsets) and its .bak file are both unreadable."""

    cure = ("correct the JSON by hand, restore one of the files from a copy of the store, or move both away: then the store "
            "begins with an empty file")


class StoreRefusesToLoad(CorruptionError):
    """The directory is not a store with these options: a commit-log file has another size, or the log has a gap."""

    cure = ("open the store with the file sizes it was written with, or restore the file from a copy of the store; if the file "
            "does not belong to the store, move it away; `rmqstore repair` restores the length of a short last file")


class LogDirectoryMissing(StoreRefusesToLoad):
    """A directory of the log, or files that were in one, are not there. The open changed nothing: an open for writing would cut
    the log and the queues where the files are missing."""

    cure = ("mount the disk that has them and open the store again; nothing was changed, and readonly=True reads what the "
            "other directories have")


class UnknownVersion(StoreRefusesToLoad):
    """The log has records in a version of the format that this library does not know. The open changed nothing."""

    cure = ("nothing was changed: open the store with the RocketMQ that wrote it, or with a newer release of this library; "
            "readonly=True shows the records before these")


class BackendUnavailable(RmqStoreError):
    """flush_backend names a back end that this machine does not allow."""

    def __init__(self, backend: str, reason: str, cure: str) -> None:
        super().__init__(backend, reason, cure)
        self.backend = backend
        self.reason = reason
        self.cure = cure

    def __str__(self) -> str:
        return f"flush_backend {self.backend!r} cannot be used here: {self.reason}: {self.cure}"


class TransactionUnknown(RmqStoreError, LookupError):
    """The store has no transaction of that id, or its half message is no longer in the log."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(id, reason)
        self.id = id
        self.reason = reason

    def __str__(self) -> str:
        return f"transaction {self.id}: {self.reason}: `rmqstore transactions` and transactions() list the pending ones"


class TransactionDecided(RmqStoreError):
    """The transaction was decided before, and differently. `state` says how; the call changed nothing."""

    def __init__(self, id: str, state: str) -> None:
        super().__init__(id, state)
        self.id = id
        self.state = state

    def __str__(self) -> str:
        return f"transaction {self.id} is {self.state} already, and a decision is final: put a new message instead"


def _notes(error: BaseException) -> str:
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()))


def _at(path: object) -> str:
    return "" if path is None else f" {path}"
