"""What other processes used of the processors while something was measured, and a repetition that they disturbed made again.

`others_share` is the mean of a measurement, `others_worst` that of its worst slice of 0.2 s, both of all processors. What this
process and its descendants use counts as its own. Threads of the kernel count for nobody, because they write what the store
left to them. The time that a host takes away counts as another's. A burst of 0.2 s hides in the mean of 10 s, and is the 99.9th
percentile of them.
"""
import json
import os
import select
import signal
import subprocess
import sys
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
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    text = file.read()
            except OSError:             # it has ended meanwhile
                continue
            rest = text[text.rindex(b")") + 2:].split(maxsplit=15)
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


def slices(root: int, pause: Callable[[float], bool], now: Callable[[], float] = time.monotonic) -> list[tuple[float, float]]:
    """(seconds, those that others used of the processors) after each pause, until one says that it was the last."""
    found: list[tuple[float, float]] = []
    at, busy, own = now(), _busy(), _not_others(root)
    while True:
        last = pause(SLICE_S)
        # A child that is waited for between two looks into /proc is in neither of them, for a moment.
        then, more, used = now(), _busy(), max(own, _not_others(root))
        found.append((then - at, max(0.0, more - busy - (used - own))))
        at, busy, own = then, more, used
        if last:
            return found


class Others:
    """`with Others() as others:` around a measurement; then `figures()`.

    A process of its own looks at the machine, with the lowest priority: a thread would take turns at the GIL with what is
    measured here."""

    _process: "subprocess.Popen[str]"

    def __init__(self) -> None:
        self._slices: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, "-S", __file__, str(os.getpid())], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        told = self._process.communicate()[0]
        self._slices = json.loads(told) if told else []

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


def _main(root: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)        # the end of its input ends it, also where the parent is killed
    os.nice(19)
    print("ready", flush=True)
    print(json.dumps(slices(root, lambda seconds: bool(select.select([sys.stdin], [], [], seconds)[0]))))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
