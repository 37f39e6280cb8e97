"""docs/logging.md tells of all that is logged, and of nothing else."""
import json
import logging
import pathlib
import re
import subprocess
import sys

from rmq_store.events import Event
from tests.docs import event_table

ROOT = pathlib.Path(__file__).parents[2]
PAGE = event_table.PAGE.read_text()
# Who logs by another way than emit(), and why; the page names them.
OTHERS = {
    "access/waiting/listeners.py": "a traceback", "access/writer/callbacks.py": "a traceback",
    "upkeep/doctor/advice.py": "it listens",
    "cli/stat.py": "it sets the level", "cli/main.py": "its handler", "pytest_plugin.py": "it listens", "events.py": "emit()",
}


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_tables_are_current():
    assert event_table.parts(PAGE)[1] == event_table.table(), "run python -m tests.docs.event_table"


def test_every_event_is_in_the_tables_once():
    names = re.findall(r"^\| `([A-Z_]+)` \| `rmq_store\.", PAGE, re.MULTILINE)
    assert sorted(names) == sorted(event.name for event in Event) and len(names) > 40
    for field in {name for event in Event for name in event.fields}:
        assert f"`{field}`" in PAGE


def test_what_is_alerted_on_is_there_and_has_all_errors():
    named = set(re.findall(r"`([A-Z_]{4,})`", section("Events to alert on"))) - {"ERROR"}
    assert named <= {event.name for event in Event}
    assert named >= {event.name for event in Event if event.level >= logging.ERROR}


def test_other_words_in_capitals_are_events_too():
    named = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", PAGE))
    assert named <= {event.name for event in Event}


def test_every_logger_is_named():
    short = " ".join(re.findall(r"^\| (`rmq_store\..*?) \| [A-Za-z]", PAGE.split("## ")[0], re.MULTILINE))
    listed = {name.removeprefix("rmq_store").lstrip(".") for name in re.findall(r"`([\w.]+)`", short)}
    assert listed == {event.room for event in Event} | {"spark", "broker", "network", "remoting"}
    spoken = {path.relative_to(ROOT / "rmq_store").as_posix() for pattern in ("*.py", "*.pyx")
              for path in (ROOT / "rmq_store").rglob(pattern) if "getLogger(" in path.read_text()}
    assert {name for name in spoken if not name.startswith(("spark/", "broker/", "network/", "remoting/"))} == set(OTHERS)
    for file in ("access/waiting/listeners.py", "access/writer/callbacks.py"):
        source = (ROOT / "rmq_store" / file).read_text()
        name, text = re.search(r'getLogger\("([\w.]+)"\)\.exception\("(.*?)"\)', source).groups()
        assert f"`{text}`" in PAGE and f"`{name}`" in section("Lines that are not events")


def test_without_a_handler_nothing_is_said(tmp_path):
    """No message of level WARNING on standard error, which Python does for libraries that add no handler."""
    program = ("from rmq_store import MessageStore\nfrom rmq_store.events import Event, emit\n"
               "MessageStore.open('s', profile='test').close()\n"
               "emit(Event.STORE_FAILED, what='sync', file='s', errno=5, offset=0, messages=0, begin=0, end=0)\n")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env={"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_content_of_a_message_is_a_field():
    """What the page says is not in the log."""
    fields = {name for event in Event for name in event.fields}
    assert not fields & {"body", "properties", "keys", "tags", "key", "value"}


def test_the_json_example_gives_json(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env={"PYTHONPATH": str(ROOT)})
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [line["event"] for line in lines]
    assert "OPENED" in events and events[-1] == "CLOSED", done
    assert lines[-1]["rmq_max_offset"] > 0 and "12 EUR" not in done.stdout
