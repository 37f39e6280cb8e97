"""Measures every figure that the pages state, in one run of one commit, and writes the pages from it.

    tools/figures --dir DIR             # an idle machine, a clean tree; Ctrl-C stops it, the same command continues
    tools/figures --dir DIR --only beside,at_rate --again
    tools/figures --quick               # seconds for each step: shows that it runs; the figures mean nothing
    tools/figures --write               # pages and report again, from bench/results/figures.json
    tools/figures --check               # do the pages say what bench/results/figures.json says?

Writes bench/results/figures.json and .html and the marked places of the pages; --quick writes the first two to
build/figures/quick.
Exit code 1 if a step, a case or a check fails, 2 if the run is refused.
"""
import argparse
import signal
import sys
from pathlib import Path

from bench.figures import check, document, show
from bench.figures.pages import pages, written
from bench.figures.places import PLACES
from bench.figures.run import ROOT, Conditions, Keeper, Refused, run_all
from bench.figures.steps import FULL, STEPS, Step
from rmq_store.bench.runner import interruptible


def _tell(text: str) -> None:
    print(text, flush=True)


def chosen(only: str, full: bool) -> list[Step]:
    """The steps to run. Raises Refused for a name that is none."""
    steps = [*STEPS, *(FULL if full else ())]
    names = [name for name in only.split(",") if name]
    known = {step.name: step for step in (*STEPS, *FULL)}
    if unknown := [name for name in names if name not in known]:
        raise Refused(f"--only {unknown[0]}: expected some of {', '.join(known)}")
    return [known[name] for name in names] or steps


def write_pages(found: document.Document) -> None:
    """The marked places of all pages, from a document."""
    figures = document.Figures(found)
    for path in pages(ROOT):
        text = path.read_text()
        if (made := written(text, PLACES, figures)) != text:
            path.write_text(made)
            _tell(f"{path.relative_to(ROOT)} written")


def measure(args: argparse.Namespace) -> int:
    """Runs the steps, and writes what there is then."""
    args.dir.mkdir(parents=True, exist_ok=True)
    steps = chosen(args.only, args.full)
    keeper = Keeper(ROOT, Conditions.now(ROOT, args.dir, args.quick))
    signal.signal(signal.SIGINT, signal.default_int_handler)    # also where a shell that runs us in the background ignores it
    with interruptible():
        failed = run_all(steps, keeper, args.dir, args.again, _tell)
    told = steps if args.quick else [*STEPS, *(s for s in FULL if s in steps or keeper.read(s.name) is not None)]
    found = document.assembled(told, keeper, args.dir, failed)
    not_run = [step.name for step in told if step.name not in found["steps"] and step.name not in failed]
    results = keeper.place if args.quick or not_run else document.RESULTS
    document.write(found, results / "figures.json")
    (results / "figures.html").write_text(show.html(found), encoding="utf-8")
    _tell(f"written: {results.relative_to(ROOT)}/figures.json and .html")
    if args.quick:
        _tell("a quick run: it shows that everything runs; the figures mean nothing")
    elif not_run:
        _tell(f"pages stay as they are until these steps have run, too: {', '.join(not_run)}")
    else:
        write_pages(found)
    if failed:
        _tell(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="tools/figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, help="on the disk to be measured, not tmpfs; 14 GiB free (--quick: /var/tmp)")
    p.add_argument("--only", default="", help="steps, with commas: " + ", ".join(s.name for s in (*STEPS, *FULL)))
    p.add_argument("--again", action="store_true", help="measure again what is kept of this commit")
    p.add_argument("--full", action="store_true", help="also the steps that take hours")
    p.add_argument("--quick", action="store_true", help="everything small, also in a dirty tree; changes no page")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="measure nothing; write pages and report from figures.json")
    what.add_argument("--check", action="store_true", help="measure and write nothing; compare")
    args = p.parse_args(argv)
    try:
        if args.check:
            return check.main(ROOT)
        if args.write:
            if (found := document.read(document.RESULTS / "figures.json")) is None:
                raise Refused("there is no bench/results/figures.json: run tools/figures --dir DIR")
            (document.RESULTS / "figures.html").write_text(show.html(found), encoding="utf-8")
            write_pages(found)
            return 0
        if args.dir is None:
            if not args.quick:
                p.error("--dir: give a directory on the disk to be measured")
            args.dir = Path("/var/tmp")
        return measure(args)
    except (Refused, ValueError) as why:
        print(f"tools/figures: {why}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tools/figures: interrupted; the same command continues", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
