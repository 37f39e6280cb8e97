"""`rmqstore clean`: delete old commit-log files, and what leads into them, by hand. The store must not be open elsewhere."""
import argparse
import os
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.cli.common import open_store, store_arguments
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output, size_text
from rmq_store.codec.layout import time_text
from rmq_store.errors import ConfigError, DiskFull
from rmq_store.log.recovery import lockfile
from rmq_store.log.recovery.places import Places


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("--hours", type=float, help="delete whole files that were last modified at least this many hours ago; "
                        "0 deletes all files but the newest (default: the option retention_hours)")
    parser.add_argument("--files", type=int, metavar="N", help="delete at most N commit-log files")
    parser.add_argument("-n", "--dry-run", action="store_true", help="only list the files to be deleted")


def run(args: argparse.Namespace, out: Output) -> int:
    while True:
        try:
            return _clean(args, out)
        except DiskFull:
            path = _make_room(args)
            if path is None:
                raise
            out.say(f"the disk was too full to open the store: deleted the oldest file first, {path}")


def _make_room(args: argparse.Namespace) -> str | None:
    """Where a disk is too full for an open, the oldest of the files that are due goes first, durably: its path, None where none
    is due. What leads into it the open corrects."""
    with open_store(args, readonly=True) as store:
        due = store.cleanable(args.hours, files_max=args.files)
        places = Places(store.path, store.options)
    if not due:
        return None
    files, path = ControlFiles(IoTable()), places.log_path(due[0])
    lock = lockfile.acquire(files, places.root, *places.log_elsewhere)
    try:
        files.unlink(path)
        files.sync_dir(os.path.dirname(path))
    finally:
        lockfile.release(files, lock)
    if args.files is not None:
        args.files -= 1
    return path


def _clean(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=args.dry_run) as store:
        if args.hours is None and store.options.retention_hours is None:
            raise ConfigError("the age of files to delete is missing: give --hours, or the option retention_hours")
        try:
            if args.dry_run:
                return _show(store, args, out)
            done = store.clean(args.hours, files_max=args.files, pace_ms=0)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    if out.as_json:
        out.record({"kind": "cleaned", "log_files": done.log_files, "log_bytes": done.log_bytes,
                    "queue_files": done.queue_files, "index_files": done.index_files, "min_log_offset": done.min_log_offset,
                    "lost": [{"group": x.group, "topic": x.topic, "queue_id": x.queue_id, "begin": x.begin, "end": x.end}
                             for x in done.lost]})
        return FINE
    out.line(f"deleted {done.log_files} commit-log files ({size_text(done.log_bytes)}), {done.queue_files} queue files, "
             f"{done.index_files} index files; the log begins at offset {done.min_log_offset}")
    if done.lost:
        out.table(("group", "topic", "queue", "not consumed", "from", "to below"), [
            (x.group, x.topic, x.queue_id, x.count, x.begin, x.end) for x in done.lost])
    return FINE


def _show(store: Any, args: argparse.Namespace, out: Output) -> int:
    starts = store.cleanable(args.hours, files_max=args.files)
    size = store.options.segment_size_bytes
    places = Places(store.path, store.options)
    for start in starts:
        path = places.log_path(start)
        modified = int(os.stat(path).st_mtime * 1000)
        if out.as_json:
            out.record({"kind": "would_delete", "file": path, "offset": start, "size": size, "modified": modified})
        else:
            out.line(f"{path}  {size_text(size)}  last modified {time_text(modified)}")
    out.say(f"{len(starts)} files, {size_text(len(starts) * size)}")
    return FINE
