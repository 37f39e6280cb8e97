"""`rmqstore get`: messages of a topic, or of one queue, in the order of the log; read-only, beside a running writer."""
import argparse
import heapq
import itertools
from collections.abc import Iterator
from typing import Any

from rmq_store.cli.common import (
    COUNT,
    NAME,
    NAMES_SHOWN,
    OFFSET,
    QUEUE_ID,
    TEXT,
    body_argument,
    holes_argument,
    message_fields,
    message_line,
    open_store,
    queues_of,
    say_lost,
    say_unknown,
    sql_argument,
    store_arguments,
    waiting_time,
)
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.follow import follow
from rmq_store.cli.output import Output
from rmq_store.events import printable
from rmq_store.log.recovery.holes import LostRow, lost_rows, lost_stretches
from rmq_store.log.recovery.places import Places
from rmq_store.status import GetStatus

_GO_ON = (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL)


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("-t", "--topic", type=NAME, required=True, help="topic to read")
    parser.add_argument("-q", "--queue", type=QUEUE_ID, metavar="ID", help="only this queue (default: all queues of the topic)")
    parser.add_argument("-i", "--offset", type=OFFSET, metavar="N", help="queue offset to begin at (default: the oldest); -3 "
                        "means three before the end")
    parser.add_argument("-c", "--count", type=COUNT, default=32, metavar="N", help="maximum number of messages (default 32)")
    parser.add_argument("--tags", type=TEXT, help="only messages with one of these tags, for example a||b")
    sql_argument(parser)
    parser.add_argument("-w", "--wait", type=waiting_time, metavar="SECONDS", help="if there is no message, wait this long for "
                        "a running writer to store one")
    body_argument(parser)
    holes_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=True) as store:
        found = _show(store, args, out)
        if args.skip_holes:
            say_lost(_lost(store, args), args, args.store)
        if found != FINE and args.wait is None:
            say_unknown(store, args)
    if found == FINE or args.wait is None:
        return found
    taken = 0

    def show(message: Any) -> bool:
        nonlocal taken
        taken += 1
        _line(message, args, out)
        return bool(taken < args.count)

    follow(args, 0 if args.offset is None else args.offset, args.wait, show, out.flush, until_some=True)
    return FINE if taken else FINDINGS


def _show(store: Any, args: argparse.Namespace, out: Output) -> int:
    # A function of its own: its views are gone when the store closes.
    ends: list[str] = []
    walks = [_walk(store, args, queue, ends) for queue in queues_of(store, args.topic, args.queue)]
    taken = 0
    for message in itertools.islice(heapq.merge(*walks, key=_order), args.count):
        _line(message, args, out)
        taken += 1
    if taken == 0:
        for end in ends[:NAMES_SHOWN]:
            out.say(end)
    return FINE if taken else FINDINGS


def _lost(store: Any, args: argparse.Namespace) -> list[LostRow]:
    """What the files of the log lack of the queues that were asked for."""
    places = Places(store.path, store.options)
    rows = lost_rows(places, store.options, lost_stretches(places, store.options.segment_size_bytes))
    return [row for row in rows if row.topic == args.topic and args.queue in (None, row.queue_id)]


def _order(message: Any) -> tuple[int, int]:
    """The order of the log; the offset alone says nothing of a message out of a compaction log."""
    return message.store_timestamp, message.offset


def _walk(store: Any, args: argparse.Namespace, queue: int, ends: list[str]) -> Iterator[Any]:
    """Messages of one queue; why there is none goes to `ends`."""
    end = store.max_offset(args.topic, queue)
    offset = store.min_offset(args.topic, queue) if args.offset is None else args.offset
    if offset < 0:
        offset = max(0, end + offset)
    begin, some = offset, False
    while True:
        result = store.get(args.topic, queue, offset, max_count=args.count, tags=args.tags, sql=args.sql)
        for message in result:
            some = True
            yield message
        if result.status not in _GO_ON or result.next_offset <= offset:
            break
        offset = result.next_offset
    if not some and (args.tags is not None or args.sql is not None) and offset > begin:
        wanted = f"with one of the tags {args.tags}" if args.sql is None else f"that fulfils {args.sql.sql}"
        ends.append(f"no message of {args.topic}/{queue} {printable(wanted)} from offset {begin} to {result.max_offset}")
    elif not some:
        low, high = result.min_offset, result.max_offset
        if low <= begin < high and args.tags is None and args.sql is None:
            ends.append(f"no message from offset {begin} to {high - 1} of {args.topic}/{queue} can be read: their places in "
                        f"the log are lost or damaged; run `rmqstore verify {args.store}`")
            return
        there = f"begins at {low} and ends before {high}" if low < high else f"is empty, and its next offset is {high}"
        ends.append(f"{result.status.name}: no message at offset {begin}: the queue {args.topic}/{queue} {there}")


def _line(message: Any, args: argparse.Namespace, out: Output) -> None:
    if out.as_json:
        out.record(message_fields(message, args.body))
    else:
        out.line(message_line(message, args.body))
