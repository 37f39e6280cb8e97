"""`rmqstore demo`: writes a small store and shows what a person wants to see: what was written, where, how fast, what of it is
durable, how it is read, and which commands look at it. The main thread only; the numbers are of this run on this machine."""
import argparse
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from rmq_store.cli.common import PATH, keywords, number, open_store, option_arguments
from rmq_store.cli.exits import FINE
from rmq_store.cli.output import Output, Progress, size_text
from rmq_store.config.values import path_list, to_paths

TOPIC = "demo-orders"
QUEUES = 4
SYNC_PUTS = 20
COUNT_MAX = 100_000_000
# Small files, so that a demo costs some 150 MiB of disk and not several GiB.
SIZES = {"segment_size_bytes": 64 << 20, "index_slots": 100_000, "index_entries_max": 400_000}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", type=PATH, nargs="?", metavar="DIR", help="directory for the store; it must not exist yet "
                        "(default: a new temporary directory)")
    parser.add_argument("--count", type=number(1, COUNT_MAX), default=100_000, metavar="N", help="messages in each round "
                        "(default 100000)")
    parser.add_argument("--size", type=number(0, 1 << 30), default=100, metavar="BYTES", help="size of a body in bytes "
                        "(default 100)")
    option_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    path = args.store = _place(args.store)
    given = keywords(args)
    sizes = {n: v for n, v in SIZES.items() if n not in given}
    with open_store(args, create=True, services=True, **sizes) as store:
        demo = _Demo(store, args.count, args.size, out)
        out.say(f"A RocketMQ message store in {path}")
        out.say()
        demo.write()
        demo.make_durable()
        demo.read()
        files = _files(path)
    clean = not os.path.exists(os.path.join(path, "abort"))
    demo.report("closed", "everything is on the device and in its queues, and the abort file is removed" if clean else
                "but dispatch was not done: the abort file stays, and the next open recovers", clean=clean)
    _show_files(path, files, out)
    _show_commands(path, {**given, **sizes}, demo.message_id, out)
    return FINE


