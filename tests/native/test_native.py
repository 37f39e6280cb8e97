"""The C programs of native/tests, plain and under the sanitizers, through their Makefile."""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "native" / "tests"
RUNTIME = {"plain": None, "asan": "-fsanitize=address,undefined", "tsan": "-fsanitize=thread"}


@pytest.mark.parametrize("kind", RUNTIME)
def test_native_programs(kind, tmp_path):
    for tool in ("cc", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    empty = tmp_path / "empty.c"
    empty.write_text("#include <liburing.h>\nint main(void) { return 0; }\n")
    out = tmp_path / "empty"
    if subprocess.run(["cc", str(empty), "-o", str(out), "-l:liburing.a"], capture_output=True).returncode:
        pytest.skip("no liburing to compile with")
    if RUNTIME[kind] and subprocess.run(["cc", RUNTIME[kind], str(empty), "-o", str(out)], capture_output=True).returncode:
        pytest.skip(f"cc cannot link {RUNTIME[kind]}: its runtime library is missing")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CFLAGS"))}
    make = ["make", "-C", str(PLACE), f"OUT={tmp_path}/out", f"KINDS={kind}"]
    run = subprocess.run(make, capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
