"""What README and docs/*.md show to be typed, taken out of them: Python examples and commands, with what they say is printed.

A comment `# -> text` behind a print() is what it prints; in a console block, lines behind `$ command` are; `# exit N` behind a
command is its exit code. Numbers stand for any number: times, sizes and rates are those of the machine a page was written on.
"""
import json
import pathlib
import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What a page calls by a word in capitals, or leaves to the reader.
STAND_INS = {"DIR": ".", "STORE": "orders-store", "FILE": "lines", "NAME": "mine"}
# Commands that a test cannot run as they stand: the words they begin with, and why.
NOT_RUN = {
    "sudo": "root, and a network", "pip install": "a network", "tools/bootstrap": "a network; it made what these run on",
    "docker": "it needs its daemon, and minutes (docs/examples/service was run by hand)", "git archive": "as that",
    "rmqstore namesrv": "it serves until it is stopped (tests/namesrv/test_namesrv.py::test_the_command)",
    "rmqstore serve": "it serves until it is stopped (tests/broker/test_serving.py::test_the_command)",
    "rmqstore follow": "it follows until it is stopped (tests/replication/test_command.py)",
    "rmqstore promote": "it wants the directory of a slave (tests/replication/test_promotion.py)",
    "tools/demo": "a verb of the checkout, which CI runs", "tools/test": "it would run itself",
}
SLOW = {"rmqstore advise": "it measures for ten seconds", "rmqstore restore backups --check": "it reads a GiB, and more"}
# Blocks that are neither Python nor commands, or run elsewhere: (page, first words) -> why.
NOT_TYPED = {
    ("spark.md", "python"): "they run where Spark does (tests/spark/test_tour.py)",
    ("spark.md", "CREATE TABLE"): "it is SQL, which runs where Spark does",
    ("spark.md", "rs.write_store"): "as those", ("spark.md", "hours ="): "a formula",
    ("choosing-a-backend.md", "console"): "it measures for minutes",
    ("choosing-a-backend.md", "toml"): "of another package (tests/flush/test_foreign_backend.py)",
    ("hooks.md", "toml"): "of another package (tests/hooks/test_offered_hooks.py)",
    ("one-writer-many-readers.md", "python"): "they start processes of their own (tests/docs/test_examples.py::test_script)",
    ("testing.md", "python"): "they are tests (tests/pytest_plugin/test_plugin.py::test_the_examples_of_the_page)",
    ("watching.md", "from opentelemetry"): "it needs an extra (tests/docs/test_examples.py::test_opentelemetry)",
    ("watching.md", "from prometheus_client"): "it needs an extra (tests/docs/test_examples.py::test_metrics)",
    ("broker.md", "yaml"): "accounts, not Python (tests/broker/test_acl.py::test_the_example_of_the_page)",
    ("configuration.md", "toml"): "tests/docs/test_examples.py::test_the_profile_is_one",
}


class Step(NamedTuple):
    """One thing to be typed."""

    line: int           # of the page
    kind: str           # "python" or "command"
    text: str
    code: int = 0
    prints: tuple[str, ...] = ()


def blocks(page: pathlib.Path) -> Iterator[tuple[int, str, str]]:
    """Fenced blocks under their language, indented ones under "indented": (line, kind, text)."""
    lines = page.read_text().splitlines()
    at = 0
    in_list = False
    while at < len(lines):
        fence = re.match(r"```(\w*)$", lines[at])
        begin = at + 1
        if fence:
            end = next(n for n in range(begin, len(lines)) if lines[n] == "```")
            yield begin + 1, fence[1], "\n".join(lines[begin:end])
            at = end + 1
            continue
        if lines[at] and not lines[at].startswith(" "):
            in_list = bool(re.match(r"[-*] |\d+\. ", lines[at]))
        if lines[at].startswith("    ") and not in_list and (at == 0 or not lines[at - 1]):
            end = at
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            yield begin, "indented", "\n".join(line[4:] for line in lines[at:end])
            at = end
            continue
        at += 1


def steps(page: pathlib.Path) -> Iterator[Step]:
    """Raises AssertionError for a block that nobody has said what to do with."""
    for line, kind, text in blocks(page):
        if any((page.name, word) in NOT_TYPED for word in (kind, " ".join(text.split()[:2]), text.split("(")[0])):
            continue
        if kind == "python":
            yield Step(line, "python", text, prints=tuple(re.findall(r"#\s->\s(.*)$", text, re.MULTILINE)))
        else:
            assert kind in ("sh", "console", "indented"), f"{page.name}:{line}: a block of {kind}: say in NOT_TYPED why not"
            yield from _commands(page, line, kind, text)


def _commands(page: pathlib.Path, line: int, kind: str, text: str) -> Iterator[Step]:
    found: list[Step] = []
    for n, row in enumerate(text.splitlines()):
        if kind == "console" and not row.startswith("$ "):
            found[-1] = found[-1]._replace(prints=(*found[-1].prints, row))
            continue
        command, _, note = row.removeprefix("$ ").partition("  #")
        known = ("rmqstore", "tools/", "make", "pip", "sudo", "python", "docker", "git")
        assert command.startswith(known), f"{page.name}:{line + n}: {command!r}: say in NOT_TYPED what it is"
        code = re.match(r" exit (\d+)", note)
        found.append(Step(line + n, "command", command.strip(), int(code[1]) if code else 0))
    yield from found


def left_out(step: Step, table: dict[str, str]) -> str | None:
    """Why a command is not run."""
    return next((why for words, why in table.items() if step.text.startswith(words)), None)


def matches(shown: str, printed: str) -> bool:
    """Whether a line that was printed is the one that a page shows, but for its numbers."""
    def plain(text: str) -> str:
        text = re.sub(r"\b[0-9A-F]{32}\b", "ID", text.strip())
        return re.sub(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?", "N", " ".join(text.split()))

    return plain(shown) == plain(printed)


def missing(step: Step, printed: str) -> list[str]:
    """Lines that the page shows, and that were not printed, in this order."""
    rows = iter(printed.splitlines())
    return [shown for shown in step.prints if not any(matches(shown, row) for row in rows)]


def words(step: Step) -> list[str]:
    """The arguments of a command of ours, with what stands in for the reader's."""
    return [STAND_INS.get(word, word) for word in shlex.split(step.text)[1:]]


# Runs the steps of a page in one process, told as JSON in its standard input; says what each printed and how it ended.
DRIVER = """
import contextlib, io, json, traceback
import rmq_store.cli.main
known = {"path": "store", "__name__": "__main__"}
for kind, what in json.loads(sys.stdin.read()):
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if kind == "python":
                exec(compile(what, "<page>", "exec"), known)
            else:
                code = rmq_store.cli.main.main(what)
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
os._exit(0)
"""


def told(chosen: list[Step]) -> str:
    """The steps as DRIVER reads them."""
    return json.dumps([(step.kind, step.text if step.kind == "python" else words(step)) for step in chosen])
