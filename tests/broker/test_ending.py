"""`rmqstore serve` ends on SIGTERM, whichever thread the kernel gives the signal to."""
import ctypes
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soon import until

TGKILL = {"x86_64": 234, "aarch64": 131}.get(platform.machine())


def _takes_it(pid, thread):
    """Whether a thread does not block SIGTERM."""
    blocked = re.search(r"SigBlk:\t(\w+)", Path(f"/proc/{pid}/task/{thread}/status").read_text())
    return not int(blocked[1], 16) & 1 << signal.SIGTERM - 1


@pytest.mark.skipif(TGKILL is None, reason="the number of tgkill is not known here")
def test_a_signal_that_another_thread_gets(tmp_path):
    """As after a stop: of a process that was stopped, the thread that runs first takes the signal."""
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-m", "rmq_store", "serve", tmp_path / "store", "--listen", "127.0.0.1:0",
                                "--namesrv-listen", "127.0.0.1:0", "--ready-file", ready, "--profile", "test"])
    try:
        until(ready.exists, 60_000)
        other = next(int(thread) for thread in os.listdir(f"/proc/{process.pid}/task")
                     if int(thread) != process.pid and _takes_it(process.pid, thread))
        assert ctypes.CDLL(None).syscall(TGKILL, process.pid, other, signal.SIGTERM) == 0
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
