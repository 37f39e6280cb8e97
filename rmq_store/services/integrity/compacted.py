"""Verification of compaction logs: each pair of files, each entry and its record. Reads only; beside a writer, too."""
import os
from collections.abc import Iterator

from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.errors import CorruptionError
from rmq_store.services.compaction import files as disk
from rmq_store.services.compaction.log import file_sizes
from rmq_store.services.integrity.findings import SEVERITY, Finding

__all__ = ["compaction_findings"]


def compaction_findings(files: ControlFiles, root: str, options: Options, records: bool = True) -> Iterator[Finding]:
    """What is wrong with the compaction logs of a store. records: look at each of them, too. Raises OSError."""
    try:
        disk.Positions.of(files, root)
    except CorruptionError as error:
        yield Finding("config_file", SEVERITY["config_file"], str(error.path), expected=error.expected, found=error.found,
                      detail=f"{error.found}: the next compaction looks at all of a queue once more")
    for topic, queue_id in disk.queues_on_disk(root):
        yield from _queue(files, disk.Places(root, topic, queue_id), options, records)


def _queue(files: ControlFiles, places: disk.Places, options: Options, records: bool) -> Iterator[Finding]:
    topic, queue_id = places.topic, places.queue_id
    try:
        halves = disk.halves(files, places)
        segments = disk.load(files, places, *file_sizes(options), True)
    except CorruptionError as error:
        yield Finding("compaction_file", SEVERITY["compaction_file"], str(error.path), topic=topic, queue_id=queue_id,
                      expected=error.expected, found=error.found, detail=f"expected {error.expected}, found {error.found}")
        return
    for directory, start in halves:
        yield Finding("compaction_file", SEVERITY["compaction_file"], os.path.join(directory, f"{start:020d}"), offset=start,
                      topic=topic, queue_id=queue_id, detail="the file of the same name in the other directory is missing: no "
                      "message of this one can be read")
    for i, slots in disk.unread_entries(files, places, segments):
        start, count, _, _ = segments.pair(i)
        yield Finding("compaction_file", SEVERITY["compaction_file"], os.path.join(places.entries, f"{start:020d}"),
                      offset=start, topic=topic, queue_id=queue_id, detail=f"entry {count} is damaged, and no entry from there "
                      f"on to entry {slots - 1} can be read: the next open for writing makes them of the records, if those are "
                      "whole")
    for start, queue_offset in segments.check(topic, queue_id) if records else ():
        yield Finding("compaction_record", SEVERITY["compaction_record"], os.path.join(places.log, f"{start:020d}"),
                      topic=topic, queue_id=queue_id, queue_offset=queue_offset,
                      detail="the entry leads to no record of this offset, or its body has a wrong checksum: the queue is no "
                      "longer compacted; if the log still has the messages, move the queue's directories away")
