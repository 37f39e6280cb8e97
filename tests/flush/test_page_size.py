"""A sync of a mapped file begins where a page of the kernel begins: with 16 or 64 KiB, as on arm64, msync refuses all else.

Method: a library that is preloaded tells another page size; the trace of a probe says where each msync began.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
long sysconf(int name) {
    long (*real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE ? atol(getenv("RMQ_TOLD_PAGE_SIZE")) : real(name);
}
"""
LIFE = """
import json, sys
from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
io = ProbeIo(keep_bytes=False)
with MessageStore.open(sys.argv[1], flush_mode="sync", flush_backend="msync", write_path=sys.argv[2], _io=io,
                       segment_size_bytes=1 << 20, index_enabled=False) as store:
    ends = [(p.offset + p.size) % (1 << 20) for p in (store.put("T", bytes(9000)) for _ in range(150))]
print(json.dumps([ends, [(c.offset, c.length) for c in io.trace() if c.kind == "msync" and "/commitlog/" in c.path]]))
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The preloaded library."""
    if shutil.which("cc") is None:
        pytest.skip("no cc")
    place = tmp_path_factory.mktemp("shim")
    (place / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "shim.c", "-o", "shim.so", "-ldl"], cwd=place,
                   check=True)
    return place / "shim.so"


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_a_sync_begins_at_a_page(tmp_path, shim, write_path, page):
    env = {**os.environ, "LD_PRELOAD": str(shim), "RMQ_TOLD_PAGE_SIZE": str(page)}
    done = subprocess.run([sys.executable, "-c", LIFE, str(tmp_path / "s"), write_path], cwd=ROOT, env=env, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]
    ends, syncs = json.loads(done.stdout)
    assert len(ends) == 150 and len(syncs) >= 150
    assert all(begin % page == 0 for begin, _ in syncs)
    assert any(begin % (2 * page) for begin, _ in syncs)        # no coarser than that
    # What was put is covered, from the page in which it begins on.
    assert all(any(begin <= end - 9000 and end <= begin + length for begin, length in syncs) for end in ends)
