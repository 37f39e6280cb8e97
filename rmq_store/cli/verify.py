"""`rmqstore verify`: a store held against itself. Reads only, any RocketMQ directory, also one that does not load.

One line a finding, as JSON with --json, and a summary. The worst finding decides the exit code (exits.py).
"""
import argparse
import os
from collections import Counter

from rmq_store.cli.common import keywords, store_arguments
from rmq_store.cli.exits import CORRUPT, FINDINGS, FINE
from rmq_store.cli.output import Output, Progress
from rmq_store.errors import ConfigError
from rmq_store.log.recovery.places import Places
from rmq_store.services.integrity.choosing import chosen_options
from rmq_store.services.integrity.findings import Finding
from rmq_store.services.integrity.verification import verify

RATE_MAX_MIB = 1 << 20


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("--files", action="store_true",
                        help="check only that the files of the log and the queues exist, without a gap and with the right size")
    parser.add_argument("--no-manifests", action="store_true", help="do not read the log a second time to check the manifests")
    parser.add_argument("--rate", type=float, metavar="MIB", help="read at most this many MiB per second, 0 means no limit "
                        "(the default)")


def run(args: argparse.Namespace, out: Output) -> int:
    seen: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    with Bar() as bar:
        for finding in verify(args.store, manifests=not args.no_manifests, files_only=args.files,
                              bytes_per_s=rate(args.rate), progress=bar.at, **keywords(args)):
            seen[finding.severity] += 1
            kinds[finding.kind] += finding.count
            show(finding, out)
    root, options = chosen_options(args.store, keywords(args))
    begin = min((int(os.path.basename(file)) for file, _ in Places(root, options).log_files()), default=0)
    return summary(args.store, seen, kinds, out, begin)


def show(finding: Finding, out: Output) -> None:
    """One finding, for people or for programs."""
    if out.as_json:
        out.record(finding.as_dict())
    else:
        out.line(str(finding))


def summary(path: str, seen: Counter[str], kinds: Counter[str], out: Output, begin: int = 0) -> int:
    """The last line, and the exit code. begin: log offset at which the log's first file begins."""
    code = CORRUPT if seen["corrupt"] else FINDINGS if seen["finding"] else FINE
    if out.as_json:
        out.record({"kind": "summary", "path": path, "corrupt": seen["corrupt"], "finding": seen["finding"],
                    "note": seen["note"], "kinds": dict(sorted(kinds.items())),
                    **({"log_begin": begin} if begin else {})})
    elif code == FINE:
        out.line(f"{path}: nothing wrong" + (f", {seen['note']} notes" if seen["note"] else ""))
    else:
        out.line(f"{path}: {seen['corrupt']} corrupt, {seen['finding']} findings, {seen['note']} notes")
    if begin and not out.as_json and not kinds["log_oldest"]:
        out.line(f"{path}: the log begins at {begin}: nothing in the store tells whether cleaning deleted the files before, or "
                 "they are lost")
    return code


def rate(mib: float | None) -> int | None:
    """Bytes a second out of MiB; None: as fast as it goes. Raises ConfigError."""
    if mib is not None and not 0 <= mib <= RATE_MAX_MIB:
        raise ConfigError(f"--rate {mib}: give MiB per second, 0 for no limit, at most {RATE_MAX_MIB}")
    return max(int(mib * (1 << 20)), 1) if mib else None


class Bar:
    """Progress of a walk in several parts, on a terminal."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._what = ""

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.__exit__()

    def at(self, what: str, done: int, total: int) -> None:
        if what != self._what:
            self.__exit__()
            self._what, self._bar = what, Progress(what, total, "B" if what == "log" else what)
        if self._bar is not None:
            self._bar.at(done)
