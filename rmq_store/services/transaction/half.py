"""The records of a transaction, as keywords for put: the half message, the real one, the op message, the half message that is
put again, and the one that is given up. Pure functions, any thread.

Bytes are RocketMQ's, the order of the properties included: that of a broker's HashMap. Source: TransactionalMessageBridge,
EndTransactionProcessor, DefaultTransactionalMessageCheckListener.
"""
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rmq_store.access.reader._checked import whole
from rmq_store.codec._layout import CRC_PROPERTY_SIZE, FLAG_TRANSACTION, PROPERTIES_SIZE_MAX, TRANSACTION_COMMIT
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.codec.layout import Compat
from rmq_store.codec.properties import CRC_PROPERTY, decode_properties, encode_properties, java_hashmap_order
from rmq_store.codec.timer import TIMER_TOPIC
from rmq_store.errors import MessageIllegal, PropertiesSizeExceeded, exceeds
from rmq_store.fields import NamedTuple

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"             # whose offsets say how far half and op messages are settled
ORIGIN, CHECKS, IMMUNITY = "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_ID = "__transactionId__"    # in half messages of 5.x
PUT_AGAIN = "PUT_AGAIN"                 # in an op message, of this library alone: a broker looks at its tag and body
RESERVED = frozenset((HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC))

_TOPIC = partial(re.fullmatch, r"[%|A-Za-z0-9_-]+")
_DELAYS = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_LIGHT = ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")
_INTERNAL = ("TRAN_MSG", "REAL_TOPIC", "REAL_QID", TRANSACTION_ID)      # of the half message: readers can do without them
INT_MAX = (1 << 31) - 1
_DIGITS_MAX = 19                        # of a number that Java reads
# Bytes that a check adds: two separators and up to 19 and 10 digits; and a checksum that is switched on meanwhile.
CHECK_ROOM = len(ORIGIN) + len(CHECKS) + 33 + CRC_PROPERTY_SIZE
_ROUGH_MAX = 200                        # of the parts of a record beside body, topic and properties


class Limits(NamedTuple):
    """What the real record must keep, so that no half message is stored that can never be committed."""

    compat: Compat
    topic_bytes: int
    record_bytes: int


