"""What the network thread may answer by itself: topics, groups and subscriptions as a table that is told entry by entry.

Whatever is not in the table goes to the processors, so a table that lacks something costs time only. One that has too much
would be wrong, so a change is told before the request that made it is answered. The names are in shards: a change tells the
shards of the names that changed, and all other entries stay.
"""
import threading

from rmq_store.broker.codes import DEAD, NO_SEND, PERM_READ, RETRY
from rmq_store.broker.core import Core
from rmq_store.broker.topics import NAME_MAX, Group, Groups, Topic, Topics
from rmq_store.codec._java_hash import java_hash
from rmq_store.errors import CorruptionError
from rmq_store.network.front import SHARDS, NativeFront

__all__ = ["Known"]

TopicRow = tuple[str, int, int, int]
Rows = list[tuple[str, str, int, list[int]]]


class Known:
    def __init__(self, core: Core, front: NativeFront) -> None:
        """The front has no thread yet."""
        self._core, self._front = core, front
        self._tables = core.store.topic_table, core.store.group_table
        self._lock = threading.Lock()
        self._seen: tuple[object, ...] = ()
        self._settings: tuple[object, ...] = ()         # what every row depends on, when they were told
        self._shards: list[tuple[dict[str, TopicRow], dict[str, Rows]]] = [({}, {}) for _ in range(SHARDS)]
        self._answers = self._in_answers()
        options = core.options
        front.use(core.store, version=core.version, region=options["regionId"], trace_on=options["traceOn"],
                  cluster=options["brokerClusterName"], offsets=self._offsets(),
                  wait_in_send_queue_ms=options["waitTimeMillsInSendQueue"], signed=core.access is not None,
                  on_stale=None if core.access is None else core.access.look)
        if core.access is not None:
            core.access.tell(front)
        self.look()
        for table in self._tables:      # a program changes them without a request
            table.listeners.append(self._changed)

    def _offsets(self) -> object:
        """None where the file cannot be read, which each request for an offset is told."""
        try:
            return self._core.store.offsets.rows
        except CorruptionError:
            return None

    def stop(self) -> None:
        """The network thread has ended."""
        for table in self._tables:
            table.listeners.remove(self._changed)

    def _changed(self) -> None:
        """A table changed. What a request changes is told when it, or a step of it, is done."""
        if not getattr(self._core.serving, "request", False):
            self.look()

    def look(self) -> None:
        """Tells what changed. Behind whatever may have changed something, and before anybody hears of it. Any thread."""
        if self._state() != self._seen:
            with self._lock:
                self._tell()

    def _state(self) -> tuple[object, ...]:
        return (*(table.changes for table in self._tables), self._core.clients.changes, self._core.options.changes,
                self._core.master_address)

    def _in_answers(self) -> tuple[object, ...]:
        """Options that the network thread has as they were when the broker began."""
        return self._core.options["regionId"], self._core.options["traceOn"]

    def _tell(self) -> None:
        """The lock is held."""
        state, before = self._state(), self._settings
        self._seen = self._settings = ()        # where it fails, the next look tells everything
        settings = state[-2:]
        whole = settings != before
        topics, groups = self._core.topics, self._core.groups
        touched = self._core.clients.touched()
        topic_names = self._changed_names(0, topics, whole)
        group_names = self._changed_names(1, groups, whole)
        dirty = set(range(SHARDS)) if whole else set()
        known = self._in_answers() == self._answers
        for name in topic_names:
            dirty |= self._put(0, name, self._topic_row(topics.get(name)) if known else None)
        pulls = known and self._pulls()
        for name in group_names | touched:
            dirty |= self._put(1, name, self._group_rows(groups.get(name)) if pulls else [])
        self._front.tell((shard, (list(self._shards[shard][0].values()),
                                  [row for rows in self._shards[shard][1].values() for row in rows])) for shard in dirty)
        self._settings, self._seen = settings, state

    def _changed_names(self, kind: int, table: Topics | Groups, whole: bool) -> set[str]:
        """Which rows of topics (kind 0) or groups (1) are to be looked at."""
        names = table.touched()
        if names is not None and not whole:
            return names
        return set(table.names()).union(*(shard[kind] for shard in self._shards))

    def _put(self, kind: int, name: str, row: object) -> set[int]:
        """Enters a row of a topic (kind 0), or the rows of a group (1). Returns the shard, if that changes it."""
        shard = self._front.shard(name)
        rows: dict[str, object] = self._shards[shard][kind]     # type: ignore[assignment]
        if rows.get(name) == (row or None):
            return set()
        if row:
            rows[name] = row
        else:
            del rows[name]
        return {shard}

    def _topic_row(self, topic: Topic | None) -> TopicRow | None:
        if topic is None or topic.batches:      # what goes to batch queues, and comes from there, is no single record
            return None
        perm = topic.perm & self._core.options["brokerPermission"]
        if self._core.store.options.role == "slave" or topic.name in NO_SEND or topic.name.startswith((RETRY, DEAD)):
            perm &= PERM_READ                   # Python refuses
        if len(topic.name) <= NAME_MAX and 0 < topic.queues <= 65536 and topic.read >= 0 and topic.write >= 0:
            return topic.name, perm, topic.read, topic.write
        return None

    def _pulls(self) -> bool:
        """Whether the network thread may answer pulls at all."""
        core = self._core
        if not core.options["longPollingEnable"]:
            return False
        return not (core.is_slave and (not core.options["slaveReadEnable"] or (core.modern and core.master_address)))

    def _group_rows(self, group: Group | None) -> Rows:
        # The network thread suggests broker 0. A pull that is far behind the end of the log never is its to answer.
        if group is None or not group.consume or (self._core.options["slaveReadEnable"] and group.broker_id != 0):
            return []
        name = group.name
        rows: Rows = [(name, "", 0, [])]
        model, subscriptions = self._core.clients.subscribed(name)
        if model != "BROADCASTING" or group.broadcast:
            for sub in subscriptions:
                if sub.sql is None:
                    tags = {tag.strip() for tag in sub.tags.split("||")} - {""} if sub.tags else set()
                    if tags or not sub.tags:
                        rows.append((name, sub.topic, sub.version, [java_hash(tag) for tag in sorted(tags)]))
        return rows

