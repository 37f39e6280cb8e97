"""AsyncConsumer: a consumer of a group for asyncio. Its methods have the same names, and those that wait are awaited.

Batches are those of the synchronous consumer: ack and nack change memory only and return at once. The consumer's eventfd wakes
a task that waits for messages. A retry and close() wait for the device; they hold the task and not the loop.
Cancellation: a task that is cancelled in poll has taken no message.
"""
import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING

from rmq_store.access.reader._checked import whole
from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.base.io.callbacks import refuse_unrun
from rmq_store.errors import StoreStateError, illegal
from rmq_store.opened.subscribing import LOOK_ENTRIES
from rmq_store.services.consumer.consumer import LOOK_S, Batch, Consumer
from rmq_store.services.consumer.handling import COUNT_MAX, TOO_LARGE, check_handler, deadline_of

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.store import MessageStore

__all__ = ["AsyncConsumer"]

BREATH = 8          # polls that need no waiting, after which other tasks have a turn


class AsyncConsumer:
    """The consumer of one group in this process, for tasks of one event loop. Any number of these tasks may poll it.

    `await store.consumer(...)` makes it; `async with` closes it. Durability: as Consumer.
    """

    def __init__(self, store: "MessageStore", consumer: Consumer) -> None:
        self._store, self._consumer = store, consumer
        self._loop = asyncio.get_running_loop()
        self._waiters: set[asyncio.Future[None]] = set()
        self._polls = 0
        self._writing = asyncio.Lock()

    @property
    def group(self) -> str:
        """str."""
        return self._consumer.group

    @property
    def topics(self) -> list[str]:
        """The topics, with %RETRY%group: list of str."""
        return self._consumer.topics

    @property
    def closed(self) -> bool:
        """As Consumer.closed."""
        return self._consumer.closed

    async def poll(self, max_count: int = 32, timeout: float | None = 0.0) -> Batch | None:
        """As Consumer.poll. Report the outcome of the batch with `ack` and `nack`. For what waits for the
        device use `await consumer.ack(batch, wait=True)` and `await consumer.retry(message)`: the batch's own calls would hold
        the loop."""
        return await self._poll(max_count, deadline_of(timeout), None)

    async def _poll(self, max_count: int, end: float | None, stop: asyncio.Event | None) -> Batch | None:
        consumer = self._consumer
        whole(max_count, "max_count", 1, COUNT_MAX)
        self._polls += 1
        if self._polls % BREATH == 0:
            await asyncio.sleep(0)              # a task that never has to wait would keep the loop from all others
        while stop is None or not stop.is_set():
            batch, more, fd = consumer._look_or_wait(max_count, LOOK_ENTRIES)
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
        return None

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

    async def run(self, handle: "Callable[[Message], object]", *, stop: asyncio.Event | None = None, max_count: int = 32,
                  concurrency: int = 1, wait: bool = False) -> None:
        """Calls handle(message) for each message and awaits the result, until `stop` is set, the consumer or its store is
        closed, or the task is cancelled.

        As Consumer.run. concurrency: how many messages are handled at once, each in its own task. When `stop` is set, messages
        in progress are handled to their end. A message whose task is cancelled is given back. A plain function holds the loop
        while it runs.
        """
        check_handler(handle, concurrency, awaits=True)
        if stop is not None and not isinstance(stop, asyncio.Event):
            raise illegal("stop", stop, "give an asyncio.Event")
        watch = None if stop is None else asyncio.create_task(stop.wait())
        if watch is not None:
            watch.add_done_callback(lambda _: self._wake())
        try:
            if concurrency == 1:
                await self._work(handle, stop, max_count, wait)
            else:
                await _side_by_side([self._work(handle, stop, 1, wait) for _ in range(concurrency)])
        finally:
            if watch is not None:
                watch.cancel()

    async def _work(self, handle: "Callable[[Message], object]", stop: asyncio.Event | None, max_count: int,
                    wait: bool) -> None:
        while True:
            try:
                batch = await self._poll(max_count, None, stop)
            except StoreStateError:
                return
            if batch is None:
                return
            done = 0
            try:
                for message in batch:
                    await self._handle(handle, message)
                    done += 1
                    if stop is not None and stop.is_set():
                        break
            finally:
                batch._settle(done)
            if wait:
                await self._flush_offsets()

    async def _handle(self, handle: "Callable[[Message], object]", message: "Message") -> None:
        try:
            result = handle(message)
            if inspect.isawaitable(result):
                result = await result
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise               # somebody cancels this run; else it is of something that the handler awaited
            self._consumer._tell_failed(message, await self.retry(message), error)
        else:
            refuse_unrun("handle", handle, result)

    async def ack(self, batch: Batch, *, wait: bool = False) -> None:
        """As Batch.ack. With wait the task waits for the device, and the loop does not. Tasks that wait share one write."""
        batch.ack()
        if wait:
            await self._flush_offsets()

    async def _flush_offsets(self) -> None:
        consumer, offsets = self._consumer, self._consumer._offsets
        mark = offsets.mark()
        consumer._check()
        async with self._writing:           # one thread for all tasks
            if not offsets.covers(mark):
                await in_own_thread(lambda: offsets.flush(since=mark))

    async def retry(self, message: "Message", *, delay_level: int = 0) -> str:
        """As Consumer.retry; the task waits until the message is as durable as any put."""
        consumer, refused = self._consumer, None
        for back in consumer._forms(message, delay_level):
            try:
                done = consumer._copied(message, back)
            except TOO_LARGE as error:
                refused = error
                continue
            await done
            return consumer._count_sent_back(back)
        assert refused is not None
        raise refused

    async def close(self) -> None:
        """As Consumer.close. Tasks that wait in poll return."""
        await in_own_thread(self._consumer.close)

    async def __aenter__(self) -> "AsyncConsumer":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __reduce__(self) -> str:
        raise TypeError("an AsyncConsumer cannot be pickled or copied: send its messages")

    def __repr__(self) -> str:
        return f"AsyncConsumer({self.group!r}, {self.topics!r})"


async def _side_by_side(workers: list[Coroutine[object, object, None]]) -> None:
    """Until all have ended; one that raises, or being cancelled, cancels the others."""
    tasks = [asyncio.create_task(worker) for worker in workers]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
