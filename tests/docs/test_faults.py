"""docs/faults.md names, for each fault, tests that there are."""
import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs/faults.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def functions_of(path):
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_named_test_is_there():
    missing = [f"{path}::{name}" for path, name in NAMED if not (ROOT / path).exists() or name not in functions_of(ROOT / path)]
    assert not missing and len(NAMED) > 60


def test_every_row_names_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    bare = [row[:60] for row in rows if not re.search(r"`tests/[\w/]+\.py::test_\w+`", row)]
    assert len(rows) > 40 and not bare
