"""`rmqstore export`: messages as JSON lines, to standard output or a file that a later call continues. STORE is only read."""
import argparse
import io
import os
import stat
import sys
from typing import Any

from rmq_store.cli.common import PATH, holes_argument, keywords, say_lost, store_arguments
from rmq_store.cli.copying import choice_arguments, say_left
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output, Progress, of_standard_output
from rmq_store.errors import ConfigError
from rmq_store.services.backup.source import Source
from rmq_store.upkeep.moving.lines import LineResult, export_lines


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser, json=False)
    parser.add_argument("file", type=PATH, nargs="?", metavar="FILE", help="file for the lines; an earlier export of this "
                        "store in this file is continued (default: standard output)")
    parser.add_argument("--json", type=PATH, nargs="?", const=True, default=False, metavar="FILE",
                        help="accepted for symmetry, because the output is always JSON lines; FILE may follow it")
    parser.add_argument("--all", action="store_true", dest="whole", help="also export the messages that a copy as new messages "
                        "leaves out")
    choice_arguments(parser)
    holes_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    chosen = {"whole": args.whole, "topics": args.topics, "since": args.since, "until": args.until}
    path = args.json if isinstance(args.json, str) else args.file
    if isinstance(args.json, str) and args.file is not None:
        raise ConfigError(f"{args.file} and {args.json}: name one file")
    with Progress("export", unit="bytes of log", always=args.progress) as progress:
        if path is None:
            result = export_lines(args.store, _Standard(), progress=progress.at, **chosen, **keywords(args))
            return _tell_missing(result, args)
        try:
            result = _to_file(path, args, chosen, progress)
        except OSError as error:
            if error.filename is None and error.errno is not None:      # of a write
                error.filename = path
                if os.path.isfile(path):
                    error.add_note(f"{path} has a part of the messages: the same command continues it; delete it if you do "
                                   "not want it")
            raise
    said = Output(False)        # --json says what the lines are
    said.line(f"wrote {result.messages} messages to {path}")
    say_left(result.left, said)
    return _tell_missing(result, args)


def _to_file(path: str, args: argparse.Namespace, chosen: dict[str, Any], progress: Progress) -> LineResult:
    if Source(args.store, keywords(args)).has(path):
        raise ConfigError(f"{path} is inside the store {args.store}, and an export writes nothing there: give another path")
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        with open(path, "wb") as stream:        # a pipe or a device has no lines to continue behind
            return export_lines(args.store, stream, progress=progress.at, **chosen, **keywords(args))
    with open(path, "r+b", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666)) as file:
        result = export_lines(args.store, file, progress=progress.at, **chosen, **keywords(args))
        file.flush()
        os.fsync(file.fileno())
        return result


def _tell_missing(result: LineResult, args: argparse.Namespace) -> int:
    if result.gone:
        print(f"rmqstore export: {result.gone} bytes of the log of {args.store} were deleted by cleaning before the export "
              "read them: their messages are missing", file=sys.stderr)
    say_lost(result.lost, args, args.store)
    for topic in result.unseen:
        print(f"rmqstore export: topic {topic} has no message to export", file=sys.stderr)
    return FINDINGS if result.gone or result.unseen or result.lost else FINE


class _Standard(io.RawIOBase):
    """Standard output, which is text; so are the lines."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return sys.stdout.write(bytes(data).decode("ascii"))
        except OSError as error:
            raise of_standard_output(error) from None
