"""Which messages of a store go into another one, and why others do not.

As new messages: what a consumer could get, once. A delayed message that was delivered is there twice, waiting and delivered:
the delivered one goes. One that still waits goes to wait again, if nobody has the source open who would deliver it as well.
Left out: retries (a group's progress, like its offsets), RocketMQ's own topics, transactions that are not committed. A topic
that is named goes, whatever it is. As they are: everything. In neither case what a removed queue held.
"""
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rmq_store.codec._codec import DecodedRecord, decode_record
from rmq_store.codec._layout import FLAG_TRANSACTION, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.errors import ConfigError
from rmq_store.services.backup.source import Block
from rmq_store.services.cleaning.removing import is_system_topic
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX
from rmq_store.store import MessageStore

__all__ = ["LEFT", "Rules", "refuse_light", "topic_names"]

# Why a message was left out, and the words for it.
LEFT = {
    "delivered": "delayed messages that were delivered: the delivered messages are copied instead",
    "waiting": "delayed messages that still wait: the source is open, and its process delivers them; close it, and run the "
               "command again",
    "retry": "messages of %RETRY% topics: they belong to a group's progress (--topic copies one, --as-is copies all)",
    "system": "messages of RocketMQ's own topics",
    "transaction": "prepared and rolled back messages of transactions: no consumer sees them",
    "removed": "messages of queues that were removed",
}


class Rules:
    """levels: {delay level: next queue offset to deliver}; None: what waits is left to whoever has the source open."""

    def __init__(self, as_is: bool, topics: Iterable[str] | None, levels: dict[int, int] | None,
                 removed: dict[tuple[str, int], int]) -> None:
        self.as_is = as_is
        self.topics = None if topics is None else {t.encode() for t in topics}
        self.levels = levels
        self.removed = {(topic.encode(), queue_id): below for (topic, queue_id), below in removed.items()}
        self.left: Counter[str] = Counter()
        self.first_waiting: int | None = None
        self.seen: set[bytes] = set()
        self._plain: dict[bytes, str | None] = {}       # why a topic is left out; None: it goes

    def chosen(self, block: Block) -> list[int]:
        """Which records of a block go, by their numbers."""
        if self.as_is and self.topics is None and not self.removed:
            return list(range(len(block.topics)))
        take = []
        for i, topic in enumerate(block.topics):
            if self._goes(block, i, topic):
                take.append(i)
        return take

    def _goes(self, block: Block, i: int, topic: bytes) -> bool:
        if self.removed and block.offsets[i] < self.removed.get((topic, block.queue_ids[i]), 0):
            return self._leave("removed")
        if topic == SCHEDULE_TOPIC.encode() and not self.as_is:
            return self._waits(block, i)
        if self.topics is not None and topic not in self.topics:
            return False
        if not self.as_is:
            if (block.flags[i] & FLAG_TRANSACTION) in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
                return self._leave("transaction")
            if topic not in self._plain:
                self._plain[topic] = self._why(topic.decode("utf-8", "replace"))
            if why := self._plain[topic]:
                return self._leave(why)
        self.seen.add(topic)
        return True

    def _why(self, topic: str) -> str | None:
        if self.topics is not None:
            return None
        return "retry" if topic.startswith("%RETRY%") else "system" if is_system_topic(topic) else None

    def _waits(self, block: Block, i: int) -> bool:
        """A message in the topic of delayed ones belongs where it is to be delivered."""
        real = _real_topic(block.raw(i))
        if self.topics is not None and not {real, SCHEDULE_TOPIC.encode()} & self.topics:
            return False
        if self.topics is None and (why := self._why(real.decode("utf-8", "replace"))):
            return self._leave(why)
        if self.levels is None:
            if self.first_waiting is None:
                self.first_waiting = block.offsets[i]
            return self._leave("waiting")
        if block.queue_offsets[i] < self.levels.get(block.queue_ids[i] + 1, 0):
            return self._leave("delivered")
        self.seen.add(real)
        return True

    def _leave(self, why: str) -> bool:
        self.left[why] += 1
        return False


def topic_names(topics: Iterable[str] | None) -> list[str] | None:
    """The topics that a caller named, one or several; None for all. Raises ConfigError."""
    if topics is None:
        return None
    names: set[Any] = {topics} if isinstance(topics, str) else set(topics)
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"topic {name!r}: give names of topics")
    return sorted(names)


def refuse_light(root: str, topics: Iterable[str] | None, options: dict[str, Any]) -> None:
    """A light queue has entries, and the log has their messages under topics of their own: none would be met. A topic of such a
    name may have messages itself. Raises ConfigError, and what opening the store for reading raises."""
    if not any(topic.startswith(LMQ_PREFIX) for topic in topics or ()):
        return
    with MessageStore.open(root, **{**options, "readonly": True, "must_exist": True}) as store:
        for topic in topics or ():
            first = next(store.scan(topic), None) if topic.startswith(LMQ_PREFIX) else None
            if first is not None and first.topic != topic:
                raise ConfigError(f"topic {topic!r} is a light queue, and its messages are stored under other topics, as "
                                  f"{first.topic!r}: name these topics, or read the queue with store.scan or `rmqstore get`")


def _real_topic(raw: bytes) -> bytes:
    record: Any = decode_record(raw)
    assert isinstance(record, DecodedRecord)
    return record.properties.get("REAL_TOPIC", "").encode()
