"""A place says what the run says; a changed number, and a claim of no run, are found."""
import json
import subprocess
from pathlib import Path

import pytest

from bench.figures import check, claims, document, show
from bench.figures.document import Figures, NotMeasured
from bench.figures.pages import END, differing, marked, outside, pages, written
from bench.figures.places import PLACES
from bench.figures.tables import plain, rate, time
from tests.figures import sample

ROOT = Path(__file__).resolve().parents[2]
PAGE = f"# Speed\n\n<!-- figures: reads -->\nold\n{END}\nText, and 3 files.\n\n<!-- figures: copies -->\n{END}"


@pytest.mark.parametrize("name", PLACES)
def test_every_place_finds_its_figures(name: str) -> None:
    made = PLACES[name](Figures(sample.document()))
    assert "did not measure" not in made and made.endswith("\n") and not made.endswith("\n\n")
    rows = [line for line in made.splitlines() if line.startswith("| ")]
    dashes = {"shared": 9, "disks": 10, "rocketmq": 4}     # no peer there, or no such case in the sample
    assert sum(line.count(" – ") for line in rows) == dashes.get(name, 0)
    assert len({line.count("|") for line in rows if line}) <= 1 or name in ("databases", "uring", "broker")


@pytest.mark.parametrize("name", PLACES)
def test_a_place_without_its_step_says_so(name: str) -> None:
    empty = sample.document(steps={}, absent={step: "no java here" for step in sample.runs()})
    made = PLACES[name](Figures(empty))
    assert ("did not measure this" in made and "no java here" in made) or (name == "alone" and "–" in made)


def test_pages_mark_each_place_once_that_exists() -> None:
    names = [name for page in pages(ROOT) for name, _, _ in marked(page.read_text())]
    assert set(names) == set(PLACES), "a place that no page has, or a mark without a place"
    assert sorted(names) == sorted([*PLACES, "machine"]), "machine stands on two pages"


def test_the_readme_has_a_table_of_five_figures() -> None:
    rows = PLACES["five"](Figures(sample.document())).splitlines()
    assert len(rows) == 2 + 5 and rows[2].startswith("| `put` of 100 bytes | 2,000 | 700 | 113 µs | 2,000 |")


def test_a_changed_number_is_found() -> None:
    figures = Figures(sample.document())
    page = written(PAGE, PLACES, figures)
    assert "old" not in page and list(differing(page, PLACES, figures)) == []
    assert written(page, PLACES, figures) == page
    changed = page.replace("580 k", "590 k")
    assert changed != page
    assert list(differing(changed, PLACES, figures)) == [
        (8, "reads differs from bench/results/figures.json: run tools/figures --write")]
    assert list(differing(page.replace(": reads", ": reeds"), PLACES, figures)) == [
        (4, "there is no place reeds in bench/figures/places.py")]


def test_a_mark_that_is_not_closed_is_refused() -> None:
    with pytest.raises(ValueError, match="the place a has no line"):
        list(marked(f"<!-- figures: a -->\nx\n<!-- figures: b -->\n{END}"))


@pytest.mark.parametrize("text", [
    "A put takes 129 ns.", "It does 5.2 M/s.", "It writes 1,553 MiB/s.", "It takes 12 million puts a second.",
    "| a | 0.91 x |\n",
    "It is 3.3 times as fast as that.", "It is nowhere\nfaster.", "It reaches 0.92 of the rate.",
    "A put takes under a microsecond.",
    "| | p50 µs |\n|---|---|\n| put | 3 |\n", "Its longest pause was 28.5\nms.", "528 k/s", "millions of messages a second"])
def test_a_claim_outside_marks_is_found(text: str) -> None:
    assert len(list(claims.findings("README.md", f"One.\n\n{text}\n"))) == 1


@pytest.mark.parametrize("text", ["It waits 5 seconds.", "RocketMQ 5.x", "`sleep 20 ms`",
                                  "Two files, 3 x 4 MiB, a second file.", "```\n20 ms\n```\n"])
def test_what_is_no_claim_is_none(text: str) -> None:
    assert list(claims.findings("README.md", text)) == []


def test_marked_places_may_have_figures() -> None:
    page = f"One.\n<!-- figures: reads -->\n5 M/s\n{END}6 M/s\n"
    assert list(claims.findings("README.md", outside(page))) == [(5, "6 M/s")]


def test_no_allowance_is_left_over() -> None:
    assert [found for page in pages(ROOT) for found in claims.unused(str(page.relative_to(ROOT)), page.read_text())] == []
    assert all(why for _, _, why in claims.ALLOWED)


