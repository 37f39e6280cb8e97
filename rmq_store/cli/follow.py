"""Following queues that another process writes: for tail and for get --wait.

A read-only store shows what was there when it was opened, and no other process can wake this one. So the queues' files are
looked at, ten times a second, and the store is opened again when they changed. Main thread only.
"""
import argparse
import heapq
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from rmq_store.cli.common import keywords, open_store, queues_of, say_unknown

LOOK_S = 0.1


def follow(args: argparse.Namespace, offset: int | None, seconds: float | None, show: Callable[[Any], bool],
           flush: Callable[[], None], *, until_some: bool = False) -> None:
    """Calls show(message) for the messages of args.topic, of args.queue or of all its queues, from `offset` on, until it
    returns False or the time is over. offset: below 0 it counts from the end as it is now, None is the end itself.
    until_some: the first messages end it."""
    deadline = None if seconds is None else time.monotonic() + seconds
    at: dict[int, int] | None = None
    while True:
        before = _changes(args)
        with open_store(args, readonly=True) as store:
            queues = queues_of(store, args.topic, args.queue)
            if at is None:
                if not queues or (args.queue is not None and args.queue not in store.queues(args.topic)):
                    say_unknown(store, args)
                at = {queue: _begin(store, args, queue, offset) for queue in queues}
            some, more = _show(store, args, {queue: at.setdefault(queue, 0) for queue in queues}, at, show)
        flush()
        if not more or (some and until_some):
            return
        while _changes(args) == before:
            if deadline is not None and time.monotonic() >= deadline:
                return
            time.sleep(LOOK_S)


def _begin(store: Any, args: argparse.Namespace, queue: int, offset: int | None) -> int:
    end: int = store.max_offset(args.topic, queue)
    return end if offset is None else max(0, end + offset) if offset < 0 else offset


def _show(store: Any, args: argparse.Namespace, begins: dict[int, int], at: dict[int, int],
          show: Callable[[Any], bool]) -> tuple[bool, bool]:
    # A function of its own: its views are gone when the store closes. Whether there was any, and whether to go on.
    some = False
    walks = [_walk(store, args, queue, begin, at) for queue, begin in begins.items()]
    for message in heapq.merge(*walks, key=lambda message: message.offset):
        at[message.queue_id], some = message.queue_offset + 1, True
        if not show(message):
            return some, False
    return some, True


def _walk(store: Any, args: argparse.Namespace, queue: int, begin: int, at: dict[int, int]) -> Iterator[Any]:
    while True:
        result = store.get(args.topic, queue, begin, tags=args.tags)
        yield from result
        if result.next_offset <= begin and not result.messages:
            return
        begin = max(begin, result.next_offset)
        at[queue] = max(at[queue], begin)
        if begin >= result.max_offset:
            return


def _changes(args: argparse.Namespace) -> list[tuple[str, int]]:
    """What tells that a queue has grown: its files and when they were written."""
    given = keywords(args)
    topic = os.path.join(given.get("consumequeue_path") or os.path.join(args.store, "consumequeue"), args.topic)
    found = []
    for queue in _names(topic) if args.queue is None else [str(args.queue)]:
        for name in _names(os.path.join(topic, queue)):
            with suppress(FileNotFoundError):       # deleted since
                found.append((f"{queue}/{name}", os.stat(os.path.join(topic, queue, name)).st_mtime_ns))
    return found


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
