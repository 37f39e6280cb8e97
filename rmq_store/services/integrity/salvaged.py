"""What a store tells of messages that it had: copies in .salvage/ that a recovery made of what it cut off, and manifests of log
files that are not there. Reads only.
"""
import os
from collections.abc import Callable, Iterator

from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec._codec import DecodedRecord, decode_record
from rmq_store.codec._layout import RECORD_AT_MAGIC, RECORD_FIXED_SIZE
from rmq_store.codec.layout import MAGIC_BYTES
from rmq_store.config.load import Options
from rmq_store.errors import CorruptionError
from rmq_store.log.recovery import checkpoint
from rmq_store.log.recovery.holes import lost_rows, rows_text
from rmq_store.log.recovery.places import Places
from rmq_store.log.recovery.salvage import DIRECTORY as SALVAGE
from rmq_store.log.recovery.salvage import offset_of
from rmq_store.services.integrity import manifest
from rmq_store.services.integrity.findings import SEVERITY, Finding

__all__ = ["oldest_findings", "salvage_findings", "whole_records"]


def salvage_findings(root: str, size: int, there: Callable[[int, int], bytes]) -> Iterator[Finding]:
    """Copies that hold whole messages which the log has not. size: of a log file. there(offset, size): bytes of the log."""
    directory = os.path.join(root, SALVAGE)
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
        path, begin = os.path.join(directory, name), offset_of(name)
        if begin is None or not os.path.isfile(path) or os.path.islink(path):
            continue
        with open(path, "rb", opener=open_regular) as file:
            data = file.read(size + 1)
        if len(data) > size:
            continue            # no copy that a recovery made
        count = sum(there(at, record.size) != data[at - begin:at - begin + record.size]
                    for at, record in whole_records(data, begin))
        if count:
            yield Finding("salvaged", SEVERITY["salvaged"], path, offset=begin, size=len(data), found=count,
                          detail=f"a recovery cut off {len(data)} bytes with {count} whole messages: `rmqstore repair "
                          f"--restore {root}` puts them again, as new messages")


def oldest_findings(files: ControlFiles, places: Places, options: Options) -> Iterator[Finding]:
    """Manifests of files in front of the log's first file. Cleaning takes a manifest away before its file. RocketMQ does not,
    but then the checkpoint lacks the mark of this library."""
    first = min((int(os.path.basename(path)) for path, _ in places.log_files()), default=0)      # before the manifests
    if checkpoint.read(files, places.checkpoint)[5] <= 0:
        return
    for start in manifest.listed(places.root):
        if start < first:
            end = start + options.segment_size_bytes
            rows = lost_rows(places, options, [(start, end)])
            count = sum(row.end - row.begin for row in rows)
            what = f" with {count} messages ({rows_text(rows)})" if rows else ""
            yield Finding("log_oldest", SEVERITY["log_oldest"], manifest.path_of(places.root, start), offset=start,
                          size=end - start, expected=f"{start:020d}", found=f"{first:020d}",
                          detail=f"the file {start:020d} of the log{what} is lost: its manifest is there, and cleaning would "
                          "have deleted that first")


def whole_records(data: bytes, start: int) -> Iterator[tuple[int, DecodedRecord]]:
    """Records of exactly their place in bytes that begin at log offset `start`; damage between them is stepped over."""
    at = 0
    while at + RECORD_FIXED_SIZE <= len(data):
        at = min((i for i in (data.find(magic, at + RECORD_AT_MAGIC) for magic in MAGIC_BYTES) if i >= 0),
                 default=-1) - RECORD_AT_MAGIC
        if at < 0:
            return
        try:
            record = decode_record(memoryview(data)[at:])
        except CorruptionError:
            at += 1
            continue
        if isinstance(record, DecodedRecord) and record.physical_offset == start + at and record.body_crc_ok:
            yield start + at, record
            at += record.size
        else:
            at += 1
