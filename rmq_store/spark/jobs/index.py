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
from rmq_store.queues.index.geometry import geometry_of
from rmq_store.services.integrity.choosing import chosen_options
from rmq_store.spark.jobs.pieces import PART_SIZE, Piece, check_chain, store_with_log, whole_log
from rmq_store.spark.jobs.queues import put_in_place
from rmq_store.spark.leftovers import drop, work_directory
from rmq_store.spark.schema import arrow_schema
from rmq_store.spark.stores import Broker, index_files

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
    if "files" not in arguments:
        return list(enumerate(_log(arguments)))
    return list(enumerate(arguments["files"]))


def work(part: Any, arguments: dict[str, Any]) -> Iterator[Any]:
    import pyarrow as pa

    number, what = part
    if "files" not in arguments:
        keys, first, position = count_keys(what)
        row = {"part": number, "path": what[1], "begin": what[3], "first": first, "position": position, "keys": keys}
    else:
        begin, skip, take = what
        pieces = _log(arguments)[begin:]
        keys = index_part(pieces, os.path.join(arguments["directory"], "files"),
                          os.path.join(arguments["directory"], "tmp"), number, arguments["slots"],
                          arguments["entries"], skip, take)
        row = {"part": number, "keys": keys}
    yield pa.RecordBatch.from_pylist([row], schema=arrow_schema(COLUMNS))


def _log(arguments: dict[str, Any]) -> list[Piece]:
    return whole_log(Broker("", arguments["root"], tuple(arguments["logs"])), arguments["splitSize"])


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
    with work_directory(place, "index") as work:
        for name in ("files", "tmp"):
            os.mkdir(os.path.join(work, name))
        common: dict[str, Any] = {"root": store.root, "logs": store.logs, "splitSize": split_size, "directory": work,
                                  "slots": slots or found[0], "entries": entries or found[1]}
        counted = sorted(collect(spark, "rebuild_index", common), key=lambda row: row.part)
        check_chain((r.path, r.begin, r.first, r.position) for r in counted)
        files = _files([r["keys"] for r in counted], common["entries"] - 1)
        made = 0
        if files:
            made = sum(r["keys"] for r in collect(spark, "rebuild_index", {**common, "files": files}))
        drop(target)
        os.rename(os.path.join(work, "files"), target)      # what a late attempt makes now has no place to go
    _rename(target, len(files))
    directory = put_in_place(root, target, "index") if install else target
    return RebuiltIndex(directory, len(files), made, common["slots"], common["entries"])


def _files(keys: list[int], each: int) -> list[tuple[int, int, int]]:
    """For each index file: the part its first key is in, the keys of that part before it, how many keys it takes."""
    total = sum(keys)
    found = []
    part = before = 0
    for first in range(0, total, each):
        while before + keys[part] <= first:
            before += keys[part]
            part += 1
        found.append((part, first - before, min(each, total - first)))
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
