"""Every example and command of README and docs/*.md, run as an ordinary user in an empty directory: it works, and prints what
the page shows."""
import json
import sys

import pytest

from tests import golden_store
from tests.first_hour import nobody, pages


def run(page, chosen):
    """[(step, exit code or traceback, printed, errors)]"""
    with nobody.directory() as place:
        if "dead" in page.name:
            golden_store.unpack("v4-crash-cqbehind", place / "golden").store.rename(place / "broker-disk")
        (place / "lines").write_text("one\n")
        nobody.give(place)
        done = nobody.run("-c", "import os, sys\n" + pages.DRIVER, cwd=place, stdin=pages.told(chosen))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(chosen), done.stdout[-2000:] + done.stderr[-2000:]
    return [(step, *result) for step, result in zip(chosen, results, strict=True)]


def check(page, chosen):
    for step, code, out, err in run(page, chosen):
        where = f"{page.name}:{step.line}: {step.text.splitlines()[0]}"
        if step.text.startswith("rmqstore doctor"):
            assert code in (0, 1), where        # what it finds is the machine's
        else:
            assert code == step.code, f"{where}: {code}\n{out}\n{err}"
        assert not pages.missing(step, out), f"{where} prints\n{out}and the page shows {pages.missing(step, out)}"
        before = err.partition("failed to handle message")[0]       # by a handler of the page that raises, which is shown
        assert "Traceback" not in before, f"{where}: {err}"


def runnable(page):
    found = [step for step in pages.steps(page) if step.kind == "python" or pages.left_out(step, pages.NOT_RUN) is None]
    for step in found:
        assert step.kind == "python" or step.text.startswith("rmqstore "), f"{page.name}:{step.line}: {step.text}"
    return found


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_page(page):
    chosen = [step for step in runnable(page) if pages.left_out(step, pages.SLOW) is None]
    if not chosen:
        pytest.skip("nothing to type, or only what is not run (pages.NOT_RUN says why)")
    check(page, chosen)


@pytest.mark.slow
@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_what_takes_its_time(page):
    chosen = [step for step in runnable(page) if pages.left_out(step, pages.SLOW) is not None]
    if not chosen:
        pytest.skip("nothing slow")
    check(page, chosen)


def test_what_is_left_out_is_there():
    """Else a reason stands for nothing."""
    typed = [step for page in pages.PAGES for step in pages.steps(page) if step.kind == "command"]
    for words in (*pages.NOT_RUN, *pages.SLOW):
        assert any(step.text.startswith(words) for step in typed), words


def test_a_page_that_lies_is_found(tmp_path):
    """The numbers may differ, nothing else."""
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1, 'a')    # -> 7 a\nprint('b')       # -> c\n```\n\n    rmqstore --version\n\n"
                    "```console\n$ rmqstore stat none\nno such thing\n```\n")
    found = list(pages.steps(page))
    assert [(s.line, s.kind, s.prints) for s in found] == [
        (2, "python", ("7 a", "c")), (6, "command", ()), (9, "command", ("no such thing",))]
    assert pages.missing(found[0], "1 a\nb\n") == ["c"] and pages.missing(found[0], "-3 a\nc\n") == []
    page.write_text("```perl\n1\n```\n")
    with pytest.raises(AssertionError, match="NOT_TYPED"):
        list(pages.steps(page))
    page.write_text("    sl\n")
    with pytest.raises(AssertionError, match="NOT_TYPED"):
        list(pages.steps(page))
    assert sys.version_info >= (3, 11)
