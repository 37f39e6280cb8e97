"""Faults of native code, planted where they were: a copy of this checkout in which a module or two are built with the old lines
back. The ordinary build knows nothing of it.

    python -m tests.trace.planted RUN DIR COUNT     runs on the rmq_store that is first on its path; prints JSON: the rules that
                                                    its traces break, and how many runs it took
"""
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.crash import scenario as stores
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, explore
from tests.trace.checker import RULES, Checker
from tests.trace.explorer import chances, orders, play
from tests.trace.recorder import described
from tests.trace.scenarios import SCENARIOS, judge_image

__all__ = ["MARK", "ROLL", "Ended", "SourcePlant", "run_in", "schedules"]

CHECKOUT = Path(__file__).resolve().parents[2]
COPIED = ("rmq_store", "native", "setup.py", "pyproject.toml", "README.md", "LICENSE", "LICENSES", "NOTICE")
BUILD = """
import sys, setup
sys.argv = ["setup.py", "-q", "build_ext", "--inplace"]
setup.BuildExt.discard_if_changed = lambda self, settings: None     # the other modules stay as they are
setup.setup(ext_modules=[setup.whole()], cmdclass={"build_ext": setup.BuildExt})
"""


@dataclass(frozen=True)
class SourcePlant:
    """(source file, what stands there, what stood there), in the order of the files; each must be there once."""

    lines: tuple[tuple[str, str, str], ...]

    def build(self, tree: Path) -> Path:
        """Makes `tree`, a copy of what a store and its build need, and builds the modules that are changed in it."""
        tree.mkdir()
        for name in (*COPIED, *(str(path.relative_to(CHECKOUT)) for path in CHECKOUT.glob("build/[ct]*"))):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", CHECKOUT / name, tree / name], check=True)
        for path, now, before in self.lines:
            text = (tree / path).read_text()
            assert text.count(now) == 1, f"{path} does not have this once, the plant is stale:\n{now}"
            (tree / path).write_text(text.replace(now, before))
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", BUILD], cwd=tree, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return tree


RING, LOG, SCAN = "rmq_store/log/flush/_ring.pyx", "rmq_store/log/commitlog/_log.pyx", "rmq_store/log/recovery/_scan.pyx"
BEGUN = "    if not durable:\n        rmq_publish32(&f.unsynced, 1)\n"
MARK = SourcePlant((
    (RING, "    _pass(w, f, (p.end + w.block - 1) & ~(w.block - 1))\n",
     "    _pass(w, f, (p.end + w.block - 1) & ~(w.block - 1))\n" + BEGUN),
    (RING, "    if not durable:\n        rmq_publish32(&f.unsynced, 1)         # not when it begins: see _ring.pxd\n", ""),
    (RING, "    _pass(w, f, begin + n)\n", "    _pass(w, f, begin + n)\n" + BEGUN),
    (RING, "        rmq_publish32(&(<LogFile *> done.owner).unsynced, 1)\n", "")))
ROLL = SourcePlant((
    (LOG, "    if f != NULL and f.start + f.size - log.position < BLANK_SIZE:\n"
     "        rmq_publish(&f.data_end, f.start + f.size)        # no store of this format leaves so little; a log may\n"
     "        log_file_release(f)\n"
     "    elif f != NULL:\n", "    if f != NULL:\n"),
    (SCAN, "            if end == f.start + f.size:\n"
     "                w.end = end             # no store leaves so little room: nothing fits there, the file is full\n", "")))


@dataclass(frozen=True)
class Ended:
    """How a run ended: the rules it broke, after how many runs; died: the signal."""

    rules: set[str]
    runs: int
    died: int = 0


def run_in(tree: Path | None, run: str, place: Path, count: int = 1 << 20) -> Ended:
    """Does one of RUNS in a process of its own, on the rmq_store of `tree`, None: of this checkout."""
    place.mkdir()
    root = CHECKOUT if tree is None else tree
    done = subprocess.run([sys.executable, "-m", "tests.trace.planted", run, place, str(count)], cwd=root, text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": f"{root}:{CHECKOUT}"}, timeout=300)
    if done.returncode < 0:
        return Ended(set(), 0, -done.returncode)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert Path(found["package"]).is_relative_to(root), f"{found['package']} was to be of {root}"
    return Ended(set(found["rules"]), found["runs"])


# ---- the runs, in a process of their own

def schedules(count: int = 30) -> Iterable[Any]:
    """The first orders, then some by chance."""
    return itertools.islice(itertools.chain(orders(8), chances(1)), count)


def flush_beside_put(place: Path, count: int) -> tuple[set[str], int]:
    """The explorer's scenario; where a rule is broken, the states that power cuts leave are looked at, too."""
    scenario = next(s for s in SCENARIOS if s.name == "flush-put")
    number = 0
    with Scratch(place) as scratch:
        for number, order in enumerate(schedules(min(count, 30)), 1):
            root = str(place / f"{number}")
            played = play(root, scenario, stores.config_options(("pool", "async", "io_uring")), order)
            rules = {finding.partition(":")[0] for finding in played.findings}
            if rules:
                report = explore(Disk(root), played.trace, judge_image(scratch, played.options), per_cut=4, stop_after=1)
                return rules | ({"a power cut's states"} if report.violations else set()), number
    return set(), number


def odd_end(root: Path, left: int) -> None:
    """A store of one file of the log, in which a record ends `left` bytes before the file does: made in a longer one."""
    options = {**stores.SMALL, "segment_size_bytes": 20480}
    with MessageStore.open(root, **options) as store:
        put = stores.message(0, 8000).put(store)
        head = put.size - 8000
        put = stores.message(1, 16384 - left - put.size - head).put(store)
        assert put.offset + put.size == 16384 - left
    with open(root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.truncate(16384)


def roll_at_an_odd_end(place: Path, count: int) -> tuple[set[str], int]:
    rules: set[str] = set()
    for left in (1, 4, 7):
        root = place / str(left)
        odd_end(root, left)
        checker, probe = Checker(RULES), ProbeIo()
        checker.know(str(root), read_directory(root))
        with MessageStore.open(root, _io=probe, **stores.SMALL) as store:
            probe.mark(("opened", described(store)))
            stores.message(2).put(store)
            probe.mark(("flushed", str(root), store.flush()))
            assert len(list(store.scan())) == 3
        checker.feed(probe.trace())
        rules |= {finding.partition(":")[0] for finding in checker.findings}
    return rules, 1


RUNS = {"flush-beside-put": flush_beside_put, "roll-at-an-odd-end": roll_at_an_odd_end}


def main() -> None:
    import rmq_store
    rules, runs = RUNS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps({"rules": sorted(rules), "runs": runs, "package": rmq_store.__file__}))


if __name__ == "__main__":
    main()
