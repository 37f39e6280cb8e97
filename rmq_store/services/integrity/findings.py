"""What verification and scrubbing tell: one record a fault, fit for programs. Pure data."""
from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["SEVERITY", "Finding", "Severity"]

Severity = Literal["corrupt", "finding", "note"]

# corrupt: bytes of the log are not what was put, messages may be lost; finding: the log is good, what is derived from it is
# not, and can be built again; note: not as usual, and no fault.
SEVERITY: dict[str, Severity] = {
    "log_file": "corrupt", "log_gap": "corrupt", "log_hole": "corrupt", "body_crc": "corrupt", "record_crc": "corrupt",
    "record_header": "corrupt", "log_version": "corrupt",
    "manifest_mismatch": "corrupt", "backup_file": "corrupt",
    "log_tail": "finding", "queue_file": "finding", "queue_missing": "finding", "queue_other": "finding",
    "queue_tags": "finding", "queue_wrong": "finding", "index_file": "finding", "index_missing": "finding",
    "index_behind": "finding", "index_wrong": "finding", "index_chain": "finding", "index_slot": "finding",
    "index_header": "finding", "manifest_damaged": "finding", "checkpoint": "finding",
    "config_file": "finding",
    "foreign_file": "note", "not_closed": "note", "not_dispatched": "note", "no_index": "note",
}


@dataclass(frozen=True)
class Finding:
    """One fault. Offsets are log offsets, except in files that do not belong to the log."""

    kind: str                       # a key of SEVERITY
    severity: Severity
    path: str                       # of the file or directory
    offset: int | None = None
    size: int | None = None         # bytes, from offset on
    count: int = 1                  # how many in a row this stands for
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    expected: Any = None
    found: Any = None
    detail: str = ""                # for people

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields that have a value."""
        return {k: v for k, v in asdict(self).items() if v is not None and v != ""}

    def __str__(self) -> str:
        where = "" if self.offset is None else f" at {self.offset}"
        queue = "" if self.topic is None else f" {self.topic}/{self.queue_id}[{self.queue_offset}]"
        times = "" if self.count == 1 else f" ({self.count} in a row)"
        return f"{self.severity}: {self.kind} {self.path}{where}{queue}: {self.detail}{times}"
