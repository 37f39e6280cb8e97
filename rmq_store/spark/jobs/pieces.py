"""Whole logs cut into parts for jobs that must see every record, and the proof that the parts met. Without pyspark."""
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from rmq_store.errors import CorruptionError
from rmq_store.spark.splits import pieces_of
from rmq_store.spark.stores import Broker, log_files

__all__ = ["PART_SIZE", "Piece", "check_chain", "whole_log"]

Piece = list[Any]       # broker, path, start, begin, end, newest, aligned: JSON data
PART_SIZE = 256 << 20   # of log a task: enough that what Spark spends on a task counts little


def whole_log(root: str, size: int = PART_SIZE) -> list[Piece]:
    """All of a log in parts of `size` bytes."""
    return [list(vars(p).values()) for p in pieces_of(Broker("", root), log_files(root), 0, (1 << 63) - 1, size)]


def check_chain(rows: Iterable[tuple[str, int, int | None, int]]) -> None:
    """rows: (path, begin, first record, position behind the last one) of every part. Raises CorruptionError where neighbours in
    a file do not meet: then a record was left out or made up."""
    files: dict[str, list[tuple[int, int, int]]] = {}
    for path, begin, first, position in rows:
        if first is not None:
            files.setdefault(path, []).append((begin, first, position))
    for path, parts in files.items():
        parts.sort()
        for (_, _, ends), (_, first, _) in pairwise(parts):
            if ends != first:
                raise CorruptionError(path, first, f"a record at {ends}, where the part before ends", f"one at {first}")
