"""Whole logs cut into parts for jobs that must see every record, the proof that the parts met, and that all is of one log: a
part carries what the planner saw, the worker compares, and so does who puts the results in place. Without pyspark."""
import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from rmq_store.config import values
from rmq_store.errors import ConfigError, CorruptionError, LogDirectoryMissing
from rmq_store.spark.arrow import behind, refuse_another_file
from rmq_store.spark.identity import Identity, last_before, refuse_another
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions
from rmq_store.spark.splits import Piece, pieces_of, with_end
from rmq_store.spark.stores import Broker, log_files, recorded_logs

__all__ = ["PART_SIZE", "Part", "check_chain", "check_log", "reached", "seen", "store_with_log", "whole_log"]

Part = list[Any]        # the fields of a Piece: JSON data
PART_SIZE = 256 << 20   # of log a task: enough that what Spark spends on a task counts little


def store_with_log(root: str, commitlog_path: Any = None) -> Broker:
    """The store at `root`; its log in these directories (text with commas between them, or a sequence), None: those that its
    writer recorded, else in the root. Raises ConfigError, and LogDirectoryMissing where one is not there: a rebuild needs all
    of them."""
    try:
        logs = values.path_list(values.to_paths(commitlog_path)) if commitlog_path is not None else recorded_logs(root)
    except ValueError as error:
        raise ConfigError(f"commitlog_path is {commitlog_path!r}: {error}") from None
    if missing := [place for place in logs if not os.path.isdir(place)]:
        raise LogDirectoryMissing(missing[0], None, "a directory of the commit log (commitlog_path)",
                                  "none: mount its disk, a rebuild needs the whole log")
    place = os.path.abspath(root)
    return Broker(os.path.basename(place), place, tuple(logs))


def whole_log(store: Broker, size: int = PART_SIZE) -> tuple[list[Part], Identity]:
    """All of a log in parts of `size` bytes, up to where it ends now (where recovery ends it, of a store that was not closed),
    and which log it is. Raises CorruptionError where a file between others is missing."""
    log = LogPositions(store, ReadOptions((store,), io="pread"))
    end, files = log.end(over=True), log.files()
    pieces = with_end(pieces_of(store, files, 0, end, size), last_before(store, files, end, mapped=False))
    return [list(vars(piece).values()) for piece in pieces], log.identity(end)


def seen(part: Part) -> Part:
    """The part for the kernel, where this machine sees the file that the planner saw. Raises StoreStateError,
    FileNotFoundError."""
    refuse_another_file(Piece(*part))
    return part[:7]


def reached(part: Part, position: int) -> None:
    """Raises CorruptionError where the records of a part end at `position`, before those that the planner saw."""
    if (short := behind(Piece(*part), position)) is not None:
        raise short


def check_log(store: Broker, known: Identity) -> None:
    """For who puts in place what was made of a log. Raises StoreStateError where another one is there now."""
    refuse_another(store, log_files(store), known, 1 << 63, "run the job again")


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
