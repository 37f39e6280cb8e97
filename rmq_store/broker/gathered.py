"""Lines of the log that a peer can cause again and again: one of each kind in an interval, with a count of the others."""
import logging
import threading
import time
from collections.abc import Callable

from rmq_store.events import printable, told

__all__ = ["Gathered"]

INTERVAL_S = 60.0


class Gathered:
    """Any thread. clock: seconds, of time.monotonic."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int]] = {}      # kind -> when the next line may come, and how many did not

    def say(self, level: int, kind: str, text: str, *arguments: object, failure: BaseException | None = None) -> None:
        """Logs `text % arguments`, unless a line of this kind came within INTERVAL_S: the next one says how many did not.
        kind: a constant of the code. What is not a number among the arguments is escaped, as `printable` does. failure: with
        its traceback."""
        now = self._clock()
        with self._lock:
            due, left_out = self._kinds.get(kind, (now, 0))
            self._kinds[kind] = (now + INTERVAL_S, 0) if now >= due else (due, left_out + 1)
        if now < due:
            return
        shown = tuple(one if isinstance(one, int | float) else printable(str(one)) for one in arguments)
        more = f" ({left_out} more of this kind since the line before)" if left_out else ""
        self._log.log(level, text + more, *shown, exc_info=None if failure is None else told(failure))
