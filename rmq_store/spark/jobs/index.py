"""Index files rebuilt from the log, in two passes: which keys belong to which file, then one task a file.

An index file holds a fixed number of keys in the order of the log, so counting them in each part says where every file begins.
"""
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rmq_store.access.bulk._rebuild import count_keys, index_part
from rmq_store.base.io.files import open_regular
from rmq_store.codec._layout import INDEX_AT_BEGIN_TIMESTAMP, INDEX_HEADER_SIZE
from rmq_store.codec.layout import get64
from rmq_store.errors import StoreStateError
from rmq_store.queues.index.geometry import geometry_of
from rmq_store.services.integrity.choosing import chosen_options
from rmq_store.spark.jobs.pieces import (
    PART_SIZE,
    Part,
    check_chain,
    check_log,
    reached,
    seen,
    store_with_log,
    whole_log,
)
from rmq_store.spark.jobs.queues import put_in_place
from rmq_store.spark.leftovers import drop, work_directory
from rmq_store.spark.schema import arrow_schema
from rmq_store.spark.stores import index_files

__all__ = ["RebuiltIndex", "rebuild_index"]

COLUMNS = {"part": "INT", "path": "STRING", "begin": "BIGINT", "first": "BIGINT", "position": "BIGINT", "keys": "BIGINT"}


@dataclass(frozen=True)
class RebuiltIndex:
    """What a rebuild made. directory: where the index files are now. slots, entries: the sizes of each; a store that has others
    as index_slots and index_entries_max refuses them."""

    directory: str
    files: int
    keys: int
    slots: int = 0
    entries: int = 0


def plan(arguments: dict[str, Any]) -> list[Any]:
    return list(enumerate(arguments["parts"]))


def work(part: Any, arguments: dict[str, Any]) -> Iterator[Any]:
    import pyarrow as pa

    number, what = part
    if "slots" not in arguments:
        keys, first, position = count_keys(seen(what))
        reached(what, position)
        row = {"part": number, "path": what[1], "begin": what[3], "first": first, "position": position, "keys": keys}
    else:
        pieces, skip, take = what
        keys = index_part([seen(piece) for piece in pieces], os.path.join(arguments["directory"], "files"),
                          os.path.join(arguments["directory"], "tmp"), number, arguments["slots"],
                          arguments["entries"], skip, take)
        if keys != take:
            raise StoreStateError(f"{pieces[-1][1]}: {keys} keys are there, {take} were counted: the log was cut since, or "
                                  "this is a copy that is behind: have the whole store at this path on every node, and run "
                                  "the job again")
        row = {"part": number, "keys": keys}
    yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(COLUMNS))


def rebuild_index(spark: Any, root: str, install: bool = False, split_size: int = PART_SIZE, slots: int | None = None,
                  entries: int | None = None, commitlog_path: Any = None) -> RebuiltIndex:
    """Makes the index files of the store at `root` from its log; install, commitlog_path and errors as rebuild_queues.

    slots, entries: their geometry; None: that of the files there, else as the store's
    configuration says, else RocketMQ's 5,000,000 and 20,000,000. Files are called
    after the store time of their first key: RocketMQ calls them after the moment they were made.
    """
    from rmq_store.spark.jobs.run import collect

    store = store_with_log(root, commitlog_path)
    place = os.path.join(store.root, ".spark", "rebuild")
    target = os.path.join(place, "index")
    found = _geometry(root)
    pieces, known = whole_log(store, split_size)
    with work_directory(place, "index") as work:
        for name in ("files", "tmp"):
            os.mkdir(os.path.join(work, name))
        shape: dict[str, Any] = {"slots": slots or found[0], "entries": entries or found[1]}
        counted = sorted(collect(spark, "rebuild_index", {"parts": pieces}), key=lambda row: row.part)
        check_chain((r.path, r.begin, r.first, r.position) for r in counted)
        files = _files([r["keys"] for r in counted], shape["entries"] - 1, pieces)
        made = 0
        if files:
            made = sum(r["keys"] for r in collect(spark, "rebuild_index", {"parts": files, "directory": work, **shape}))
        check_log(store, known)
        drop(target)
        os.rename(os.path.join(work, "files"), target)      # what a late attempt makes now has no place to go
    _rename(target, len(files))
    directory = put_in_place(store, known, target, "index") if install else target
    return RebuiltIndex(directory, len(files), made, shape["slots"], shape["entries"])


def _files(keys: list[int], each: int, pieces: list[Part]) -> list[tuple[list[Part], int, int]]:
    """For each index file: the parts that its keys are in, the keys in the first of them before it, how many keys it takes."""
    total = sum(keys)
    found = []
    part = before = 0
    for first in range(0, total, each):
        while before + keys[part] <= first:
            before += keys[part]
            part += 1
        take, last, upto = min(each, total - first), part + 1, before + keys[part]
        while upto < first + take:
            upto += keys[last]
            last += 1
        found.append((pieces[part:last], first - before, take))
    return found


def _geometry(root: str) -> tuple[int, int]:
    for path in index_files(root):
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            shape = geometry_of(file.fileno())
        if shape is not None:
            return shape
    options = chosen_options(root, {})[1]       # of the store's own configuration, else RocketMQ's
    return int(options.index_slots), int(options.index_entries_max)


def _rename(directory: str, count: int) -> None:
    last = 0
    for number in range(count):
        made = os.path.join(directory, f"{number:017d}")
        with open(made, "rb", buffering=0, opener=open_regular) as file:
            begin = get64(file.read(INDEX_HEADER_SIZE), INDEX_AT_BEGIN_TIMESTAMP)
        moment = time.localtime(max(0, begin) // 1000)
        name = max(last + 1, int(time.strftime("%Y%m%d%H%M%S", moment)) * 1000 + max(0, begin) % 1000)
        os.rename(made, os.path.join(directory, f"{name:017d}"))
        last = name
