"""`rmqstore bench`: named workloads on the disks of the directories given, every setting crossed with every other.

The main thread only. Each run is a process of its own in a new directory that is removed again, Ctrl-C included.
"""
import argparse
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmq_store.bench import figures, report
from rmq_store.bench.case import FILE_STATES, WORKLOADS, Case, product
from rmq_store.bench.disks import DISKS, Place, made
from rmq_store.bench.machine import describe
from rmq_store.bench.peers import PEERS, module_of
from rmq_store.bench.runner import check_directories, free_mib, interruptible, needed_mib, run_all
from rmq_store.cli.common import PATH, number
from rmq_store.cli.exits import CANNOT_OPEN, FINDINGS, FINE
from rmq_store.cli.output import Output, Progress
from rmq_store.errors import ConfigError

USUAL = "put_sustained,put_sync,get"     # what a directory alone is measured with

# flag -> (field of Case, type, meaning); each takes a list with commas and is crossed with the others
SETTINGS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "--write-path": ("write_path", str, "mmap, pool"),
    "--flush-backend": ("flush_backend", str, "auto, msync, fdatasync, io_uring"),
    "--flush-mode": ("flush_mode", str, "async, sync (default: as the workload says)"),
    "--file-state": ("file_state", str, f"state of commit-log files: {', '.join(FILE_STATES)}"),
    "--body": ("body", int, "size of a body in bytes"),
    "--props": ("props", str, "properties: lean (none), tagged (tag and key), full (as a client sends)"),
    "--producers": ("producers", int, "number of threads that put"),
    "--window": ("window", int, "number of puts in flight at once"),
    "--batch": ("batch", int, "number of messages in one call"),
    "--rate": ("rate", int, "puts per second of all producers together, as an open loop: each put has a due time (0: no "
               "limit)"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="+", type=PATH, metavar="WORKLOAD | DIR", help="workloads, separated by commas "
                        f"(default {USUAL}; `list` lists all), and directories on the disks to compare (default /var/tmp)")
    parser.add_argument("--dir", dest="dirs", nargs="+", type=_directory, default=[], metavar="DIR", help="additional "
                        "directories")
    parser.add_argument("--disk", default="", metavar="NAMES", help="measure on disks that the command makes, as root, with "
                        f"their images in the first DIR: {', '.join(DISKS)}")
    parser.add_argument("--both", action="store_true", help="with --disk: also measure in the directories of --dir")
    parser.add_argument("--peer", default="", metavar="NAMES", help=f"also measure these peers: {', '.join(PEERS)}")
    for flag, (field, _, text) in SETTINGS.items():
        parser.add_argument(flag, dest=field, metavar="A,B", help=text)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measured stretch (default 2)")
    parser.add_argument("--mib", type=number(1, 1 << 50), help="maximum size of the log in MiB (default 1400, less on a small "
                        "disk)")
    parser.add_argument("--segment-mib", type=number(1, 2047), help="size of a commit-log file in MiB (default 1024, 64 on a "
                        "small disk)")
    parser.add_argument("--pretouch-mib", type=number(0, 1 << 20), default=0, help="write and delete this many MiB before each "
                        "stretch, so that the host backs the memory of a virtual machine (default 0)")
    parser.add_argument("--reps", type=int, default=1, help="number of repetitions, in turns; the report shows medians "
                        "(default 1)")
    parser.add_argument("--out", type=_directory, metavar="DIR", help="also write results.json, report.html and *.hgrm files "
                        "to this directory")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE", dest="options",
                        help="an option of the store (docs/options.md), or of a peer, for example fio.direct=1; may be "
                        "repeated")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace, out: Output) -> int:
    if args.what == ["list"]:
        return _list(out)
    if args.reps < 1:
        raise ConfigError(f"--reps {args.reps}: expected at least 1")
    cases, directories = list(_cases(args)), _directories(args)
    check_directories(directories)
    kinds = [k for k in args.disk.split(",") if k]
    if unknown := [k for k in kinds if k not in DISKS]:
        raise ConfigError(f"--disk {unknown[0]}: expected some of {', '.join(DISKS)}")
    with interruptible(), made(kinds, directories[0]) as (own, refused):
        places = [*([] if kinds and not args.both else map(Place, directories)), *own]
        jobs = [(_fitted(case, place.path, args), place) for place in places for case in cases]
        with Progress("bench", len(jobs) * args.reps, "runs") as progress:
            results = run_all(jobs, args.reps, _teller(progress))
        head = {place.shown(): describe(place.path) for place in places}
    for kind, why in refused.items():
        results += [{"case": c.to_dict(), "name": c.shown(), "dir": kind, "runs": [], "skipped": why} for c in cases[:1]]
    if out.as_json:
        for result in results:
            out.record({"kind": "bench", **_plain(result)})
    else:
        for line in figures.table_lines(results):
            out.line(line)
    if args.out is not None:
        _write(args.out, head, results, out)
    if any("error" in r for r in results):
        return FINDINGS
    return FINE if any(r["runs"] for r in results) else CANNOT_OPEN


