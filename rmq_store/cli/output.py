"""What commands print: lines for people or JSON lines for programs on standard output, progress on a terminal.

Control plane, the main thread only. Results go to standard output and nothing else does; progress and warnings go to standard
error, so that a pipe carries results alone.
"""
import contextlib
import io
import json
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, TextIO

MOST, WAIT_S = 256 << 10, 1.0
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

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise of_standard_output(error) from None


class Patient(io.TextIOBase):
    """Standard output or standard error of a command that serves: whoever reads it may stop, and nobody who writes waits for
    that. A thread writes to the descriptor. What is more than MOST bytes behind is lost; of standard error a line says how many
    lines were, once it is read again. Any thread."""

    def __init__(self, stream: TextIO, tells: bool) -> None:
        """tells: a write raises what the descriptor failed with, and what is lost is not spoken of. Raises OSError for a stream
        without a descriptor, and where no thread can be had."""
        self._file, self._stream, self._tells = stream.fileno(), stream, tells
        self._waiting: deque[bytes] = deque()
        self._bytes = self._lost = 0
        self._stuck = self._losing = self._ended = False
        self._error: OSError | None = None
        self._moved = threading.Condition()
        stream.flush()
        from rmq_store.base.io.threads import start_thread  # most commands need none

        start_thread(self._run, "rmq-output")

    def write(self, text: str) -> int:
        data = text.encode(self._stream.encoding or "utf-8", self._stream.errors or "backslashreplace")
        with self._moved:
            if self._error is not None and self._tells:
                raise self._error
            if self._ended and not self._bytes:
                self._stream.write(text)
            elif self._ended or self._losing or (self._bytes and self._bytes + len(data) > MOST):
                self._losing = True             # until all is read: a line may come in pieces
                self._lost += text.count("\n")
            elif self._error is None and data:
                self._waiting.append(data)
                self._bytes += len(data)
                self._moved.notify_all()
        return len(text)

    def flush(self) -> None:
        """Waits a second at most, and not again before something is read."""
        with self._moved:
            if not self._stuck and not self._moved.wait_for(lambda: not self._bytes, WAIT_S):
                self._stuck = True
            if self._error is not None and self._tells:
                raise self._error

    def end(self) -> None:
        """Waits as flush() does, and lets the thread go. What is written from now on goes to the stream."""
        with contextlib.suppress(OSError):
            self.flush()
        with self._moved:
            self._ended = True
            self._moved.notify_all()

    def fileno(self) -> int:
        return self._file

    def isatty(self) -> bool:
        return self._stream.isatty()

    def _run(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                data = self._waiting[0]
            try:
                while data:
                    with contextlib.suppress(BlockingIOError):
                        data = data[os.write(self._file, data):]
                        continue
                    select.select((), (self._file,), ())        # somebody made it so that it does not wait
            except OSError as error:        # for good: what would be tried again is lost
                with self._moved:
                    self._error, self._bytes = error, 0
                    self._waiting.clear()
                    self._moved.notify_all()
                return
            with self._moved:
                self._bytes -= len(self._waiting.popleft())
                self._stuck = False
                if self._losing and not self._bytes:
                    if not self._tells:
                        self._waiting.append(f"rmqstore: nobody read this for a while; lines lost: {self._lost}\n".encode())
                        self._bytes = len(self._waiting[0])
                    self._losing, self._lost = False, 0
                self._moved.notify_all()


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Standard output and standard error of a command that serves. Where they have no descriptor they stay as they are."""
    plain, made = (sys.stdout, sys.stderr), []
    with contextlib.suppress(OSError, ValueError):
        made = [Patient(sys.stdout, True), Patient(sys.stderr, False)]
        sys.stdout, sys.stderr = made
    try:
        yield
    finally:
        sys.stdout, sys.stderr = plain
        for stream in made:
            stream.end()


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
