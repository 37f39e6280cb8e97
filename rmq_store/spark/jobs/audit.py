"""Audit: is every byte of the log a record, are the checksums right, do its parts meet, and do queues and index agree with it?

Each task walks its parts with one native call and returns a row a part. Parts meet where each begins with the record that
follows the last one of the part before it; the driver checks that. cross.py holds queues, index and manifests against the log.
Nothing is written.
"""
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rmq_store.codec.bad import FINDINGS
from rmq_store.services.integrity.findings import SEVERITY, Finding, merged
from rmq_store.services.integrity.verification import Verification
from rmq_store.spark.arrow import behind, open_if_there
from rmq_store.spark.jobs import cross
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import snapshot_ends
from rmq_store.spark.scan import option_texts
from rmq_store.spark.schema import arrow_schema
from rmq_store.spark.splits import Piece
from rmq_store.spark.splits import plan as plan_read

__all__ = ["AuditReport", "audit"]

_FINDING = {"kind": "STRING", "severity": "STRING", "path": "STRING", "offset": "BIGINT", "size": "BIGINT", "count": "BIGINT",
            "topic": "STRING", "queue_id": "INT", "queue_offset": "BIGINT", "detail": "STRING"}
_PART = {"file": "STRING", "begin": "BIGINT", "first": "BIGINT", "position": "BIGINT", "records": "BIGINT", "bytes": "BIGINT"}
COLUMNS = {**_FINDING, **_PART, "root": "STRING", "unindexed": "BIGINT", "firstUnindexed": "BIGINT"}


@dataclass
class AuditReport:
    """What an audit found, in order of paths and offsets. Kinds and severities: rmq_store.services.integrity.findings."""

    records: int = 0
    bytes: int = 0
    files: int = 0
    findings: list[Finding] = field(default_factory=list)


def plan(arguments: dict[str, Any]) -> list[Any]:
    options = _options(arguments)
    parts: list[Any] = []
    crossing: list[tuple[int, list[Any]]] = []
    by_root: dict[str, list[Piece]] = {broker.root: [] for broker in options.brokers}
    roots = {broker.name: broker.root for broker in options.brokers}
    for part in plan_read(options, snapshot_ends(options, left=True)):
        parts.append(["log", [list(vars(piece).values()) for piece in part]])
        for piece in part:
            by_root[roots[piece.broker]].append(piece)
    if arguments["crossCheck"]:
        for broker in options.brokers:
            crossing += cross.parts_of(broker, by_root[broker.root], options)
    room = -1                   # small ones share a task
    for size, one in crossing:
        if size > room:
            parts.append(["cross", []])
            room = options.split_size
        parts[-1][1].append(one)
        room -= size
    return parts


def work(part: Any, arguments: dict[str, Any]) -> Iterator[Any]:
    import pyarrow as pa

    options = _options(arguments)
    if part[0] == "log":
        rows = [row for fields in part[1] for row in _walk(Piece(*fields), options)]
    else:
        rows = []
        for one in part[1]:
            findings, unindexed, first = cross.check(one, options, arguments["store"])
            rows += [cross.row_of(finding) for finding in findings]
            if unindexed:
                rows.append({"root": one[1], "unindexed": unindexed, "firstUnindexed": first})
    yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(COLUMNS))


def _walk(piece: Piece, options: ReadOptions) -> Iterator[dict[str, Any]]:
    bad = []
    opened = open_if_there(piece, options)
    if opened is None:
        return
    with opened as split:
        while not split.done:
            split.skip()
            bad += split.take_bad()
        if (short := behind(piece, split.position)) is not None:
            raise short
        yield {"file": piece.path, "begin": piece.begin, "first": split.first, "position": split.position,
               "records": split.records, "bytes": split.record_bytes}
    for region in bad:
        kind = FINDINGS[region.kind]
        yield cross.row_of(Finding(kind, SEVERITY[kind], piece.path, region.begin, region.end - region.begin,
                                   detail=f"{region.kind}, good records continue at {region.end}"))


def audit(spark: Any, path: Any, cross_check: bool = True, store: dict[str, Any] | None = None, **options: Any) -> AuditReport:
    """Audits one or many stores. A store may be live: records on their way are not a fault.

    cross_check=False: the log alone, which is all that a directory of log files has. store: options of MessageStore.open, where
    its files do not tell (delay levels, extension files). options: those of a read that say where (splitSize, io,
    maxRecordSize, ...).
    """
    from rmq_store.spark.jobs.run import collect

    read = {"verify": "crc", **option_texts({"path": path, **options})}
    arguments = {"read": read, "crossCheck": cross_check, "store": store or {}}
    rows = [row.asDict() for row in collect(spark, "audit", arguments)]
    report = AuditReport()
    parts: dict[str, list[dict[str, Any]]] = {}
    unindexed: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row["kind"] is not None:
            report.findings.append(Finding(**{name: row[name] for name in _FINDING}))
        elif row["unindexed"] is not None:
            unindexed.setdefault(row["root"], []).append((row["firstUnindexed"], row["unindexed"]))
        else:
            parts.setdefault(row["file"], []).append(row)
            report.records += row["records"]
            report.bytes += row["bytes"]
    report.files = len(parts)
    for file, found in parts.items():
        report.findings += _unmet(file, found, report.findings)
    for root, counts in unindexed.items():
        with Verification(root, cross.store_of(root, _options(arguments), store or {})) as v:
            list(v.load())
            report.findings.append(v.unindexed(sum(n for _, n in counts), min(counts)[0]))
    report.findings.sort(key=lambda f: (f.path, f.queue_offset or 0, f.offset or 0, f.kind))
    report.findings = list(merged(report.findings))
    return report


def _unmet(file: str, parts: list[dict[str, Any]], findings: list[Finding]) -> Iterator[Finding]:
    """Where neighbouring parts of a file do not meet, bad regions aside."""
    bad = {f.offset: f.offset + f.size for f in findings
           if f.path == file and f.offset is not None and f.size is not None and f.kind in FINDINGS.values()}
    parts.sort(key=lambda row: int(row["begin"]))
    for before, after in pairwise([row for row in parts if row["first"] is not None]):
        meets = before["position"]
        while meets in bad:
            meets = bad[meets]
        if meets != after["first"] and os.path.exists(file):       # else a part between them was cleaned before its turn
            yield Finding("log_hole", SEVERITY["log_hole"], file, after["first"],
                          detail=f"the part before ends at {before['position']}: the parts do not meet")


def _options(arguments: dict[str, Any]) -> ReadOptions:
    return ReadOptions.parse({"onCorrupt": "skip", "includeTransactional": True, **arguments["read"]})
