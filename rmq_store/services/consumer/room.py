"""What an open store knows of its consumers: offsets, groups and topics from config/, each read when it is first asked for, and
the consumers that are open. Thread-safety: every method."""
import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rmq_store.access.reader._checked import whole
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.reserve import Reserve
from rmq_store.base.io.wants import is_want
from rmq_store.errors import ArgumentIllegal, CorruptionError, DiskFull, StoreNotWriteable, StoreStateError, illegal
from rmq_store.events import Event, emit
from rmq_store.filter._program import chosen_filter
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.consumer import Consumer
from rmq_store.services.consumer.counts import CountTable, GroupCounts
from rmq_store.services.consumer.filters import ConsumerFilters
from rmq_store.services.consumer.handling import COUNT_MAX
from rmq_store.services.consumer.light_offsets import LmqConsumerOffsets
from rmq_store.services.consumer.offsets import ConsumerOffsets
from rmq_store.services.consumer.tables import GroupTable, TopicTable

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait
    from rmq_store.filter._program import SqlFilter

__all__ = ["Consuming"]

_NAME = partial(re.fullmatch, r"[%|A-Za-z0-9_-]{1,120}")


class Consuming:
    """Made when a store is opened. flush_log makes durable what was put, before offsets are written. light: enable_lmq."""

    def __init__(self, files: ControlFiles, root: str, compat: str, readonly: bool, flush_log: Callable[[], object],
                 filters: Callable[[], ConsumerFilters], light: bool = False,
                 topics_changed: Callable[[frozenset[str]], object] | None = None,
                 batches: Callable[[str, str], object] | None = None) -> None:
        """topics_changed, batches: see TopicTable."""
        self._batches = batches
        self._light = light
        self._topics_changed = topics_changed
        self._open_filters = filters
        self._filters: ConsumerFilters | None = None
        self._filtering: set[str] = set()       # groups whose open consumer has registered its filter
        self._files, self._root, self._compat, self._readonly, self._flush_log = files, root, compat, readonly, flush_log
        self._lock = StoreLock(root, "consumers")
        self.removing = StoreLock(root, "removing queues")      # held while queues are removed (services/cleaning/removing)
        # Topics whose entry goes when their files are gone, and the table's changes by then; under its lock.
        self.unfinished: dict[str, int] = {}
        self.reserve = Reserve(files, root)                     # for that, on a full disk; under its lock
        if not readonly:
            self.reserve.keep()
        self._offsets: ConsumerOffsets | None = None
        self._groups: GroupTable | None = None
        self._topics: TopicTable | None = None
        self._open: weakref.WeakValueDictionary[str, Consumer] = weakref.WeakValueDictionary()
        self._counts = CountTable(root)

    def _file(self, name: str) -> ConfigFile:
        return ConfigFile(self._files, self._root, name)

    def offsets_of_file(self) -> ConsumerOffsets | None:
        """The offsets, where a file has some; None: no group has committed any yet. Raises CorruptionError."""
        for name in ("lmqConsumerOffset.json", "consumerOffset.json"):
            if os.path.lexists(os.path.join(self._root, "config", name)) or os.path.lexists(
                    os.path.join(self._root, "config", name + ".bak")):
                return self.offsets
        return None

    def turn_offsets_back(self, ends_of: Callable[[set[str]], Mapping[tuple[str, int], int]]) -> None:
        """While the store opens. Where the log has lost its end, new messages get the queue offsets of lost ones: no group may
        have passed them. On the device before the first put, unless the disk is full. ends_of: where the next message of each
        queue of some topics comes. Raises OSError for a want."""
        try:
            if (offsets := self.offsets_of_file()) is None:
                return
        except (CorruptionError, OSError) as error:
            # The file may be read later, when new messages have the offsets of lost ones.
            if isinstance(error, OSError) and is_want(error):
                raise
            return                      # whoever asks for the offsets is told
        ends = ends_of({topic for topic, _ in offsets.table()})
        for group, topic, queue_id, offset, end in offsets.turn_back(lambda *queue: ends.get(queue)):
            emit(Event.OFFSET_TURNED_BACK, group=group, topic=topic, queue_id=queue_id, offset=offset, end=end)
        try:
            offsets.flush()
        except DiskFull as error:       # the control thread writes them with the next ones
            emit(Event.TASK_FAILED, task="writing consumer offsets", path=self._root, error=str(error))

    @property
    def offsets(self) -> ConsumerOffsets:
        with self._lock:
            if self._offsets is None:
                file = self._file("consumerOffset.json")
                more: dict[str, Any] = {
                    "compat": self._compat, "readonly": self._readonly, "flush_log": self._flush_log}
                self._offsets = (LmqConsumerOffsets(self._file("lmqConsumerOffset.json"), file, **more) if self._light
                                 else ConsumerOffsets(file, **more))
            return self._offsets

    @property
    def groups(self) -> GroupTable:
        with self._lock:
            if self._groups is None:
                self._groups = GroupTable(self._file("subscriptionGroup.json"), compat=self._compat, readonly=self._readonly)
            return self._groups

    @property
    def topics(self) -> TopicTable:
        with self._lock:
            if self._topics is None:
                self._topics = TopicTable(self._file("topics.json"), compat=self._compat, readonly=self._readonly,
                                          changed=self._topics_changed, batches=self._batches)
            return self._topics

    @property
    def filters(self) -> ConsumerFilters:
        with self._lock:
            if self._filters is None:
                self._filters = self._open_filters()
            return self._filters

    def topics_now(self) -> TopicTable:
        """config/topics.json as it is now: beside another process that writes it. Raises CorruptionError, OSError."""
        return TopicTable(self._file("topics.json"), compat=self._compat, readonly=True)

    def consumer(self, store: "StoreWait", group: str, topics: str | Sequence[str], *, tags: str | None,
                 sql: "str | SqlFilter | None", start: str, ordered: bool, max_retries: int | None) -> Consumer:
        if not isinstance(topics, str) and not isinstance(topics, Iterable):
            raise illegal("topics", topics, "give the name of a topic, or several")
        names = [topics] if isinstance(topics, str) else list(topics)
        for what, name in (("group", group), *(("topic", name) for name in names)):
            if not isinstance(name, str) or not _NAME(name):
                raise illegal(what, name, "give a name of up to 120 characters % | A-Z a-z 0-9 _ -")
        if not names:
            raise ArgumentIllegal("topics is empty: name at least one")
        if start not in ("first", "last"):
            raise illegal("start", start, "give 'first' or 'last'")
        chosen = chosen_filter(sql, tags)
        if max_retries is not None:
            whole(max_retries, "max_retries", 0, COUNT_MAX)
        if self._readonly:
            raise StoreNotWriteable(self._root)
        offsets, groups, known = self.offsets, self.groups, self.topics
        offsets.keep_written(store.options.offsets_flush_interval_ms)
        with self._lock:
            self._refuse_twice(group)
            made = Consumer(store, offsets, groups, known, self._counts, group, names, tags=tags, sql=chosen,
                            start=start, ordered=ordered, max_retries=max_retries)
            self._open[group] = made
        if chosen is not None and store.options.enable_calc_filter_bit_map:
            self.filters.register_group(group, dict.fromkeys(names, chosen))
            self._filtering.add(group)
        return made

    def refuse_if_consumed(self, group: str) -> None:
        """Raises StoreStateError where the group has an open consumer: it would commit over what is set now."""
        with self._lock:
            self._refuse_twice(group)

    def topics_consumed(self) -> set[str]:
        """Topics of the open consumers."""
        with self._lock:
            found = [reference() for reference in self._open.valuerefs()]     # a copy: others are collected meanwhile
        return {topic for consumer in found if consumer is not None and not consumer.closed for topic in consumer.topics}

    def _refuse_twice(self, group: str) -> None:
        other = self._open.get(group)
        if other is not None and not other.closed:
            raise StoreStateError(f"group {group} has an open consumer in this store: close that one first (any number of "
                                  "threads may poll one consumer)")

    def counts_of(self, group: str, topic: str) -> GroupCounts:
        """The counts of one group and topic, to be counted up."""
        return self._counts.of(group, topic)

    def counts(self) -> list[GroupCounts]:
        """What consumers got since the opening, by group and topic."""
        return self._counts.all()

    def flush(self) -> None:
        """Writes what changed in any of the files."""
        for group in list(self._filtering):
            other = self._open.get(group)
            if other is None or other.closed:
                self._filtering.discard(group)
                self.filters.unregister(group)
        for table in self._tables():
            table.flush()

    def end(self, write: bool = True) -> None:
        """The store closes, its log is flushed: writes what changed, unless that failed; from then on flush() is refused."""
        failed: list[OSError] = []
        for group in self._filtering:
            self.filters.unregister(group)
        try:
            if write:
                self.reserve.give()
        except OSError as error:
            failed.append(error)
        if write and not self._readonly:
            self._load_changed()
        for table in self._tables():
            try:
                table.end(write)
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _load_changed(self) -> None:
        """Tables that nobody used, and whose changes a killed process left in a log: their files get them."""
        try:
            for name in ("topics", "subscriptionGroup"):
                if os.path.exists(os.path.join(self._root, "config", name + ".changes")):
                    _ = self.topics if name == "topics" else self.groups
        except CorruptionError as error:        # as it was; whoever uses the table is told
            emit(Event.TASK_FAILED, task="reading a table under config/", path=self._root, error=str(error))

    def _tables(self) -> list[ConsumerOffsets | GroupTable | TopicTable | ConsumerFilters]:
        found = (self._offsets, self._groups, self._topics, self._filters)
        return [table for table in found if table is not None]
