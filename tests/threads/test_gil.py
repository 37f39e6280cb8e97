"""What guards the state that Python threads share: the GIL, also where a Python could do without it."""
import subprocess
import sys
import sysconfig

import pytest

FORCED_OFF = "import sys; sys._is_gil_enabled = lambda: False; import rmq_store"
TURNED_ON = "import sys, rmq_store; sys.exit(not sys._is_gil_enabled())"


def test_a_python_whose_gil_is_forced_off_is_refused_with_the_cure() -> None:
    run = subprocess.run([sys.executable, "-c", FORCED_OFF], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "ImportError: rmq_store needs the GIL" in run.stderr and "PYTHON_GIL=0" in run.stderr


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL")
def test_importing_turns_the_gil_of_a_free_threaded_python_on() -> None:
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", TURNED_ON], timeout=60).returncode == 0
