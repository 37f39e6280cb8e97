"""AsyncMessageStore: a store for asyncio. Its methods have the same names and are awaited.

A put appends in the loop's thread, which takes a microsecond, and the task waits for the device; a get reads mapped memory
there. No executor: the loop is woken through one eventfd, once a flush and once a round of dispatch, on every loop that has
add_reader (uvloop, too). What may take seconds, or reads and writes files under config/, runs in a thread of its own.
Cancellation: what was put stays put; a get and a subscription lose no message, because reading takes none away.
"""
import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from rmq_store.access.reader._get import GetResult
from rmq_store.access.reader._message import Message
from rmq_store.access.reader._query import QueryResult
from rmq_store.access.waiting._wait import wait_ns
from rmq_store.access.waiting.loops import ArrivalSubscriber, LoopHub
from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.access.writer._future import PutFuture
from rmq_store.access.writer._put import PutResult
from rmq_store.access.writer._put_many import PutManyResult
from rmq_store.aio.consumer import AsyncConsumer
from rmq_store.aio.filtering import AsyncFilters
from rmq_store.aio.keywords import BatchKeywords, PutKeywords, PutManyKeywords, ScanKeywords
from rmq_store.config.typed import AllOptions, LiveOptions
from rmq_store.errors import ForkedProcess, StoreClosed, illegal
from rmq_store.filter._program import SqlFilter, chosen_filter
from rmq_store.opened.naming import whole_names
from rmq_store.opened.subscribing import LOOK_ENTRIES, Offsets, Turns, queue_ids
from rmq_store.services.cleaning.cleaner import Cleaned
from rmq_store.services.cleaning.removing import RemovedQueues
from rmq_store.services.consumer.consumer import Consumer
from rmq_store.services.consumer.progress import Lag
from rmq_store.services.delay.service import DelayLevel
from rmq_store.services.integrity.findings import Finding
from rmq_store.status import GetStatus
from rmq_store.store import MessageStore

if TYPE_CHECKING:
    from datetime import datetime

    from rmq_store.access.writer._put import Body
    from rmq_store.services.backup.backup import BackupInfo
    from rmq_store.services.integrity.scrubbing import ScrubResult

__all__ = ["AsyncMessageStore", "Subscription"]

T = TypeVar("T")
Sql = str | SqlFilter | None
ENTRY_BYTES = 20    # of a queue
BREATH = 64         # puts and messages that need no waiting, after which other tasks have a turn


