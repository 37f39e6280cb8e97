"""`rmqstore get`: messages of one queue in order, read-only, beside a running writer if there is one."""
import argparse
from typing import Any

from rmq_store.cli.common import FINDINGS, FINE, body_argument, message_fields, message_line, open_store, store_arguments
from rmq_store.cli.output import Output
from rmq_store.status import GetStatus

_GO_ON = (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL)


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("-t", "--topic", required=True)
    parser.add_argument("-q", "--queue", type=int, default=0, metavar="ID", help="queue id (0)")
    parser.add_argument("-i", "--offset", type=int, metavar="N", help="queue offset to begin at (the oldest); -3: three from "
                        "the end")
    parser.add_argument("-c", "--count", type=_count, default=32, metavar="N", help="messages at most (32)")
    parser.add_argument("--tags", help="only messages with one of these tags, a||b")
    body_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=True) as store:
        return _show(store, args, out)


def _show(store: Any, args: argparse.Namespace, out: Output) -> int:
    # A function of its own: its views are gone when the store closes.
    end = store.max_offset(args.topic, args.queue)
    offset = store.min_offset(args.topic, args.queue) if args.offset is None else args.offset
    if offset < 0:
        offset = max(0, end + offset)
    taken = 0
    while taken < args.count:
        result = store.get(args.topic, args.queue, offset, max_count=args.count - taken, tags=args.tags)
        for message in result:
            if out.as_json:
                out.record(message_fields(message, args.body))
            else:
                out.line(message_line(message, args.body))
            taken += 1
        if result.status not in _GO_ON or result.next_offset <= offset:
            break
        offset = result.next_offset
    if taken == 0:
        out.say(f"{result.status.name}: the queue {args.topic}/{args.queue} has offsets {result.min_offset} to "
                f"{result.max_offset}")
    return FINE if taken else FINDINGS


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value
