"""Entering topics into config/topics.json that puts of this program made: a broker that takes the directory over has no route
to a topic that is not there (RocketMQ: TopicConfigManager, whose entries a broker makes at the first send).

The control thread looks whether the store has more queues than at its last look, and close() looks once more. A topic that has
an entry keeps it; only where this program puts into a queue beyond its queues do these grow, because a consumer would not read
that one.
Not thread-safe: the control thread, and close() after it has ended.
"""
from collections.abc import Iterable

from rmq_store.errors import CorruptionError
from rmq_store.events import Event, emit
from rmq_store.opened.reports import StoreReports
from rmq_store.services.cleaning.removing import is_system_topic

__all__ = ["Entering"]

NAME_MAX = 127              # of a topic that RocketMQ 4.9 and a client accept


class Entering:
    def __init__(self, store: StoreReports) -> None:
        # With a crash behind it the store may have topics of a program that could not enter them any more.
        self._count = -1 if store.needs_recovery else len(store._queue_ends())
        self._known: dict[str, int] = {} if store.needs_recovery else _queues(store._queue_ends())

    def enter(self, store: StoreReports) -> None:
        """Enters what is new, also while the store closes. A topics.json that cannot be read is logged, and stays as it is."""
        ends = store._queue_ends()
        if len(ends) == self._count:
            return
        found = _queues(ends)
        new = {topic: queues for topic, queues in found.items() if queues > self._known.get(topic, 0)}
        try:
            table = store._consuming.topics if new else None
            for topic, queues in new.items():
                if table is None or is_system_topic(topic) or len(topic) > NAME_MAX:
                    continue
                entry = table.get(topic)
                if entry is None:
                    table.add(topic, readQueueNums=queues, writeQueueNums=queues)
                elif topic in self._known and entry.get("readQueueNums", queues) < queues:
                    table.set(topic, readQueueNums=queues, writeQueueNums=queues)
        except (CorruptionError, OSError) as error:
            emit(Event.TASK_FAILED, task="entering topics", path=store.path, error=str(error))
        self._count, self._known = len(ends), found


def _queues(ends: Iterable[tuple[str, int]]) -> dict[str, int]:
    """{topic: one past its highest queue}."""
    found: dict[str, int] = {}
    for topic, queue_id in ends:
        found[topic] = max(found.get(topic, 0), queue_id + 1)
    return found
