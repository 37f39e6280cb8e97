"""`rmqstore table`: a topic as a table: the newest message of each key, read-only, beside a running writer."""
import argparse
import itertools
from typing import Any

from rmq_store.cli.common import (
    COUNT,
    NAME,
    TEXT,
    body_argument,
    message_fields,
    message_line,
    open_store,
    say_unknown,
    store_arguments,
)
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.events import printable
from rmq_store.services.compaction.table import KEYS_MAX


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("topic", type=NAME, metavar="TOPIC", help="topic to read, of either cleanup policy")
    parser.add_argument("-k", "--key", type=TEXT, action="append", default=[], help="only this key, which is all of KEYS; may "
                        "be repeated")
    parser.add_argument("-c", "--count", type=COUNT, metavar="N", help="maximum number of keys (default: all)")
    parser.add_argument("--keys-max", type=COUNT, default=KEYS_MAX, metavar="N", help="refuse a topic with more keys than "
                        f"this, which take about 150 bytes of memory each (default {KEYS_MAX})")
    body_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=True) as store:
        shown = _show(store, args, out)
        if not shown:
            args.queue = None
            say_unknown(store, args)
    return FINE if shown else FINDINGS


def _show(store: Any, args: argparse.Namespace, out: Output) -> int:
    # A function of its own: its views are gone when the store closes.
    table = store.table(args.topic, keys_max=args.keys_max)
    shown = 0
    for key in itertools.islice(args.key or sorted(table), args.count):
        message = table.get(key)
        if message is None:
            if args.key:
                out.say(f"no message of {printable(args.topic)} has the key {printable(key)}, or the newest one deletes it")
            continue
        shown += 1
        if out.as_json:
            out.record({"key": key, **message_fields(message, args.body)})
        else:
            out.line(f"{printable(key)}  {message_line(message, args.body)}")
    if not shown and not args.key:
        out.say(f"no key of {printable(args.topic)} has a value")
    return shown
