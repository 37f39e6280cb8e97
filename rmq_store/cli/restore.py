"""`rmqstore restore`: a backup back into a directory of its own; or a list of backups; or a look at all bytes of one."""
import argparse
import os

from rmq_store.cli.common import PATH
from rmq_store.cli.copying import progress_argument
from rmq_store.cli.exits import CORRUPT, FINDINGS, FINE
from rmq_store.cli.output import Output, Progress, size_text
from rmq_store.cli.verify import show
from rmq_store.codec.layout import time_text
from rmq_store.errors import ConfigError
from rmq_store.services.backup.backup import check_backup, list_backups, newest_backup, restore


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=PATH, metavar="DIR", help="directory of backups")
    parser.add_argument("target", type=PATH, nargs="?", metavar="TO",
                        help="a new directory for the store; without TO the command lists the backups")
    parser.add_argument("--backup", metavar="NAME", help="name of the backup (default: the newest)")
    parser.add_argument("--check", action="store_true", help="restore nothing, only read and check every byte of the backup")
    progress_argument(parser)
    parser.add_argument("--json", action="store_true", help="JSON lines instead of text")
    parser.add_argument("-v", "--verbose", action="store_true", help="also log each step, to standard error")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.check:
        if args.target is not None:
            raise ConfigError("--check restores nothing: give it without TO")
        name = newest_backup(args.directory) if args.backup is None else args.backup
        found = check_backup(args.directory, name)
        for finding in found:
            show(finding, out)
        out.say(f"backup {name}: {len(found)} findings")
        return CORRUPT if found else FINE
    if args.target is None:
        return _list(args, out)
    with Progress("restore", unit="bytes", always=args.progress) as progress:
        done = restore(args.directory, args.target, args.backup, progress=progress.at)
    if out.as_json:
        out.record({"kind": "restored", "target": os.path.abspath(args.target), **done.as_dict()})
    else:
        out.line(f"{args.target}: the log from {done.begin} to {done.end}, as it was {time_text(done.made_ms)}")
    return FINE


def _list(args: argparse.Namespace, out: Output) -> int:
    found = list_backups(args.directory)
    for each in found if out.as_json else ():
        out.record({"kind": "backup", **each.as_dict()})
    out.table(("backup", "made", "log from", "to", "files", "new when it was made"), [
        (os.path.basename(b.path), time_text(b.made_ms), b.begin, b.end, b.file_count, size_text(b.copied_bytes))
        for b in found])
    return FINE if found else FINDINGS
