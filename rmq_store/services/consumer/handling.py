"""What a consumer's calls take: how long a poll may wait, and which handlers `run` calls. A handler is through with a message
when it returns, or when its result is awaited.

Calling a coroutine or generator function runs nothing of it, so its messages would count as done untouched.
"""
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

from rmq_store.access.reader._checked import whole
from rmq_store.errors import illegal

__all__ = ["check_handler", "deadline_of", "refuse_unrun"]

CONCURRENCY_MAX = 10_000    # threads, or tasks
_CURES = {
    "coroutine": "give a plain function, or take the consumer of an AsyncMessageStore, whose run awaits it",
    "generator": "give a function without yield",
}


def deadline_of(timeout: float | None) -> float | None:
    """When a wait ends, by time.monotonic. Raises ArgumentIllegal."""
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise illegal("timeout", timeout, "give seconds, 0 or more, or None for ever")
    return time.monotonic() + timeout


def check_handler(handle: object, concurrency: object, *, awaits: bool) -> None:
    """Raises TypeError for what `run` cannot call, ArgumentIllegal for a concurrency out of range. awaits: whether it awaits
    what is returned."""
    if not callable(handle):
        raise illegal("handle", handle, "give a function that takes a message")
    import inspect  # which loads much, for consumers that run alone

    called = None if isinstance(handle, type) else getattr(handle, "__call__", None)    # noqa: B004  an object's own
    for what, tests in (("coroutine", () if awaits else (inspect.iscoroutinefunction,)),
                        ("generator", (inspect.isgeneratorfunction, inspect.isasyncgenfunction))):
        if any(test(handle) or test(called) for test in tests):
            raise TypeError(f"handle is {handle!r}, a {what} function, and calling it runs nothing of it: {_CURES[what]}")
    if isinstance(concurrency, bool):       # a number to Python
        raise illegal("concurrency", concurrency, f"give a whole number, 1 to {CONCURRENCY_MAX}")
    whole(concurrency, "concurrency", 1, CONCURRENCY_MAX)


def refuse_unrun(handle: Callable[..., object], result: object) -> None:
    """Raises TypeError where a handler, called, has not run: it hides a coroutine or generator function."""
    if isinstance(result, Coroutine | Generator):
        result.close()      # without a warning that nobody awaited it
    elif not isinstance(result, AsyncGenerator):
        return
    what = "coroutine" if isinstance(result, Coroutine) else "generator"
    raise TypeError(f"handle is {handle!r} and returned a {what}, of which nothing has run: {_CURES[what]}")
