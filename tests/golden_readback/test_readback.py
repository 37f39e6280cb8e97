"""Each store written by the real RocketMQ reads back line for line as the real store read it: recovery, queues, times, gets,
keys and the log, through the command `readback --like`. For the crash cases the archive is the state before recovery."""
import gzip
import json
import subprocess
import sys

import pytest

from tests import golden_store
from tests.golden_store import GOLDEN

CASES = golden_store.cases()


def unpack(case, where):
    return golden_store.unpack(case, where).store


def readback(case, store, *more):
    about = json.loads((GOLDEN / case / "case.json").read_text())
    options = [part for name, value in about["config"].items() for part in ("-o", f"{name}={value}")]
    compat = "4.9" if about["rocketmq"].startswith("4.") else "5.x"
    done = subprocess.run([sys.executable, "-m", "rmq_store", "readback", str(store), "--compat", compat, *options, *more],
                          capture_output=True, text=True, timeout=300)
    return about, done


def lines_of(path):
    with gzip.open(path, "rt") as lines:
        return lines.read().splitlines()


def compare(expected, got):
    for i, (e, g) in enumerate(zip(expected, got, strict=False)):
        assert e == g, f"line {i + 1}\nexpected {e[:2000]}\ngot      {g[:2000]}"
    assert len(expected) == len(got)


def test_there_are_cases():
    assert len(CASES) >= 27


@pytest.mark.parametrize("case", CASES)
def test_reads_back_as_the_real_store(case, tmp_path):
    store = unpack(case, tmp_path)
    expected = lines_of(GOLDEN / case / "expected.jsonl.gz")
    about, done = readback(case, store, "--like", str(GOLDEN / case / "expected.jsonl.gz"))
    compare(expected, done.stdout.splitlines())
    assert done.returncode == about["verify_exit_code"], done.stderr


@pytest.mark.parametrize("case", ["v4-plain", "v5-roll", "v4-cqext", "v5-crash-live"])
def test_asks_the_same_questions_by_itself(case, tmp_path):
    store = unpack(case, tmp_path)
    expected = lines_of(GOLDEN / case / "expected.jsonl.gz")
    _, done = readback(case, store)
    compare(expected, done.stdout.splitlines())
