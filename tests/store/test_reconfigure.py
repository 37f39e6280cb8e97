"""store.reconfigure: live options change what later calls do; anything else is refused and nothing changes."""
import re
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.config.options import BY_NAME, OPTIONS

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000, "message_size_max_bytes": 1000}
LIVE = [o.name for o in OPTIONS if o.change == "live"]


@pytest.fixture(params=["mmap", "pool"])
def store(request, tmp_path):
    with MessageStore.open(tmp_path / "s", write_path=request.param, pool_window_size_bytes=4096, pool_window_count=1,
                           **SMALL) as s:
        yield s


def test_sizes_of_messages_and_topics(store):
    with pytest.raises(errors.MessageIllegal, match="the limit is 1000"):
        store.put("T", b"x" * 1001)
    store.put("T" * 100, b"x")
    store.reconfigure(message_size_max_bytes=1001, topic_size_max_bytes="99")
    assert store.put("T", b"x" * 1001).status == 0
    with pytest.raises(errors.MessageIllegal, match="topic size is 100 bytes, the limit is 99"):
        store.put("T" * 100, b"x")
    assert store.options.message_size_max_bytes == 1001 and store.options.origin("message_size_max_bytes") == "reconfigure"


def test_the_pool_s_size_bounds_the_largest_message(tmp_path):
    small = {"pool_window_size_bytes": 4096, "pool_window_count": 1}
    with MessageStore.open(tmp_path / "s", write_path="pool", **small, **SMALL) as store:
        with pytest.raises(errors.ConfigError, match=r"does not fit twice into the pool of .* reopen it"):
            store.reconfigure(message_size_max_bytes=500_000, query_count_max=1)
        assert store.options.query_count_max == 32 and store.options.message_size_max_bytes == 1000
        store.reconfigure(message_size_max_bytes=100)       # smaller is always fine
        with pytest.raises(errors.MessageIllegal, match="the limit is 100"):
            store.put("T", b"x" * 101)


def test_limits_of_reading(store):
    for _ in range(10):
        store.put("T", b"x", keys="k")
    store.wait_dispatched()
    store.reconfigure(get_count_max_memory=3, query_count_max=2)
    assert len(store.get("T", 0, 0, 32)) == 3
    assert len(list(store.query_key("T", "k"))) == 2
    store.reconfigure(query_batch_max=1)
    assert len(list(store.query_key("T", "k", max_count=5))) == 1
    store.reconfigure(memory_ratio_pct=0, get_count_max_disk=1)
    assert len(store.get("T", 0, 0, 32)) == 1


@pytest.mark.parametrize("change", [{"flush_interval_ms": 1, "flush_pages_min": 0}, {"flush_interval_max_ms": 0},
                                    {"flush_wake": "eager"}], ids=lambda c: next(iter(c)))
def test_a_sleeping_flush_goes_by_the_new_interval(tmp_path, change):
    with MessageStore.open(tmp_path / "s", flush_interval_ms=3_600_000, flush_interval_max_ms=86_400_000, **SMALL) as store:
        end = store.put("T", b"x").offset + 1
        assert store.stats()["flushed"] < end
        store.reconfigure(**change)
        if change == {"flush_wake": "eager"}:
            end = store.put("T", b"x").offset + 1
        while store.stats()["flushed"] < end:       # a hang of the suite where the flush thread did not take it
            store.wait_dispatched(0.01)


def test_eager_and_back(tmp_path):
    with MessageStore.open(tmp_path / "s", flush_interval_ms=3_600_000, flush_wake="eager", **SMALL) as store:
        end = store.put("T", b"x").offset + 1
        while store.stats()["flushed"] < end:
            store.wait_dispatched(0.01)
        store.reconfigure(flush_wake="timed", flush_interval_ms=10, flush_pages_min=0)
        end = store.put("T", b"x").offset + 1
        while store.stats()["flushed"] < end:
            store.wait_dispatched(0.01)


def test_the_deadline_of_a_durable_put(tmp_path):
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", flush_mode="sync", _io=io, **SMALL) as store:
        store.reconfigure(syncFlushTimeout=1)
        io.hold("fdatasync", tmp_path / "s" / "commitlog" / f"{0:020d}")       # no other thread's
        leader = threading.Thread(target=store.put, args=("T", b"x"))
        leader.start()
        try:
            io.wait_held()
            assert store.put("T", b"x").status.name == "FLUSH_DISK_TIMEOUT"
        finally:
            io.release()
            leader.join()


@pytest.mark.parametrize(("change", "words"), [
    ({"write_path": "pool", "query_count_max": 1}, "option write_path cannot change while the store is open"),
    ({"flushDiskType": "SYNC_FLUSH"}, "option flushDiskType cannot change while the store is open: close the store and open it "
                                      "again with flush_mode='sync'"),
    ({"segment_size_bytes": 4096}, "cannot change"),
    ({"query_count_max": 0}, "expected 1 to"),
    ({"query_count": 1}, "did you mean query_count_max?"),
])
def test_what_may_not_change(tmp_path, change, words):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        before = store.options
        with pytest.raises(errors.ConfigError) as error:
            store.reconfigure(**change)
        assert words in str(error.value) and store.options is before
        store.reconfigure(write_path="mmap")        # what holds already may be said again


def test_closed_and_readonly(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
    with pytest.raises(errors.StoreClosed):
        store.reconfigure(query_count_max=1)
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        store.reconfigure(memory_ratio_pct=0, flush_interval_ms=1)
        assert store.options.memory_ratio_pct == 0


def test_every_live_option_is_taken_over():
    """An option is live only if an _apply method takes it over, or it is read from the store's options where it counts."""
    taken, at_use = set(), set()
    for path in (Path(__file__).parents[2] / "rmq_store").rglob("*.py*"):
        if path.suffix in (".py", ".pyx") and path.parent.name != "config":
            text = path.read_text()
            for method in re.findall(r"    def _apply\(.*?(?=\n    (?:def|cdef|@)|\Z)", text, re.DOTALL):
                taken |= set(re.findall(r"options\.(\w+)", method))
            at_use |= set(re.findall(r"(?:self|store)\.options\.(\w+)", text))
            for method in re.findall(r"(?s)    options = store\.options\n.*?(?=\n    (?:def|cdef|@)|\Z)", text):
                at_use |= set(re.findall(r"\boptions\.(\w+)", method))     # read once, when it begins
    assert set(LIVE) - taken - at_use == set()
    assert {n for n in taken & set(BY_NAME) if BY_NAME[n].change != "live"} <= {"segment_size_bytes"}


def test_a_get_goes_by_the_limits_it_began_with(tmp_path):
    """Its room for what it finds was measured by them: one that took over larger ones on its way wrote behind that."""
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=io, get_count_max_memory=10, get_count_max_disk=10, **SMALL) as store:
        store.put_many("T", [b"x"] * 60)
        assert store.wait_dispatched(30)
        found = []
        io.hold("pread", path="/consumequeue/")
        reader = threading.Thread(target=lambda: found.extend(store.get("T", 0, 0, 60)))
        reader.start()
        try:
            io.wait_held()
            store.reconfigure(get_count_max_memory=60, get_count_max_disk=60)
        finally:
            io.release()
            reader.join()
        assert len(found) == 10
        assert len(store.get("T", 0, 0, 60)) == 60
