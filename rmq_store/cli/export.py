"""`rmqstore export`: messages as JSON lines, to standard output or into a file, which is gone on with. STORE is only read."""
import argparse
import os
import sys

from rmq_store.cli.common import FINE, keywords, store_arguments
from rmq_store.cli.copying import choice_arguments, say_left
from rmq_store.cli.output import Output, Progress
from rmq_store.moving.lines import export_lines


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("file", nargs="?", metavar="FILE", help="where the lines go; what an export of this store has written "
                        "there is gone on with. Standard output where left out")
    parser.add_argument("--all", action="store_true", dest="whole", help="also what a copy as new messages leaves out")
    choice_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    chosen = {"whole": args.whole, "topics": args.topics, "since": args.since, "until": args.until}
    with Progress("export", unit="bytes of log", always=args.progress) as progress:
        if args.file is None:
            out.flush()
            export_lines(args.store, sys.stdout.buffer, progress=progress.at, **chosen, **keywords(args))
            sys.stdout.buffer.flush()
            return FINE
        with os.fdopen(os.open(args.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b") as file:
            result = export_lines(args.store, file, progress=progress.at, **chosen, **keywords(args))
            file.flush()
            os.fsync(file.fileno())
    out.say(f"wrote {result.messages} messages to {args.file}")
    say_left(result.left, out)
    return FINE
