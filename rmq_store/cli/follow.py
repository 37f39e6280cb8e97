"""Following queues that another process writes: for tail and for get --wait. Main thread only."""
import argparse
import heapq
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rmq_store.cli.common import open_store, queues_of, say_unknown


def follow(args: argparse.Namespace, offset: int | None, seconds: float | None, show: Callable[[Any], bool],
           flush: Callable[[], None], *, until_some: bool = False) -> None:
    """Calls show(message) for the messages of args.topic, of args.queue or of all its queues, from `offset` on, until it
    returns False or the time is over. offset: below 0 it counts from the end as it is now, None is the end itself.
    until_some: the first messages end it."""
    deadline = None if seconds is None else time.monotonic() + seconds
    arrived = threading.Event()

    def hear(topic: str, queue_id: int, _: int) -> None:
        if topic == args.topic and args.queue in (None, queue_id):
            arrived.set()

    with open_store(args, readonly=True, follow=True) as store:
        store.add_arriving_listener(hear)
        queues = queues_of(store, args.topic, args.queue)
        if not queues or (args.queue is not None and args.queue not in store.queues(args.topic)):
            say_unknown(store, args)
        at = {queue: _begin(store, args, queue, offset) for queue in queues}
        while True:
            arrived.clear()         # before the look: what comes while it lasts is looked at again
            some, more = _show(store, args, at, show)
            flush()
            if not more or (some and until_some):
                return
            if not arrived.wait(None if deadline is None else max(deadline - time.monotonic(), 0)):
                return


def _begin(store: Any, args: argparse.Namespace, queue: int, offset: int | None) -> int:
    end: int = store.max_offset(args.topic, queue)
    return end if offset is None else max(0, end + offset) if offset < 0 else offset


def _show(store: Any, args: argparse.Namespace, at: dict[int, int], show: Callable[[Any], bool]) -> tuple[bool, bool]:
    # A function of its own: its views are gone when the store closes. Whether there was any, and whether to continue.
    some = False
    walks = [_walk(store, args, queue, at) for queue in queues_of(store, args.topic, args.queue)]
    for message in heapq.merge(*walks, key=lambda message: message.offset):
        at[message.queue_id], some = message.queue_offset + 1, True
        if not show(message):
            return some, False
    return some, True


def _walk(store: Any, args: argparse.Namespace, queue: int, at: dict[int, int]) -> Iterator[Any]:
    begin = at.setdefault(queue, 0)
    while True:
        result = store.get(args.topic, queue, begin, tags=args.tags, sql=args.sql)
        yield from result
        if result.next_offset <= begin and not result.messages:
            return
        begin = max(begin, result.next_offset)
        at[queue] = max(at[queue], begin)
        if begin >= result.max_offset:
            return
