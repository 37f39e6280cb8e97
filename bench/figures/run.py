"""Runs steps, one process group each, and keeps what each found, so that an interrupted run continues where it was.

A step's output stands in build/figures/COMMIT/NAME.json as soon as the step has ended. It counts only for the commit, kernel
and disk that it was measured on, and only if the tree was clean before and after. Control plane, one thread.
"""
import ctypes
import fcntl
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.figures.steps import Step
from rmq_store.base.machine import device

ROOT = Path(__file__).resolve().parents[2]
# What a run writes itself. Prose and results change no figure.
WRITTEN = ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "docs/", "bench/results/figures.json", "bench/results/figures.html")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_S = 15.0          # for a step to remove what it made, after it was asked to end
PATIENCE_S, PATIENCE = 300.0, 3.0       # a step may take the former, and so many times its minutes

Found = dict[str, Any]


class Refused(Exception):
    """The run cannot begin, or cannot continue; the text says why and what to do."""


def git(root: Path, *arguments: str) -> str:
    """Output of git. Raises Refused where it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def dirty(root: Path) -> list[str]:
    """Files that differ from the commit, or that git does not know; not those that a run writes itself."""
    names = [line[3:] for line in git(root, "status", "--porcelain", "--untracked-files=all", "--no-renames").splitlines()]
    return [name for name in names if not name.startswith(WRITTEN)]


@dataclass(frozen=True)
class Conditions:
    """Figures of one document have all of these in common."""

    commit: str
    kernel: str
    disk: str
    quick: bool

    @classmethod
    def now(cls, root: Path, directory: Path, quick: bool) -> "Conditions":
        _, kind, source, options = device.mount_of(directory)
        return cls(git(root, "rev-parse", "HEAD").strip(), platform.release(), f"{source} {kind} {options}", quick)

    def to_dict(self) -> dict[str, object]:
        return {"commit": self.commit, "kernel": self.kernel, "disk": self.disk, "quick": self.quick}


def checked(found: object) -> Found:
    """A step's output, if it has the form of steps.py and says anything. Raises ValueError."""
    if not isinstance(found, dict) or not all(isinstance(found.get(k), dict) for k in ("runs", "missing", "failed")):
        raise ValueError("expected an object with runs, missing and failed")
    for case, subjects in found["runs"].items():
        for subject, runs in subjects.items():
            if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
                raise ValueError(f"{case}/{subject}: expected a list with an object for each repetition")
    if not any(runs for subjects in found["runs"].values() for runs in subjects.values()) and not found["missing"]:
        raise ValueError("; ".join(f"{k}: {v}" for k, v in found["failed"].items()) or "the step measured nothing")
    return found


class Keeper:
    """The outputs of steps that are kept under conditions."""

    def __init__(self, root: Path, conditions: Conditions) -> None:
        self.root, self.conditions = root, conditions
        self.place = root / "build" / "figures" / ("quick" if conditions.quick else conditions.commit)
        self.place.mkdir(parents=True, exist_ok=True)

    def log(self, name: str) -> Path:
        return self.place / f"{name}.log"

    def read(self, name: str) -> Found | None:
        """What is kept of a step, where it was measured under these conditions. A file that a power cut has torn is none."""
        try:
            kept = json.loads((self.place / f"{name}.json").read_text())
            checked(kept["found"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return kept if kept["conditions"] == self.conditions.to_dict() else None

    def keep(self, step: Step, begin: float, found: Found) -> None:
        """Raises Refused if something has changed since the run began: then the output belongs to nothing."""
        self.unchanged()
        kept = {"conditions": self.conditions.to_dict(), "command": list(step.command), "shows": step.shows,
                "begin": stamp(begin), "end": stamp(time.time()), "found": found}
        path = self.place / f"{step.name}.json"
        new = path.with_suffix(".new")
        with new.open("w") as file:
            file.write(json.dumps(kept) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)

    def forget(self, name: str) -> None:
        (self.place / f"{name}.json").unlink(missing_ok=True)

    def unchanged(self) -> None:
        """Raises Refused if the commit is another by now, or the tree is not clean."""
        if self.conditions.quick:
            return
        commit = git(self.root, "rev-parse", "HEAD").strip()
        if commit != self.conditions.commit:
            raise Refused(f"the commit has changed from {self.conditions.commit[:12]} to {commit[:12]}: begin again")
        if names := dirty(self.root):
            raise Refused(f"the tree is not clean: {', '.join(names)}. Commit or remove these files.")


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """The directory `figures.tmp` under `directory`, for one run at a time; empty at the begin, removed at the end.

    One name, so that the next run removes what a killed one has left. Raises Refused while another run works there."""
    base = directory / "figures.tmp"
    base.mkdir(parents=True, exist_ok=True)
    lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another run of tools/figures works in {base}") from None
        empty(base)
        try:
            yield base
        finally:
            empty(base)
            base.rmdir()
    finally:
        os.close(lock)


def empty(base: Path) -> None:
    """Removes all that is in a directory."""
    for entry in base.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _end_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)        # a shell that starts us in the background has it ignored
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


def _adopt() -> None:
    """Orphans of a step become our children, also those that have a session of their own, so that we can end them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _running() -> list[psutil.Process]:
    """What runs below this process. The dead that nobody has waited for are waited for."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                process.wait(0)
            else:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.TimeoutExpired):
            continue
    return found


