"""What replication an open store takes part in: it serves slaves, follows a master, or neither (RocketMQ: HAService).

Control plane: decides, starts, tells. The bytes are moved by native threads (_master.pyx, _slave.pyx), which leave notes that
the control thread logs.
"""
import errno
import os
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.config.values import to_peer
from rmq_store.errors import ArgumentIllegal, ConfigError, DurabilityError, RmqStoreError, StoreClosed, StoreStateError
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.replication._master import Master
from rmq_store.replication._slave import Slave
from rmq_store.replication.anew import QueuesAnew
from rmq_store.replication.mark import Mark, refuse_as_slave, write_mark

if TYPE_CHECKING:
    import ssl

    from rmq_store.access.waiting._wait import StoreWait
    from rmq_store.replication.metadata import Metadata

__all__ = ["NOTES_MS", "Replica", "Replication", "ReplicationState", "need_master"]

NOTES_MS = 500
STILL_S, LOOK_S = 0.3, 0.005        # a master that closes: how long its slaves may say nothing new, and between two looks
LOG_MAX = 1 << 56       # no log is as long
FRAME_MAX = 16 << 20    # no request of a client's is as long
QUIET_S = 600.0         # between two words about one slave that is refused for one reason: it comes back every few seconds
QUIET_MAX = 256         # such slaves and reasons

# The kinds of notes, as native/ha/rmq_ha.h counts them: the event, and the names of a and b.
(_CAME, _WENT, _SILENT, _AHEAD, _BEHIND, _BAD, _FULL, _GONE, _UNREAD, _MUTE,
 _FOLLOWS, _LOST, _PARTED, _SHORT, _WRONG, _NO_RECORD, _ROTTEN, _FAILED, _SELF, _FILE_END) = range(20)
_REFUSALS = frozenset((_SILENT, _AHEAD, _BEHIND, _BAD, _FULL, _GONE, _UNREAD, _MUTE))


class Replica(NamedTuple):
    """A slave that is connected to this master.

    address: "ip:port" of its connection. offset: it has acknowledged every byte of the log below it, -1: nothing yet.
    lag_bytes, lag_ms: how far, and for how long, it is behind what readers of this master may see. sent_bytes: of the log, over
    this connection. connected_ms: how long it is connected.
    """

    address: str
    offset: int
    lag_bytes: int
    lag_ms: int
    sent_bytes: int
    connected_ms: int


class ReplicationState(NamedTuple):
    """The part of a store in replication.

    role: "master", "sync_master" or "slave". address: where this store listens for slaves, "ip:port", None: nowhere. master:
    the address that a slave follows, None for a master. state of a slave: "waits" for a connection, "compares" its log with
    the master's, "follows" it, "refused" because the logs differ, "stalled" because what comes cannot be stored now (a full
    disk, a wrong checksum; the slave tries again), or "failed" because a write or a sync failed; "" for a master.
    master_offset: where the master's log ends, as far as a slave has heard. received_bytes: by a slave, since it was opened.
    sent_bytes: to all slaves of this store. broker: the address of the broker from which a slave copies topics, groups and
    offsets, None: nobody named one. copied_ms: when it last copied them, ms since 1970, None: not yet.
    """

    role: str
    address: str | None
    master: str | None
    state: str
    master_offset: int | None
    received_bytes: int
    sent_bytes: int
    broker: str | None = None
    copied_ms: int | None = None


def need_master(options: Options) -> None:
    """A slave that begins to follow at once has to know whom. Raises ConfigError."""
    if options.role == "slave" and options.ha_master is None and not options.readonly:
        raise ConfigError("role is slave, and no option names its master: give ha_master='host:port' (RocketMQ: "
                          "haMasterAddress), or role='master'")