def _directory(text: str) -> Path:
    return Path(PATH(text))


def _workloads(args: argparse.Namespace) -> str:
    """What stands first, or the usual ones where only directories are named."""
    first = args.what[0]
    if all(name in WORKLOADS for name in first.split(",")):
        return str(first)
    if "/" in first or Path(first).is_dir():
        return USUAL
    raise ConfigError(f"{first!r} is neither a directory nor a workload: expected one of {', '.join(WORKLOADS)}, or a "
                      "path")


def _directories(args: argparse.Namespace) -> list[Path]:
    named = [Path(text) for text in args.what[0 if _workloads(args) != args.what[0] else 1:]]
    return [*named, *args.dirs] or [Path("/var/tmp")]


def _teller(progress: Progress) -> Callable[[str], None]:
    done = itertools.count()

    def told(text: str) -> None:
        if not text.startswith(" "):
            progress.at(next(done))

    return told


def _list(out: Output) -> int:
    for kind, named in (("workload", {k: w.text for k, w in WORKLOADS.items()}), ("peer", PEERS), ("disk", DISKS)):
        for name, text in named.items():
            if out.as_json:
                out.record({"kind": kind, "name": name, "text": text})
            else:
                out.line(f"{kind:<9}{name:<18}{text}")
    return FINE


def _cases(args: argparse.Namespace) -> list[Case]:
    settings = {}
    for flag, (field, kind, _) in SETTINGS.items():
        text = getattr(args, field)
        if text is not None:
            try:
                settings[field] = [kind(part) for part in text.split(",")]
            except ValueError:
                raise ConfigError(f"{flag} {text}: expected numbers with commas") from None
    options = {}
    for text in args.options:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"-o {text}: expected NAME=VALUE")
        options[name.strip()] = value
    common = {"seconds": args.seconds, "pretouch_mib": args.pretouch_mib}
    found: list[Case] = []
    for workload in _workloads(args).split(","):
        ours = {k: v for k, v in options.items() if k.partition(".")[0] not in PEERS}
        found += product(workload, settings, options=ours, **common)
        for peer in filter(None, args.peer.split(",")):
            module_of(peer)
            own = {k: v for k, v in settings.items() if k not in ("write_path", "flush_backend", "props")}
            theirs = {k.removeprefix(f"{peer}."): v for k, v in options.items() if k.startswith(f"{peer}.")}
            found += product(workload, own, subject=peer, options=theirs, **common)
    return found


def _fitted(case: Case, path: Path, args: argparse.Namespace) -> Case:
    """Sizes that fit the disk, where none were given."""
    small = needed_mib(case) > free_mib(path) * 0.8
    segment = args.segment_mib or (64 if small else case.segment_mib)
    mib = args.mib or case.cap_mib
    if args.mib is None and small:
        mib = max(16, min(mib, int(free_mib(path) * 0.8 - 2 * segment - 64) // 2))
    options = dict(case.options)
    if small and case.subject == "rmq_store":
        options = {"index_slots": 100_000, "index_entries_max": 400_000} | options
    return replace(case, segment_mib=segment, cap_mib=mib, options=options, label=case.shown())


def _plain(result: dict[str, Any]) -> dict[str, Any]:
    """A result without its histograms."""
    runs = [{k: v for k, v in run.items() if k != "histograms"} for run in result["runs"]]
    return {**result, "runs": runs, "medians": figures.medians(runs)}


def _write(place: Path, head: dict[str, Any], results: list[dict[str, Any]], out: Output) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "results.json").write_text(json.dumps({"machines": head, "results": results}, indent=1) + "\n")
    (place / "report.html").write_text(report.html("rmq_store benchmarks", head, results), encoding="utf-8")
    written = figures.write_hgrm(results, place)
    out.say(f"wrote report.html, results.json and {len(written)} histograms to {place}")