class _Demo:
    """The rounds of the demo; each tells what it did in a line for people or a JSON line."""

    def __init__(self, store: Any, count: int, size: int, out: Output) -> None:
        self.store = store
        self.count = count
        self.body = (b"demo " * (size // 5 + 1))[:size]
        self.out = out
        self.message_id = ""
        self.key = f"order-{count // 2}"

    def report(self, what: str, text: str, **fields: object) -> None:
        if self.out.as_json:
            self.out.record({"kind": what, **fields, "text": text})
        else:
            self.out.line(f"  {what:<9}{text}")

    def write(self) -> None:
        store, count, size = self.store, self.count, len(self.body)
        seconds = self._puts()
        self.report("written", f"{count:,} messages of {size} bytes with tag and key, one put() each: "
                    f"{count / seconds:,.0f}/s, {seconds / count * 1e9:,.0f} ns a message (the loop included)",
                    messages=count, seconds=seconds)
        bodies = [self.body] * count
        begin = time.perf_counter()
        store.put_many(TOPIC, bodies, queue_id=0)
        seconds = time.perf_counter() - begin
        self.report("written", f"{count:,} messages of {size} bytes, one put_many(): {count / seconds:,.0f}/s", messages=count,
                    seconds=seconds)

    def _puts(self) -> float:
        put, body = self.store.put, self.body
        begin = time.perf_counter()
        with Progress("put", self.count, "messages") as progress:
            for i in range(self.count):
                result = put(TOPIC, body, queue_id=i % QUEUES, tags="demo", keys=f"order-{i}")
                if i % 1000 == 0:
                    progress.at(i)
        seconds = time.perf_counter() - begin
        self.message_id = result.msg_id
        return seconds

    def make_durable(self) -> None:
        store = self.store
        stats = store.stats()
        wrote, flushed = stats["wrote"], stats["flushed"]
        self.report("durable", f"{100 * flushed / wrote:.0f}% so far (log offset {flushed:,} of {wrote:,}): flush_mode "
                    f"{store.options.flush_mode}", wrote=wrote, flushed=flushed)
        seconds = _seconds(store.flush)
        self.report("durable", f"100%: flush() took {seconds * 1e3:,.1f} ms", wrote=wrote, flushed=store.stats()["flushed"],
                    seconds=seconds)
        times = [_seconds(lambda: store.put(TOPIC, self.body, queue_id=1, wait=True)) * 1e3 for _ in range(SYNC_PUTS)]
        middle, worst = statistics.median(times), max(times)
        self.report("durable", f"{SYNC_PUTS} puts with wait=True, each on the device when put() returned: {middle:,.2f} ms in "
                    f"the middle, {worst:,.2f} ms at worst", median_ms=middle, max_ms=worst)

    def read(self) -> None:
        store = self.store
        store.wait_dispatched()
        seconds, taken, offset = 0.0, 0, 0
        end = store.max_offset(TOPIC, 0)
        while offset < end:
            begin = time.perf_counter()
            result = store.get(TOPIC, 0, offset, max_count=32)
            taken += sum(1 for _ in result)
            seconds += time.perf_counter() - begin
            offset = result.next_offset
        self.report("read", f"{taken:,} messages of queue 0, by 32: {taken / seconds:,.0f}/s", messages=taken, seconds=seconds)
        found = list(store.query_key(TOPIC, self.key))
        seconds = _seconds(lambda: list(store.query_key(TOPIC, self.key)))
        self.report("found", f"{len(found)} message with the key {self.key}, at log offset {found[0].offset:,}: "
                    f"{seconds * 1e6:,.0f} µs", key=self.key, offset=found[0].offset, seconds=seconds)
        message = store.message_by_id(self.message_id)
        self.report("found", f"message id {self.message_id}: {message.topic}, queue {message.queue_id}, queue offset "
                    f"{message.queue_offset}", msg_id=self.message_id, queue_offset=message.queue_offset)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _place(path: str | None) -> str:
    if path is None:
        return tempfile.mkdtemp(prefix="rmqstore-demo-")
    if os.path.exists(path):
        raise FileExistsError(17, "exists already: name a new directory", path)
    return os.path.abspath(path)


def _files(root: str) -> list[tuple[str, int, int]]:
    """Files of the store while it is open: path below the root, length, bytes they take on the device."""
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:       # the allocator has renamed it meanwhile
                continue
            found.append((os.path.relpath(path, root), status.st_size, status.st_blocks * 512))
    return sorted(found)


def _show_files(root: str, files: list[tuple[str, int, int]], out: Output) -> None:
    if out.as_json:
        for name, size, used in files:
            out.record({"kind": "file", "path": os.path.join(root, name), "size": size, "used": used})
        return
    out.line()
    out.line("Its files while it was open:")
    out.table(("file", "length", "on the device"), [(name, size_text(size), size_text(used)) for name, size, used in files])


def _show_commands(root: str, options: dict[str, Any], message_id: str, out: Output) -> None:
    directories = path_list(to_paths(options["commitlog_path"])) if options.get("commitlog_path") else []
    log = os.path.join(min(directories, default=os.path.join(root, "commitlog")), "0" * 20)
    commands = (
        ("what it holds", "", ["stat", root]),
        ("the newest messages of a queue", "", ["get", root, "-t", TOPIC, "-q", "0", "-i", "-5"]),
        ("by key", "", ["query", root, "-t", TOPIC, "-k", "order-7"]),
        ("by message id", "", ["query", root, "-i", message_id]),
        ("the bytes, named", "", ["dump", log, "--count", "2", "--hex"]),
        ("your own", "echo hello | ", ["put", root, "-t", "greetings"]),
    )
    program = ["rmqstore"] if shutil.which("rmqstore") else [sys.executable, "-m", "rmq_store"]
    out.say()
    out.say(f"The store stays until you delete it: rm -r {shlex.quote(root)}")
    out.say("Look at it:")
    for what, before, rest in commands:
        command = before + shlex.join([*program, *rest])
        if out.as_json:
            out.record({"kind": "command", "what": what, "command": command, "arguments": rest})
        else:
            out.line(f"  # {what}")
            out.line(f"  {command}")
