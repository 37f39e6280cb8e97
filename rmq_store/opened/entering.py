"""Entering topics into config/topics.json that puts of this program made: a broker that takes the directory over has no route
to a topic that is not there (RocketMQ: TopicConfigManager, whose entries a broker makes at the first send).

The control thread looks whether the store has more queues than at its last look, and close() looks once more. A topic that has
an entry keeps it; only where this program puts into a queue beyond its queues do these grow, because a consumer would not read
that one.
Not thread-safe: the control thread, and close() after it has ended.
"""
import errno
import os

from rmq_store.errors import CorruptionError
from rmq_store.events import Event, emit
from rmq_store.opened.reports import StoreReports
from rmq_store.services.cleaning.removing import is_system_topic
from rmq_store.services.consumer.tables import TopicTable

__all__ = ["Entering"]

NAME_MAX = 127              # of a topic that RocketMQ 4.9 and a client accept


class Entering:
    def __init__(self, store: StoreReports) -> None:
        # With a crash behind it the store may have topics of a program that could not enter them any more.
        self._count, self._known = (-1, {}) if store.needs_recovery else store._topic_widths(-1)

    def enter(self, store: StoreReports) -> None:
        """Enters what is new, also while the store closes. A topics.json that cannot be read is logged, and stays as it is."""
        count, found = store._topic_widths(self._count)
        if count == self._count:
            return
        new = {topic: queues for topic, queues in found.items() if queues > self._known.get(topic, 0)}
        try:
            if new:
                self._write(store._consuming.topics, new)
        except (CorruptionError, OSError) as error:
            if isinstance(error, OSError) and not _nothing_written(store, error):
                raise                   # a failed sync, above all: whoever closes has to know
            emit(Event.TASK_FAILED, task="entering topics", path=store.path, error=str(error))
            self._count = count         # tried again when a queue comes; what is known stays, so that all are tried
            return
        self._count, self._known = count, found

    def _write(self, table: TopicTable, new: dict[str, int]) -> None:
        """At once: a full disk costs the entries, and neither a put nor close() fails for them."""
        wanted = {}
        for topic, queues in new.items():
            entry = table.get(topic)
            if is_system_topic(topic) or len(topic) > NAME_MAX:
                continue
            if entry is None or (topic in self._known and entry.get("readQueueNums", queues) < queues):
                wanted[topic] = {"readQueueNums": queues, "writeQueueNums": queues}
        if wanted:
            table.write_entries(wanted)


def _nothing_written(store: StoreReports, error: OSError) -> bool:
    """The disk is full, and the new file did not take the name: what is there is as good as before."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) and os.path.lexists(
        os.path.join(store.path, "config", "topics.json.tmp"))
