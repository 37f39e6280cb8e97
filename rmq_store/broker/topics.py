"""The topics and subscription groups that the broker knows: config/topics.json and config/subscriptionGroup.json of the store,
as immutable entries that change one by one (RocketMQ: TopicConfigManager, SubscriptionGroupManager, TopicValidator).

Thread-safety: every method. What one more topic or group costs does not depend on how many there are.
"""
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from rmq_store.broker.codes import DEAD, NO_SEND, PERM_INHERIT, PERM_READ, PERM_WRITE, RETRY
from rmq_store.broker.options import BrokerOptions
from rmq_store.fields import NamedTuple
from rmq_store.services.cleaning.removing import is_system_topic
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX
from rmq_store.services.consumer.table import Table
from rmq_store.services.consumer.tables import GroupTable, TopicTable, queue_type
from rmq_store.store import MessageStore

__all__ = ["DEFAULT_TOPIC", "Group", "Groups", "Topic", "Topics", "any_queue", "is_light", "topic_problem"]

DEFAULT_TOPIC = "TBW102"
NAME_MAX, RETRY_NAME_MAX, LIGHT_NAME_MAX = 127, 255, 255
TOPICS_MAX = GROUPS_MAX = 100_000       # that clients can make
_LEGAL = partial(re.fullmatch, r"[%|a-zA-Z0-9_-]+")
READ_WRITE = PERM_READ | PERM_WRITE


class Topic(NamedTuple):
    """One topic as a request needs it."""

    name: str
    read: int
    write: int
    perm: int
    sys_flag: int = 0
    order: bool = False
    batches: bool = False           # its queues are batch queues

    @property
    def queues(self) -> int:
        return max(self.read, self.write)


class Group(NamedTuple):
    """One subscription group as a request needs it."""

    name: str
    consume: bool
    broadcast: bool
    retry_queues: int
    retry_max: int
    notify: bool
    broker_id: int = 0              # of the broker that it reads from,
    slow_broker_id: int = 1         # and while it reads what is no more in memory there


