"""A call whose own arguments, a signal handler or a collection closes the store: an error or a result, never a crash.

Python code runs wherever an argument is converted, an attribute is looked up or an object is made. So native parts are looked
at only after the question whether the store is open, with nothing between the two. Each call is tried in a process of its own.
"""
import subprocess
import sys
from pathlib import Path

import pytest

from tests.regress.closing_victim import CALLS, HOW, tricks

KNOWN = {"StoreClosed", "returned", "ArgumentIllegal", "MessageIllegal", "ValueError", "TypeError", "ConfigError"}


def victim(how: str, call: str, root: Path) -> list[str]:
    """What each try came to."""
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-m", "tests.regress.closing_victim", how, call, str(root)],
                          capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return [line.rpartition(" ")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("call", [name for name, (_, arguments) in CALLS.items()
                                  if any(True for value in arguments for _ in tricks(value, list))])
def test_an_argument_that_closes_the_store(tmp_path, call):
    outcomes = victim("argument", call, tmp_path / "s")
    assert outcomes and set(outcomes) <= KNOWN


@pytest.mark.parametrize("how", [how for how in HOW if how != "argument"])
@pytest.mark.parametrize("call", CALLS)
def test_code_that_runs_inside_a_call_closes_the_store(tmp_path, call, how):
    outcomes = victim(how, call, tmp_path / "s")
    assert outcomes and set(outcomes) <= KNOWN
