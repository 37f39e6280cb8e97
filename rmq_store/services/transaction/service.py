"""The transactions of one store: prepare, decide, what is pending (RocketMQ: TransactionalMessageServiceImpl, which a broker
calls as a program calls this).

The rule. A half message is in RMQ_SYS_TRANS_HALF_TOPIC, where no reader of the real topic sees it. A commit is the real record:
it is decided when that is in the log, and the op message behind it only says so again. A rollback is its op message. So a kill
between two steps leaves a transaction either pending, or decided one way: whoever opens the store next finds the real
record by its preparedTransactionOffset, puts the missing op message, and never a second copy. A power cut may take back what
was not durable yet, in the order of the log: never the real record without its op message.

Thread-safety: every method. The store is passed to each call, so that nothing here holds it. One lock guards the table; a
transaction's own lock is held while it is decided, and taken first.
"""
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmq_store.base.io._lock import StoreLock
from rmq_store.codec._layout import FLAG_TRANSACTION
from rmq_store.codec.layout import Compat
from rmq_store.codec.message_id import UniqueIdFactory
from rmq_store.codec.properties import decode_properties
from rmq_store.errors import (
    DiskFull,
    DurabilityError,
    MessageIllegal,
    OutOfResources,
    PropertiesSizeExceeded,
    PutError,
    StoreNotWriteable,
    StoreStateError,
    TransactionDecided,
    TransactionUnknown,
    illegal,
)
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.services.transaction import half as records
from rmq_store.services.transaction.half import CHECKS, GROUP, HALF_TOPIC, OP_TOPIC, number_of
from rmq_store.services.transaction.table import (
    COMMITTED,
    FOUND,
    GIVEN_UP,
    INTERRUPTED,
    PENDING,
    ROLLED_BACK,
    SURE,
    Half,
    Table,
    committed_among,
    settled_at,
)

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.access.waiting._wait import StoreWait
    from rmq_store.access.writer._put import PutResult
    from rmq_store.services.consumer.offsets import ConsumerOffsets

__all__ = ["PendingTransaction", "Transactions"]

LOOK_MS = 10_000        # how long a look-up waits for dispatch


class PendingTransaction(NamedTuple):
    """A transaction that is not decided. offset: where its newest half message is in the log."""

    id: str
    group: str
    topic: str
    queue_id: int
    born_timestamp: int         # ms since 1970
    checks: int                 # how often its producer group was asked
    half_offset: int            # its place in queue 0 of RMQ_SYS_TRANS_HALF_TOPIC
    offset: int

    @property
    def age_ms(self) -> int:
        """int: milliseconds since born_timestamp, by this machine's clock."""
        return int(time.time() * 1000) - self.born_timestamp


class _OpBody(NamedTuple):
    text: bytes
    offsets: list[int]          # what it settles
    again: bool                 # they were put again, and their transactions are open


