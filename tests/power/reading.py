"""All that an open store gives to its readers, by queue."""
from typing import NamedTuple

from rmq_store import MessageStore

Queue = tuple[str, int]


class Found(NamedTuple):
    """One message as a reader gets it."""

    queue_offset: int
    offset: int
    body: bytes
    properties: dict[str, str]
    crc_ok: bool


def read_queues(store: MessageStore) -> tuple[dict[Queue, list[Found]], list[str]]:
    """(messages by queue, what is wrong with the queues): get() from the first offset to the last, without a hole."""
    found: dict[Queue, list[Found]] = {}
    wrong: list[str] = []
    for topic in store.topics():
        for queue_id in store.queues(topic):
            found[topic, queue_id] = _read(store, topic, queue_id, wrong)
    return found, wrong


def _read(store: MessageStore, topic: str, queue_id: int, wrong: list[str]) -> list[Found]:
    got: list[Found] = []
    at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while at < end:
        result = store.get(topic, queue_id, at, max_count=64)
        for m in result:
            if m.queue_offset != at:
                wrong.append(f"{topic}/{queue_id} leads from {at} to {m.queue_offset}: a hole")
            got.append(Found(m.queue_offset, m.offset, bytes(m.body), dict(m.properties), m.body_crc_ok))
            at = m.queue_offset + 1
        if not len(result):
            wrong.append(f"{topic}/{queue_id} gives nothing at {at} ({result.status.name}); it says that it ends at {end}")
            if result.next_offset <= at:
                break
            at = result.next_offset
    return got
