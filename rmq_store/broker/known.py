"""What the network thread may answer by itself: topics, groups and subscriptions as a table that is told anew when they change.

Whatever is not in the table goes to the processors, so a table that lacks something costs time only. One that has too much
would be wrong, so a change is told before the request that made it is answered.
"""
import threading
from collections.abc import Iterator

from rmq_store.broker.codes import DEAD, NO_SEND, PERM_READ, RETRY
from rmq_store.broker.core import Core
from rmq_store.broker.topics import NAME_MAX
from rmq_store.codec._java_hash import java_hash
from rmq_store.errors import CorruptionError
from rmq_store.network.front import NativeFront

__all__ = ["Known"]

AT_ONCE = 2000      # entries of a table that a request waits for; a larger one is emptied at once, and made by the keeper


class Known:
    def __init__(self, core: Core, front: NativeFront) -> None:
        """The front has no thread yet."""
        self._core, self._front = core, front
        self._tables = core.store.topic_table, core.store.group_table
        self._lock = threading.Lock()
        self._seen: tuple[object, ...] = ()
        self._emptied = False
        self._answers = self._in_answers()
        options = core.options
        front.use(core.store, version=core.version, region=options["regionId"], trace_on=options["traceOn"],
                  cluster=options["brokerClusterName"], offsets=self._offsets(),
                  wait_in_send_queue_ms=options["waitTimeMillsInSendQueue"], signed=core.access is not None,
                  on_stale=None if core.access is None else core.access.look)
        if core.access is not None:
            core.access.tell(front)
        self.keep()
        for table in self._tables:      # a program changes them without a request
            table.listeners.append(self.look)

    def _offsets(self) -> object:
        """None where the file cannot be read, which each request for an offset is told."""
        try:
            return self._core.store.offsets.rows
        except CorruptionError:
            return None

    def stop(self) -> None:
        """The network thread has ended."""
        for table in self._tables:
            table.listeners.remove(self.look)

    def look(self) -> None:
        """Tells what changed. Behind whatever may have changed something, and before anybody hears of it. Any thread."""
        if self._state() != self._seen:
            self._tell(AT_ONCE)

    def keep(self) -> None:
        """As `look`, however much there is. The keeper's thread."""
        if self._state() != self._seen or self._emptied:
            self._tell(None)

    def _state(self) -> tuple[object, ...]:
        return (*(table.changes for table in self._tables), self._core.clients.changes, self._core.options.changes,
                self._core.master_address)

    def _in_answers(self) -> tuple[object, ...]:
        """Options that the network thread has as they were when the broker began."""
        return self._core.options["regionId"], self._core.options["traceOn"]

    def _tell(self, most: int | None) -> None:
        with self._lock:
            state = self._state()
            core = self._core
            size = len(core.topics) + len(core.groups) + core.clients.subscription_work()
            self._emptied = most is not None and size > most
            if self._emptied or self._in_answers() != self._answers:
                self._front.tell([], [])
            else:
                self._front.tell(self._topics(), self._subscriptions())
            self._seen = state

    def _topics(self) -> Iterator[tuple[str, int, int, int]]:
        allowed = self._core.options["brokerPermission"]
        if self._core.store.options.role == "slave":
            allowed &= PERM_READ                # Python refuses
        for topic in self._core.topics.snapshot().values():
            perm = topic.perm & allowed
            if topic.name in NO_SEND or topic.name.startswith((RETRY, DEAD)):
                perm &= PERM_READ
            if topic.batches:
                continue                    # what goes there, and comes from there, is no single record
            if len(topic.name) <= NAME_MAX and 0 < topic.queues <= 65536 and topic.read >= 0 and topic.write >= 0:
                yield topic.name, perm, topic.read, topic.write

    def _subscriptions(self) -> Iterator[tuple[str, str, int, list[int]]]:
        core = self._core
        reads = core.options["slaveReadEnable"]
        if not core.options["longPollingEnable"]:
            return
        if core.is_slave and (not reads or (core.modern and core.master_address)):
            return
        # The network thread suggests broker 0. A pull that is far behind the end of the log never is its to answer.
        groups = {name: group for name, group in core.groups.snapshot().items() if not reads or group.broker_id == 0}
        for group in groups.values():
            if group.consume:
                yield group.name, "", 0, []
        for name, model, subscriptions in self._core.clients.subscribed():
            config = groups.get(name)
            if config is None or not config.consume or (model == "BROADCASTING" and not config.broadcast):
                continue
            for sub in subscriptions:
                if sub.sql is None:
                    tags = {tag.strip() for tag in sub.tags.split("||")} - {""} if sub.tags else set()
                    if tags or not sub.tags:
                        yield name, sub.topic, sub.version, [java_hash(tag) for tag in sorted(tags)]