def topic_problem(topic: str) -> str:
    """What is wrong with the name of a topic, in RocketMQ's words; "" for nothing."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _LEGAL(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > (RETRY_NAME_MAX if topic.startswith((RETRY, DEAD)) else NAME_MAX):
        return "The specified topic is longer than topic max length."
    return ""


def is_light(store: MessageStore, name: str) -> bool:
    """Whether a topic is a light queue of this store, or a group one that RocketMQ keeps no entry of."""
    return (store.options.enable_lmq and name.startswith(LMQ_PREFIX) and len(name) <= LIGHT_NAME_MAX
            and _LEGAL(name) is not None)


def any_queue(count: int) -> int:
    """One of so many queues, by chance."""
    return int.from_bytes(os.urandom(4), "big") % max(count, 1)


def _number(entry: Mapping[str, Any], name: str, default: int) -> int:
    value = entry.get(name, default)
    return value if isinstance(value, int) else default


Row = TypeVar("Row")


class _Rows(Generic[Row]):
    """The entries of a table as `make` makes them of a name and an entry. Each changed one is made anew when somebody asks."""

    def __init__(self, table: Table, make: Callable[[str, Mapping[str, Any]], Row]) -> None:
        self._table, self._make = table, make
        self._lock = threading.Lock()
        self._seen = -1
        self._rows: dict[str, Row] = {}
        self._copied, self._copy = -1, self._rows
        self._touched: set[str] | None = None       # names that changed since `touched` was called; None: any may have

    def now(self) -> dict[str, Row]:
        """As they are now: another thread may change it, so ask it for single rows or for its length."""
        if self._table.changes != self._seen:
            with self._lock:
                seen, changed = self._table.changes_since(self._seen)
                if changed is None:
                    self._touched = None
                    self._rows = {name: self._make(name, entry) for name, entry in self._table.entries().items()}
                else:
                    if self._touched is not None:
                        self._touched.update(changed)
                    for name, entry in changed.items():
                        if entry is None:
                            self._rows.pop(name, None)
                        else:
                            self._rows[name] = self._make(name, entry)
                self._seen = seen
        return self._rows

    def touched(self) -> set[str] | None:
        """The names that changed since the last call; None for all. Waits for no other thread's writing of the table, where
        `now` has been called since the change."""
        self.now()
        with self._lock:
            found, self._touched = self._touched, set()
        return found

    def snapshot(self) -> Mapping[str, Row]:
        """A copy that nobody changes; as large as the table."""
        rows = self.now()
        if self._copied != self._seen:
            self._copied, self._copy = self._seen, rows.copy()      # the older number first: it is copied once too often
        return self._copy


class Topics:
    """on_change is called with the name of a topic that came, changed or went, in the thread that changed it."""

    def __init__(self, store: MessageStore, options: BrokerOptions, on_change: Callable[[str], None]) -> None:
        self._store, self._options, self._on_change = store, options, on_change
        self._table: TopicTable = store.topic_table
        self._rows = _Rows(self._table, _topic)
        self._make_reserved()
        for topic in store.topics():
            self.enter(topic)

    def snapshot(self) -> Mapping[str, Topic]:
        """All topics by name. It never changes; ask again for a newer one. Takes the longer the more there are."""
        return self._rows.snapshot()

    def names(self) -> Iterable[str]:
        return list(self._rows.now())

    def touched(self) -> set[str] | None:
        """The names of topics that came, changed or went since the last call; None for all. For one caller."""
        return self._rows.touched()

    def __len__(self) -> int:
        return len(self._rows.now())

    def get(self, name: str) -> Topic | None:
        return self._rows.now().get(name)

    def find(self, name: str) -> Topic | None:
        """As get; a topic that a put of this process made a moment ago is entered first."""
        found = self.get(name)
        if found is None:
            self.enter(name)
            found = self.get(name)
        return found

    def find_to_read(self, name: str) -> Topic | None:
        """As find; a light queue, too, which has queue 0 alone and no entry in the table (RocketMQ: LmqTopicConfigManager)."""
        if is_light(self._store, name):
            return Topic(name, 1, 1, READ_WRITE)
        return self.find(name)

    def create_for_send(self, name: str, default: str, queues: int, sys_flag: int) -> Topic | None:
        """As TopicConfigManager.createTopicInSendMessageMethod: by the topic that the client names as default."""
        model = self.get(default)
        if model is None or (default == DEFAULT_TOPIC and not self._options["autoCreateTopicEnable"]):
            return None
        if not model.perm & PERM_INHERIT:
            return None
        count = max(min(queues, model.write), 0)
        return self.create(name, count, model.perm & ~PERM_INHERIT, sys_flag)

    def create(self, name: str, queues: int, perm: int = READ_WRITE, sys_flag: int = 0) -> Topic | None:
        """The topic, made unless it is there; None where there are too many."""
        found = self.get(name)
        if found is None:
            if len(self) >= TOPICS_MAX:
                return None
            self._table.add(name, readQueueNums=queues, writeQueueNums=queues, perm=perm, topicSysFlag=sys_flag)
            self._on_change(name)
            found = self.get(name)
        return found

    def set(self, name: str, **fields: object) -> None:
        """Changes a topic, or makes it; fields by RocketMQ's names."""
        self._table.set(name, **fields)
        self._on_change(name)

    def remove(self, name: str) -> None:
        done = self._store.delete_topics(name)
        if self.get(name) is not None and not done.pending:     # it never had a message
            self._table.remove(name)
        self._on_change(name)

    def enter(self, name: str) -> None:
        """A topic that a put of this process made: clients get a route to it."""
        if self.get(name) is None and not is_system_topic(name) and not topic_problem(name):
            queues = self._store._queues_of(name)
            if queues:
                self.create(name, max(queue for queue, _, _ in queues) + 1)

    def content(self) -> dict[str, Any]:
        """What config/topics.json holds, on the device first, so that its version is the one that other processes meet."""
        self._table.flush()
        return self._table.content()

    def changes_since(self, seen: int) -> tuple[int, Mapping[str, Any] | None]:
        """As Table.changes_since."""
        return self._table.changes_since(seen)

    def version(self) -> dict[str, Any]:
        """Of the table, on the device."""
        self._table.flush()
        known = self._table.version()
        return {"counter": 0} | known | {"timestamp": _number(known, "timestamp", 0)}

    def _make_reserved(self) -> None:
        o = self._options
        inherit = READ_WRITE | PERM_INHERIT
        wanted = [("RMQ_SYS_SELF_TEST_TOPIC", 1, READ_WRITE), ("BenchmarkTest", 1024, READ_WRITE), ("OFFSET_MOVED_EVENT", 1,
                  READ_WRITE), ("SCHEDULE_TOPIC_XXXX", len(self._store.options.delay_levels), READ_WRITE),
                  (o["brokerClusterName"] + "_REPLY_TOPIC", 1, READ_WRITE)]
        if o["autoCreateTopicEnable"]:
            wanted.append((DEFAULT_TOPIC, o["defaultTopicQueueNums"], inherit))
        wanted.append((o["brokerClusterName"], 16, inherit if o["clusterTopicEnable"] else PERM_INHERIT))
        wanted.append((o["brokerName"], 1, inherit if o["brokerTopicEnable"] else PERM_INHERIT))
        if o["traceTopicEnable"]:
            wanted.append((o["msgTraceTopicName"], 1, READ_WRITE))
        for name, queues, perm in wanted:
            self._table.add(name, readQueueNums=queues, writeQueueNums=queues, perm=perm)
        self.reserved = frozenset(name for name, _, _ in wanted) | NO_SEND