class Replication:
    """Of one open store. Thread-safety: any."""

    def __init__(self, store: "StoreWait", options: Options, files: ControlFiles) -> None:
        self._files = files
        self._path, self._role, self._store = store.path, options.role, weakref.ref(store)
        self._lock = StoreLock(store.path, "replication")
        self._following = StoreLock(store.path, "the master to follow")
        self.master: Master | None = None
        self.slave: Slave | None = None
        self.metadata: Metadata | None = None
        self._stopped = False
        self._wanted: str | None = None         # address of the master that a slave follows, or is about to
        self._begun = False                     # topics were copied before the first message, or could not be
        self._anew: QueuesAnew | None = None
        self._close_s = options.close_timeout_ms / 1000
        self._refused: dict[tuple[int, int, str], float] = {}       # when the log said so
        self._unmarked: Mark | None = None      # what replica.json does not say yet
        self._failed: dict[str, str] = {}       # files that could not be written when that was tried last, and why
        self._told_unread: set[str] = set()     # topics of BATCH_UNKNOWN

    def start(self, store: "StoreWait", options: Options, *, later: bool = False) -> None:
        """The store has this object before its threads run, so that an open that is interrupted here can end them. later: a
        slave waits for `follow`. Raises OSError if the address cannot be had."""
        if options.ha_listen is not None:       # a slave has slaves as well: what it has appended, it sends
            from rmq_store.remoting.client import listen_address, listening  # sockets, which most stores never need

            with listening("ha_listen", listen_address(options.ha_listen, "ha_listen", "127.0.0.1:10912")):
                self.master = Master(store, options)
            emit(Event.REPLICATION_LISTENS, path=store.path, address=self.master.address)
        if options.role == "slave":
            self._anew = QueuesAnew(store, self)
            if not later:
                self.follow(store, options, options.ha_master, options.ha_master_broker)

    def follow(self, store: "StoreWait", options: Options, master: str, broker: str | None,
               tls: "ssl.SSLContext | None" = None) -> None:
        """A slave follows this master from now on, and copies the metadata of its broker, if that is known; tls: not over a
        plain connection. The directory is marked as this master's slave before anything is added, and where it has messages,
        when these were compared. Where the addresses are those of before, nothing changes. Raises OSError, ValueError,
        StoreClosed, NotASlave, CorruptionError."""
        known = Mark("slave", _address(master), _address(broker) if broker is not None else "", 0)
        with self._following:
            if self._stopped:
                raise StoreClosed(self._path)
            mark = refuse_as_slave(self._path)
            self._wanted = master
            if self.slave is not None and self.slave.master != master:
                self.slave.stop()
                self.say()
                self.slave = None           # whatever fails now, the next call tries again
            held = not _is_empty(store)
            self._unmarked = None
            if mark is None or mark._replace(since_ms=0) != known:
                self._unmarked = known._replace(since_ms=mark.since_ms if mark is not None else self._files.wall_ms())
                if not held:
                    self._write_mark()
            first = broker is not None and not self._begun
            if not first or held:
                self._begin(store, options, held and (first or self._unmarked is not None))
            if broker is not None and (self.metadata is None or self.metadata.master != broker):
                from rmq_store.replication.metadata import Metadata  # sockets, which few stores need

                if self.metadata is not None:
                    self.metadata.stop()
                    self.metadata = None
                begin = partial(self._follow, weakref.ref(store), options) if first else lambda: None
                self.metadata = Metadata(store, self._files, broker, options.ha_metadata_interval_ms, begin, self._agrees, tls)

    def _write_mark(self) -> None:
        """Under the lock. Raises OSError."""
        if self._unmarked is not None:
            write_mark(self._files, self._path, self._unmarked)
            self._unmarked = None

    def _agrees(self) -> bool:
        """Whether a master's topics and offsets are for this log: it is empty, or compared with that of the master that is
        connected."""
        slave, store = self.slave, self._store()
        try:
            return (slave is not None and slave.compared()) or store is None or _is_empty(store)
        except StoreClosed:
            return False

    def _follow(self, reference: "weakref.ref[StoreWait]", options: Options) -> None:
        """What follow() left to the thread that copies topics."""
        store = reference()
        with self._following:
            self._begun = True
            if store is not None and not self._stopped and self.slave is None:
                self._begin(store, options, self._unmarked is not None)
        self.tend()

    def make_topic(self) -> None:
        """A slave has met an inner batch of a topic that it does not know, and waits: the topic gets an entry with batch
        queues."""
        store: Any = self._store()
        with self._following:
            slave = self.slave
            if slave is None or store is None or self._stopped or (wanted := slave.topic()) is None:
                return
            asked, topic = wanted
            try:
                with suppress(ArgumentIllegal, ConfigError):    # dispatch meets the message, too, and sees what is (anew.py)
                    store.topic_table.set_queue_type(topic, "BatchCQ")
            except StoreStateError:     # it closes
                return
            except (OSError, DurabilityError) as error:         # a full disk: the next call tries again
                self._stalls(slave, asked, "config/topics.json", error)
                return
            except (RmqStoreError, ValueError) as error:
                self.unread(topic, str(error))
            self._failed.pop("config/topics.json", None)
            slave.proceed(asked)

    def unread(self, topic: str, reason: str) -> None:
        """Says once that the topic cannot have the queues that its messages need. Thread-safety: any."""
        slave = self.slave
        if topic not in self._told_unread:
            self._told_unread.add(topic)
            emit(Event.BATCH_UNKNOWN, path=self._path, peer=slave.master if slave is not None else self._wanted or "unknown",
                 topic=topic, reason=reason)

    def master_type(self, topic: str) -> str | None:
        """Which queues the topic has on the master; None if its broker is not known. Raises OSError, ValueError.
        Thread-safety: any."""
        metadata = self.metadata
        return metadata.queue_type(topic) if metadata is not None else None

    def _stalls(self, slave: Slave, asked: int, file: str, error: Exception) -> None:
        """A slave waits for a file that cannot be written: said once, until it can. Under the lock."""
        offset, why = slave.stall(asked), os.strerror(getattr(error, "errno", None) or errno.EIO)
        if self._failed.get(file) != why:
            self._failed[file] = why
            emit(Event.REPLICATION_FAILED, path=self._path, peer=slave.master, offset=offset, reason=f"{file}: {why}")

    def tend(self) -> None:
        """Lets a slave go on whose log was compared, once its directory is marked and topics are copied. Logs what happened."""
        with self._following:
            slave = self.slave
            if slave is not None and slave.compared() and not self._stopped and (self.metadata is None or self._begun):
                try:
                    self._write_mark()
                    self._failed.pop("config/replica.json", None)
                    slave.proceed(1)
                except OSError as error:        # a full disk: the next call tries again
                    self._stalls(slave, 1, "config/replica.json", error)
        self.make_topic()
        self.say()

    def _begin(self, store: "StoreWait", options: Options, gate: bool) -> None:
        """Follows the master that is wanted. gate: adds nothing until `tend` lets it. Under the lock."""
        if self.slave is None:
            self.slave = Slave(store, options.inferred({"ha_master": self._wanted}, "namesrv"),
                               self.master.address if self.master is not None else None, gate)

    def replicas(self) -> list[Replica]:
        return [Replica(**found) for found in self.master.replicas()] if self.master is not None else []

    def state(self) -> ReplicationState:
        master, slave, metadata = self.master, self.slave, self.metadata
        told: dict[str, Any] = slave.state() if slave is not None else {
            "state": "waits" if self._role == "slave" else "", "master_offset": None, "received_bytes": 0}
        return ReplicationState(self._role, master.address if master is not None else None,
                                slave.master if slave is not None else self._wanted, told["state"], told["master_offset"],
                                told["received_bytes"], master.sent_bytes() if master is not None else 0,
                                metadata.master if metadata is not None else None,
                                metadata.copied_ms if metadata is not None else None)

    def say(self) -> None:
        """Logs what happened since the last call."""
        with self._lock:
            for side in (self.master, self.slave):
                for what, error, a, b, peer in side.notes() if side is not None else ():
                    if what not in _REFUSALS or self._is_news(what, a, peer):
                        _SAY[what](self._path, error, a, b, peer)

    def _is_news(self, what: int, a: int, peer: str) -> bool:
        """Under the lock."""
        key, now = (what, a, peer.rpartition(":")[0]), time.monotonic()
        if now - self._refused.get(key, -QUIET_S) < QUIET_S:
            return False
        if len(self._refused) >= QUIET_MAX:
            self._refused.clear()
        self._refused[key] = now
        return True

    def _hand_over(self) -> None:
        """What was put goes to the connected slaves first, as long as they take it: whoever ends a master in order to promote a
        slave misses nothing then."""
        store = self._store()
        if store is None or not self.replicas():
            return
        try:
            end = store._flush()
        except (RmqStoreError, OSError):        # the store has failed, as its close says
            return
        before: list[tuple[str, int, int]] = []
        since = begun = now = time.monotonic()
        while now - begun < self._close_s and now - since < STILL_S:
            lack = [(r.address, r.offset, r.sent_bytes) for r in self.replicas() if 0 <= r.offset < end]
            if not lack:
                return
            if lack != before:
                before, since = lack, now
            time.sleep(LOOK_S)
            now = time.monotonic()

    def stop(self) -> None:
        """Ends every connection. Idempotent."""
        with self._following:
            self._stopped = True
        self._hand_over()
        for side in (self.master, self.slave, self.metadata):
            if side is not None:
                side.stop()
        if self._anew is not None:
            self._anew.stop(self._close_s)
        self.say()


