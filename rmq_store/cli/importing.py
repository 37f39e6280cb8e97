"""`rmqstore import`: JSON lines become messages, each once, however often the command is broken off and given again."""
import argparse
import contextlib
import sys

from rmq_store.cli.common import PATH, keywords, store_arguments
from rmq_store.cli.copying import progress_argument, say_left
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output, Progress
from rmq_store.upkeep.moving.lines import import_lines


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("file", type=PATH, nargs="?", default="-", metavar="FILE", help="file with lines as `rmqstore export` "
                        "writes them (default: standard input)")
    parser.add_argument("--name", help="name under which STORE records the progress of this import (default: made from the "
                        "first line)")
    progress_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    with contextlib.ExitStack() as stack:
        lines = sys.stdin.buffer if args.file == "-" else stack.enter_context(open(args.file, "rb"))
        progress = stack.enter_context(Progress("import", unit="bytes", always=args.progress))
        result = import_lines(lines, args.store, name=args.name, progress=lambda done, _: progress.at(done), **keywords(args))
    if out.as_json:
        out.record({"kind": "imported", "messages": result.messages, "before": result.before})
    else:
        before = f"; {result.before} messages were stored by earlier runs" if result.before else ""
        out.line(f"stored {result.messages} messages in {args.store}{before}; all of them are on the device")
        say_left(result.left, out)
    return FINE
