"""Events: one table; loggers by room; machine-readable extras; silent unless somebody listens."""
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rmq_store
from rmq_store.events import Event, emit


@pytest.mark.parametrize("event", Event, ids=lambda e: e.name)
def test_each_sentence_formats_with_its_fields(event, caplog):
    caplog.set_level(logging.DEBUG, logger="rmq_store")
    emit(event, **{name: 7 for name in event.fields}, more="x")
    (record,) = caplog.records
    assert record.name == "rmq_store." + event.room
    assert record.levelno == event.level
    assert record.event == event.name
    assert record.fields["more"] == "x"
    assert "%(" not in record.getMessage()


def test_each_is_told_by_somebody():
    """One that nobody tells is a promise to whoever waits for it."""
    package = Path(rmq_store.__file__).parent
    text = "".join(p.read_text() for kind in ("*.py", "*.pyx") for p in package.rglob(kind) if p.name != "events.py")
    assert [e.name for e in Event if not re.search(rf"\bEvent\.{e.name}\b", text)] == []


def test_a_missing_field_is_loud():
    with pytest.raises(KeyError):
        emit(Event.DISK_FULL, file="f")


def test_nothing_is_printed_without_a_handler():
    code = "from rmq_store.events import *; emit(Event.POOL_EMPTY, count=1, size=2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == done.stderr == b""
