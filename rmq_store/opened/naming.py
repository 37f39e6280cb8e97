"""The names of a store's methods: it is built of parts, and an error that Python raises for a wrong call names the whole. Any
thread."""
from types import FunctionType
from typing import TypeVar

__all__ = ["whole_names"]

T = TypeVar("T", bound=type)


def whole_names(kind: T) -> T:
    """A class decorator: the public methods of its bases are called "MessageStore.prepare()", not "StoreServes.prepare()"."""
    for base in kind.__mro__[1:]:
        for name, member in vars(base).items() if base is not object else ():
            if isinstance(member, FunctionType) and not name.startswith("_"):
                member.__qualname__ = f"{kind.__name__}.{name}"
    return kind
