"""The one document of a run, bench/results/figures.json: made from the steps that are kept, and read by the pages."""
import json
import re
import shutil
import sqlite3
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.figures.run import Keeper
from bench.figures.steps import Step
from bench.load.others import undisturbed
from rmq_store.bench import machine
from rmq_store.bench.case import OURS

RESULTS = Path(__file__).parents[1] / "results"
INTEROP = Path(__file__).parents[2] / "tools" / "interop"

Document = dict[str, Any]
Run = Mapping[str, Any]


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _fio() -> str | None:
    if shutil.which("fio") is None:
        return None
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _java_peer(script: str) -> str | None:
    """The release that a script of tools/interop takes by default."""
    found = re.search(r"\b\d+\.\d+(?:\.\d+|ea\d+)+\b", (INTEROP / script).read_text())
    return found[0] if found else None


def peers() -> dict[str, str | None]:
    """Versions of what the store is measured beside; None for what is not here."""
    return {"rocketmq": _java_peer("bench_rocketmq.sh"), "chronicle": _java_peer("bench_chronicle.sh"),
            "sqlite": sqlite3.sqlite_version, "lmdb": _package("lmdb"), "rocksdb": _package("rocksdict"), "fio": _fio()}


def assembled(steps: Iterable[Step], keeper: Keeper, directory: Path, failed: Mapping[str, str]) -> Document:
    """All steps that are kept, with every repetition; `absent` says why the others are not there."""
    kept = {step.name: found for step in steps if (found := keeper.read(step.name)) is not None}
    about = machine.describe(directory)
    for gone in ("git", "time"):        # of the steps, below
        about.pop(gone)
    return {
        **keeper.conditions.to_dict(), "dirty": keeper.conditions.quick,
        "begin": min((k["begin"] for k in kept.values()), default=None),
        "end": max((k["end"] for k in kept.values()), default=None),
        "machine": about, "peers": peers(),
        "absent": {step.name: failed.get(step.name, "not run").splitlines()[-1].strip() for step in steps
                   if step.name not in kept},
        "steps": {name: {"command": k["command"], "shows": k["shows"], "begin": k["begin"], "end": k["end"], **k["found"]}
                  for name, k in kept.items()}}


def write(document: Document, path: Path) -> None:
    """One line for each repetition, so that a difference of two runs can be read."""
    text = json.dumps(document, indent=1)
    # json breaks every list and object: pull those together that hold no other object
    path.write_text(re.sub(r"\{[^{}]*\}", lambda m: re.sub(r"\s*\n\s*", " ", m[0]), text) + "\n")


def read(path: Path) -> Document | None:
    """None while there is no run. Raises ValueError for a file that is none."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("steps"), dict):
        raise ValueError(f"{path.name} is no document of a figures run")
    return document


class NotMeasured(LookupError):
    """The document has no such figure; the text says why."""


class Figures:
    """What pages look up: medians over repetitions, by "step/case", subject and figure."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def runs(self, case: str, subject: str = OURS) -> list[Run]:
        """Every repetition. Raises NotMeasured."""
        step, _, name = case.partition("/")
        if step not in self.document["steps"]:
            raise NotMeasured(f"{step}: {self.document['absent'].get(step, 'there is no such step')}")
        found = self.document["steps"][step]
        runs: list[Run] = found["runs"].get(name, {}).get(subject, [])
        if not runs:
            key = f"{name}/{subject}"
            raise NotMeasured(f"{step}/{key}: {found['missing'].get(key) or found['failed'].get(key) or 'not in the run'}")
        return runs

    def all(self, case: str, key: str, subject: str = OURS) -> list[float]:
        """The figure of each repetition that nobody disturbed, or of all where there are none. Raises NotMeasured."""
        values = [run[key] for run in undisturbed(self.runs(case, subject)) if isinstance(run.get(key), (int, float))]
        if not values:
            raise NotMeasured(f"{case}/{subject} has no {key}")
        return values

    def get(self, case: str, key: str, subject: str = OURS) -> float:
        """The median. Raises NotMeasured."""
        return statistics.median(self.all(case, key, subject))

    def subjects(self, case: str) -> list[str]:
        """Who ran a case, in the order of the run. Raises NotMeasured."""
        step, _, name = case.partition("/")
        if step not in self.document["steps"]:
            raise NotMeasured(f"{step}: {self.document['absent'].get(step, 'there is no such step')}")
        return [subject for subject, runs in self.document["steps"][step]["runs"].get(name, {}).items() if runs]

    def cases(self, step: str) -> list[str]:
        """The cases of a step, in the order of the run. Raises NotMeasured."""
        if step not in self.document["steps"]:
            raise NotMeasured(f"{step}: {self.document['absent'].get(step, 'there is no such step')}")
        return list(self.document["steps"][step]["runs"])
