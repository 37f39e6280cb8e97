"""A store in a memory cgroup of 256 MiB: it knows the limit, lives under load, and its own memory stays small. Needs root."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.root

LIMIT = 256 << 20
CHILD = """
import json, sys
from rmq_store import MessageStore
from rmq_store.base.machine.limits import memory_limit
def own():
    "Memory that the kernel cannot give back by writing files: KiB of it."
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))

with MessageStore.open(sys.argv[1], **json.loads(sys.argv[2])) as store:
    begin = own()
    body = b"x" * 4096
    for _ in range(400):
        store.put_many("T", [body] * 256)       # 400 MiB: more than the cgroup holds
    store.flush()
    end = own()
    print(json.dumps({"limit": memory_limit(), "pool": store.stats()["pool_bytes"], "wrote": store.stats()["wrote"],
                      "backend": store.options.flush_backend, "growth": (end - begin) << 10,
                      "windows": [store.options.pool_window_count, store.options.origin("pool_window_count")]}))
"""


def memory_cgroups():
    """Where a memory cgroup can be made, by either version: (directory, the file of its limit)."""
    for base, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        yield pathlib.Path(base), file


@pytest.fixture
def container():
    """A cgroup with LIMIT bytes; gone afterwards."""
    for base, file in memory_cgroups():
        place = base / f"rmq-test-{os.getpid()}"
        try:
            place.mkdir()
        except OSError:
            continue
        try:
            if (place / file).exists():
                (place / file).write_text(str(LIMIT))
                yield place
                return
        finally:
            place.rmdir()
    pytest.skip("no memory cgroup can be made here")


@pytest.mark.parametrize("options", [{}, {"write_path": "pool"}, {"profile": "container"}, {"profile": "nvme"}],
                         ids=lambda o: next(iter(o.values()), "default"))
def test_it_lives_in_256_mib(container, tmp_path, options):
    options = {"segment_size_bytes": 64 << 20, "index_enabled": False, **options}
    child = f"import os, pathlib\npathlib.Path({str(container / 'cgroup.procs')!r}).write_text(str(os.getpid()))\n{CHILD}"
    done = subprocess.run([sys.executable, "-c", child, str(tmp_path / "s"), json.dumps(options)], capture_output=True,
                          text=True, env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["limit"] == LIMIT and told["wrote"] > 400 << 20
    assert told["pool"] <= LIMIT // 8
    if options.get("profile") == "nvme":
        assert told["windows"] == [8, "memory"]
    assert told["growth"] < 32 << 20, told
