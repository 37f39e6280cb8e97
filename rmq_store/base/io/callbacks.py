"""Functions of a program that a store calls: which ones calling would not run. Any thread.

Calling a coroutine or generator function runs nothing of it, so its work would count as done untouched.
"""
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

from rmq_store.errors import illegal

__all__ = ["check_callback", "refuse_unrun"]

_CURES = {"coroutine": "give a plain function", "generator": "give a function without yield"}


def check_callback(name: str, call: object, takes: str, *, awaits: bool = False, cure: str = "") -> None:
    """Raises ArgumentIllegal for what is not callable, and for a coroutine or generator function. takes: what to give. awaits:
    whether the caller awaits what is returned. cure: what else helps in place of a coroutine function."""
    if not callable(call):
        raise illegal(name, call, f"give a function {takes}")
    import inspect  # which loads much, for programs that give no function

    called = None if isinstance(call, type) else getattr(call, "__call__", None)    # noqa: B004  an object's own
    for what, tests in (("coroutine", () if awaits else (inspect.iscoroutinefunction,)),
                        ("generator", (inspect.isgeneratorfunction, inspect.isasyncgenfunction))):
        if any(test(call) or test(called) for test in tests):
            raise illegal(name, call, f"it is a {what} function, and calling it runs nothing of it: {_CURES[what]}"
                          + (cure if what == "coroutine" else ""))


def refuse_unrun(name: str, call: Callable[..., object], result: object) -> None:
    """Raises ArgumentIllegal where a function, called, has not run: it hides a coroutine or generator function."""
    if isinstance(result, Coroutine | Generator):
        result.close()      # without a warning that nobody awaited it
    elif not isinstance(result, AsyncGenerator):
        return
    what = "coroutine" if isinstance(result, Coroutine) else "generator"
    raise illegal(name, call, f"it returned a {what}, of which nothing has run: {_CURES[what]}")
