"""Every Python example of these pages runs as it stands, in a directory of its own; so do the commands of some."""
import pathlib
import re
import shlex

import pytest

from tests import golden_store

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ["cleaning.md", "integrity.md", "watching.md", "work-queue.md"]


def blocks(page, kinds="python"):
    return re.findall(rf"```({kinds})\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def examples():
    for page in PAGES:
        for number, (_, code) in enumerate(blocks(page)):
            yield pytest.param(page, code, id=f"{page}-{number}")


@pytest.mark.parametrize(("page", "code"), list(examples()))
def test_example(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize("page", ["delayed-messages.md", "asyncio-threads-fork.md", "is-my-message-safe.md",
                                  "coming-from-broker-conf.md", "reading-a-dead-brokers-disk.md"])
def test_page(page, tmp_path, monkeypatch, rmqstore):
    """The examples of these pages go on from one another; `path` is the store's directory, broker-disk a dead broker's."""
    monkeypatch.chdir(tmp_path)
    if "dead" in page:
        golden_store.unpack("v4-crash-cqbehind", tmp_path).store.rename(tmp_path / "broker-disk")
    known = {"path": tmp_path / "store"}
    for number, (kind, code) in enumerate(blocks(page, "python|sh")):
        if kind == "python":
            exec(compile(code, f"{page}-{number}", "exec"), known)
            continue
        for line in code.splitlines():
            command, _, note = line.partition("#")
            program, *arguments = shlex.split(command)
            code, out, err = rmqstore(*arguments)
            assert program == "rmqstore" and code == (int(note.split()[1].rstrip(":")) if note else 0), (line, out, err)
    known.clear()


def test_the_tests_that_a_page_names_are_there():
    """docs/is-my-message-safe.md is worth as much as these."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (DOCS / "is-my-message-safe.md").read_text())
    assert len(named) > 15
    for file, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file} has no {name}"
    page = (DOCS / "is-my-message-safe.md").read_text()
    cells = [cell for row in re.findall(r"^\| (?!\| )(.*) \|$", page, re.MULTILINE) for cell in row.split(" | ")[1:]]
    notes = set(re.findall(r"^(\d+)\. ", page, re.MULTILINE))
    assert len(cells) == 35 and all(set(re.findall(r"\((\d+)\)$", cell)) & notes for cell in cells)
