"""Reads a broker.conf: Java's Properties format, as Properties.load takes it. Pure functions, any thread."""
import re

_LINE_END = r"\r\n|\r|\n"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE = r"[0-9a-fA-F]{4}"


def parse(data: bytes) -> dict[str, str]:
    """Key to value, of two equal keys the later one. ValueError where an escape is malformed.

    The bytes are Latin-1, as Java takes them; a file whose bytes are UTF-8 beyond ASCII is taken as UTF-8, which is what those
    who write such files mean.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    result = {}
    for line in _logical_lines(text.removeprefix("\ufeff")):
        key, value = _split(line)
        result[_unescape(key)] = _unescape(value)
    return result


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks; a line that ends in an odd number of backslashes continues in the next."""
    lines: list[str] = []
    going_on = False
    for natural in re.split(_LINE_END, text):
        line = natural.lstrip(" \t\f")
        if not going_on and (not line or line[0] in "#!"):
            continue
        open_end = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        body = line[:-1] if open_end else line
        if going_on:
            lines[-1] += body
        else:
            lines.append(body)
        going_on = open_end
    return lines


def _split(line: str) -> tuple[str, str]:
    """At the first `=`, `:` or blank that is not escaped; blanks around the separator go."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(" \t\f")
    if rest[:1] in ("=", ":") and rest:
        rest = rest[1:].lstrip(" \t\f")
    return key, rest


def _unescape(text: str) -> str:
    parts = []
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        if letter == "\\" and at < len(text):
            letter = text[at]
            at += 1
            if letter == "u":
                code = text[at:at + 4]
                if not re.fullmatch(_UNICODE, code):
                    raise ValueError(f"\\u{code} is not a character: expected four hex digits")
                letter = chr(int(code, 16))
                at += 4
            else:
                letter = _ESCAPES.get(letter, letter)
        elif letter == "\\":
            break
        parts.append(letter)
    return "".join(parts)
