"""Open, put, get, close, three hundred times in one process: descriptors, mappings, threads and memory stay as they are."""
import json
import os
import subprocess
import sys

import pytest

from tests.crash import scenario

LOOP = """
import gc, json, os, sys, threading
from rmq_store import MessageStore
root, options, times = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])

def once():
    with MessageStore.open(root, **options) as s:
        s.put("T", b"x" * 100, keys="k", tags="t")
        s.put_many("T", [b"y"] * 3)
        s.put_async("T", b"z", wait=True).result(30)
        heard = threading.Event()
        s.add_arriving_listener(lambda *_: heard.set())
        s.put("T", b"w")
        assert s.wait_dispatched(30) and heard.wait(30)
        end = s.max_offset("T", 0)
        assert len([bytes(m.body) for m in s.scan("T", 0, begin=end - 6)]) == 6
        assert s.query_key("T", "k").messages
        s.offsets.commit("g", "T", 0, end)
        s.flush()
    try:
        MessageStore.open(root, **{**options, "segment_size_bytes": 1 << 17})
        raise SystemExit("opened with files of another size")
    except Exception as e:
        assert type(e).__name__ == "StoreRefusesToLoad", e

def state():
    gc.collect()
    with open("/proc/self/statm") as f:
        rss = int(f.read().split()[1]) * 4096
    threads = 0
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as f:
                threads += not f.read().startswith("iou-")      # the kernel's own, which stay for a while
        except OSError:
            pass
    with open("/proc/self/maps") as f:
        maps = [line for line in f]
    return {"rss": rss, "maps": len(maps), "mapped": sum(root in line for line in maps),
            "fds": len(os.listdir("/proc/self/fd")), "threads": threads,
            "objects": len(gc.get_objects())}

for _ in range(times // 5):
    once()
before = state()
for _ in range(times - times // 5):
    once()
print(json.dumps([before, state()]))
"""


def grown(tmp_path, config, times):
    options = {**scenario.SMALL, **scenario.config_options(config), "segment_size_bytes": 1 << 16}
    done = subprocess.run([sys.executable, "-c", LOOP, str(tmp_path / "s"), json.dumps(options), str(times)],
                          capture_output=True, text=True, env=os.environ | {"MALLOC_ARENA_MAX": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    before, after = json.loads(done.stdout)
    assert after["mapped"] == before["mapped"] == 0
    assert (after["fds"], after["threads"]) == (before["fds"], before["threads"]), (before, after)
    assert after["maps"] - before["maps"] < 10, (before, after)             # the heaps of malloc come and go
    assert after["objects"] - before["objects"] < times, (before, after)    # less than one a round
    return after["rss"] - before["rss"], before["rss"]


CONFIGS = [("mmap", "async", "msync"), ("pool", "sync", "fdatasync")]
if scenario.RING_HERE:
    CONFIGS.append(("pool", "async", "io_uring"))


@pytest.mark.parametrize("config", CONFIGS, ids="-".join)
@pytest.mark.parametrize("lives", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_many_lives(tmp_path, config, lives):
    more, before = grown(tmp_path, config, lives)
    # 1-2 MiB, and 900 lives grow little more; on a busy machine memory is given back later.
    assert more < before // 5, f"{more} bytes more of {before}"
