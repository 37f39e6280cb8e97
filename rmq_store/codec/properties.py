"""The properties of a record: mapping <-> bytes, Java's order of them, removal of one. Pure functions, any thread.

    name 0x01 value 0x02 name 0x01 value [0x02]        UTF-8, at most 32767 bytes

The encoder keeps the mapping's order, as the Java store keeps that of the string it is given. A broker's own is that of a
HashMap: java_hashmap_order tells it to whoever wants to write what a broker would. Readers must never depend on it.
Source: MessageDecoder, MessageUtils.deleteProperty, java.util.HashMap.
"""
from collections.abc import Iterable
from typing import AnyStr

from rmq_store.codec._java_hash import java_hash
from rmq_store.codec._properties import decode_properties, decode_text, encode_properties

__all__ = ["CRC_PROPERTY", "decode_properties", "decode_text", "delete_property", "encode_properties", "java_hashmap_order"]

CRC_PROPERTY = "__CRC32#"

_TREEIFY_THRESHOLD = 8          # a bucket that would get a ninth key makes a small table grow
_MIN_TREEIFY_CAPACITY = 64


def java_hashmap_order(keys: Iterable[str], table: int = 16) -> list[str]:
    """The order in which a Java HashMap gives `keys` back that were put into it in this order.

    table: number of buckets at the start, a power of two; 16 = new HashMap() (brokers up to 5.0.0), 128 = new HashMap(128)
    (from 5.1.0). Buckets in ascending order, in a bucket the order of insertion. Nine and more keys in one of 64 or more
    buckets become a tree in Java, whose order is not foretold here.
    """
    if table < 1 or table & (table - 1):
        raise ValueError(f"table is {table}: it is a power of two")
    spreads: dict[str, int] = {}
    for key in dict.fromkeys(keys):
        code = java_hash(key) & 0xFFFFFFFF
        spread = code ^ (code >> 16)
        if table < _MIN_TREEIFY_CAPACITY:
            same = sum((spread ^ other) & (table - 1) == 0 for other in spreads.values())
            if same >= _TREEIFY_THRESHOLD:
                table *= 2
        spreads[key] = spread
        if len(spreads) > table * 3 // 4:
            table *= 2
    return sorted(spreads, key=lambda key: spreads[key] & (table - 1))


def delete_property(properties: AnyStr, name: AnyStr) -> AnyStr:
    """`properties` without the property `name`, as RocketMQ cuts it out; both str, or both bytes.

    A name counts only at the start or behind 0x02, and only with 0x01 behind it. What lay before and behind stays as it is.
    """
    first, split, stop = ("", "\x01", "\x02") if isinstance(properties, str) else (b"", b"\x01", b"\x02")
    wanted = name + split
    kept = []
    at = begin = 0
    while True:
        begin = properties.find(wanted, begin)
        if begin < 0:
            kept.append(properties[at:])
            break
        if begin > 0 and properties[begin - 1:begin] != stop:
            begin += len(name)
            continue
        kept.append(properties[at:begin])
        end = properties.find(stop, begin + len(wanted))
        if end < 0:
            break
        at = begin = end + 1
    return first.join(kept)
