"""What the store tells its log: one table of events, each with its room, level and sentence.

Logging only, control plane only: native threads leave a note in their structs and a Python thread emits it. Loggers are
`rmq_store.<room>`; a record carries `event` (the name below) and `fields` (a dict) for machines. The package adds a NullHandler
and never configures anything else.
"""
import logging
import re
from enum import Enum

__all__ = ["Event", "emit"]

logging.getLogger("rmq_store").addHandler(logging.NullHandler())

_INFO, _WARNING, _ERROR = logging.INFO, logging.WARNING, logging.ERROR


class Event(Enum):
    """An event: (room, level, sentence). `fields` are the names its sentence needs."""

    # life of a store
    OPENED = "store", _INFO, (
        "opened %(path)s: log %(min_offset)d to %(max_offset)d, %(queues)d queues, write_path %(write_path)s, "
        "flush_mode %(flush_mode)s, flush_backend %(flush_backend)s")
    CLOSED = "store", _INFO, "closed %(path)s at offset %(max_offset)d, everything flushed and dispatched"
    CLOSED_BEHIND = "store", _WARNING, (
        "closed %(path)s, but dispatch is at offset %(dispatched)d and the log ends at %(max_offset)d: the abort "
        "file stays, the next open recovers")
    CLOSED_FAILED = "store", _ERROR, (
        "closed %(path)s after a failed %(what)s (errno %(errno)d): flushed up to offset %(flushed)d of "
        "%(max_offset)d, the abort file stays, the next open recovers")
    CLOSED_WITH_LEASES = "store", _INFO, (
        "closed %(path)s while %(leases)d groups of message views are alive: they stay good, and their files mapped until the "
        "last one is gone")
    CLOSED_AT_EXIT = "store", _WARNING, "closed %(path)s at interpreter exit: close() was not called"
    CLOSED_BY_SIGNAL = "store", _INFO, "closing %(path)s because of signal %(signal)s"
    OPTION_NO_EFFECT = "config", _WARNING, "options of %(source)s have no effect here: %(options)s"
    SIZES_CUT = "config", _INFO, "%(path)s: %(options)s, less than the default, because of what the machine has"
    SIZES_LARGE = "store", _WARNING, (
        "made a store in %(path)s with files of RocketMQ's sizes: %(size)s of disk for the log from the start, %(index)s more "
        "with the first key; profile='dev' makes a small one, segment_size_bytes=... one of your size, which it then keeps")
    OPTIONS_IGNORED = "config", _INFO, (
        "%(count)d keys of %(source)s are the broker's, not the store's, and are ignored: %(names)s")

    # load and recovery
    RECOVERY_STARTED = "recovery", _INFO, "recovering %(path)s (%(kind)s) from %(file)s"
    RECOVERED = "recovery", _INFO, (
        "recovered %(path)s (%(kind)s): the log ends at offset %(max_offset)d, %(records)d records scanned in "
        "%(seconds).3f s")
    TRUNCATED = "recovery", _WARNING, (
        "cut the log of %(path)s at offset %(offset)d: %(reason)s; %(size)d bytes behind it were not valid "
        "records")
    SALVAGED = "recovery", _WARNING, (
        "%(size)d bytes from offset %(offset)d on were copied to %(copy)s before the cut; %(what)s")
    EMPTY_FILE_REMOVED = "recovery", _WARNING, "removed %(file)s: the last commit-log file was empty"
    QUEUE_FILE_REMOVED = "consumequeue", _WARNING, "removed %(file)s: the last file of a queue was empty"
    FOREIGN_FILE_SKIPPED = "recovery", _WARNING, "left %(file)s alone: %(reason)s"
    LOG_SHORT = "recovery", _WARNING, (
        "queues of %(path)s lead to offset %(queued)d, but the log ends at %(offset)d although the store was closed in order: "
        "what was put in these %(size)d bytes is not served; %(cure)s")
    INDEX_FILES_DROPPED = "recovery", _WARNING, (
        "deleted %(count)d index files newer than the checkpoint; they are built again")
    MANIFESTS_DROPPED = "integrity", _INFO, (
        "dropped %(count)d manifests of %(path)s: the log ends at offset %(offset)d, their files are not sealed any more")
    MANIFEST_FAILED = "integrity", _WARNING, "no manifest could be made for a sealed file of %(path)s: %(reason)s"
    QUEUES_SPOILT = "recovery", _WARNING, (
        "entries in %(path)s are damaged: what lies behind them is built again, from offset %(offset)d of the log on")
    RECORDS_PLACELESS = "recovery", _WARNING, (
        "%(count)d records of %(path)s say a queue offset that no queue can have, the last one at offset %(offset)d of the "
        "log: they stay there, and no queue leads to them")
    NEEDS_RECOVERY = "recovery", _WARNING, (
        "%(path)s was not closed cleanly; read-only, so nothing is repaired: queues end at offset %(offset)d of "
        "the log")

    VERSION_UNKNOWN = "recovery", _WARNING, (
        "from offset %(offset)d on the log of %(path)s has records of magic code %(magic)s, a version that this library does "
        "not know: they are not read, and an open for writing refuses the store")

    # files and memory
    DISK_FULL = "segment", _ERROR, "no space for %(file)s (%(size)d bytes): puts are refused until there is room"
    FILE_REFUSED = "segment", _ERROR, (
        "the next commit-log file of %(file)s cannot be made (errno %(errno)d): puts are refused until it can")
    FILES_ODD = "segment", _ERROR, (
        "files of the open store are not as they should be, %(kind)s: %(path)s, %(detail)s; somebody else changes them, or the "
        "file system is damaged: rmqstore verify tells more")
    DISK_SPACE_BACK = "segment", _INFO, "%(file)s could be created: puts are taken again"
    MLOCK_REFUSED = "pool", _WARNING, (
        "mlock of %(size)d bytes refused (errno %(errno)d), %(what)s stays unlocked: raise RLIMIT_MEMLOCK (now %(limit)s), "
        "or set %(option)s=False")
    HUGEPAGES_REFUSED = "pool", _WARNING, (
        "the pool, %(size)d bytes, gets no huge pages though pool_hugepages is set: %(reason)s")
    POOL_LOW = "pool", _WARNING, (
        "less than a quarter of the pool has been free for half a second (%(free)d of %(size)d bytes now): the device takes "
        "the log more slowly than it is written")
    POOL_EMPTY = "pool", _WARNING, (
        "puts find no room in the pool of %(size)d bytes and wait, %(count)d times in half a second: the device takes the log "
        "more slowly than it is written")

    # consumers
    MESSAGE_FAILED = "consumer", _WARNING, (
        "group %(group)s failed to handle message %(msg_id)s of %(topic)s, tried %(times)d times before: %(error)s; it goes to "
        "%(to)s")
    DEAD_LETTER = "consumer", _WARNING, (
        "message %(msg_id)s of %(topic)s goes to %(to)s: group %(group)s tried it again %(times)d times")
    OFFSET_BEYOND_END = "consumer", _WARNING, (
        "group %(group)s had committed offset %(offset)d of %(topic)s/%(queue_id)d, which ends at %(end)d: it goes on there")
    CONFIG_BACKUP_USED = "consumer", _WARNING, "read %(file)s in place of the file it is a copy of: %(reason)s"

    # delay
    DELAY_SKIPPED = "delay", _WARNING, (
        "%(count)d delayed messages of %(path)s could not be delivered and were passed over, the last one at offset "
        "%(offset)d: unreadable, damaged, or without a real topic and queue; they stay in SCHEDULE_TOPIC_XXXX")
    DELAY_REPEATED = "delay", _WARNING, (
        "delivering delayed messages of %(path)s failed %(count)d times (errno %(errno)d last) and is tried again; with errno "
        "90 (EMSGSIZE) one is larger than the pool: reopen with the message_size_max_bytes that it was put with, or more")

    # cleaning
    LOG_FILES_DELETED = "cleaning", _INFO, (
        "deleted %(count)d commit-log files (%(size)d bytes) of %(path)s, reason %(reason)s: the log begins at offset "
        "%(min_offset)d; with them went %(queue_files)d queue files and %(index_files)d index files")
    QUEUES_REMOVED = "cleaning", _INFO, "removed %(count)d queues of %(path)s, topics %(topics)s; %(kept)d had to stay"
    CLOCK_SET_AHEAD = "cleaning", _WARNING, (
        "the clock was set %(hours).1f h ahead, or the machine slept: for %(keep).1f h the age of old files of %(path)s counts "
        "without that, so that none goes too early")
    UNCONSUMED_DELETED = "cleaning", _WARNING, (
        "group %(group)s lost %(count)d messages of %(topic)s/%(queue_id)d that it had not consumed: queue offsets %(begin)d "
        "to below %(end)d went with the oldest commit-log file")
    LOG_FILE_HELD = "cleaning", _WARNING, (
        "%(file)s is withdrawn from the log and due to be deleted, but %(users)d message views look at it: cleaning waits for "
        "them, %(ms)d ms at most")
    LOG_FILE_HANGED = "cleaning", _WARNING, (
        "deleted %(file)s while %(users)d message views look at it, after %(ms).0f ms: they stay good, its space comes back "
        "with the last of them")
    DISK_FULL_PERCENT = "cleaning", _ERROR, (
        "the disk of %(path)s is %(used)d %% full, the limit is %(limit)d %%: puts are refused until there is room")
    DISK_PERCENT_BACK = "cleaning", _INFO, "the disk of %(path)s is %(used)d %% full: puts are taken again"
    TASK_FAILED = "store", _ERROR, "%(task)s of %(path)s failed and is tried again later: %(error)s"

    # putting, flushing, dispatching
    PUT_LOCK_HELD_LONG = "commitlog", _WARNING, (
        "the put lock was held for %(ms)d ms or more, seen in phase %(phase)s (none, encode: copying the message, roll: taking "
        "the next file); %(count)d such times since the store was opened")
    PUT_LOCK_THREADS = "commitlog", _WARNING, (
        "the put lock has been held for %(ms)d ms; all threads, each with its state and what it waits for:\n%(threads)s")
    BACKEND_CHOSEN = "flush", _INFO, "flush_backend auto: %(backend)s, because %(reason)s"
    DIRECT_REFUSED = "flush", _INFO, "%(path)s: the log is written through the page cache, because %(reason)s"
    BUFFERS_REFUSED = "flush", _WARNING, (
        "registering %(size)d bytes of the pool with io_uring was refused (errno %(errno)d): each write names its memory "
        "instead, which costs some CPU; raise RLIMIT_MEMLOCK (now %(limit)s)")
    RING_READY = "flush", _INFO, (
        "io_uring: up to %(depth)d writes in flight, %(how)s, small steps durable by %(durability)s, set-up flags %(flags)s")
    FLUSH_SLOW = "flush", _WARNING, (
        "%(count)d flushes of the log took longer than 500 ms since the store was opened, the longest %(ms).0f ms")
    PUT_SLOW = "writer", _WARNING, (
        "a put into %(topic)s took %(ms).0f ms; of its phases since the last such put: waits for pool room %(pool_waits)d, for "
        "the next file %(file_waits)d, put locks held long %(slow_locks)d (the last in phase %(phase)s), flushes %(flushes)d, "
        "the longest since the store was opened %(flush_ms).0f ms")
    STORE_FAILED = "flush", _ERROR, (
        "%(what)s of %(file)s failed with errno %(errno)d at offset %(offset)d: no more puts are taken, reads go "
        "on; close and open again to recover")
    DISPATCH_BEHIND = "dispatch", _WARNING, "dispatch is %(size)d bytes behind the log"

    @property
    def room(self) -> str:
        return self.value[0]

    @property
    def level(self) -> int:
        return self.value[1]

    @property
    def sentence(self) -> str:
        return self.value[2]

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(re.findall(r"%\((\w+)\)", self.sentence))


_LOGGERS = {event: logging.getLogger("rmq_store." + event.room) for event in Event}


def emit(event: Event, **fields: object) -> None:
    """Logs `event`. Fields its sentence does not name are kept in the record all the same. A missing one is a KeyError: at
    once where the event is enabled, so that a test finds it."""
    log = _LOGGERS[event]
    if log.isEnabledFor(event.level):
        text = event.sentence % fields
        log.log(event.level, "%s", text, extra={"event": event.name, "fields": fields}, stacklevel=2)
