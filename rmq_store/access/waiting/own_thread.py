"""A call that may take seconds, awaited: in a thread of its own that ends with it, as an executor's would stay."""
import asyncio
from collections.abc import Callable
from typing import TypeVar

from rmq_store.base.io.threads import start_thread

__all__ = ["in_own_thread"]

T = TypeVar("T")


async def in_own_thread(call: Callable[[], T], drop: Callable[[T], object] | None = None) -> T:
    """What `call` returns or raises. Cancelled, it continues to its end, and what it returns goes to `drop`, in a thread, too.

    Called in the loop's thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    # What the call made, and whether nobody waits for it any more: the thread adds and then looks, the task leaves and then
    # takes, so exactly one of them has it to drop.
    made: list[T] = []
    left: list[bool] = []
    failed: list[BaseException] = []

    def drop_made() -> None:
        try:
            result = made.pop()
        except IndexError:
            return
        if drop is not None:
            drop(result)

    def settle() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            made.append(call())
        except BaseException as raised:
            failed.append(raised)
        if left:
            drop_made()
            return
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:        # the loop is closed
            drop_made()

    start_thread(run, "rmq-slow-call")
    try:
        await done
    except BaseException:
        left.append(True)
        if made and drop is not None:
            try:
                start_thread(drop_made, "rmq-slow-call")
            except OSError:         # none to be had: a loop that is held is better than a store that nobody closes
                drop_made()
        raise
    if failed:
        raise failed.pop()          # the list would keep what the error's frames hold
    return made.pop()
