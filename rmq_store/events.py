"""What the store writes to the log: one table of events, each with its room, level and sentence.

Logging only, control plane only: native threads leave a note in their structs and a Python thread emits it. Loggers are
`rmq_store.<room>`; a record carries `event` (the name below) and `fields` (a dict) for machines. The package adds a handler
that is silent but for _Unheard.LOUD, and never configures anything else.
"""
import logging
import re
from enum import Enum
from types import TracebackType

__all__ = ["Event", "emit", "named", "printable", "told"]


class _Unheard(logging.NullHandler):
    """Of a program that has configured no logging, logging.lastResort gets what would be a loss that nobody sees: the first
    failure of each consumer, and every dead letter."""

    LOUD = frozenset(("MESSAGE_FAILED", "DEAD_LETTER"))

    def handle(self, record: logging.LogRecord) -> bool:
        if getattr(record, "event", "") in self.LOUD and getattr(record, "fields", {}).get("failures", 1) == 1:
            last = logging.lastResort
            if last is not None and record.levelno >= last.level and not self._heard(record.name):
                last.handle(record)
        return True

    def _heard(self, name: str) -> bool:
        """Whether the program has a handler of its own for that logger, be it a silent one."""
        log: logging.Logger | None = logging.getLogger(name)
        while log is not None:
            if any(handler is not self for handler in log.handlers):
                return True
            log = log.parent if log.propagate else None
        return False


logging.getLogger("rmq_store").addHandler(_Unheard())

_INFO, _WARNING, _ERROR = logging.INFO, logging.WARNING, logging.ERROR


