"""What other processes used of the processors while something was measured, and a repetition that they disturbed made again.

`others_share` is the mean of a measurement, `others_worst` that of its worst slice of 0.2 s, both of all processors. What this
process and its descendants use counts as its own. Threads of the kernel count for nobody, because they write what the store
left to them. The time that a host takes away counts as another's. A burst of 0.2 s hides in the mean of 10 s, and is the 99.9th
percentile of them.
"""
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

Row = dict[str, Any]

SLICE_S = 0.2
SHARE_MAX, WORST_MAX = 0.10, 0.40       # above one of them a repetition is disturbed
KTHREADD = 2
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def _busy() -> float:
    """Seconds that processors worked since the machine started, the host's share included."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) * TICK_S


def _processes() -> dict[int, tuple[int, float]]:
    """(parent, seconds with those of the children it has waited for) of each process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                text = Path("/proc", name, "stat").read_text()
            except OSError:             # it has ended meanwhile
                continue
            rest = text[text.rindex(")") + 2:].split()
            found[int(name)] = int(rest[1]), sum(map(int, rest[11:15])) * TICK_S
    return found


def _not_others(root: int) -> float:
    """Seconds of a process and its descendants, and of the kernel's threads."""
    processes = _processes()
    below: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        below.setdefault(parent, []).append(pid)
    several, total = [root, KTHREADD], 0.0
    while several:
        pid = several.pop()
        total += processes.get(pid, (0, 0.0))[1]
        several += below.get(pid, ())
    return total


class Others:
    """`with Others() as others:` around a measurement; then `figures()`. A thread looks at the machine in each slice."""

    def __init__(self) -> None:
        self._root, self._ended = os.getpid(), threading.Event()
        self._thread = threading.Thread(target=self.look, args=(self._ended.wait,), name="others")
        self._slices: list[tuple[float, float]] = []      # seconds, and those that others used of the processors

    _now = staticmethod(time.monotonic)

    def look(self, pause: Callable[[float], bool]) -> None:
        """A slice after each pause, until one says that it was the last."""
        at, busy, own = self._now(), _busy(), _not_others(self._root)
        while True:
            last = pause(SLICE_S)
            # A child that is waited for between two looks into /proc is in neither of them, for a moment.
            now, more, used = self._now(), _busy(), max(own, _not_others(self._root))
            self._slices.append((now - at, max(0.0, more - busy - (used - own))))
            at, busy, own = now, more, used
            if last:
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def disturbed(self) -> bool:
        """Never of what is shorter than a slice: the kernel counts in ticks of 10 ms."""
        figures = self.figures()
        if sum(seconds for seconds, _ in self._slices) < SLICE_S:
            return False
        return figures["others_share"] > SHARE_MAX or figures["others_worst"] > WORST_MAX

    def figures(self) -> dict[str, float]:
        cpus = os.cpu_count() or 1
        whole = [(seconds, used) for seconds, used in self._slices if seconds >= SLICE_S / 2]
        share = sum(used for _, used in self._slices) / max(sum(seconds for seconds, _ in self._slices), 1e-9) / cpus
        return {"others_share": round(share, 3),
                "others_worst": round(max((used / seconds / cpus for seconds, used in whole), default=0.0), 3)}


def repeated(measure: Callable[[], list[Row]], again: bool = True) -> list[Row]:
    """The rows of `measure`, with what others used meanwhile. Those of a disturbed repetition say `disturbed`: 1, and where
    `again` is set it is made once more, so that both are there."""
    rows: list[Row] = []
    for _ in range(2 if again else 1):
        with Others() as others:
            found = measure()
        rows += [row | others.figures() | ({"disturbed": 1} if others.disturbed else {}) for row in found]
        if not others.disturbed:
            break
    return rows


def undisturbed(runs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The repetitions that count: those that nobody disturbed, or all where there are none."""
    return [run for run in runs if not run.get("disturbed")] or runs
