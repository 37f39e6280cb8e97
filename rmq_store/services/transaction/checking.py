"""The check-back: asks the producer group of a transaction that nobody has decided (RocketMQ: TransactionalMessageCheckService,
TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener).

A transaction is due when it is older than transaction_timeout_ms or, where its message has CHECK_IMMUNITY_TIME_IN_SECONDS, than
that. Each check puts the half message again with TRANSACTION_CHECK_TIMES one higher, and then asks. After
transaction_check_max checks, or when it is older than retention_hours (72, if that is not given), it goes to
TRANS_CHECK_MAX_TIME_TOPIC. A clock that jumps makes none too old (services/cleaning/clock.py), as nobody takes that back.
A group without a callback is left alone: its transactions stay as they are.
One daemon thread from the first callback on; it ends with the store.
"""
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.callbacks import check_callback, refuse_unrun
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import (
    DurabilityError,
    MessageIllegal,
    PropertiesSizeExceeded,
    StoreClosed,
    StoreStateError,
    TransactionDecided,
    TransactionUnknown,
    illegal,
)
from rmq_store.events import Event, emit, named
from rmq_store.services.cleaning.clock import AgeClock
from rmq_store.services.transaction.service import Transactions
from rmq_store.services.transaction.table import COMMITTED, PENDING, ROLLED_BACK, Half
from rmq_store.services.transaction.transaction import Transaction

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["Check", "Checker"]

Check = Callable[[Transaction], Literal["commit", "rollback", "unknown"] | None]
KEPT_HOURS = 72             # RocketMQ's fileReservedTime, where retention_hours is not given
_ANSWERS = {"commit": COMMITTED, "rollback": ROLLED_BACK, "unknown": None, None: None}


class Checker:
    """Holds the store weakly, so that a forgotten store can be collected."""

    def __init__(self, store: "StoreWait", transactions: Transactions, files: ControlFiles) -> None:
        self._files, self._clock = files, AgeClock(files, store.path, tells=False)
        self._store = weakref.ref(store)
        self._transactions = transactions
        self._path = store.path
        self._callbacks: dict[str, Check] = {}
        self._stop = threading.Event()
        self._starting = StoreLock(store.path, "the check callbacks")
        self.thread: threading.Thread | None = None

    def add(self, group: str, callback: Check | None) -> None:
        if not isinstance(group, str) or not group:
            raise illegal("group", group, "give the name of a producer group")
        if callback is None:
            self._callbacks.pop(group, None)
            return
        check_callback("callback", callback, "of a Transaction, or None to ask the group no more")
        self._callbacks[group] = callback
        with self._starting:        # else two threads would ask, and close() wait for one of them
            if self.thread is None:
                self.thread = start_thread(self._run, "rmq-transactions")

    def stop(self) -> None:
        """Waits for the callback that is under way, unless it is the one that closes the store."""
        self._stop.set()
        if self.thread is not None and threading.current_thread() is not self.thread:
            self.thread.join()

    def _run(self) -> None:
        while True:
            store = self._store()
            if store is None or self._stop.wait(0):
                return
            period_ms = store.options.transaction_check_interval_ms or (30_000 if store.options.compat == "5.x" else 60_000)
            del store
            if self._stop.wait(period_ms / 1000):
                return
            store = self._store()
            if store is None:
                return
            try:
                self.round(store, self._files.wall_ms())
            except StoreClosed:
                return
            except BaseException as error:      # of whatever kind: the next round tries again
                emit(Event.TASK_FAILED, task="checking transactions", path=self._path, error=str(error))

    def round(self, store: "StoreWait", now: int) -> int:
        """Asks for everything that is due at `now`, ms since 1970. Returns how many were asked, or given up."""
        count, kept_ms = 0, self._kept_ms(store)
        gained_ms = max(self._files.wall_ms() - self._clock.now_ms(kept_ms), 0)
        for half in self._transactions.pending(store):
            callback = self._callbacks.get(half.group)
            if self._stop.is_set():
                break
            if callback is None or not self._due(store, half, now):
                continue
            try:
                if self._prepared(store, half, now - gained_ms - half.born > kept_ms):
                    self._ask(store, half, callback)
                count += 1
            except TransactionUnknown:      # cleaning has deleted it
                continue
            except (StoreStateError, DurabilityError):      # of the store: no other transaction fares better
                raise
            except BaseException as error:      # of this one, for example a hook's: the others are asked all the same
                count += 1
                _say_failed(half, error)
        return count

    def _due(self, store: "StoreWait", half: Half, now: int) -> bool:
        """As RocketMQ: a message that was born in the future, because a clock was set back, is due, too."""
        age = now - half.born
        least = store.options.transaction_timeout_ms if half.immunity_ms is None else half.immunity_ms
        return age < 0 or (age > least and half.stored <= now)

    @staticmethod
    def _kept_ms(store: "StoreWait") -> int:
        hours = store.options.retention_hours
        return (KEPT_HOURS if hours is None else hours) * 3_600_000

    def _prepared(self, store: "StoreWait", half: Half, too_old: bool) -> bool:
        """Puts it again with one check more, or gives it up. False: there is nothing to ask."""
        with half.lock.attempt(wait=False) as mine:
            if mine and half.unsure:        # a commit was interrupted, and nobody has called it again
                self._transactions.look_for_commit(store, half)
            if not mine or half.state != PENDING:       # somebody decides it, or has
                return False
            if half.checks >= store.options.transaction_check_max or too_old:
                self._transactions.give_up(store, half)
                emit(Event.TRANSACTION_GIVEN_UP, id=half.id, group=half.group, topic=half.topic, checks=half.checks)
                return False
            try:
                self._transactions.again(store, half)
            except (MessageIllegal, PropertiesSizeExceeded):
                pass    # a peer's, without room for the count: asked all the same until it is too old
        return True

    def _ask(self, store: "StoreWait", half: Half, callback: Check) -> None:
        transaction = Transaction(store, self._transactions, half)
        try:
            answer = callback(transaction)
            refuse_unrun("callback", callback, answer)
            if answer not in _ANSWERS:
                raise illegal("answer", answer, "return 'commit', 'rollback' or 'unknown'")
        except BaseException as error:      # sys.exit() too: the thread is that of all groups
            _say_failed(half, error)
            return
        state = _ANSWERS[answer]
        if state is not None:
            try:
                self._transactions.end(store, half, state, None)
            except TransactionDecided:      # the callback, or another thread, was quicker
                pass


def _say_failed(half: Half, error: BaseException) -> None:
    emit(Event.CHECK_FAILED, error, id=half.id, group=half.group, checks=half.checks, error=named(error))