class Transactions:
    """Made when a store is opened; reads nothing before the first call that needs it."""

    def __init__(self, path: str, offsets: Callable[[], "ConsumerOffsets"]) -> None:
        self._path, self._offsets = path, offsets
        self._lock = StoreLock(path, "the transactions")
        self._ids = UniqueIdFactory()
        self._loaded: Table | None = None
        self._unwritten: list[int] = []     # half queue offsets that are decided, and no op message says so yet
        self._again: list[int] = []         # those of older half messages of open transactions, behind one that is pending
        self._preparing: set[str] = set()   # ids
        self._odd = 0

    # ---- preparing

    def prepare(self, store: "StoreWait", topic: str, body: Any, group: str, *, queue_id: int, tags: str | None,
                keys: str | Iterable[str] | None, properties: Mapping[str, str] | bytes | None, wait: bool | None,
                **fields: Any) -> Half:
        if store._has_batch_queues(topic):
            raise MessageIllegal(f"{topic} has batch queues, in which readers find inner batches alone, and an inner batch is "
                                 "part of no transaction: use another topic")
        options = store.options
        limits = records.Limits(options.compat, _topic_bytes(options, topic),
                                min(options.message_size_max_bytes + 65536, options.segment_size_bytes - 8))
        record = records.half_record(topic, body, group, self._ids.create(), limits, queue_id=queue_id, tags=tags, keys=keys,
                                     properties=properties)
        records.check_room(record["properties"], store._light_room(topic, record["properties"]))
        found = decode_properties(record["properties"])
        unique = found["UNIQ_KEY"]
        with self._lock:
            other = self._table(store).by_id.get(unique)
            if unique in self._preparing:
                raise MessageIllegal(f"UNIQ_KEY is {unique!r}: another call prepares a transaction of that id: try again")
            self._preparing.add(unique)
        try:
            if other is not None:
                self._settle_doubt(store, other)
            if other is not None and other.state == PENDING:
                return self._prepared_before(store, other, topic, group, body, wait)
            return self._prepare(store, record, found, wait, fields)
        finally:
            self._preparing.discard(unique)

    def _prepared_before(self, store: "StoreWait", half: Half, topic: str, group: str, body: Any, wait: bool | None) -> Half:
        """A producer whose answer came too late sends its half message again: it gets the transaction that it has."""
        if ((half.topic, half.group) == (topic, group) and isinstance(body, bytes | bytearray | memoryview)
                and bytes(self._half_message(store, half).body) == bytes(body)):
            self._await_device(store, wait)
            return half
        raise MessageIllegal(f"UNIQ_KEY is {half.unique!r}: another transaction of that id is pending, decide it first")

    def _prepare(self, store: "StoreWait", record: dict[str, Any], found: Mapping[str, str], wait: bool | None,
                 fields: dict[str, Any]) -> Half:
        if isinstance(fields.get("sys_flag"), int):     # as a broker: a half message with the bits would get no queue entry
            fields["sys_flag"] &= ~FLAG_TRANSACTION
        result = store.put(**record, **fields, wait=wait)
        half = Half(self._path, found, result.msg_id, result.queue_offset,
                    fields.get("born_timestamp") or result.store_timestamp)
        half.origin = result.queue_offset
        with self._lock:
            table = self._table(store)
            if table.begins_again(result.queue_offset, result.offset):
                table = self._load(store)
            known = table.add(half)
            if known is not None:
                table.came(known, result.queue_offset, result.offset, 0, result.store_timestamp)
        if known is None:
            raise TransactionUnknown(half.id, "a check has settled it before prepare() returned")
        return known

    # ---- deciding

    def end(self, store: "StoreWait", half: Half, state: str, wait: bool | None) -> Any:
        """Decides, or finds it decided so. Returns what the commit's put returned (the record found, after a restart)."""
        with half.lock:
            if half.state == PENDING and half.unsure:
                self.look_for_commit(store, half)
            if half.state != PENDING:
                if half.state != state:
                    raise TransactionDecided(half.id, half.state)
                self._await_device(store, wait)
                return half.result
            if store.readonly:
                raise StoreNotWriteable(self._path)
            if state == COMMITTED:
                self._commit(store, half, wait)
            else:
                with self._lock:
                    offsets = self._table(store).offsets_of(half)
                self.write_ops(store, offsets, wait)
                half.state = state
            return half.result

    @staticmethod
    def _await_device(store: "StoreWait", wait: bool | None) -> None:
        """The call that decided may not have waited, and this one is asked to."""
        if not store.readonly and (wait or (wait is None and store.options.flush_mode == "sync")):
            store._flush()

    def _commit(self, store: "StoreWait", half: Half, wait: bool | None) -> None:
        forms = records.real_records(self._half_message(store, half), store.options)
        half.unsure = INTERRUPTED       # from here on an interrupt leaves open whether it is stored
        try:
            half.result = _put_copy(store, forms, wait)
        except PutError:
            half.unsure = SURE          # refused: it is not
            raise
        self._settle(store, half, COMMITTED)

    def look_for_commit(self, store: "StoreWait", half: Half) -> None:
        """Whether a commit of before is stored. The transaction's lock is held. Raises StoreStateError."""
        _wait_for_queues(store)
        found = committed_among(store, [half])
        if found:
            half.result = found[half]
            self._settle(store, half, COMMITTED, later=half.unsure == FOUND)
        half.unsure = SURE

    def _settle_doubt(self, store: "StoreWait", half: Half) -> None:
        """Before what its state says is used."""
        if half.unsure:
            with half.lock:
                if half.state == PENDING and half.unsure:
                    self.look_for_commit(store, half)

    def _look_for_commits(self, store: "StoreWait", halves: Sequence[Half]) -> None:
        """The same for all of them that an open found, by one look at each real queue, while no lock is held. Their records lie
        in front of where the log ended then: one that is committed meanwhile is decided under its own lock."""
        found_ones = [half for half in halves if half.unsure == FOUND and half.state == PENDING]
        if found_ones:
            _wait_for_queues(store)
            with self._lock:
                end = self._table(store).loaded_to
            records_of = committed_among(store, found_ones, end)
            for half in found_ones:
                with half.lock.attempt(wait=False) as mine:     # else somebody decides it, and looks
                    if mine and half.state == PENDING and half.unsure == FOUND:
                        if half in records_of:
                            half.result = records_of[half]
                            self._settle(store, half, COMMITTED, later=True)
                        half.unsure = SURE
        for half in halves:
            if half.unsure and half.state == PENDING:
                with half.lock.attempt(wait=False) as mine:
                    if mine and half.state == PENDING and half.unsure:
                        self.look_for_commit(store, half)

    def _half_message(self, store: "StoreWait", half: Half) -> "Message":
        place = half.place          # looked up once: another thread may settle it meanwhile
        message = store.message_at(place[1]) if place is not None else None
        if message is None and place is not None:
            _wait_for_queues(store)             # what is in the pool, or not durable yet, is not shown yet
            message = store.message_at(place[1])
        if message is None:
            raise TransactionUnknown(half.id, "its half message is no longer in the log: cleaning has deleted it")
        return message

    # ---- op messages

    def _settle(self, store: "StoreWait", half: Half, state: str, at_once: bool = False, later: bool = False) -> None:
        """It is decided by another record than its op message, which follows: at once in 4.9, in company in 5.x. later: of an
        earlier process, with the next round of tend()."""
        options = store.options
        half.state = state
        with self._lock:
            self._unwritten += self._table(store).offsets_of(half)
            size_max = len(self._unwritten) * (len(str(max(self._table(store).seen, 1))) + 1)
        if at_once or (options.compat != "5.x" and not later) or size_max >= store.options.transaction_op_size_max_bytes:
            try:
                self.write_ops(store, wait=None if at_once else False)
            except (PutError, StoreStateError, DurabilityError):
                pass        # the transaction is decided all the same; tend() tries again, and says so

    def write_ops(self, store: "StoreWait", own: Sequence[int] = (), wait: bool | None = False) -> None:
        """Puts the op messages that wait for company, and those of `own`, last. Where it raises, `own` is forgotten again."""
        options = store.options
        with self._lock:
            bodies = self._op_bodies(self._table(store), options, own)
        try:
            while bodies:
                record = records.op_record(bodies[0].text, options.compat, bodies[0].again)
                result = _put_copy(store, [record], wait if len(bodies) == 1 else False)
                settled = bodies.pop(0).offsets
                with self._lock:
                    self._table(store).said(result.queue_offset, settled)
        finally:
            if bodies:
                with self._lock:
                    for body in bodies:
                        left = self._again if body.again else self._unwritten
                        left += [offset for offset in body.offsets if offset not in own]

    def _op_bodies(self, table: Table, options: Any, own: Sequence[int]) -> "list[_OpBody]":
        """Of all that waits, and of `own`, last. The lock is held. A half message that 4.9 wrote is settled in 4.9's form, of
        which each version reads every number: 4.9 reads none in a body of 5.x."""
        again, self._again = [offset for offset in self._again if offset >= table.position], []
        offsets, self._unwritten = [*self._unwritten, *own], []
        last_is_old = bool(own) and own[-1] in table.old
        bodies = []
        for waiting, are_again in ((again, True), (offsets, False)):
            for old in (not last_is_old, last_is_old):
                form: Compat = "4.9" if old else options.compat
                here = [offset for offset in waiting if (offset in table.old) == old]
                bodies += [_OpBody(text, settled, are_again) for text, settled in records.op_bodies(
                    here, form, options.transaction_op_size_max_bytes)]
        return bodies

    # ---- what a check does with one

    def again(self, store: "StoreWait", half: Half) -> None:
        """Puts the half message again, at the end of its queue, with one check more. The transaction's lock is held."""
        message = self._half_message(store, half)
        result = _put_copy(store, records.again_records(message, half.origin, half.checks + 1, store.options), False)
        with self._lock:
            table = self._table(store)
            before = [offset for offset, _ in half.places if offset != result.queue_offset]      # take_new() may have found it
            table.came(half, result.queue_offset, result.offset, half.checks + 1, result.store_timestamp)
            for offset in before:
                table.settle(offset)
            # Another transaction keeps `position` in front of them: to a broker that takes over they would be open, too.
            self._again += [offset for offset in before if offset >= table.position]

    def give_up(self, store: "StoreWait", half: Half) -> None:
        """Moves it to TRANS_CHECK_MAX_TIME_TOPIC. The transaction's lock is held."""
        _put_copy(store, records.given_up_records(self._half_message(store, half), store.options), None)
        self._settle(store, half, GIVEN_UP, at_once=True)       # no real record says it

    # ---- finding

    def pending(self, store: "StoreWait") -> list[Half]:
        with self._lock:
            table = self._table(store)
            table.take_new(store)
            found = table.pending()
        self._look_for_commits(store, found)
        return [half for half in found if half.state == PENDING]

    def listed(self, store: "StoreWait") -> list[PendingTransaction]:
        return [PendingTransaction(half.id, half.group, half.topic, half.queue_id, half.born, half.checks, *place)
                for half in self.pending(store) if (place := half.place) is not None]

    def of_id(self, store: "StoreWait", id: str) -> Half:
        """By transaction id (UNIQ_KEY), or by the message id of one of its half messages. Also one that was decided long ago.
        Raises TransactionUnknown, ArgumentIllegal."""
        if not isinstance(id, str) or not id:
            raise illegal("id", id, "give the id of a transaction (Transaction.id), or the message id of its half message")
        with self._lock:
            table = self._table(store)
            table.take_new(store)
            half = table.by_id.get(id)
        if half is not None:
            self._settle_doubt(store, half)
            return half
        _wait_for_queues(store)
        message = store.message_by_unique_key(HALF_TOPIC, id)
        if message is None:
            try:
                message = store.message_by_id(id)
            except ValueError:
                message = None
        if message is None or message.topic != HALF_TOPIC:
            raise TransactionUnknown(id, "the log has no half message of that id")
        return self._of_message(store, message, id)

    def at(self, store: "StoreWait", offset: int, queue_offset: int, group: str) -> Half:
        """By where a half message is, as a producer's end of a transaction names it; all three have to fit (RocketMQ:
        EndTransactionProcessor.checkPrepareMessage). Raises TransactionUnknown."""
        message = store.message_at(offset)
        if message is None or message.topic != HALF_TOPIC:
            raise TransactionUnknown(f"at offset {offset}", "there is no half message at that log offset")
        for what, found, given in (("producer group", message.properties.get("PGROUP"), group),
                                   ("half queue offset", message.queue_offset, queue_offset)):
            if found != given:
                raise TransactionUnknown(message.msg_id, f"its {what} is {found!r}, and not {given!r}")
        return self._of_message(store, message, message.msg_id)

    def _of_message(self, store: "StoreWait", message: "Message", id: str) -> Half:
        try:
            half = Half(self._path, message.properties, message.msg_id, message.queue_offset, message.born_timestamp)
        except (KeyError, ValueError):
            raise TransactionUnknown(id, "that message has no real topic and queue") from None
        _wait_for_queues(store)         # before the look at the table: what is in the log, and not in its queue, is pending
        with self._lock:
            table = self._table(store)
            table.take_new(store)
            known = table.by_offset.get(message.queue_offset) or table.halves.get(half.origin)
        if known is not None and known.unique == half.unique:
            self._settle_doubt(store, known)
            return known
        half.came(message.queue_offset, message.offset, number_of(message.properties.get(CHECKS)) or 0, message.store_timestamp)
        found = committed_among(store, [half], settled_at(store, message))
        half.state, half.result = (COMMITTED, found[half]) if found else (ROLLED_BACK, None)
        if not found and store.message_by_unique_key(records.GIVEN_UP_TOPIC, half.id) is not None:
            half.state = GIVEN_UP
        return half

    # ---- the table

    def _table(self, store: "StoreWait") -> Table:
        """The lock is held. Read again for a store that another process decides in: only the op queue says what it decided."""
        if self._loaded is None or store.options.follow:
            return self._load(store)
        return self._loaded

    def _load(self, store: "StoreWait") -> Table:
        """The lock is held."""
        offsets = self._offsets()
        table = Table(self._path)
        decided = table.load(store, lambda topic: offsets.query(GROUP, topic, 0))
        self._unwritten = [offset for half in decided for offset, _ in half.places]
        self._again = []
        self._loaded = table
        return table

    def tend(self, store: "StoreWait") -> None:
        """From time to time: writes op messages, and says in the offsets of CID_RMQ_SYS_TRANS how far all is settled."""
        if self._loaded is None and store._bounds(HALF_TOPIC, 0) is None:
            return
        with self._lock:
            table = self._table(store)
            table.take_new(store)
            found = table.pending()
        self._look_for_commits(store, found)
        self.write_ops(store)
        offsets = self._offsets()
        with self._lock:
            places = {HALF_TOPIC: table.position, OP_TOPIC: table.op_position}
            odd, self._odd = table.odd - self._odd, table.odd
        for topic, offset in places.items():
            if store._bounds(topic, 0) is not None and offsets.query(GROUP, topic, 0) != offset:
                offsets.commit(GROUP, topic, 0, offset)
        if odd > 0:
            emit(Event.HALF_MESSAGES_ODD, path=self._path, count=odd)

    def end_all(self, store: "StoreWait") -> None:
        """The store closes. What cannot be put now, the next open puts: the real records are there. Raises DurabilityError."""
        if self._loaded is not None and not store.readonly:
            try:
                self.tend(store)
            except (PutError, StoreStateError, DiskFull, OutOfResources):
                pass
            except OSError:
                raise
            except Exception as error:      # of whatever kind: the store is closed all the same, and its lock released
                emit(Event.TASK_FAILED, task="writing op messages", path=self._path, error=str(error))


