"""`rmqstore tail`: messages of a topic, or of one queue, as they come. Read-only, beside a running writer; blocks nobody."""
import argparse
from typing import Any

from rmq_store.cli.common import (
    COUNT,
    NAME,
    OFFSET,
    QUEUE_ID,
    TEXT,
    body_argument,
    message_fields,
    message_line,
    sql_argument,
    store_arguments,
    waiting_time,
)
from rmq_store.cli.exits import FINE
from rmq_store.cli.follow import follow
from rmq_store.cli.output import Output


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("-t", "--topic", type=NAME, required=True, help="topic to read")
    parser.add_argument("-q", "--queue", type=QUEUE_ID, metavar="ID", help="only this queue (default: all queues, including "
                        "new ones)")
    parser.add_argument("-i", "--offset", type=OFFSET, metavar="N", help="queue offset to begin at (default: the end); -3 "
                        "means three before the end")
    parser.add_argument("-c", "--count", type=COUNT, metavar="N", help="stop after this many messages")
    parser.add_argument("--for", type=waiting_time, metavar="SECONDS", dest="seconds",
                        help="stop after this many seconds (default: Ctrl-C)")
    parser.add_argument("--tags", type=TEXT, help="only messages with one of these tags, for example a||b")
    sql_argument(parser)
    body_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    taken = 0

    def show(message: Any) -> bool:
        nonlocal taken
        taken += 1
        if out.as_json:
            out.record(message_fields(message, args.body))
        else:
            out.line(message_line(message, args.body))
        return args.count is None or taken < args.count

    follow(args, args.offset, args.seconds, show, out.flush)
    return FINE
