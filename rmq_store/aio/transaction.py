"""Transactions, awaited. Each call puts and may wait for the device, so it runs in a thread of its own that ends with it."""
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.aio.keywords import HalfKeywords
from rmq_store.errors import ForkedProcess, TransactionDecided
from rmq_store.services.transaction.checking import Check
from rmq_store.services.transaction.service import PendingTransaction
from rmq_store.services.transaction.table import PENDING
from rmq_store.services.transaction.transaction import Transaction

if TYPE_CHECKING:
    from rmq_store.access.writer._put import Body
    from rmq_store.store import MessageStore

__all__ = ["AsyncTransacting", "AsyncTransaction"]


class AsyncTransaction:
    """A Transaction whose decisions are awaited. `transaction` is the Transaction; its attributes say id, state and the rest.

    `async with store.transaction(...)` prepares it, commits at the normal end of the block and rolls back on an exception, a
    cancelled task included. For tasks of one event loop.
    """

    def __init__(self, prepare: Callable[[], Transaction]) -> None:
        self._prepare = prepare
        self._transaction: Transaction | None = None

    @property
    def transaction(self) -> Transaction:
        """Transaction. Raises RuntimeError before the block is entered."""
        if self._transaction is None:
            raise RuntimeError("the transaction is not prepared yet: use it inside `async with`, or await store.prepare(...)")
        return self._transaction

    @property
    def id(self) -> str:
        """str: as Transaction.id."""
        return self.transaction.id

    @property
    def state(self) -> str:
        """str: as Transaction.state."""
        return self.transaction.state

    async def _begin(self) -> "AsyncTransaction":
        self._transaction = await in_own_thread(self._prepare, _roll_back_pending)
        return self

    async def commit(self, *, wait: bool | None = None) -> Any:
        """As Transaction.commit. Cancelled, it is committed all the same."""
        return await in_own_thread(lambda: self.transaction.commit(wait=wait))

    async def rollback(self, *, wait: bool | None = None) -> None:
        """As Transaction.rollback."""
        await in_own_thread(lambda: self.transaction.rollback(wait=wait))

    async def __aenter__(self) -> "AsyncTransaction":
        return self if self._transaction is not None else await self._begin()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        if self.state != PENDING:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except (ForkedProcess, TransactionDecided):
            pass        # as Transaction; or a commit that was cancelled has come to its end: the task learns of its cancelling

    def __repr__(self) -> str:
        return f"AsyncTransaction({self._transaction!r})"


class AsyncTransacting:
    """The part of AsyncMessageStore that prepares transactions."""

    def __init__(self, store: "MessageStore") -> None:
        self.store = store

    async def prepare(self, topic: str, body: "Body", *, group: str, **message: Unpack[HalfKeywords]) -> AsyncTransaction:
        """As MessageStore.prepare. A task that is cancelled meanwhile leaves no transaction behind."""
        return await self.transaction(topic, body, group=group, **message)._begin()

    def transaction(self, topic: str, body: "Body", *, group: str, **message: Unpack[HalfKeywords]) -> AsyncTransaction:
        """As MessageStore.transaction, for `async with store.transaction(...) as t:`; see AsyncTransaction."""
        return AsyncTransaction(lambda: self.store.prepare(topic, body, group=group, **message))

    async def transaction_by_id(self, id: str) -> AsyncTransaction:
        """As MessageStore.transaction_by_id."""
        found = AsyncTransaction(lambda: self.store.transaction_by_id(id))
        found._transaction = await in_own_thread(found._prepare)
        return found

    async def transactions(self, *, group: str | None = None) -> list[PendingTransaction]:
        """As MessageStore.transactions."""
        return await in_own_thread(lambda: self.store.transactions(group=group))

    def on_check(self, group: str, callback: Check | None) -> None:
        """As MessageStore.on_check. A thread of the store calls the callback, not the loop."""
        self.store.on_check(group, callback)


def _roll_back_pending(transaction: Transaction) -> None:
    """Nobody waits for what was prepared any more."""
    transaction.rollback()
