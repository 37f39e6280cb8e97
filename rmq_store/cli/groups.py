"""`rmqstore groups`: what consumer groups may do and how often they try (config/subscriptionGroup.json).

list reads beside a running writer; the others open the store for writing. mqadmin: updateSubGroup, deleteSubGroup.
"""
import argparse
from typing import Any

from rmq_store.cli.common import NAME, NothingFound, open_store, store_arguments, table_name
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.errors import ConfigError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "set", "delete"),
                        help="list: the groups of the file and the groups with committed offsets; set: make or change an "
                        "entry; delete: delete the entry, with --offsets also the committed offsets")
    store_arguments(parser)
    parser.add_argument("-g", "--group", type=NAME, help="for set and delete: the group; for list: only this group")
    parser.add_argument("--retries", type=int, metavar="N", help="for set: retries of a message before it becomes a dead "
                        "letter (default 16)")
    parser.add_argument("--retry-queues", type=int, metavar="N", help="for set: number of queues of %%RETRY%%GROUP (default 1)")
    parser.add_argument("--consume", choices=("true", "false"), help="for set: whether a broker lets the group consume "
                        "(default true)")
    parser.add_argument("--offsets", action="store_true", help="for delete: also delete the committed offsets of the group")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.action == "list":
        return _list(args, out)
    if args.group is None:
        raise ConfigError(f"groups {args.action} needs --group")
    with open_store(args) as store:
        if args.action == "delete":
            known = store.group_table.remove(args.group)
            offsets = store.offsets.remove(args.group) if args.offsets else 0
            if not known and not offsets:
                raise NothingFound(f"group {args.group} does not exist: config/subscriptionGroup.json has no entry for it")
            store.group_table.flush()
            store.offsets.flush()
            if out.as_json:
                out.record({"kind": "deleted", "group": args.group, "entry": known, "offsets": offsets})
            else:
                out.line(f"deleted {args.group}" + (f", its offsets of {offsets} queues too" if args.offsets else ""))
            return FINE
        for what, number in (("--retries", args.retries), ("--retry-queues", args.retry_queues)):
            if number is not None and not 0 <= number <= 65_535:
                raise ConfigError(f"{what} {number}: give a number from 0 to 65535")
        given = {"retryMaxTimes": args.retries, "retryQueueNums": args.retry_queues,
                 "consumeEnable": args.consume and args.consume == "true"}
        entry = store.group_table.set(table_name("group", args.group), **{k: v for k, v in given.items() if v is not None})
        store.group_table.flush()
        _show(out, args.group, entry, store.offsets.topics(args.group))
    return FINE


def _list(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=True) as store:
        rows = [(name, store.group_table.get(name), store.offsets.topics(name)) for name in sorted({
            *store.group_table.names(), *store.offsets.groups()}) if args.group in (None, name)]
    for row in rows:
        _show(out, *row)
    return FINE if rows else FINDINGS


def _show(out: Output, group: str, entry: dict[str, Any] | None, topics: list[str]) -> None:
    if out.as_json:
        out.record({"kind": "group", "group": group, "entry": entry, "topics": topics})
        return
    said = "not in config/subscriptionGroup.json" if entry is None else (
        f"retries {entry.get('retryMaxTimes')}, retry queues {entry.get('retryQueueNums')}, "
        f"may {'' if entry.get('consumeEnable', True) else 'not '}consume")
    out.line(f"{group}  {said}; has consumed {', '.join(topics) or 'nothing yet'}")
