"""Each rule of tools/tidy.py finds what it is for and lets its neighbour pass; the real tree is judged by tools/check."""
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("tidy", ROOT / "tools" / "tidy.py")
tidy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tidy)


def found(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return tidy.check(root, [root / name for name in files])


@pytest.mark.parametrize(("name", "text", "finding"), [
    ("a.py", '"""A."""\n' + "x = 1\n" * 500, "501 lines"),
    ("a.py", '"""A."""\ndef f():\n' + "    x = 1\n" * 70, "f has 71 lines"),
    ("a.pyx", '"""A."""\ncdef int f(int a,\n           int x) except -1:\n' + "    x = 1\n" * 69, "f has 71 lines"),
    ("rmq_store/base/io/_io.pyx", '"""A."""\n' + "x = 1\n" * 535, "536 lines, at most 535"),
    ("rmq_store/base/io/_io.pyx", '"""A."""\n' + "x = 1\n" * 400, "take it down"),
    ("a.py", '"""A."""\n# ' + "x" * 127 + "\n", "129 columns"),
    ("a.py", '"""A."""\nx = 1 \n', "space at the end"),
    ("a.c", "/* A. */\n\tint x;\n", "tab"),
    ("a.py", '"""A."""\nx = 1', "no newline"),
    ("a.py", "x = 1\n", "does not begin by saying"),
    ("a.py", '"""A."""\n# TO' + "DO: later\n", "open end"),
    ("a.md", "See /r" + "oot/notes.\n", "path of one machine"),
    ("rmq_store/base/io/_x.pyx", "# X.\nDEF SIZE = 4\n", "textual"),
    ("rmq_store/base/io/_x.pyx", '# X.\ninclude "y.pxi"\n', "textual"),
    ("rmq_store/base/io/_x.pyx", "# X.\ndef f():\n    pass\n", "can import f"),
    ("rmq_store/base/io/_x.pyx", "# X.\ncdef class Owner:\n    pass\n", "can import Owner"),
    ("rmq_store/base/io/_x.pyi", "def f() -> None: ...\n", "a stub of nothing"),
    ("rmq_store/base/io/_x.c", "int x;\n", "no place in a room"),
    ("rmq_store/log/pool/_x.pxd", "# X.\nfrom posix.unistd cimport fsync\n", "I/O table"),
    ("rmq_store/cellar/x.py", '"""X."""\n', "in no list"),
    ("rmq_store/base/cellar/x.py", '"""X."""\n', "in no list"),
    ("rmq_store/base/__init__.py", '"""X."""\nX = 1\n', "in no list"),
    ("rmq_store/base/io/x.py", '"""X."""\nfrom rmq_store.codec.layout import A\n', "must not import rmq_store.codec.layout"),
    ("rmq_store/base/io/_x.pxd", "# X.\nfrom rmq_store.access.reader._get cimport A\n",
     "must not import rmq_store.access.reader._get"),
    ("rmq_store/base/io/_x.pxd", "# X.\nfrom rmq_store.access.reader cimport (A, B)\n",
     "must not import rmq_store.access.reader"),
    ("rmq_store/base/io/x.py", '"""X."""\nfrom ...codec import layout\n', "must not import rmq_store.codec"),
    ("rmq_store/base/io/x.py", '"""X."""\nfrom rmq_store import errors, codec\n', "must not import rmq_store.codec"),
    ("rmq_store/access/reader/x.py", '"""X."""\nimport rmq_store.store\n', "must not import rmq_store.store"),
    ("rmq_store/errors.py", '"""X."""\nfrom rmq_store.codec.layout import A\n', "must not import rmq_store.codec.layout"),
])
def test_finds(tmp_path, name, text, finding):
    lines = found(tmp_path, {name: text})
    assert len(lines) == 1 and lines[0].startswith(name) and finding in lines[0], lines


@pytest.mark.parametrize(("name", "text"), [
    ("a.py", '"""A."""\n' + "x = 1\n" * 499),
    ("a.py", '"""A."""\n# ' + "x" * 126 + "\n"),
    ("a.py", '"""A."""\ndef f():\n' + "    x = 1\n" * 69 + "# of the next one\n\ndef g():\n" + "    x = 1\n" * 60),
    ("a.md", "x" * 300 + "\n"),
    ("tools/a", "#!/bin/sh\n# A.\nexit 0\n"),
    ("rmq_store/base/io/_x.pyx", "# X.\ncdef int f() noexcept nogil:\n    return 0\n"),
    ("rmq_store/codec/_x.pxd", "# X.\nfrom rmq_store.base.io._io cimport rmq_io\nfrom rmq_store.codec._y cimport z\n"),
    ("rmq_store/codec/x.py", '"""X."""\nfrom rmq_store import errors\nfrom . import layout\nTOPIC = "SCHEDULE_TOPIC_XXXX"\n'),
    ("rmq_store/store.py", '"""X."""\nfrom rmq_store.access.reader.x import A\n'),
    ("rmq_store/cli/x.py", '"""X."""\nimport rmq_store.store\n'),
    ("rmq_store/base/__init__.py", '"""X."""\n'),
    ("rmq_store/__init__.py", '"""X."""\nimport rmq_store.cli.main\n'),
])
def test_lets_pass(tmp_path, name, text):
    assert found(tmp_path, {name: text}) == []


def test_a_stub_beside_its_source_is_enough(tmp_path):
    files = {"rmq_store/base/io/_x.pyi": "def f() -> None: ...\n", "rmq_store/base/io/_x.pyx": "# X.\ndef f():\n    pass\n"}
    assert found(tmp_path, files) == []
