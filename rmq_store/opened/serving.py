"""What an open store does for consumers, producers and operators: offsets, lag, transactions, cleaning, topics. A part of
MessageStore."""
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from rmq_store.access.reader._message import Message
from rmq_store.access.writer._arguments import joined_keys
from rmq_store.access.writer.keyed import need_key
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.codec.timer import span_ms, time_ms
from rmq_store.errors import ArgumentIllegal, CorruptionError, StoreNotWriteable, StoreStateError, illegal
from rmq_store.events import Event, emit
from rmq_store.filter._program import SqlFilter, chosen_filter
from rmq_store.opened.entering import Entering
from rmq_store.opened.subscribing import Offsets, Subscription
from rmq_store.opened.timing import StoreTimers
from rmq_store.services.cleaning._clean import queue_ends, topic_ends
from rmq_store.services.cleaning.cleaner import Cleaned, Cleaner, keep_ms
from rmq_store.services.cleaning.removing import (
    RemovedQueues,
    finish_removed,
    is_system_topic,
    remove_expired,
    remove_mirrored,
    remove_topics,
)
from rmq_store.services.compaction.files import queues_on_disk
from rmq_store.services.compaction.service import Compacted, Compactions, CompactionState, Older
from rmq_store.services.compaction.table import KEYS_MAX, Table
from rmq_store.services.consumer.consumer import Consumer
from rmq_store.services.consumer.filters import ConsumerFilters
from rmq_store.services.consumer.offsets import ConsumerOffsets
from rmq_store.services.consumer.progress import Lag, MessageCount, count_messages, lag_of, reset
from rmq_store.services.consumer.tables import GroupTable, TopicTable, batch_topics
from rmq_store.services.delay.service import DelayLevel, delay_levels
from rmq_store.services.transaction.checking import Check, Checker
from rmq_store.services.transaction.service import PendingTransaction, Transactions
from rmq_store.services.transaction.transaction import Transaction

if TYPE_CHECKING:
    from datetime import datetime

    from rmq_store.access.reader._query import QueryResult
    from rmq_store.access.writer._put import Body, Keys, Properties

__all__ = ["StoreServes"]

Boundary = Literal["lower", "upper", "nearest"]


_query_key = StoreTimers.query_key


