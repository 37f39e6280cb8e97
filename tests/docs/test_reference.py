"""The pages of docs/reference/ are what tools/reference.py makes of the code, and all that they tell of is in them."""
import argparse
import importlib.util
import pathlib

import pytest

from rmq_store import errors
from rmq_store.cli.main import COMMANDS, build_parser
from rmq_store.codec import layout

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)


@pytest.mark.parametrize("name", reference.MADE)
def test_the_page_is_current(name):
    if name == "metrics":
        pytest.importorskip("prometheus_client")
    page = (reference.PAGES / f"{name}.md").read_text()
    assert page == reference.page(name), f"run python tools/reference.py {name}"


def test_the_exit_codes_are_current():
    page = (ROOT / "docs" / "commands.md").read_text()
    assert page == reference.put_exits(page), "run python tools/reference.py exits"


def test_every_command_has_its_options():
    page = reference.page("commands")
    (below,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for command in COMMANDS:
        text = page.partition(f"\n## rmqstore {command}\n")[2].partition("\n## ")[0]
        for action in below.choices[command]._actions:
            assert all(f"`{option}" in text for option in action.option_strings
                       if action.help != argparse.SUPPRESS and option not in ("-h", "--help")), (command, action)


def test_every_error_and_every_field_has_its_line():
    page = reference.page("errors")
    for name in errors.__all__:
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, errors.RmqStoreError):
            assert f"\n## {name}\n" in page
    page = reference.page("formats")
    for fields in layout.LAYOUTS.values():
        for field in fields:
            assert f"| {field.number} | `{field.name}` |" in page


def test_the_page_of_integrity_has_every_reason_for_which_a_record_is_bad():
    from rmq_store.log.recovery._scan import REASONS

    page = (ROOT / "docs" / "integrity.md").read_text().partition("\n## Corrupt records\n")[2].partition("\n## ")[0]
    for reason in REASONS:
        assert f"`{reason}`" in page
