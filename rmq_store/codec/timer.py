"""Timer messages: what a put makes of a message with a time of delivery. Pure functions, any thread.

    topic -> rmq_sys_wheel_timer, queue 0, properties + TIMER_OUT_MS, REAL_TOPIC, REAL_QID

Source: HookUtils.handleScheduleMessage, transformTimerMessage (5.3.3), RecallMessageHandle.
"""
import base64
import binascii
import datetime
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from rmq_store.codec._properties import decode_properties, encode_properties
from rmq_store.codec.delay import with_delay_level
from rmq_store.codec.layout import Compat
from rmq_store.errors import MessageIllegal, WheelTimerMsgIllegal, exceeds

__all__ = ["TIMER_NAMES", "TIMER_TOPIC", "Recall", "recall_handle", "recall_of", "timer_rewrite", "with_delay"]

TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_NAMES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")     # upstream looks for them in this order
_MS_MAX = (1 << 63) - 1


class Recall(NamedTuple):
    """What a recall handle names."""

    topic: str
    broker: str
    deliver_ms: int
    unique: str


def with_deliver_at(properties: Mapping[str, str] | bytes | None, deliver_at: object, delay: object) -> dict[str, str]:
    """The properties, the time of delivery and, for a recall, a UNIQ_KEY. deliver_at: aware datetime or ms since 1970.
    delay: seconds. Raises MessageIllegal."""
    known = dict(decode_properties(properties) if isinstance(properties, bytes) else properties or {})
    if deliver_at is not None and delay is not None:
        raise MessageIllegal("deliver_at and delay are two names for one field: give one of them")
    if there := [name for name in (*TIMER_NAMES, "DELAY") if name in known]:
        raise MessageIllegal(f"the message has a time of delivery and the property {there[0]}: give one of them")
    if delay is not None:
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < 1e9:
            raise MessageIllegal(f"delay is {delay!r}: give seconds, 0 or more")
        known["TIMER_DELAY_MS"] = str(round(delay * 1000))
    else:
        if isinstance(deliver_at, datetime.datetime):
            if deliver_at.tzinfo is None:
                raise MessageIllegal(f"deliver_at is {deliver_at!r}, without a time zone: give an aware datetime")
            deliver_at = round(deliver_at.timestamp() * 1000)
        if isinstance(deliver_at, bool) or not isinstance(deliver_at, int) or not 0 <= deliver_at <= _MS_MAX:
            raise MessageIllegal(f"deliver_at is {deliver_at!r}: give an aware datetime, or ms since 1970")
        known["TIMER_DELIVER_MS"] = str(deliver_at)
    known.setdefault("UNIQ_KEY", uuid.uuid4().hex.upper())
    return known


def with_delay(properties: Mapping[str, str] | bytes | None, level: int | None, deliver_at: object,
               delay: object) -> Mapping[str, str] | bytes:
    """The properties and a delay of either kind. Raises MessageIllegal."""
    if level is not None:
        properties = with_delay_level(properties, level)
    if deliver_at is None and delay is None:
        return properties if properties is not None else {}
    return with_deliver_at(properties, deliver_at, delay)


def timer_rewrite(topic: str, queue_id: int, properties: bytes, *, now: int, precision_ms: int, max_delay_sec: int,
                  compat: Compat) -> tuple[bytes, int] | None:
    """The properties of the waiting form and its slot's time, or None where the message is stored at once: no time of
    delivery, or one that is past. Raises WheelTimerMsgIllegal."""
    known = decode_properties(properties)
    name = next((name for name in TIMER_NAMES if name in known), None)
    if name is None or topic == TIMER_TOPIC or "TIMER_OUT_MS" in known:
        return None
    text = known[name]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        raise WheelTimerMsgIllegal(f"property {name} is {text!r}: give a number")
    number = int(text)
    deliver = number if name == "TIMER_DELIVER_MS" else now + number * (1000 if name == "TIMER_DELAY_SEC" else 1)
    if deliver <= now:
        if "TIMER_DEL_UNIQKEY" in known:
            raise WheelTimerMsgIllegal(f"the message to delete was due at {deliver} ms, and it is {now} ms: it is delivered")
        return None
    if deliver - now > max_delay_sec * 1000:
        raise WheelTimerMsgIllegal(exceeds("delay", f"{deliver - now} ms", max_delay_sec * 1000,
                                           "deliver it earlier, or raise timer_max_delay_sec"))
    out = deliver - precision_ms if deliver % precision_ms == 0 else deliver // precision_ms * precision_ms
    known |= {"TIMER_OUT_MS": str(out), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
    return _encode(known, compat), out


def recall_handle(topic: str, broker: str, out_ms: int, unique: str) -> str:
    """Upstream's handle, version 1."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {out_ms + 1} {unique}".encode()).decode()


def recall_of(handle: object) -> Recall:
    """Raises MessageIllegal for what is no handle."""
    try:
        if not isinstance(handle, str):
            raise ValueError("no str")
        version, topic, broker, deliver, unique = base64.urlsafe_b64decode(handle.encode()).decode().split(" ")
        if version != "v1" or not topic or not unique or not deliver.isascii() or not deliver.isdigit() or len(deliver) > 19:
            raise ValueError("not of version 1")
        return Recall(topic, broker, int(deliver), unique)
    except (ValueError, binascii.Error) as error:
        raise MessageIllegal(f"recall handle is {handle!r}, which is none ({error}): give PutResult.recall_handle") from None


def _encode(known: dict[str, str], compat: Compat) -> bytes:
    # Values that came out of stored bytes may hold 0x01, which a put would refuse in a mapping and a record can hold.
    text = "\x02".join(f"{name}\x01{value}" for name, value in known.items())
    return encode_properties((text + "\x02" if compat == "5.x" else text).encode())