def _put_copy(store: "StoreWait", forms: Iterable[dict[str, Any]], wait: bool | None) -> "PutResult":
    """Stores the first of the forms that fits into a record. The options' limits do not count: they may be lower than they were
    when the half message was put, which is accepted. Raises as put does."""
    refused: PutError = MessageIllegal("there is nothing to put")
    for record in forms:
        try:
            return store._put_copy(**record, wait=wait).result()
        except (MessageIllegal, PropertiesSizeExceeded) as error:
            refused = error
    raise refused


def _wait_for_queues(store: "StoreWait") -> None:
    """What was decided a moment ago is in the queues and the index before they are asked. Raises StoreStateError, and DiskFull
    or OutOfResources where dispatch stands for want of it."""
    if not store.readonly and not store._wait_dispatched(LOOK_MS / 1000):
        lacking = store._dispatch_want()
        if lacking is not None:
            raise lacking
        ends = store._position("dispatched"), store._position("wrote")
        raise StoreStateError(f"the queues of {store.path} end at log offset {ends[0]}, its log at {ends[1]}, and in "
                              f"{LOOK_MS} ms dispatch has not come to its end: a transaction that is decided there would look "
                              "pending. Call again")


def _topic_bytes(options: Any, topic: object) -> int:
    """How long a topic may be that a record is put into."""
    if options.compat != "5.x":
        return min(int(options.topic_size_max_bytes), 127)
    return 255 if isinstance(topic, str) and topic.startswith("%RETRY%") else int(options.topic_size_max_bytes)

