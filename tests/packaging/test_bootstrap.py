"""tools/bootstrap over an environment whose python writes down what is asked of pip, and installs nothing."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = """#!/bin/sh
case "$*" in
"-m pip install"*) echo "$*" >>"{asked}"; exit $(cat "{answer}") ;;
setup.py*) exit 0 ;;
*purelib*) echo "{site}" ;;
*) exec "{python}" "$@" ;;
esac
"""


@pytest.fixture
def bootstrap(tmp_path):
    """Runs it; pip ends with `answer`. Returns the options that pip was called with, call by call."""
    for name in ("pyproject.toml", "tools"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    bin_, asked, answer = tmp_path / ".venv" / "bin", tmp_path / "asked", tmp_path / "answer"
    bin_.mkdir(parents=True)
    python = bin_ / "python"
    python.write_text(PYTHON.format(asked=asked, answer=answer, site=tmp_path, python=sys.executable))
    python.chmod(0o755)

    def run(exit_code, *extra):
        answer.write_text(f"{exit_code}\n")
        asked.unlink(missing_ok=True)
        done = subprocess.run([tmp_path / "tools" / "bootstrap", *extra], capture_output=True, text=True,
                              env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
        if "missing" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == exit_code, done.stderr
        assert ("PIP_INDEX_URL" in done.stderr) == (exit_code != 0)
        assert ("building the extensions: about 5 minutes" in done.stderr) == (exit_code == 0)       # which are not there
        return [set(line.split()) for line in asked.read_text().splitlines()] if asked.exists() else []
    return run


def test_what_is_there_is_not_installed_again(bootstrap):
    assert len(bootstrap(0)) == 1
    assert bootstrap(0) == []
    assert len(bootstrap(0, "--dev")) == 1
    assert bootstrap(0) == bootstrap(0, "--dev") == []


def test_an_installation_cut_short_is_made_again(bootstrap):
    """Killed inside of it, pip leaves packages half written; it fails, or takes them for whole, when it sees them again."""
    again = "--ignore-installed"
    first, = bootstrap(1, "--dev")
    assert again not in first
    second, = bootstrap(1, "--dev")
    assert again in second
    other, = bootstrap(0)
    assert again in other
    third, = bootstrap(0, "--dev")
    assert again in third
    assert bootstrap(0, "--dev") == []


@pytest.mark.root
def test_a_checkout_that_cannot_be_written_is_named_first(tmp_path):
    """Before packages are installed for nothing."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    script = "mount --bind $W $W && mount -o remount,bind,ro $W || exit 77; exec $W/tools/bootstrap"
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script], capture_output=True, text=True,
                          env={**os.environ, "W": str(tmp_path)})
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.returncode == 1 and f"cannot write to {tmp_path}: " in done.stderr, done.stderr
