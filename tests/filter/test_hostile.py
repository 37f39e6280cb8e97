"""Expressions that somebody makes to harm, or by mistake. Each error has its place and a cure; none costs time or memory."""
import pickle

import pytest

from rmq_store import SqlFilter
from rmq_store.errors import ArgumentIllegal, FilterIllegal
from rmq_store.filter import grammar


@pytest.mark.parametrize(("sql", "position", "text"), [
    ("upper(a) = 'x'", 0, "function upper is unknown"), ("a = 1 AND now ()", 10, "function now is unknown"),
    ("a = 'it''s", 4, "no quote ends it: close it with '"), ("b = 'x' and a = 'y", 16, "no quote ends it"),
    ("a between 10 and 0", 10, "wrong way round: give the lower one first"), ("a == 3", 2, "write ="),
    ("a != 3", 2, "write <>"),
    ("a = 3 && b = 4", 6, "write AND"), ('a = "x"', 4, "single quotes"), ("a like 'x%'", 2, "write CONTAINS"),
    ("a = NULL", 4, "write IS NULL"), ("a > 'x'", 4, "only numbers have an order"), ("5", 0, "a condition must stand here"),
    ("(a = 1", 6, "the text ends"), ("a = 1)", 5, "the end"), ("a = 1 b = 2", 6, "'b' is not expected"), ("a = 007", 5, "'0'"),
    ("/* a", 0, "close the comment"), ("a in (3)", 6, "a text in single quotes"), ("'a' in ('a')", 0, "name of a property"),
    ("a = 1 AND", 9, "the text ends"), ("a.b = 1", 1, "letters, digits, _ and $"), ("a = 0.0", 4, "give 0 without a point"),
    ("a = \ud800", 4, "surrogate"), ("a % 2 = 1", 2, "not part of the language"), ("a = 'x' OR b > TRUE", 15, "order"),
    ("a between 'x' and 'y'", 10, "give a number"), ("a > (b = 1)", 5, "this is a condition"),
    ("TRUE = 1", 0, "TRUE and FALSE"),
    ("a = 9223372036854775808", 4, "greater than 9223372036854775807"), ("a is 5", 5, "NOT  NULL"),
])
def test_errors_have_a_place_and_a_cure(sql, position, text):
    with pytest.raises(FilterIllegal) as caught:
        SqlFilter(sql)
    assert caught.value.position == position
    assert text in str(caught.value)
    assert caught.value.cure
    assert f"character {position + 1}" in str(caught.value)
    assert isinstance(caught.value, ArgumentIllegal)


@pytest.mark.parametrize("sql", [
    "NOT " * 10_000 + "a", "a" + " = b" * 5_000, "-(" * 3_000 + "a" + ")" * 3_000 + " > 1", "a > 1 OR " * 6_000 + "a > 1",
    "a = '" + "x" * (1 << 16) + "'", " OR ".join(f"p{i} > 1" for i in range(65)), "(" * 60_000, "a = 1 " + "/*" * 30_000,
    "a = " + "'" * 65_001, "a > " + "9" * 60_000, "a > 1" + "0" * 5_000 + ".0", "a" * 60_000 + "(", "a" * 60_000 + " = 5 (",
    "NOT (a IN ('x') AND " * 90 + "b" + ")" * 90 + " OR a IN (" + ", ".join(f"'{i}'" for i in range(8_192)) + ")"])
def test_what_is_too_large_is_refused(sql):
    with pytest.raises(FilterIllegal):
        SqlFilter(sql)


def test_signs_that_double_the_program_end_at_its_limit():
    sql = "a = 1"
    for _ in range(25):
        sql = f"-({sql}) between 1 and 2"
    with pytest.raises(FilterIllegal, match="4096 steps"):
        SqlFilter(sql)


def test_what_is_large_and_allowed_works():
    texts = [f"name-{i}" for i in range(5_000)]
    chosen = SqlFilter("a IN (" + ", ".join(f"'{t}'" for t in texts) + ")")
    assert all(chosen.evaluate({"a": t}) for t in texts[::97])
    assert chosen.evaluate({"a": "name-5000"}) is False
    wide = SqlFilter(" OR ".join(f"a = {i}" for i in range(1_000)))
    assert wide.evaluate({"a": "999"}) is True
    assert wide.evaluate({"a": "1000"}) is False
    deep = SqlFilter("(a = 1 AND " * 40 + "a = 1" + ")" * 40)
    assert deep.evaluate({"a": "1"}) is True
    names = SqlFilter(" AND ".join(f"p{i} = {i}" for i in range(64)))
    assert names.evaluate({f"p{i}": str(i) for i in range(64)}) is True
    assert SqlFilter("(" * 5_000 + "a = 1" + ")" * 5_000).evaluate({"a": "1"}) is True


@pytest.mark.parametrize("sql", [None, 5, b"a > 1", ["a > 1"], object()])
def test_what_is_no_text_is_refused(sql):
    with pytest.raises(ArgumentIllegal, match="sql is"):
        SqlFilter(sql)


def test_a_subclass_of_str_is_its_text():
    class Text(str):
        def __str__(self):
            raise AssertionError("is not asked")

        __hash__ = __eq__ = encode = __str__

    assert SqlFilter(Text("a > 1")).evaluate({"a": "2"}) is True


def test_is_a_value():
    one = SqlFilter("a > 1")
    assert one == SqlFilter("a > 1") != SqlFilter("a > 2")
    assert pickle.loads(pickle.dumps(one)) == one
    assert len({one, SqlFilter("a > 1")}) == 1
    assert repr(one) == "SqlFilter('a > 1')"
    assert one.sql == "a > 1"


def test_a_program_that_is_too_long_is_refused_before_it_is_parsed(monkeypatch):
    parsed = []
    monkeypatch.setattr(grammar, "_parser", lambda: parsed.append(1))
    for word in ("OR", "and", "Or"):
        sql = f" {word} ".join(["a=1"] * 8_000)
        with pytest.raises(FilterIllegal, match="4096 steps") as refused:
            SqlFilter(sql)
        assert sql[refused.value.position:].startswith(f"{word} a=1") and refused.value.position < 12_000
    assert parsed == []


def test_words_that_make_no_steps_are_not_counted():
    assert SqlFilter(" OR ".join(["a=1"] * 1_365)).evaluate({"a": "1"}) is True
    with pytest.raises(FilterIllegal, match="4096 steps"):
        SqlFilter(" OR ".join(["a=1"] * 1_367))
    words = "AND OR " * 2_000
    assert SqlFilter(f"a = '{words}' /* {words} */ OR b = 1 -- {words}").evaluate({"a": words, "b": "2"}) is True
    assert SqlFilter(" OR ".join(["a BETWEEN 1 AND 2"] * 500)).evaluate({"a": "2"}) is True
    assert SqlFilter(" OR ".join(["$or=1 AND or$=1 AND nor=1"] * 400)).evaluate({"$or": "1", "or$": "1", "nor": "1"}) is True
