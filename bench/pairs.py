"""This library beside its peers: the cases of a group (bench/cases.py) in turns, each run a process of its own.

All cases once, then all of them again, --reps times: a machine's speed changes within minutes. Before each run everything
settles. A rate is until all is flushed and dispatched. The group `at_rate` first measures what each side sustains, then runs
both at 90 % of the slower one's rate: each put has a due time, and its latency counts from there. A run that others disturbed
(bench/load/others.py) is made once more. --out: bench/load/driver.py describes the file; a run also holds `latency`, points of
its distribution as [share, microseconds].

    python -m bench.pairs --group beside --dir DIR --out FILE --reps 3
"""
import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bench import cases
from bench.load.driver import Found, parser
from bench.load.others import Others
from rmq_store.bench import figures
from rmq_store.bench.case import WORKLOADS, Case
from rmq_store.bench.disks import Place, made
from rmq_store.bench.runner import interruptible, run_case, settle
from rmq_store.bench.svg import thinned

Run = dict[str, Any]
DISK_MIB = 1024


def latency(run: Run) -> list[tuple[float, float]]:
    """[share, µs] of the calls of a run; empty where it timed none."""
    histograms = figures.merged({"runs": [run]})
    found = histograms.get("response") or histograms.get("call")
    if found is None:
        return []
    return [(round(share, 7), ns / 1e3) for share, ns in thinned(figures.percentile_points(found), found.count)]


class Pairs:
    """Runs cases, and gathers what they found."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.found = Found()

    def one(self, name: str, subject: str, case: Case, place: Place) -> Run | None:
        """One run, or None where it failed or cannot run here; `found` says so, and the case is not tried again."""
        key = f"{name}/{subject}"
        if key in self.found.missing or key in self.found.failed:
            return None
        if not self.args.quick:
            settle()
        case = (cases.quick(case.complete()) if self.args.quick else case).complete()
        with Others() as others:
            run = run_case(case, place.path, place.cgroup)
        for kind, texts in (("skipped", self.found.missing), ("error", self.found.failed)):
            if kind in run:
                texts[key] = str(run[kind])
                self._tell(f"  {key} {kind}: {run[kind]}")
                return None
        return run | others.figures() | ({"disturbed": 1} if others.disturbed else {})

    def keep(self, name: str, subject: str, case: Case, place: Place) -> None:
        """One repetition. One that other processes disturbed is made once more, and both are kept."""
        for _ in range(1 if self.args.quick else 2):
            run = self.one(name, subject, case, place)
            if run is None:
                return
            if case.complete().flush_mode == "async" and not case.rate and "sustained_per_s" in run:
                run["burst_per_s"] = run.pop("msgs_per_s")      # ends with the last put: into memory
            self.found.add(name, subject, run, latency=latency(run))
            if not run.get("disturbed"):
                return
            self._tell(f"  {name}/{subject}: others used {run['others_share']:.0%} of the processors, "
                       f"{run['others_worst']:.0%} for a moment")

    def turns(self, group: cases.Group, place: Place, suffix: str = "") -> None:
        for rep in range(self.args.reps):
            for name, sides in group.items():
                self._tell(f"{rep + 1}/{self.args.reps} {name}{suffix}")
                for subject, case in sides.items():
                    self.keep(name + suffix, subject, case, place)

    def at_rate(self, group: cases.Group, place: Place) -> None:
        """The rate of each case is RATE_SHARE of what the slower side sustains now."""
        at: cases.Group = {}
        for name, sides in group.items():
            self._tell(f"{name}: what do both sustain?")
            found = [self.one(name, s, replace(c, **cases.FOUND_BY), place) for s, c in sides.items()]
            rates = [run["sustained_per_s"] for run in found if run is not None]
            if len(rates) == len(sides):        # else there is nothing to compare, and `missing` or `failed` says why
                rate = max(1, int(cases.RATE_SHARE * min(rates)))
                at[name] = {s: replace(c, rate=rate) for s, c in sides.items()}
        self.turns(at, place)

    def disks(self, group: cases.Group) -> None:
        """The whole group on each disk that is made, one disk after the other."""
        for kind in cases.DISKS:
            with made([kind], self.args.dir, DISK_MIB) as (places, refused):
                for name, sides in group.items():
                    self.found.missing |= {f"{name} on {kind}/{subject}": refused[kind] for subject in sides if refused}
                for place in places:
                    self.turns(group, place, f" on {kind}")

    def run(self) -> None:
        group = cases.CASES[self.args.group]
        if self.args.only:
            group = {name: group[name] for name in self.args.only.split(",")}
        if self.args.group == "disks":
            self.disks(group)
        elif self.args.group == "at_rate":
            self.at_rate(group, Place(self.args.dir))
        else:
            self.turns(group, Place(self.args.dir))

    def _tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def table(found: Found) -> str:
    """Medians, a row for each case and subject."""
    results = [{"name": f"{case}: {subject}", "dir": "", "runs": runs}
               for case, sides in found.runs.items() for subject, runs in sides.items()]
    lines = figures.table_lines(results)
    lines += [f"missing: {name}: {why}" for name, why in found.missing.items()]
    return "\n".join(lines + [f"FAILED: {name}: {why}" for name, why in found.failed.items()])


@contextmanager
def kept(args: argparse.Namespace, found: Found) -> Iterator[None]:
    """What there is by the end is shown and written, also where the block is interrupted."""
    try:
        yield
    finally:
        print(table(found))
        found.write(args)


def main(argv: list[str] | None = None) -> int:
    p = parser(__doc__, reps=3, only="")
    p.add_argument("--group", choices=list(cases.CASES), help="which cases")
    p.add_argument("--list", action="store_true", help="name the groups, their cases and who runs them")
    args = p.parse_args(argv)
    if args.list:
        for group, several in cases.CASES.items():
            for name, sides in several.items():
                print(f"{group:12}{name:24}{WORKLOADS[next(iter(sides.values())).workload].text}: {', '.join(sides)}")
        return 0
    if args.group is None:
        p.error("--group: expected one of " + ", ".join(cases.CASES))
    if unknown := set(filter(None, args.only.split(","))) - set(cases.CASES[args.group]):
        p.error(f"--only {sorted(unknown)[0]}: expected some of {', '.join(cases.CASES[args.group])}")
    args.reps = 1 if args.quick else args.reps
    args.dir.mkdir(parents=True, exist_ok=True)
    pairs = Pairs(args)
    with interruptible(), kept(args, pairs.found):
        pairs.run()
    return 1 if pairs.found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
