"""A consumer inside the process: hands out messages, remembers what is done, tries again what failed (RocketMQ:
DefaultMQPushConsumer with the broker's pull, offset and send-back processors, without the network).

Every message is handed out at least once. Done is what was acknowledged, gap-free from a queue's beginning: an offset that is
committed never passes a message that is still out. Failed messages go to %RETRY%group with the properties a broker gives them,
and after retryMaxTimes to %DLQ%group; both are ordinary topics of the same log.
"""
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmq_store.access.reader._checked import whole
from rmq_store.access.waiting._arrivals import Arrivals
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.callbacks import refuse_unrun
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import ForkedProcess, StoreStateError, illegal
from rmq_store.events import Event, emit, named
from rmq_store.services.consumer.batch import Batch, Queue
from rmq_store.services.consumer.cold import ColdReads
from rmq_store.services.consumer.counts import CountTable
from rmq_store.services.consumer.handling import (
    COUNT_MAX,
    RETRY,
    TOO_LARGE,
    SentBack,
    check_handler,
    dead_letter_topic,
    deadline_of,
    forms_of,
    origin_topic,
    retry_topic,
    tell_too_large,
)
from rmq_store.services.consumer.offsets import ConsumerOffsets
from rmq_store.services.consumer.tables import GroupTable, TopicTable
from rmq_store.status import GetStatus

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.access.waiting._wait import StoreWait
    from rmq_store.access.writer._future import PutFuture
    from rmq_store.filter._program import SqlFilter

__all__ = ["Batch", "Consumer", "dead_letter_topic", "origin_topic", "retry_topic"]

LOOK_S = 1.0                # how long a waiting consumer goes without looking for new queues
EMPTY_GETS_MAX = 64         # gets in a row that find nothing that was asked for, before others have their turn