class Event(Enum):
    """An event: (room, level, sentence). `fields` are the names its sentence needs."""

    # life of a store
    OPENED = "store", _INFO, (
        "opened %(path)s: the log has offsets %(min_offset)d to %(max_offset)d, %(queues)d queues, write_path %(write_path)s, "
        "flush_mode %(flush_mode)s, flush_backend %(flush_backend)s")
    CLOSED = "store", _INFO, "closed %(path)s at offset %(max_offset)d: everything is flushed and dispatched"
    CLOSED_BEHIND = "store", _WARNING, (
        "closed %(path)s before dispatch was done: dispatch is at offset %(dispatched)d, the log ends at %(max_offset)d; the "
        "abort file stays, and the next open recovers")
    CLOSED_FAILED = "store", _ERROR, (
        "closed %(path)s after a failed %(what)s (errno %(errno)d): the log is flushed up to offset %(flushed)d of "
        "%(max_offset)d; the abort file stays, and the next open recovers")
    CLOSED_WITH_LEASES = "store", _INFO, (
        "closed %(path)s while %(leases)d groups of message views are alive: the views stay valid, and their files stay mapped "
        "until the last view is gone")
    CLOSED_AT_EXIT = "store", _WARNING, "closed %(path)s at interpreter exit: close() was not called"
    CLOSED_BY_SIGNAL = "store", _INFO, "closing %(path)s because of signal %(signal)s"
    OPTION_NO_EFFECT = "config", _WARNING, "options of %(source)s have no effect here: %(options)s"
    RECORDED_UNKNOWN = "config", _WARNING, (
        "%(path)s cannot be used: %(what)s; this open reads the store as its other files tell, and an open for writing is "
        "refused")
    LIGHT_QUEUES_OFF = "config", _WARNING, (
        "the light queues of %(path)s are off from log offset %(offset)d on, because %(source)s says so: messages that are put "
        "now get no entries in light queues; the entries that are there stay, and later opens leave the light queues off until "
        "one gives enable_lmq and enable_multi_dispatch")
    SIZES_CUT = "config", _INFO, (
        "%(path)s: the machine has too little memory or disk for the default sizes, so the store uses "
        "smaller ones: %(options)s")
    SIZES_LARGE = "store", _WARNING, (
        "made a store in %(path)s with files of RocketMQ's sizes: the log takes %(size)s of disk from the start, the first key "
        "takes %(index)s more; profile='dev' makes a small store, segment_size_bytes=... sets the size of its log files, which "
        "then stays")
    OPTIONS_IGNORED = "config", _INFO, (
        "ignored %(count)d keys of %(source)s, which are options of the broker and not of the store: %(names)s")

    # filters of groups
    FILTERS_DROPPED = "consumer", _WARNING, (
        "dropped the %(count)d filters of %(file)s: they are for a bloom filter of other parameters than %(bits)d bits and "
        "%(hashes)d hash functions; the groups have to register again")

    # load and recovery
    RECOVERY_STARTED = "recovery", _INFO, "recovering %(path)s (%(kind)s) from %(file)s"
    RECOVERED = "recovery", _INFO, (
        "recovered %(path)s (%(kind)s): the log ends at offset %(max_offset)d; recovery read %(records)d records in "
        "%(seconds).3f s")
    TRUNCATED = "recovery", _WARNING, (
        "cut the log of %(path)s at offset %(offset)d: %(reason)s; the %(size)d bytes after this offset were not valid records")
    SALVAGED = "recovery", _WARNING, (
        "copied the %(size)d bytes from offset %(offset)d on to %(copy)s before the cut; %(what)s")
    QUEUES_COPIED = "recovery", _WARNING, (
        "copied the queues and the index of %(path)s to %(copy)s, because the files of the log behind offset %(offset)d are "
        "missing: the open removes the entries that point there")
    EMPTY_FILE_REMOVED = "recovery", _WARNING, "removed the empty last commit-log file %(file)s"
    QUEUE_FILE_REMOVED = "consumequeue", _WARNING, "removed the empty last consume-queue file %(file)s"
    FOREIGN_FILE_SKIPPED = "recovery", _WARNING, "skipped %(file)s, and did not change it: %(reason)s"
    LOG_SHORT = "recovery", _WARNING, (
        "queue entries of %(path)s point to offsets up to %(queued)d, but the log ends at %(offset)d although the store was "
        "closed cleanly: the messages in these %(size)d bytes cannot be read; %(cure)s")
    LOG_DIRECTORY_MISSING = "recovery", _WARNING, (
        "the log of %(path)s lies in several directories, and these are not there: %(directories)s; the messages in their "
        "files cannot be read (is a disk not mounted?)")
    LOG_FILES_MISSING = "recovery", _WARNING, (
        "files of the log of %(path)s, or parts of them, are not there: %(size)d bytes between the offsets %(begin)d and "
        "%(end)d, in %(count)d stretches; reads pass over the messages in them with status MESSAGE_WAS_REMOVING")
    LOG_DIRECTORY_EMPTY = "recovery", _WARNING, (
        "the directory %(directory)s of %(path)s has no file of the log, and the other directories have: if it is not a new "
        "directory, its disk is not mounted")
    INDEX_FILES_DROPPED = "recovery", _WARNING, (
        "deleted %(count)d index files that are newer than the checkpoint; the store builds them again")
    MANIFESTS_DROPPED = "integrity", _INFO, (
        "deleted %(count)d manifests of %(path)s: the log ends at offset %(offset)d, so their files are no longer sealed")
    MANIFEST_FAILED = "integrity", _WARNING, "could not make a manifest for %(path)s: %(reason)s"
    QUEUES_SPOILT = "recovery", _WARNING, (
        "queue entries in %(path)s are damaged: the store builds the entries behind the damage again, from offset %(offset)d "
        "of the log on")
    RECORDS_PLACELESS = "recovery", _WARNING, (
        "%(count)d records of %(path)s have a queue offset that no queue can have, the last of them at offset %(offset)d of "
        "the log: the records stay in the log, and no queue entry points to them")
    NEEDS_RECOVERY = "recovery", _WARNING, (
        "%(path)s was not closed cleanly and is open read-only, so nothing is repaired: the queues end at offset %(offset)d of "
        "the log")

    VERSION_UNKNOWN = "recovery", _WARNING, (
        "the log of %(path)s has records of magic code %(magic)s from offset %(offset)d on, a version that this library does "
        "not know: these records cannot be read, and an open for writing refuses the store")

    # files and memory
    DISK_FULL = "segment", _ERROR, (
        "no space for the next commit-log file of %(file)s (%(size)d bytes): puts that need this file are refused until "
        "there is space; puts that fit into the present file are stored")
    FILE_REFUSED = "segment", _ERROR, (
        "the next commit-log file of %(file)s cannot be made (%(reason)s): puts that need this file are refused until "
        "it can be made")
    FILES_ODD = "segment", _ERROR, (
        "files of the open store changed in a way that the store did not cause, %(kind)s: %(path)s, %(detail)s; another "
        "process changes them, or the file system is damaged; rmqstore verify shows details")
    DISK_SPACE_BACK = "segment", _INFO, "the next commit-log file of %(file)s was made: puts are accepted again"
    MLOCK_REFUSED = "pool", _WARNING, (
        "mlock of %(size)d bytes refused (errno %(errno)d), %(what)s stays unlocked: raise RLIMIT_MEMLOCK (now %(limit)s), or "
        "set %(option)s=False")
    HUGEPAGES_REFUSED = "pool", _WARNING, (
        "the kernel gave no huge pages for the pool of %(size)d bytes, although pool_hugepages is set: %(reason)s")
    POOL_LOW = "pool", _WARNING, (
        "less than a quarter of the pool was free for half a second (now %(free)d of %(size)d bytes): puts write the log "
        "faster than the device takes it")
    POOL_EMPTY = "pool", _WARNING, (
        "puts wait because the pool of %(size)d bytes has no room, %(count)d times in half a second: puts write the log faster "
        "than the device takes it")

    # consumers
    MESSAGE_FAILED = "consumer", _WARNING, (
        "group %(group)s failed to handle message %(msg_id)s of %(topic)s after %(times)d earlier tries: %(error)s; the "
        "message goes to %(to)s")
    DEAD_LETTER = "consumer", _WARNING, (
        "message %(msg_id)s of %(topic)s goes to %(to)s: group %(group)s retried it %(times)d times")
    RETRY_TOO_LARGE = "consumer", _WARNING, (
        "message %(msg_id)s of %(topic)s, which group %(group)s failed to handle, goes to %(to)s at once: it fills the "
        "record, so that the properties of a retry do not fit; the dead letter lacks %(lacks)s")
    OFFSET_BEYOND_END = "consumer", _WARNING, (
        "the committed offset %(offset)d of group %(group)s lies beyond the end of %(topic)s/%(queue_id)d, which is %(end)d: "
        "the group continues at the end")
    OFFSET_TURNED_BACK = "consumer", _WARNING, (
        "the committed offset %(offset)d of group %(group)s was beyond the end of %(topic)s/%(queue_id)d when the store was "
        "opened: the group continues at the end, %(end)d, because new messages come there; the messages in between are lost")
    CONFIG_BACKUP_USED = "consumer", _WARNING, "read the backup %(file)s instead of the original file: %(reason)s"

    # delay
    DELAY_SKIPPED = "delay", _WARNING, (
        "skipped %(count)d delayed messages of %(path)s that cannot be delivered, the last of them at offset %(offset)d: they "
        "are unreadable, damaged, or have no real topic and queue; they stay in SCHEDULE_TOPIC_XXXX")
    DELAY_REPEATED = "delay", _WARNING, (
        "the delivery of delayed messages of %(path)s failed %(count)d times (last errno %(errno)d) and is retried; errno 90 "
        "(EMSGSIZE) means that a message is larger than the pool: open the store with the message_size_max_bytes that the "
        "message was put with, or with more")

    # timer
    TIMER_SKIPPED = "timer", _WARNING, (
        "skipped %(count)d timer messages of %(path)s that cannot be delivered, the last of them at log offset %(offset)d: "
        "they are unreadable, damaged, deleted with their log file, or have no real topic and queue; what is in the log stays "
        "there")
    TIMER_REPEATED = "timer", _WARNING, (
        "the delivery of timer messages of %(path)s failed %(count)d times (last errno %(errno)d) and is retried, but after a "
        "failed sync only when the store is opened again")
    TIMER_LOG_CUT = "timer", _WARNING, (
        "cut the timer log of %(path)s at position %(offset)d, behind the last good unit; a copy of the rest is in %(copy)s; "
        "the messages of the rest are taken from the queue again, but for those that were delivered")
    TIMER_COPIES_UNREAD = "timer", _WARNING, (
        "the log of %(path)s has %(bytes)d bytes behind the mark of config/timercheck, and the store reads %(limit)d at most: "
        "timer messages that were delivered in that time may be delivered a second time")

    TIMER_PRECISION_KEPT = "timer", _WARNING, (
        "timer messages of %(path)s wait in slots of %(kept)d ms, so timer_precision_ms stays %(kept)d; the value %(given)d "
        "holds when the store is opened after a close at which none waits")

    # transactions
    CHECK_FAILED = "transaction", _WARNING, (
        "the check callback of group %(group)s failed for transaction %(id)s at check %(checks)d: %(error)s; the transaction "
        "stays pending")
    TRANSACTION_GIVEN_UP = "transaction", _WARNING, (
        "transaction %(id)s of group %(group)s for %(topic)s was not decided after %(checks)d checks, or is too old: its "
        "message was moved to TRANS_CHECK_MAX_TIME_TOPIC")
    HALF_MESSAGES_ODD = "transaction", _WARNING, (
        "skipped %(count)d half messages of %(path)s that have no real topic and queue: they stay in RMQ_SYS_TRANS_HALF_TOPIC")
    OP_QUEUE_LACKS_ENTRIES = "transaction", _WARNING, (
        "the op queue of %(path)s lacks its first entries: the store read %(count)d op messages from the log instead; "
        "rmqstore repair makes the queue again")

    # cleaning
    LOG_FILES_DELETED = "cleaning", _INFO, (
        "deleted %(count)d commit-log files (%(size)d bytes) of %(path)s, reason %(reason)s: the log begins at offset "
        "%(min_offset)d; %(queue_files)d queue files and %(index_files)d index files were deleted as well")
    QUEUES_REMOVED = "cleaning", _INFO, "removed %(count)d queues of %(path)s, topics %(topics)s; %(kept)d queues were kept"
    CLOCK_SET_AHEAD = "cleaning", _WARNING, (
        "the clock was set %(hours).1f h ahead, or the machine slept: for %(keep).1f h cleaning subtracts this time from the "
        "age of the files of %(path)s, so that no file is deleted too early")
    CLOCK_FIRST_SET = "cleaning", _INFO, (
        "the clock of this machine showed a time before 2026 and has been set: %(count)d commit-log files of %(path)s that "
        "were modified before that count as modified now")
    UNCONSUMED_DELETED = "cleaning", _WARNING, (
        "group %(group)s lost %(count)d messages of %(topic)s/%(queue_id)d that it had not consumed: cleaning deleted the "
        "queue offsets from %(begin)d to below %(end)d with the oldest commit-log file")
    LOG_FILE_HELD = "cleaning", _WARNING, (
        "%(file)s is no longer part of the log and is to be deleted, but %(users)d message views use it: cleaning waits for "
        "them for at most %(ms)d ms")
    LOG_FILE_HANGED = "cleaning", _WARNING, (
        "deleted %(file)s after %(ms).0f ms while %(users)d message views use it: the views stay valid, and the last view "
        "frees the space of the file")
    DISK_FULL_PERCENT = "cleaning", _ERROR, (
        "the disk of %(path)s is %(used)d %% full, the limit is %(limit)d %%: puts are refused until there is space")
    DISK_PERCENT_BACK = "cleaning", _INFO, "the disk of %(path)s is %(used)d %% full: puts are accepted again"
    DISK_LIMIT_GONE = "cleaning", _INFO, "%(path)s has no disk_full_pct any more: puts are accepted again"
    TASK_FAILED = "store", _ERROR, "the task %(task)s of %(path)s failed and is retried later: %(error)s"

    LOG_DIRECTORY_FULL = "cleaning", _WARNING, (
        "the disk of %(directory)s is %(used)d %% full, the limit is %(limit)d %%: new commit-log files of %(path)s go to its "
        "other directories, while one of them has room")
    LOG_FILE_FIXED = "cleaning", _WARNING, (
        "%(file)s is old enough to be deleted, but its directory cannot be written: the file stays, and so do all later ones")
    LOG_DIRECTORY_BACK = "cleaning", _INFO, (
        "the disk of %(directory)s is %(used)d %% full: it gets new commit-log files of %(path)s again")

    # compaction topics
    COMPACTED = "compaction", _INFO, (
        "compacted topic %(topic)s, queue %(queue_id)d of %(path)s: %(kept)d of %(count)d messages are the newest of a key")
    COMPACTION_FILE_ASIDE = "compaction", _WARNING, (
        "a file of the compaction logs is damaged, disagrees with the queue, or lacks its other half; it was moved or copied "
        "to %(path)s")

    # putting, flushing, dispatching
    PUT_LOCK_HELD_LONG = "commitlog", _WARNING, (
        "a put held the put lock for %(ms)d ms or more, in phase %(phase)s (none; encode: copying the message; roll: taking "
        "the next file); this happened %(count)d times since the store was opened")
    PUT_LOCK_THREADS = "commitlog", _WARNING, (
        "a put has held the put lock for %(ms)d ms; these are all threads, with their states and what each waits "
        "for:\n%(threads)s")
    BACKEND_CHOSEN = "flush", _INFO, "flush_backend auto chose %(backend)s, because %(reason)s"
    DIRECT_REFUSED = "flush", _INFO, "%(path)s: the store writes the log through the page cache, because %(reason)s"
    BUFFERS_REFUSED = "flush", _WARNING, (
        "io_uring refused to register the %(size)d bytes of the pool as buffers (errno %(errno)d): writes use unregistered "
        "memory, which costs some CPU; raise RLIMIT_MEMLOCK (now %(limit)s)")
    RING_READY = "flush", _INFO, (
        "io_uring is ready: at most %(depth)d writes in flight, %(how)s, small steps durable by %(durability)s, set-up flags "
        "%(flags)s")
    FLUSH_SLOW = "flush", _WARNING, (
        "%(count)d flushes of the log took longer than 500 ms since the store was opened; the longest took %(ms).0f ms")
    PUT_SLOW = "writer", _WARNING, (
        "a put into %(topic)s took %(ms).0f ms; since the last slow put there were %(pool_waits)d waits for pool room, "
        "%(file_waits)d waits for the next file, %(slow_locks)d put locks held for long (the last in phase %(phase)s) and "
        "%(flushes)d flushes; the longest flush since the store was opened took %(flush_ms).0f ms")
    STORE_FAILED = "flush", _ERROR, (
        "the %(what)s of %(file)s failed with errno %(errno)d at offset %(offset)d: the store takes no more puts and can still "
        "be read; %(messages)d messages at log offsets %(begin)d to %(end)d were put and not written, and can be read until "
        "the store is closed; close it and open it again to recover")
    COMMITS_PAUSE = "flush", _ERROR, (
        "%(file)s: the log cannot be written at the moment: %(reason)s; %(messages)d messages at log offsets %(begin)d to "
        "%(end)d were put and wait in memory, where they can be read; the store tries again")
    COMMITS_CONTINUE = "flush", _WARNING, "%(file)s: the log is written again, and nothing was lost"
    # replication
    REPLICATION_LISTENS = "replication", _INFO, "%(path)s: slaves can connect to %(address)s"
    REPLICA_CAME = "replication", _INFO, (
        "slave %(peer)s gets the log of %(path)s from offset %(offset)d on; it ends at offset %(max_offset)d")
    REPLICA_WENT = "replication", _WARNING, (
        "slave %(peer)s of %(path)s is gone; it had acknowledged offset %(offset)d, and the log ends at offset %(max_offset)d")
    REPLICA_REFUSED = "replication", _ERROR, "closed the connection of slave %(peer)s of %(path)s: %(reason)s"
    MASTER_FOLLOWED = "replication", _INFO, "%(path)s follows master %(peer)s from offset %(offset)d on"
    MASTER_LOST = "replication", _WARNING, (
        "%(path)s has no connection to master %(peer)s: %(reason)s; the log here ends at offset %(offset)d; the slave tries "
        "again")
    MASTER_REFUSED = "replication", _ERROR, "%(path)s does not follow master %(peer)s: %(reason)s"
    METADATA_COPIED = "replication", _INFO, "%(path)s copied topics, groups and offsets of master %(peer)s"
    METADATA_FAILED = "replication", _WARNING, (
        "%(path)s cannot copy topics, groups and offsets of master %(peer)s: %(reason)s; it tries again every "
        "ha_metadata_interval_ms")
    BATCH_UNKNOWN = "replication", _ERROR, (
        "%(path)s does not give messages of topic %(topic)s to readers, which master %(peer)s sends: %(reason)s")
    PROMOTED = "replication", _WARNING, (
        "%(path)s was a slave of %(master)s and is a master now (%(role)s); its log ends at offset %(offset)d")
    ROLE_CHANGED = "replication", _WARNING, "%(path)s was promoted to %(before)s before, and is a %(role)s now"
    TOPIC_KEPT = "consumer", _ERROR, (
        "%(file)s keeps the queue type of topic %(topic)s, though the master has another one: %(reason)s; the type "
        "changes with the first message of that type in the log")
    ROLE_WEAKER = "replication", _WARNING, (
        "%(path)s was promoted to sync_master and opens as master: puts do not wait for a slave; open it with "
        "role=sync_master, or "
        "promote it to master")
    REPLICATION_FAILED = "replication", _ERROR, (
        "%(path)s cannot store what master %(peer)s sends, at offset %(offset)d: %(reason)s")
    QUEUES_BEGAN_ANEW = "replication", _INFO, (
        "removed %(count)d queues of %(path)s, topics %(topics)s: the master removed them, and they begin anew at offset 0")
    DISPATCHER_STOPPED = "dispatch", _ERROR, (
        "dispatcher %(name)s of %(path)s stopped at offset %(offset)d of the log: %(error)s; the store and other dispatchers "
        "continue, and add_dispatcher starts this one again")
    DISPATCHER_LOST = "dispatch", _WARNING, (
        "dispatcher %(name)s of %(path)s lost %(size)d bytes of the log: cleaning deleted the records from offset %(begin)d to "
        "below %(end)d before the dispatcher had them; it continues at offset %(end)d")
    DISPATCH_BEHIND = "dispatch", _WARNING, "dispatch is %(size)d bytes behind the end of the log"
    RECORDS_NAMELESS = "dispatch", _WARNING, (
        "the record at offset %(offset)d of %(path)s lacks a queue entry, and later records may lack theirs: its topic, or "
        "that of a light queue, has other characters than RocketMQ's topics or more than 255 bytes, or its queue id is "
        "negative; the records stay in the log")

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


