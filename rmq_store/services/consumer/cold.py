"""How fast a consumer group may read what is far behind the end of the log (RocketMQ: ColdDataCgCtrService).

Old messages come from the device and take the page cache from others, so a group that catches up slows down producers and the
other groups. A limit leaves their reads alone: only queues whose last read was of old messages wait. One consumer's lock guards
each object.
"""
import time
from collections.abc import Callable

__all__ = ["ColdReads"]


class ColdReads:
    """A second's worth of bytes, filled up as time passes. A read may overdraw it, and the next ones then wait for longer."""

    def __init__(self, limit: Callable[[], int | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._left: float | None = None     # None: nothing was read under a limit yet
        self._at = 0.0

    def took(self, count: int) -> bool:
        """Counts the bytes of old messages that a read returned, or its filter left out. Returns whether there were any."""
        if count > 0 and (left := self._now()) is not None:
            self._left = left - count
        return count > 0

    def spent(self) -> bool:
        """Whether queues of old messages have to wait."""
        left = self._now()
        return left is not None and left <= 0

    def _now(self) -> float | None:
        limit, now = self._limit(), self._clock()
        if limit is None:
            self._left = None
        elif self._left is None:
            self._left = float(limit)
        else:
            self._left = min(self._left + (now - self._at) * limit, float(limit))
        self._at = now
        return self._left