@whole_names
class AsyncMessageStore(AsyncFilters):
    """A MessageStore whose methods are awaited. For tasks of one event loop. Several of these objects may share one store.

    `store.store` is the MessageStore; use it for attributes and for listeners (options, offsets, add_arriving_listener).
    `await AsyncMessageStore.open(...)` makes one, or AsyncMessageStore(store) over an open store. `async with` closes it.
    """

    def __init__(self, store: MessageStore) -> None:
        if not isinstance(store, MessageStore):
            raise illegal("store", store, "give a MessageStore, or open one: await AsyncMessageStore.open(path, ...)")
        super().__init__(store)
        self._free_turns = self._passed = 0

    def __repr__(self) -> str:
        return f"AsyncMessageStore({self.store!r})"

    @classmethod
    async def open(cls, path: str | bytes | os.PathLike[Any], **options: Unpack[AllOptions]) -> "AsyncMessageStore":
        """As MessageStore.open. With signals=True the store opens in this thread, which must be the main thread."""
        if options.get("signals"):
            return cls(MessageStore.open(path, **options))
        return cls(await in_own_thread(lambda: MessageStore.open(path, **options), MessageStore.close))

    async def close(self, *, strict: bool = False) -> None:
        """As MessageStore.close. Waiting gets and subscriptions raise StoreClosed."""
        await in_own_thread(lambda: self.store.close(strict=strict))

    async def __aenter__(self) -> "AsyncMessageStore":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        try:
            await self.close()
        except ForkedProcess:
            pass        # as in the `with` of a MessageStore

    @property
    def closed(self) -> bool:
        return self.store.closed

    # ---- putting

    async def put(self, topic: str, body: "Body", **keywords: Unpack[PutKeywords]) -> PutResult:
        """As MessageStore.put: returns when the message is as durable as requested. A cancelled put is stored all the same."""
        future = self.store.put_async(topic, body, **keywords)
        if future.done():
            await self._breathe()
        return await future

    def put_async(self, topic: str, body: "Body", **keywords: Unpack[PutKeywords]) -> PutFuture:
        """As MessageStore.put_async: stores the message now; await the future later."""
        return self.store.put_async(topic, body, **keywords)

    async def put_many(self, topic: str, messages: "Iterable[Body | Mapping[str, Any]]", *, wait: bool | None = None,
                       **keywords: Unpack[PutManyKeywords]) -> PutManyResult:
        """As MessageStore.put_many. Waits as long as the device takes; asyncio.timeout limits the wait."""
        if self._slaves(wait):
            return await in_own_thread(lambda: self.store.put_many(topic, messages, wait=wait, **keywords))
        result = self.store.put_many(topic, messages, wait=False, **keywords)
        await self._durable(wait)
        return result

    async def put_batch(self, topic: str, batch: "Body", *, wait: bool | None = None,
                        **keywords: Unpack[BatchKeywords]) -> PutManyResult:
        """As MessageStore.put_batch. Waits as long as the device takes; asyncio.timeout limits the wait."""
        if self._slaves(wait):
            return await in_own_thread(lambda: self.store.put_batch(topic, batch, wait=wait, **keywords))
        result = self.store.put_batch(topic, batch, wait=False, **keywords)
        await self._durable(wait)
        return result

    async def put_inner_batch(self, topic: str, batch: "Body | Iterable[Body | Mapping[str, Any]]", *, wait: bool | None = None,
                              **keywords: Unpack[BatchKeywords]) -> PutManyResult:
        """As MessageStore.put_inner_batch. Waits as long as the device takes; asyncio.timeout limits the wait."""
        if self._slaves(wait):
            return await in_own_thread(lambda: self.store.put_inner_batch(topic, batch, wait=wait, **keywords))
        result = self.store.put_inner_batch(topic, batch, wait=False, **keywords)
        await self._durable(wait)
        return result

    def _slaves(self, wait: bool | None) -> bool:
        """Whether several messages may have to wait for a slave."""
        return wait is not False and self.store.options.role == "sync_master"

    async def _durable(self, wait: bool | None) -> None:
        if wait or (wait is None and self.store.options.flush_mode == "sync"):
            await self.store._completer.flushing()
        else:
            await self._breathe()

    async def _breathe(self) -> None:
        """A task that never has to wait would keep the loop from all others."""
        self._free_turns += 1
        if self._free_turns % BREATH == 0:
            await asyncio.sleep(0)

    async def flush(self) -> int:
        """As MessageStore.flush."""
        await self.store._completer.flushing()
        return self.store._position("flushed")

    async def wait_dispatched(self, timeout: float | None = None) -> bool:
        """As MessageStore.wait_dispatched."""
        return await in_own_thread(lambda: self.store.wait_dispatched(timeout))

    # ---- reading

    async def get(self, topic: str, queue_id: int, offset: int, max_count: int = 32, tags: str | None = None, *,
                  sql: Sql = None, max_bytes: int | None = None, wait: float | bool | None = None) -> GetResult:
        """As MessageStore.get; wait=seconds holds the task, not the loop."""
        wait_ns(wait, "wait")       # refuses what is no time
        result = await self._got(topic, queue_id, offset, max_count, tags, sql, max_bytes)
        if wait is True:
            wait = self.store.options.long_polling_timeout_ms / 1000
        if not wait or not _holds(result, offset):
            await self._breathe()
            return result
        end = time.monotonic() + wait
        with ArrivalSubscriber(self._hub(), topic, [queue_id]) as subscriber:
            while True:
                result = await self._got(topic, queue_id, offset, max_count, tags, sql, max_bytes)
                if not _holds(result, offset):
                    return result
                passed, offset = offset, max(offset, result.next_offset)
                if offset < result.max_offset:
                    await self._pass(offset - passed)
                    continue
                try:
                    await subscriber.listen(max(end - time.monotonic(), 0))
                except TimeoutError:
                    return result

    async def _got(self, topic: str, queue_id: int, offset: int, max_count: int, tags: str | None,
                   sql: Sql, max_bytes: int | None) -> GetResult:
        """As MessageStore.get, in looks between which other tasks have a turn. The first that finds something ends it."""
        end = offset + self.store.options.filter_bytes_max // ENTRY_BYTES
        while True:
            result = self.store.get(topic, queue_id, offset, max_count, tags, sql=sql, max_bytes=max_bytes,
                                    _scan_max=LOOK_ENTRIES)
            if (result.status is not GetStatus.NO_MATCHED_MESSAGE or result.unreadable
                    or not offset < result.next_offset < min(end, result.max_offset)):
                return result
            await self._pass(result.next_offset - offset)
            offset = result.next_offset

    async def _pass(self, entries: int) -> None:
        """A filter left these out: others have a turn from time to time."""
        self._passed += entries
        if self._passed >= LOOK_ENTRIES:
            self._passed = 0
            await asyncio.sleep(0)

    async def wait_for_message(self, topic: str, queue_id: int, offset: int, timeout: float | None = None) -> bool:
        """As MessageStore.wait_for_message."""
        wait_ns(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        with ArrivalSubscriber(self._hub(), topic, [queue_id]) as subscriber:
            while self.store.max_offset(topic, queue_id) <= offset:
                try:
                    await subscriber.listen(None if end is None else max(end - time.monotonic(), 0))
                except TimeoutError:
                    return False
        return True

    def subscribe(self, topic: str, queue_id: int | Iterable[int] | None = None, *, offset: Offsets = None,
                  tags: str | None = None, max_count: int = 32, sql: Sql = None,
                  timeout: float | None = None) -> "Subscription":
        """As MessageStore.subscribe: `async for message in store.subscribe("T", 0, offset=n)`. Ends with StoreClosed.

        queue_id: one, several, or None for all queues of the topic, new queues too. offset: where to begin, a number for all
        queues, or a mapping of queue id to number; -1 is the present end, None the oldest message. tags, sql: as get.
        max_count: how many messages one read takes at most. timeout: seconds; where no message comes for so long, the
        iteration ends, and a later one continues there. The order within a queue is kept. Raises as
        MessageStore.subscribe.
        """
        return Subscription(self.store, self._hub(), topic, queue_id, offset, tags, max_count, chosen_filter(sql, tags),
                            timeout)

    async def query_key(self, topic: str, key: str, max_count: int | None = None, begin_time: "int | datetime" = 0,
                        end_time: "int | datetime | None" = None, *, exact: bool = True) -> QueryResult:
        """As MessageStore.query_key."""
        return self.store.query_key(topic, key, max_count, begin_time, end_time, exact=exact)

    async def message_at(self, offset: int) -> Message | None:
        """As MessageStore.message_at."""
        return self.store.message_at(offset)

    async def message_by_id(self, msg_id: str) -> Message | None:
        """As MessageStore.message_by_id."""
        return self.store.message_by_id(msg_id)

    async def message_by_unique_key(self, topic: str, unique_key: str) -> Message | None:
        """As MessageStore.message_by_unique_key."""
        return self.store.message_by_unique_key(topic, unique_key)

    async def offset_by_time(self, topic: str, queue_id: int, timestamp: "int | datetime", *,
                             boundary: Literal["lower", "upper", "nearest"] | None = None) -> int:
        """As MessageStore.offset_by_time."""
        return self.store.offset_by_time(topic, queue_id, timestamp, boundary=boundary)

    async def min_offset(self, topic: str, queue_id: int) -> int:
        """As MessageStore.min_offset."""
        return self.store.min_offset(topic, queue_id)

    async def max_offset(self, topic: str, queue_id: int) -> int:
        """As MessageStore.max_offset."""
        return self.store.max_offset(topic, queue_id)

    async def total(self, topic: str, queue_id: int) -> int:
        """As MessageStore.total."""
        return self.store.total(topic, queue_id)

    async def earliest_time(self, topic: str | None = None, queue_id: int | None = None) -> int:
        """As MessageStore.earliest_time."""
        return self.store.earliest_time(topic, queue_id)

    async def topics(self) -> list[str]:
        """As MessageStore.topics."""
        return self.store.topics()

    async def queues(self, topic: str) -> list[int]:
        """As MessageStore.queues."""
        return self.store.queues(topic)

    def scan(self, topic: str | None = None, queue_id: int | None = None,
             **keywords: Unpack[ScanKeywords]) -> AsyncIterator[Message]:
        """As MessageStore.scan: `async for message in store.scan("T", 0)`."""
        return self._walk(self.store._scan_steps(topic, queue_id, **keywords))

    def log_records(self, begin: int | None = None, end: int | None = None) -> AsyncIterator[tuple[str, int, int, Any]]:
        """As MessageStore.log_records: `async for kind, offset, size, message in store.log_records()`."""
        return self._walk(self.store.log_records(begin, end))

    async def _walk(self, steps: Iterator[T | None]) -> AsyncIterator[T]:
        for step in steps:
            await self._breathe()
            if step is not None:        # a message that was not asked for
                yield step

    async def log_bytes(self, offset: int, size_max: int = 1 << 20) -> bytes:
        """As MessageStore.log_bytes."""
        return self.store.log_bytes(offset, size_max)

    async def raw_entry(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """As MessageStore.raw_entry."""
        return self.store.raw_entry(topic, queue_id, queue_offset)

    async def ext_unit(self, topic: str, queue_id: int, address: int) -> tuple[bool, int, int, bytes]:
        """As MessageStore.ext_unit."""
        return self.store.ext_unit(topic, queue_id, address)

    # ---- groups

    async def consumer(self, group: str, topics: str | Sequence[str], *, tags: str | None = None, sql: Sql = None,
                       start: str = "first", ordered: bool = False, max_retries: int | None = None) -> AsyncConsumer:
        """As MessageStore.consumer: `async with await store.consumer("G", "T") as consumer`."""
        consumer = await in_own_thread(lambda: self.store.consumer(
            group, topics, tags=tags, sql=sql, start=start, ordered=ordered, max_retries=max_retries), Consumer.close)
        return AsyncConsumer(self.store, consumer)

    async def lag(self, group: str | None = None, topic: str | None = None, *, tags: str | None = None,
                  sql: Sql = None) -> list[Lag]:
        """As MessageStore.lag."""
        return await in_own_thread(lambda: self.store.lag(group, topic, tags=tags, sql=sql))

    async def reset_offset(self, group: str, topic: str, *, timestamp: "int | datetime | None" = None,
                           offset: int | None = None, queue_id: int | None = None) -> dict[int, int]:
        """As MessageStore.reset_offset."""
        return await in_own_thread(lambda: self.store.reset_offset(
            group, topic, timestamp=timestamp, offset=offset, queue_id=queue_id))

    async def delay_levels(self) -> list[DelayLevel]:
        """As MessageStore.delay_levels."""
        return await in_own_thread(self.store.delay_levels)

    # ---- keeping it in order

    async def clean(self, hours: float | None = None, *, files_max: int | None = None,
                    pace_ms: int | None = None) -> Cleaned:
        """As MessageStore.clean. If the task is cancelled, the cleaning continues."""
        return await in_own_thread(lambda: self.store.clean(hours, files_max=files_max, pace_ms=pace_ms))

    async def cleanable(self, hours: float | None = None, *, files_max: int | None = None) -> list[int]:
        """As MessageStore.cleanable."""
        return await in_own_thread(lambda: self.store.cleanable(hours, files_max=files_max))

    async def clean_expired_queues(self) -> RemovedQueues:
        """As MessageStore.clean_expired_queues."""
        return await in_own_thread(self.store.clean_expired_queues)

    async def delete_topics(self, *topics: str) -> RemovedQueues:
        """As MessageStore.delete_topics."""
        return await in_own_thread(lambda: self.store.delete_topics(*topics))

    async def clean_unused_topics(self, keep: Iterable[str]) -> RemovedQueues:
        """As MessageStore.clean_unused_topics."""
        return await in_own_thread(lambda: self.store.clean_unused_topics(keep))

    async def scrub(self, **how: Any) -> "ScrubResult":
        """As MessageStore.scrub. If the task is cancelled, the scrub continues."""
        return await in_own_thread(lambda: self.store.scrub(**how))

    async def backup(self, directory: Any, *, progress: Callable[[int], None] | None = None) -> "BackupInfo":
        """As MessageStore.backup. Another thread calls progress. If the task is cancelled, the backup continues."""
        return await in_own_thread(lambda: self.store.backup(directory, progress=progress))

    async def check_self(self) -> list[Finding]:
        """As MessageStore.check_self."""
        return await in_own_thread(self.store.check_self)

    async def reconfigure(self, **options: Unpack[LiveOptions]) -> None:
        """As MessageStore.reconfigure."""
        self.store.reconfigure(**options)

    async def confirm(self, offset: int) -> None:
        """As MessageStore.confirm."""
        self.store.confirm(offset)

    def _hub(self) -> LoopHub:
        hub = self.store._loop_hub(asyncio.get_running_loop())
        if hub is None:
            raise StoreClosed(self.store.path)
        return hub


class Subscription(Turns):
    """An iteration over messages that ends with `close`. `offsets` has the next offset of each queue to hand out.

    If a task is cancelled while it waits, `offsets` does not change; a later iteration continues there, also after an error.
    Queues take turns. Any number of tasks of one event loop may iterate over it; each message goes to one of them.
    """

    def __init__(self, store: MessageStore, hub: LoopHub, topic: str, queue_id: int | Iterable[int] | None, offset: Offsets,
                 tags: str | None, max_count: int, sql: SqlFilter | None, timeout: float | None) -> None:
        super().__init__(store, topic, offset, tags, max_count, sql)
        wait_ns(timeout)                        # raises for what is no time
        self._timeout = timeout
        self._turns = 0                         # messages handed out since others had a turn
        self._passed = 0                        # entries that the filter left out since then
        self._closed = False
        ids = queue_ids(queue_id)
        self._ear = ArrivalSubscriber(hub, topic, ids).__enter__()
        try:
            for one in store.queues(topic) if ids is None else ids:
                self._begin(one)
        except BaseException:
            self.close()
            raise

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Message:
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._ready:
            await self._more(end)
        self._turns += 1
        return self._hand_out()

    async def _more(self, end: float | None) -> None:
        """Waits for messages, or looks for some, once; another task may have taken them when it returns. Who waits began where
        there was nothing to look at, and is woken by what came since: so nobody has to be told what a task leaves."""
        self._check()
        if not self._due:
            try:
                arrived = await self._ear.listen(None if end is None else max(end - time.monotonic(), 0))
            except TimeoutError:
                raise StopAsyncIteration from None
            for queue_id in arrived:
                self._arrived(queue_id)
        elif self._turns:
            self._turns = 0
            await asyncio.sleep(0)          # a batch is through: others have a turn
        self._check()
        if self._due and not self._ready:
            self._passed += self._look()
            if self._passed >= LOOK_ENTRIES:
                self._passed, self._turns = 0, 1

    def _check(self) -> None:
        self._store._check_open()           # in a child of fork nobody would wake it
        if self._closed:
            raise StopAsyncIteration

    def close(self) -> None:
        """Ends the iteration, also for tasks that wait. The end of `with` and `async with` calls it too."""
        self._closed = True
        self._ready.clear()
        self._ear.__exit__(None, None, None)
        self._ear.wake()

    async def aclose(self) -> None:
        self.close()

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_ear") and not self._store._forked():
            self._ear.__exit__(None, None, None)


_FURTHER = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL)


def _holds(result: GetResult, offset: int) -> bool:
    """Whether a get that may wait waits, or looks further on: as the synchronous one."""
    if result.status in _FURTHER:
        return result.next_offset > offset
    return result.status is GetStatus.OFFSET_OVERFLOW_ONE or (result.status is GetStatus.NO_MESSAGE_IN_QUEUE and offset == 0)