def printable(text: str) -> str:
    """The text without what would begin another line, or move a terminal's cursor or colour it: for whatever a peer or a file
    says, in logs and on screens."""
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _shown(value: object) -> object:
    return printable(str(value)) if isinstance(value, str | BaseException) else value


class _Told(Exception):
    """A failure and its traceback as text. The exception itself would keep the frames it passed, and with their variables
    messages and their files, as long as somebody keeps the record."""

    __module__, __qualname__ = "builtins", "raised"     # which a formatter prints before the text


def told(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """The exc_info of a record that tells where `error` was raised: text, which every formatter prints."""
    import traceback  # of failures only

    text = "".join(traceback.format_exception(error)).rstrip("\n")
    return type(error), _Told("\n" + "\n".join(map(printable, text.split("\n")))), None


def named(error: BaseException) -> str:
    """The type of an error, and what it says."""
    return ": ".join(filter(None, (type(error).__name__, str(error))))


def emit(event: Event, failure: BaseException | None = None, /, **fields: object) -> None:
    """Logs `event`. The record also keeps fields that the sentence does not name. If a field of the sentence is missing and
    the event is enabled, the call raises KeyError, so that a test finds the mistake. failure: what code of the program raised,
    to be logged with its traceback."""
    log = _LOGGERS[event]
    if log.isEnabledFor(event.level):
        text = event.sentence % {name: _shown(value) if name != "threads" else value for name, value in fields.items()}
        log.log(event.level, "%s", text, extra={"event": event.name, "fields": fields}, stacklevel=2,
                exc_info=None if failure is None else told(failure))