def _is_empty(store: "StoreWait") -> bool:
    """Such a log may become any master's."""
    return store.max_log_offset <= store.min_log_offset


def _address(text: str) -> str:
    """What an option or a name server says. Raises ValueError."""
    try:
        return to_peer(text) or text
    except ValueError as error:
        raise ValueError(f"{text!r:.100} is no address of a master: {error}") from None


def _refused(reason: str) -> Callable[[str, int, int, int, str], None]:
    def say(path: str, error: int, a: int, b: int, peer: str) -> None:
        emit(Event.REPLICA_REFUSED, path=path, peer=peer, reason=reason % {"a": a, "b": b})
    return say


def _differs(reason: str) -> Callable[[str, int, int, int, str], None]:
    def say(path: str, error: int, a: int, b: int, peer: str) -> None:
        emit(Event.MASTER_REFUSED, path=path, peer=peer, reason=reason % {"a": a, "b": b})
    return say


def _lost(path: str, error: int, a: int, b: int, peer: str) -> None:
    if error != errno.ECANCELED:
        reason = os.strerror(error) if error else "the master closed the connection"
        if b:
            reason += (" before it sent anything, as it does if its log ends before the place that this slave asks for, or "
                       "begins behind it: see the log of the master; or this is not the address on which it listens for slaves "
                       "(ha_listen; RocketMQ: haListenPort)")
        host = peer.rpartition(":")[0]
        if error == errno.EHOSTUNREACH and "[" not in host and any(map(str.isalpha, host)):     # also of a failed look-up
            reason += ", or no such name"
        emit(Event.MASTER_LOST, path=path, peer=peer, offset=a, reason=reason)


