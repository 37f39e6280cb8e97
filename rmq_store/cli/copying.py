"""`rmqstore copy`: messages of one store into another, each once, as new messages or as they are. The source is only read."""
import argparse

from rmq_store.cli.common import NAME, PATH, holes_argument, keywords, moment, option_arguments, say_lost
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output, Progress
from rmq_store.upkeep.moving.messages import CopyResult, copy_messages
from rmq_store.upkeep.moving.rules import LEFT


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=PATH, metavar="FROM", help="root directory of the store to read; the command does not "
                        "change it")
    parser.add_argument("target", type=PATH, metavar="TO", help="root directory of the store to write; the command makes it if "
                        "it does not exist")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--as-new", action="store_true", help="copy as new messages, after the messages of TO (the default)")
    how.add_argument("--as-is", action="store_true", help="copy unchanged into a new store: with queue offsets, store times, "
                     "transactions and the files under config/")
    choice_arguments(parser)
    holes_argument(parser)
    parser.add_argument("--from-option", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of FROM; -o gives an option of TO")
    option_arguments(parser)


def choice_arguments(parser: argparse.ArgumentParser) -> None:
    """Which messages, and --progress."""
    parser.add_argument("-t", "--topic", type=NAME, action="append", dest="topics", metavar="TOPIC",
                        help="only this topic; may be repeated")
    parser.add_argument("--since", type=moment, metavar="TIME", help="only messages that were stored at this time or later (ms "
                        "since 1970, or ISO)")
    parser.add_argument("--until", type=moment, metavar="TIME", help="only messages that were stored until this time")
    progress_argument(parser)


def progress_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--progress", action="store_true", help="show the progress, even if standard error is not a terminal")


def run(args: argparse.Namespace, out: Output) -> int:
    with Progress("copy", unit="bytes of log", always=args.progress) as progress:
        result = copy_messages(args.source, args.target, as_is=args.as_is, topics=args.topics, since=args.since,
                               until=args.until, source_options=_of_source(args), progress=progress.at,
                               **{k: v for k, v in keywords(args).items() if k != "skip_holes"})
    if out.as_json:
        out.record({"kind": "copied", **result.as_dict()})
    else:
        _say(result, args, out)
    say_lost(result.lost, args, args.source)
    return FINDINGS if result.unseen or result.gone or result.lost else FINE


def _of_source(args: argparse.Namespace) -> dict[str, object]:
    return keywords(argparse.Namespace(options=args.from_option, profile=None, config=None, skip_holes=args.skip_holes))


def _say(result: CopyResult, args: argparse.Namespace, out: Output) -> None:
    earlier = f" ({result.total} with earlier runs)" if result.total != result.copied else ""
    out.say(f"copied {result.copied} messages into {args.target}{earlier}; "
            "all of them are on the device")
    say_left(result.left, out)
    if result.gone:
        out.say(f"{result.gone} bytes of the log of {args.source} were deleted by cleaning before they were copied: "
                "their messages are missing")
    for topic in result.unseen:
        out.say(f"topic {topic} has no message to copy")
    for name in result.settings:
        out.say(f"copied config/{name}")
    for name in result.kept:
        out.say(f"did not copy config/{name}: it was changed in {args.target}")


def say_left(left: dict[str, int], out: Output) -> None:
    for why, count in sorted(left.items()):
        out.say(f"left out {count}: {LEFT[why]}")
