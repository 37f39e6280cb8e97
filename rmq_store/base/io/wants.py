"""What a thread of the store lacks, as an error that names the limit and the cure (native/include/rmq_want.h has the errnos).

Thread-safety: any.
"""
import contextlib
import os
import resource
from collections.abc import Iterator
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM
from typing import Any

from rmq_store.errors import DiskFull, DurabilityError, OutOfResources, RmqStoreError, reason

__all__ = ["LIMITS", "disk_is_full", "is_want", "lacking", "late", "limit_named", "limits_named", "no_thread", "unwritten",
           "want"]

LIMITS = EMFILE, ENFILE, ENOMEM


def want(code: int, what: str, path: str,
         then: str = "the store continues by itself, and nothing that was stored is lost") -> DurabilityError:
    """Returns the error for work of the store at `path` that waits until a call no longer fails with errno `code`."""
    if code in DiskFull.codes:
        full = DiskFull(code, what, path)
        full.cure = f"make room on that file system (df, and df -i for inodes; a quota counts, too): {then}"
        return full
    lacking = OutOfResources(code, what, path)
    lacking.cure = f"{_limit(code)}: {then}"
    return lacking


def late(code: int, what: str, path: str) -> OSError:
    """Returns the error for a call of the program that failed with errno `code`: it may have opened a file for a moment."""
    return want(code, what, path) if code in (EMFILE, ENFILE) else OSError(code, reason(code), path)


def lacking(code: int) -> str:
    """Returns what errno `code` says, and where a limit is the reason also which one, and the cure."""
    return f"{reason(code)}: {_limit(code)}" if code in LIMITS else reason(code)


@contextlib.contextmanager
def limits_named(path: str | None = None) -> Iterator[None]:
    """For calls that leave nothing to be continued: an OSError of a limit names the limit and the cure. path: of what the call
    is about, for an error without a path."""
    try:
        yield
    except OSError as error:
        if (named := limit_named(error, path)) is error:
            raise
        raise named from error


def limit_named(error: OSError, path: str | None = None) -> OSError:
    """Returns `error`, or one in its place that names the limit and the cure."""
    if isinstance(error, RmqStoreError) or error.errno not in LIMITS or "raise the limit" in (error.strerror or ""):
        return error
    return OSError(error.errno, f"{error.strerror}: {_limit(error.errno)}", error.filename or path)


def is_want(error: OSError) -> bool:
    """Whether a call failed because it lacked something, as rmq_is_want. Not to be asked about a sync."""
    return error.errno in (*DiskFull.codes, *LIMITS, EAGAIN)


def unwritten(error: DurabilityError, lost: tuple[int, int, int], closed: bool) -> DurabilityError:
    """Returns `error`, which says also what was put and is in the memory of the store alone: (messages, begin, end)."""
    count, begin, end = error.unwritten = lost
    what = f"{count} messages at log offsets {begin} to {end} were put and not written"
    error.cure = (f"{what}, and were lost when the store was closed; {error.cure}" if closed else
                  f"{what}: they can be read (get, scan, message_at) until the store is closed; then {error.cure}")
    return error


def no_thread(code: int, name: str, path: str) -> OSError:
    """Returns the error for a native thread of the store at `path` that could not be started."""
    return OSError(code, f"{os.strerror(code)}: starting the {name} thread: raise the limit of address space (ulimit -v), of "
                   "threads (ulimit -u, pids.max), or of memory", path)


def _limit(code: int) -> str:
    if code == EMFILE:
        return (f"this process may have {_soft(resource.RLIMIT_NOFILE)} open files (RLIMIT_NOFILE): raise the limit "
                "(ulimit -n, LimitNOFILE=), or close some of them")
    if code == ENFILE:
        return f"this machine may have {_kernel('fs/file-max')} open files (fs.file-max): raise the limit, or close some"
    if code == ENOMEM:
        return (f"this process may have {_soft(resource.RLIMIT_AS)} bytes of address space (RLIMIT_AS, ulimit -v) and "
                f"{_kernel('vm/max_map_count')} maps (vm.max_map_count): raise the limit, or give it more memory")
    if code == EAGAIN:
        return (f"this user may have {_soft(resource.RLIMIT_NPROC)} threads (RLIMIT_NPROC, ulimit -u; pids.max of a "
                "container): raise the limit, or end some of them")
    return "give the process what it lacks"


def _soft(limit: int) -> str:
    soft = resource.getrlimit(limit)[0]
    return "unlimited" if soft == resource.RLIM_INFINITY else str(soft)


def _kernel(name: str) -> str:
    try:
        with open(f"/proc/sys/{name}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:         # as it may be for want of descriptors
        return "only so many"


def disk_is_full(path: str, options: Any) -> str:
    """Why puts are refused above disk_full_pct."""
    limit, force = options.disk_full_pct or 100, options.disk_force_pct
    which = "disk_force_pct" if force <= limit else f"disk_force_pct is {force}, and the lower limit counts"
    return (f"the disk of {path} is fuller than disk_full_pct ({limit} %): make room on it, or raise the limit; the store "
            f"accepts puts again by itself when usage is at or below {min(limit, force)} % ({which})")