def _topic(name: str, entry: Mapping[str, Any]) -> Topic:
    return Topic(name, _number(entry, "readQueueNums", 4), _number(entry, "writeQueueNums", 4),
                 _number(entry, "perm", READ_WRITE), _number(entry, "topicSysFlag", 0), bool(entry.get("order")),
                 queue_type(entry) == "BatchCQ")


class Groups:
    """What config/subscriptionGroup.json says of groups."""

    def __init__(self, store: MessageStore, options: BrokerOptions, on_change: Callable[[str], None]) -> None:
        self._store, self._options, self._on_change = store, options, on_change
        self._table: GroupTable = store.group_table
        self._rows = _Rows(self._table, _group)

    def names(self) -> Iterable[str]:
        return list(self._rows.now())

    def touched(self) -> set[str] | None:
        return self._rows.touched()

    def __len__(self) -> int:
        return len(self._rows.now())

    def get(self, name: str) -> Group | None:
        return self._rows.now().get(name)

    def find(self, name: str) -> Group | None:
        """The group; made if groups are made on demand (RocketMQ: findSubscriptionGroupConfig). A group %LMQ%... needs no entry
        where light queues are on (LmqSubscriptionGroupManager)."""
        found = self.get(name)
        if found is None and is_light(self._store, name):
            return _group(name, {})
        if found is None and name and self._may_make(name):
            self._table.add(name)
            self._on_change(name)
            found = self.get(name)
        return found

    def _may_make(self, name: str) -> bool:
        wanted = self._options["autoCreateSubscriptionGroup"] or name.startswith("CID_RMQ_SYS_") or name in (
            "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL")
        return wanted and _LEGAL(name) is not None and len(name) <= NAME_MAX and len(self) < GROUPS_MAX

    def set(self, name: str, **fields: object) -> None:
        self._table.set(name, **fields)
        self._on_change(name)

    def remove(self, name: str) -> bool:
        found = self._table.remove(name)
        self._on_change(name)
        return found

    def content(self) -> dict[str, Any]:
        self._table.flush()
        return self._table.content()


def _group(name: str, entry: Mapping[str, Any]) -> Group:
    return Group(name, bool(entry.get("consumeEnable", True)), bool(entry.get("consumeBroadcastEnable", True)),
                 max(_number(entry, "retryQueueNums", 1), 0), _number(entry, "retryMaxTimes", 16),
                 bool(entry.get("notifyConsumerIdsChangedEnable", True)), _number(entry, "brokerId", 0),
                 _number(entry, "whichBrokerWhenConsumeSlowly", 1))
