"""Client batches: the body of a send-batch request, both ways, and its expansion into records. Pure functions, any thread.

    per message: totalSize 4, magicCode 4 = 0, bodyCRC 4 = 0, flag 4, bodyLength 4, body, propertiesLength 2, properties

Source: MessageDecoder.encodeMessages and decodeMessages, MessageBatch.generateFromList, MessageExtEncoder.
"""
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from rmq_store.codec._batch import BatchMessage, decode_batch, expand_batch
from rmq_store.codec._properties import decode_properties, encode_properties
from rmq_store.codec.delay import parse_delay_level
from rmq_store.codec.layout import Compat
from rmq_store.errors import MessageIllegal, exceeds

__all__ = ["BatchMessage", "check_batch", "decode_batch", "encode_batch", "expand_batch"]

_HEADER = struct.Struct(">5i")
_SIZE_MAX = 0x7FFFFFFF


BatchInput = Mapping[str, Any] | BatchMessage | bytes | bytearray | memoryview


def encode_batch(messages: Iterable[BatchInput], compat: Compat = "5.x") -> bytes:
    """Messages -> the body of a send-batch request.

    Each is a body (a contiguous buffer), a BatchMessage, or a mapping with `body` and any of `properties` (a mapping, or
    bytes), `flag`, `topic` (which is not encoded: check_batch looks at it). Raises MessageIllegal, PropertiesSizeExceeded.
    Source: MessageDecoder.encodeMessages.
    """
    parts: list[bytes | memoryview] = []
    total = 0
    for message in messages:
        fields = _fields(message)
        body = _body(fields.get("body"))
        properties = encode_properties(fields.get("properties"), compat)
        flag = fields.get("flag", 0)
        if type(flag) is not int or not -1 << 31 <= flag < 1 << 31:
            raise MessageIllegal(f"flag of a message of a batch is {flag!r}: give an int of 32 bits")
        size = _HEADER.size + body.nbytes + 2 + len(properties)
        total += size
        if total > _SIZE_MAX:
            raise MessageIllegal(exceeds("batch", f"more than {_SIZE_MAX} bytes long", _SIZE_MAX, "send smaller batches"))
        parts += (_HEADER.pack(size, 0, 0, flag, body.nbytes), body, len(properties).to_bytes(2, "big"), properties)
    if not parts:
        raise MessageIllegal("the batch is empty: give at least one message")
    return b"".join(parts)


def check_batch(messages: Iterable[BatchInput]) -> None:
    """What RocketMQ's clients demand of a batch beyond its format, which its store does not look at.

    Raises MessageIllegal for different topics, a %RETRY% topic, a delay level, messages that differ in WAIT. Source:
    MessageBatch.generateFromList.
    """
    topics = set()
    waits = set()
    for message in messages:
        fields = _fields(message)
        topic = fields.get("topic")
        known = decode_properties(encode_properties(fields.get("properties")))
        if parse_delay_level(known.get("DELAY")) > 0:
            raise MessageIllegal("a message of a batch has a delay level: put delayed messages one by one")
        if topic is not None and topic.startswith("%RETRY%"):
            raise MessageIllegal("a batch cannot go to a %RETRY% topic: put its messages one by one")
        topics.add(topic)
        waits.add(known.get("WAIT", "true").lower() == "true")
    if len(topics) > 1:
        raise MessageIllegal("the messages of a batch have different topics: make one batch for each topic")
    if len(waits) > 1:
        raise MessageIllegal("the messages of a batch differ in the property WAIT: give all the same")


def _fields(message: BatchInput) -> Mapping[str, Any]:
    if isinstance(message, BatchMessage):
        return message._asdict()
    if not isinstance(message, Mapping):
        return {"body": message}
    unknown = set(message) - {"body", "properties", "flag", "topic"}
    if unknown:
        raise MessageIllegal(f"a message of a batch has no {min(unknown)!r}: it has body, properties, flag, topic")
    return message


def _body(body: Any) -> memoryview:
    try:
        return memoryview(body).cast("B")
    except TypeError:
        raise MessageIllegal(f"body of a message of a batch is {type(body).__name__}: give bytes or another contiguous "
                             "buffer") from None