def _end_all(child: "subprocess.Popen[bytes]") -> None:
    """Ends a step: asks its group, as Ctrl-C does, and after GRACE_S kills whatever still runs below us."""
    try:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
            child.wait(GRACE_S)
    except (subprocess.TimeoutExpired, ProcessLookupError):
        pass
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        while left := _running():
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=1)


def run_step(step: Step, keeper: Keeper, base: Path) -> Found:
    """Runs one step in a directory of its own under `base`. Raises ValueError with the reason where it fails."""
    place, out = base / step.name, base / f"{step.name}.json"
    place.mkdir()
    command = [sys.executable, "-m", *step.command, "--dir", str(place), "--out", str(out)]
    if keeper.conditions.quick:
        command.append("--quick")
    deadline = PATIENCE_S + PATIENCE * 60 * step.minutes
    with keeper.log(step.name).open("wb") as log:
        child = subprocess.Popen(command, cwd=keeper.root, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                 start_new_session=True, preexec_fn=_end_with_parent)
        try:
            child.wait(deadline)
        except subprocess.TimeoutExpired:
            raise ValueError(f"not at its end after {deadline:.0f} s, and ended") from None
        finally:
            _end_all(child)
            shutil.rmtree(place)
    noise = _last_lines(keeper.log(step.name))
    try:
        # a result is committed: it names no directory of this machine
        found = checked(json.loads(out.read_text().replace(str(base), "DIR").replace(f"{keeper.root}/", "")))
    except FileNotFoundError:
        raise ValueError(f"exit code {child.returncode}, it has written no {out.name}: {noise}") from None
    if child.returncode != 0 and not found["failed"]:       # where cases failed by name, the others count
        raise ValueError(f"exit code {child.returncode}: {noise}")
    return {key: found[key] for key in ("runs", "missing", "failed")}


def _last_lines(log: Path, most: int = 8) -> str:
    return "\n    ".join(log.read_text(errors="replace").splitlines()[-most:]) or "it has printed nothing"


def run_all(steps: Sequence[Step], keeper: Keeper, directory: Path, again: bool, tell: Callable[[str], None]) -> dict[str, str]:
    """Runs every step that is not kept yet, and all with `again`. Returns the steps that failed, with reasons; cases of a step
    that failed are in what it found. Raises Refused."""
    _adopt()
    keeper.unchanged()
    failed: dict[str, str] = {}
    if again or keeper.conditions.quick:
        for step in steps:
            keeper.forget(step.name)
    with scratch(directory) as base:
        for number, step in enumerate(steps):
            head = f"{number + 1}/{len(steps)} {step.name}"
            kept = keeper.read(step.name)
            if kept is not None and not kept["found"]["failed"]:
                tell(f"{head}: kept, measured at {kept['begin']}")
                continue
            left = sum(s.minutes for s in steps[number:] if keeper.read(s.name) is None)
            tell(f"{head}: {step.shows}" + ("" if keeper.conditions.quick else f"; {step.minutes:g} min, {left:g} min left"))
            begin = time.time()
            try:
                found = run_step(step, keeper, base)
            except ValueError as why:
                failed[step.name] = str(why)
                keeper.forget(step.name)
                tell(f"{head}: FAILED: {why}")
                continue
            keeper.keep(step, begin, found)
            for what, text in found["failed"].items():
                failed[f"{step.name}: {what}"] = text
                tell(f"{head}: {what} FAILED: {text}")
            for reason in dict.fromkeys(found["missing"].values()):
                several = [what for what, text in found["missing"].items() if text == reason]
                tell(f"{head}: missing: {', '.join(several)}: {reason}")
            tell(f"{head}: {time.time() - begin:.0f} s")
    return failed
