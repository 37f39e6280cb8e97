"""What commands print: lines for people or JSON lines for programs on standard output, progress on a terminal.

Control plane, the main thread only. Results go to standard output and nothing else does; progress and warnings go to standard
error, so that a pipe carries results alone.
"""
import json
import sys
import time
from collections.abc import Mapping
from typing import IO

_CLEAR = "\r\x1b[K"


def of_standard_output(error: OSError) -> OSError:
    """The error, which names standard output now: the kernel's error of a write names nothing."""
    error.filename = error.filename or "standard output"
    return error


class Output:
    """Where a command writes. `as_json` says which of the two forms the caller asked for."""

    def __init__(self, as_json: bool, stream: IO[str] | None = None) -> None:
        self.as_json = as_json
        self._stream = sys.stdout if stream is None else stream

    def line(self, text: str = "") -> None:
        """One line as it stands, in both forms."""
        try:
            self._stream.write(text + "\n")
        except OSError as error:
            raise of_standard_output(error) from None

    def say(self, text: str = "") -> None:
        """One line for people; nothing under --json."""
        if not self.as_json:
            self.line(text)

    def record(self, fields: Mapping[str, object]) -> None:
        """One JSON line, in both forms."""
        self.line(json.dumps(fields, ensure_ascii=True, separators=(",", ":"), default=str))

    def table(self, head: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
        """A table for people: numbers to the right, text to the left."""
        cells = [head] + [tuple(str(c) for c in row) for row in rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        number = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(head))]
        form = "  ".join(f"{{:{'>' if n else '<'}{w}}}" for w, n in zip(widths, number, strict=True))
        for row in cells:
            self.say(form.format(*row).rstrip())

    def fileno(self) -> int | None:
        """Descriptor of the stream; None where it has none."""
        try:
            return self._stream.fileno()
        except (OSError, ValueError):
            return None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise of_standard_output(error) from None


class Progress:
    """One moving line on standard error, where that is a terminal: `what  done of total  rate`. Use as a context. always: also
    where it is none, a line a second."""

    PERIOD_S = 0.1

    def __init__(self, what: str, total: int = 0, unit: str = "", stream: IO[str] | None = None,
                 always: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._moves = self._stream.isatty()
        self._shown = self._moves or always
        self._what, self._total, self._unit = what, total, unit
        self._begin = self._last = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._moves:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def at(self, done: int, total: int | None = None) -> None:
        """Cheap enough for every few hundred steps."""
        now = time.monotonic()
        if not self._shown or now - self._last < (self.PERIOD_S if self._moves else 1.0):
            return
        self._last = now
        self._total = self._total if total is None else total
        share = f" of {self._total:,} ({100 * done // self._total}%)" if self._total else ""
        rate = done / max(now - self._begin, 1e-9)
        text = f"{self._what}  {done:,}{share} {self._unit}  {rate:,.0f}/s"
        self._stream.write(_CLEAR + text if self._moves else text + "\n")
        self._stream.flush()


def size_text(size: int) -> str:
    """1536 -> "1.5 KiB"."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError
