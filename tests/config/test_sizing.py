"""Sizes that nobody gave follow memory and disk; what somebody gave, or files tell, does not."""

import pytest

from rmq_store import MessageStore
from rmq_store.base.machine import limits, sizing
from rmq_store.config.load import resolve
from rmq_store.opened import opening

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def given(monkeypatch):
    """given(memory, free): the machine has so much."""
    def set_to(memory=64 * GIB, free=1 << 40):
        monkeypatch.setattr(sizing, "memory_limit", lambda: memory)
        monkeypatch.setattr(sizing, "free_bytes", lambda path: free)
    return set_to


def fit(tmp_path, profile=None, **keywords):
    return sizing.fit(resolve(profile, keywords), str(tmp_path / "commitlog"), str(tmp_path / "index"))


def test_a_large_machine_has_upstream_s_sizes(tmp_path, given):
    given()
    o = fit(tmp_path, write_path="pool")
    assert o == resolve(None, {"write_path": "pool"}) and o.origin("segment_size_bytes") == "default"


@pytest.mark.parametrize(("memory", "windows"), [(64 * GIB, 8), (256 * MIB, 8), (128 * MIB, 4), (8 * MIB, 2)])
def test_the_pool_takes_an_eighth_of_memory(tmp_path, given, memory, windows):
    given(memory=memory)
    assert fit(tmp_path, write_path="pool").pool_window_count == windows
    assert fit(tmp_path, write_path="pool", pool_window_count=7).pool_window_count == 7
    assert fit(tmp_path).pool_window_count == 8       # no pool, nothing to cut


def test_a_profile_s_pool_is_cut_too(tmp_path, given):
    given(memory=256 * MIB)
    o = fit(tmp_path, "nvme")
    assert o.pool_window_count == 8 and o.origin("pool_window_count") == "memory"
    assert o.pool_window_count * o.pool_window_size_bytes <= 256 * MIB // 8


@pytest.mark.parametrize(("free", "segment"), [(16 * GIB, GIB), (16 * GIB - 1, GIB // 2), (2 * GIB, 128 * MIB), (0, 16 * MIB)])
def test_files_follow_the_disk(tmp_path, given, free, segment):
    given(free=free)
    o = fit(tmp_path)
    assert o.segment_size_bytes == segment
    assert o.origin("segment_size_bytes") == ("default" if segment == GIB else "disk")
    assert fit(tmp_path, segment_size_bytes=GIB).segment_size_bytes == GIB
    assert fit(tmp_path, readonly=True).segment_size_bytes == GIB


def test_the_index_follows_the_disk(tmp_path, given):
    given(free=2 * GIB)
    o = fit(tmp_path)
    assert 40 + 4 * o.index_slots + 20 * o.index_entries_max <= 2 * GIB // 16
    assert (o.index_slots * 4, o.origin("index_slots")) == (o.index_entries_max, "disk")
    assert fit(tmp_path, index_slots=9).index_entries_max == 20_000_000
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").touch()
    assert fit(tmp_path).index_slots == 5_000_000


def test_files_that_are_there_keep_their_size(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO", logger="rmq_store")
    path = tmp_path / "s"
    with MessageStore.open(path, segment_size_bytes=MIB, index_enabled=False) as store:
        store.put("T", b"x")
    monkeypatch.setattr(sizing, "free_bytes", lambda path: 0)
    with MessageStore.open(path, index_enabled=False) as store:
        assert (store.options.segment_size_bytes, store.options.origin("segment_size_bytes")) == (MIB, "files")
    with MessageStore.open(tmp_path / "new", index_enabled=False) as store:
        assert store.options.origin("segment_size_bytes") == "disk"
        store.put("T", b"x")
    assert (tmp_path / "new" / "commitlog" / ("0" * 20)).stat().st_size == 16 * MIB
    assert [r.message for r in caplog.records if r.event == "SIZES_CUT"] == [
        f"{tmp_path / 'new'}: the machine has too little memory or disk for the default sizes, so the store uses smaller ones: "
        "segment_size_bytes=16777216"]


# ---- cgroups, in a tree made for it

V2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = ("31 23 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "32 23 0:31 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n")


def tree(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(tmp_path)


def test_an_index_that_was_cut_to_its_disk_is_known_without_its_header(tmp_path, monkeypatch):
    """What a power cut may leave: the file has its length and its name, and nothing else of it is on the device."""
    monkeypatch.setattr(sizing, "free_bytes", lambda path: 400 * MIB)
    with MessageStore.open(tmp_path / "s", segment_size_bytes=MIB) as store:
        store.put("T", b"x", keys="k")
        cut = store.options.index_slots, store.options.index_entries_max
    assert cut[0] < 5_000_000
    (index,) = (tmp_path / "s" / "index").iterdir()
    size = index.stat().st_size
    with open(index, "r+b") as file:
        file.truncate(0)
        file.truncate(size)
    (tmp_path / "s" / "abort").touch()
    (tmp_path / "s" / "checkpoint").unlink()
    with MessageStore.open(tmp_path / "s") as store:
        assert (store.options.index_slots, store.options.index_entries_max) == cut
        assert [m.keys for m in store.query_key("T", "k")] == ["k"]


@pytest.mark.parametrize(("files", "expected"), [
    ({"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": V2, "sys/fs/cgroup/a/memory.max": "268435456\n",
      "sys/fs/cgroup/a/b/memory.max": "max\n"}, 256 * MIB),
    ({"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2, "sys/fs/cgroup/memory.max": "1048576"}, MIB),
    ({"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": V2, "sys/fs/cgroup/a/memory.high": "5"}, 5),
    ({"proc/self/cgroup": "4:memory:/x\n1:name=systemd:/\n", "proc/self/mountinfo": V1,
      "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4096"}, 4096),
    ({"proc/self/cgroup": "4:memory:/gone\n", "proc/self/mountinfo": V1,
      "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 10 * GIB),
    ({}, 10 * GIB),
])
def test_the_least_memory_limit_counts(tmp_path, monkeypatch, files, expected):
    monkeypatch.setattr(limits, "memory_of_machine", lambda: 10 * GIB)
    assert limits.memory_limit(tree(tmp_path, files)) == expected


def test_limits_of_a_device(tmp_path):
    root = tree(tmp_path, {
        "proc/self/cgroup": "0::/a\n3:blkio:/b\n", "proc/self/mountinfo": V2 + V1,
        "sys/fs/cgroup/a/io.max": "8:0 rbps=max wbps=1000 riops=max wiops=120\n254:0 wbps=7\n",
        "sys/fs/cgroup/blkio/b/blkio.throttle.write_bps_device": "8:0 900\n"})
    assert limits.io_limits("8:0", root) == {"wbps": 900, "wiops": 120}
    assert limits.io_limits("9:0", root) == {}


def test_a_store_asks_the_cgroup_for_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "memory_limit", lambda: 0)
    with MessageStore.open(tmp_path / "s", segment_size_bytes=MIB, index_enabled=False) as store:
        for _ in range(20):
            store.put("T", b"x")
        store.wait_dispatched()
        assert len(store.get("T", 0, 0, 32)) == store.options.get_count_max_disk
