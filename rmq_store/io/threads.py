"""Starting a Python thread of a store. Any thread."""
import errno
import threading
from collections.abc import Callable

__all__ = ["start_thread"]


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """A daemon thread that runs. Raises OSError where none can be had, as the native threads do; Python's own error has no
    type."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, f"no thread {name} can be had: raise the limit on processes or on memory (ulimit -u, "
                      "ulimit -v, the container's pids.max)") from error
    return thread
