"""Runs cases: a directory and a process for each, watched from outside, and everything removed afterwards, come what may.

Control plane, one thread. Ctrl-C (and SIGTERM, where `interruptible` is around) kills the process of the run and removes its
directory before KeyboardInterrupt continues.
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from rmq_store.bench.case import OURS, Case
from rmq_store.bench.disks import Place
from rmq_store.bench.machine import anonymous_memory
from rmq_store.errors import ConfigError

Run = dict[str, Any]

SAMPLE_S = 0.1
SETTLE_S = 4.0
PATIENCE_S, PATIENCE = 300.0, 5.0       # a run may take the former, and so many times the seconds that it measures


@contextmanager
def scratch(base: Path) -> Iterator[Path]:
    """A directory of our own under `base`, removed at the end."""
    base.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="rmqbench.", dir=base))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends what is inside like Ctrl-C does. Main thread only."""
    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def needed_mib(case: Case) -> int:
    """Disk space that a run may use at most."""
    log = case.cap_mib + 2 * case.segment_mib if case.subject == OURS else 2 * case.cap_mib
    index = 450 if case.subject == OURS and case.props != "lean" and "index_slots" not in case.options else 0
    return max(log + index + 64, case.pretouch_mib + case.segment_mib)


def free_mib(path: Path) -> int:
    """Space that this process may still use in `path`."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize >> 20


def _watch(child: "subprocess.Popen[bytes]", deadline: float) -> dict[str, int]:
    """Highest anonymous memory of the process and most dirty page cache of the machine, in bytes, until the child ends. Raises
    TimeoutError after `deadline` (time.monotonic)."""
    peak = {"anon": 0, "dirty": 0}
    while True:
        if time.monotonic() > deadline:
            raise TimeoutError
        try:
            child.wait(SAMPLE_S)
            return peak
        except subprocess.TimeoutExpired:
            pass
        try:
            peak["anon"] = max(peak["anon"], anonymous_memory(child.pid))
            machine = Path("/proc/meminfo").read_text()
        except (psutil.Error, OSError):     # it has ended meanwhile
            continue
        dirty = sum(int(n) for n in re.findall(r"^(?:Dirty|Writeback):\s+(\d+)", machine, re.MULTILINE)) << 10
        peak["dirty"] = max(peak["dirty"], dirty)


def run_case(case: Case, directory: Path, cgroup: str = "") -> Run:
    """One run in a new directory under `directory`: its figures, {"skipped": why}, or {"error": text}; a run that hangs is
    ended, and an error.

    peak_beyond_pool_mib: anonymous memory of the process at its highest, less what it had before the store was opened (the pool
    is shared memory and not in it); peak_dirty_mib: dirty page cache of the whole machine at its highest."""
    directory.mkdir(parents=True, exist_ok=True)
    need, free = needed_mib(case), free_mib(directory)
    if free < need:
        return {"skipped": f"{directory} has {free} MiB free, this run may need {need}: give less --mib or --segment-mib"}
    with scratch(directory) as base:
        job, result = base / "job.json", base / "result.json"
        data = base / "data"
        data.mkdir()
        job.write_text(json.dumps({"case": case.to_dict(), "base": str(data), "result": str(result),
                                   "cgroup": cgroup}))
        # in a session of its own: a Ctrl-C at the terminal comes to us alone, and we end it
        with subprocess.Popen([sys.executable, "-m", "rmq_store.bench.worker", str(job)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                              env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}) as child:
            patience = PATIENCE_S + PATIENCE * case.seconds
            try:
                peak = _watch(child, time.monotonic() + patience)
                noise = child.stderr.read().decode(errors="replace") if child.stderr else ""
            except BaseException as error:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                if isinstance(error, TimeoutError):
                    return {"error": f"not at its end after {patience:.0f} s, and ended"}
                raise
        if not result.exists():
            return {"error": f"the process of the run ended with {child.returncode}: {noise[-2000:].strip()}"}
        figures: Run = json.loads(result.read_text())
    before = figures.pop("memory_before", None)
    if before is not None:
        figures["peak_beyond_pool_mib"] = round(max(0, peak["anon"] - before) / (1 << 20), 1)
        if figures.get("msgs"):
            figures["memory_bytes_per_msg"] = round(max(0, peak["anon"] - before) / figures["msgs"], 2)
        figures["peak_dirty_mib"] = round(peak["dirty"] / (1 << 20), 1)
    return figures


def settle(seconds: float = SETTLE_S) -> None:
    """Before what measures pauses: lets go by what the run before left to the device (its last writes, the discards of what it
    deleted) and to the machine (freed memory that a virtual one hands back)."""
    if seconds > 0:
        os.sync()
        time.sleep(seconds)


def run_all(jobs: Iterable[tuple[Case, Place]], reps: int, told: Callable[[str], None],
            one: Callable[[Case, Path, str], Run] = run_case, until: float = math.inf,
            stop: float = math.inf) -> list[Run]:
    """Every job `reps` times, in turns: all once, then all again. Each result: case, dir, runs (one of each repetition) or
    skipped or error. What was skipped, or failed, once is not tried again; the others continue. After `until` (time.monotonic)
    nothing is repeated, after `stop` nothing is begun."""
    several = list(jobs)
    results: list[Run] = [{"case": case.to_dict(), "name": case.shown(), "dir": place.shown(), "runs": []}
                          for case, place in several]
    for rep in range(reps):
        for (case, place), result in zip(several, results, strict=True):
            if "skipped" in result or "error" in result or (rep and time.monotonic() > until):
                continue
            if time.monotonic() > stop:
                if not rep:
                    result["skipped"] = "no time left"
                continue
            told(f"{rep + 1}/{reps} {case.shown()} in {place.shown()}")
            try:
                run = one(case, place.path, place.cgroup)
            except OSError as error:
                run = {"error": f"{type(error).__name__}: {error}"}
            for why in ("skipped", "error"):
                if why in run:
                    result[why] = run[why]
                    told(f"  {why}: {run[why]}")
                    break
            else:
                result["runs"].append(run)
    return results


def check_directories(directories: Iterable[Path]) -> None:
    """Raises ConfigError for one that cannot be written to."""
    for path in directories:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise ConfigError(f"--dir {path}: no permission to write there; give a directory of your own")