class StoreServes(StoreTimers):
    """The half of MessageStore that stands on services. Its attributes are set by MessageStore._serve."""

    checkpoint_fd: int = -1
    open_begun: float = 0.0         # time.monotonic
    _cleaner: Cleaner
    _filters: ConsumerFilters | None = None     # since the store opened, where it makes bit maps
    _compactions: Compactions
    _policies: tuple[tuple[int, int], frozenset[str]] = (0, 0), frozenset()
    _transactions: Transactions
    _checker: Checker
    _entering: Entering | None = None
    _followed: tuple[int, int, int] | None = None       # following.py's: (start, device, inode) of a file of the log

    def _look_for_batch_topics(self) -> None:
        """Of a store that follows another process, before it waits for a queue that it does not know: its kind."""
        for topic in sorted((batch_topics(ControlFiles(IoTable()), self.path) or frozenset()) - self.batch_topics):
            with suppress(ArgumentIllegal):         # somebody has waited for it already
                self._batch_topic(topic, "take")
                self._batch_topic(topic, "open")

    # ---- durability and visibility

    def flush(self) -> int:
        """Makes all messages put so far durable. Returns the log offset where the durable part ends. Raises DurabilityError."""
        return self._flush()

    def wait_dispatched(self, timeout: float | None = None) -> bool:
        """Waits until every message put so far can be read by queue and key. Returns False after `timeout` seconds. Without a
        timeout it raises DiskFull or OutOfResources after dispatch has stood still for 5 s for want of something."""
        if timeout is not None and not isinstance(timeout, int | float):
            raise illegal("timeout", timeout, "give seconds, or None for as long as it takes")
        return self._wait_dispatched(timeout)

    # ---- arrivals

    def subscribe(self, topic: str, queue_id: int | Iterable[int] | None = None, *, offset: Offsets = None,
                  tags: str | None = None, max_count: int = 32, sql: str | SqlFilter | None = None,
                  timeout: float | None = None) -> Subscription:
        """Yields messages as they arrive: `for message in store.subscribe("T", 0, offset=n)`. A blocking iterator.

        queue_id: one, several, or None for all queues of the topic, new queues too. offset: where to begin, a number for all
        queues, or a mapping of queue id to number; -1 is the present end, None the oldest message. tags, sql: as get.
        max_count: how many messages one read takes at most. timeout: seconds; where no message comes for so long, the iteration
        ends, and a later one continues there. None: it ends with `close` alone. The order within a queue is kept; queues take
        turns. The wait releases the GIL. Iterate in `with store.subscribe(...) as messages`, or call `close`. The store keeps
        no offset: `messages.offsets` has the next one of each queue. Raises StoreClosed from the iteration, and
        StoreStateError where it would wait on a store that is open read-only without follow=True; ArgumentIllegal, also for an
        offset beyond the end of its queue, FilterIllegal. Thread-safety: any. RocketMQ: PullMessageProcessor
        with PullRequestHoldService.
        """
        self._check_open()
        return Subscription(self, topic, queue_id, offset, tags, max_count, chosen_filter(sql, tags), timeout)

    # ---- delay

    def delay_levels(self) -> list[DelayLevel]:
        """Returns the progress of each delay level that has, or had, messages: list of (level, delay_ms, offset, max_offset,
        waiting, next_due). Thread-safety: any. A read-only store reports the offsets of config/delayOffset.json. RocketMQ:
        ScheduleMessageService."""
        self._check_open()
        return delay_levels(self, self._delay, self._files)

    # ---- transactions

    def prepare(self, topic: str, body: "Body", *, group: str, queue_id: int = 0, tags: str | None = None, keys: "Keys" = None,
                properties: "Properties" = None, flag: int = 0, sys_flag: int = 0, born_timestamp: int | None = None,
                born_host: str | None = None, reconsume_times: int = 0, wait: bool | None = None) -> Transaction:
        """Stores a message that no reader sees before its transaction is committed. Returns the Transaction.

        group: the producer group, whose callback (`on_check`) decides if nobody else does. The property
        CHECK_IMMUNITY_TIME_IN_SECONDS delays its first check. The other arguments and durability are those of `put`; a
        transaction has no delay level. Raises as put does. Thread-safety: any. RocketMQ:
        TransactionalMessageService.prepareMessage.
        """
        self._check_writable()
        if topic in self._keyed_topics():
            keys = None if keys is None else joined_keys(keys)
            need_key(self._keyed_topics(), topic, keys, properties)
        half = self._transactions.prepare(
            self, topic, body, group, queue_id=queue_id, tags=tags, keys=keys, properties=properties, wait=wait, flag=flag,
            sys_flag=sys_flag, born_timestamp=born_timestamp, born_host=born_host, reconsume_times=reconsume_times)
        return Transaction(self, self._transactions, half)

    def transaction(self, topic: str, body: "Body", *, group: str, **message: Any) -> Transaction:
        """As prepare, for a `with` block: its normal end commits the message, an exception rolls it back."""
        return self.prepare(topic, body, group=group, **message)

    def transaction_by_id(self, id: str) -> Transaction:
        """Returns a transaction by its id (UNIQ_KEY), or by the message id of its half message, also after a restart.

        `state` of the result says whether it is decided. Raises TransactionUnknown, ArgumentIllegal. A store without an index
        finds decided transactions by message id only. Thread-safety: any.
        """
        self._check_open()
        return Transaction(self, self._transactions, self._transactions.of_id(self, id))

    def transactions(self, *, group: str | None = None) -> list[PendingTransaction]:
        """Returns the transactions that are not decided, oldest half message first: list of PendingTransaction. group: only
        those of this producer group. Works on a read-only store too. Thread-safety: any."""
        self._check_open()
        return [row for row in self._transactions.listed(self) if group in (None, row.group)]

    def on_check(self, group: str, callback: Check | None) -> None:
        """Sets the callback of a producer group: callback(transaction) returns "commit", "rollback", or "unknown" (or None).

        One thread of the store calls it for each transaction of the group that is older than transaction_timeout_ms, every
        transaction_check_interval_ms, and at most transaction_check_max times; then the message goes to
        TRANS_CHECK_MAX_TIME_TOPIC. A callback that raises is logged and counts as unknown. Transactions of a group without a
        callback are not checked. None: ask the group no more. Thread-safety: any. RocketMQ: TransactionListener,
        TransactionalMessageCheckService.
        """
        self._check_writable()
        self._checker.add(group, callback)

    # ---- compaction topics, and tables

    def table(self, topic: str, *, keys_max: int = KEYS_MAX) -> Table:
        """Makes a table of a topic: a read-only mapping from each key to the newest Message with it, kept up to date.

        The call reads all messages of the topic that are there. The topic may have either cleanup policy, and queues that come
        later. keys_max: a table that meets more keys raises StoreStateError. Works on a read-only store too. See Table and
        docs/compaction-topics.md. Thread-safety: any. Raises ArgumentIllegal, OSError.
        """
        self._check_open()
        return Table(self, topic, keys_max, self._compactions.version)

    def _take_policies(self, compacted: frozenset[str]) -> None:
        """Topics whose cleanup policy is COMPACTION from now on."""
        if not self.readonly and self.options.compaction_enabled:
            self._set_keyed(compacted)
            self._compactions.take(compacted)

    def _compacted_topics(self) -> frozenset[str]:
        """Those whose compaction logs count; beside a process that writes, as topics.json has them now. Raises
        CorruptionError, OSError."""
        if not self.readonly:
            return self._compactions.topics
        if not self.options.compaction_enabled:
            return frozenset()
        try:
            about = os.stat(os.path.join(self.path, "config", "topics.json"))
        except FileNotFoundError:
            return frozenset()
        now = about.st_ino, about.st_mtime_ns
        if now != self._policies[0]:
            self._policies = now, self._consuming.topics_now().compacted()
        return self._policies[1]

    def _older(self, topic: str, queue_id: int, offset: int, limit: int, count_max: int,
               bytes_max: int) -> tuple[list[Message], int, int, int] | None:
        """For get: what the log of the store has no more of a queue."""
        if topic not in self._compacted_topics():
            return None
        return self._compactions.read(self, topic, queue_id, offset, limit, count_max, bytes_max)

    def _older_keys(self, topic: str, key: str, begin_time: int, end_time: int, count_max: int) -> list[Message]:
        """For query_key: what the log of the store has no more."""
        if topic not in self._compacted_topics():
            return []
        return self._compactions.search(self, topic, key, begin_time, end_time, count_max)

    def compaction_states(self, topic: str | None = None) -> list[CompactionState]:
        """Returns what the compaction logs of a topic, or of all compaction topics, have, and how far they are: list of
        CompactionState. Reads the entries, not the records. Works on a read-only store too. Thread-safety: any. Raises OSError,
        CorruptionError if topics.json is damaged."""
        self._check_open()
        topics = self._compacted_topics()
        return self._compactions.states(self, topics if topic is None else topics & {topic})

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset that can be read: int; -1 if there is no such queue. Of a compaction topic it may be that of a
        message in the compaction log. RocketMQ: getMinOffsetInQueue."""
        older = self._older_entries(topic, queue_id)
        return super().min_offset(topic, queue_id) if older is None else older.offset(0)

    def total(self, topic: str, queue_id: int) -> int:
        """Number of readable messages of a queue: int. RocketMQ: getMessageTotalInQueue."""
        older = self._older_entries(topic, queue_id)
        return super().total(topic, queue_id) + (0 if older is None else older.count)

    def message_by_id(self, msg_id: str) -> Message | None:
        found = super().message_by_id(msg_id)
        return found if found is not None and found.msg_id == msg_id.upper() else None      # else of another store's log

    def query_key(self, topic: str, key: str, max_count: int | None = None, begin_time: "int | datetime" = 0,
                  end_time: "int | datetime | None" = None, *, exact: bool = True) -> "QueryResult":
        if exact and begin_time == 0 and end_time is None:      # the usual call, which takes a third of a microsecond
            return _query_key(self, topic, key, max_count)
        begin, end = span_ms(begin_time=begin_time, end_time=end_time)
        return _query_key(self, topic, key, max_count, begin or 0, end, exact=exact)

    message_by_id.__doc__, query_key.__doc__ = StoreTimers.message_by_id.__doc__, StoreTimers.query_key.__doc__

    def offset_by_time(self, topic: str, queue_id: int, timestamp: "int | datetime", *,
                       boundary: Boundary | None = None) -> int:
        """Returns the queue offset for a store time (ms since 1970, or an aware datetime): int; 0 if there is no such queue. Of
        a compaction topic it may be that of a message in the compaction log.

        boundary: "lower" = the first message stored at this time or later, "upper" = the last message stored at this time or
        earlier, "nearest" = the rule of 4.9, which also uses modification times of files. Default: "nearest" with compat 4.9,
        else "lower". Raises ArgumentIllegal, OSError. RocketMQ: getOffsetInQueueByTime.
        """
        return self._offset_by_time(topic, queue_id, time_ms(timestamp, "timestamp"), boundary)

    def _offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary | None = None) -> int:
        """As offset_by_time, of any number: RocketMQ's broker answers a client for each."""
        found = super().offset_by_time(topic, queue_id, timestamp, boundary=boundary)
        return self._older_by_time(topic, queue_id, timestamp, found, boundary == "upper")

    def _lower_bound(self, topic: str, queue_id: int, timestamp: int) -> int:
        return self._older_by_time(topic, queue_id, timestamp, super()._lower_bound(topic, queue_id, timestamp), False)

    def _older_by_time(self, topic: str, queue_id: int, timestamp: int, found: int, upper: bool) -> int:
        """found: what the log of the store has."""
        older = self._older_entries(topic, queue_id)
        if older is None:
            return found
        before = older.by_time(timestamp, upper)
        if before is None and upper and not 0 <= super().earliest_time(topic, queue_id) <= timestamp:
            before = older.offset(older.count - 1)
        return max(found, older.low) if before is None else before

    def earliest_time(self, topic: str | None = None, queue_id: int | None = None) -> int:
        """Store time (ms since 1970) of the oldest message of a queue, or without arguments of the log: int; -1 if none.

        Of a compaction topic that message may be in the compaction log. RocketMQ: getEarliestMessageTime.
        """
        older = None if topic is None or queue_id is None else self._older_entries(topic, queue_id)
        return super().earliest_time(topic, queue_id) if older is None else older.time(0)

    def _older_entries(self, topic: str, queue_id: int) -> Older | None:
        """What the log of the store has no more of a queue, and its compaction log has."""
        low = super().min_offset(topic, queue_id)
        return self._compactions.older(topic, queue_id, low) if low > 0 and topic in self._compacted_topics() else None

    def _compacted(self, topic: str, queue_id: int) -> bool:
        return self._compactions.compacted(topic, queue_id)

    def compact(self, topic: str | None = None, *, dry_run: bool = False) -> list[Compacted]:
        """Compacts the queues of a compaction topic, or of all, now: of all messages but those in the newest file of a queue's
        compaction log, the newest of each key stays. Returns what was compacted: list of Compacted(topic, queue_id, messages,
        kept, size, kept_size), sizes in bytes of records. dry_run: reads the compaction logs as they are, changes nothing, and
        returns what a compaction would do; works on a read-only store too.

        The store does this every compaction_interval_ms. Waits for a compaction that is under way. Durable when it returns.
        Raises StoreStateError if the topic has another cleanup policy, CorruptionError if the compaction log is damaged,
        DiskFull or OutOfResources if dispatch stands for want of it, OSError; queues without an error are compacted before.
        Thread-safety: any. RocketMQ: CompactionLog.doCompaction.
        """
        self._check_open() if dry_run else self._check_writable()
        topics = self._compacted_topics()
        if topic is not None and topic not in topics:
            raise StoreStateError(f"topic {topic} of {self.path} is not compacted: its cleanup policy is not COMPACTION, or "
                                  "the store is open with compaction_enabled=False")
        if dry_run:
            return self._compactions.weigh(self, topics if topic is None else (topic,))
        self._flush()
        self._wait_dispatched(None)
        return self._compactions.compact(self, topic)

    def _take_config(self) -> None:
        """While the store opens: what its files say of topics and of groups."""
        self._take_policies_of_file()
        if not self.readonly and self.options.role != "slave":      # a slave's groups read at its master, ahead of its log
            self._consuming.turn_offsets_back(self._next_offsets)

    def _next_offsets(self, topics: set[str]) -> dict[tuple[str, int], int]:
        """Of each queue of these topics: where its next message comes, dispatched or not."""
        return ({(topic, queue_id): 0 for topic in topics for queue_id, _, _ in self._queues_of(topic)}
                | {(topic, queue_id): end for _, topic, queue_id, _, end in topic_ends(self, topics)})

    def _take_policies_of_file(self) -> None:
        """While the store opens. A topics.json that cannot be read is no reason to refuse the messages."""
        try:
            if os.path.exists(os.path.join(self.path, "config", "topics.json")):
                self._take_policies(self._consuming.topics.compacted())
        except CorruptionError as error:
            self._compactions.take(frozenset(topic for topic, _ in queues_on_disk(self.path)))     # no value may be lost for it
            emit(Event.TASK_FAILED, task="reading the cleanup policies of topics", path=self.path, error=str(error))

    # ---- what consumers have read, and deleting what is old

    @property
    def offsets(self) -> ConsumerOffsets:
        """The offsets of consumer groups: ConsumerOffsets. Raises CorruptionError if the file and its .bak are damaged."""
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

    @property
    def consumer_filters(self) -> ConsumerFilters:
        """The SQL92 filters that groups have registered, config/consumerFilter.json: ConsumerFilters. Raises
        CorruptionError."""
        self._check_open()
        return self._consuming.filters

    def consumer(self, group: str, topics: str | Sequence[str], *, tags: str | None = None,
                 sql: str | SqlFilter | None = None, start: str = "first", ordered: bool = False,
                 max_retries: int | None = None) -> Consumer:
        """Makes a consumer of one group. It hands out messages, records which are done, and retries those that failed.

        topics: one or several names. tags: "A || B". sql: a SQL92 filter in place of tags, as for get; what it leaves out
        counts as done, and retried messages pass it. start: where a group without committed offsets begins: "first" is the
        oldest message, "last" means only new messages. ordered: hand out one batch of a queue at a time. max_retries: how many
        retries before a message goes to %DLQ%group; default: retryMaxTimes of the group in group_table, 16. A group has at most
        one open consumer; any number of threads may poll it. Raises ValueError, StoreStateError, CorruptionError.
        """
        self._check_open()
        return self._consuming.consumer(self, group, topics, tags=tags, sql=sql, start=start, ordered=ordered,
                                        max_retries=max_retries)

    def lag(self, group: str | None = None, topic: str | None = None, *, tags: str | None = None,
            sql: str | SqlFilter | None = None) -> list[Lag]:
        """Returns the lag of groups for each queue: list of Lag, ordered by group, topic and queue. With tags or sql `matching`
        is how many of the messages behind pass this filter, counted or estimated as by estimate_message_count. Raises
        FilterIllegal, ArgumentIllegal, OSError."""
        return lag_of(self, self.offsets, group, topic, tags, sql)

    def estimate_message_count(self, topic: str, queue_id: int, begin: int, end: int, *, tags: str | None = None,
                               sql: str | SqlFilter | None = None) -> MessageCount:
        """Counts the messages of a queue from offset `begin` to before `end` that pass a filter: MessageCount(messages, exact).

        tags: "A || B", compared by hash code; sql: a SQL92 filter in place of tags. Offsets outside of the queue are moved into
        it. The call examines at most count_scan_max entries from `begin` on, and stops when more than count_matches_max have
        passed. If entries are left then, `messages` is the same share of all entries, and `exact` is False. Thread-safety: any.
        Raises FilterIllegal, ArgumentIllegal, OSError. RocketMQ: MessageStore.estimateMessageCount, which does not evaluate
        SQL92 filters over messages without a bit map.
        """
        self._check_open()
        return count_messages(self, topic, queue_id, begin, end, tags, sql)

    def reset_offset(self, group: str, topic: str, *, timestamp: "int | datetime | None" = None, offset: int | None = None,
                     queue_id: int | None = None) -> dict[int, int]:
        """Moves the offset of a group, in one queue of `topic` or in all. Returns {queue id: next offset}.

        timestamp: ms since 1970, or an aware datetime; the group continues at the first message stored at this time or later;
        -1: at the end. offset: the group continues at this queue offset. The next `offsets.flush()` writes the change. Raises
        ValueError if the offset is outside of the queue, StoreStateError while the group has an open consumer here. RocketMQ:
        resetOffsetByTime.
        """
        offsets = self.offsets
        self._consuming.refuse_if_consumed(group)
        return reset(self, offsets, group, topic, timestamp=timestamp, offset=offset, queue_id=queue_id)

    def clean(self, hours: float | None = None, *, files_max: int | None = None, pace_ms: int | None = None) -> Cleaned:
        """Deletes whole commit-log files that were last modified `hours` ago or earlier, oldest first, and the queue files and
        index files that point into them. It deletes at once, whatever retention_hours_of_day says.

        hours: default retention_hours; 0 deletes all flushed and dispatched files but the newest, which always stays.
        files_max: delete at most this many files. pace_ms: pause between two files, default clean_pace_ms. A file that message
        views use is left to later calls. Files are deleted whether or not their messages were consumed; `lost` of the result
        names the groups that had not consumed them. Durability: deleted files stay deleted. Raises ValueError,
        StoreStateError, OSError. Thread-safety: any; one call at a time cleans. RocketMQ: executeDeleteFilesManually.
        """
        self._check_writable()
        return self._cleaner.clean(self, keep_ms(self.options, hours), files_max, pace_ms)

    def cleanable(self, hours: float | None = None, *, files_max: int | None = None) -> list[int]:
        """Returns the log offsets of the commit-log files that clean() with these arguments would delete now: list of int.
        Works on a read-only store too. For a store that was not closed cleanly, the list ends where its queues end."""
        self._check_open()
        return self._cleaner.due(self, keep_ms(self.options, hours), files_max)

    def clean_expired_queues(self) -> RemovedQueues:
        """Removes the queues whose messages are all deleted by cleaning. The next message of such a queue has queue offset 0,
        and groups with a higher offset begin there. Durable. Raises StoreStateError on a slave. Thread-safety: any. RocketMQ:
        cleanExpiredConsumerQueue."""
        self._check_removes()
        return remove_expired(self, self._consuming, self._files, self._compactions.topics)

    def delete_topics(self, *topics: str) -> RemovedQueues:
        """Removes the queues of these topics, their entries in topic_table, and the groups' offsets. The messages stay in the
        log until cleaning deletes them. A topic with an open consumer stays. Durable. For want of descriptors, memory or room,
        files of a removed queue may stay for a while (`pending` of the result), which nobody reads and the store deletes by
        itself; or the call raises DiskFull or OutOfResources: make it again. Raises StoreStateError on a slave. Thread-safety:
        any. RocketMQ: deleteTopics."""
        self._check_removes()
        for topic in topics:
            if not isinstance(topic, str):
                raise illegal("topic", topic, "give each as a str")
        try:
            return remove_topics(self, self._consuming, self._files, topics, self._compactions.remove)
        finally:
            self._forget_arrivals(topics)

    def _finish_deletions(self) -> None:
        """What deletions have left behind for want of something. Raises OSError."""
        finish_removed(self, self._consuming)
        self._compactions.remove_files()

    def _begin_anew(self, rows: list[tuple[int, str, int, int]]) -> None:
        """Of a slave: its master has removed these queues (remove_mirrored)."""
        remove_mirrored(self, self._consuming, self._files, rows)
        for _, topic, queue_id, _ in rows:
            self._compactions.remove(topic, queue_id)
        self._forget_arrivals(tuple({topic for _, topic, _, _ in rows}))

    def _begin_topic_anew(self, topic: str, queue_id: int, at: int) -> list[tuple[int, str, int, int]]:
        """Of a slave: its master has deleted the topic before the message of that queue at log offset `at`. The queue goes
        last: its messages say so until then. Returns what _begin_anew got."""
        rows = [(number, name, other, at) for number, name, other, *_ in queue_ends(self) if name == topic]
        rows.sort(key=lambda row: row[2] == queue_id)
        if rows:
            self._begin_anew(rows)
        return rows

    def _forget_arrivals(self, topics: tuple[str, ...]) -> None:
        """Queues of these topics begin anew. MessageStore has the listeners."""

    def clean_unused_topics(self, keep: Iterable[str]) -> RemovedQueues:
        """Deletes all topics that are neither in `keep` nor RocketMQ's own; see delete_topics. RocketMQ: cleanUnusedTopic."""
        kept = set(keep)
        return self.delete_topics(*(t for t in self.topics() if t not in kept and not is_system_topic(t)))

    def _check_writable(self) -> None:
        self._check_open()
        if self.readonly:
            raise StoreNotWriteable(self.path)

    def _check_removes(self) -> None:
        self._check_writable()
        if self.options.role == "slave":
            raise StoreStateError(f"the store at {self.path} is a slave, whose queues are its master's: remove topics and "
                                  "queues on the master")
