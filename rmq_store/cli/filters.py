"""`rmqstore filters`: the SQL92 filters that consumer groups have registered (config/consumerFilter.json).

list reads beside a running writer; the others open the store for writing. RocketMQ: ConsumerFilterManager.
"""
import argparse

from rmq_store.cli.common import NAME, NothingFound, open_store, store_arguments, table_name
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.codec.layout import time_text
from rmq_store.errors import ConfigError
from rmq_store.filter._program import SqlFilter
from rmq_store.services.consumer.filters import ConsumerFilter


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "set", "delete"),
                        help="list: the registered filters; set: register a filter of a group over a topic; delete: forget the "
                        "filters of a group")
    store_arguments(parser)
    parser.add_argument("-g", "--group", type=NAME, help="for set and delete: the group; for list: only this group")
    parser.add_argument("-t", "--topic", type=NAME, help="for set: the topic; for list and delete: only this topic")
    parser.add_argument("--sql", metavar="EXPRESSION", help="for set: the SQL92 filter")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.action == "list":
        with open_store(args, readonly=True) as store:
            found = store.consumer_filters.list(args.group, args.topic)
        for one in found:
            _show(out, one)
        if not found:
            out.say("no group has such a filter")
        return FINE if found else FINDINGS
    if args.group is None or (args.action == "set" and (args.topic is None or args.sql is None)):
        raise ConfigError(f"filters {args.action} needs --group" + (", --topic and --sql" if args.action == "set" else ""))
    if args.action == "set":
        SqlFilter(args.sql)         # refused before the store is opened for writing
    with open_store(args) as store:
        filters = store.consumer_filters
        if args.action == "delete":
            count = filters.remove(args.group, args.topic)
            if not count:
                raise NothingFound(f"group {args.group} has no filter" + (f" of {args.topic}" if args.topic else "")
                                   + ": config/consumerFilter.json has no entry for it")
            if out.as_json:
                out.record({"kind": "deleted", "group": args.group, "filters": count})
            else:
                out.line(f"deleted {count} filter{'' if count == 1 else 's'} of {args.group}")
            return FINE
        filters.register(table_name("group", args.group), table_name("topic", args.topic), args.sql)
        filters.flush()
        made = filters.get(args.group, args.topic)
    if made is not None:
        _show(out, made)
    return FINE


def _show(out: Output, one: ConsumerFilter) -> None:
    if out.as_json:
        out.record({"kind": "filter", "group": one.group, "topic": one.topic, "sql": one.sql, "born": one.born,
                    "died": one.died, "dead": one.dead, "version": one.version})
        return
    since = f"gone since {time_text(one.died)}" if one.dead else f"since {time_text(one.born)}"
    out.line(f"{one.group}  {one.topic}  {since}: {one.sql}")
