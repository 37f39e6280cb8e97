"""What a broker in this directory would know of topics and groups: config/topics.json and config/subscriptionGroup.json
(RocketMQ: TopicConfigManager, SubscriptionGroupManager).

Entries are RocketMQ's beans as dicts, with its names and defaults; what an entry holds beyond those is kept. The store itself
needs neither file: a put makes its topic. They are for a broker that takes the directory over, and for the retry limits of
groups. Thread-safety: every method, one lock.
"""
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.files import ControlFiles
from rmq_store.errors import ArgumentIllegal, CorruptionError, illegal
from rmq_store.events import Event, emit
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.entries import check_key
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX
from rmq_store.services.consumer.table import Table

__all__ = ["CLEANUP_POLICIES", "OWN_TOPICS", "PERM_READ", "PERM_WRITE", "QUEUE_TYPES", "GroupTable", "TopicTable",
           "batch_topics", "cleanup_policy", "queue_type"]

PERM_READ, PERM_WRITE = 4, 2
CLEANUP_POLICIES = "DELETE", "COMPACTION"       # CleanupPolicy
QUEUE_TYPES = "SimpleCQ", "BatchCQ"             # CQType, without RocksDBCQ
# Topics whose messages the store or a broker makes itself, or whose entries lead to records of other topics.
OWN_TOPICS = frozenset(("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                        "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "OFFSET_MOVED_EVENT"))
_OWN_PREFIXES = "rmq_sys_", "%RETRY%", "%DLQ%"


def cleanup_policy(entry: Mapping[str, Any] | None) -> str:
    """The cleanup policy of a topic's entry: str, RocketMQ's DELETE or COMPACTION (CleanupPolicyUtils.getDeletePolicy).

    DELETE where the entry names none, as every entry of 4.9. A value that RocketMQ does not know is returned as its repr."""
    attributes = (entry or {}).get("attributes")
    policy = attributes.get("cleanup.policy", "DELETE") if isinstance(attributes, dict) else "DELETE"
    return policy if policy in CLEANUP_POLICIES else repr(policy)


def plain_reason(name: str) -> str:
    """Why a topic can be no compaction topic and have no batch queues: str, empty where it can. RocketMQ does not ask."""
    if name.startswith(LMQ_PREFIX):
        return f"{name} is a light queue, whose entries lead to messages of other topics: use another topic"
    if name in OWN_TOPICS or name.startswith(_OWN_PREFIXES):
        return f"{name} is a topic of the store itself, which puts plain messages there, not all with keys: use another topic"
    return ""


def queue_type(entry: Mapping[str, Any] | None) -> str:
    """The type of a topic's queues: str, RocketMQ's SimpleCQ or BatchCQ (QueueTypeUtils.getCQType).

    SimpleCQ where the entry names none. A value that is neither is returned as its repr."""
    attributes = (entry or {}).get("attributes")
    kind = attributes.get("queue.type", "SimpleCQ") if isinstance(attributes, dict) else "SimpleCQ"
    return kind if kind in QUEUE_TYPES else repr(kind)


def batch_topics(files: ControlFiles, root: str) -> frozenset[str] | None:
    """The topics that have batch queues, as config/topics.json says, before a store is open; None where it cannot be read."""
    path = ConfigFile(files, root, "topics.json")
    try:
        return path.load(lambda content: frozenset(
            name for name, entry in content.get(TopicTable.key, {}).items() if queue_type(entry) == "BatchCQ")) or frozenset()
    except CorruptionError:
        return None


