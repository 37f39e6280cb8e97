"""A scan fetches the records ahead of it into the processor's cache."""
import platform
import shutil
import subprocess

import pytest

from rmq_store import _extensions

FETCHES = {"x86_64": "prefetcht0", "aarch64": "prfm"}.get(platform.machine(), "")


@pytest.mark.skipif(not FETCHES or shutil.which("objdump") is None, reason="no objdump, or another processor")
def test_the_compiler_has_left_the_fetches_where_they_are() -> None:
    """One whose calls do nothing but __builtin_prefetch has none, and no test of what a scan returns sees it."""
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", _extensions.__file__], capture_output=True, text=True,
                          check=True).stdout
    functions = code.split("\n\n")
    for name in ("_get__scan", "_dispatch__round", "index_file_prefetch"):
        found = [text for text in functions if f"{name}>:" in text.splitlines()[0]]
        if found:           # one that was inlined everywhere has no code of its own
            assert FETCHES in "".join(found), name
    assert any("_get__scan>:" in text.splitlines()[0] for text in functions)
