"""A figures run continues where it was interrupted, keeps nothing of a dirty tree or a failed step, and leaves no files."""
import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from bench.figures.run import checked
from bench.figures.steps import FULL, MINUTES_MAX, STEPS
from tests.figures.conftest import Checkout


def test_every_step_is_kept_and_not_measured_again(checkout: Checkout) -> None:
    code, text = checkout.run("a=well", "b=well")
    assert code == 0 and "1/2 a: a test; 1 min, 2 min left" in text and "2/2 b: a test; 1 min, 1 min left" in text
    assert "1/2 a: missing: case/fio: not here" in text
    code, text = checkout.run("a=well", "b=well", "c=well")
    assert code == 0 and checkout.noted() == ["a", "b", "c"] and "1/3 a: kept, measured at 20" in text
    assert list(checkout.directory.iterdir()) == []


def test_again_measures_again(checkout: Checkout) -> None:
    checkout.run("a=well", "b=well")
    assert checkout.run("a=well", again=True)[0] == 0
    assert checkout.noted() == ["a", "b", "a"]


def _hanging(checkout: Checkout, noted: Path) -> "tuple[subprocess.Popen[str], list[int]]":
    """A run whose second step hangs by now, and the processes of that step."""
    process = checkout.start("a=well", "b=hang", "c=well")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("2/3 b:"):
            break
    while not (noted.parent / "pids").exists() or len((noted.parent / "pids").read_text().split()) < 2:
        os.sched_yield()
    return process, [int(pid) for pid in (noted.parent / "pids").read_text().split()]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_an_interrupted_run_continues(checkout: Checkout, how: signal.Signals) -> None:
    process, below = _hanging(checkout, Path(checkout.environment["NOTED"]))
    watched = [psutil.Process(pid) for pid in below]
    process.send_signal(how)
    assert process.wait(60) != 0
    if how == signal.SIGKILL:       # then nobody can end what has a session of its own; the step itself ends
        psutil.wait_procs(watched[:1], 30)
        assert not watched[0].is_running()
        watched[1].kill()
    else:
        assert not any(p.is_running() for p in watched), "the whole group has ended"
        assert list(checkout.directory.iterdir()) == []
    assert checkout.run("a=well", "b=well", "c=well")[0] == 0
    assert checkout.noted() == ["a", "b", "b", "c"], "a was kept"
    assert list(checkout.directory.iterdir()) == [], "also what a killed run has left"


def test_a_torn_file_is_measured_again(checkout: Checkout) -> None:
    checkout.run("a=well")
    path = checkout.root / "build/figures" / checkout.git("rev-parse", "HEAD").strip() / "a.json"
    path.write_text(path.read_text()[:40])
    assert checkout.run("a=well")[0] == 0 and checkout.noted() == ["a", "a"]


def test_what_another_kernel_or_commit_gave_is_measured_again(checkout: Checkout) -> None:
    checkout.run("a=well")
    path = checkout.root / "build/figures" / checkout.git("rev-parse", "HEAD").strip() / "a.json"
    path.write_text(path.read_text().replace(f'"kernel": "{os.uname().release}"', '"kernel": "2.2.0"'))
    checkout.run("a=well")
    checkout.commit("two")
    checkout.run("a=well")
    assert checkout.noted() == ["a", "a", "a"]


def test_a_dirty_tree_is_refused_and_its_files_are_named(checkout: Checkout) -> None:
    (checkout.root / "work.py").write_text((checkout.root / "work.py").read_text() + "\n")
    (checkout.root / "new.py").write_text("")
    code, text = checkout.run("a=well")
    assert code == 1 and "refused: the tree is not clean: work.py, new.py" in text
    assert checkout.noted() == []
    assert checkout.run("a=well", quick=True)[0] == 0, "a quick run measures nothing"


def test_pages_and_results_are_written_by_a_run_and_do_not_stop_it(checkout: Checkout) -> None:
    (checkout.root / "README.md").write_text("x")
    (checkout.root / "bench/results").mkdir(parents=True)
    (checkout.root / "bench/results/figures.json").write_text("{}")
    assert checkout.run("a=well")[0] == 0


def test_a_tree_that_changes_meanwhile_keeps_nothing(checkout: Checkout) -> None:
    code, text = checkout.run("a=dirty", "b=well")
    assert code == 1 and "refused: the tree is not clean: work.py" in text
    assert checkout.noted() == ["a"] and not list((checkout.root / "build/figures").rglob("*.json"))


@pytest.mark.parametrize(("what", "why"), [("fail", "exit code 1, it has written no b.json: no such luck"),
                                           ("late", "exit code 3: it has"), ("silent", "exit code 0, it has written"),
                                           ("empty", "the step measured nothing")])
def test_a_step_that_fails_is_told_and_the_others_go_on(checkout: Checkout, what: str, why: str) -> None:
    checkout.run("a=well", "b=well")
    code, text = checkout.run("a=well", f"b={what}", "c=well", again=True)
    assert code == 1 and f"2/3 b: FAILED: {why}" in text
    assert checkout.noted()[2:] == ["a", "b", "c"]
    with pytest.raises(FileNotFoundError):      # also not what an earlier run found
        checkout.kept("b")


def test_a_case_that_fails_is_told_and_measured_again(checkout: Checkout) -> None:
    code, text = checkout.run("a=partly")
    assert code == 1 and "other/rmq_store FAILED: broken" in text and checkout.kept("a")
    assert checkout.run("a=well")[0] == 0 and checkout.noted() == ["a", "a"]


def test_one_run_at_a_time_in_a_directory(checkout: Checkout) -> None:
    process, _ = _hanging(checkout, Path(checkout.environment["NOTED"]))
    code, text = checkout.run("a=well", quick=True)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert code == 1 and "another run of tools/figures works in" in text


@pytest.mark.parametrize("found", [[], {}, {"runs": {"c": {"s": 1}}, "missing": {}, "failed": {}},
                                   {"runs": {"c": {"s": []}}, "missing": {}, "failed": {}}])
def test_an_output_of_another_form_is_no_output(found: object) -> None:
    with pytest.raises(ValueError, match=r"expected|measured nothing"):
        checked(found)


def test_a_run_takes_about_an_hour() -> None:
    names = [step.name for step in (*STEPS, *FULL)]
    assert len(set(names)) == len(names)
    assert sum(step.minutes for step in STEPS) <= MINUTES_MAX