class TopicTable(Table):
    """config/topics.json: queues and permissions of topics (RocketMQ: TopicConfig)."""

    key = "topicConfigTable"
    what = "topic"
    name_field = "topicName"
    defaults = MappingProxyType({
        "order": False, "perm": PERM_READ | PERM_WRITE, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": "",
        "topicSysFlag": 0, "writeQueueNums": 4})
    defaults_5x = MappingProxyType({"attributes": {}})

    def __init__(self, file: ConfigFile, *, compat: str, readonly: bool,
                 changed: Callable[[frozenset[str]], object] | None = None,
                 batches: Callable[[str, str], object] | None = None) -> None:
        """changed: called with compacted() after entries changed. batches: called with a topic, and with "take" before its
        entry says that it has batch queues, and "open" when that is durable; with "close" before the entry says so no more, and
        "drop" when that is durable. Where the write fails, "drop" follows "take", and "open" follows "close". It raises where
        it cannot."""
        self._policies = changed
        self._batches = batches
        self._types = StoreLock(file.path, "types of topics")      # held from the first to the last step; before _lock
        super().__init__(file, compat=compat, readonly=readonly)
        self._compacted = self._all_compacted()
        self._told: frozenset[str] | None = None

    def _note(self, name: str) -> None:
        super()._note(name)
        if self._compacts(name) != (name in self._compacted):
            self._compacted ^= {name}
            self._whole = True          # readers beside this process look at the file

    def _tell(self) -> None:
        compacted = self._compacted
        if self._policies is not None and compacted is not self._told:
            self._policies(compacted)
            self._told = compacted

    def _compacts(self, name: str) -> bool:
        return cleanup_policy(self._entries.get(name)) == "COMPACTION" and not plain_reason(name)

    def _all_compacted(self) -> frozenset[str]:
        return frozenset(filter(self._compacts, self._entries))

    def set_cleanup_policy(self, name: str, policy: Literal["COMPACTION", "DELETE"]) -> dict[str, Any]:
        """Makes the cleanup policy of a topic "COMPACTION" or "DELETE"; makes the entry where there is none. Returns the entry.
        It holds at once, and is durable when the call returns. The other attributes stay. Raises ArgumentIllegal, also for
        COMPACTION where the topic has batch queues, is a light queue, or one of the store's own, and in a store of compat 4.9,
        whose topics have no attributes; DiskFull, OSError, StoreNotWriteable. RocketMQ: the topic attribute cleanup.policy."""
        if policy not in CLEANUP_POLICIES:
            raise illegal("policy", policy, "give 'COMPACTION' or 'DELETE'")
        check_key(self.what, name)
        if policy == "COMPACTION" and plain_reason(name):
            raise illegal("policy", policy, plain_reason(name))
        if policy == "COMPACTION" and queue_type(self.get(name)) == "BatchCQ":
            raise illegal("policy", policy, f"{name} has batch queues, whose inner batches a compaction would keep or drop as "
                          "a whole: use another topic")
        return self._set_attribute(name, "cleanup.policy", policy)

    def set_queue_type(self, name: str, kind: Literal["BatchCQ", "SimpleCQ"]) -> dict[str, Any]:
        """Makes the queues of a topic batch queues, "BatchCQ", or says that they are "SimpleCQ"; makes the entry where there is
        none. Returns the entry. It holds at once, and is durable when the call returns. The type never changes: raises
        ArgumentIllegal where the topic has queues, or another type, and as set_cleanup_policy. RocketMQ: the topic attribute
        queue.type."""
        if kind not in QUEUE_TYPES:
            raise illegal("kind", kind, "give 'BatchCQ' or 'SimpleCQ'")
        check_key(self.what, name)
        if kind == "BatchCQ" and plain_reason(name):
            raise illegal("kind", kind, plain_reason(name))
        if kind == "BatchCQ" and cleanup_policy(self.get(name)) == "COMPACTION":
            raise illegal("kind", kind, f"{name} is a compaction topic, and a compaction would keep or drop an inner batch as "
                          "a whole: use another topic")
        return self._set_attribute(name, "queue.type", kind)

    def _set_attribute(self, name: str, attribute: str, value: str) -> dict[str, Any]:
        """Durable when it returns; where it raises, nothing has changed."""
        with self._types:
            known = (self.get(name) or {}).get("attributes")
            fields = {"attributes": (known if isinstance(known, dict) else {}) | {attribute: value}}
            self._check(name, fields)
            changed = known != fields["attributes"]
            if changed:
                self._write_typed({name: fields})
            else:
                self.flush()
        if changed:
            self._announce()
        return self.get(name) or {}

    def _check(self, name: str, fields: Mapping[str, object], named: bool = True) -> None:
        super()._check(name, fields, named)
        for attribute, now, before, plain in (
                ("queue.type", queue_type(fields), queue_type(self.get(name)), "SimpleCQ"),
                ("cleanup.policy", cleanup_policy(fields), cleanup_policy(self.get(name)), "DELETE")):
            if "attributes" in fields and now not in (before, plain) and plain_reason(name):
                raise illegal(attribute, now, plain_reason(name))

    def _set(self, name: str, fields: Mapping[str, object]) -> dict[str, Any]:
        with self._types:
            if changed := self._changes_type(name, fields):     # batch queues are no store's that does not say that it has them
                self._write_typed({name: fields})
            else:
                _, changed = self._change(name, fields)
        if changed:
            self._announce()
        return self.get(name) or {}

    def write_entries(self, entries: Mapping[str, Mapping[str, object]]) -> None:
        with self._types:
            self._write_typed(entries)
        self._announce()

    def _write_typed(self, entries: Mapping[str, Mapping[str, object]]) -> None:
        """Under _types."""
        taken: list[str] = []
        try:
            for name, fields in entries.items():
                if self._changes_type(name, fields):
                    self._take_type(name, fields)
                    taken.append(name)
            self._write_now(entries)
        except BaseException:
            self._tell_types(taken, "drop")
            raise
        self._tell_types(taken, "open")

    def remove(self, name: str) -> bool:
        """Forgets an entry; False where there is none. The entry of a topic with batch queues is gone from the file when the
        call returns. Raises StoreNotWriteable, and ArgumentIllegal where the topic has batch queues with messages: the store
        could not be opened without the entry; then also DiskFull, OSError, StoreClosed, and the entry is as before."""
        return super().remove(name)

    def _forget(self, name: str) -> bool:
        with self._types:
            if queue_type(self.get(name)) != "BatchCQ":
                return super()._forget(name)
            self._tell_types([name], "close")       # plain messages have to wait for the file: it says what queues are opened
            try:
                self._write_now({}, name)
            except BaseException:
                self._tell_types([name], "open")
                raise
            self._tell_types([name], "drop")
        return True

    def drop_queue_type(self, name: str) -> None:
        """Of a slave: the topic was deleted on the master, and has no batch queues there any more. Its entry stays, without the
        type. Durable. Raises ArgumentIllegal while the batch queues have messages, DiskFull, OSError, StoreClosed."""
        with self._types:
            self._tell_types([name], "close")
            known = (self.get(name) or {}).get("attributes")
            try:
                if isinstance(known, dict) and "queue.type" in known:
                    self._write_now({name: {"attributes": {k: v for k, v in known.items() if k != "queue.type"}}})
            except BaseException:
                self._tell_types([name], "open")
                raise
            self._tell_types([name], "drop")
        self._announce()

    def _take_over(self, entries: dict[str, dict[str, Any]], version: dict[str, Any]) -> None:
        """A topic with batch queues that the master does not name, as it was deleted there, or came since the master was asked,
        keeps its entry: the log here may have messages of it. A store whose topics.json says that a topic has batch queues, and
        which has others of it, cannot be opened: such an entry comes without its type, and the log tells of it."""
        taken: list[str] = []
        closed: list[str] = []
        found = dict(entries)
        with self._types:
            try:
                for name, known in self.entries().items():
                    if queue_type(known) == "BatchCQ":
                        found.setdefault(name, known)
                for name, entry in entries.items():
                    before, now = queue_type(self.get(name)), queue_type(entry)
                    if before == now or "BatchCQ" not in (before, now):
                        continue
                    try:
                        self._tell_types([name], "take" if now == "BatchCQ" else "close")
                        (taken if now == "BatchCQ" else closed).append(name)
                    except ArgumentIllegal as error:
                        found[name] = self._other_type(name, entry)
                        emit(Event.TOPIC_KEPT, file=self._file.path, topic=name, reason=str(error))
                super()._take_over(found, version)
                self._compacted = self._all_compacted()
            except BaseException:
                self._tell_types(taken, "drop")
                self._tell_types(closed, "open")
                raise
            self._tell_types(taken, "open")
            self._tell_types(closed, "drop")

    def _other_type(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        """What the entry of a master becomes here, where the topic keeps its queues."""
        known = self.get(name) or {}
        if queue_type(known) == "BatchCQ":
            return known
        return entry | {"attributes": {key: value for key, value in entry["attributes"].items() if key != "queue.type"}}

    def _changes_type(self, name: str, fields: Mapping[str, Any]) -> bool:
        return ("attributes" in fields and "attributes" in self._defaults
                and queue_type(self.get(name)) != queue_type(fields))

    def _take_type(self, name: str, fields: Mapping[str, Any]) -> None:
        """Before an entry changes: the queues of a topic become batch queues, or keep their type for ever."""
        before, now = queue_type(self.get(name)), queue_type(fields)
        if before == "BatchCQ" or now not in QUEUE_TYPES:
            raise illegal("queue.type", now, f"the queues of {name} are {before}, which never changes: use another topic")
        self._tell_types([name], "take")

    def _tell_types(self, names: list[str], step: str) -> None:
        if self._batches is not None:
            for name in names:
                self._batches(name, step)

    def compacted(self) -> frozenset[str]:
        """The topics whose cleanup policy is COMPACTION: frozenset of str. Without light queues and topics of the store itself,
        whatever a broker has written into the file."""
        return self._compacted


class GroupTable(Table):
    """config/subscriptionGroup.json: what a group may do and how often it tries (RocketMQ: SubscriptionGroupConfig)."""

    key = "subscriptionGroupTable"
    what = "group"
    name_field = "groupName"
    defaults = MappingProxyType({
        "brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True, "groupName": "",
        "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16, "retryQueueNums": 1, "whichBrokerWhenConsumeSlowly": 1})
    defaults_5x = MappingProxyType({
        "attributes": {}, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15, "groupSysFlag": 0})

    def retry_max(self, group: str) -> int:
        """How often a message of this group is retried before it is a dead letter: retryMaxTimes, 16 by default."""
        found = (self.get(group) or {}).get("retryMaxTimes")
        return found if isinstance(found, int) and not isinstance(found, bool) else 16
