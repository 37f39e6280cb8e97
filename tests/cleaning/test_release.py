"""Memory of idle files of the log: given back, counted, and never at the cost of what a reader has."""
import errno
import re

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.opened.tasks import tasks_of
from rmq_store.services.cleaning._clean import release_idle

SEGMENT = 1 << 16
SMALL = {"segment_size_bytes": SEGMENT, "index_enabled": False, "manifest_enabled": False}
TASK = "giving back the memory of idle files"


def fill(store, files=5):
    while store.stats()["log_files"] <= files or store.max_log_offset < files * SEGMENT + 4000:
        store.put("T", b"x" * 1000)
    store.flush()
    assert store.wait_dispatched(30)


def read(store):
    """All messages, as bytes; the views are gone when it returns."""
    found, at = [], 0
    while (result := store.get("T", 0, at)).next_offset > at and len(result):
        found += [(m.queue_offset, bytes(m.body)) for m in result]
        at = result.next_offset
    return found


def resident(store):
    """KiB that this process has of each log file in its page tables: {name: KiB}."""
    found, name = {}, None
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            if match := re.match(r"[0-9a-f]+-[0-9a-f]+ .*?(/.*)?$", line):
                name = match[1] if match[1] and f"{store.path}/commitlog/" in match[1] else None
            elif name and line.startswith("Rss:"):
                key = name.rpartition("/")[2]
                found[key] = found.get(key, 0) + int(line.split()[1])
    return found


@pytest.mark.parametrize("options", [{}, {"guard_maps": True}, {"write_path": "pool"}])
def test_idle_files_give_their_memory_back(tmp_path, options):
    with MessageStore.open(tmp_path / "s", **SMALL, **options) as store:
        fill(store)
        before = read(store)
        view = store.get("T", 0, 0)[0]
        assert release_idle(store, 2) == 0          # they were read since the last look
        assert resident(store)["0" * 20] > 0
        files = store.stats()["log_files"]
        sealed = sum(start + SEGMENT <= store.stats()["flushed"] for start in range(0, files * SEGMENT, SEGMENT))
        released = release_idle(store, 2)
        assert released == min(files - 2, sealed) and store.stats()["released_maps"] == released
        assert resident(store)["0" * 20] == 0
        assert bytes(view.body) == before[0][1] and resident(store)["0" * 20] > 0        # the map is where it was
        del view
        assert release_idle(store, 2) == 0          # only what somebody has found since
        assert read(store) == before
        assert [release_idle(store, 2) for _ in range(3)] == [0, released, 0]
        store.put("T", b"then")
        assert store.wait_dispatched(30) and read(store)[:-1] == before


def test_a_file_that_is_read_in_between_and_the_newest_ones_keep_it(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 6)
        read(store)
        release_idle(store, 4)
        store.get("T", 0, 0, 1)
        assert release_idle(store, 4) == store.stats()["log_files"] - 4 - 1 >= 1
        assert resident(store)["0" * 20] > 0
        assert release_idle(store, 1000) == 0


def test_what_is_not_flushed_is_left_alone(tmp_path):
    options = SMALL | {"flush_interval_ms": 3_600_000, "flush_interval_max_ms": 3_600_000, "flush_pages_min": 1 << 20}
    with MessageStore.open(tmp_path / "s", **options) as store:
        fill(store, 2)
        flushed = store.stats()["flushed"]
        while store.max_log_offset < flushed + 4 * SEGMENT:
            store.put("T", b"y" * 1000)
        assert store.wait_dispatched(30)
        read(store)
        release_idle(store, 2)
        assert release_idle(store, 2) * SEGMENT <= store.stats()["flushed"]
        assert len(read(store)) == store.max_offset("T", 0)


def test_an_error_is_raised_and_the_store_serves(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store:
        fill(store)
        before = read(store)
        release_idle(store, 2)
        probe.fail("release", 1, errno.EIO)
        with pytest.raises(OSError, match=str(tmp_path)) as caught:
            release_idle(store, 2)
        assert caught.value.errno == errno.EIO
        assert release_idle(store, 2) >= 1 and read(store) == before
        released = [c for c in probe.trace() if c.kind == "release"]
        assert len(released) >= 2 and all(c.length == SEGMENT and "/commitlog/" in c.path for c in released)


def test_the_control_thread_does_it_unless_it_must_not(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert [ms for name, ms, _ in tasks_of(store, True) if name == TASK] == [3_600_000]
    with MessageStore.open(tmp_path / "s", map_release_enabled=False, **SMALL) as store:
        assert TASK not in [name for name, _, _ in tasks_of(store, True)]
    options = SMALL | {"map_release_interval_ms": 100, "map_release_reserve_files": 2}
    with MessageStore.open(tmp_path / "s", **options) as store:
        fill(store)
        read(store)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **options) as reader:
            read(reader)
            while not (store.stats()["released_maps"] and reader.stats()["released_maps"]):
                pass
            assert read(reader) == read(store)
