"""`rmqstore promote`: makes the directory of a slave that of a master."""
import argparse
import json
from typing import TYPE_CHECKING

from rmq_store.cli.common import PATH, keywords, option_arguments
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output

if TYPE_CHECKING:
    from rmq_store.upkeep.promoting.promotion import Promotion

__all__ = ["arguments", "run"]

UPSTREAM = {"master": "ASYNC_MASTER", "sync_master": "SYNC_MASTER"}


def _role(text: str) -> str:
    """Either spelling: ours, or RocketMQ's."""
    return {"async_master": "master"}.get(text.lower(), text.lower())


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=PATH, metavar="DIR", help="directory of the slave; no process may have it open")
    parser.add_argument("--to", type=_role, choices=("master", "sync_master"), help="the role in which you open it next, "
                        "or RocketMQ's name of it, ASYNC_MASTER or SYNC_MASTER (default: master); of a directory that was "
                        "promoted before it changes the role")
    parser.add_argument("--force", action="store_true", help="promote although the old master answers, or although the "
                        "directory does not say that it is a slave's: you make sure that nobody sends to the old master")
    option_arguments(parser, short=True)


def run(args: argparse.Namespace, out: Output) -> int:
    from rmq_store.upkeep.promoting.promotion import promote  # here, so that --help does not wait for it

    done = promote(args.store, to=args.to, force=args.force, **keywords(args))
    if out.as_json:
        out.line(json.dumps({"kind": "promotion", **done._asdict()}))
        return FINE
    if done.was != "slave":
        out.line(f"{done.path} was promoted to {done.was} before; now it is a {done.role}.")
        _next(done, out)
        return FINE
    master = f"master {done.master}" if done.master else "its master"
    out.line(f"{done.path} was a slave of {master}; now it is a master ({UPSTREAM[done.role]}).")
    out.line(f"Its log has offsets {done.min_log_offset} to {done.max_log_offset}.")
    out.line(f"If the old master was an ASYNC_MASTER: what it stored at offset {done.max_log_offset} or behind is missing "
             "here.")
    out.line("If it was a SYNC_MASTER: no message is missing for which a put returned PUT_OK, if this slave acknowledged it.")
    for group, topic, queue_id, before, now in done.moved:
        out.line(f"Group {group} had read {topic}/{queue_id} up to offset {before}, and continues at {now}, the end of the "
                 "queue.")
    _next(done, out)
    return FINE


def _next(done: "Promotion", out: Output) -> None:
    for path in done.kept:
        out.line(f"Copy of a file as it was: {path}")
    out.line(f"Open it with role={done.role}" + (" and ha_listen" if done.role == "sync_master" else "")
             + f"; a broker needs brokerRole={UPSTREAM[done.role]} and brokerId=0.")
