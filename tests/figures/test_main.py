"""The command as a whole: steps, then the document, the report and the pages; and what it refuses."""
import json
import os
import subprocess
import sys

import pytest

from bench.figures import __main__ as command
from bench.figures.pages import END
from tests.figures.conftest import ROOT, Checkout

DRIVER = '''
import sys
from pathlib import Path
from bench.figures import __main__ as command, document, places
from bench.figures.steps import Step
root = Path(sys.argv[1])
command.ROOT, document.RESULTS = root, root / "bench/results"
command.STEPS = tuple(Step(name, 1, ("work", name, what), "a test") for name, what in
                      (t.split("=") for t in sys.argv[2].split(",")))
command.FULL = ()
command.PLACES = {"one": places.place(lambda f: f"It does {f.get('a/case', 'msgs_per_s')} of them.\\n")}
sys.exit(command.main(sys.argv[3:]))
'''


def _main(checkout: Checkout, steps: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-c", DRIVER, str(checkout.root), steps, *arguments]
    return subprocess.run(line, cwd=ROOT, env=os.environ | checkout.environment, text=True, check=False, capture_output=True,
                          timeout=60)


@pytest.fixture
def pages(checkout: Checkout) -> Checkout:
    (checkout.root / "docs").mkdir()
    (checkout.root / "bench/results").mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md"):
        (checkout.root / name).write_text(f"# Title\n\n<!-- figures: one -->\nas it was\n{END}")
    (checkout.root / "bench/results/.keep").write_text("")
    checkout.commit("pages")
    return checkout


def test_a_run_writes_document_report_and_pages(pages: Checkout) -> None:
    done = _main(pages, "a=well,b=well", "--dir", str(pages.directory))
    assert done.returncode == 0, done.stderr
    found = json.loads((pages.root / "bench/results/figures.json").read_text())
    assert found["commit"] == pages.git("rev-parse", "HEAD").strip() and not found["dirty"] and found["absent"] == {}
    assert found["steps"]["a"]["runs"] == {"case": {"rmq_store": [{"msgs_per_s": 7}]}} and found["begin"] <= found["end"]
    assert found["machine"]["cpus"] and "sqlite" in found["peers"] and found["machine"]["python"]
    assert "It does 7 of them." in (pages.root / "README.md").read_text()
    assert "How fast" in (pages.root / "bench/results/figures.html").read_text()
    assert str(pages.root) not in json.dumps(found) and str(pages.directory) not in json.dumps(found)


def test_a_step_that_failed_leaves_no_number_and_is_made_good(pages: Checkout) -> None:
    assert _main(pages, "a=well,b=well", "--dir", str(pages.directory)).returncode == 0
    done = _main(pages, "a=fail,b=well", "--dir", str(pages.directory), "--again", "--only", "a")
    assert done.returncode == 1 and "failed: a" in done.stdout
    found = json.loads((pages.root / "bench/results/figures.json").read_text())
    assert list(found["steps"]) == ["b"] and found["absent"] == {"a": "exit code 1, it has written no a.json: no such luck"}
    assert "did not measure this (a: exit code 1" in (pages.root / "README.md").read_text().replace("\n", " ")
    assert _main(pages, "a=well,b=well", "--dir", str(pages.directory)).returncode == 0
    assert "It does 7 of them." in (pages.root / "README.md").read_text()
    assert pages.noted() == ["a", "b", "a", "a"]


def test_a_part_of_a_run_changes_no_page(pages: Checkout) -> None:
    done = _main(pages, "a=well,b=well", "--dir", str(pages.directory), "--only", "a")
    assert done.returncode == 0 and "until these steps have run, too: b" in done.stdout
    assert "as it was" in (pages.root / "README.md").read_text() and not (pages.root / "bench/results/figures.json").exists()
    assert _main(pages, "a=well,b=well", "--dir", str(pages.directory)).returncode == 0
    assert "It does 7 of them." in (pages.root / "README.md").read_text() and pages.noted() == ["a", "b"]


def test_a_quick_run_changes_no_page(pages: Checkout) -> None:
    (pages.root / "new.py").write_text("")
    done = _main(pages, "a=well", "--dir", str(pages.directory), "--quick")
    assert done.returncode == 0 and "the figures mean nothing" in done.stdout
    assert "as it was" in (pages.root / "README.md").read_text() and not (pages.root / "bench/results/figures.json").exists()
    assert json.loads((pages.root / "build/figures/quick/figures.json").read_text())["dirty"]


def test_what_is_refused(pages: Checkout) -> None:
    (pages.root / "new.py").write_text("")
    done = _main(pages, "a=well", "--dir", str(pages.directory))
    assert done.returncode == 2 and "the tree is not clean: new.py" in done.stderr
    assert "tools/figures: --only z: expected" in _main(pages, "a=well", "--dir", str(pages.directory), "--only", "z").stderr
    assert "there is no bench/results/figures.json" in _main(pages, "a=well", "--write").stderr
    assert "--dir: give a directory" in _main(pages, "a=well").stderr


def test_steps_are_chosen_by_name() -> None:
    assert [s.name for s in command.chosen("threads,full", False)] == ["threads", "full"]
    assert "full" not in [s.name for s in command.chosen("", False)] and command.chosen("", True)[-1].name == "full"
