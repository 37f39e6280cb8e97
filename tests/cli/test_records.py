"""JSON lines byte for byte as Java writes them: each golden line survives reading and writing."""
import gzip
import json
import os
import pathlib

import pytest

from rmq_store.cli.records import Line, java_order, quote

GOLDEN = pathlib.Path(os.environ.get("RMQ_GOLDEN", pathlib.Path(__file__).parents[1] / "golden"))


@pytest.mark.parametrize("case", ["v4-plain", "v4-cqext", "v5-ipv6", "v5-crash-shortfile"])
def test_golden_lines_are_written_the_same(case):
    with gzip.open(GOLDEN / case / "expected.jsonl.gz", "rt") as lines:
        for text in lines:
            assert _line(json.loads(text)).text() == text.rstrip("\n")


def _line(fields):
    return Line(**{k: Line(**v) if k == "ext" else v for k, v in fields.items()})


def test_quoting_is_java_s():
    assert quote('a"b\\\n\x7f\u00e9\U0001f680') == '"a\\"b\\\\\\u000a\\u007f\\u00e9\\ud83d\\ude80"'


def test_order_is_by_utf16_units():
    assert sorted(["\uffee", "\U0001f680", "B", "a"], key=java_order) == ["B", "a", "\U0001f680", "\uffee"]
