"""Runs cases and says what they found, sorted by cause: python -m tests.fuzz.campaign --seed S --cases N.

A finding is told with seed, case, what was done to the store, and where the victim stood. With --minimise each cause's first
case is tried again with one damage at a time. `python -m tests.fuzz.victim --seed S --begin CASE --end CASE+1 --dir DIR`
repeats a case; --only 0 takes its first damage alone, --action write that action alone.

RMQ_FUZZ_PYTHON: the interpreter of the victims; RMQ_FUZZ_PRELOAD: their LD_PRELOAD (a sanitizer's library).
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BATCH = 200


@dataclass
class Found:
    """One finding of one action of one case."""

    seed: str
    case: int
    base: str
    damage: list[str]
    action: str
    finding: str
    stack: str = ""

    @property
    def frames(self) -> list[str]:
        """Where it stood, innermost last, in the package's own files."""
        text = self.stack.partition("Extension modules")[0]
        places = re.findall(r'File "[^"]*?(rmq_store/[^"]+)", line (\d+),? in ([\w.<>]+)', text)
        found = [f"{path}:{line} {name.rpartition('.')[2]}" for path, line, name in places]
        return found[::-1] if "most recent call first" in self.stack else found

    @property
    def cause(self) -> str:
        """What findings of one cause have in common."""
        where = self.frames[-1].partition(":")[0] if self.frames else self.action
        lines = [line for line in self.stack.splitlines() if "ERROR: AddressSanitizer" in line or "runtime error:" in line]
        text = re.sub(r"\d+", "N", (lines[0] if lines else self.finding).partition(": [")[0])[:110]
        return f"{text} | {where}"

    def __str__(self) -> str:
        stack = "".join(f"\n      {frame}" for frame in self.frames[-6:])
        return (f"seed {self.seed}, case {self.case}, {self.action} of {self.base}: {self.finding[:700]}"
                + "".join(f"\n    damage: {d}" for d in self.damage) + stack)


def environment() -> dict[str, str]:
    preload = os.environ.get("RMQ_FUZZ_PRELOAD")
    return {**os.environ, **({"LD_PRELOAD": preload} if preload else {})}


def run(seed: str, begin: int, end: int, room: Path, more: Sequence[str] = ()) -> Iterator[Found]:
    """What cases [begin, end) of this seed found."""
    python = os.environ.get("RMQ_FUZZ_PYTHON", sys.executable)
    while begin < end:
        to = min(begin + BATCH, end)
        command = [python, "-m", "tests.fuzz.victim", "--seed", seed, "--begin", str(begin), "--end", str(to),
                   "--dir", str(room), *more]
        base, damage, last = "", list[str](), begin - 1
        with subprocess.Popen(command, cwd=ROOT, env=environment(), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as victim:
            assert victim.stdout is not None and victim.stderr is not None
            for line in map(json.loads, victim.stdout):
                last = line["case"]
                if "damage" in line:
                    base, damage = line["base"], line["damage"]
                elif "finding" in line:
                    yield Found(seed, last, base, damage, line["action"], line["finding"], line.get("stack", ""))
            wrong = victim.stderr.read()
        if victim.returncode and last < begin:
            raise AssertionError(wrong)
        if victim.returncode:
            yield Found(seed, last, base, damage, "victim", f"the runner ended with {victim.returncode}", wrong[-3000:])
        begin = last + 1 if victim.returncode else to


def minimise(found: Found, room: Path) -> str:
    """Which of its damages alone lead there again."""
    action = [] if found.action == "readers" else ["--action", found.action]
    alone = [i for i in range(len(found.damage))
             if any(f.cause == found.cause for f in run(found.seed, found.case, found.case + 1, room,
                                                        ["--only", str(i), *action]))]
    return f"by itself: {', '.join(found.damage[i] for i in alone)}" if alone else "not by one of its damages alone"


def scratch() -> tempfile.TemporaryDirectory[str]:
    """In memory where there is room; a place that nobody (the user) can reach, too."""
    shm = "/dev/shm"
    roomy = os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 256 << 20
    made = tempfile.TemporaryDirectory(dir=shm if roomy else "/var/tmp", prefix="rmq-fuzz-")
    os.chmod(made.name, 0o711)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--minimise", action="store_true")
    parser.add_argument("--out", type=Path, help="also each finding as a JSON line in this file")
    args = parser.parse_args()
    causes: dict[str, list[Found]] = {}
    with scratch() as place:
        for at in range(args.begin, args.begin + args.cases, BATCH):
            for found in run(args.seed, at, min(at + BATCH, args.begin + args.cases), Path(place) / "room"):
                causes.setdefault(found.cause, []).append(found)
                if args.out:
                    with args.out.open("a") as f:
                        f.write(json.dumps(vars(found)) + "\n")
            print(f"{at + BATCH - args.begin} stores, {len(causes)} causes", flush=True)
        for cause, each in sorted(causes.items(), key=lambda pair: -len(pair[1])):
            print(f"\n{len(each)} x {cause}\n  {each[0]}")
            if args.minimise:
                print(f"    {minimise(each[0], Path(place) / 'room')}")
    raise SystemExit(bool(causes))


if __name__ == "__main__":
    main()
