"""RocketMQ's own evaluator of SQL92 filters says what ours says: of hand-made cases, random expressions and numbers in text.

Differences that are meant: RocketMQ ignores what stands behind a complete expression, and has no limits; see docs/filtering.md.
"""
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rmq_store import SqlFilter
from rmq_store.codec._properties import encode_properties
from rmq_store.errors import FilterFailed, FilterIllegal
from tests.filter import random_expressions

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "filter_with_rocketmq.sh"


class Evaluator:
    """One JVM with the filter module of one version."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.process = subprocess.Popen([SCRIPT, "--rocketmq", version], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            reason = self.process.stderr.read().decode().strip()
            assert self.process.wait() == 77, reason
            pytest.skip(f"RocketMQ's evaluator cannot run here: {reason}")

    def ask(self, cases: list[tuple[str, bytes]]) -> list[str]:
        answers = []
        for begin in range(0, len(cases), 200):
            part = cases[begin:begin + 200]
            self.process.stdin.write(b"".join(
                f"eval\t{sql.encode().hex()}\t{properties.hex()}\n".encode() for sql, properties in part))
            self.process.stdin.flush()
            answers += [self.process.stdout.readline().decode().strip() for _ in part]
        return answers


@pytest.fixture(scope="module", params=["5.3.3", "4.9.7"])
def java(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    evaluator = Evaluator(request.param)
    yield evaluator
    evaluator.process.kill()
    evaluator.process.communicate()


def ours(sql: str, properties: bytes) -> str:
    try:
        return {True: "TRUE", False: "FALSE", None: "NULL"}[SqlFilter(sql).evaluate(properties)]
    except FilterIllegal:
        return "ILLEGAL"
    except FilterFailed:
        return "FAILED"


def compare(java: Evaluator, cases: list[tuple[str, bytes]]) -> None:
    wrong = [(sql, properties, theirs, mine) for (sql, properties), theirs in zip(cases, java.ask(cases), strict=True)
             if (mine := ours(sql, properties)) != theirs]
    assert not wrong, "\n".join(f"{sql!r} of {properties!r}: RocketMQ {java.version} {theirs}, ours {mine}"
                                for sql, properties, theirs, mine in wrong[:20])


TEXTS = [
    "3", "+3", "-3", "03", "3.0", "3.", ".3", " 3", "3 ", "3d", "3L", "3F", "0x1p1", "0x1.8P-1f", "0x1", "1e3", "1E+3",
    "1e", "NaN", "-NaN", "Infinity", "-Infinity", "infinity", "-0.0", "0.0", "٣", "३", "３", "𝟛", "x", "true", "TRUE",
    "tRuE", "t", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "1e400", "1e-400", "4.9e-324", "2.4703282292062327e-324",
    "9007199254740993", "0." + "0" * 330 + "1", "1" * 320, "+", "-", ".", "e5", "1_0", "1,0", "١٢.٥", "\u00a03", "日本",
    "it's",
]
CONDITIONS = [
    "a > 3", "a <= 3", "a = 3", "a <> 3", "a > 3.5", "a = 3.0", "a < -2", "a >= 2147483648", "a = 2147483648", "a = 3L",
    "a = TRUE", "a <> FALSE", "TRUE = a", "3 = a", "3.0 < a", "a = '3'", "'3' = 3", "a > b", "a = b", "a <> b", "a",
    "NOT a", "a IS NULL", "a IS NOT NULL", "-a IS NULL", "-a > 3", "a > -b", "a BETWEEN 1 AND 5", "a BETWEEN b AND 5",
    "a NOT BETWEEN 1 AND 5", "a NOT BETWEEN 5 AND 1", "a IN ('3', 'x', 'true')", "a NOT IN ('3')", "b IN ('3')",
    "(a > 3) IS NULL", "(a > 3) = (b > 3)", "(a = 3) = TRUE", "(a = 3) = 1", "1 = TRUE", "a = (b IS NULL)",
    "a = 3 AND b = 3", "a = 3 OR b = 3", "b = 3 AND a > 3", "b = 3 OR a > 3", "NOT (a > 3)", "NOT a = 3",
    "FALSE AND a > 3", "TRUE OR a > 3", "a > 3 AND FALSE", "a > 3 OR TRUE", "NULL", "NULL IS NULL", "NULL AND FALSE",
    "a > -(b > 3)", "-(a > 3) IS NULL", "b > -(a > 3)", "a = b = c", "- - 5 = a", "-5.5 < a", "a = 1E23",
]
SEARCHES = [
    "a CONTAINS '3'", "a NOT CONTAINS '3'", "a STARTSWITH '3'", "a NOT STARTSWITH 'x'", "a ENDSWITH '3'",
    "a NOT ENDSWITH '3'", "b CONTAINS 'x'", "b NOT CONTAINS 'x'", "a CONTAINS ''", "a NOT CONTAINS ''",
    "(a > 3) CONTAINS ''", "(a > 3) CONTAINS 'x'", "a CONTAINS '\ufffd'", "'axb' ENDSWITH 'b'", "5 CONTAINS '5'",
]
REFUSED = [
    "", " ", "a >", "a and between 2 and 10", "a = 9223372036854775808", "a = 0.0", "a > 1e999", "a between 10 and 0",
    "a = 'x", "a = NULL", "NULL = a", "5", "'x'", "-5", "-a", "a > 'x'", "a > TRUE", "a > NULL", "TRUE = 1",
    "'a' in ('b')", "a in (1)", "a in ()", "a between 'a' and 'b'", "a between 5 and 4.5", "a > (b = 1)", "5 AND a",
    "NOT 5", "(a", "a = ", "and", "a is 5", "! a", "\"a\" = 1", "a between NULL and 5", "a between TRUE and FALSE",
    "a contains = 3",
]
STORED = [b"", b"a\x01", b"\x01a\x02", b"a", b"a\x013\x02a\x014\x02", b"a\x013\x01b\x014", b"a\x01\xff\x02", b"a\x01\xe6\x97",
          b"a\x01\xed\xa0\x80\x02",
          b"a\x01\xf0\x9f\x98\x02b\x01\xef\xbf\xbd\x02", b"\x02\x02a\x013", b"A\x013\x02", b"a \x013\x02",
          b"a\x01\xc0\xaf\x02b\x01\xef\xbf\xbd\xef\xbf\xbd", "a\x01é\x02b\x01é".encode()]


def test_hand_made_cases(java: Evaluator) -> None:
    chosen = CONDITIONS + (SEARCHES if java.version != "4.9.7" else [])
    compare(java, [(sql, encode_properties({"a": text})) for sql in chosen for text in TEXTS])
    compare(java, [(sql, encode_properties({"a": text, "b": TEXTS[i * 7 % len(TEXTS)], "c": "true"}))
                   for sql in chosen for i, text in enumerate(TEXTS)])
    compare(java, [(sql, properties) for sql in chosen for properties in STORED])


def test_what_is_refused(java: Evaluator) -> None:
    compare(java, [(sql, b"") for sql in REFUSED if java.version != "4.9.7" or "contains" not in sql])


def test_random_expressions(java: Evaluator) -> None:
    cases: list[tuple[str, bytes]] = []

    @settings(max_examples=1_000, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(random_expressions.conditions, random_expressions.properties)
    def collect(condition, properties):
        if java.version != "4.9.7" or not any(word in condition[0] for word in ("contains", "startswith", "endswith")):
            cases.append((condition[0], encode_properties(properties)))

    collect()
    assert len(cases) > 200
    compare(java, cases)


def test_random_numbers_in_text(java: Evaluator) -> None:
    chance = random.Random(20)
    cases = []
    for _ in range(2_000):
        digits = "".join(chance.choices("0123456789", k=chance.choice([1, 3, 9, 16, 17, 18, 25, 400])))
        text = chance.choice(["", "-", "+"]) + digits
        if chance.random() < 0.6:
            text = text[:-1] + "." + text[-1] if chance.random() < 0.5 else text[:2] + "." + text[2:]
        if chance.random() < 0.5:
            text += f"e{chance.choice(['', '-'])}{chance.choice([1, 17, 22, 23, 300, 308, 320, 400])}"
        near = repr(float(text)) if text[-1:] != "." and text not in ("-", "+") else "1"
        cases.append((chance.choice(["a > b", "a = 3", "a <= b", "a >= 9007199254740992", "a < 1E22"]),
                      encode_properties({"a": text, "b": near})))
    compare(java, cases)


def test_what_stands_behind_an_expression_is_refused_where_rocketmq_ignores_it(java: Evaluator) -> None:
    for sql in ("a = 1 b = 2", "a = 007", "a.5", "a = 1)"):
        assert java.ask([(sql, b"a\x011\x02")]) != ["ILLEGAL"]
        assert ours(sql, b"a\x011\x02") == "ILLEGAL"
