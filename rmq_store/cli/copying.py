"""`rmqstore copy`: messages of one store into another, each once, as new messages or as they are. The source is only read."""
import argparse

from rmq_store.cli.common import FINDINGS, FINE, NAME, PATH, keywords, moment, option_arguments
from rmq_store.cli.output import Output, Progress
from rmq_store.upkeep.moving.messages import CopyResult, copy_messages
from rmq_store.upkeep.moving.rules import LEFT


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=PATH, metavar="FROM", help="root directory of the store to read; nothing in it changes")
    parser.add_argument("target", type=PATH, metavar="TO", help="root directory of the store to write; made if it is not there")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--as-new", action="store_true", help="as new messages behind those of TO (this is the default)")
    how.add_argument("--as-is", action="store_true", help="with their queue offsets and store times, transactions, and the "
                     "files under config/, into a new store")
    choice_arguments(parser)
    parser.add_argument("--from-option", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of FROM; -o is of TO")
    option_arguments(parser)


def choice_arguments(parser: argparse.ArgumentParser) -> None:
    """Which messages, and --progress."""
    parser.add_argument("-t", "--topic", type=NAME, action="append", dest="topics", metavar="TOPIC",
                        help="only this topic; may be repeated")
    parser.add_argument("--since", type=moment, metavar="TIME", help="only what was stored then or later (ms, or ISO)")
    parser.add_argument("--until", type=moment, metavar="TIME", help="only what was stored until then")
    progress_argument(parser)


def progress_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--progress", action="store_true", help="say how far it is, also where standard error is no terminal")


def run(args: argparse.Namespace, out: Output) -> int:
    with Progress("copy", unit="bytes of log", always=args.progress) as progress:
        result = copy_messages(args.source, args.target, as_is=args.as_is, topics=args.topics, since=args.since,
                               until=args.until, source_options=_of_source(args), progress=progress.at, **keywords(args))
    if out.as_json:
        out.record({"kind": "copied", **result.as_dict()})
    else:
        _say(result, args, out)
    return FINDINGS if result.unseen or result.gone else FINE


def _of_source(args: argparse.Namespace) -> dict[str, object]:
    return keywords(argparse.Namespace(options=args.from_option, profile=None, config=None))


def _say(result: CopyResult, args: argparse.Namespace, out: Output) -> None:
    out.say(f"copied {result.copied} messages into {args.target} ({result.total} with earlier calls); "
            "all of them are on the device")
    say_left(result.left, out)
    if result.gone:
        out.say(f"{result.gone} bytes of the log of {args.source} were cleaned before they were copied: what was "
                "in them is not here")
    for topic in result.unseen:
        out.say(f"no message of topic {topic} was met")
    for name in result.settings:
        out.say(f"copied config/{name}")
    for name in result.kept:
        out.say(f"left config/{name} as it is: it was changed in {args.target}")


def say_left(left: dict[str, int], out: Output) -> None:
    for why, count in sorted(left.items()):
        out.say(f"left out {count}: {LEFT[why]}")
