from collections.abc import Sequence
from os import PathLike
from typing import Any

_Path = str | PathLike[str]
_Piece = Sequence[Any]

def queue_part(piece: _Piece, directory: _Path, file_size: int,
               levels: Sequence[int] = ...) -> tuple[list[tuple[str, int, int, int, int]], int | None, int]: ...
def count_keys(piece: _Piece) -> tuple[int, int | None, int]: ...
def index_part(pieces: Sequence[_Piece], directory: _Path, tmp: _Path, name: int, slots: int, entries_max: int, skip: int,
               take: int) -> int: ...
