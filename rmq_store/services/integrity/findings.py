"""What verification and scrubbing tell: one record a fault, fit for programs. Pure data."""
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from rmq_store.fields import NamedTuple

__all__ = ["KINDS", "SEVERITY", "Finding", "Kind", "Severity", "merged"]

Severity = Literal["corrupt", "finding", "note"]
FIRSTS = 3                      # findings of a kind in an index file that are told one by one


class Kind(NamedTuple):
    """One kind of finding."""

    severity: Severity
    meaning: str                    # one sentence for people


# corrupt: bytes of the log are not what was put, messages may be lost; finding: the log is good, what is derived from it is
# not, and can be built again; note: not as usual, and no fault. codec/bad.py says which kind a bad record is reported as.
KINDS: dict[str, Kind] = {
    "log_file": Kind("corrupt", "A file of the log has a wrong size, or something else has its name."),
    "log_gap": Kind("corrupt", "Files of the log are missing: between two others, or at its end, to which queues or the "
                    "checkpoint lead."),
    "log_directory": Kind("corrupt", "A directory of the log is not there, or the log has no file and the store had messages."),
    "log_twice": Kind("corrupt", "Two directories of the log have a file of the same name."),
    "log_hole": Kind("corrupt", "No record can be read in this stretch of the log, and good records follow it."),
    "body_crc": Kind("corrupt", "The checksum of a record's body is wrong."),
    "record_crc": Kind("corrupt", "The checksum of a whole record (`__CRC32#`) is wrong, or it is missing and is required."),
    "record_header": Kind("corrupt", "A record names a topic or a queue that no store writes."),
    "log_version": Kind("corrupt", "The log has records of a version of the format that this library does not know."),
    "manifest_mismatch": Kind("corrupt", "A block of a sealed log file does not have the checksum in the file's manifest."),
    "backup_file": Kind("corrupt", "A file of a backup does not have the content that the backup's list names."),
    "compaction_file": Kind("corrupt", "A file of a compaction log has a wrong size, lacks its other half, or cannot be read."),
    "compaction_record": Kind("corrupt", "An entry of a compaction log does not lead to a good record of its queue."),
    "log_oldest": Kind("finding", "The log lacks its oldest file, and no cleaning deleted it: the file's manifest is there."),
    "log_tail": Kind("finding", "There are bytes behind the end of the data of a store that was closed."),
    "queue_file": Kind("finding", "A ConsumeQueue file is missing, or has a wrong size."),
    "queue_missing": Kind("finding", "A record has no entry in its queue."),
    "queue_other": Kind("finding", "The queue entry of a record points to another place of the log."),
    "queue_tags": Kind("finding", "The queue entry of a record has the wrong tags code."),
    "queue_wrong": Kind("finding", "A queue entry points to a place where no such record lies."),
    "index_file": Kind("finding", "An index file has a wrong size, or cannot be read."),
    "index_missing": Kind("finding", "A key of a record is not in the index."),
    "index_behind": Kind("finding", "The index of a store that was closed ends before the log does."),
    "index_wrong": Kind("finding", "An index entry points to a place where no record has its key."),
    "index_chain": Kind("finding", "An index entry names the wrong previous entry of its slot."),
    "index_slot": Kind("finding", "A slot of the index does not point to its newest entry."),
    "index_header": Kind("finding", "A field in the header of an index file does not fit the entries."),
    "timer_unit": Kind("finding", "A unit of the timer log is damaged or missing: the next open makes it from its queue."),
    "manifest_damaged": Kind("finding", "A manifest cannot be read."),
    "checkpoint": Kind("finding", "The checkpoint is missing, has a wrong size, or is ahead of the log."),
    "config_file": Kind("finding", "A file under config/ and its `.bak` cannot be read."),
    "foreign_file": Kind("note", "A file does not belong to the store."),
    "not_closed": Kind("note", "The store is open, or its process died: the end of the log is not settled."),
    "not_dispatched": Kind("note", "The newest records do not have their queue or index entries yet."),
    "salvaged": Kind("note", "A recovery cut whole messages off. `.salvage/` keeps them; `repair --restore` puts them again."),
    "no_index": Kind("note", "Records have keys, but the store has no index."),
}
SEVERITY: dict[str, Severity] = {name: kind.severity for name, kind in KINDS.items()}


class Finding(NamedTuple):
    """One fault. Offsets are log offsets, except in files that do not belong to the log."""

    kind: str                       # a key of KINDS
    severity: Severity
    path: str                       # of the file or directory
    offset: int | None = None
    size: int | None = None         # bytes, from offset on
    count: int = 1                  # type: ignore[assignment]  # how many in a row this stands for
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: Any = None
    found: Any = None
    detail: str = ""                # for people

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields that have a value."""
        return {k: v for k, v in self._asdict().items() if v is not None and v != ""}

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at {self.offset}"
        queue = "" if self.topic is None else f" {self.topic}/{self.queue_id}[{self.queue_offset}]"
        times = "" if self.count == 1 else f" ({self.count} in a row)" if self.topic is not None else f" ({self.count} such)"
        return f"{self.severity}: {self.kind} {self.path}{where}{queue}: {self.detail}{times}"


def merged(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Many of a kind in a row of one queue as one finding that counts them. Of the index, many of a kind in one file: the first
    ones, and one that counts the others."""
    open_rows: dict[tuple[str, str | None, int | None], Finding] = {}
    firsts = Counter[tuple[str, str]]()
    for f in findings:
        if f.kind.startswith("index_") and f.kind not in ("index_file", "index_behind"):
            firsts[f.kind, f.path] += 1
            row = open_rows.get((f.kind, f.path, None))
            if firsts[f.kind, f.path] <= FIRSTS:
                yield f
            else:
                open_rows[f.kind, f.path, None] = f if row is None else row._replace(count=row.count + f.count)
            continue
        if f.queue_offset is None or f.severity == "corrupt":
            yield f
            continue
        key = (f.kind, f.topic, f.queue_id)
        row = open_rows.get(key)
        if row is not None and row.queue_offset is not None and row.queue_offset + row.count == f.queue_offset:
            open_rows[key] = row._replace(count=row.count + f.count)
        else:
            if row is not None:
                yield row
            open_rows[key] = f
    yield from open_rows.values()
