"""The parts of a SQL92 expression, and what RocketMQ refuses about them (RocketMQ: filter/.../expression, 5.3.3).

Each maker checks its operands as RocketMQ's create methods do, and raises Refused with the place and a cure. Values keep Java's
types, because a property is converted to the type of what it is compared with: a literal that fits into 32 bits is an Integer.
"""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

DEPTH_MAX = 100                     # of NOT, signs, comparisons, AND and OR within one another; parentheses alone are none
LONG_MAX = (1 << 63) - 1
INTEGER_MAX = (1 << 31) - 1
DOUBLE_MAX = 1.7976931348623157e308
DOUBLE_MIN = 5e-324


class Refused(Exception):
    """The expression is not one. `at`: index of the character."""

    def __init__(self, at: int, reason: str, cure: str) -> None:
        super().__init__(at, reason, cure)
        self.at, self.reason, self.cure = at, reason, cure


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression that begins at character `at`, with so many levels of parts in it."""

    at: int
    depth: int
    boolean: ClassVar[bool] = True      # RocketMQ: a BooleanExpression


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """kind: "null", "boolean", "integer", "long", "double" or "text"."""

    kind: str
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Property(Node):
    """The value of a property: text, or null."""

    name: str
    boolean: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """A sign before something that is not a number literal: null, whatever it is."""

    operand: Node
    boolean: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Negative(Node):
    """A number literal behind one sign or more. RocketMQ takes it for no constant where it looks for such."""

    literal: Literal
    boolean: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """sign: "=", ">", ">=", "<" or "<="."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    operand: Node


@dataclass(frozen=True, slots=True)
class In(Node):
    name: Property
    texts: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search(Node):
    """word: "CONTAINS", "STARTSWITH" or "ENDSWITH"."""

    word: str
    operand: Node
    text: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """A property where a condition has to stand: false, as a property is text; null where the message lacks it."""

    name: Property


@dataclass(frozen=True, slots=True)
class Not(Node):
    operand: Node


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Conditions joined by one word, from left to right. word: "AND" or "OR"."""

    word: str
    parts: tuple[Node, ...]


def is_boolean(node: Node) -> bool:
    return node.kind in ("boolean", "null") if isinstance(node, Literal) else node.boolean


def deeper(at: int, parts: Iterable[Node]) -> int:
    """The depth of what holds `parts`."""
    depth = 1 + max(part.depth for part in parts)
    if depth > DEPTH_MAX:
        raise Refused(at, f"more than {DEPTH_MAX} levels stand within one another", "write the conditions side by side, with "
                      "AND and OR")
    return depth


def number(at: int, text: str) -> Literal:
    """An integer literal."""
    value = int(text.rstrip("lL")[:24])
    if value > LONG_MAX:
        raise Refused(at, f"the number is greater than {LONG_MAX}", "give a smaller one, or a decimal such as 1E20")
    return Literal(at, 1, "integer" if value <= INTEGER_MAX else "long", value)


def decimal(at: int, text: str) -> Literal:
    """A floating-point literal. RocketMQ refuses what is below the smallest positive double, which includes 0.0."""
    value = float(text)
    if not DOUBLE_MIN <= value <= DOUBLE_MAX:
        raise Refused(at, f"the decimal {text[:40]} is not between {DOUBLE_MIN} and {DOUBLE_MAX}",
                      "give 0 without a point for zero" if value == 0 else "give a smaller one")
    return Literal(at, 1, "double", value)


def condition(node: Node) -> Node:
    """What stands where a condition has to stand. RocketMQ: asBooleanExpression."""
    if is_boolean(node):
        return node
    if isinstance(node, Property):
        return Cast(node.at, deeper(node.at, [node]), node)
    raise Refused(node.at, "this is a value, and a condition must stand here", "compare it with something, as in a > 5")


def negated(at: int, operand: Node) -> Node:
    if isinstance(operand, Negative):
        operand = operand.literal
    if isinstance(operand, Literal) and operand.kind in ("integer", "long", "double"):
        assert isinstance(operand.value, int | float)
        return Negative(at, 1, Literal(at, 1, operand.kind, -operand.value))
    return Negate(at, deeper(at, [operand]), operand)


def inverse(at: int, operand: Node) -> Node:
    part = condition(operand)
    return Not(at, deeper(at, [part]), part)


def _ordered(node: Node) -> None:
    # RocketMQ: checkLessThanOperand.
    if isinstance(node, Literal):
        if node.kind not in ("integer", "long", "double"):
            raise Refused(node.at, "only numbers have an order, and this literal is none", "give a number, or compare with = "
                          "or <>")
    elif is_boolean(node):
        raise Refused(node.at, "only numbers have an order, and this is a condition", "join conditions with AND")


def ordering(sign: str, left: Node, right: Node) -> Node:
    _ordered(left)
    _ordered(right)
    return Compare(left.at, deeper(left.at, [left, right]), sign, left, right)


def equal(left: Node, right: Node) -> Node:
    for side in (left, right):
        if isinstance(side, Literal) and side.kind == "null":
            raise Refused(side.at, "nothing is equal to NULL", "write IS NULL or IS NOT NULL")
    if isinstance(left, Literal) and left.kind == "boolean" and isinstance(right, Literal) and right.kind != "boolean":
        raise Refused(left.at, "TRUE and FALSE cannot be compared with this literal", "compare a property with it")
    return Compare(left.at, deeper(left.at, [left, right]), "=", left, right)


def different(left: Node, right: Node) -> Node:
    return inverse(left.at, equal(left, right))


def is_null(operand: Node) -> Node:
    return IsNull(operand.at, deeper(operand.at, [operand]), operand)


def chain(word: str, parts: Sequence[Node]) -> Node:
    made = tuple(map(condition, parts))
    return Chain(made[0].at, deeper(made[0].at, made), word, made)


def between(value: Node, low: Node, high: Node) -> Node:
    if isinstance(low, Literal) and isinstance(high, Literal):
        for side in (low, high):
            if side.kind not in ("integer", "long", "double"):
                raise Refused(side.at, "a bound of BETWEEN is a number or a property, and this literal is neither",
                              "give a number")
        assert isinstance(low.value, int | float) and isinstance(high.value, int | float)
        if (float(high.value) < float(low.value) if "double" in (low.kind, high.kind) else high.value < low.value):
            raise Refused(low.at, f"BETWEEN {low.value} AND {high.value} has its bounds the wrong way round",
                          "give the lower one first")
    return chain("AND", [ordering(">=", value, low), ordering("<=", value, high)])


def not_between(value: Node, low: Node, high: Node) -> Node:
    return chain("OR", [ordering("<", value, low), ordering(">", value, high)])


def within(left: Node, texts: Sequence[str], without: bool) -> Node:
    if not isinstance(left, Property):
        raise Refused(left.at, "IN needs the name of a property before it", "write name IN ('a', 'b')")
    return In(left.at, 2, left, tuple(texts), without)


def search(word: str, left: Node, text: str, without: bool) -> Node:
    return Search(left.at, deeper(left.at, [left]), word, left, text, without)
