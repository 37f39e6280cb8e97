"""Topics whose messages need a key: those of compaction. RocketMQ: SendMessageProcessor, "Required message key is missing".

Where a store has no such topic, nothing here runs. A batch of RocketMQ's clients is not asked by a broker; here it is.
"""
from collections.abc import Collection
from typing import Any

from rmq_store.access.writer._arguments import joined_keys
from rmq_store.codec._properties import decode_properties
from rmq_store.errors import MessageIllegal

__all__ = ["need_key", "need_keys"]


def need_key(keyed: Collection[str], topic: object, keys: str | None, properties: Any, which: str = "the message") -> None:
    """keys: as put has them, joined; properties: a mapping, bytes or None. Raises MessageIllegal."""
    if not isinstance(topic, str) or topic not in keyed or (keys is not None and keys.strip()):
        return
    found = decode_properties(properties) if isinstance(properties, bytes) else properties or {}
    if not str(found.get("KEYS", "")).strip():
        raise MessageIllegal(f"{which} has no keys, and {topic} is a compaction topic, which keeps the newest message of each "
                             "key: give keys")


def need_keys(keyed: Collection[str], topic: object, keys: str | None, properties: Any, messages: list[Any]) -> list[Any]:
    """The same for the messages of a put_many: bodies, or mappings that differ from what is given for all. Returns them, keys
    joined: an iterator gives its keys once. Raises MessageIllegal."""
    if not isinstance(topic, str) or topic not in keyed:
        return messages
    found = []
    for i, message in enumerate(messages):
        mapped = hasattr(message, "keys") and not isinstance(message, bytes | bytearray | memoryview)
        own = dict(message) if mapped else {}
        if own.get("keys") is not None:
            message = own = own | {"keys": joined_keys(own["keys"])}
        need_key(keyed, topic, own.get("keys", keys), own.get("properties", properties), f"message {i}")
        found.append(message)
    return found
