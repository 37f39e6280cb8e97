"""Every Python example of these pages runs as it stands, in a directory of its own; so do the commands of some. Of commands
that are only named, the options must be there."""
import argparse
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from rmq_store.cli.main import COMMANDS, build_parser
from rmq_store.config.load import resolve
from tests import golden_store

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = ["cleaning.md", "integrity.md", "upgrading.md", "watching.md", "work-queue.md"]
IN_TURN = ["delayed-messages.md", "asyncio-threads-fork.md", "is-my-message-safe.md", "coming-from-broker-conf.md",
           "reading-messages.md", "reading-a-dead-brokers-disk.md", "copying.md", "backup.md"]
# Their examples start processes of their own, or set up the process.
SCRIPTS = ["one-writer-many-readers.md", "logging.md"]
# Blocks that are seen to elsewhere.
ELSEWHERE = {("spark.md", "python"): "they run where Spark does (tests/spark/test_tour.py)",
             ("choosing-a-backend.md", "console"): "it measures for minutes: its commands are looked at below",
             ("running-as-a-service.md", "sh"): "docker, and what a machine says (tests/docs/test_service.py)",
             ("testing.md", "python"): "they are tests (tests/pytest_plugin/test_plugin.py::test_the_examples_of_the_page)",
             ("configuration.md", "toml"): "test_the_profile_is_one"}


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


@pytest.mark.parametrize("page", IN_TURN)
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


@pytest.mark.parametrize("page", SCRIPTS)
def test_script(page, tmp_path):
    for number, (_, code) in enumerate(blocks(page)):
        (tmp_path / f"{number}.py").write_text(code)
        done = subprocess.run([sys.executable, f"{number}.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stdout and not done.stderr, (number, done)


def test_no_example_is_left_out():
    kinds = {(path.name, kind) for path in DOCS.glob("*.md") for kind, _ in blocks(path.name, r"\w+")}
    ran = {*((page, "python") for page in (*PAGES, *SCRIPTS)), *((page, kind) for page in IN_TURN for kind in ("python", "sh"))}
    assert kinds - ran == set(ELSEWHERE)


def test_the_profile_is_one(tmp_path):
    ((_, text),) = blocks("configuration.md", "toml")
    (tmp_path / "mine.toml").write_text(text)
    options = resolve(tmp_path / "mine.toml", {}, str(tmp_path / "s"), environment={})
    assert (options.write_path, options.flush_backend, options.segment_size_bytes) == ("pool", "fdatasync", 256 << 20)


def commands():
    """Every `rmqstore ...` in the README and the pages: (page, words)."""
    for path in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
        for line in re.findall(r"(?:`|^|\$ )rmqstore ([^`\n#]+)", path.read_text(), re.MULTILINE):
            yield path.name, line.split()


def options_of(parser):
    """Of a command and those below it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options_of(below)


def test_commands_and_options_that_are_named_are_there():
    """A page that names `rmqstore stat --wach` is wrong: words after a command are not looked at, its options are."""
    named = list(commands())
    assert len(named) > 40
    parsers = {}
    for page, (command, *words) in named:
        if command.isupper():
            continue        # a word that stands for all of them
        assert command in COMMANDS, f"{page}: rmqstore {command}"
        if command not in parsers:
            (below,) = (a for a in build_parser(command)._actions if isinstance(a, argparse._SubParsersAction))
            parsers[command] = set(options_of(below.choices[command]))
        for word in words:
            option = re.match(r"--?[a-z][a-z-]*", word)
            assert not option or option[0] in parsers[command], f"{page}: rmqstore {command} {word}"


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
