"""Walking through an open store: the whole log, a topic, a queue, a span of time. Any thread; nothing is changed."""
import bisect
import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rmq_store.access.reader._checked import whole
from rmq_store.access.reader._message import Message
from rmq_store.codec._layout import FLAG_INNER_BATCH
from rmq_store.codec.timer import span_ms
from rmq_store.errors import illegal
from rmq_store.opened.reports import StoreReports
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["StoreWalks"]


class StoreWalks(StoreReports):
    """The walking part of a store. Thread-safety: any. A closed store raises StoreClosed."""

    def log_records(self, begin: int | None = None,
                    end: int | None = None) -> Iterator[tuple[str, int, int, Message | None]]:
        """Yields every record of the raw log in [begin, end): (kind, offset, size, message). kind is "msg"; with message None
        it is "blank" for the end of a file, and "missing" for a stretch that a read-only store lacks and passes over (several
        directories, skip_holes). This includes messages without a queue entry. Raises CorruptionError."""
        at = self.min_log_offset if begin is None else whole(begin, "begin", 0, (1 << 63) - 1)
        limit = self.max_log_offset if end is None else min(whole(end, "end", 0, (1 << 63) - 1), self.max_log_offset)
        while True:
            record = self._next_record(at, limit)
            if record is not None:
                kind, offset, size, message, at = record
                yield kind, offset, size, message
            elif at < self.min_log_offset:
                at = self.min_log_offset        # deleted meanwhile, or before the log begins
            else:
                return

    def scan(self, topic: str | None = None, queue_id: int | None = None, *, begin_time: "int | datetime | None" = None,
             end_time: "int | datetime | None" = None, begin: int | None = None) -> Iterator[Message]:
        """Yields messages in order: of one queue (topic and queue_id), of a topic as the log has it, or of the whole log.

        Of a topic without queue_id, and of the whole log, it yields all records of the log: also those that no queue leads to,
        which are prepared and rolled back transactions, and messages of a deleted topic or queue. A walk through each of
        store.queues(topic) yields what get returns. Of a light queue (`%LMQ%` and its name) it yields what the queue leads to.

        begin_time, end_time: store times in ms since 1970 or as aware datetimes, both included. begin: first queue offset (with
        queue_id, and of a light queue) or log offset (without topic). A walk includes messages that are put while it runs, and
        ends at the last message. Message views keep their files mapped while they live. The first step of the walk raises
        ArgumentIllegal.
        """
        for message in self._scan_steps(topic, queue_id, begin_time=begin_time, end_time=end_time, begin=begin):
            if message is not None:
                yield message

    def _scan_steps(self, topic: str | None, queue_id: int | None, *, begin_time: "int | datetime | None" = None,
                    end_time: "int | datetime | None" = None, begin: int | None = None) -> Iterator[Any]:
        """As scan, and None for each record that it passes over: an event loop gives others a turn there."""
        if topic is not None and not isinstance(topic, str):
            raise illegal("topic", topic, "give a str, or None for all of the log")
        if topic is None and queue_id is not None:
            raise illegal("queue_id", queue_id, "give the topic of the queue, too")
        for name, value in (("queue_id", queue_id), ("begin", begin)):
            if value is not None:
                whole(value, name, -1 << 63, (1 << 63) - 1)
        first, last = span_ms(begin_time=begin_time, end_time=end_time)
        if topic is not None and (queue_id is not None or topic.startswith(LMQ_PREFIX)):
            # A light queue's records are in the log under the topics that they were put to.
            for queue in self.queues(topic) if queue_id is None else (queue_id,):
                yield from self._scan_queue(topic, queue, first, last, begin)
            return
        if topic is not None:
            yield from self._scan_older(topic, first, last)
        start = begin if topic is None and begin is not None else self._log_offset_before(first)
        for _, _, _, message in self.log_records(start):
            if message is None or (topic is not None and message.topic != topic):
                yield None
                continue
            if last is not None and message.store_timestamp > last:
                return
            if first is not None and message.store_timestamp < first:
                yield None
            elif message.sys_flag & FLAG_INNER_BATCH:
                yield from message.unwrap()
            else:
                yield message

    def _log_offset_before(self, timestamp: int | None) -> int:
        """Where a walk over the log has to begin to meet everything stored at or after `timestamp`: the start of a file.

        Store times never run backwards inside a log, so the files' first records are searched, not all records."""
        size, low = self.options.segment_size_bytes, self.min_log_offset
        starts = range(low, max(self.max_log_offset, low + 1), size)
        if timestamp is None or len(starts) < 2:
            return low
        index = bisect.bisect_left(starts, timestamp, key=self._first_time)
        return starts[max(index - 1, 0)]

    def _first_time(self, start: int) -> int:
        message = self.message_at(start)
        return -1 if message is None else message.store_timestamp

    def _scan_queue(self, topic: str, queue_id: int, begin_time: int | None, end_time: int | None,
                    begin: int | None) -> Iterator[Message]:
        at = self.min_offset(topic, queue_id) if begin is None else begin
        if begin_time is not None:
            at = max(at, self._lower_bound(topic, queue_id, begin_time))
        while True:
            result = self.get(topic, queue_id, at, 32)
            if not result.messages and result.next_offset <= at:
                return
            for message in result:
                if end_time is not None and message.store_timestamp > end_time:
                    return
                yield message
            at = result.next_offset

    def _scan_older(self, topic: str, begin_time: int | None, end_time: int | None) -> Iterator[Message]:
        """Of a compaction topic, what the log has no more: in the order of store times."""
        def walk(queue_id: int, low: int) -> Iterator[Message]:
            for message in self._scan_queue(topic, queue_id, begin_time, end_time, None):
                if message.queue_offset >= low:
                    return
                yield message

        yield from heapq.merge(*(walk(queue_id, low) for queue_id, low, _ in self._queues_of(topic)
                                 if self.min_offset(topic, queue_id) < low), key=lambda message: message.store_timestamp)

    def topics(self) -> list[str]:
        """Returns the topics that have or had messages, sorted: list of str."""
        return sorted({topic for topic, _, _, _ in self._queue_list()})

    def queues(self, topic: str) -> list[int]:
        """Returns the queue ids of a topic, sorted: list of int."""
        return [queue for queue, _, _ in self._queues_of(topic)]
