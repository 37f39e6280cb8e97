"""A slow model of RocketMQ's evaluator: values as Java has them, conversions by regular expressions and Python's own numbers.

A condition is a function of the properties (str to str) to True, False, None (null); it raises Failed where Java raises.
"""
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Properties = Mapping[str, str]
Condition = Callable[[Properties], bool | None]
INTEGER, LONG = 31, 63


class Failed(Exception):
    """Java raises."""


class Whole(NamedTuple):
    """An Integer (bits 31) or a Long (bits 63)."""

    value: int
    bits: int


def whole(text: str, bits: int) -> int:
    found = re.fullmatch(r"([+-]?)(\d+)", text)
    if not found or any(ord(c) > 0xFFFF for c in text):
        raise Failed(text)
    value = int("".join(str(unicodedata.decimal(c)) for c in found[2])) * (-1 if found[1] == "-" else 1)
    if not -(1 << bits) <= value < 1 << bits:
        raise Failed(text)
    return value


_DECIMAL = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")


def double(text: str) -> float:
    while text and text[0] <= " ":
        text = text[1:]
    while text and text[-1] <= " ":
        text = text[:-1]
    if found := _HEX.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text[0] == "-" else math.inf
    if not _DECIMAL.fullmatch(text):
        raise Failed(text)
    return float(text if text.endswith(("NaN", "Infinity")) else text.rstrip("fFdD"))


def order_double(left: float, right: float) -> int:
    if left < right or left > right:
        return -1 if left < right else 1
    left_bits, right_bits = (0x7FF8 << 48 if x != x else struct.unpack("<q", struct.pack("<d", x))[0] for x in (left, right))
    return (left_bits > right_bits) - (left_bits < right_bits)


def compare(left: Any, right: Any, *, order: bool) -> int:
    """ComparisonExpression.__compare, and what stands before it for two texts."""
    if isinstance(left, str) and isinstance(right, str):
        return order_double(double(left), double(right)) if order else (left > right) - (left < right)
    if isinstance(left, bool) and isinstance(right, str):
        raise Failed("ClassCastException")
    if isinstance(left, str):
        left = convert(left, right)
    elif isinstance(right, str):
        right = convert(right, left)
    if isinstance(left, bool) or isinstance(right, bool):
        return left - right if isinstance(left, bool) and isinstance(right, bool) else -1
    if isinstance(left, float) or isinstance(right, float):
        return order_double(*(x if isinstance(x, float) else float(x.value) for x in (left, right)))
    return (left.value > right.value) - (left.value < right.value)


def convert(text: str, to: Any) -> Any:
    if isinstance(to, bool):
        return text.lower() == "true"
    return double(text) if isinstance(to, float) else Whole(whole(text, to.bits), to.bits)


def equal(left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return True if left is right else None if left is None else False
    return compare(left, right, order=False) == 0


def ordered(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    found = compare(left, right, order=True)
    return {">": found > 0, ">=": found >= 0, "<": found < 0, "<=": found <= 0}[sign]


def both(left: Condition, right: Condition, decides: bool) -> Condition:
    """AND (False decides) and OR (True decides)."""
    def evaluate(properties: Properties) -> bool | None:
        a = left(properties)
        if a is decides:
            return decides
        b = right(properties)
        if b is decides:
            return decides
        return None if a is None or b is None else not decides

    return evaluate


def inverse(part: Condition) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        found = part(properties)
        return None if found is None else not found

    return evaluate


def search(word: str, value: Any, text: str, negated: bool) -> bool:
    if not text or not isinstance(value, str):
        return False
    found = {"contains": text in value, "startswith": value.startswith(text), "endswith": value.endswith(text)}[word]
    return found is not negated