def _wrong(path: str, error: int, a: int, b: int, peer: str) -> None:
    # a frame at the right place is refused for its size
    no_frame = a == b or not 0 <= a < LOG_MAX
    reason = ("what it sends is no frame of RocketMQ's HA protocol: give the address on which the master listens for slaves "
              "(ha_listen; RocketMQ: haListenPort)" if no_frame else
              "it sent bytes for offset %(a)d, and the next ones here are for %(b)d; segment_size_bytes must be the same on "
              "both sides" + ("" if b else "; if it is, and this log had messages, they are gone: move the store away, and "
                              "make the slave anew from a backup of the master"))
    _differs(reason)(path, error, a, b, peer)


def _went(path: str, error: int, a: int, b: int, peer: str) -> None:
    if a >= 0:      # else it never said where it begins: somebody who looked whether the port is open
        emit(Event.REPLICA_WENT, path=path, peer=peer, offset=a, max_offset=b)


def _ahead(path: str, error: int, a: int, b: int, peer: str) -> None:
    # The first 8 bytes of a client's frame are its length and that of its header.
    is_frame = 0 < a & 0xFFFFFF < a >> 32 < FRAME_MAX
    _refused("it sends requests of RocketMQ's clients, and slaves connect here: its ha_master_broker (--broker), or its name "
             "server, has to say the port of this master's broker" if is_frame else
             "it wants to compare from offset %(a)d on, and this master's log ends at %(b)d: one of the two has other "
             "messages; make the slave anew from a backup of this master")(path, error, a, b, peer)


