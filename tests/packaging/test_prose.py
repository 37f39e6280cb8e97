"""tools/prose.py finds what CONTRIBUTING's "Plain English" forbids, reads prose alone, and is quiet on plain sentences."""
import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("proselint", reason="proselint is not installed (tools/bootstrap --dev)")
ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
prose = importlib.util.module_from_spec(spec)
spec.loader.exec_module(prose)


def run(*pages):
    done = subprocess.run([sys.executable, ROOT / "tools" / "prose.py", *pages], capture_output=True, text=True, timeout=60)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def checklist():
    """(bad, good) sentences of CONTRIBUTING."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(r"^## Plain English\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^\| [^|]+ \| `(.+?)` \| `(.+?)` \|$", section, re.MULTILINE)


def test_the_checklist_is_found_where_a_program_can_and_its_cures_are_plain(tmp_path):
    rows = checklist()
    assert len(rows) >= 10
    for bad, good in rows:
        assert bad != good
    bad_page, good_page = tmp_path / "bad.md", tmp_path / "good.md"
    bad_page.write_text("\n\n".join(bad for bad, _ in rows) + "\n")
    good_page.write_text("\n\n".join(good for _, good in rows) + "\n")
    assert run(good_page) == (0, [])
    code, lines = run(bad_page)
    assert code == 1 and len({line.split(":")[1] for line in lines}) >= 7, lines


@pytest.mark.parametrize(("text", "line", "finding"), [
    ("# Title\n\nThe store is very fast.\n", 3, "very"),
    ("The store writes the the file.\n", 1, "the the"),
    ("It is\nan error.\n\nThen the reader goes on.\n", 4, "goes on"),
    ("# Page\n\nText.\n\n## What goes when\n", 5, "a heading"),
    ("| a | b |\n|---|---|\n| x | what was not flushed yet |\n", 3, "what was not"),
])
def test_a_planted_mistake_is_found_in_its_line(tmp_path, text, line, finding):
    page = tmp_path / "page.md"
    page.write_text(text)
    code, lines = run(page)
    assert code == 1 and [found for found in lines if f"page.md:{line}: " in found and finding in found], lines


@pytest.mark.parametrize("text", [
    "Code: `goes on` and\n\n```sh\nrmqstore get  # what was lost goes on\n```\n\n    it goes on\n",
    "- an item\n\n      it goes on\n\n- [a link](goes-on-very.md)\n",
    "<!-- Made by `x`. -->\n\nit goes on\n\n<!-- end -->\n",
    "# rmq_store\n\nrmq_store is a store.\n",
    "`a`, `a` and `b`.\n",
])
def test_what_is_not_prose_is_not_read(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    assert run(page) == (0, [])


def test_places_stay():
    page = (ROOT / "docs" / "spark.md").read_text()
    plain = prose.prose(page)
    assert len(plain) == len(page) and plain.count("\n") == page.count("\n")
    assert "Spark finds" in plain and "pip install" not in plain
