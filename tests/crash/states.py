"""Enumerates the states that a power cut may leave behind a recorded run, and has each of them judged.

`explore` walks a trace (ProbeIo.trace) through the model of disk.py. Power may fail at any call, but only the instants right
before something becomes durable count: until then the set of states only grows, and so does what they must hold.
Every checker has a twin here that is given a broken run (`without`, `acknowledge_early`) and must find it.
"""
import hashlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmq_store.base.io._io import Call
from tests.crash.disk import DSYNC, Disk, Image

__all__ = ["Report", "Scratch", "acknowledge_early", "explore", "not_durable", "without"]

SYNCS = {"msync", "fdatasync", "fsync", "sync_dir"}
# Judges one state: the image and the notes made before the cut; returns what is wrong with it, or None.
Judge = Callable[[Image, list[Any]], str | None]


@dataclass
class Report:
    """What an exploration saw."""

    cuts: int = 0
    states: int = 0             # judged; equal ones with equal notes only once
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = "".join(f"\n  {v}" for v in self.violations[:10])
        return f"{self.states} states at {self.cuts} cuts, {len(self.violations)} violations{found}"


def explore(disk: Disk, trace: Iterable[Call], judge: Judge, *, per_cut: int, seed: int = 1, notes: list[Any] | None = None,
            stop_after: int = 20, seen: set[Any] | None = None, told: Callable[[list[Any]], Any] = len) -> Report:
    """Judges up to `per_cut` states at each cut of `trace`, which goes on where `disk` is now.

    seen: what was judged in other runs and need not be again, where `told` makes of the notes all that the judge goes by."""
    report, rnd, seen = Report(), random.Random(seed), set() if seen is None else seen
    notes = [] if notes is None else notes

    def cut(place: str) -> None:
        report.cuts += 1
        for image in disk.states(per_cut, rnd):
            key = (digest(image), told(notes))
            if key in seen:
                continue
            seen.add(key)
            report.states += 1
            wrong = judge(image, notes)
            if wrong:
                report.violations.append(f"power cut {place} (seed {seed}): {wrong}")
                if len(report.violations) >= stop_after:
                    return

    last = "at the beginning"
    for number, call in enumerate(trace):
        if call.kind == "mark":
            notes.append(call.note)
        elif (call.kind in SYNCS or call.kind == "ring_reap") and not call.ignored:
            cut(f"before call {number}, {call.kind} of {os.path.basename(call.path or '')}, {last}")
            if len(report.violations) >= stop_after:
                return report
        disk.feed(call)
        if call.kind in SYNCS:
            last = f"after {call.kind} of {os.path.basename(call.path or '')}"
    cut(f"at the end, {last}")
    return report


def digest(image: Image) -> bytes:
    h = hashlib.blake2b(digest_size=16)
    for path, data in sorted(image.items()):
        h.update(f"{path}\0{-1 if data is None else len(data)}\0".encode())
        h.update(data or b"")
    return h.digest()


class Scratch:
    """Writes images out, one after the other, where it is fast: memory if there is any, else the given directory."""

    def __init__(self, fallback: Path) -> None:
        shm = "/dev/shm"
        self.place = tempfile.mkdtemp(prefix="rmq_store-", dir=shm if os.access(shm, os.W_OK) else fallback)
        self.made = 0

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self.place)

    def write(self, image: Image) -> str:
        """A new directory with that content; the one before is removed."""
        shutil.rmtree(os.path.join(self.place, str(self.made)), ignore_errors=True)
        self.made += 1
        root = os.path.join(self.place, str(self.made))
        os.mkdir(root)
        for path, data in image.items():
            target = os.path.join(root, path)
            if data is None:
                os.mkdir(target)
                continue
            with open(target, "wb") as f:
                f.write(data.rstrip(b"\0"))
                f.truncate(len(data))
        return root


# ---- planted faults: what a careless store would have recorded

def without(trace: list[Call], kind: str, path: str = "") -> list[Call]:
    """The run of a store that forgets a call: the trace without calls of `kind` whose path contains `path`."""
    return [c._replace(kind="forgotten") if c.kind == kind and path in (c.path or "") else c for c in trace]


def not_durable(trace: list[Call]) -> list[Call]:
    """The run of a store whose writes do without RWF_DSYNC."""
    return [c._replace(flags=c.flags & ~DSYNC) if c.kind in ("pwrite", "ring_write") else c for c in trace]


def acknowledge_early(trace: list[Call], is_ack: Callable[[Any], bool], is_write: Callable[[Call], bool]) -> list[Call]:
    """The run of a store that acknowledges before it syncs: each such mark comes right behind the last write before it."""
    out: list[Call] = []
    behind_write = 0
    for call in trace:
        if call.kind == "mark" and is_ack(call.note):
            out.insert(behind_write, call)
            behind_write += 1
            continue
        out.append(call)
        if is_write(call):
            behind_write = len(out)
    return out
