"""Audit: is every byte of the log a record, are the checksums right, do neighbouring parts of it meet?

Each task walks its parts with one native call and returns a row a part. Parts meet where each begins with the record that
follows the last one of the part before it; the driver checks that. Nothing is written.
"""
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rmq_store.spark.arrow import open_piece
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.scan import option_texts
from rmq_store.spark.schema import arrow_schema
from rmq_store.spark.splits import Piece
from rmq_store.spark.splits import plan as plan_read

__all__ = ["AuditReport", "audit"]

COLUMNS = {"brokerName": "STRING", "file": "STRING", "begin": "BIGINT", "end": "BIGINT", "first": "BIGINT",
           "position": "BIGINT", "records": "BIGINT", "bytes": "BIGINT", "badOffset": "BIGINT",
           "badEnd": "BIGINT", "badKind": "STRING"}


@dataclass
class AuditReport:
    """What an audit found. findings: (broker, file, log offset, what)."""

    records: int = 0
    bytes: int = 0
    files: int = 0
    findings: list[tuple[str, str, int, str]] = field(default_factory=list)


def plan(arguments: dict[str, Any]) -> list[Any]:
    return [[list(vars(piece).values()) for piece in part] for part in plan_read(_options(arguments))]


def work(part: Any, arguments: dict[str, Any]) -> Iterator[Any]:
    import pyarrow as pa

    options = _options(arguments)
    schema = arrow_schema(COLUMNS)
    rows: list[dict[str, Any]] = []
    for fields in part:
        piece = Piece(*fields)
        with open_piece(piece, options) as split:
            bad = []
            while not split.done:
                split.skip()
                bad += split.take_bad()
            row = {"brokerName": piece.broker, "file": piece.path, "begin": piece.begin, "end": piece.end, "first": split.first,
                   "position": split.position, "records": split.records, "bytes": split.record_bytes}
            rows.append(row)
            rows += [{**row, "records": 0, "bytes": 0, "badOffset": r.begin, "badEnd": r.end, "badKind": r.kind} for r in bad]
    yield pa.RecordBatch.from_pylist(rows, schema=schema)


def audit(spark: Any, path: Any, **options: Any) -> AuditReport:
    """Audits the log of one or many stores. options: those of a read that say where (splitSize, io, maxRecordSize, ...)."""
    from rmq_store.spark.jobs.run import run_job

    arguments = {"verify": "crc", **option_texts({"path": path, **options})}
    rows = [row.asDict() for row in run_job(spark, "audit", arguments).collect()]
    report = AuditReport()
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["badKind"] is not None:
            report.findings.append((row["brokerName"], row["file"], row["badOffset"],
                                    f"{row['badKind']}, good records go on at {row['badEnd']}"))
        else:
            parts.setdefault(row["file"], []).append(row)
            report.records += row["records"]
            report.bytes += row["bytes"]
    report.files = len(parts)
    for path_of_file, found in parts.items():
        bad = {row["badOffset"]: row["badEnd"] for row in rows if row["file"] == path_of_file and row["badKind"] is not None}
        found.sort(key=lambda row: row["begin"])
        for before, after in pairwise([row for row in found if row["first"] is not None]):
            meets = before["position"]
            while meets in bad:
                meets = bad[meets]
            if meets != after["first"]:
                report.findings.append((after["brokerName"], path_of_file, after["first"],
                                        f"the part before ends at {before['position']}: parts do not meet"))
    report.findings.sort(key=lambda finding: (finding[0], finding[1], finding[2]))
    return report


def _options(arguments: dict[str, Any]) -> ReadOptions:
    return ReadOptions.parse({"onCorrupt": "skip", "includeTransactional": True, **arguments})
