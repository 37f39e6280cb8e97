"""One transaction as a program holds it: what prepare() returns, what a check-back callback gets, what an id leads to."""
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rmq_store.errors import ForkedProcess, TransactionDecided
from rmq_store.services.transaction.table import COMMITTED, PENDING, ROLLED_BACK, Half

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.access.waiting._wait import StoreWait
    from rmq_store.services.transaction.service import Transactions

__all__ = ["Transaction"]


class Transaction:
    """A message that nobody sees before it is committed. `store.prepare` makes one.

    As a context manager: a normal end of the block commits, an exception rolls back. A block may also decide itself.
    Thread-safety: any thread may decide it; threads that decide the same transaction wait for each other.
    """

    def __init__(self, store: "StoreWait", transactions: "Transactions", half: Half) -> None:
        self._store, self._transactions, self._half = store, transactions, half

    @property
    def id(self) -> str:
        """str: the transaction id. It is the property UNIQ_KEY of the message, before and after the commit, and stays the same
        when a check puts the half message again."""
        return self._half.id

    @property
    def state(self) -> str:
        """str: "pending", "committed", "rolled back", or "given up" (moved to TRANS_CHECK_MAX_TIME_TOPIC)."""
        return self._half.state

    @property
    def topic(self) -> str:
        """str: the topic that a commit puts the message into."""
        return self._half.topic

    @property
    def queue_id(self) -> int:
        """int."""
        return self._half.queue_id

    @property
    def group(self) -> str:
        """str: the producer group, whose callback is asked."""
        return self._half.group

    @property
    def checks(self) -> int:
        """int: how often the group was asked, this time included."""
        return self._half.checks

    @property
    def born_timestamp(self) -> int:
        """int: ms since 1970."""
        return self._half.born

    @property
    def half_offset(self) -> int:
        """int: queue offset of the newest half message in RMQ_SYS_TRANS_HALF_TOPIC; -1 once it is settled."""
        place = self._half.place
        return -1 if place is None else place[0]

    @property
    def offset(self) -> int:
        """int: log offset of the newest half message, which the committed message has as prepared_transaction_offset; -1 once
        it is settled."""
        place = self._half.place
        return -1 if place is None else place[1]

    @property
    def message(self) -> "Message":
        """Message: the half message, with the body and properties of the real one. Raises TransactionUnknown if cleaning has
        deleted it, or if it is settled."""
        return self._transactions._half_message(self._store, self._half)

    def commit(self, *, wait: bool | None = None) -> Any:
        """Stores the real message. Returns the PutResult; a transaction that was found committed after a restart returns the
        Message itself. A second commit returns the same and stores nothing. Raises TransactionDecided after a rollback.

        wait: as for put. A commit is visible exactly once, also after a kill in the middle: the next open finds the real
        message, or the half message alone, which is then still pending. Raises as put does; after DurabilityError the next open
        tells which of the two it is.
        """
        return self._transactions.end(self._store, self._half, COMMITTED, wait)

    def rollback(self, *, wait: bool | None = None) -> None:
        """The message is never seen. A second rollback changes nothing. Raises TransactionDecided after a commit, and as put
        does. wait: as for put."""
        self._transactions.end(self._store, self._half, ROLLED_BACK, wait)

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state != PENDING:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.rollback()
        except (ForkedProcess, TransactionDecided):
            pass        # a child of fork leaves the block: the parent decides; or another thread has just committed

    def __reduce__(self) -> Any:
        raise TypeError("a Transaction cannot be pickled or copied: send its id, and call store.transaction_by_id(id) there")

    def __repr__(self) -> str:
        return f"Transaction({self.id!r}, {self.state}, {self.topic}/{self.queue_id}, group={self.group!r})"
