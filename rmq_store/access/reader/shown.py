"""Messages as a notebook shows them: one HTML table. What is in a message is text to look at, never markup. Pure functions, any
thread."""
import html
import itertools
from collections.abc import Iterable
from typing import Protocol

from rmq_store.codec.layout import time_text

__all__ = ["table_html"]

ROWS, TEXT, BYTES = 100, 200, 32        # shown at most: messages; of a body, characters or bytes
_HEAD = ("topic", "queue", "offset", "stored", "tags", "keys", "bytes", "body")


class Shown(Protocol):
    """What a table shows of a message (_message.pyx)."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> str | None: ...
    @property
    def body(self) -> memoryview: ...


def table_html(title: str, messages: Iterable[Shown]) -> str:
    """The first ROWS messages as a table, under `title`."""
    rows = [_row(_HEAD, "th")]
    walk = iter(messages)
    rows += [_row((m.topic, m.queue_id, m.queue_offset, time_text(m.store_timestamp), m.tags or "", m.keys or "", len(m.body),
                   _body(m.body)), "td") for m in itertools.islice(walk, ROWS)]
    more = sum(1 for _ in walk)
    parts = [f"<div>{html.escape(title)}</div>"] if title else []
    parts += [f"<table>{''.join(rows)}</table>"]
    parts += [f"<div>and {more} more</div>"] if more else []
    return "".join(parts)


def _row(cells: Iterable[object], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _body(body: memoryview) -> str:
    try:
        text = bytes(body[:4 * TEXT]).decode() if len(body) <= 4 * TEXT else bytes(body[:4 * TEXT]).decode("utf-8", "ignore")
        if len(body) > 4 * TEXT and len(text.encode()) < 4 * TEXT - 3:
            raise UnicodeError
    except UnicodeError:
        return f"0x{bytes(body[:BYTES]).hex()}{'…' if len(body) > BYTES else ''}"
    return text[:TEXT] + ("…" if len(text) > TEXT or len(body) > 4 * TEXT else "")
