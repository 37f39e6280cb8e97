"""Following a queue that another process writes: for tail and for get --wait. Main thread only."""
import argparse
import time
from collections.abc import Callable
from typing import Any

from rmq_store.cli.common import open_store


def follow(args: argparse.Namespace, offset: int | None, seconds: float | None, show: Callable[[Any], bool],
           flush: Callable[[], None], *, until_some: bool = False) -> None:
    """Calls show(message) for the messages of args.topic, args.queue from `offset` on, until it returns False or the time is
    over. offset: below 0 it counts from the end as it is now, None is the end itself.
    until_some: the first messages end it."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with open_store(args, readonly=True, follow=True) as store:
        at = _begin(store, args, offset)
        while True:
            at, some, more = _show(store, args, at, show)
            flush()
            if not more or (some and until_some):
                return
            left = None if deadline is None else deadline - time.monotonic()
            if (left is not None and left <= 0) or not store.wait_for_message(args.topic, args.queue, at, left):
                return


def _begin(store: Any, args: argparse.Namespace, offset: int | None) -> int:
    end: int = store.max_offset(args.topic, args.queue)
    return end if offset is None else max(0, end + offset) if offset < 0 else offset


def _show(store: Any, args: argparse.Namespace, at: int, show: Callable[[Any], bool]) -> tuple[int, bool, bool]:
    # A function of its own: its views are gone when the store closes. Where to go on, whether there was any, whether to go on.
    some = False
    while True:
        result = store.get(args.topic, args.queue, at, tags=args.tags)
        for message in result:
            at, some = message.queue_offset + 1, True
            if not show(message):
                return at, some, False
        if result.next_offset <= at and not result.messages:
            return at, some, True
        at = max(at, result.next_offset)
        if at >= result.max_offset:
            return at, some, True
