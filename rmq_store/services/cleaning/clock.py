"""The time by which files grow old: the wall clock's, except that setting it forward makes no file old.

RocketMQ believes every jump, and a clock that is a day ahead takes messages a day too early, for good. Here the wall clock is
held against the monotonic one between two looks; what it gained by being set is taken off again, until the files from before
have really lived for as long as they are to be kept. So a correct clock that was wrong before delays cleaning by that time, no
more. A machine that slept looks the same as one whose clock was set. What the clock gained between the newest message and the
open does not count for the first ten minutes: a machine may have begun with a wrong clock, which is set right soon.
One without a clock of its own begins in 1970 or so, each time, and never runs for long enough: what shows a time from before
this library was never set, and when it is, that is as an open then.
Transactions grow too old by the same time, but for what was gained before the open.
Not thread-safe: the cleaner's lock, or one thread.
"""
from rmq_store.base.io.files import ControlFiles
from rmq_store.events import Event, emit

__all__ = ["AgeClock"]

JUMP_MS = 600_000       # less is a clock that is being slewed, or a look that was late
EVER_MS = 1 << 62
MADE_MS = 1_767_225_600_000     # 2026: a clock that shows less was never set
FIRST_MS = 1_325_376_000_000    # 2012: no store has messages from before RocketMQ, unless a clock was not set


class AgeClock:
    """Made when a store is opened. last_ms: when its newest message was stored, 0: not known. tells: whether a jump is an event
    of cleaning. was_unset: the clock has been set for the first time, and files may be of before: whoever sees to them puts it
    back."""

    def __init__(self, files: ControlFiles, path: str, last_ms: int = 0, *, tells: bool = True) -> None:
        self._files, self._path, self._tells = files, path, tells
        self._wall_ms, self._mono_ns = files.wall_ms(), files.mono_ns()
        self._last_ms = last_ms
        self.was_unset = 0 < last_ms < FIRST_MS and self._wall_ms >= MADE_MS
        # When (monotonic ns), what it gained then (ms), and how long that does not count at most (ms): newest last.
        self._jumps: list[tuple[int, int, int]] = []
        self._begin()

    def _begin(self) -> None:
        closed_ms = self._wall_ms - self._last_ms
        self._jumps = [(self._mono_ns, closed_ms, JUMP_MS)] if self._last_ms and closed_ms > JUMP_MS else []

    def now_ms(self, keep_ms: int) -> int:
        """ms since 1970, to be compared with when a file was modified; keep_ms: how long files are to be kept."""
        wall_ms, mono_ns = self._files.wall_ms(), self._files.mono_ns()
        gained_ms = wall_ms - self._wall_ms - (mono_ns - self._mono_ns) // 1_000_000
        self._wall_ms, self._mono_ns = wall_ms, mono_ns
        if gained_ms > JUMP_MS and self._last_ms and wall_ms - gained_ms < MADE_MS <= wall_ms:
            self.was_unset = True
            self._begin()
        elif gained_ms > JUMP_MS:
            self._jumps.append((mono_ns, gained_ms, EVER_MS))
            if self._tells:
                emit(Event.CLOCK_SET_AHEAD, path=self._path, hours=gained_ms / 3_600_000, keep=keep_ms / 3_600_000)
        elif gained_ms < -JUMP_MS:
            self._set_back(-gained_ms)
        # None is forgotten: files may be kept for longer from now on, and are then not as old as they look.
        return wall_ms - sum(gained for since_ns, gained, most_ms in self._jumps
                             if mono_ns - since_ns <= min(keep_ms, most_ms) * 1_000_000)

    def _set_back(self, ms: int) -> None:
        """The clock was set right again, and what it gained last comes off first; what it loses beyond that only makes files
        younger."""
        while self._jumps and ms > 0:
            since_ns, gained, most_ms = self._jumps.pop()
            if gained > ms:
                self._jumps.append((since_ns, gained - ms, most_ms))
            ms -= gained
