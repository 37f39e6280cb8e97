"""What a consumer's calls take: how long a poll may wait, and which handlers `run` calls. A handler is through with a message
when it returns, or when its result is awaited.
"""
import time

from rmq_store.access.reader._checked import whole
from rmq_store.base.io.callbacks import check_callback
from rmq_store.errors import illegal

__all__ = ["check_handler", "deadline_of"]

CONCURRENCY_MAX = 10_000    # threads, or tasks


def deadline_of(timeout: float | None) -> float | None:
    """When a wait ends, by time.monotonic. Raises ArgumentIllegal."""
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise illegal("timeout", timeout, "give seconds, 0 or more, or None for ever")
    return time.monotonic() + timeout


def check_handler(handle: object, concurrency: object, *, awaits: bool) -> None:
    """Raises ArgumentIllegal for what `run` cannot call, and for a concurrency out of range. awaits: whether it awaits what is
    returned."""
    check_callback("handle", handle, "that takes a message", awaits=awaits,
                   cure=", or take the consumer of an AsyncMessageStore, whose run awaits it")
    if isinstance(concurrency, bool):       # a number to Python
        raise illegal("concurrency", concurrency, f"give a whole number, 1 to {CONCURRENCY_MAX}")
    whole(concurrency, "concurrency", 1, CONCURRENCY_MAX)
