"""What an open store does for groups of consumers and operators: offsets, lag, cleaning, topics. A part of MessageStore."""
from collections.abc import Iterable, Sequence

from rmq_store.base.io.files import ControlFiles
from rmq_store.errors import StoreNotWriteable, illegal
from rmq_store.opened.walking import StoreWalks
from rmq_store.services.cleaning.cleaner import Cleaned, Cleaner, keep_ms
from rmq_store.services.cleaning.removing import RemovedQueues, is_system_topic, remove_expired, remove_topics
from rmq_store.services.consumer.consumer import Consumer
from rmq_store.services.consumer.offsets import ConsumerOffsets
from rmq_store.services.consumer.progress import Lag, lag_of, reset
from rmq_store.services.consumer.tables import GroupTable, TopicTable
from rmq_store.services.delay.service import DelayLevel, DelayService, delay_levels

__all__ = ["StoreServes"]


class StoreServes(StoreWalks):
    """The half of MessageStore that stands on services. Its attributes are set by MessageStore._serve."""

    checkpoint_fd: int = -1
    open_begun: float = 0.0         # time.monotonic
    _files: ControlFiles
    _cleaner: Cleaner
    _delay: DelayService | None = None
    _followed: tuple[int, int, int] | None = None       # following.py's: (start, device, inode) of a file of the log

    # ---- durability and visibility

    def flush(self) -> int:
        """Makes everything put so far durable; returns the log offset up to which it is. Raises DurabilityError."""
        return self._flush()

    def wait_dispatched(self, timeout: float | None = None) -> bool:
        """Waits until everything put so far can be read by queue and key; False after `timeout` seconds."""
        if timeout is not None and not isinstance(timeout, int | float):
            raise illegal("timeout", timeout, "give seconds, or None for as long as it takes")
        return self._wait_dispatched(timeout)

    # ---- delay

    def delay_levels(self) -> list[DelayLevel]:
        """How far each delay level is that has, or had, messages: list of (level, delay_ms, offset, max_offset, waiting,
        next_due). Any thread; read-only, it tells what config/delayOffset.json says. Upstream: ScheduleMessageService."""
        self._check_open()
        return delay_levels(self, self._delay, self._files)

    # ---- what consumers have read, and deleting what is old

    @property
    def offsets(self) -> ConsumerOffsets:
        """How far each consumer group is: ConsumerOffsets. Raises CorruptionError where the file and its .bak are damaged."""
        self._check_open()
        return self._consuming.offsets

    @property
    def group_table(self) -> GroupTable:
        """config/subscriptionGroup.json: GroupTable. Raises CorruptionError."""
        self._check_open()
        return self._consuming.groups

    @property
    def topic_table(self) -> TopicTable:
        """config/topics.json: TopicTable. Raises CorruptionError."""
        self._check_open()
        return self._consuming.topics

    def consumer(self, group: str, topics: str | Sequence[str], *, tags: str | None = None, start: str = "first",
                 ordered: bool = False, max_retries: int | None = None) -> Consumer:
        """A consumer of one group: hands out messages, remembers which are done, tries again those that failed.

        topics: one or several. tags: "A || B". start: where a group begins that has committed nothing: "first" message there
        is, or "last", only new ones. ordered: hand out one batch of a queue at a time. max_retries: before a message goes to
        %DLQ%group; default retryMaxTimes of the group in group_table, 16. One open consumer a group; any number of threads may
        poll it. Raises ValueError, StoreStateError, CorruptionError.
        """
        self._check_open()
        return self._consuming.consumer(self, group, topics, tags=tags, start=start, ordered=ordered, max_retries=max_retries)

    def lag(self, group: str | None = None, topic: str | None = None) -> list[Lag]:
        """How far groups are behind, queue by queue: list of Lag, by group, topic and queue."""
        return lag_of(self, self.offsets, group, topic)

    def reset_offset(self, group: str, topic: str, *, timestamp: int | None = None, offset: int | None = None,
                     queue_id: int | None = None) -> dict[int, int]:
        """Has a group go on at another place, in one queue of `topic` or in all; returns {queue id: next offset}.

        timestamp: ms since 1970, at the first message stored then or later, -1: at the end. offset: that queue offset. Written
        with the next `offsets.flush()`. Raises ValueError for a place outside of the queue, StoreStateError while the group has
        an open consumer here. Upstream: resetOffsetByTime.
        """
        offsets = self.offsets
        self._consuming.refuse_if_consumed(group)
        return reset(self, offsets, group, topic, timestamp=timestamp, offset=offset, queue_id=queue_id)

    def clean(self, hours: float | None = None, *, files_max: int | None = None, pace_ms: int | None = None) -> Cleaned:
        """Deletes now, whatever the hour: whole commit-log files that were last modified `hours` ago or earlier, oldest first,
        and what leads into them from queues and index.

        hours: default retention_hours; 0 deletes all that is flushed and dispatched, up to the newest file, which always stays.
        files_max: at most so many. pace_ms: pause between two, default clean_pace_ms. Files that message views look at are
        waited for by later calls. Whether anybody consumed the messages makes no difference; `lost` of the result says who had
        not. Durable: what is deleted stays deleted. Raises ValueError, StoreStateError, OSError.
        Thread-safety: any; one call at a time cleans. Upstream: executeDeleteFilesManually.
        """
        self._check_writable()
        return self._cleaner.clean(self, keep_ms(self.options, hours), files_max, pace_ms)

    def cleanable(self, hours: float | None = None, *, files_max: int | None = None) -> list[int]:
        """Log offsets of the commit-log files that clean() with these arguments would delete now: list of int. Also of a
        readonly store; of one that was not closed cleanly, as far as its queues lead."""
        self._check_open()
        return self._cleaner.due(self, keep_ms(self.options, hours), files_max)

    def clean_expired_queues(self) -> RemovedQueues:
        """Removes queues all of whose messages cleaning has deleted; the next message of such a queue has queue offset 0, and
        groups that were further on begin there. Durable. Any thread. Upstream: cleanExpiredConsumerQueue."""
        self._check_writable()
        return remove_expired(self, self._consuming, self._files)

    def delete_topics(self, *topics: str) -> RemovedQueues:
        """Removes the queues of these topics, their entries in topic_table, and groups' offsets of them; the messages stay in
        the log until it is cleaned. A topic of an open consumer stays. Durable. Any thread. Upstream: deleteTopics."""
        self._check_writable()
        for topic in topics:
            if not isinstance(topic, str):
                raise illegal("topic", topic, "give each as a str")
        return remove_topics(self, self._consuming, self._files, topics)

    def clean_unused_topics(self, keep: Iterable[str]) -> RemovedQueues:
        """delete_topics for all that is neither in `keep` nor upstream's own (removing.py). Upstream: cleanUnusedTopic."""
        kept = set(keep)
        return self.delete_topics(*(t for t in self.topics() if t not in kept and not is_system_topic(t)))

    def _check_writable(self) -> None:
        self._check_open()
        if self.readonly:
            raise StoreNotWriteable(self.path)
