"""When files go: by the hour, by the disk (RocketMQ: CleanCommitLogService.isTimeToDelete, isSpaceToDelete).

Pure functions of what the caller measured; tests give them every case of the reference's table. Percentages are RocketMQ's:
used space of what an ordinary user can have, rounded up; negative where nobody could tell.
"""
import os
from collections.abc import Collection

from rmq_store.fields import NamedTuple

__all__ = ["Limits", "Verdict", "expired", "judge", "used_percent"]


class Limits(NamedTuple):
    """What the options say."""

    hours: Collection[int]          # local hours in which what is old enough goes
    clean_pct: int                  # above: what is old enough goes at any hour
    force_pct: int                  # above: the oldest go, however young, if `forced`
    full_pct: int | None            # above: puts are refused; None: never for this reason
    forced: bool


class Verdict(NamedTuple):
    """What a look at the clock and the disk leads to."""

    reason: str                     # "time", "space", "" nothing goes
    any_age: bool                   # files go whatever their age
    full: bool | None               # puts are to be refused, taken again, or as before (None)


def judge(hour: int, log_pct: int, queue_pct: int, limits: Limits, refused_pct: int | None = None) -> Verdict:
    """`hour` of the local day, usage of the disks of commit log and queues; refused_pct: the full_pct above which puts were
    refused last.

    As 4.9.8: between force_pct and full_pct the refusal of puts stays as it was, unless the limit was raised since. The fuller
    of the two disks counts (RocketMQ looks at the second one only if the first gives no reason to delete).
    """
    used = max(log_pct, queue_pct)
    full: bool | None = None
    if limits.full_pct is not None:
        if used > limits.full_pct:
            full = True
        elif used <= limits.force_pct or (refused_pct is not None and limits.full_pct > refused_pct):
            full = False
    at_once = used > limits.force_pct or full is True
    unknown = min(log_pct, queue_pct) < 0
    reason = "time" if hour in limits.hours else "space" if unknown or at_once or used > limits.clean_pct else ""
    return Verdict(reason, at_once and limits.forced, full)


def expired(modified_ms: int, now_ms: int, keep_ms: int) -> bool:
    """True for a file that was last modified `keep_ms` ago or earlier (deleteExpiredFileByTime)."""
    return modified_ms + keep_ms <= now_ms


def used_percent(path: str) -> int:
    """Used share of the file system of `path` in percent, rounded up; -1 where nobody can tell.

    RocketMQ: UtilAll.getDiskPartitionSpaceUsedPercent."""
    try:
        found = os.statvfs(path)
    except OSError:
        return -1
    used = found.f_blocks - found.f_bfree
    whole = used + found.f_bavail
    return -(-used * 100 // whole) if whole > 0 else -1
