"""`rmqstore doctor`: facts about a directory and this process, what follows for a store there, what helps. Main thread only."""
import argparse

from rmq_store.cli.common import PATH, keywords, option_arguments
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.upkeep.doctor.diagnosis import doctor

_MARKS = {"ok": "ok  ", "note": "note", "finding": "!!  "}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=PATH, metavar="DIR", help="directory of a store, or of a store to be made")
    parser.add_argument("--no-measure", action="store_true", help="do not measure syncs")
    option_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    found = doctor(args.directory, measure=not args.no_measure, **keywords(args))
    if out.as_json:
        out.record(found.as_dict())
    else:
        for item in found.items:
            out.line(f"{_MARKS[item.level]}  {item.subject}: {item.fact}")
            out.line(f"        so: {item.consequence}")
            if item.cure:
                out.line(f"        do: {item.cure}")
        count = len(found.findings)
        out.line()
        rest = "; the notes say what could be better" if any(item.cure for item in found.items if item.level == "note") else ""
        out.line(f"nothing to do{rest}" if found.healthy else f"{count} finding{'s' if count > 1 else ''} with something to do")
    return FINE if found.healthy else FINDINGS
