"""Delay levels: what a put makes of a message that is not to be delivered at once. Pure functions, any thread; no clock.

    topic -> SCHEDULE_TOPIC_XXXX, queue id -> level - 1, properties + REAL_TOPIC, REAL_QID; DELAY cut to the highest level

The queue entry of such a record carries the delivery time in place of the tags code (_delay.pxd: delay_tags_code).
Source: CommitLog.asyncPutMessage (4.9.8), HookUtils.transformDelayLevelMessage (5.3.3), ScheduleMessageService.
"""
from collections.abc import Mapping, Sequence

from rmq_store.codec._layout import FLAG_TRANSACTION, TRANSACTION_COMMIT
from rmq_store.codec._properties import decode_properties, encode_properties
from rmq_store.codec.layout import Compat
from rmq_store.errors import MessageIllegal
from rmq_store.fields import NamedTuple

__all__ = ["DELAY_LEVELS_MS", "SCHEDULE_TOPIC", "TIMER_NAMES", "Rewritten", "delay_rewrite", "deliver_timestamp",
           "parse_delay_level", "with_delay_level"]

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_NAMES = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")     # RocketMQ looks for them in this order
# 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
DELAY_LEVELS_MS = tuple(1000 * s for s in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200))


class Rewritten(NamedTuple):
    """Where a delayed message goes, and with which properties."""

    topic: str
    queue_id: int
    properties: bytes


def delay_rewrite(topic: str, queue_id: int, properties: bytes, *, sys_flag: int = 0, levels: Sequence[int] = DELAY_LEVELS_MS,
                  compat: Compat = "5.x") -> Rewritten | None:
    """The waiting form of a message, or None where it is not delayed (no DELAY, level 0 or below, prepared, rolled back).

    properties: as encoded. They come back parsed and encoded again, as RocketMQ does, in their order, with REAL_TOPIC and
    REAL_QID behind them. levels: milliseconds of each level, the first is level 1. Raises MessageIllegal where DELAY is no
    number, PropertiesSizeExceeded where the two names more do not fit.
    """
    if sys_flag & FLAG_TRANSACTION not in (0, TRANSACTION_COMMIT):
        return None
    known = decode_properties(properties)
    level = parse_delay_level(known.get("DELAY"))
    if level <= 0:
        return None
    if level > len(levels):
        level = len(levels)
        known["DELAY"] = str(level)
    if compat == "5.x":
        for name in TIMER_NAMES:
            known.pop(name, None)       # a delay level goes before a time of delivery
    known["REAL_TOPIC"] = topic
    known["REAL_QID"] = str(queue_id)
    return Rewritten(SCHEDULE_TOPIC, level - 1, _encode(known, compat))


def parse_delay_level(value: str | None) -> int:
    """The level that the property DELAY asks for: 0 for None. Raises MessageIllegal where Java's parseInt would throw."""
    if value is None:
        return 0
    digits = value[1:] if value[:1] in ("+", "-") else value
    if not digits.isascii() or not digits.isdigit() or not -1 << 31 <= int(value) < 1 << 31:
        raise MessageIllegal(f"property DELAY is {value!r}: it is the number of a delay level, 1 to {len(DELAY_LEVELS_MS)}")
    return int(value)


def with_delay_level(properties: Mapping[str, str] | bytes | None, level: int) -> Mapping[str, str] | bytes:
    """The properties and DELAY. Raises MessageIllegal for a number that is not a level, and where DELAY is there already."""
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level < 1 << 31:
        raise MessageIllegal(f"delay_level is {level!r}: give the number of a level, from 1 on, or 0 for no delay")
    given = decode_properties(properties) if isinstance(properties, bytes) else properties or {}
    if "DELAY" in given:
        raise MessageIllegal("delay_level and the property DELAY are two names for one field: give one of them")
    if level == 0:
        return properties if properties is not None else {}
    if isinstance(properties, bytes):
        return properties + (b"\x02" if properties and not properties.endswith(b"\x02") else b"") + b"DELAY\x01%d\x02" % level
    return {**given, "DELAY": str(level)}


def deliver_timestamp(level: int, store_timestamp: int, levels: Sequence[int] = DELAY_LEVELS_MS) -> int:
    """When a message stored at store_timestamp (ms) with this level is due; one second later for a level that is unknown."""
    return store_timestamp + (levels[level - 1] if 1 <= level <= len(levels) else 1000)


def _encode(known: dict[str, str], compat: Compat) -> bytes:
    # Values that came out of stored bytes may hold 0x01, which a put would refuse in a mapping and a record can hold.
    text = "\x02".join(f"{name}\x01{value}" for name, value in known.items())
    return encode_properties((text + "\x02" if compat == "5.x" else text).encode())
