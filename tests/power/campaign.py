"""Power cuts below real file systems: python -m tests.power.campaign --states 2000 --seed 1 --dir DIR (make test-power).

Scenario after scenario is recorded on a disk that remembers (disk.py) and cut (states.py); each state is opened and judged
(judge.py). Some of these are recorded themselves while they recover, and cut again, three cuts deep. One JSON line for each
recording on standard output; exit 1 where anything is wrong. A recording with a violation is kept: --replay repeats its states;
what was cut again is kept as an image, since a recovery never writes twice in the same order.
"""
import argparse
import contextlib
import json
import logging
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmq_store.log.flush._uring import uring_probe
from tests.power.apart import apart
from tests.power.disk import Disk, Log, Unmountable, build, copy_image, make_image, missing, own_mounts
from tests.power.facts import Facts
from tests.power.judge import judge
from tests.power.scenarios import BY_NAME, SCENARIOS, Scenario
from tests.power.states import State, choose_cuts, first_mark, make_states
from tests.power.workload import stirring, work

LEVELS = 3                  # cuts one behind the other
RECORDED = 0.2              # of the states are recorded while they recover, to be cut again
READ_ERRORS = 0.25          # of these meet a disk that cannot read
CUTS_AGAIN = 2
STORE = "store"
SCRATCH_BYTES = 4 << 30


