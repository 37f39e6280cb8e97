"""Timer messages: what a put makes of a message with a time of delivery. Pure functions, any thread; no clock.

    topic -> rmq_sys_wheel_timer, queue id -> 0, properties + TIMER_OUT_MS, REAL_TOPIC, REAL_QID

Source: HookUtils.checkIfTimerMessage, transformTimerMessage, RecallMessageHandle (5.3.3).
"""
import base64
import binascii
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rmq_store.codec._layout import PROPERTIES_SIZE_MAX
from rmq_store.codec._properties import decode_properties, encode_properties
from rmq_store.codec.delay import TIMER_NAMES, with_delay_level
from rmq_store.codec.layout import Compat
from rmq_store.errors import (
    ArgumentIllegal,
    MessageIllegal,
    PropertiesSizeExceeded,
    PutError,
    WheelTimerMsgIllegal,
    WheelTimerNotEnable,
    exceeds,
)
from rmq_store.fields import NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["BROKER_NAME", "RECALL_BODY", "RECALL_TAG", "TIMER_NAMES", "TIMER_TOPIC", "Recall", "delete_key", "recall_handle",
           "recall_message", "recall_of", "span_ms", "time_ms", "timed_messages",
           "timer_rewrite", "with_delay"]

RECALL_TAG, RECALL_BODY = "_RECALL_TAG_", b"0"          # of a recall's message (RecallMessageProcessor)
TIMER_TOPIC = "rmq_sys_wheel_timer"
BROKER_NAME = "DEFAULT_BROKER"          # RocketMQ's name of a broker that has none
DELIVERED_SIZE_MAX = 128                # of the properties that delivery adds
_RECALL_SIZE_MAX = 1024                 # of a recall's properties but for those with the topic and the UNIQ_KEY of its message
_MS_MAX = (1 << 63) - 1
_SECONDS_LEAST, _SECONDS_MOST = 100_000_000, 100_000_000_000     # of a time in seconds by mistake


class Recall(NamedTuple):
    """What a recall handle names."""

    topic: str
    broker_name: str
    deliver_ms: int
    unique_key: str


def with_delay(properties: Mapping[str, str] | bytes | None, level: int | None, deliver_at: object,
               delay: object) -> Mapping[str, str] | bytes:
    """The properties and a delay of either kind. Raises MessageIllegal."""
    if level is not None and (deliver_at, delay) != (None, None):
        other = "delay" if deliver_at is None else "deliver_at"
        raise MessageIllegal(f"delay_level and {other} are two ways to delay a message: give one of them")
    if level is not None:
        properties = with_delay_level(properties, level)
    if deliver_at is None and delay is None:
        return properties if properties is not None else {}
    return _with_time(properties, deliver_at, delay)


def time_ms(time: "int | datetime", name: str, error: type[ValueError] = ArgumentIllegal, *, low: int = -1 << 63) -> int:
    """Returns the time that a caller gives as ms since 1970: an aware datetime, or a whole number of ms.

    Raises `error`, which names the argument `name`: also for a number that as ms lies in the years 1970 to 1973, because it may
    be seconds. low: the least number. Numbers that no clock shows, such as 0 and -1, pass.
    """
    ms: object = time
    if not isinstance(time, int):
        import datetime  # whoever has one has loaded it

        if isinstance(time, datetime.datetime):
            if time.tzinfo is None:
                raise error(f"{name} is {time!r}, without a time zone: give an aware datetime")
            ms = max(round(time.timestamp() * 1000), 0)
    if isinstance(ms, bool) or not isinstance(ms, int) or not low <= ms <= _MS_MAX:
        raise error(f"{name} is {time!r}: give an aware datetime, or ms since 1970")
    if _SECONDS_LEAST <= ms < _SECONDS_MOST:
        raise error(f"{name} is {ms}, which as ms is in the years 1970 to 1973, and as seconds may be "
                    "now: give ms since 1970, so seconds times 1000, or an aware datetime")
    return ms


