"""What the drivers here share: their arguments, their line of JSON, and the file that --out writes.

That file is the same for all of them and for bench/pairs.py: {"runs": {CASE: {SUBJECT: [{figure: number}, …]}}, "missing":
{"CASE/SUBJECT": why}, "failed": {"CASE/SUBJECT": text}}, one dict of figures for each repetition. Beside it stand the machine,
and `rows`: what the driver printed.
"""
import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rmq_store.bench import machine

Row = dict[str, Any]
NOT_FIGURES = ("histograms", "rounds", "reps")


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """`--name VALUE` for every default, typed like it; `--dir`, `--out`, `--quick`."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs")
    p.add_argument("--out", type=Path, help="also write machine and figures as JSON")
    p.add_argument("--quick", action="store_true", help="seconds instead of minutes: shows that it runs, measures nothing")
    for name, value in defaults.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    return p


def numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The figures of a row: its numbers, those of dicts inside with the dict's name before theirs."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if name in NOT_FIGURES:
            continue
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{name}_")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[prefix + name] = value
    return found


class Found:
    """Runs by case and subject, what is missing and what failed: the contents of the file."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.missing: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def add(self, case: str, subject: str, row: Mapping[str, Any], **curves: list[Any]) -> None:
        """One repetition. A row with the text `missing` did not run, and says why. Curves stand beside the figures."""
        if row.get("missing"):
            self.missing[f"{case}/{subject}"] = str(row["missing"])
        else:
            self.runs.setdefault(case, {}).setdefault(subject, []).append(numbers(row) | curves)

    def write(self, args: argparse.Namespace, **more: Any) -> None:
        """Into the file that --out names, if it does."""
        if args.out is not None:
            found = {"machine": machine.describe(args.dir), "runs": self.runs, "missing": self.missing, "failed": self.failed}
            partial = args.out.with_name(args.out.name + ".partial")
            partial.write_text(json.dumps(found | more, indent=1) + "\n")
            partial.replace(args.out)


def keep(args: argparse.Namespace, rows: Iterable[Row], named: Callable[[Row], tuple[str, str]],
         printed: list[Row] | None = None) -> None:
    """The rows as --out has them; `named` gives the case and the subject of a row. Rows of the same name are repetitions.
    `printed`: what the driver printed, where that is something else."""
    found, several = Found(), list(rows)
    for row in several:
        found.add(*named(row), row)
    found.write(args, rows=several if printed is None else printed)


def report(figures: Row) -> None:
    """One line of JSON."""
    print(json.dumps(figures), flush=True)
