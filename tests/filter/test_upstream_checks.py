"""The checks of RocketMQ's own tests of filters (ExpressionTest, ParserTest): FLT-06 to FLT-16 and FLT-20 to FLT-22."""
import pytest

from rmq_store import SqlFilter
from rmq_store.errors import FilterFailed, FilterIllegal

AND = "a=3 and b<>4 And c>5 AND d<=4"
OR = "a=3 or b<>4 Or c>5 OR d<=4"


def values(*numbers):
    return dict(zip("abcd", map(str, numbers), strict=False))


@pytest.mark.parametrize(("sql", "properties", "found"), [
    # FLT-06, FLT-07
    (AND, values(3, 5, 6, 1), True), (AND, values(4, 5, 6, 1), False), (AND, values(3, 4, 6, 1), False),
    (AND, values(3, 5, 5, 1), False), (AND, values(3, 5, 6, 10), False),
    (OR, values(3), True), (OR, {"b": "5"}, True), (OR, {"c": "6"}, True), (OR, {"d": "1"}, True),
    (OR, values(4, 4, 3, 10), False),
    # FLT-08
    ("a in ('3','4','5')", values(3), True), ("a in ('3','4','5')", values(8), False),
    ("a not in ('3','4','5')", values(3), False), ("a not in ('3','4','5')", values(8), True),
    # FLT-09
    *[("a between 2 and 10", values(n), 2 <= n <= 10) for n in (1, 2, 3, 10, 11)],
    *[("a not between 2 and 10", values(n), not 2 <= n <= 10) for n in (1, 2, 3, 10, 11)],
    # FLT-10
    ("a is null", {}, True), ("a is null", values(2), False), ("a is not null", {}, False), ("a is not null", values(2), True),
    ("a is null OR a='hello'", {}, True), ("a is null OR a='hello'", {"a": "hello"}, True),
    ("a is null OR a='hello'", {"a": "abc"}, False), ("a is not null and a='hello'", {"a": "hello"}, True),
    ("a is not null and a='hello'", {}, False),
    # FLT-11
    ("a=TRUE OR b=FALSE", {"a": "true", "b": "false"}, True), ("a=TRUE OR b=FALSE", {"a": "false", "b": "true"}, False),
    # FLT-12
    ("a > 3.14", {"a": "3.1415"}, True), ("a > 3.1E10", {"a": "3.1415E10"}, True), ("a > b", {"a": "10", "b": "20"}, False),
    ("a > b", {"a": "20", "b": "10"}, True),
    # FLT-13
    ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, True),
    # FLT-14
    ("a between up and low", {"a": "3.14"}, None), ("a=b", {"a": "3.14", "b": "3.14"}, True),
    ("a<>b", {"a": "3.14", "b": "3.14"}, False), ("a<>b", {"a": "3.14", "b": "3.141"}, True),
    # FLT-20
    *[(f"value {word} '{text}'", {"value": "axb"}, True)
      for word, text in (("contains", "x"), ("startswith", "ax"), ("endswith", "xb"))],
    *[(f"value not {word} '{text}'", {"value": "axb"}, False)
      for word, text in (("contains", "x"), ("startswith", "ax"), ("endswith", "xb"))],
    *[(f"value {word} 'u'", {"value": "axb"}, False) for word in ("contains", "startswith", "endswith")],
    *[(f"value not {word} 'u'", {"value": "axb"}, True) for word in ("contains", "startswith", "endswith")],
    # FLT-21
    *[(f"{value} {negated}{word} {text}", {"value": "axb"}, False) for word in ("contains", "startswith", "endswith")
      for negated in ("", "not ") for value, text in (
          ("value", "''"), ("missing", "'x'"), ("5", "'5'"), ("TRUE", "'x'"), ("(a = 3)", "'x'"))],
    # FLT-22: a literal on the left
    ("'axb' contains 'x'", {}, True), ("'axb' not contains 'x'", {}, False), ("' ' contains ' '", {}, True),
    ("'s' contains '\\'", {}, False), ("'axb' contains '.'", {}, False),
    ("a not in ('4', '4', '5') and b between 3 and 10 and c not contains 'axbc'", {"a": "3", "b": "3", "c": "axbdc"}, True),
])
def test_evaluates(sql, properties, found):
    assert SqlFilter(sql).evaluate(properties) is found


@pytest.mark.parametrize(("sql", "properties"), [       # FLT-14
    ("a between up and low", {"a": "3.14", "up": "up", "low": "low"}), ("a between 0 and 100", {"a": "abc"}),
    ("key is not null and key between 0 and 100", {"key": "con"}), ("a > 3", {"a": "3.5"}), ("TRUE = a", {"a": "true"})])
def test_what_cannot_be_compared_fails_and_does_not_match(sql, properties):
    with pytest.raises(FilterFailed, match="not of the type"):
        SqlFilter(sql).evaluate(properties)
    assert SqlFilter(sql).matches(properties) is False


def test_keywords_in_any_case_and_blanks():         # FLT-15
    parts = {"a": "3", "b": "5"}
    for sql in ("a=3 AND b<>4", "a = 3   aNd\tb <> 4", "a=3 and\n b<>4 -- and a comment", "a /* = 4 or a */ = 3 and b<>4"):
        assert SqlFilter(sql).evaluate(parts) is True
    assert SqlFilter("a <= now").evaluate({"a": "3", "now": "4"}) is True


@pytest.mark.parametrize("sql", [                   # FLT-15, FLT-16, FLT-22
    "a and between 2 and 10", "a = 111111111111111111111111", "a > 1" + "0" * 400 + ".5", "a between 10 and 0", "", "  ",
    "value contains x", "value contains 123", "'axb' contains ", "value not contains x", "value not contains 123"])
def test_refuses(sql):
    with pytest.raises(FilterIllegal):
        SqlFilter(sql)
