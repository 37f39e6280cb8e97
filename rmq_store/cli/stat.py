"""`rmqstore stat`: what a store holds and how far it is flushed and dispatched. Read-only, beside a running writer.

With --watch it prints a line every so many seconds. Figures that only the writing process knows (puts that are not flushed,
durations, the present backlog of groups) come from the file that this process publishes with stats_file_interval_ms. Otherwise,
and with --topic, the numbers are those of the store's files: the command opens the store read-only for each line. It says which
of the two it shows, and why.
"""
import argparse
import dataclasses
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from rmq_store.cli import live
from rmq_store.cli.common import NAME, WAIT_MAX_S, no_queues, open_store, say_unknown, store_arguments
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output, size_text
from rmq_store.codec.layout import time_text
from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.log.recovery.places import Places
from rmq_store.replication.mark import Mark, read_mark
from rmq_store.services.cleaning.rules import used_percent
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX

_OF_THIS_LOOK = ("readonly", "running_flags")       # they tell of this open, and not of the process that writes


def arguments(parser: argparse.ArgumentParser) -> None:
    store_arguments(parser)
    parser.add_argument("-t", "--topic", type=NAME, help="only the queues of this topic")
    parser.add_argument("--light-queues", action="store_true", help="a line for each light queue (%%LMQ%%...) too; without it "
                        "one line sums them up")
    parser.add_argument("-w", "--watch", type=float, metavar="SECONDS", nargs="?", const=1.0,
                        help="print one line every SECONDS (default 1) until Ctrl-C: rates, lag, durations, backlog of groups, "
                        "disk")
    parser.add_argument("-n", "--times", type=int, help="with --watch: stop after this many lines")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.times is not None and (args.watch is None or args.times < 1):
        raise ConfigError(f"--times {args.times} needs --watch" if args.watch is None else
                          f"--times {args.times}: give a number of lines, 1 or more")
    if args.watch is not None:
        return _watch(args, out)
    with open_store(args, readonly=True) as store:
        stats = {name: value for name, value in plain(store.stats()).items() if name not in _OF_THIS_LOOK}
        queues, lights = _queues(store, args)
        delays, dispatchers, compactions = store.delay_levels(), store.dispatchers(), _compactions(store, args)
        if args.topic is not None and not queues:
            say_unknown(store, argparse.Namespace(**{**vars(args), "queue": None}))
            return FINDINGS
        lost = 0 if stats["in_use"] else _lost(store, args, stats, bool(queues or lights["queues"]))
    figures, age = live.look(args.store)
    mark = _mark(args)
    if out.as_json:
        out.record({"kind": "store", "path": args.store, **stats})
        if mark is not None:
            out.record({"kind": "role", **mark._asdict()})
        for queue in queues:
            out.record({"kind": "queue", **queue})
        if lights["queues"]:
            out.record({"kind": "light_queues", **lights})
        for level in delays:
            out.record({"kind": "delay_level", **level._asdict()})
        for one in dispatchers:
            out.record({"kind": "dispatcher", "name": one.name, "offset": one.offset, "behind_bytes": one.behind_bytes})
        for state in compactions:
            out.record({"kind": "compaction", **state._asdict()})
        if figures is not None:
            out.record({"kind": "live", **figures})
    else:
        stats.pop("durations", None)        # of this process, which has only looked
        if stats["in_use"]:
            pid = stats["writer_pid"]
            out.line("in use by " + (f"process {pid}" if pid is not None else "another process")
                     + ": what follows are the files as they were a moment ago")
        width = max(map(len, stats), default=0)
        for name, value in stats.items():
            out.line(f"{name.ljust(width)}  {value}")
        if mark is not None:
            since = time_text(mark.since_ms)
            out.line(f"slave of {mark.master} since {since}" if mark.role == "slave" else f"promoted to {mark.role} at {since}")
        if queues:
            out.line()
            out.table(("topic", "queue", "min", "max", "messages", "oldest"), [
                (q["topic"], q["queue_id"], q["min_offset"], q["max_offset"], q["messages"],
                 "" if q["earliest_time"] is None else time_text(q["earliest_time"])) for q in queues])
        if lights["queues"]:
            out.line()
            out.line(f"light queues: {lights['queues']:,}, with {lights['messages']:,} messages; --light-queues lists them")
        if delays:
            out.line()
            out.table(("delay level", "seconds", "delivered", "waiting"), [
                (level.level, level.delay_ms / 1000, level.offset, level.waiting) for level in delays])
        if dispatchers:
            out.line()
            out.table(("dispatcher", "log offset", "bytes behind"), [(d.name, d.offset, d.behind_bytes) for d in dispatchers])
        if compactions:
            out.line()
            out.table(("compaction log", "queue", "min", "max", "messages", "records", "files", "compacted to", "behind"), [
                (c.topic, c.queue_id, c.min_offset, c.max_offset, c.messages, size_text(c.size), size_text(c.file_size),
                 c.compacted_to, c.behind) for c in compactions])
            for c in compactions:
                if c.damage:
                    out.line(f"damaged: {c.topic}/{c.queue_id}: {c.damage}")
        if figures is not None:
            live.block(figures, age, out)
    return FINDINGS if stats.get("needs_recovery") or lost > 0 else FINE


