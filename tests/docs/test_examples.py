"""Examples that are whole programs run as such; of commands that are only named, the options must be there. All other examples
and commands of the pages are typed by tests/first_hour/test_pages.py."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import pytest

from rmq_store.cli.main import COMMANDS, build_parser
from rmq_store.config.load import resolve

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Their examples start processes of their own, or set up the process.
SCRIPTS = ["one-writer-many-readers.md", "logging.md"]


def blocks(page, kinds="python"):
    return re.findall(rf"```({kinds})\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", SCRIPTS)
def test_script(page, tmp_path):
    for number, (_, code) in enumerate(blocks(page)):
        (tmp_path / f"{number}.py").write_text(code)
        done = subprocess.run([sys.executable, f"{number}.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stdout and not done.stderr, (number, done)


def test_metrics(tmp_path, monkeypatch):
    prometheus = pytest.importorskip("prometheus_client")
    published = []
    monkeypatch.setattr(prometheus, "start_http_server", published.append)
    monkeypatch.setenv("RMQ_STORE_PROFILE", "test")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(next(code for _, code in blocks("watching.md") if "prometheus" in code), names)
    assert published == [9104] and b"rmq_store_puts_total{" in prometheus.generate_latest()
    names["store"].close()


def test_opentelemetry(tmp_path):
    pytest.importorskip("opentelemetry.sdk.metrics")
    code = next(code for _, code in blocks("watching.md") if "opentelemetry" in code)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "RMQ_STORE_PROFILE": "test"})
    assert done.returncode == 0 and "rocketmq_storage_size" in done.stdout, done.stderr


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
