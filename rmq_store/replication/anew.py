"""Queues of a slave that its master has removed, and that get messages again (RocketMQ: deleteTopics,
cleanExpiredConsumerQueue).

The log has no record of a removal. The dispatcher waits in front of the first record of the queue that begins anew, and one
thread of the control plane removes the queue here as the master did: what the log has up to that record gets no entry any more
(config/removedQueues.json), the groups' offsets are 0, and then the files go. The record may be of the other kind: a plain
message where the topic has batch queues, or an inner batch where it has none. Then all queues of the topic go,
config/topics.json is written, and new queues are of that kind. Crash-safety: that of services/cleaning/removing. A slave that
dies in between meets the same record when it is opened again as a slave.
"""
import threading
import time
import weakref
from typing import Any, Protocol

from rmq_store.base.io.threads import start_thread
from rmq_store.errors import RmqStoreError
from rmq_store.events import Event, emit
from rmq_store.replication._anew import Halts
from rmq_store.services.consumer.tables import cleanup_policy, plain_reason

__all__ = ["QueuesAnew"]

AGAIN_S = 1.0
ASKED_MAX = 5           # times that a broker is asked: meanwhile dispatch waits


class KnowsMaster(Protocol):
    """What this thread asks of the slave's replication."""

    def make_topic(self) -> None:
        """Called when the thread was woken, or after a second: the slave may wait for it, too."""

    def unread(self, topic: str, reason: str) -> None:
        """The topic has no queues of the kind that a message of it needs."""

    def master_type(self, topic: str) -> str | None:
        """Which queues the topic has on the master, None if its broker is not known. Raises OSError, ValueError."""


class QueuesAnew:
    """Of one open slave, which it holds weakly, as its replication. The thread begins with it. Thread-safety: any."""

    def __init__(self, store: Any, replication: KnowsMaster) -> None:
        self._replication = weakref.ref(replication)
        self._unanswered = 0
        self._store, self._path = weakref.ref(store), store.path
        self._halts = Halts(store)
        self._ended = threading.Event()
        self._failed = ""
        self._thread = start_thread(self._run, "rmq-anew")

    def stop(self, timeout: float) -> None:
        """Waits until what the log has is in its queues, at most `timeout` seconds, then ends the thread. Idempotent."""
        store = self._store()
        try:
            if store is not None and not self._ended.is_set():
                deadline = time.monotonic() + timeout
                while not store._wait_dispatched(0.1) and not self._failed and time.monotonic() < deadline:
                    pass
        except (RmqStoreError, OSError):
            pass            # the store has failed: its close says so
        self._ended.set()
        self._halts.release()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            waits = self._halts.wait()
            if not self._ended.is_set():
                self._help()
            if waits and not self._ended.is_set() and not self._settle():
                self._ended.wait(AGAIN_S)

    def _help(self) -> None:
        try:
            if (replication := self._replication()) is not None:
                replication.make_topic()
        except Exception as error:      # as below
            emit(Event.TASK_FAILED, task="making a topic with batch queues", path=self._path, error=str(error))

    def _settle(self) -> bool:
        store = self._store()
        if store is None:
            return False
        try:
            if (kind := self._halts.other_kind(store)) is not None:
                self._change_kind(store, *kind)
            elif rows := self._halts.find(store):
                store._begin_anew(rows)
                self._began_anew(rows)
            self._failed = ""
            self._halts.release()
            return True
        except Exception as error:      # of whatever kind: dispatch waits for this thread, which tries again
            if self._failed != str(error):
                emit(Event.TASK_FAILED, task="removing queues that begin anew", path=self._path, error=str(error))
            self._failed = str(error)
            return False

    def _change_kind(self, store: Any, topic: str, batched: bool, at: int, queue_id: int) -> None:
        """All queues of the topic are removed, as its master has deleted it. Then it has queues of the other kind. A kill in
        between leaves it without queues, and the record at `at` is met again."""
        why = _no_batches(store, topic) if batched else self._why_not_deleted(store, topic, queue_id)
        if why:
            if (replication := self._replication()) is not None:
                replication.unread(topic, why)
            self._halts.pass_by(at)
            return
        if rows := store._begin_topic_anew(topic, queue_id, at):
            self._began_anew(rows)
        if batched:
            _begin_batches(store.topic_table, topic)
        else:
            store.topic_table.drop_queue_type(topic)

    def _why_not_deleted(self, store: Any, topic: str, queue_id: int) -> str:
        """Why the first plain message of that queue does not say that the topic with batch queues was deleted; "": it does.
        RocketMQ's master also stores one that a producer sends there by mistake. Only the master's broker knows, unless the
        queue itself begins anew, or the topic has no message that could be lost. Raises OSError, ValueError: asked again."""
        if store.max_offset(topic, queue_id) > 0 or not any(store.max_offset(topic, n) > 0 for n in store.queues(topic)):
            return ""
        message = f"the first message of its queue {queue_id} is a plain one, and it has batch queues"
        try:
            replication = self._replication()
            kind = replication.master_type(topic) if replication is not None else None
        except (OSError, ValueError) as error:
            self._unanswered += 1
            if self._unanswered < ASKED_MAX:
                raise
            kind, message = None, f"{message}; the master's broker does not tell which queues it has now ({error})"
        self._unanswered = 0
        if kind is None:
            return f"{message}: if the topic was deleted on the master, make the slave anew"
        return f"{message} on the master, too" if kind == "BatchCQ" else ""

    def _began_anew(self, rows: list[tuple[int, str, int, int]]) -> None:
        emit(Event.QUEUES_BEGAN_ANEW, path=self._path, count=len(rows),
             topics=", ".join(sorted({topic for _, topic, _, _ in rows})))


def _no_batches(store: Any, topic: str) -> str:
    """Why the topic can have no batch queues, whatever its entry says; "": it can."""
    return plain_reason(topic) or ("" if store.options.compat == "5.x" else "a store of compat 4.9 has no batch queues")


def _begin_batches(table: Any, topic: str) -> None:
    """The topic begins anew: a policy of compaction, with which it could have no batch queues, was the deleted one's."""
    known = table.get(topic) or {}
    if cleanup_policy(known) == "COMPACTION":
        table.set(topic, attributes={key: value for key, value in known["attributes"].items() if key != "cleanup.policy"})
    table.set_queue_type(topic, "BatchCQ")
