"""`rmqstore backup`: a store, also one that is open, as it is now, into a directory of backups. The store is only read."""
import argparse

from rmq_store.cli.common import PATH, keywords, store_arguments
from rmq_store.cli.copying import progress_argument
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output, Progress, size_text
from rmq_store.upkeep.moving.backup import backup


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("directory", type=PATH, metavar="DIR",
                        help="directory for the backups of this store; the command makes it if it does not exist")
    progress_argument(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    with Progress("backup", unit="bytes", always=args.progress) as progress:
        made = backup(args.store, args.directory, progress=progress.at, **keywords(args))
    if out.as_json:
        out.record({"kind": "backup", **made.as_dict()})
    else:
        out.line(f"{made.path}: the log from {made.begin} to {made.end}; {size_text(made.copied_bytes)} copied, "
                 f"{size_text(made.linked_bytes)} shared with the backup before")
    return FINE
