"""The body of a registration, read topic by topic: JSON, or RocketMQ's compressed form (RegisterBrokerBody).

To read 45,000 topics takes a good part of a second, in which nobody else would be served: the readers are generators, and
whoever iterates over one decides when to let others in.
"""
import json
import math
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

__all__ = ["Refused", "Told", "body_of", "loads", "topics_of_compressed", "topics_of_json"]

BODY_PARTS_MAX = 1_500_000      # values of a registration, as far as its commas and brackets tell: 16 MiB of topics have fewer
INFLATED_MAX = 64 << 20         # bytes of a compressed registration
VALUE_MAX = 1 << 16             # bytes of one value there: a topic with its attributes
INFLATED_AT_ONCE = 1 << 16
Told = tuple[str | None, Any]
_space = re.compile(r"[ \t\n\r]*").match
_int = struct.Struct(">i").unpack


class Refused(ValueError):
    """A request that cannot be done; the text becomes the remark of the answer."""


def body_of(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _number(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text} is no number")    # Python would take it, and clients would get Infinity or NaN


_decode = json.JSONDecoder(parse_constant=_number, parse_float=_number).raw_decode


def _bounded(body: bytes) -> None:
    """Its size is looked at first: to read 16 MiB of brackets takes seconds in which nobody else is served."""
    if (parts := body.count(b",") + body.count(b"[") + body.count(b"{")) > BODY_PARTS_MAX:
        raise Refused(f"the body has {parts} values, the limit is {BODY_PARTS_MAX}: register fewer topics at a broker")


def loads(body: bytes) -> Any:
    """A small body. Raises Refused."""
    _bounded(body)
    try:
        return json.loads(body, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}") from error


class _Text:
    """JSON, from `at` on."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def next(self) -> str:
        """The character that comes next, behind blanks; "": none."""
        self.at = _space(self.text, self.at).end()      # type: ignore[union-attr]
        return self.text[self.at:self.at + 1]

    def take(self, expected: str) -> None:
        if self.next() != expected:
            raise ValueError(f"{expected} is missing at character {self.at}")
        self.at += 1

    def value(self) -> Any:
        self.next()
        found, self.at = _decode(self.text, self.at)
        return found

    def members(self) -> Iterator[str]:
        """The names of an object; the caller takes each value."""
        self.take("{")
        if self.next() != "}":
            while True:
                name = self.value()
                if not isinstance(name, str):
                    raise ValueError(f"a name is missing at character {self.at}")
                self.take(":")
                yield name
                if self.next() == "}":
                    break
                self.take(",")
        self.at += 1


def topics_of_json(body: bytes) -> Iterator[Told | None]:
    """(name, configuration) of each topic, and at the end (None, dataVersion). None between, for what else is there. Raises
    Refused."""
    _bounded(body)
    try:
        text = _Text(body.decode())
        version, some = None, False
        if text.next() == "{":
            for name in text.members():
                if name != "topicConfigSerializeWrapper" or text.next() != "{":
                    text.value()
                    yield None
                    continue
                for inner in text.members():
                    yield None
                    if inner == "topicConfigTable" and text.next() == "{":
                        some = True
                        for topic in text.members():
                            yield topic, text.value()
                    elif inner == "dataVersion":
                        version = text.value()
                    else:
                        text.value()
        else:
            text.value()
        if text.next():
            raise ValueError(f"something stands behind the end, at character {text.at}")
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}") from error
    if not some:
        raise Refused("the body has no topicConfigTable")
    yield None, version


class _Inflated:
    """What a zlib stream holds, as far as it was asked for."""

    def __init__(self, body: bytes) -> None:
        self._stream, self._rest, self._left = zlib.decompressobj(), body, INFLATED_MAX
        self._come = bytearray()

    def take(self, size: int) -> bytes:
        if not 0 <= size <= VALUE_MAX:
            raise ValueError(f"a value has {size} bytes, the limit is {VALUE_MAX}")
        while len(self._come) < size:
            more = self._stream.decompress(self._rest, INFLATED_AT_ONCE)
            self._rest = self._stream.unconsumed_tail
            self._left -= len(more)
            if self._left < 0:
                raise ValueError(f"it has more than {INFLATED_MAX} bytes")
            self._come += more
            if not more:
                raise ValueError("it ends too soon")
        found = bytes(self._come[:size])
        del self._come[:size]
        return found

    def number(self) -> int:
        return int(_int(self.take(4))[0])


def topics_of_compressed(body: bytes) -> Iterator[Told | None]:
    """As topics_of_json: dataVersion, the number of topics, and of each "name read write perm filterType [attributes]", every
    value behind its size. What follows (filter servers, static topics) is not read."""
    try:
        found = _Inflated(body)
        version = json.loads(found.take(found.number()), parse_constant=_number, parse_float=_number)
        for _ in range(found.number()):
            name, *words = found.take(found.number()).decode().split(" ", 5)
            numbers = [int(word) for word in words[:3]]
            if len(numbers) < 3:
                raise ValueError(f"the configuration of topic {name:.127} is not one")
            yield name, {"readQueueNums": numbers[0], "writeQueueNums": numbers[1], "perm": numbers[2], "topicSysFlag": 0}
    except (ValueError, RecursionError, zlib.error) as error:
        raise Refused(f"the body is no compressed registration: {error}") from error
    yield None, version
