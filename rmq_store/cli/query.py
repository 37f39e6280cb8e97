"""`rmqstore query`: messages by key, unique key, message id, log offset or time, read-only."""
import argparse
import shlex
import sys
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
    moment,
    open_store,
    queues_of,
    say_unknown,
    store_arguments,
)
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.errors import ConfigError

TOPICS_ASKED = 1000             # by a hint
FAR = 4_000_000_000_000         # the year 2096: later than any message


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    what = parser.add_argument_group("search for (one of)").add_mutually_exclusive_group(required=True)
    what.add_argument("-k", "--key", type=TEXT, help="a key of KEYS, or a unique key (UNIQ_KEY); needs --topic")
    what.add_argument("-i", "--id", dest="msg_id", help="an offset message id, 32 or 56 hex digits")
    what.add_argument("--offset", type=OFFSET, metavar="N", help="a log offset")
    what.add_argument("--time", type=moment, metavar="WHEN", help="the message of a queue at a time, or next to it; needs "
                      "--topic")
    parser.add_argument("-t", "--topic", type=NAME, help="topic to search in")
    parser.add_argument("-q", "--queue", type=QUEUE_ID, metavar="ID", help="queue id for --time (default: all queues of the "
                        "topic)")
    parser.add_argument("-b", "--begin", type=moment, default=0, metavar="WHEN", help="with --key: only messages stored at "
                        "this time or later")
    parser.add_argument("-e", "--end", type=moment, default=FAR, metavar="WHEN", help="with --key: only messages stored at "
                        "this time or earlier")
    parser.add_argument("-m", "--max", type=COUNT, default=32, metavar="N", help="with --key: maximum number of messages "
                        "(default 32)")
    body_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    if args.topic is None and (args.key is not None or args.time is not None):
        raise ConfigError("--key and --time need --topic")
    with open_store(args, readonly=True) as store:
        return _show(store, args, out)


def _show(store: Any, args: argparse.Namespace, out: Output) -> int:
    # A function of its own: its views are gone when the store closes.
    found = _find(store, args)
    for message in found:
        if out.as_json:
            out.record(message_fields(message, args.body))
        else:
            out.line(message_line(message, args.body))
    if not found:
        out.say("nothing found")
        if args.topic is not None:
            say_unknown(store, args)
        elif args.msg_id is not None:
            _say_where(store, args)
    return FINE if found else FINDINGS


def _find(store: Any, args: argparse.Namespace) -> list[Any]:
    if args.key is not None:
        return list(store.query_key(args.topic, args.key, max_count=args.max, begin_time=args.begin, end_time=args.end))
    if args.time is not None:
        return [message for queue in queues_of(store, args.topic, args.queue) for message in store.get(
            args.topic, queue, store.offset_by_time(args.topic, queue, args.time), max_count=1)]
    try:
        one = store.message_by_id(args.msg_id) if args.msg_id is not None else store.message_at(args.offset)
    except ValueError as error:
        if _carriers(store, args.msg_id):
            return []
        raise ConfigError(f"{error}; an id that a client made is a unique key: search for it with -t TOPIC -k") from None
    return [] if one is None else [one]


def _carriers(store: Any, key: str) -> list[str]:
    """The topics, of the first TOPICS_ASKED, with a message that has this unique key."""
    return [topic for topic in store.topics()[:TOPICS_ASKED] if store.message_by_unique_key(topic, key) is not None]


def _say_where(store: Any, args: argparse.Namespace) -> None:
    """An id that leads nowhere may be the one that a client made, which is a key."""
    topics = _carriers(store, args.msg_id)
    if topics:
        print(f"rmqstore query: {args.msg_id} is the unique key of a message, not its offset message id: run rmqstore query "
              f"{shlex.quote(args.store)} -t {shlex.quote(topics[0])} -k {args.msg_id}", file=sys.stderr)
    else:
        print(f"rmqstore query: {args.msg_id} is the place and the host of a message, and this store has no such message; "
              "an id that a client made is a unique key: search for it with -t TOPIC -k", file=sys.stderr)