def _lost(store: Any, args: argparse.Namespace, stats: dict[str, Any], some: bool) -> int:
    """How many files of the log are missing; says that, and that no queue leads to the log. some: whether there is a queue."""
    if not some and stats["wrote"] > stats["min_log_offset"]:
        print(f"rmqstore stat: {no_queues(store, args.store)}", file=sys.stderr)
    lost: int = stats["log_files"] - len(Places(store.path, store.options).log_files())
    if lost > 0:
        stats["log_files_missing"] = lost
        print(f"rmqstore stat: {lost} of the {stats['log_files']} files of the log are missing, and every open for writing "
              f"refuses the store: run rmqstore verify {args.store}", file=sys.stderr)
    return lost


def _mark(args: argparse.Namespace) -> Mark | None:
    try:
        return read_mark(os.path.abspath(args.store))
    except CorruptionError as error:
        print(f"rmqstore stat: {error}", file=sys.stderr)
        return None


def _compactions(store: Any, args: argparse.Namespace) -> list[Any]:
    try:
        return list(store.compaction_states(args.topic))
    except CorruptionError as error:        # of topics.json, without which the rest can be shown
        print(f"rmqstore stat: {error}", file=sys.stderr)
        return []


def _watch(args: argparse.Namespace, out: Output) -> int:
    if not 0 < args.watch <= WAIT_MAX_S:
        raise ConfigError(f"--watch {args.watch}: give a number of seconds above 0, at most {WAIT_MAX_S}")
    log = logging.getLogger("rmq_store")
    level = log.level
    try:
        return _lines(args, out, log)
    finally:
        log.setLevel(level)


def _lines(args: argparse.Namespace, out: Output, log: logging.Logger) -> int:
    before: Any = None
    source, lines = "", 0
    while args.times is None or lines < args.times:
        if lines:
            time.sleep(args.watch)
        figures, why = live.look(args.store) if args.topic is None else (None, "")
        if lines == 1 and not args.verbose:         # what each look at the files would warn of is said once
            log.setLevel(logging.ERROR)
        now: Any = _look(args) if figures is None else figures
        kind = "files" if figures is None else "live"
        changed = source != kind
        if changed:
            source, before = kind, None
            if why:
                out.say(why if figures is None else f"live figures, {why}")
        shown = _row(now, before) if figures is None else live.row(now, before, args.store)
        if out.as_json:
            out.record({"kind": "watch", "source": source, "time": int(time.time() * 1000), **shown})
        else:
            if changed or lines % 20 == 0:
                out.line(_HEAD if figures is None else live.HEAD)
            out.line(_line(shown) if figures is None else live.line(shown))
        out.flush()
        before = now
        lines += 1
    return FINE


_HEAD = "    time  messages/s    MiB/s       log MiB   files  queues     waiting  disk %"


def _line(r: Mapping[str, float]) -> str:
    return (f"{time.strftime('%H:%M:%S')}  {r['messages_s']:10.0f}  {r['bytes_s'] / (1 << 20):7.2f}  "
            f"{(r['log_end'] - r['log_begin']) / (1 << 20):12.1f}  {r['log_files']:6.0f}  {r['queues']:6.0f}  "
            f"{r['waiting']:10.0f}  {r['disk_pct']:6.0f}")


def _row(now: Mapping[str, float], before: Mapping[str, float] | None) -> dict[str, float]:
    seconds = now["at"] - before["at"] if before is not None else 0.0
    growth = {"messages_s": (now["messages"] - before["messages"]) / seconds if before is not None else 0.0,
              "bytes_s": (now["log_end"] - before["log_end"]) / seconds if before is not None else 0.0}
    return {**{k: v for k, v in now.items() if k != "at"}, **growth}


def _look(args: argparse.Namespace) -> dict[str, float]:
    with open_store(args, readonly=True) as store:
        rows = (store._queue_list() if args.topic is None else
                [(args.topic, *row) for row in store._queues_of(args.topic)])
        return {"at": time.monotonic(), "log_begin": store.min_log_offset, "log_end": store.max_log_offset,
                "messages": sum(high for _, _, _, high in rows), "queues": len(rows),
                "log_files": store.stats()["log_files"], "waiting": sum(x.behind for x in store.lag(topic=args.topic)),
                "disk_pct": used_percent(store.path)}


def _queues(store: Any, args: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The queues that have a line, and the sum of the light queues that have none."""
    rows = [_queue(*row) for row in store._queue_rows(args.topic)]
    light = [] if args.light_queues or args.topic else [row for row in rows if row["topic"].startswith(LMQ_PREFIX)]
    shown = [row for row in rows if not row["topic"].startswith(LMQ_PREFIX)] if light else rows
    return shown, {"queues": len(light), "messages": sum(row["messages"] for row in light)}


def _queue(topic: str, queue_id: int, low: int, high: int, earliest: int) -> dict[str, Any]:
    return {"topic": topic, "queue_id": queue_id, "min_offset": low, "max_offset": high, "messages": high - low,
            "earliest_time": earliest if earliest >= 0 else None}


def plain(stats: Any) -> dict[str, Any]:
    """Statistics as a dict, whatever record type they come in."""
    if isinstance(stats, Mapping):
        return dict(stats)
    if dataclasses.is_dataclass(stats) and not isinstance(stats, type):
        return dataclasses.asdict(stats)
    return dict(stats._asdict())
