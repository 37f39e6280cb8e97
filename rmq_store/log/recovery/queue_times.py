"""Modification times of queue files, kept while recovery writes their entries again. Opening thread, control plane.

RocketMQ 4.9 finds the file of a time by them (ConsumeQueue.getOffsetInQueueByTime); its own recovery leaves files alone whose
entries are there already, so a file that recovery fills with what it held before keeps its time as well.
"""
import os

from rmq_store.codec._layout import UNIT_SIZE
from rmq_store.fields import NamedTuple

__all__ = ["keep_times", "restore_times"]

Ends = dict[tuple[str, int], int]


class Stamp(NamedTuple):
    queue: tuple[str, int]
    entries: int                # queue offset behind the last entry it held
    times: tuple[int, int]      # of access and modification, ns


def keep_times(directory: str, ends: Ends) -> dict[str, Stamp]:
    """The times of all queue files that hold entries. ends: one past the last entry of each queue."""
    found = {}
    for (topic, queue_id), end in ends.items():
        try:
            entries = list(os.scandir(os.path.join(directory, topic, str(queue_id))))
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.name.isascii() and entry.name.isdecimal() and entry.is_file(follow_symlinks=False):
                stat = entry.stat()
                behind = min(end, (int(entry.name) + stat.st_size) // UNIT_SIZE)
                found[entry.path] = Stamp((topic, queue_id), behind, (stat.st_atime_ns, stat.st_mtime_ns))
    return found


def restore_times(stamps: dict[str, Stamp], ends: Ends) -> None:
    """Gives the files their times back that hold again what they held, and no more. ends: as they are now."""
    for path, stamp in stamps.items():
        try:
            size = os.stat(path).st_size
            if min(ends.get(stamp.queue, 0), (int(os.path.basename(path)) + size) // UNIT_SIZE) == stamp.entries:
                os.utime(path, ns=stamp.times)
        except FileNotFoundError:
            continue            # cut off with the log