def span_ms(**times: "int | datetime | None") -> "tuple[int | None, int | None]":
    """Returns the two ends of a span of time by their names as time_ms does, None for an open one. Raises ArgumentIllegal."""
    first, last = (None if time is None else time_ms(time, name) for name, time in times.items())
    return first, last


def _unique() -> str:
    return os.urandom(16).hex().upper()


def _with_time(properties: Mapping[str, str] | bytes | None, deliver_at: object, delay: object,
               unique: Callable[[], str] = _unique) -> dict[str, str]:
    """The properties, the time of delivery and, so that the message can be recalled, a UNIQ_KEY."""
    known = dict(decode_properties(properties) if isinstance(properties, bytes) else properties or {})
    if deliver_at is not None and delay is not None:
        raise MessageIllegal("deliver_at and delay are two names for one field: give one of them")
    if there := [name for name in (*TIMER_NAMES, "DELAY", "TIMER_OUT_MS") if name in known]:
        raise MessageIllegal(f"the message has a time of delivery and the property {there[0]}: give one of them")
    if delay is not None:
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < math.inf:
            raise MessageIllegal(f"delay is {delay!r}: give seconds, 0 or more")
        known["TIMER_DELAY_MS"] = str(round(min(delay * 1000, _MS_MAX)))      # 1e308 s are inf ms
    else:
        known["TIMER_DELIVER_MS"] = str(time_ms(deliver_at, "deliver_at", MessageIllegal, low=0))     # type: ignore[arg-type]
    if "UNIQ_KEY" not in known:
        known["UNIQ_KEY"] = unique()
    return known


def timed_messages(messages: Iterable[Any], properties: Mapping[str, str] | bytes | None, deliver_at: object,
                   delay: object) -> list[Any]:
    """The messages of a put_many, each with its time of delivery among its properties. Raises MessageIllegal."""
    found: list[Any] = []
    begin, numbers = os.urandom(12).hex().upper(), itertools.count()       # a random number for each takes its time
    for message in messages:
        own: dict[str, Any] = {"body": message}
        if not isinstance(message, bytes | bytearray | memoryview) and hasattr(message, "keys"):
            own = dict(message)
        at, after = deliver_at, delay
        if "deliver_at" in own or "delay" in own:       # its own goes before the common one, of whatever kind
            at, after = own.pop("deliver_at", None), own.pop("delay", None)
        if at is not None or after is not None:
            try:
                own["properties"] = _with_time(own.get("properties", properties), at, after,
                                               lambda: f"{begin}{next(numbers) & 0xFFFFFFFF:08X}")
            except PutError as error:
                error._name_message(len(found))
                raise
        found.append(message if own.keys() == {"body"} and own["body"] is message else own)
    return found


