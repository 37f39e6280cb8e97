"""The audit's other half: the parts of a store held against each other, in pieces that tasks can look at at once.

    entries     records of a part of the log: has each its queue entry, and each of its keys an index entry?
    queues      some queues: does each entry lead to a record of this queue?
    index       one index file: does each entry lead to a record with its key, are slots, chains and header right?
    manifest    one sealed file: has each block the crc32c it had when the file was sealed?
    store       files and checkpoint as such

What is looked at, and what a fault is called, is integrity.verification's, which does the same in one thread.
"""
import os
from collections.abc import Iterator
from typing import Any

from rmq_store.services.integrity import manifest
from rmq_store.services.integrity.again import confirmed
from rmq_store.services.integrity.findings import Finding, merged
from rmq_store.services.integrity.verification import Verification
from rmq_store.spark.arrow import open_if_there
from rmq_store.spark.identity import refuse_another
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions
from rmq_store.spark.splits import Piece
from rmq_store.spark.stores import Broker, index_files, log_files, queue_files, queues

__all__ = ["check", "parts_of", "row_of", "store_of"]


def parts_of(broker: Broker, pieces: list[Piece], options: ReadOptions) -> list[tuple[int, list[Any]]]:
    """The parts of one store, each with the bytes that it looks at: [kind, root, end of the log, which log, what]. No part for
    a directory of log files alone."""
    root = broker.root
    if not broker.logs and not os.path.isdir(os.path.join(root, "commitlog")):
        return []
    log = LogPositions(broker, options)
    end = log.end(over=True)
    known = log.identity(end)
    found: list[tuple[int, list[Any]]] = [(0, ["store", root, end, known, None])]
    found += [(piece.size, ["entries", root, end, known, list(vars(piece).values())]) for piece in pieces]
    group: list[tuple[str, int]] = []
    size = 0
    for topic, queue_id, directory in queues(root):
        group.append((topic, queue_id))
        size += sum(length for _, _, length in queue_files(directory))
        if size >= options.split_size:
            found.append((size, ["queues", root, end, known, group]))
            group, size = [], 0
    found.append((size, ["queues", root, end, known, group]))
    found += [(_size(path), ["index", root, end, known, i]) for i, path in enumerate(index_files(root))]
    sealed = {piece.start: piece.path for piece in pieces}
    found += [(_size(sealed[start]), ["manifest", root, end, known, start]) for start in manifest.listed(root)
              if start in sealed]
    return found


def check(part: list[Any], options: ReadOptions, store: dict[str, Any]) -> tuple[list[Finding], int, int]:
    """Looks at one part: findings, and how many records with keys stand behind the index's last entry, the first of them."""
    kind, root, end, known, what = part
    broker = next(broker for broker in options.brokers if broker.root == root)
    refuse_another(broker, log_files(broker, holes=True), known, 1 << 63, "have it at this path on every node")
    with Verification(root, store_of(root, options, store)) as v:
        v.log_end = end
        if kind == "manifest":
            return list(confirmed(v, v.manifest_findings(what, _no_pace))), 0, 0
        about_files = list(confirmed(v, v.load()))
        if kind == "store":
            return [*about_files, *v.tail_findings(end), *v.checkpoint_findings()], 0, 0
        found = list(merged(confirmed(v, _findings(v, kind, what, options))))
        assert v.checker is not None
        return found, v.checker.unindexed, v.checker.first_unindexed


def store_of(root: str, options: ReadOptions, store: dict[str, Any]) -> dict[str, Any]:
    """Options of the store at `root`: those given, and where its log lies if the read says so."""
    logs = next((list(broker.logs) for broker in options.brokers if broker.root == root), [])
    return {"commitlog_path": logs, **store} if logs and "storePathCommitLog" not in store else store


def _findings(v: Verification, kind: str, what: Any, options: ReadOptions) -> Iterator[Finding]:
    if kind == "queues":
        assert v.queues is not None
        loaded = set(v.queues.queues())     # a damaged one is not, which `store` tells
        for topic, queue_id in what:
            if (topic.encode(), queue_id) in loaded:
                yield from v.queue_findings(topic.encode(), queue_id)
    elif kind == "index":
        if what < len(v.index_names):
            yield from v.index_findings(what)
    else:
        piece = Piece(*what)
        opened = open_if_there(piece, options, "none")
        if opened is None:
            return
        with opened as split:
            while not split.done and split.first is None:
                split.skip(max_rows=1)
            first = split.first
        if first is not None:
            yield from v.derived_findings(first, piece.end)


def _size(path: str) -> int:
    """0 of a file that was deleted since it was listed."""
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def row_of(finding: Finding) -> dict[str, Any]:
    """A finding as a row, without what Spark has no type for."""
    return {name: value for name, value in finding._asdict().items() if name not in ("expected", "found")}


def _no_pace(size: int) -> None:
    pass
