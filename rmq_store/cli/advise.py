"""`rmqstore advise`: measures a directory's device with every back end, proposes a profile and says why. Main thread only."""
import argparse

from rmq_store.cli.common import PATH
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.config import toml
from rmq_store.upkeep.doctor.advice import advise, destination


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=PATH, metavar="DIR", help="directory of a store, or of a store to be made")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="N", help="how long to measure, approximately (default "
                        "10)")
    parser.add_argument("--write", type=PATH, metavar="FILE", help="write the profile to this file, or under this NAME to your "
                        "own profiles")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help="also log what the stores do, to standard error")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.write:
        destination(args.write)     # refused now rather than after the measuring
    found = advise(args.directory, seconds=args.seconds, progress=lambda what: None if args.json else _say(out, what))
    written = found.write(args.write) if args.write else None
    if out.as_json:
        out.record({**found.as_dict(), "written": written})
        return FINE
    out.line()
    for reason in found.reasons:
        out.line(f"- {reason}")
    out.line()
    out.line(f"Proposed options, based on profile {found.profile}:")
    for line in toml.lines(found.options):
        out.line(f"    {line}")
    out.line()
    if written:
        name = args.write if "/" not in args.write and not args.write.endswith(".toml") else written
        out.line(f"wrote the profile to {written}: use it with profile={name!r} or --profile {name}")
    else:
        out.line("--write NAME saves the profile in your own profiles, --write FILE saves it in a file")
    return FINE


def _say(out: Output, what: str) -> None:
    out.say(f"measuring {what} ...")
    out.flush()
