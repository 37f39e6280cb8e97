"""AsyncConsumer: a consumer of a group for asyncio, the same names awaited where they wait.

Batches are those of the synchronous consumer: acknowledging and giving back is memory, and done at once. What waits for
messages is woken by the consumer's eventfd; what waits for the device, a retry or the closing, holds the task and not the loop.
Cancellation: a task that is cancelled in poll has taken nothing.
"""
import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from rmq_store.consumer.consumer import COUNT_MAX, LOOK_S, Batch, Consumer, _deadline
from rmq_store.errors import StoreStateError, illegal
from rmq_store.reader._checked import whole
from rmq_store.waiting.apart import apart

if TYPE_CHECKING:
    from rmq_store.reader._message import Message
    from rmq_store.store import MessageStore

__all__ = ["AsyncConsumer"]


class AsyncConsumer:
    """One group's consumer in this process, for tasks of one event loop; any number of them may poll it.

    Made by `await store.consumer(...)`; `async with` closes it. Durability: as Consumer.
    """

    def __init__(self, store: "MessageStore", consumer: Consumer) -> None:
        self._store, self._consumer = store, consumer
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def group(self) -> str:
        """str."""
        return self._consumer.group

    @property
    def topics(self) -> list[str]:
        """%RETRY%group among them: list of str."""
        return self._consumer.topics

    @property
    def closed(self) -> bool:
        """As Consumer.closed."""
        return self._consumer.closed

    async def poll(self, max_count: int = 32, timeout: float | None = 0.0) -> Batch | None:
        """As Consumer.poll. Say what became of the batch with `ack` and `nack`; a single message that failed goes to
        `await consumer.retry(message)`, not to the batch's own retry, which would hold the loop until the device has it."""
        consumer = self._consumer
        end = _deadline(timeout)
        whole(max_count, "max_count", 1, COUNT_MAX)
        while True:
            batch, more, fd = consumer._look_or_wait(max_count)
            if batch is not None:
                return batch
            try:
                left = LOOK_S if end is None else min(end - time.monotonic(), LOOK_S)
                if more:
                    await asyncio.sleep(0)      # tags leave much out: other tasks have a turn between two looks
                elif left <= 0:
                    return None
                else:
                    await self._arrival(fd, left)
            finally:
                consumer._end_waiting()

    async def _arrival(self, fd: int, seconds: float) -> None:
        """Until something arrives, is given back or ends, `seconds` at most. The eventfd stays readable until somebody polls:
        the loop looks at it only while somebody waits, or it would never sleep."""
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            if len(self._waiters) == 1:
                self._loop.add_reader(fd, self._wake)
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)
            if not self._waiters:
                self._loop.remove_reader(fd)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """As iterating a Consumer: a batch that is neither acknowledged nor given back when the next one is asked for is
        acknowledged; left early, it is given back."""
        while True:
            try:
                batch = await self.poll(timeout=None)
            except StoreStateError:
                return
            assert batch is not None
            try:
                yield batch
            except GeneratorExit:
                batch.nack()
                raise
            batch.ack()

    async def run(self, handle: "Callable[[Message], Awaitable[object]]", *, max_count: int = 32) -> None:
        """Awaits handle(message) for one message after the other until the consumer or its store is closed, or the task is
        cancelled: then the batch is given back. What `handle` raises is logged, and the message is tried again (see retry)."""
        if not callable(handle):
            raise illegal("handle", handle, "give an async function of one message")
        while True:
            try:
                batch = await self.poll(max_count, timeout=None)
            except StoreStateError:
                return
            assert batch is not None
            with batch:
                for message in batch:
                    try:
                        await handle(message)
                    except Exception as error:
                        self._consumer._tell_failed(message, await self.retry(message), error)

    async def retry(self, message: "Message", *, delay_level: int = 0) -> str:
        """As Consumer.retry; the task waits until the message is as durable as any put."""
        sent_back = self._consumer._sent_back(message, delay_level)
        await self._store.put_async(sent_back.topic, message.body, **sent_back.put)
        return self._consumer._count_sent_back(sent_back)

    async def close(self) -> None:
        """As Consumer.close; tasks that wait in poll are let out."""
        await apart(self._consumer.close)

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncConsumer({self.group!r}, {self.topics!r})"