@dataclass
class Tally:
    """What the states of one recording showed."""

    states: int = 0
    by_level: list[int] = field(default_factory=lambda: [0] * LEVELS)
    unmountable: int = 0
    read_errors: int = 0
    acknowledged: int = 0
    pending: list[int] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        pending = sorted(self.pending) or [0]
        return {"states": self.states, "by_level": self.by_level, "unmountable": self.unmountable,
                "read_errors": self.read_errors, "acknowledged": self.acknowledged,
                "pending_median": pending[len(pending) // 2], "pending_max": pending[-1], "violations": self.violations}


class Image(NamedTuple):
    """A state of a second or third cut that was judged, and found wanting: its file, and how it was judged."""

    file: str
    facts: Facts
    level: int
    chance: int
    name: str


@dataclass
class Recording:
    """One run of a scenario and the states that come of it. Everything that is chosen follows from `seed`."""

    scenario: Scenario
    kind: str
    seed: int
    room: Path
    program: Path
    lying: bool = False
    asked: int = 0
    images: list[Image] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.base, self.log = self.room / "base.img", self.room / "log"

    def record(self, seconds: float) -> None:
        """Runs the workload; leaves base.img, as it was before, and the log."""
        self.room.mkdir(parents=True, exist_ok=True)
        make_image(self.base, self.kind, self.scenario.image_bytes)
        running = copy_image(self.base, self.room / "running.img")
        with Disk(self.room / "disk", running, self.kind, self.log, self.program, self.seed) as disk:
            root = disk.place / STORE
            root.mkdir()
            if self.scenario.hold:
                disk.control("hold 30 4")
            with contextlib.nullcontext() if self.scenario.trouble else stirring(root, self.seed):
                for life in range(self.scenario.lives):
                    self._live(disk, root, life, seconds)
        running.unlink()

    def _live(self, disk: Disk, root: Path, life: int, seconds: float) -> None:
        ended = apart(work, self.scenario, self.seed, life, seconds, root, disk.fuse, seconds=seconds + 120)
        if self.scenario.trouble:
            disk.control("slow 0")
            disk.control("fail-writes 0 0")
        if ended.died or ended.answer:
            self.tally.violations.append(f"life {life} of the workload: {ended.died or ended.answer['raised']}")

    def judge_states(self, count: int) -> None:
        """Makes about so many states of the recording and judges them."""
        self.asked = count
        rnd, log = random.Random(f"{self.seed} {self.scenario.name} {self.kind}"), Log(self.log)
        begin = first_mark(log, "opened" if self.scenario.lives > 1 else "durable", "end")
        facts = Facts()
        flushed = copy_image(self.base, self.room / "flushed.img")
        first = max(1, round(count / (1 + RECORDED * CUTS_AGAIN * 1.2)))
        cuts = choose_cuts(log, min(begin, max(len(log.records) - 1, 0)), first, rnd)
        for state in make_states(flushed, log, facts, cuts, rnd, self.room, lying=self.lying):
            self._judge(state, 1, rnd, f"cut {state.cut} ({state.kept} of {state.pending})")
            self.tally.acknowledged = max(self.tally.acknowledged, state.facts.count)
        flushed.unlink()
        log.close()

    def _judge(self, state: State, level: int, rnd: random.Random, name: str) -> None:
        self.tally.states += 1
        self.tally.by_level[level - 1] += 1
        self.tally.pending.append(state.pending)
        again = level < LEVELS and rnd.random() < RECORDED * (1 if level == 1 else 2)
        unreadable = again and rnd.random() < READ_ERRORS
        chance, inner = rnd.randrange(1 << 30), random.Random(rnd.random())
        room = self.room / f"level-{level}"
        room.mkdir(exist_ok=True)
        before = len(self.tally.violations)
        spare = None if level == 1 else copy_image(state.image, self.room / f"spare-{level}")
        try:
            if again:
                self._judge_again(state, level, inner, chance, room, name, unreadable)
            else:
                with Disk(room, state.image, self.kind) as disk:
                    self.judge_image(disk, state.facts, level, chance, name)
        except Unmountable as error:
            self.tally.unmountable += 1
            say(unmountable=str(error), state=name)
        finally:
            state.image.unlink(missing_ok=True)
            shutil.rmtree(room)
        if spare is not None and len(self.tally.violations) > before:
            file = spare.rename(self.room / f"image-{len(self.images)}").name
            self.images.append(Image(file, state.facts, level, chance, name))
        elif spare is not None:
            spare.unlink()

    def _judge_again(self, state: State, level: int, rnd: random.Random, chance: int, room: Path, name: str,
                     unreadable: bool) -> None:
        """Opens the store on a recorded disk, and cuts what that wrote. Who meets read errors must be whole without them."""
        before = len(self.tally.violations)
        if unreadable:
            spare = copy_image(state.image, room / "spare.img")
            with Disk(room, spare, self.kind) as disk:
                self.judge_image(disk, state.facts, level, chance, name)
            spare.unlink()
        if len(self.tally.violations) > before:
            return
        running, path = copy_image(state.image, room / "running.img"), room / "log"
        with Disk(room, running, self.kind, path, self.program, chance) as disk:
            if self.scenario.hold:
                disk.control("hold 30 4")
            if unreadable:
                self.tally.read_errors += 1
                disk.control(f"fail-reads {rnd.choice((2, 10, 40))}")
                apart(judge, self.scenario, self.seed, level, state.facts, disk.place / STORE, disk.marks, chance)
                disk.control("fail-reads 0")
            else:
                self.judge_image(disk, state.facts, level, chance, name)
        running.unlink()
        log = Log(path)
        # Most cuts fall into the recovery: before it says that the store is open.
        opened = first_mark(log, "opened")
        cuts = sorted(rnd.randrange(1 + (opened if rnd.random() < 0.7 else len(log.records))) for _ in range(CUTS_AGAIN))
        if unreadable:
            cuts[-1] = len(log.records)
        for inner in make_states(state.image, log, state.facts, cuts, rnd, room):
            self._judge(inner, level + 1, rnd, f"{name}{', read errors' * unreadable}, cut {inner.cut} of {opened} to open "
                        f"({inner.kept} of {inner.pending})")
        log.close()

    def judge_image(self, disk: Disk, facts: Facts, level: int, chance: int, name: str) -> None:
        ended = apart(judge, self.scenario, self.seed, level, facts, disk.place / STORE, disk.marks, chance)
        wrong = facts.failed + ([ended.died] if ended.died else
                                [ended.answer["raised"]] if isinstance(ended.answer, dict) else ended.answer)
        self.tally.violations += [f"{self.scenario.name} on {self.kind}, seed {self.seed}, {name}: {what}" for what in wrong]

    def keep(self, kept: Path) -> Path:
        """What repeats the states: the recording, and how it was made. Its directory."""
        kept.mkdir(parents=True, exist_ok=True)
        target = kept / f"{self.scenario.name}-{self.kind}-{self.seed}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        copy_image(self.base, target / self.base.name)
        shutil.copy(self.log, target / self.log.name)
        for image in self.images:
            copy_image(self.room / image.file, target / image.file)
        (target / "images").write_bytes(pickle.dumps(self.images))
        (target / "recording.json").write_text(json.dumps({"scenario": self.scenario.name, "kind": self.kind, "seed": self.seed,
                                                           "states": self.asked, "lying": self.lying}))
        return target


def scratch() -> str:
    """A directory for images: of memory where there is room, as a disk that is cut need not be one."""
    shm = Path("/dev/shm")
    return str(shm) if os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > SCRATCH_BYTES else tempfile.gettempdir()


def usable(names: list[str]) -> list[str]:
    """Without the scenarios whose back end this machine refuses."""
    ring = uring_probe(tempfile.gettempdir())["setup"] == 0
    return [name for name in names if ring or BY_NAME[name].options.get("flush_backend") != "io_uring"]


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def recordings(names: list[str], seed: int, count: int) -> Iterator[tuple[Scenario, str, int]]:
    """(scenario, kind of file system, seed): all scenarios by turns, every other time on the other file system."""
    for number in range(count):
        turn, place = divmod(number, len(names))
        yield BY_NAME[names[place]], ("ext4", "xfs")[(place + turn + seed) % 2], seed * 1000 + number


def campaign(states: int, seed: int, room: Path, kept: Path, *, names: list[str], kinds: list[str], each: int, seconds: float,
             lying: bool = False) -> list[str]:
    """Judges at least so many states, `each` of a recording. The violations."""
    program, wrong, judged, began = build(room), [], 0, time.monotonic()
    for scenario, kind, number in recordings(names, seed, 1 << 30):
        if judged >= states:
            break
        made = Recording(scenario, kind if kind in kinds else kinds[0], number, room / "recording", program, lying)
        made.record(seconds)
        made.judge_states(min(each, states - judged))
        judged += made.tally.states
        wrong += made.tally.violations
        where = {"kept": str(made.keep(kept))} if made.tally.violations else {}
        say(scenario=scenario.name, file_system=made.kind, seed=number, **made.tally.as_dict(), **where)
        shutil.rmtree(made.room)
    say(states=judged, seed=seed, violations=len(wrong), seconds=round(time.monotonic() - began))
    return wrong


def replay(kept: Path, room: Path) -> list[str]:
    """The states of a kept recording again."""
    how = json.loads((kept / "recording.json").read_text())
    made = Recording(BY_NAME[how["scenario"]], how["kind"], how["seed"], room / "recording", build(room), how["lying"])
    made.room.mkdir(parents=True)
    copy_image(kept / "base.img", made.base)
    shutil.copy(kept / "log", made.log)
    for image in pickle.loads((kept / "images").read_bytes()):
        copy_image(kept / image.file, made.room / image.file)
        with Disk(made.room / "disk", made.room / image.file, made.kind) as disk:
            made.judge_image(disk, image.facts, image.level, image.chance, image.name)
    made.judge_states(how["states"])
    say(scenario=made.scenario.name, file_system=made.kind, seed=made.seed, **made.tally.as_dict())
    return made.tally.violations


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.power.campaign", description="power cuts below real file systems")
    parser.add_argument("--states", type=int, default=int(os.environ.get("RMQ_POWER_STATES", "2000")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("RMQ_SEED", "1")))
    parser.add_argument("--each", type=int, default=30, help="states of one recording")
    parser.add_argument("--seconds", type=float, default=3.0, help="of work in one recording")
    parser.add_argument("--scenario", nargs="*", default=[s.name for s in SCENARIOS], choices=sorted(BY_NAME))
    parser.add_argument("--file-system", nargs="*", default=["ext4", "xfs"], choices=["ext4", "xfs"])
    parser.add_argument("--lying", action="store_true", help="a disk whose flushes do nothing: the judge must find that")
    parser.add_argument("--dir", type=Path, default=scratch(), help="where images lie; default: memory, if there is enough")
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "rmq-power-kept",
                        help="where recordings with a violation stay")
    parser.add_argument("--replay", type=Path, help="a kept recording")
    given = parser.parse_args(arguments)
    if why := missing():
        print(why, file=sys.stderr)
        return 77
    own_mounts()
    logging.getLogger("rmq_store").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))      # mounts are given up on the way out
    room = Path(tempfile.mkdtemp(prefix="rmq-power-", dir=given.dir))
    try:
        wrong = replay(given.replay, room) if given.replay else campaign(
            given.states, given.seed, room, given.kept, names=usable(given.scenario), kinds=given.file_system, each=given.each,
            seconds=given.seconds, lying=given.lying)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