def timer_rewrite(topic: str, queue_id: int, properties: bytes, *, now: int, precision_ms: int, max_delay_sec: int,
                  enabled: bool = True, compat: Compat = "5.x") -> tuple[bytes, int] | None:
    """The properties of the waiting form and the time of its slot in ms, or None where the message is stored at once: it has no
    time of delivery, or one that is past, or it waited already.

    properties: as encoded. Raises WheelTimerNotEnable, WheelTimerMsgIllegal; PropertiesSizeExceeded where they do not fit, now
    or with what delivery adds, and where those of a recall would not.
    """
    known = decode_properties(properties)
    name = next((name for name in TIMER_NAMES if name in known), None)
    if name is None or topic == TIMER_TOPIC or "TIMER_OUT_MS" in known:
        return None
    if not enabled:
        raise WheelTimerNotEnable("the message has a time of delivery, and timer_wheel_enable is false: open the store with "
                                  "timer_wheel_enable=True")
    text = known[name]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        raise WheelTimerMsgIllegal(f"the property {name} is {text!r}: give a number")
    number = int(text)
    deliver = number if name == "TIMER_DELIVER_MS" else now + number * (1000 if name == "TIMER_DELAY_SEC" else 1)
    if deliver <= now:
        if "TIMER_DEL_UNIQKEY" in known:
            raise WheelTimerMsgIllegal(f"the message to recall was due at {deliver} ms since 1970, and it is {now} ms: it "
                                       "cannot be taken back any more")
        return None
    if deliver - now > max_delay_sec * 1000:
        raise WheelTimerMsgIllegal(exceeds("delay", f"{deliver - now} ms", max_delay_sec * 1000,
                                           "deliver it earlier, or raise timer_max_delay_sec"))
    out = deliver - precision_ms if deliver % precision_ms == 0 else deliver // precision_ms * precision_ms
    if out < 0:
        raise WheelTimerMsgIllegal(f"the slot of the message is at {out} ms since 1970, and the clock says {now} ms: set the "
                                   "clock")
    known |= {"TIMER_OUT_MS": str(out), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
    # Values that came out of stored bytes may hold 0x01, which a put would refuse in a mapping and a record can hold.
    joined = "\x02".join(f"{name}\x01{value}" for name, value in known.items())
    encoded = encode_properties((joined + "\x02" if compat == "5.x" else joined).encode())
    _reserve(len(encoded), topic, known)
    return encoded, out


def _reserve(size: int, topic: str, known: Mapping[str, str]) -> None:
    """What is stored of a message later has room. Raises PropertiesSizeExceeded."""
    if size + DELIVERED_SIZE_MAX > PROPERTIES_SIZE_MAX:
        raise PropertiesSizeExceeded(exceeds("properties size of a timer message, with what the store adds to it",
                                             f"{size + DELIVERED_SIZE_MAX} bytes", PROPERTIES_SIZE_MAX,
                                             "store less in properties and more in the body"))
    if "TIMER_DEL_UNIQKEY" in known or "UNIQ_KEY" not in known:
        return
    size = 2 * len(topic.encode()) + len(known["UNIQ_KEY"].encode()) + _RECALL_SIZE_MAX
    if size > PROPERTIES_SIZE_MAX:
        raise PropertiesSizeExceeded(exceeds("properties size of a recall of the message", f"{size} bytes", PROPERTIES_SIZE_MAX,
                                             "give it a shorter UNIQ_KEY"))


def delete_key(topic: str, unique_key: str) -> str:
    """The value of TIMER_DEL_UNIQKEY that recalls a message of this topic and UNIQ_KEY (TimerMessageStore.buildDeleteKey)."""
    return f"{topic}+{unique_key}"


def recall_handle(topic: str, broker_name: str, out_ms: int, unique_key: str) -> str:
    """The handle of a waiting message. out_ms: its TIMER_OUT_MS (SendMessageProcessor.attachRecallHandle)."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker_name} {out_ms + 1} {unique_key}".encode()).decode()


def recall_message(handle: object) -> tuple[str, dict[str, str]]:
    """Topic and properties of the message that takes the other one back. Raises MessageIllegal for what is no handle."""
    found = recall_of(handle)
    properties = {"TIMER_DEL_UNIQKEY": delete_key(found.topic, found.unique_key), "UNIQ_KEY": found.unique_key,
                  "TIMER_DELIVER_MS": str(found.deliver_ms)}
    if 2 * len(found.unique_key.encode()) > PROPERTIES_SIZE_MAX - 2 * _RECALL_SIZE_MAX:
        del properties["UNIQ_KEY"]          # which nothing needs: the other one names the message
    return found.topic, properties


def recall_of(handle: object) -> Recall:
    """What a handle names. Raises MessageIllegal for what is no handle."""
    try:
        if not isinstance(handle, str):
            raise ValueError("it is no str")
        text = base64.b64decode(handle.encode(), b"-_", validate=True).decode()
        version, topic, broker_name, deliver, key = text.split(" ")
        if version != "v1" or not topic or not key or not deliver.isascii() or not deliver.isdigit() or len(deliver) > 18:
            raise ValueError("it is not of version 1")
        return Recall(topic, broker_name, int(deliver), key)
    except (ValueError, binascii.Error) as error:
        raise MessageIllegal(f"the recall handle is {handle!r}, which is not one ({error}): give one of recall_handle or of a "
                             "RocketMQ client") from None
