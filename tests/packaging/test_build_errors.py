"""What cannot be built says what is missing and names its Debian package; setup.py is run as pip would, with less and less."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path):
    """A copy of what setup.py reads, so that a run that goes further than it should leaves this checkout alone."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "LICENSES", tmp_path / "LICENSES")
    (tmp_path / "rmq_store").mkdir()
    shutil.copy(ROOT / "rmq_store" / "version.py", tmp_path / "rmq_store")
    (tmp_path / "packages").mkdir()
    return tmp_path


def refusal(project, **environment):
    done = subprocess.run([sys.executable, "setup.py", "build_ext"], cwd=project, env={**os.environ, **environment},
                          capture_output=True, text=True)
    assert done.returncode != 0 and not (project / "build").exists()
    return done.stderr[done.stderr.index("rmq_store cannot be built here"):]


def packages(message):
    return set(message.splitlines()[-1].partition("apt-get install ")[2].split())


def test_nothing_there(project):
    message = refusal(project, PATH=str(project / "packages"), CC="cc")
    assert "no C compiler: cc not found" in message
    assert packages(message) == {"gcc", "libc6-dev", "pkg-config", "liburing-dev", "libdeflate-dev"}


def test_no_libraries(project):
    message = refusal(project, PKG_CONFIG_LIBDIR=str(project / "packages"))
    assert packages(message) == {"liburing-dev", "libdeflate-dev"}


def test_library_too_old(project):
    (project / "packages" / "liburing.pc").write_text("Name: liburing\nDescription: x\nVersion: 2.1\n")
    message = refusal(project, PKG_CONFIG_LIBDIR=str(project / "packages"))
    assert "liburing 2.1 is too old, 2.3 or newer is needed" in message
