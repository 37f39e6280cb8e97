"""`rmqstore export`: messages as JSON lines, to standard output or into a file, which is gone on with. STORE is only read."""
import argparse
import io
import os
import sys
from typing import Any

from rmq_store.cli.common import FINDINGS, FINE, PATH, keywords, store_arguments
from rmq_store.cli.copying import choice_arguments, say_left
from rmq_store.cli.output import Output, Progress
from rmq_store.errors import ConfigError
from rmq_store.moving.lines import LineResult, export_lines


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser, json=False)
    parser.add_argument("file", type=PATH, nargs="?", metavar="FILE", help="where the lines go; what an export of "
                        "this store has written there is gone on with. Standard output where left out")
    parser.add_argument("--json", nargs="?", const=True, default=False, metavar="FILE",
                        help="what is written, always; a FILE may stand behind it")
    parser.add_argument("--all", action="store_true", dest="whole", help="also what a copy as new messages leaves out")
    choice_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    chosen = {"whole": args.whole, "topics": args.topics, "since": args.since, "until": args.until}
    path = args.json if isinstance(args.json, str) else args.file
    if isinstance(args.json, str) and args.file is not None:
        raise ConfigError(f"{args.file} and {args.json}: name one file")
    with Progress("export", unit="bytes of log", always=args.progress) as progress:
        if path is None:
            result = export_lines(args.store, _Standard(), progress=progress.at, **chosen, **keywords(args))
            return _told_gone(result, args)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b") as file:
            result = export_lines(args.store, file, progress=progress.at, **chosen, **keywords(args))
            file.flush()
            os.fsync(file.fileno())
    out.say(f"wrote {result.messages} messages to {path}")
    say_left(result.left, out)
    return _told_gone(result, args)


def _told_gone(result: LineResult, args: argparse.Namespace) -> int:
    if result.gone:
        print(f"rmqstore export: {result.gone} bytes of the log of {args.store} were cleaned before they were written: what "
              "was in them is missing", file=sys.stderr)
    return FINDINGS if result.gone else FINE


class _Standard(io.RawIOBase):
    """Standard output, which is text; so are the lines."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return sys.stdout.write(bytes(data).decode("ascii"))
