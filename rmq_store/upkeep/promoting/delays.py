"""How far the old master had delivered the delay levels, as the log of its slave shows it.

delayOffset.json is a copy of some seconds ago, or is not there. What was delivered since then has left a copy of the waiting
message in the log: its real topic and queue, and all else as it was put. Each level delivers in its order. So the messages of a
level that are due claim their copies one after the other, and the level continues at the first one that finds none. Messages
that the file counts as delivered claim theirs first, so that one of two equal messages is not taken for the other. Control
plane; one thread.
"""
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rmq_store.access.reader._message import Message
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.store import MessageStore

__all__ = ["delivered"]

_NOT_COPIED = ("DELAY", "__CRC32#", "WAIT")         # what a copy lacks, of this library's and of RocketMQ's


def delivered(store: MessageStore, known: dict[int, int]) -> dict[int, int]:
    """Level -> next queue offset to deliver, for `known`, those of delayOffset.json. Nothing is changed. Raises
    CorruptionError."""
    last = next((m.store_timestamp for m in _last(store)), 0)
    found, waiting, begin = dict(known), [], last + 1
    for level, delay_ms in enumerate(store.options.delay_levels, 1):
        low, high = max(store.min_offset(SCHEDULE_TOPIC, level - 1), 0), store.max_offset(SCHEDULE_TOPIC, level - 1)
        if high <= 0:
            continue
        found[level] = offset = min(max(known.get(level, 0), low), high)
        head = next(iter(_due(store, level, delay_ms, offset, last)), None)
        if head is not None:
            waiting.append((level, delay_ms, offset, low))
            begin = min(begin, head.store_timestamp + delay_ms)
    if not waiting:
        return found
    copies: Counter[Any] = Counter()
    for message in store.scan(begin_time=begin):
        properties = message.properties
        if message.topic != SCHEDULE_TOPIC and properties.get("REAL_TOPIC") == message.topic:
            copies[_key(message.topic, message.queue_id, message, properties)] += 1
    for level, delay_ms, offset, low in waiting:
        first = offset
        while first > low and (before := _one(store, level,
                                              first - 1)) is not None and before.store_timestamp + delay_ms >= begin:
            first -= 1
        for message in _due(store, level, delay_ms, first, last):
            key = _waiting_key(message)
            there = copies[key] > 0
            if there:
                copies[key] -= 1
            if message.queue_offset >= offset:
                if not there:
                    break
                found[level] = message.queue_offset + 1
    return found


def _last(store: MessageStore) -> Iterator[Message]:
    """The newest message of the log, if it has one."""
    newest: Message | None = None
    for topic in store.topics():
        for queue in store.queues(topic):
            message = _at(store, topic, queue, store.max_offset(topic, queue) - 1)
            if message is not None and (newest is None or message.offset > newest.offset):
                newest = message
    if newest is not None:
        yield newest


def _at(store: MessageStore, topic: str, queue: int, offset: int) -> Message | None:
    entry = store.raw_entry(topic, queue, offset) if offset >= 0 else None
    return None if entry is None else store.message_at(entry[0])


def _one(store: MessageStore, level: int, offset: int) -> Message | None:
    return _at(store, SCHEDULE_TOPIC, level - 1, offset)


def _due(store: MessageStore, level: int, delay_ms: int, begin: int, last_ms: int) -> Iterator[Message]:
    """The messages of a level from a queue offset on that were due when the log ended."""
    for message in store.scan(SCHEDULE_TOPIC, level - 1, begin=begin):
        if message.store_timestamp + delay_ms > last_ms:
            return
        yield message


def _waiting_key(message: Message) -> Any:
    properties = message.properties
    queue = properties.get("REAL_QID", "0")
    return _key(properties.get("REAL_TOPIC", ""), int(queue) if queue.isdecimal() else 0, message, properties)


def _key(topic: str, queue_id: int, message: Message, properties: Any) -> Any:
    """What a message and its copy have in common."""
    kept = tuple(sorted((name, value) for name, value in properties.items() if name not in _NOT_COPIED))
    return topic, queue_id, message.flag, message.born_timestamp, message.born_host, kept, hash(bytes(message.body))
