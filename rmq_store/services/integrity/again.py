"""A second look at what verification found: beside a writer in another process a fault may be none.

Names, ends of queues and maps are of different moments, and files go, roll and grow between them. So what was found is looked
at again with everything opened anew, and only what is found again at its place is told. Reads only; one thread.
"""
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from rmq_store.log.recovery.lockfile import in_use
from rmq_store.log.recovery.places import Places
from rmq_store.services.integrity.findings import Finding

__all__ = ["confirmed"]

BATCH = 10_000                  # findings looked at again at once
PAUSES_S = (0, 0.05, 0.5)       # before each look at a store that somebody writes: writes that were under way are done then
_FILES = {"log_file", "log_gap", "queue_file", "index_file", "config_file"}
_INDEX = {"index_wrong", "index_chain", "index_slot", "index_header"}


class Looked(Protocol):
    """What is asked of a verification (verification.py)."""

    root: str
    clean: bool
    places: Places
    starts: list[int]
    index_names: list[int]

    def again(self) -> AbstractContextManager["Looked"]: ...
    def load(self) -> Iterable[Finding]: ...
    def record_findings(self, offset: int) -> Iterable[Finding]: ...
    def queue_findings(self, topic: bytes, queue_id: int, entries: range) -> Iterable[Finding]: ...
    def index_findings(self, i: int) -> Iterable[Finding]: ...
    def manifest_findings(self, start: int, pace: Callable[[int], None]) -> Iterable[Finding]: ...


def confirmed(v: Looked, findings: Iterable[Finding]) -> Iterator[Finding]:
    """`findings` without those that a second look does not find. In order; what comes behind a fault waits for that look."""
    kept: list[Finding] = []
    for finding in findings:
        if finding.severity == "note" and not kept:
            yield finding
            continue
        kept.append(finding)
        if len(kept) == BATCH:
            yield from _standing(v, kept)
            kept = []
    yield from _standing(v, kept)


def _standing(v: Looked, findings: list[Finding]) -> Iterator[Finding]:
    suspects = [f for f in findings if f.severity != "note"]
    for pause in _pauses(v) if suspects else ():
        time.sleep(pause)
        suspects = _found_again(v, suspects)
        if not suspects:
            break
    stand = {id(f) for f in suspects}
    return (f for f in findings if f.severity == "note" or id(f) in stand)


def _pauses(v: Looked) -> tuple[float, ...]:
    if v.clean and not os.path.exists(v.places.abort):
        return ()               # nobody writes it
    return PAUSES_S if in_use(v.root) else PAUSES_S[:1]


def _key(finding: Finding) -> tuple[object, ...]:
    f = finding
    return f.kind, f.path, f.offset, f.topic, f.queue_id, f.queue_offset, f.found


def _found_again(v: Looked, suspects: list[Finding]) -> list[Finding]:
    with v.again() as again:
        files = list(again.load())
        known: dict[str, set[tuple[object, ...]]] = {}
        found = []
        for finding in suspects:
            path = finding.path if finding.kind in _INDEX or finding.kind.startswith("manifest_") else ""
            if path and path not in known:          # all of that file at once
                known[path] = {_key(f) for f in _look(again, finding, files)}
            if _key(finding) in (known[path] if path else map(_key, _look(again, finding, files))):
                found.append(finding)
        return found


def _look(v: Looked, finding: Finding, files: list[Finding]) -> Iterable[Finding]:
    """What is wrong now where `finding` was."""
    kind, at = finding.kind, finding.offset
    if kind in _FILES:
        return files
    if kind == "checkpoint" or (kind == "index_behind" and v.clean):
        return (finding,)       # no matter of moments: the former was read before the log was
    if kind in _INDEX:
        name = int(os.path.basename(finding.path))
        return v.index_findings(v.index_names.index(name)) if name in v.index_names else ()
    if kind.startswith("manifest_"):
        return v.manifest_findings(int(os.path.basename(finding.path)), lambda size: None)
    if kind == "queue_wrong":
        assert finding.topic is not None and finding.queue_id is not None and finding.queue_offset is not None
        return _entry(v, finding.topic.encode("utf-8", "surrogatepass"), finding.queue_id, finding.queue_offset)
    if at is None or not v.starts or at < v.starts[0]:
        return ()               # its file is gone
    return v.record_findings(at)


def _entry(v: Looked, topic: bytes, queue_id: int, queue_offset: int) -> Iterable[Finding]:
    try:
        return list(v.queue_findings(topic, queue_id, range(queue_offset, queue_offset + 1)))
    except KeyError:        # the queue is gone: its topic was deleted, or its writer builds it anew
        return ()
