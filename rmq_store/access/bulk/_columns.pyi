from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, NamedTuple

from rmq_store.base.io._io import IoTable
from rmq_store.filter._program import SqlFilter

BAD_TEXTS: tuple[str | None, ...]
VERIFY: dict[str, int]
INT32_COLUMNS: tuple[str, ...]
INT64_COLUMNS: tuple[str, ...]
TIME_COLUMNS: tuple[str, ...]
TEXT_COLUMNS: tuple[str, ...]
BYTES_COLUMNS: tuple[str, ...]
MAP_COLUMN: str

class Region(NamedTuple):
    begin: int
    end: int
    kind: str

class TextBuffers(NamedTuple):
    validity: bytes | None
    offsets: bytes
    data: bytes

class MapBuffers(NamedTuple):
    offsets: bytes
    entries: int
    names: TextBuffers
    values: TextBuffers

class Split:
    @property
    def path(self) -> str: ...
    @property
    def records(self) -> int: ...
    @property
    def record_bytes(self) -> int: ...
    def __init__(self, path: str | PathLike[str], start: int, begin: int, end: int, *, newest: bool = ..., aligned: bool = ...,
                 verify: str = ..., max_record: int = ..., mapped: bool = ..., whole_before: int = ...,
                 io: IoTable | None = ...) -> None: ...
    def __enter__(self) -> Split: ...
    def __exit__(self, *exc: object) -> None: ...
    def close(self) -> None: ...
    def choose(self, *, selectors: Iterable[tuple[Any, int | None, int, int]] | None = None, tags: Any = None,
               sql: str | SqlFilter | None = None, time_low: int | None = None, time_high: int | None = None,
               transactional: bool = True) -> None: ...
    @property
    def first(self) -> int | None: ...
    @property
    def position(self) -> int: ...
    @property
    def tail(self) -> int | None: ...
    @property
    def done(self) -> bool: ...
    def take_bad(self) -> list[Region]: ...
    def batch(self, columns: Sequence[str], *, max_rows: int = ...,
              max_bytes: int = ...) -> tuple[int, dict[str, Any]] | None: ...
    def skip(self, *, max_rows: int = ..., max_bytes: int = ...) -> tuple[int, int]: ...
