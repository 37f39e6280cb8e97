"""The time by which files grow old: the wall clock's, except that setting it forward makes no file old.

RocketMQ believes every jump, and a clock that is a day ahead takes messages a day too early, for good. Here the wall clock is
held against the monotonic one between two looks; what it gained by being set is taken off again, until the files from before
have really lived for as long as they are to be kept. So a correct clock that was wrong before delays cleaning by that time, no
more. A machine that slept looks the same as one whose clock was set. Not thread-safe: the cleaner's lock.
"""
from rmq_store.base.io.files import ControlFiles
from rmq_store.events import Event, emit

__all__ = ["AgeClock"]

JUMP_MS = 600_000       # less is a clock that is being slewed, or a look that was late


class AgeClock:
    """Made when the store is opened: what the clock did before is not known."""

    def __init__(self, files: ControlFiles, path: str) -> None:
        self._files, self._path = files, path
        self._wall_ms, self._mono_ns = files.wall_ms(), files.mono_ns()
        self._jumps: list[tuple[int, int]] = []     # when (monotonic ns), and what it gained then (ms): newest last

    def now_ms(self, keep_ms: int) -> int:
        """ms since 1970, to be compared with when a file was modified; keep_ms: how long files are to be kept."""
        wall_ms, mono_ns = self._files.wall_ms(), self._files.mono_ns()
        gained_ms = wall_ms - self._wall_ms - (mono_ns - self._mono_ns) // 1_000_000
        self._wall_ms, self._mono_ns = wall_ms, mono_ns
        if gained_ms > JUMP_MS:
            self._jumps.append((mono_ns, gained_ms))
            emit(Event.CLOCK_SET_AHEAD, path=self._path, hours=gained_ms / 3_600_000, keep=keep_ms / 3_600_000)
        elif gained_ms < -JUMP_MS:
            self._set_back(-gained_ms)
        # None is forgotten: files may be kept for longer from now on, and are then not as old as they look.
        return wall_ms - sum(gained for since_ns, gained in self._jumps if mono_ns - since_ns <= keep_ms * 1_000_000)

    def _set_back(self, ms: int) -> None:
        """The clock was set right again, and what it gained last comes off first; what it loses beyond that only makes files
        younger."""
        while self._jumps and ms > 0:
            since_ns, gained = self._jumps.pop()
            if gained > ms:
                self._jumps.append((since_ns, gained - ms))
            ms -= gained
