"""What the kernel's tests share: columns read back without Arrow, log files made by hand."""
import struct
from pathlib import Path

import pytest

from rmq_store.access.bulk._columns import (
    BYTES_COLUMNS,
    INT32_COLUMNS,
    INT64_COLUMNS,
    MAP_COLUMN,
    TEXT_COLUMNS,
    Region,
    Split,
    TextBuffers,
)
from rmq_store.codec._codec import encode_blank, encode_record

ALL = (*INT32_COLUMNS, *INT64_COLUMNS, *TEXT_COLUMNS, *BYTES_COLUMNS, MAP_COLUMN)


def text_values(buffers: TextBuffers, text: bool = True) -> list:
    ends = memoryview(buffers.offsets).cast("i")
    out: list = []
    for i in range(len(ends) - 1):
        if buffers.validity is not None and not buffers.validity[i >> 3] >> (i & 7) & 1:
            out.append(None)
            continue
        piece = buffers.data[ends[i]:ends[i + 1]]
        out.append(piece.decode() if text else piece)
    return out


def values(name: str, buffers) -> list:
    if name in INT32_COLUMNS:
        return list(memoryview(buffers).cast("i"))
    if name in INT64_COLUMNS:
        return list(memoryview(buffers).cast("q"))
    if name == MAP_COLUMN:
        ends = memoryview(buffers.offsets).cast("i")
        pairs = list(zip(text_values(buffers.names), text_values(buffers.values), strict=True))
        assert len(pairs) == buffers.entries == ends[-1]
        return [dict(pairs[ends[i]:ends[i + 1]]) for i in range(len(ends) - 1)]
    return text_values(buffers, name in TEXT_COLUMNS)


def rows_of(split: Split, columns=ALL, **limits) -> tuple[list[dict], list[Region]]:
    """All rows of a split as dicts, and the bad regions it met."""
    rows, bad = [], []
    with split:
        while (found := split.batch(columns, **limits)) is not None:
            n, made = found
            bad += split.take_bad()
            lists = {name: values(name, made[name]) for name in columns}
            assert all(len(v) == n for v in lists.values())
            rows += [{name: lists[name][i] for name in columns} for i in range(n)]
    return rows, bad


class LogFile:
    """A CommitLog file in the making: records placed where they are said to lie."""

    def __init__(self, path: Path, start: int = 0, size: int = 1 << 16) -> None:
        self.path, self.start, self.size = path / f"{start:020d}", start, size
        self.data = bytearray()
        self.places: list[int] = []

    def add(self, body: bytes = b"body", topic: str = "T", **fields) -> int:
        at = self.start + len(self.data)
        fields = {"physical_offset": at, "queue_offset": len(self.places), "store_timestamp": 1_700_000_000_000, **fields}
        self.data += encode_record(topic, body, **fields)
        self.places.append(at)
        return at

    def image(self, at: int, size: int | None = None, **fields) -> bytes:
        """A whole record that claims to lie at `at`; for bodies that want to be mistaken. size: pads its body up to it."""
        record = encode_record("Fake", b"f", physical_offset=at, store_timestamp=1, **fields)
        if size is None:
            return record
        return encode_record("Fake", b"f" * (1 + size - len(record)), physical_offset=at, store_timestamp=1, **fields)

    def end(self) -> None:
        self.data += encode_blank(self.size - len(self.data))

    def write(self) -> Path:
        assert len(self.data) <= self.size
        self.path.write_bytes(bytes(self.data) + bytes(self.size - len(self.data)))
        return self.path

    def damage(self, at: int, data: bytes) -> None:
        self.data[at - self.start:at - self.start + len(data)] = data

    def split(self, begin: int | None = None, end: int | None = None, **more) -> Split:
        return Split(self.path, self.start, self.start if begin is None else begin,
                     self.start + self.size if end is None else end, **more)


@pytest.fixture
def log(tmp_path):
    return lambda **more: LogFile(tmp_path, **more)


def put_size(data: bytearray, at: int, size: int) -> None:
    struct.pack_into(">i", data, at, size)
