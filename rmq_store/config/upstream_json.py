"""The JSON of RocketMQ's config files (config/*.json): fastjson 1.x, pretty format. Reading takes it, and plain JSON; writing
gives the same text as RocketMQ for the same content in the same order.

What differs from plain JSON: keys that are numbers stand without quotes and on one line, `{0:3,1:2`, and the closing brace of
such a map has a line of its own; tabs indent; no blank follows a colon. Source: ConfigManager, RemotingSerializable.toJson,
MapSerializer and ListSerializer of fastjson.
"""
import json
import re
from typing import Any

__all__ = ["dump_json", "int_keys", "parse_json"]

DEPTH_MAX = 64

# A string as a whole, so that nothing inside one is taken for a key; or a number in the place of a key. What has no closing
# quote is taken, too, as far as it goes: else each quote behind it would be looked at up to the end again, which takes hours.
_STRING_OR_KEY = r'"(?:[^"\\]|\\.)*+"?|(?P<open>[{,]\s*+)(?P<key>-?[0-9]++)(?=\s*:)'


_quoted = json.encoder.encode_basestring
_scalar = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def parse_json(text: str) -> Any:
    """The content; keys are str, numbers among them too (see int_keys). Raises ValueError."""

    def quote(match: re.Match[str]) -> str:
        return match[0] if match["key"] is None else f'{match["open"]}"{match["key"]}"'

    try:
        try:
            return json.loads(text)         # most have no number for a key
        except ValueError:
            return json.loads(re.sub(_STRING_OR_KEY, quote, text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def int_keys(table: object) -> dict[int, Any]:
    """A map with number keys as {int: value}. Raises ValueError."""
    if not isinstance(table, dict):
        raise ValueError(f"expected a map of numbers, not {type(table).__name__}")
    return {int(key): value for key, value in table.items()}


def dump_json(value: object, depth: int = 0) -> str:
    """The text RocketMQ writes. Keys that are int stand without quotes. Raises ValueError for what JSON cannot hold."""
    if depth > DEPTH_MAX:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict):
        line, end = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
        parts = [f"{key}:{dump_json(item, depth + 1)}" if isinstance(key, int) else
                 f"{line}{_quoted(key)}:{dump_json(item, depth + 1)}" for key, item in value.items()]
        return "{" + ",".join(parts) + (end if parts else "") + "}"
    if isinstance(value, tuple):            # Java's array of primitives
        return "[" + ",".join(dump_json(item, depth + 1) for item in value) + "]"
    if isinstance(value, list):
        line, end = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
        parts = [line + dump_json(item, depth + 1) for item in value]
        return "[" + ",".join(parts) + (end if parts else "") + "]"
    return _scalar(value)
