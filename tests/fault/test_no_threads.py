"""A machine that gives no more threads: open is refused whole, whichever of its threads it is that cannot be had."""
import json
import os
import subprocess
import sys
import tempfile

import pytest

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="a limit on threads does not bind root; to be "
                                                                             "somebody else for a moment needs root")]

CODE = """
import json, os, resource, sys, threading, crc32c     # while this user can read it
from rmq_store import MessageStore
os.setgroups([])
os.setresgid(54321, 54321, 54321)
os.setresuid(54321, 54321, 54321)       # nobody else runs as this user
options = {"segment_size_bytes": 1 << 16, **json.loads(sys.argv[2])}
refusals, bad = [], []
for limit in range(1, 60):
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, 60))
    try:
        store = MessageStore.open(sys.argv[1], **options)
    except (OSError, RuntimeError) as e:
        refusals.append(type(e).__name__)
        for _ in range(100_000):            # a thread that was joined stands there for a moment
            if len(os.listdir("/proc/self/task")) == 1:
                break
        if len(os.listdir("/proc/self/task")) != 1 or any(sys.argv[1] in os.path.realpath("/proc/self/fd/" + fd)
                                                          for fd in os.listdir("/proc/self/fd")):
            bad.append([limit, str(e)])
        last = repr(e)
        continue
    break
else:
    raise SystemExit(f"no limit was high enough: {last}")
result = store.put("T", b"x", wait=True).status.name
future = store.put_async("T", b"y", wait=True)      # its thread may not be had either: who asks flushes
future = future.result(30).status.name
seen = store.wait_dispatched(30) and store.max_offset("T", 0)
store.close()
print(json.dumps({"refusals": refusals, "bad": bad, "put": result, "future": future, "seen": seen}))
"""


@pytest.mark.parametrize("options", [{}, {"write_path": "pool", "flush_backend": "fdatasync"}], ids=["mmap", "pool"])
def test_every_thread_refused_once(options):
    # Not below pytest's directory: any pytest that starts meanwhile closes that to everybody else.
    with tempfile.TemporaryDirectory(prefix="rmq-test-") as theirs:
        os.chown(theirs, 54321, 54321)
        done = subprocess.run([sys.executable, "-c", CODE, os.path.join(theirs, "s"), json.dumps(options)],
                              capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}, cwd="/")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found["refusals"]) >= 5 and not found["bad"], found
    assert (found["put"], found["future"], found["seen"]) == ("PUT_OK", "PUT_OK", 2)
