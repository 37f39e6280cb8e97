"""A call that may take seconds, awaited: in a thread of its own that ends with it, as an executor's would stay."""
import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from rmq_store.io.threads import start_thread

__all__ = ["apart"]

T = TypeVar("T")


async def apart(call: Callable[[], T], drop: Callable[[T], object] | None = None) -> T:
    """What `call` returns or raises. Cancelled, it goes on to its end, and what it returns goes to `drop`, in either thread.

    Called in the loop's thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def lost(result: Any, error: BaseException | None) -> None:
        if drop is not None and error is None:
            drop(result)

    def settle(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            lost(result, error)
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:        # the loop is closed
            lost(result, error)

    start_thread(run, "rmq-apart")
    return await done