# ---- the whole check, in a repository of its own

@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "bench" / "results").mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md"):
        (tmp_path / name).write_text("# Title\n")
    (tmp_path / "docs" / "speed.md").write_text(PAGE)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *command], check=True)
    return tmp_path


def _keep(tree: Path, **more: object) -> None:
    command = ["git", "-C", str(tree), "rev-parse", "HEAD"]
    head = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    document.write(sample.document(**{"commit": head, **more}), tree / "bench/results/figures.json")


def test_without_a_run_the_places_stay(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(tree) == 0 and "no figures run yet" in capsys.readouterr().out
    (tree / "README.md").write_text("It does 5 M/s.\n")
    assert list(check.findings(tree)) == [
        "README.md:1: '5 M/s' is a figure of no run: put it into a marked place (bench/figures/places.py)"]


def test_a_page_that_says_what_the_run_says_passes(tree: Path) -> None:
    _keep(tree)
    assert len(list(check.findings(tree))) == 2
    figures = Figures(json.loads((tree / "bench/results/figures.json").read_text()))
    (tree / "docs/speed.md").write_text(written(PAGE, PLACES, figures))
    assert list(check.findings(tree)) == []
    (tree / "docs/speed.md").write_text(written(PAGE, PLACES, figures).replace("580 k", "680 k"))
    assert "docs/speed.md:8: reads differs" in next(check.findings(tree))


@pytest.mark.parametrize(("more", "why"), [({"dirty": True}, "of a dirty tree"), ({"quick": True}, "a quick one"),
                                           ({"commit": "0" * 40}, "is not an ancestor of HEAD")])
def test_a_run_that_belongs_to_no_commit_is_refused(tree: Path, more: dict[str, object], why: str) -> None:
    _keep(tree, **more)
    assert why in next(check.findings(tree))


def test_figures_of_several_repetitions() -> None:
    figures = Figures(sample.document())
    assert figures.get("beside/put_100", "sustained_per_s") == 2000 and figures.all("beside/put_100", "msgs_per_s") == [
        1000, 2000, 3000]
    for case, subject, key, why in (("beside/put_7", "rmq_store", "x", "not in the run"),
                                    ("no/x", "rmq_store", "x", "no such step"),
                                    ("beside/put_100", "rmq_store", "x", "has no x")):
        with pytest.raises(NotMeasured, match=why):
            figures.get(case, key, subject)


def test_a_rate_that_was_not_held_says_so() -> None:
    found = sample.document()
    for run in found["steps"]["at_rate"]["runs"]["put_1024"]["rocketmq"]:
        run["rate_per_s"] = 700_000
    (row,) = [line for line in PLACES["at-rate"](Figures(found)).splitlines() if "1 KiB" in line and "`put`" in line]
    assert row.startswith("| `put` of 1 KiB | 640 k | 700 |") and "| 640 k of 700 k |" in row


def test_numbers() -> None:
    assert [rate(n) for n in (5.214e6, 68_260, 7412.3, 12.3)] == ["5.21 M", "68.3 k", "7,412", "12"]
    assert [time(n) for n in (.129, 1.0, 113, 27_400, 1.5e6)] == ["129 ns", "1 µs", "113 µs", "27.4 ms", "1.5 s"]
    assert [plain(n) for n in (1553.2, 36.77, .48)] == ["1,553", "36.8", "0.48"]


def test_the_document_keeps_every_repetition_on_a_line(tmp_path: Path) -> None:
    document.write(sample.document(), tmp_path / "f.json")
    text = (tmp_path / "f.json").read_text()
    assert json.loads(text) == sample.document() and max(len(line) for line in text.splitlines()) < 1000
    assert document.read(tmp_path / "none.json") is None


def test_the_report_answers_three_questions() -> None:
    page = show.html(sample.document())
    assert page.count("<svg") == 3 and "one put in a thousand takes longer than <b>113 µs</b> with rmq_store" in page
    assert "lines met</summary>" in page and "lines met" not in show.html(sample.document(quick=True))
    assert "<circle" in page, "a slice without a put is marked" and "http" not in page.replace("http://www.w3.org", "")
    gone = sample.document()
    del gone["steps"]["at_rate"]
    gone["absent"] = {"at_rate": "exit code 1: <no> java"}
    page = show.html(gone)
    assert page.count("<svg") == 2 and "Not measured: at_rate: exit code 1: &lt;no&gt; java" in page
