"""Writes options as TOML, as sources.py reads them. Pure functions, any thread."""
from collections.abc import Mapping

__all__ = ["lines", "value"]


def lines(options: Mapping[str, object]) -> list[str]:
    """`name = value` for each; what is None has no line, because TOML has no word for it."""
    return [f"{name} = {value(found)}" for name, found in options.items() if found is not None]


def value(found: object) -> str:
    """A str, a number, a bool, or a sequence of them."""
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, (list, tuple)):
        return "[" + ", ".join(map(value, found)) + "]"
    if isinstance(found, str):
        escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or c in '"\\\x7f' else c for c in found)
        return f'"{escaped}"'
    return str(found)
