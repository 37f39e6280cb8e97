"""Records whose fields can change: equality and text over `__slots__`. A record that never changes is a NamedTuple.

Either is made in a tenth of the time that a dataclass takes, whose module alone loads more than a small store does. A broker
imports fifty classes of NamedTuple before it serves, and typing's took a tenth of that time: this one compiles the `__new__` of
a class when the first record of it is made.
"""
import sys
from operator import itemgetter
from typing import TYPE_CHECKING, Any

__all__ = ["Fields", "NamedTuple"]

if TYPE_CHECKING or sys.version_info >= (3, 14):        # since 3.14 annotations are evaluated when somebody asks for them
    from typing import NamedTuple
else:
    def _new(cls, /, *values, **named):
        defaults = cls._field_defaults
        space = {"_made": tuple.__new__, "__builtins__": {}, "__name__": f"namedtuple_{cls.__name__}"}
        fields = ", ".join(cls._fields)
        made = eval(f"lambda _cls, {fields}: _made(_cls, ({fields}{',' if fields else ''}))", space)
        made.__name__, made.__qualname__, made.__module__ = "__new__", f"{cls.__qualname__}.__new__", cls.__module__
        made.__defaults__ = tuple(defaults.values())
        cls.__new__ = made
        return cls(*values, **named)

    class _Record(tuple):
        __slots__ = ()
        _fields = ()

        @classmethod
        def _make(cls, iterable):
            made = tuple.__new__(cls, iterable)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **changes):
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"Got unexpected field names: {[*changes]!r}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    class _Maker(type):
        def __new__(cls, name, bases, space):
            if not bases:
                return type.__new__(cls, name, bases, space)
            fields = tuple(space.get("__annotations__", ()))
            space["_field_defaults"] = {field: space[field] for field in fields if field in space}
            space |= {field: property(itemgetter(at)) for at, field in enumerate(fields)}
            return type(name, (_Record,), {**space, "__slots__": (), "_fields": fields, "__match_args__": fields,
                                           "__new__": _new})

    class NamedTuple(metaclass=_Maker):
        """typing.NamedTuple, as a base class only. Any thread."""


class Fields:
    """A class of it names its fields in `__slots__`, in the order of its __init__."""

    __slots__: tuple[str, ...] = ()

    def _asdict(self) -> dict[str, Any]:
        """By name, as of a NamedTuple."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None     # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"
