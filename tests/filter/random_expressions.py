"""Random SQL92 expressions, each as its text and as a function of the model: no parser is between the two."""
from typing import Any

from hypothesis import strategies as st

from tests.filter import java_model as java

NAMES = ("a", "b", "c", "TAGS", "_x$1")
VALUES = ("3", "3.5", "-7", "+2", "abc", "true", "TRUE", "false", "it's", "1e3", " 4 ", "0x1p3", "NaN", "-0.0", "0.0",
          "2147483648", "9223372036854775808", "é", "٣", "x y", "3d", "Infinity", ".5", "5.", "1e400", "-", "日本", "\ufffd")
TEXTS = ("3", "abc", "", "it's", "true", "é", "a", "c", "日", "\ufffd", " ")

properties = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES) | st.integers(-9, 9).map(str)
                             | st.floats(allow_nan=False).map(repr), max_size=5)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(text: str, value: Any) -> tuple[str, Any]:
    return text, lambda _: value


def property_of(name: str) -> tuple[str, Any]:
    return name, lambda p: p.get(name)


names = st.sampled_from(NAMES).map(property_of)
integers = st.sampled_from([0, 1, 2, 3, 7, 2147483647]).map(lambda n: literal(str(n), java.Whole(n, java.INTEGER)))
longs = st.sampled_from([2147483648, 9223372036854775807]).map(lambda n: literal(f"{n}L", java.Whole(n, java.LONG)))
doubles = st.sampled_from(["3.0", "3.5", "1E3", ".5", "5.", "1e-5", "2147483648.0"]).map(lambda t: literal(t, float(t)))
texts = st.sampled_from(TEXTS).map(lambda t: literal(quoted(t), t))
booleans = st.sampled_from([("TRUE", True), ("false", False)]).map(lambda pair: literal(*pair))
positive = integers | longs | doubles


def _minus(number: tuple[str, Any]) -> tuple[str, Any]:
    text, value = number
    found = value({})
    return f"- {text}", lambda _: -found if isinstance(found, float) else found._replace(value=-found.value)


numbers = positive | positive.map(_minus) | st.sampled_from(NAMES).map(lambda name: (f"-{name}", lambda _: None))


def _signed(condition: tuple[str, Any]) -> tuple[str, Any]:
    # A sign before a condition: null, once the condition is evaluated.
    def evaluate(p: Any) -> None:
        condition[1](p)

    return f"-({condition[0]})", evaluate


def _equality(pair: tuple[tuple[str, Any], tuple[str, Any]], unequal: bool) -> tuple[str, Any]:
    (left, a), (right, b) = pair
    same = lambda p: java.equal(a(p), b(p))      # noqa: E731
    return f"{left} {'<>' if unequal else '='} {right}", java.inverse(same) if unequal else same


def _order(sign: str, left: Any, right: Any) -> Any:
    # The right side is not evaluated where the left one is null.
    def evaluate(p: Any) -> bool | None:
        value = left(p)
        return None if value is None else java.ordered(sign, value, right(p))

    return evaluate


def _ordering(pair: tuple[tuple[str, Any], tuple[str, Any]], sign: str) -> tuple[str, Any]:
    (left, a), (right, b) = pair
    return f"{left} {sign} {right}", _order(sign, a, b)


def _between(parts: tuple[tuple[str, Any], ...], without: bool) -> tuple[str, Any]:
    (value, v), (low, x), (high, y) = parts
    if without:
        return f"{value} NOT BETWEEN {low} AND {high}", java.both(_order("<", v, x), _order(">", v, y), True)
    return f"{value} between {low} And {high}", java.both(_order(">=", v, x), _order("<=", v, y), False)


def _within(name: tuple[str, Any], among: list[str], without: bool) -> tuple[str, Any]:
    def evaluate(p: Any) -> bool | None:
        value = name[1](p)
        return None if value is None else (value in among) is not without

    return f"{name[0]} {'NOT ' if without else ''}IN ({', '.join(map(quoted, among))})", evaluate


def _search(value: tuple[str, Any], word: str, text: str, without: bool) -> tuple[str, Any]:
    return (f"{value[0]} {'not ' if without else ''}{word} {quoted(text)}",
            lambda p: java.search(word, value[1](p) if text else None, text, without))


def _is_null(value: tuple[str, Any], without: bool) -> tuple[str, Any]:
    return f"{value[0]} IS {'NOT ' if without else ''}NULL", lambda p: (value[1](p) is None) is not without


def _cast(name: tuple[str, Any]) -> tuple[str, Any]:
    return name[0], lambda p: None if name[1](p) is None else False


# BETWEEN with two literals in the wrong order is refused: one bound is a property, or they are in order.
bounds = st.tuples(names, numbers) | st.tuples(numbers, names) | st.just((literal("2", java.Whole(2, 31)), literal("3.5", 3.5)))


def _leaves(value: Any) -> Any:
    """Conditions over `value`, which gives more than names and literals where there are conditions already."""
    equalities = st.tuples(value | names, value | positive | texts | booleans) | st.tuples(positive | texts, value)
    return (st.builds(_equality, equalities, st.booleans())
            | st.builds(_ordering, st.tuples(names | numbers, names | numbers), st.sampled_from([">", ">=", "<", "<="]))
            | st.builds(lambda v, b, n: _between((v, *b), n), names | numbers, bounds, st.booleans())
            | st.builds(_within, names, st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6), st.booleans())
            | st.builds(_search, value | texts, st.sampled_from(["contains", "startswith", "endswith"]),
                        st.sampled_from(TEXTS), st.booleans())
            | st.builds(_is_null, value, st.booleans()) | names.map(_cast) | booleans)


def _is_part(condition: tuple[str, Any]) -> bool:
    # Parentheses around a name or a literal leave it what it is: no condition.
    return condition[0].strip("() ") not in (*NAMES, "TRUE", "false")


def _grown(inner: Any) -> Any:
    group = inner.map(lambda c: (f"({c[0]})", c[1]))
    part = group
    return (st.tuples(part, part).map(lambda p: (f"{p[0][0]} AND {p[1][0]}", java.both(p[0][1], p[1][1], False)))
            | st.tuples(part, part, part).map(lambda p: (f"{p[0][0]} or {p[1][0]} OR {p[2][0]}", java.both(
                java.both(p[0][1], p[1][1], True), p[2][1], True)))
            | part.map(lambda c: (f"NOT {c[0]}", java.inverse(c[1])))
            | _leaves(names | group.filter(_is_part) | inner.map(_signed))
            | st.builds(_ordering, st.tuples(names | numbers | inner.map(_signed), names | inner.map(_signed)),
                        st.sampled_from([">", "<="])))


conditions = st.recursive(_leaves(names), _grown, max_leaves=8)
