"""Statuses: each says what happened and what to do; the committed page is the table; the table is true about who returns it."""
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rmq_store
from rmq_store.status import NEVER_HERE, GetStatus, PutStatus

ROOT = Path(__file__).parents[2]
PACKAGE = Path(rmq_store.__file__).parent
ALL = [*PutStatus, *GetStatus]
# What the store's code returns or raises: members of PutStatus by their names, numbers of a get by the enum of its kernel.
PUTS = re.compile(r"\bPutStatus\.([A-Z_]+)")
GETS = re.compile(r"\b(?:status|code) = ([A-Z_]{5,})")


@pytest.mark.parametrize("status", ALL, ids=lambda s: f"{type(s).__name__}.{s}")
def test_each_has_its_line(status):
    for text in (status.happened, status.to_do):
        assert text.endswith(".") and text[0].isupper() and "|" not in text and "\n" not in text
    assert f"| {status:d} | `{status}` | {status.happened} | {status.to_do} |" in (ROOT / "docs" / "statuses.md").read_text()


def test_the_page_is_current():
    command = [sys.executable, "-W", "error", "-m", "rmq_store.config.document", "statuses"]
    page = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert (ROOT / "docs" / "statuses.md").read_text() == page, "run python -m rmq_store.config.document statuses > the page"


def test_what_the_code_returns_is_told_as_returned_and_nothing_else():
    sources = {p: p.read_text() for kind in ("*.py", "*.pyx") for p in PACKAGE.rglob(kind) if p.name not in ("status.py",)}
    puts = {name for text in sources.values() for name in PUTS.findall(text)}
    gets = set(GETS.findall(sources[PACKAGE / "access" / "reader" / "_get.pyx"]))
    # the default of a base class that the store never raises, which the last line checks
    puts -= {"UNKNOWN_ERROR"}
    assert {s.name for s in PutStatus if s.to_do != NEVER_HERE} == puts
    assert {s.name for s in GetStatus if s.to_do != NEVER_HERE} == gets
    assert not any(re.search(r"raise (errors\.)?PutError\(", text) for text in sources.values())


@pytest.mark.parametrize("status", ALL, ids=lambda s: f"{type(s).__name__}.{s}")
def test_it_stays_a_number_with_a_name(status):
    assert str(status) == f"{status}" == status.name and json.dumps(status) == f"{status:d}" == str(int(status))
    assert type(status)(int(status)) is status and pickle.loads(pickle.dumps(status)) is status
