"""arm64, from elsewhere: a cross compiler takes native/ without a warning, and its atomics and futexes run under qemu.

qemu orders memory as its host does: this is about instructions, types and calls. That no fence is missing is not shown here.
"""
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
SOURCES = sorted((NATIVE / "src").glob("*.c"))
PROGRAMS = sorted((NATIVE / "tests").glob("*.c"))
CC = "aarch64-linux-gnu-gcc"
# The cross compiler's own headers first; liburing's, which know no architecture, are taken from this machine.
STRICT = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Wcast-align=strict", "-Werror",
          "-fsyntax-only", "-idirafter", "/usr/include", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'net'}"]

pytestmark = [
    pytest.mark.skipif(platform.machine() == "aarch64", reason="the other tests say it: this is arm64"),
    pytest.mark.skipif(shutil.which(CC) is None, reason=f"no {CC} (Debian: gcc-aarch64-linux-gnu)"),
]


@pytest.mark.parametrize("source", SOURCES + PROGRAMS, ids=lambda p: p.name)
def test_native_compiles_for_arm64_without_a_warning(source: Path) -> None:
    if not Path("/usr/include/liburing.h").is_file() and "liburing.h" in source.read_text():
        pytest.skip("no /usr/include/liburing.h")
    run = subprocess.run([CC, *STRICT, str(source)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-6000:]


def test_atomics_and_futexes_run_on_arm64(tmp_path: Path) -> None:
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    for what, package in (("make", "make"), (qemu, "qemu-user")):
        if what is None or shutil.which(what) is None:
            pytest.skip(f"no {what or 'qemu-aarch64'} (Debian: {package})")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "CFLAGS"))}
    make = ["make", "-C", str(NATIVE / "tests"), f"OUT={tmp_path}/out", "KINDS=plain", "TESTS=wake_test waiters_test",
            "NATIVE=", "LIBS=-static -lpthread", f"CC={CC}", f"RUN={qemu}"]
    run = subprocess.run(make, capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]


def test_giving_a_lock_up_is_a_fence_on_arm64(tmp_path: Path) -> None:
    """Who gives the put lock up looks next whether somebody sleeps, and that look must not overtake what was put."""
    source = tmp_path / "f.c"
    source.write_text('#define _GNU_SOURCE\n#include "rmq_wake.h"\n'
                      "int look(rmq_mutex *m, const int *asleep) { rmq_mutex_unlock(m); return rmq_load32(asleep); }\n")
    command = [CC, "-std=gnu11", "-O2", f"-I{NATIVE / 'include'}", "-S", "-o", "-", str(source)]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("look:")[1].split(".size")[0]
    assert "dmb\tish" in code, code
