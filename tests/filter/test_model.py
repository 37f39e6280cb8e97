"""Filters do what a slow model of RocketMQ's evaluator does, over random expressions and properties."""
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq_store import SqlFilter
from rmq_store.codec._properties import decode_properties
from rmq_store.errors import FilterFailed
from tests.filter import java_model as java
from tests.filter import random_expressions as random


def evaluated(sql, properties):
    try:
        return SqlFilter(sql).evaluate(properties)
    except FilterFailed:
        return "failed"


def modelled(condition, properties):
    try:
        return condition(properties)
    except java.Failed:
        return "failed"


@settings(max_examples=400, deadline=None)
@given(random.conditions, random.properties)
def test_as_the_model(condition, properties):
    sql, model = condition
    found = evaluated(sql, properties)
    assert found is modelled(model, properties) or found == modelled(model, properties) == "failed", sql
    assert SqlFilter(sql).matches(properties) is (found is True)


numeric = st.text("0123456789.eE+-xXpPabcdfNI ٣", max_size=12) | st.floats().map(repr) | st.floats().map(float.hex) | st.text(
    "0123456789.", min_size=20, max_size=1200) | st.integers().map(str)


@settings(max_examples=400, deadline=None)
@given(numeric.filter(lambda text: text), numeric.filter(lambda text: text), st.sampled_from(
    ["a > b", "a <= b", "a = 3", "a >= 2147483648", "a < 3.5", "a = 1E23"]))
@example("9007199254740993", "9007199254740992.9999999999999999999999999999999999999999999999999", "a > b")
@example("0." + "0" * 400 + "1e401", "1.0", "a >= b")
@example("1" * 900 + "e-899", "1.1111111111111112", "a <= b")
@example("4.9e-324", "2.4703282292062327e-324", "a > b")
@example("0x1.00000000000008p0", "1", "a > b")
@example("0x1.000000000000080000001p0", "1", "a > b")
@example("-9223372036854775808", "x", "a >= 2147483648")
@example("1e99999999999999999999", "1", "a > b")
@example("0e99999999999999999999", "1", "a > b")
def test_numbers_in_text(a, b, sql):
    value = {"a": a, "b": b}
    sign, right = sql.split()[1], sql.split()[2]
    other = lambda p: b if right == "b" else float(right) if "." in right or "E" in right else java.Whole(  # noqa: E731
        int(right), java.LONG if int(right) > 1 << 31 else java.INTEGER) if int(right) != 1 << 31 else java.Whole(1 << 31, 63)
    model = (lambda p: java.equal(a, other(p))) if sign == "=" else lambda p: java.ordered(sign, a, other(p))
    assert evaluated(sql, value) == modelled(model, value)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"", b"ab"]), st.binary(max_size=6))), st.binary(max_size=4),
       st.sampled_from(["a = 'x\ufffd'", "a contains '\ufffd'", "a startswith 'é'", "a endswith '\ufffd'", "a contains 'é'",
                        "a in ('\ufffd', 'é', 'x')", "a in ('é', 'x')", "a = b", "a > 3"]))
def test_stored_bytes_of_any_kind(pieces, end, sql):
    """Broken UTF-8, missing separators, a name that comes twice: the program sees what Java's decoder gives."""
    data = b"\x02".join(name + b"\x01" + value for name, value in pieces) + end
    properties = decode_properties(data)
    model = {
        "a = 'x\ufffd'": lambda p: java.equal(p.get("a"), "x\ufffd"),
        "a contains '\ufffd'": lambda p: java.search("contains", p.get("a"), "\ufffd", False),
        "a startswith 'é'": lambda p: java.search("startswith", p.get("a"), "é", False),
        "a endswith '\ufffd'": lambda p: java.search("endswith", p.get("a"), "\ufffd", False),
        "a contains 'é'": lambda p: java.search("contains", p.get("a"), "é", False),
        "a in ('\ufffd', 'é', 'x')": lambda p: p["a"] in ("\ufffd", "é", "x") if "a" in p else None,
        "a in ('é', 'x')": lambda p: p["a"] in ("é", "x") if "a" in p else None,
        "a = b": lambda p: java.equal(p.get("a"), p.get("b")),
        "a > 3": lambda p: java.ordered(">", p.get("a"), java.Whole(3, java.INTEGER)),
    }[sql]
    assert evaluated(sql, data) == modelled(model, properties)