def _failed(path: str, error: int, a: int, b: int, peer: str) -> None:
    emit(Event.REPLICATION_FAILED, path=path, peer=peer, offset=a, reason=os.strerror(error))


_SAY: dict[int, Callable[[str, int, int, int, str], None]] = {
    _CAME: lambda path, error, a, b, peer: emit(Event.REPLICA_CAME, path=path, peer=peer, offset=a, max_offset=b),
    _WENT: _went,
    _SILENT: _refused("it said nothing for ha_housekeeping_interval_ms; it had acknowledged offset %(a)d of %(b)d"),
    _AHEAD: _ahead,
    _BEHIND: _refused("it wants the log from offset %(a)d on, and this master has deleted what lies before %(b)d: make the "
                      "slave anew from a backup of this master"),
    _BAD: _refused("it acknowledges offset %(a)d, and was sent the log up to %(b)d: it is no slave of RocketMQ's"),
    _FULL: _refused("%(a)d slaves are connected, which is the limit"),
    _GONE: _refused("it needs the log from offset %(a)d on, and cleaning has deleted that; the log begins at %(b)d: make the "
                    "slave anew from a backup of this master"),
    _UNREAD: lambda path, error, a, b, peer: emit(
        Event.REPLICA_REFUSED, path=path, peer=peer, reason=f"offset {a}, which it needs next, cannot be read: "
        f"{os.strerror(error)}"),
    _MUTE: _refused("it had not said yet where it begins, and another connection needed its place"),
    _FOLLOWS: lambda path, error, a, b, peer: emit(Event.MASTER_FOLLOWED, path=path, peer=peer, offset=a),
    _LOST: _lost,
    _PARTED: _differs("the logs part at or before offset %(a)d; this one ends at %(b)d, and nothing of it is cut: move this "
                      "store away, and make the slave anew from a backup of the master (`rmqstore backup`, `rmqstore "
                      "restore`)"),
    _SHORT: _differs("the master's log ends at offset %(a)d, and this one at %(b)d, and nothing of it is cut: if it is a slave "
                     "itself, wait until it has caught up; else it is not this store's master, or it has lost messages, or was "
                     "promoted without those: move this store away, and make the slave anew from a backup of the master "
                     "(`rmqstore backup`, `rmqstore restore`)"),
    _WRONG: _wrong,
    _NO_RECORD: _differs("what it sent for offset %(a)d is no whole record (it says %(b)d bytes): "
                         "segment_size_bytes must be the same on both sides"),
    _ROTTEN: _differs("the checksum of the record that it sent for offset %(a)d is wrong; the slave asks for it again"),
    _FAILED: _failed,
    _SELF: _differs("this is where the store listens for slaves itself (ha_listen; RocketMQ: haListenPort): give the address "
                    "of its master"),
    _FILE_END: _differs("a file of its log ends at offset %(a)d, and here one ends at %(b)d: segment_size_bytes (RocketMQ: "
                        "mappedFileSizeCommitLog) must be the same on both sides; empty this directory, and begin anew"),
}
