"""Whole logs cut into parts for jobs that must see every record, and the proof that the parts met. Without pyspark."""
import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from rmq_store.config import values
from rmq_store.errors import ConfigError, CorruptionError, LogDirectoryMissing
from rmq_store.spark.splits import pieces_of
from rmq_store.spark.stores import Broker, log_files

__all__ = ["PART_SIZE", "Piece", "check_chain", "store_with_log", "whole_log"]

Piece = list[Any]       # broker, path, start, begin, end, newest, aligned: JSON data
PART_SIZE = 256 << 20   # of log a task: enough that what Spark spends on a task counts little


def store_with_log(root: str, commitlog_path: Any = None) -> Broker:
    """The store at `root`; its log in these directories (text with commas between them, or a sequence), None: in the root.
    Raises ConfigError, and LogDirectoryMissing where one is not there: a rebuild needs them all."""
    try:
        logs = values.path_list(values.to_paths(commitlog_path)) if commitlog_path is not None else []
    except ValueError as error:
        raise ConfigError(f"commitlog_path is {commitlog_path!r}: {error}") from None
    if missing := [place for place in logs if not os.path.isdir(place)]:
        raise LogDirectoryMissing(missing[0], None, "a directory of the commit log (commitlog_path)",
                                  "none: mount its disk, a rebuild needs the whole log")
    return Broker("", os.path.abspath(root), tuple(logs))


def whole_log(store: Broker, size: int = PART_SIZE) -> list[Piece]:
    """All of a log in parts of `size` bytes. Raises CorruptionError where a file between others is missing."""
    return [list(vars(p).values())[:7] for p in pieces_of(store, log_files(store), 0, (1 << 63) - 1, size)]


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
