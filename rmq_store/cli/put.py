"""`rmqstore put`: lines of standard input or of a file become messages. Durable when the command ends with 0."""
import argparse
import contextlib
import re
import sys
from collections.abc import Collection, Iterator
from typing import IO

from rmq_store.access.writer._put import PutResult
from rmq_store.cli.common import NAME, PATH, QUEUE_ID, TEXT, moment, number, open_store, store_arguments
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output, Progress
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.codec.timer import TIMER_TOPIC
from rmq_store.errors import ConfigError, MessageIllegal
from rmq_store.status import PutStatus

_LEGAL = re.compile(r"[%|A-Za-z0-9_-]+").fullmatch
READ_MAX = 64 << 20          # of a line that may be none: no message by default is a tenth of that


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("file", type=PATH, nargs="?", default="-", metavar="FILE", help="file with one message a line "
                        "(default: standard input)")
    parser.add_argument("-t", "--topic", type=NAME, required=True, help="topic of each message")
    parser.add_argument("-q", "--queue", type=QUEUE_ID, default=0, metavar="ID", help="queue id (default 0)")
    parser.add_argument("--tags", type=TEXT, help="tag of each message")
    parser.add_argument("-k", "--keys", type=TEXT, help="keys of each message, separated by spaces")
    parser.add_argument("-p", "--property", type=TEXT, action="append", default=[], metavar="NAME=VALUE", dest="properties",
                        help="a property of each message; may be repeated")
    parser.add_argument("--delay-level", type=number(0, (1 << 31) - 1), metavar="N", help="deliver each message after the "
                        "delay of level N of delay_levels (1s 5s 10s 30s 1m ...); the process that has the store open at that "
                        "time delivers it")
    parser.add_argument("--deliver-at", type=moment, metavar="TIME", help="deliver each message at this time (ms since "
                        "1970, or ISO), or at once if it is past; as for --delay-level, the process that has the store open "
                        "delivers it")
    parser.add_argument("--delay", type=float, metavar="SECONDS", help="deliver each message so many seconds from now")
    parser.add_argument("--light-queue", type=TEXT, action="append", metavar="NAME", help="a light queue that has each message "
                        "as well, with or without %%LMQ%%; may be repeated; needs enable_lmq and enable_multi_dispatch")
    parser.add_argument("--whole", action="store_true", help="store all of FILE as the body of one message")
    parser.add_argument("--sync", action="store_true", help="wait for the device after each message, not only at the end")


def run(args: argparse.Namespace, out: Output) -> int:
    properties = dict(_pair(text) for text in args.properties) or None
    if not _LEGAL(args.topic):              # before a store is made for it
        raise MessageIllegal(f"topic is {args.topic!r}: only the characters % | A-Z a-z 0-9 _ - can be stored")
    count = late = 0
    first = last = None
    waits: set[bool] = set()
    try:
        with contextlib.ExitStack() as stack:
            source = sys.stdin.buffer if args.file == "-" else stack.enter_context(open(args.file, "rb"))
            store = stack.enter_context(open_store(args, create=True))
            store._add_offered_hooks()
            progress = stack.enter_context(Progress("put", unit="messages"))
            for body in _bodies(source, args.whole, store.options.message_size_max_bytes):
                result = store.put(args.topic, body, queue_id=args.queue, tags=args.tags, keys=args.keys, properties=properties,
                                   delay_level=args.delay_level, deliver_at=args.deliver_at, delay=args.delay,
                                   light_queues=args.light_queue, wait=True if args.sync else None)
                count += 1
                late += result.status != PutStatus.PUT_OK
                last = result
                first = first or result
                if out.as_json:
                    out.record({"status": result.status.name, "offset": result.offset, "queue_offset": result.queue_offset,
                                "size": result.size, "store_timestamp": result.store_timestamp, "msg_id": result.msg_id})
                progress.at(count)
            store.flush()
            if first is not None and last is not None and (args.deliver_at is not None or args.delay is not None):
                waits = {store.message_at(one.offset).topic == TIMER_TOPIC for one in (first, last)}
    except BaseException as error:
        if first is not None and last is not None:
            error.add_note(f"before that: {_stored(args, count, first, last)}")
        raise
    if first is None or last is None:
        out.say("stored no message: the input is empty")
    else:
        out.say(f"{_stored(args, count, first, last, waits)}; all of them are on the device")
    return FINDINGS if late else FINE


def _stored(args: argparse.Namespace, count: int, first: PutResult, last: PutResult,
            waits: Collection[bool] = (True, False)) -> str:
    """waits: of first and last of the messages with a time of delivery, whether they are in the timer's topic."""
    where = f"{args.topic}/{args.queue}"
    if args.delay_level:
        where = f"{SCHEDULE_TOPIC}, where they wait for {where}"
    elif args.deliver_at is not None or args.delay is not None:
        where = (where + ", as their time is past" if set(waits) == {False} else f"{TIMER_TOPIC}, where they wait for {where}"
                 + ("" if set(waits) == {True} else ", or there if their time is past"))
    return (f"stored {count} message{'' if count == 1 else 's'} in {where}: queue offsets {first.queue_offset} to "
            f"{last.queue_offset}, log offsets {first.offset} to {last.offset + last.size}")


def _bodies(source: IO[bytes], whole: bool, limit: int) -> Iterator[bytes]:
    """limit: bytes of the largest body. No more is read at once than tells that there is none: a device has no end."""
    most = max(limit + 2, READ_MAX) + 1
    bodies = iter((source.read(most),)) if whole else iter(lambda: source.readline(most), b"")
    for body in bodies:
        if len(body) == most:
            what = "the input" if whole else "a line"
            raise ConfigError(f"{what} is longer than {most - 1} bytes, the limit of a body is {limit} "
                              "(message_size_max_bytes): split it; for binary data, --whole stores a file as one message")
        yield body if whole else body.rstrip(b"\r\n")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"-p {text}: expected NAME=VALUE")
    return name, value
