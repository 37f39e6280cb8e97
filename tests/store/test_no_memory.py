"""A limit on address space, from too little for anything to enough: open says what it lacks, by an error with a type."""
import json
import subprocess
import sys

import pytest

CODE = """
import json, os, resource, sys, threading
import rmq_store.opened.measured, asyncio
from rmq_store import AsyncMessageStore, MessageStore, errors
options = {"segment_size_bytes": 1 << 16, "manifest_enabled": True, "stats_file_interval_ms": 1000, **json.loads(sys.argv[2])}
refused, bad = set(), []
def used():
    return int(open("/proc/self/statm").read().split()[0]) * 4096
MessageStore.open(sys.argv[1] + ".warm", **options).close()
before = threading.active_count()
for step in range(120):
    resource.setrlimit(resource.RLIMIT_AS, (used() + step * (1 << 19), -1))
    try:
        store = MessageStore.open(sys.argv[1], **options)
    except (errors.RmqStoreError, OSError, MemoryError) as e:
        refused.add(type(e).__name__)
        if "temporarily unavailable" in str(e) and "ulimit -v" not in str(e):
            bad.append([step, str(e)])
    except BaseException as e:
        bad.append([step, f"{type(e).__name__}: {e}"])
    else:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        store.close()
        break
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    if threading.active_count() != before:
        bad.append([step, "threads are left"])
store = MessageStore.open(sys.argv[1], **options)
resource.setrlimit(resource.RLIMIT_AS, (used() + (1 << 20), -1))
for name, call in {"listener": lambda: store.add_arriving_listener(id),
                   "callback": lambda: store.put_async("T", b"x", wait=True).add_done_callback(id),
                   "apart": lambda: asyncio.run(AsyncMessageStore(store).clean(0))}.items():
    try:
        call()
    except (errors.RmqStoreError, OSError, MemoryError) as e:
        refused.add(type(e).__name__)
    except BaseException as e:
        bad.append([name, f"{type(e).__name__}: {e}"])
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
store.close()
print(json.dumps({"refused": sorted(refused), "bad": bad, "steps": step}))
"""


@pytest.mark.parametrize("options", [{}, {"write_path": "pool", "flush_backend": "fdatasync"}], ids=["mmap", "pool"])
def test_open_under_a_limit_on_address_space(tmp_path, options):
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path / "s"), json.dumps(options)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["refused"] and found["steps"] > 3 and not found["bad"], found


DIES = """
import os, sys, threading
from rmq_store import MessageStore
bootstrap = threading.Thread._bootstrap
def dies(self):
    if self.name == sys.argv[2]:
        raise MemoryError
    bootstrap(self)
options = {"segment_size_bytes": 1 << 16, "manifest_enabled": True, "stats_file_interval_ms": 1000}
MessageStore.open(sys.argv[1], **options).close()
threads, threading.Thread._bootstrap = len(os.listdir("/proc/self/task")), dies
try:
    MessageStore.open(sys.argv[1], **options)
except OSError as error:
    print(error)
print(threading.active_count(), len(os.listdir("/proc/self/task")) - threads)
threading.Thread._bootstrap = bootstrap
MessageStore.open(sys.argv[1], **options).close()
"""


@pytest.mark.parametrize("name", ["rmq-stats", "rmq-manifest", "rmq-watch"])
def test_a_thread_that_dies_before_it_begins(tmp_path, name):
    """Python's own Thread.start waits for it without end."""
    done = subprocess.run([sys.executable, "-c", DIES, str(tmp_path / "s"), name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    said, left = done.stdout.splitlines()
    assert f"thread {name} cannot be started" in said and left == "1 0"