class Consumer:
    """The consumer of one group in this process. `store.consumer` makes it. Any number of threads may poll it.

    Durability: an acknowledgement is committed to store.offsets. The store writes these every offsets_flush_interval_ms, in
    close(), in `ack(wait=True)` and in `store.offsets.flush()`. After a crash, messages acknowledged since the last write are
    handed out again.
    """

    def __init__(self, store: "StoreWait", offsets: ConsumerOffsets, groups: GroupTable, topics_known: TopicTable,
                 counts: CountTable, group: str, topics: Sequence[str], *, tags: str | None, sql: "SqlFilter | None",
                 start: str, ordered: bool, max_retries: int | None) -> None:
        self.group = group
        self.topics = [*dict.fromkeys([*topics, retry_topic(group)])]
        self.tags = tags
        self.sql = sql
        self.max_retries = groups.retry_max(group) if max_retries is None else max_retries
        self._store, self._offsets = store, offsets
        self._at_end, self._ordered = start == "last", ordered
        self._lock = StoreLock(store.path, f"the consumer of group {group}")
        self._queues: dict[tuple[str, int], Queue] = {}
        self._turn: deque[Queue] = deque()
        self._looked = 0.0
        self._first_look = True
        self._waiting = 0
        self._closed = False
        self._failures = 0          # of handlers
        self._topics_known = topics_known
        self._counts = counts
        self._cold = ColdReads(lambda: store.options.cold_read_bytes_max)
        groups.add(group)
        topics_known.add(retry_topic(group), readQueueNums=1, writeQueueNums=1)
        self._hub = Arrivals(store)
        for topic in self.topics:
            self._hub.watch(topic, 0)
        self._look()

    # ---- taking

    def poll(self, max_count: int = 32, timeout: float | None = 0.0) -> Batch | None:
        """Returns the next messages, of one queue, or None if none came within `timeout` seconds (None: wait without limit).

        Queues take turns. Raises StoreClosed, StoreStateError after close(), OSError from reading, ValueError.
        """
        deadline = deadline_of(timeout)
        whole(max_count, "max_count", 1, COUNT_MAX)
        while True:
            batch, more, fd = self._look_or_wait(max_count)
            if batch is not None:
                return batch
            try:
                left = LOOK_S if deadline is None else min(deadline - time.monotonic(), LOOK_S)
                if left <= 0 and not more:
                    return None
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                poll.poll(0 if more else max(left, 0) * 1000)
            finally:
                self._end_waiting()

    def _look_or_wait(self, max_count: int, scan_max: int | None = None) -> tuple[Batch | None, bool, int]:
        """A batch; or None, whether to look again at once, and the eventfd to wait on, which is there until _end_waiting.
        scan_max: entries of a queue that one look may go through, for who must not be held longer."""
        with self._lock:
            self._check()
            arrived = self._hub.take()
            if time.monotonic() - self._looked >= LOOK_S or any(a[:2] not in self._queues for a in arrived):
                self._look()
            batch, more = self._take(max_count, scan_max)
            if batch is None:
                self._waiting += 1
            elif self._waiting:
                self._hub.wake()        # there may be more, for others
            return batch, more, self._hub.fileno()

    def _end_waiting(self) -> None:
        with self._lock:
            self._waiting -= 1
            if self._closed and self._waiting == 0:
                self._hub.close()

    def __iter__(self) -> Iterator[Batch]:
        """Batches as they come, until the consumer or its store is closed. A batch that is neither acknowledged nor given back
        when the next one is asked for is acknowledged; left early, it is given back."""
        while True:
            try:
                batch = self.poll(timeout=None)
            except StoreStateError:
                return
            assert batch is not None
            try:
                yield batch
            except GeneratorExit:
                batch.nack()
                raise
            batch.ack()

    def run(self, handle: Callable[["Message"], object], *, stop: threading.Event | None = None, max_count: int = 32,
            concurrency: int = 1, wait: bool = False) -> None:
        """Calls handle(message) for each message, until `stop` is set, or the consumer or its store is closed.

        A message is done when `handle` returns. If `handle` raises, the error is logged with its traceback and the message is
        retried (see retry). At the end, messages that were taken but not begun are given back. max_count: how many messages to
        take at once. concurrency: how many messages to handle at once, each in its own thread, including the calling thread;
        they are then taken one by one. wait: the offset is on the device before the next messages are taken; see Batch.ack.
        Thread-safety: any number of threads. Raises TypeError for a coroutine or generator function, OSError from reading and
        writing, and the errors of a retry.
        """
        check_handler(handle, concurrency, awaits=False)
        if stop is not None and not callable(getattr(stop, "is_set", None)):      # of threading, or multiprocessing
            raise illegal("stop", stop, "give a threading.Event")
        if concurrency == 1:
            self._work(handle, () if stop is None else (stop,), max_count, wait)
            return
        ended = threading.Event()
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self._work(handle, (ended,) if stop is None else (ended, stop), 1, wait)
            except BaseException as error:
                failed.append(error)
            finally:
                ended.set()         # one that ends takes the others along

        others: list[threading.Thread] = []
        try:
            for _ in range(concurrency - 1):
                others.append(start_thread(work, f"rmq-consumer-{self.group}"))
            work()
        finally:
            ended.set()
            for thread in others:
                thread.join()
        if failed:
            raise failed[0]

    def _work(self, handle: Callable[["Message"], object], stops: Sequence[threading.Event], max_count: int,
              wait: bool) -> None:
        while not any(stop.is_set() for stop in stops):
            try:
                batch = self.poll(max_count, timeout=0.2 if stops else None)
            except StoreStateError:
                return
            if batch is None:
                continue
            done = 0
            try:
                for message in batch:
                    self._handle(handle, message)
                    done += 1
                    if any(stop.is_set() for stop in stops):
                        break
            finally:
                batch._settle(done)
            if wait:
                self._flush_offsets()

    def _handle(self, handle: Callable[["Message"], object], message: "Message") -> None:
        try:
            result = handle(message)
        except Exception as error:
            self._tell_failed(message, self.retry(message), error)
        else:
            refuse_unrun("handle", handle, result)

    def _tell_failed(self, message: "Message", to: str, error: BaseException) -> None:
        with self._lock:
            self._failures = failures = self._failures + 1
        emit(Event.MESSAGE_FAILED, error, group=self.group, topic=origin_topic(message), msg_id=message.msg_id, to=to,
             times=message.reconsume_times, error=named(error), failures=failures)

    def _take(self, max_count: int, scan_max: int | None) -> tuple[Batch | None, bool]:
        """A batch, and whether to come again at once without one."""
        passed = 0
        for _ in range(len(self._turn)):
            queue = self._turn[0]
            self._turn.rotate(-1)
            if (self._ordered and queue.out) or (queue.cold and self._cold.spent()):
                continue
            for _ in range(EMPTY_GETS_MAX):
                begin, limit = queue.again[0] if queue.again else (queue.next, None)
                batch, end = self._get(queue, begin, limit, max_count, scan_max)
                if batch is not None:       # in its new place before it leaves the old one: nothing is ever in none
                    queue.out[begin] = end
                if limit is None:
                    queue.next = end
                elif end < limit:
                    queue.again[0] = (end, limit)
                else:
                    queue.again.popleft()
                if batch is not None:
                    return batch, False
                self._commit(queue)         # what the filter left out is done
                if end <= begin or (queue.cold and self._cold.spent()):
                    break
                if scan_max is not None:
                    passed += end - begin
                    if passed >= scan_max:
                        return None, True
            else:
                return None, True
        return None, False

    def _get(self, queue: Queue, begin: int, limit: int | None, max_count: int,
             scan_max: int | None) -> tuple[Batch | None, int]:
        """What is at `begin`: a batch and its end, or None and where to continue."""
        count = max_count if limit is None else min(max_count, limit - begin)
        begun = time.perf_counter_ns()
        # What failed was chosen once, and a delivery changes properties: it is not filtered again (filterSupportRetry).
        sql = None if queue.topic == retry_topic(self.group) else self.sql
        result = self._store.get(queue.topic, queue.queue_id, begin, count, self.tags, sql=sql, _scan_max=scan_max)
        took = time.perf_counter_ns() - begun
        end = result.next_offset if limit is None else min(result.next_offset, limit)
        queue.cold = self._cold.took(result.disk_bytes + result.passed_disk_bytes)
        if result.status == GetStatus.FOUND:
            messages = list(result)
            last = messages[-1]
            queue.counts.got(queue.queue_id, took, result, self._store.max_log_offset - last.offset - last.size,
                             int(time.time() * 1000) - last.store_timestamp)
            return Batch(self, queue, begin, end, messages), end
        if result.status == GetStatus.OFFSET_OVERFLOW_BADLY:
            emit(Event.OFFSET_BEYOND_END, group=self.group, topic=queue.topic, queue_id=queue.queue_id, offset=begin,
                 end=result.max_offset)
            self._offsets.commit(self.group, queue.topic, queue.queue_id, end)
            return None, end
        return None, max(end, begin)

    # ---- what became of it

    def _settle(self, queue: Queue, begin: int, again: tuple[int, int] | None) -> None:
        with self._lock:
            if again is not None and begin in queue.out and again not in queue.again:
                queue.again.append(again)
            queue.out.pop(begin, None)
            if not self._closed:
                self._commit(queue)
                if again is not None or self._ordered:
                    self._hub.wake()

    def _commit(self, queue: Queue) -> None:
        done = queue.done()
        if self._offsets.query(self.group, queue.topic, queue.queue_id) < done:
            self._offsets.commit(self.group, queue.topic, queue.queue_id, done)

    def _flush_offsets(self) -> None:
        mark = self._offsets.mark()
        self._check()               # what is settled later is not committed
        self._offsets.flush(since=mark)

    def retry(self, message: "Message", *, delay_level: int = 0) -> str:
        """Puts a failed message into %RETRY%group, and the consumer hands it out again. After max_retries retries, or if
        delay_level is negative, the message goes to %DLQ%group instead. Returns the topic.

        The record is like a broker's: reconsume_times counts up, RETRY_TOPIC keeps the first topic, ORIGIN_MESSAGE_ID the first
        message id, RECONSUME_TIME the count. delay_level: the level of delay_levels to wait; 0 means 3 + the number of earlier
        retries. If the store delivers no delayed messages, the retry comes at once. A message whose properties leave no room
        for these goes to %DLQ%group at once, with its own properties. Durability: as put. Raises as put does, but limits of
        the options do not count.
        """
        refused: Exception | None = None
        for back in self._forms(message, delay_level):
            try:
                self._copied(message, back).result()
                return self._count_sent_back(back)
            except TOO_LARGE as error:
                refused = error
        assert refused is not None
        raise refused

    def _copied(self, message: "Message", back: SentBack) -> "PutFuture":
        if back.dead:
            self._topics_known.add(back.topic, readQueueNums=1, writeQueueNums=1)
        return self._store._put_copy(back.topic, properties=back.properties, **back.put)

    def _forms(self, message: "Message", delay_level: int) -> Iterator[SentBack]:
        """What a message that failed becomes: to be put, until one fits, and counted then."""
        times = getattr(message, "reconsume_times", None)
        if times is None:
            raise illegal("message", message, "give a message that the consumer handed out")
        delay_level = whole(delay_level, "delay_level", -COUNT_MAX, COUNT_MAX)
        options = self._store.options
        level = min(delay_level or 3 + max(times, 0), len(options.delay_levels)) if options.delay == "deliver" else None
        return forms_of(message, self.group, options, dead=delay_level < 0 or times >= self.max_retries, level=level)

    def _count_sent_back(self, done: SentBack) -> str:
        """It is put: counts it, tells of a dead letter, returns its topic."""
        with self._lock:
            counts = self._counts.of(self.group, done.origin)
            counts.sent_back += 1
            counts.dead_letters += done.dead
        tell_too_large(done, self.group)
        if done.dead:
            emit(Event.DEAD_LETTER, group=self.group, topic=done.origin, times=done.times, msg_id=done.origin_id, to=done.topic)
        return done.topic

    # ---- life

    def _check(self) -> None:
        if self._closed:
            raise StoreStateError(f"the consumer of group {self.group} is closed: make another one with store.consumer")

    def _check_here(self) -> None:
        with self._lock:            # which raises ForkedProcess in a child
            self._check()

    def _look(self) -> None:
        """Finds queues, also those that are new."""
        for topic, queue_id in [(name, row[0]) for name in self.topics for row in self._store._queues_of(name)]:
            if (topic, queue_id) not in self._queues:
                queue = Queue(topic, queue_id, self._begin(topic, queue_id), self._counts.of(self.group, topic))
                if queue_id != 0:           # that one is watched from the beginning, whether it is there or not
                    self._hub.watch(topic, queue_id)
                self._queues[topic, queue_id] = queue
                self._turn.append(queue)
        self._first_look = False
        self._looked = time.monotonic()     # last: a look that failed is taken again

    def _begin(self, topic: str, queue_id: int) -> int:
        committed = self._offsets.query(self.group, topic, queue_id)
        if committed >= 0:
            return committed
        # A queue that appears later is new altogether: all of it is to be consumed.
        if self._at_end and self._first_look and not topic.startswith(RETRY):
            end = self._store.max_offset(topic, queue_id)
            self._offsets.commit(self.group, topic, queue_id, end)
            return end
        return max(self._store.min_offset(topic, queue_id), 0)

    @property
    def closed(self) -> bool:
        """True once close() was called, or its store is closed: bool."""
        return self._closed or self._store.closed

    def close(self) -> None:
        """Closes the consumer; threads that wait in poll return. When it returns, acknowledged offsets are on the device. The
        next consumer hands out messages again that were not acknowledged. Idempotent. Raises OSError."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._hub.wake()
                if self._waiting == 0:
                    self._hub.close()
        if not self._store.closed:          # also the second time: the first may have failed here
            self._offsets.flush()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.close()
        except ForkedProcess:       # a child of fork leaves the block: there is nothing to close
            pass

    def __reduce__(self) -> Any:
        raise TypeError("a Consumer cannot be pickled or copied: send its messages")

    def __repr__(self) -> str:
        return f"Consumer({self.group!r}, {self.topics!r}, tags={self.tags!r}, sql={self.sql and self.sql.sql!r})"
