"""What becomes of a pool whose memory the kernel does not lock. The opening thread."""
import errno
import os
import resource

from rmq_store.config.load import Options
from rmq_store.events import Event, emit

__all__ = ["lock_refused"]

_LIMITS = (errno.ENOMEM, errno.EPERM, errno.EAGAIN)


def lock_refused(options: Options, size: int, code: int) -> OSError | None:
    """Locking was wanted, and taking `size` bytes failed with errno `code`.

    Returns the error with its cure where somebody asked for the lock; None, and a line in the log, where only a profile wants
    it: then the pool stays unlocked."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if code in _LIMITS and not options.given("pool_mlock"):
        emit(Event.MLOCK_REFUSED, size=2 * size, errno=code, limit=limit)
        return None
    return OSError(code, f"{os.strerror(code)}: mlock of the pool, {size} bytes mapped twice, with a memlock limit of {limit}: "
                   f"raise it to {2 * size} or more (ulimit -l, LimitMEMLOCK=), lower pool_window_count, or set "
                   "pool_mlock=False")
