"""`rmqstore offsets`: how far consumer groups are; set one on, back or ahead. show and lag read beside a running writer."""
import argparse
from typing import Any

from rmq_store.cli.common import (
    NAME,
    OFFSET,
    QUEUE_ID,
    NothingFound,
    moment,
    open_store,
    say_unknown,
    sql_argument,
    store_arguments,
)
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "lag", "commit", "reset"),
                        help="show: the committed offsets of groups; lag: also the number of messages left to consume; commit: "
                        "set one offset; reset: move to a time or an offset, for one queue or all queues of a topic")
    store_arguments(parser)
    parser.add_argument("-g", "--group", type=NAME, help="only this group; for commit and reset: the group to move")
    parser.add_argument("-t", "--topic", type=NAME, help="only this topic; for commit and reset: the topic")
    parser.add_argument("-q", "--queue", type=QUEUE_ID, help="for commit and reset: the queue; reset without this option moves "
                        "all queues")
    parser.add_argument("--tags", help="for lag: also count the messages left to consume that have one of these tags, "
                        "\"a || b\"; not with --sql")
    sql_argument(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-i", "--offset", type=OFFSET, help="for commit and reset: the queue offset to continue at")
    where.add_argument("--time", type=moment, metavar="TIME", help="for reset: continue at the first message stored at this "
                       "time or later (ms since 1970, or 2024-05-01T12:00:00)")
    where.add_argument("--end", action="store_true", help="for reset: continue after the last message")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.action != "lag" and (args.tags is not None or args.sql is not None):
        raise ConfigError(f"offsets {args.action} takes neither --tags nor --sql: offsets lag counts by them")
    if args.action in ("show", "lag"):
        return _show(args, out)
    if args.group is None or args.topic is None:
        raise ConfigError(f"offsets {args.action} needs --group and --topic")
    if args.action == "commit" and (args.queue is None or args.offset is None):
        raise ConfigError("offsets commit needs --queue and --offset")
    if args.action == "reset" and args.offset is None and args.time is None and not args.end:
        raise ConfigError("offsets reset needs --time, --offset or --end")
    if args.time is not None and args.time < 0:
        raise ConfigError(f"--time {args.time}: give ms since 1970, 0 or more; --end moves after the last message")
    with open_store(args) as store:
        before = store.offsets.table().get((args.topic, args.group), {})
        if args.action == "commit":
            _need_place(store, args)
        try:
            if args.action == "commit":
                store.offsets.commit(args.group, args.topic, args.queue, args.offset)
                moved = {args.queue: args.offset}
            else:
                moved = store.reset_offset(args.group, args.topic, queue_id=args.queue, offset=args.offset,
                                           timestamp=-1 if args.end else args.time)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        store.offsets.flush()
    for queue_id, offset in moved.items():
        was = before.get(queue_id, -1)
        if out.as_json:
            out.record({"kind": "offset", "group": args.group, "topic": args.topic, "queue_id": queue_id, "before": was,
                        "offset": offset})
        else:
            out.line(f"{args.group}  {args.topic}/{queue_id}  {'none' if was < 0 else was} -> {offset}")
    return FINE


def _need_place(store: Any, args: argparse.Namespace) -> None:
    """A misspelt name or a wrong number would have a group pass over messages. Raises ConfigError."""
    known = store.queues(args.topic)
    if args.queue not in known:
        say_unknown(store, args)
        raise NothingFound(f"{args.topic}/{args.queue} has no message, so there is nowhere to continue")
    end = store.max_offset(args.topic, args.queue)
    if args.offset > end:
        raise ConfigError(f"--offset {args.offset}: {args.topic}/{args.queue} goes from 0 to {end}")


def _show(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=True) as store:
        rows = store.lag(args.group, args.topic, tags=args.tags, sql=args.sql)
    lag = args.action == "lag"
    if args.action == "show":
        rows = [row for row in rows if row.offset >= 0]
    if out.as_json:
        for row in rows:
            out.record(_record(row, lag))
    elif lag:
        counted = args.tags is not None or args.sql is not None
        out.table(("group", "topic", "queue", "offset", "min", "max", "behind", "lost", *(["matching"] if counted else [])), [
            (r.group, r.topic, r.queue_id, r.offset, r.min_offset, r.max_offset, r.behind, r.lost, *_matching(r))
            for r in rows])
        matching = f", {sum(r.matching or 0 for r in rows)} of them pass the filter" if counted else ""
        if not all(r.exact for r in rows):
            matching += " (an estimate: see count_scan_max)"
        out.say(f"{sum(r.behind for r in rows)} messages to consume{matching}")
    else:
        out.table(("group", "topic", "queue", "offset"), [(r.group, r.topic, r.queue_id, r.offset) for r in rows])
    return FINE if rows else FINDINGS


def _matching(row: Any) -> tuple[object, ...]:
    return () if row.matching is None else (row.matching,) if row.exact else (f"~{row.matching}",)


def _record(row: Any, lag: bool) -> dict[str, object]:
    found = {"kind": "offset", "group": row.group, "topic": row.topic, "queue_id": row.queue_id, "offset": row.offset}
    if lag:
        found |= {"min_offset": row.min_offset, "max_offset": row.max_offset, "behind": row.behind, "lost": row.lost}
    if row.matching is not None:
        found |= {"matching": row.matching, "exact": row.exact}
    return found
