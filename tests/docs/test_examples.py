"""Every Python example of these pages runs as it stands, in a directory of its own."""
import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = ["cleaning.md", "integrity.md", "work-queue.md"]


def examples():
    for page in PAGES:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)):
            yield pytest.param(page, code, id=f"{page}-{number}")


@pytest.mark.parametrize(("page", "code"), list(examples()))
def test_example(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize("page", ["delayed-messages.md", "asyncio-threads-fork.md"])
def test_page(page, tmp_path):
    """The examples of these pages go on from one another; `path` is the store's directory."""
    known = {"path": tmp_path / "store"}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)):
        exec(compile(code, f"{page}-{number}", "exec"), known)
    known.clear()