def half_record(topic: str, body: Any, group: str, unique: str, limits: Limits, *, queue_id: int, tags: str | None,
                keys: str | Iterable[str] | None, properties: Mapping[str, str] | bytes | None) -> dict[str, Any]:
    """Raises MessageIllegal, PropertiesSizeExceeded for what could not be committed. Properties of the caller stay;
    not those that would link it to half messages of another transaction, whose message somebody forwards."""
    compat = limits.compat
    _check_target(topic, queue_id, group, limits)
    found = dict(decode_properties(properties) if isinstance(properties, bytes) else properties or {})
    for name in _DELAYS:
        if name in found:
            raise MessageIllegal(f"the message has the property {name}: a transaction has no delay, put the message without")
    for name in (ORIGIN, CHECKS):
        found.pop(name, None)
    found |= {"TRAN_MSG": "true", "PGROUP": group}
    if tags is not None:
        found["TAGS"] = tags
    if keys is not None:
        found["KEYS"] = keys if isinstance(keys, str) else " ".join(keys)
    found.setdefault("UNIQ_KEY", unique)
    if compat == "5.x":
        found[TRANSACTION_ID] = found["UNIQ_KEY"]
    found |= {"REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
    encoded = encoded_as_a_broker(found, compat)
    check_room(encoded, 0)
    size = memoryview(body).nbytes + len(topic.encode()) + len(encoded) + _ROUGH_MAX if isinstance(
        body, bytes | bytearray | memoryview) else 0
    if size > limits.record_bytes:
        raise MessageIllegal(exceeds("record size", f"about {size} bytes", limits.record_bytes, "shorten body or properties"))
    return {"topic": HALF_TOPIC, "body": body, "queue_id": 0, "properties": encoded}


def check_room(encoded: bytes, light: int) -> None:
    """For what a check, or a commit with `light` bytes for light queues, adds. Raises PropertiesSizeExceeded."""
    most = PROPERTIES_SIZE_MAX - CHECK_ROOM - light
    if len(encoded) > most:
        raise PropertiesSizeExceeded(exceeds("size of the encoded properties of a transaction", f"{len(encoded)} bytes", most,
                                             "put what is long into the body"))


def _check_target(topic: object, queue_id: object, group: object, limits: Limits) -> None:
    if not isinstance(topic, str) or not _TOPIC(topic):
        raise MessageIllegal(f"topic is {topic!r}: give a name of the characters % | A-Z a-z 0-9 _ -")
    if topic in RESERVED:
        raise MessageIllegal(f"topic is {topic!r}: RocketMQ uses it itself, name a topic of your own")
    if len(topic) > limits.topic_bytes:
        raise MessageIllegal(exceeds("topic size", f"{len(topic)} bytes", limits.topic_bytes, "shorten its name"))
    if not isinstance(group, str) or not group or len(group) > 255:
        raise MessageIllegal(f"group is {group!r}: give the name of the producer group, up to 255 characters")
    try:
        whole(queue_id, "queue_id", 0, 0x7FFFFFFF)
    except ValueError as error:
        raise MessageIllegal(str(error)) from None


def encoded_as_a_broker(properties: Mapping[str, str], compat: Compat) -> bytes:
    """In the order of a broker's HashMap; without the checksum of another record."""
    order = java_hashmap_order((name for name in properties if name != CRC_PROPERTY), 128 if compat == "5.x" else 16)
    return encode_properties({name: properties[name] for name in order}, compat)


def _copy_of(half: "Message", topic: str, queue_id: int, properties: bytes) -> dict[str, Any]:
    return {"topic": topic, "queue_id": queue_id, "body": half.body, "properties": properties,
            "flag": half.flag, "sys_flag": half.sys_flag & ~FLAG_TRANSACTION & INT_MAX,
            "born_timestamp": max(half.born_timestamp, 0), "born_host": half.born_host,
            "reconsume_times": max(half.reconsume_times, 0)}


def _forms(half: "Message", options: Any, leave_out: tuple[str, ...] = (), added: Mapping[str, str] | None = None,
           without: tuple[str, ...] = ()) -> Iterator[bytes]:
    """The properties of a copy: a broker's; where they do not fit, or are none that an encoder writes, the bytes of the half
    message; and at last those without the names of `without`. Raises what the first lacks where all of `added` does not fit."""
    kept = {name: value for name, value in half.properties.items() if name not in leave_out}
    kept.update(added or {})
    refused: Exception | None = None
    try:
        yield encoded_as_a_broker(kept, options.compat)
    except (MessageIllegal, PropertiesSizeExceeded) as error:
        refused = error
    from rmq_store.codec.copies import copied_properties  # seldom needed
    for left_out in (leave_out, (*leave_out, *without)) if without else (leave_out,):
        encoded, lacks = copied_properties(half.properties_raw, left_out, added or {}, options.compat, options.record_crc)
        if not added or not {*added} & {*lacks}:
            yield encoded
    if refused is not None:
        raise refused


def real_records(half: "Message", options: Any) -> Iterator[dict[str, Any]]:
    """What a commit puts, until one fits: the last one does. As RocketMQ's, it keeps REAL_TOPIC, REAL_QID and TRAN_MSG."""
    own = half.properties
    for properties in _forms(half, options, without=(*_INTERNAL, *_LIGHT)):
        record = _copy_of(half, own["REAL_TOPIC"], int(own["REAL_QID"]), properties)
        yield record | {"sys_flag": record["sys_flag"] | TRANSACTION_COMMIT, "prepared_transaction_offset": half.offset}


def again_records(half: "Message", origin: int, checks: int, options: Any) -> Iterator[dict[str, Any]]:
    """The half message as a check puts it again, until one fits. ORIGIN, which RocketMQ writes for some, links it to the first:
    after a crash between this put and the next write of the offsets both are there, and they are one transaction."""
    for properties in _forms(half, options, added={CHECKS: str(checks), ORIGIN: str(origin)}):
        yield _copy_of(half, HALF_TOPIC, 0, properties)


def given_up_records(half: "Message", options: Any) -> Iterator[dict[str, Any]]:
    """Without its light queues, whose readers must not see what nobody has committed."""
    for properties in _forms(half, options, leave_out=_LIGHT):
        yield _copy_of(half, GIVEN_UP_TOPIC, 0, properties)


def op_bodies(offsets: Iterable[int], compat: Compat, size_max: int) -> list[tuple[bytes, list[int]]]:
    """Bodies of op messages, each with the half queue offsets that it settles: one offset a message in 4.9, and in 5.x as many
    as size_max bytes hold, each with a comma behind it."""
    if compat != "5.x":
        return [(b"%d" % offset, [offset]) for offset in offsets]
    bodies: list[tuple[bytes, list[int]]] = []
    for offset in offsets:
        text = b"%d," % offset
        if bodies and len(bodies[-1][0]) + len(text) <= size_max:
            bodies[-1] = (bodies[-1][0] + text, [*bodies[-1][1], offset])
        else:
            bodies.append((text, [offset]))
    return bodies


def op_record(body: bytes, compat: Compat, again: bool = False) -> dict[str, Any]:
    """again: it settles half messages that a check has put again, for a broker that takes over: their transactions are open."""
    found = {"TAGS": "d", "WAIT": "true"} | ({PUT_AGAIN: "true"} if again else {})
    properties = encode_properties({name: found[name] for name in java_hashmap_order(found)}, compat)
    return {"topic": OP_TOPIC, "queue_id": 0, "body": body, "properties": properties}


def number_of(text: str | bytes | None) -> int | None:
    """A number that Java may have written. None for other texts, which a peer can send: "\u00b2", or thousands of digits, which
    int() refuses."""
    return int(text) if text is not None and len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit() else None


def op_offsets(message: "Message") -> list[int]:
    """Half queue offsets that an op message of either version settles; what is no number settles nothing."""
    if message.tags != "d":
        return []
    return [offset for part in bytes(message.body).split(b",") if (offset := number_of(part)) is not None]


def can_be_real(topic: str, queue_id: int) -> bool:
    """Whether a commit can put a message there. A half message that names another place is nobody's."""
    return _TOPIC(topic) is not None and topic not in RESERVED and queue_id <= 0x7FFFFFFF
