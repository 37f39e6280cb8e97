"""`rmqstore transactions`: which transactions are not decided, and deciding one by hand.

Listing reads beside a running writer and writes nothing. --commit and --rollback open the store for writing.
"""
import argparse

from rmq_store.cli.common import NAME, open_store, store_arguments
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output
from rmq_store.config.load import Options
from rmq_store.errors import ConfigError
from rmq_store.services.transaction.service import PendingTransaction
from rmq_store.services.transaction.table import PENDING
from rmq_store.services.transaction.transaction import Transaction


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("-g", "--group", type=NAME, help="list only the transactions of this producer group")
    parser.add_argument("--commit", metavar="ID", action="append", default=[],
                        help="commit this transaction: its message becomes visible. ID is the transaction id, or the message "
                        "id of its half message; may be repeated")
    parser.add_argument("--rollback", metavar="ID", action="append", default=[],
                        help="roll this transaction back: its message is never visible; may be repeated")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.commit or args.rollback:
        return _decide(args, out)
    with open_store(args, readonly=True) as store:
        rows = store.transactions(group=args.group)
    for row in rows:
        _show(out, row)
    out.say("1 transaction is pending" if len(rows) == 1 else f"{len(rows)} transactions are pending")
    return FINE


def _show(out: Output, row: PendingTransaction) -> None:
    if out.as_json:
        out.record({"kind": "transaction", **row._asdict(), "age_ms": row.age_ms})
    else:
        out.line(f"{row.id}  group {row.group}, {row.topic}/{row.queue_id}, {row.age_ms / 1000:.0f} s old, checked "
                 f"{row.checks} times, half message at offset {row.offset}")


def _refuse_lost_lights(commits: list[Transaction], options: Options) -> None:
    """Once it is committed without them, a message never reaches its light queues."""
    if options.enable_lmq and options.enable_multi_dispatch:
        return
    for transaction in commits:
        if transaction.state == PENDING and "%LMQ%" in transaction.message.properties.get("INNER_MULTI_DISPATCH", ""):
            raise ConfigError(f"{transaction.id} names light queues (INNER_MULTI_DISPATCH), and without enable_lmq and "
                              "enable_multi_dispatch the commit would leave them out: give -o enable_lmq=true -o "
                              "enable_multi_dispatch=true")


def _decide(args: argparse.Namespace, out: Output) -> int:
    if args.group is not None:
        raise ConfigError("--group is for the list: name the transactions to decide by their ids")
    both = set(args.commit) & set(args.rollback)
    if both:
        raise ConfigError(f"{min(both)} is given to --commit and to --rollback: choose one")
    with open_store(args) as store:
        # All ids are looked up before the first decision.
        decided = [(store.transaction_by_id(id), id in args.commit) for id in (*args.commit, *args.rollback)]
        _refuse_lost_lights([transaction for transaction, commit in decided if commit], store.options)
        for transaction, commit in decided:
            if commit:
                transaction.commit()
            else:
                transaction.rollback()
            if out.as_json:
                out.record({"kind": "decided", "id": transaction.id, "state": transaction.state, "topic": transaction.topic,
                            "queue_id": transaction.queue_id})
            else:
                out.line(f"{transaction.id}  {transaction.state}")
        store.flush()
        many = "1 decision is" if len(decided) == 1 else f"{len(decided)} decisions are"
        out.say(f"{many} on the device")
    return FINE
