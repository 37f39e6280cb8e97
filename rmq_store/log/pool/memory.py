"""What becomes of memory that was to be locked and that the kernel does not lock. The opening and the control thread."""
import errno
import os
import resource

from rmq_store.config.load import Options
from rmq_store.events import Event, emit

__all__ = ["lock_error", "lock_refused", "say_unlocked"]

_LIMITS = (errno.ENOMEM, errno.EPERM, errno.EAGAIN)
# option -> (what it locks, what makes that smaller)
_LOCKED = {"pool_mlock": ("the pool, which is mapped twice,", "pool_window_count"),
           "segment_mlock": ("the commit-log file that is written and the next one", "segment_size_bytes")}


def lock_refused(options: Options, size: int, code: int) -> OSError | None:
    """Locking the pool was wanted, and taking `size` bytes failed with errno `code`.

    Returns the error with its cure where somebody asked for the lock; None, and a line in the log, where only a profile wants
    it: then the pool stays unlocked."""
    if code in _LIMITS and not options.given("pool_mlock"):
        say_unlocked("pool_mlock", 2 * size, code)
        return None
    return lock_error("pool_mlock", 2 * size, code)


def lock_error(option: str, size: int, code: int) -> OSError:
    """The error with its cure, for `size` bytes that `option` was to lock."""
    what, smaller = _LOCKED[option]
    return OSError(code, f"{os.strerror(code)}: mlock of {what} {size} bytes, with a memlock limit of {_limit()}: raise it to "
                   f"{size} or more (ulimit -l, LimitMEMLOCK=), lower {smaller}, or set {option}=False")


def say_unlocked(option: str, size: int, code: int) -> None:
    """The line in the log where it is done without."""
    emit(Event.MLOCK_REFUSED, size=size, errno=code, what=_LOCKED[option][0], limit=_limit(), option=option)


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
