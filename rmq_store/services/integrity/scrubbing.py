"""Reading the whole log now and then, so that rot is found while a copy is left: paced, from where the last reading stopped.

A sealed file with a manifest is held against it, block by block; one without is walked record by record. How far it got stands
in <root>/.manifest/scrub.json. The log's end, which may be on its way, is left out.
"""
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import open_regular
from rmq_store.services.integrity import manifest
from rmq_store.services.integrity._check import Checker
from rmq_store.services.integrity.again import confirmed
from rmq_store.services.integrity.findings import Finding
from rmq_store.services.integrity.sealing import pacer
from rmq_store.services.integrity.verification import Progress, Verification

__all__ = ["ScrubResult", "scrub"]

STATE, STATE_MAX = "scrub.json", 4096


@dataclass
class ScrubResult:
    """The result of a scrub."""

    findings: list[Finding] = field(default_factory=list)
    files: int = 0                  # looked at by this call
    bytes: int = 0
    resumed_at: int | None = None   # log offset; None: from the log's start
    manifests_made: int = 0


def scrub(path: Any, *, bytes_per_s: int | None = 64 << 20, resume: bool = False, make_manifests: bool = False,
          progress: Progress | None = None, _io: IoTable | None = None, _limit: int | None = None,
          **options: Any) -> ScrubResult:
    """Reads every sealed commit-log file of the store in directory `path` once. Returns the findings.

    Only these two options write. resume: continue where an earlier scrub with resume stopped, and keep the progress in
    .manifest/scrub.json. make_manifests: make manifests for intact files that lack one, also files of a Java broker. Both
    refuse a .manifest that is a link (OSError). bytes_per_s: limit of reading; None: no limit. options: as of
    MessageStore.open.
    Safe beside a live store. Raises ConfigError, OSError. Damage is a finding, not an exception.
    """
    result = ScrubResult()
    pace = pacer(bytes_per_s)
    with Verification(path, options, _io) as v:
        if resume or make_manifests:
            manifest.refuse_link(v.root)
        result.findings += v.log_files()
        state = os.path.join(v.root, manifest.DIRECTORY, STATE)
        begin = _resume(state) if resume else 0
        size = v.options.segment_size_bytes
        sealed = v.starts[:-1] if _limit is None else [s for s in v.starts if s + size <= _limit]
        todo = [s for s in sealed if s >= begin] if begin <= (sealed[-1] if sealed else 0) else sealed
        if begin and todo and todo[0] != sealed[0]:
            result.resumed_at = todo[0]
        for n, start in enumerate(todo):
            try:
                found = list(confirmed(v, _file(v, start, pace)))
            except FileNotFoundError:
                continue                # cleaned since it was listed
            result.findings += found
            result.files += 1
            result.bytes += size
            if make_manifests and not found and manifest.read(v.root, start) is None:
                with suppress(FileNotFoundError):
                    _adopt(v, start)
                    result.manifests_made += 1
            if resume:
                _remember(v, state, start + size)
            if progress:
                progress("files", n + 1, len(todo))
        if resume and todo:
            _remember(v, state, 0)
    return result


def _file(v: Verification, start: int, pace: manifest.Pace) -> Iterator[Finding]:
    if start in manifest.listed(v.root):
        yield from v.manifest_findings(start, pace)
        return
    checker = Checker(v.io, v.places.commitlogs, v.options.segment_size_bytes, list(v.options.delay_levels),
                      v.options.record_crc_required)
    try:
        checker.add_file(start)
        at = start
        while 0 <= at < start + v.options.segment_size_bytes:
            before = at
            at, notes = checker.log(at, manifest.CHUNK)
            for note in notes:
                # Its end belongs to this file: nothing can be on its way in a file that another one follows.
                yield v._log_note(note if note[0] != "log_tail" else ("log_hole", *note[1:]))
            pace(max(at, checker.end) - before)
        if at < 0 and checker.end < start + v.options.segment_size_bytes and not v.holes:
            yield v._log_note(("log_hole", max(checker.end, start), start + v.options.segment_size_bytes, 0, 0, None, 0))
    finally:
        checker.close()


def _adopt(v: Verification, start: int) -> None:
    fd = v.files.open(v.places.log_path(start), os.O_RDONLY)
    try:
        made = manifest.make(lambda at, n: v.files.read(fd, at, n), start, v.options.segment_size_bytes, lambda n: None)
    finally:
        v.files.close(fd)
    manifest.write(v.files, v.root, made)


def _resume(state: str) -> int:
    try:
        with open(state, encoding="utf-8", opener=open_regular) as f:
            return max(int(json.loads(f.read(STATE_MAX))["next_offset"]), 0)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0


def _remember(v: Verification, state: str, next_offset: int) -> None:
    directory = os.path.dirname(state)
    if v.files.mkdir(directory):
        v.files.sync_dir(v.root)
    text = json.dumps({"next_offset": next_offset, "at_ms": time.time_ns() // 1_000_000})
    v.files.write_new(directory, STATE, text.encode())
