"""NamedTuple of rmq_store.fields is typing's: the same class is made by both, and does the same."""
import copy
import pickle
import typing

import pytest

from rmq_store import fields


class Ours(fields.NamedTuple):
    """A record."""

    first: int
    second: str = "x"

    def both(self):
        return f"{self.first}{self.second}"


class Theirs(typing.NamedTuple):
    first: int
    second: str = "x"


class Empty(fields.NamedTuple):
    pass


CALLS = [lambda cls: cls(), lambda cls: cls(1, 2, 3), lambda cls: cls(1, first=2), lambda cls: cls(1, third=2),
         lambda cls: cls._make((1,)), lambda cls: cls(1)._replace(third=1), lambda cls: setattr(cls(1), "first", 2),
         lambda cls: cls(1).third, lambda cls: setattr(cls(1), "third", 2)]


@pytest.mark.parametrize("call", CALLS)
def test_what_is_refused(call):
    errors = []
    for cls in (Theirs, Ours):
        with pytest.raises((TypeError, ValueError, AttributeError)) as told:
            call(cls)
        errors.append(type(told.value))
    assert errors[0] is errors[1]


def test_values():
    record = Ours(1)
    assert record == (1, "x") == Theirs(1) and hash(record) == hash(Theirs(1))
    assert (record.first, record.second, record.both()) == (1, "x", "1x")
    assert repr(record) == "Ours(first=1, second='x')" and Ours.__doc__ == "A record."
    assert Ours(second="y", first=2) == Ours._make((2, "y")) == record._replace(first=2, second="y")
    assert record._asdict() == {"first": 1, "second": "x"}
    assert (Ours._fields, Ours._field_defaults, Ours.__match_args__) == (("first", "second"), {"second": "x"}, Ours._fields)
    assert typing.get_type_hints(Ours) == {"first": int, "second": str}
    assert Empty() == () and repr(Empty()) == "Empty()"
    assert not hasattr(record, "__dict__")


def test_copies():
    record = Ours(1, "é")
    for copied in (copy.copy(record), copy.deepcopy(record), *(pickle.loads(pickle.dumps(record, p)) for p in range(6))):
        assert copied == record and type(copied) is Ours


def test_a_class_below_it():
    class Below(Ours):
        def both(self):
            return "below"

    assert Below(1).both() == "below" and Below(1)._replace(first=3) == (3, "x") and Ours(1).both() == "1x"
    assert type(Below(1)) is Below
