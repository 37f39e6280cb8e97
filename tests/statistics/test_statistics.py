"""Statistics: what was counted is what was done, under our names, upstream's and Prometheus'."""
import errno
import pathlib
import re
import threading
import time
import typing

import pytest

import rmq_store
from bench.load import statistics_cost
from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.services.statistics.report import Rates, StoreStats

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", write_path="pool", flush_backend="fdatasync", **SMALL) as s:
        yield s


def work(store):
    for i in range(20):
        store.put("A" if i % 4 else "B", b"x" * i, queue_id=i % 2)
    store.flush()
    assert store.wait_dispatched(30)
    for queue in (0, 1):
        assert len(store.get("A", queue, 0)) > 0
    assert len(store.get("none", 0, 0)) == 0


def test_stats_is_the_dict_its_type_says(store):
    work(store)
    stats = store.stats()
    assert set(stats) == set(typing.get_type_hints(StoreStats))
    for name, kind in typing.get_type_hints(StoreStats).items():
        if kind in (int, str, bool):
            assert type(stats[name]) is kind or (kind is bool and stats[name] in (0, 1)), name
    assert (stats["puts"], stats["gets_found"], stats["gets_missed"]) == (20, 2, 1)
    assert stats["got_messages"] == sum(len(store.get("A", q, 0)) for q in (0, 1))
    with MessageStore.open(store.path, readonly=True, **SMALL) as reader:
        assert set(reader.stats()) == set(stats)


def test_topics_are_counted_with_their_bytes(store):
    work(store)
    counts = store.topic_counts()
    assert {t: n for t, (n, _) in counts.items()} == {"A": 15, "B": 5}
    assert sum(size for _, size in counts.values()) == store.stats()["put_bytes"]
    for topic in "AB":
        assert counts[topic][1] == sum(m.size for m in store.scan(topic))


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_what_was_there_before_is_not_counted(tmp_path, end):
    probe = ProbeIo(keep_bytes=False)
    store = MessageStore.open(tmp_path / "s", _io=probe, **SMALL)
    work(store)
    if end == "killed":
        probe.freeze()
    store.close()
    with MessageStore.open(tmp_path / "s", **SMALL) as again:
        assert again.topic_counts() == {} and again.stats()["puts"] == 0
        again.put("A", b"one")
        assert again.wait_dispatched(30) and again.topic_counts()["A"][0] == 1


def test_durations_are_of_what_was_done(store):
    work(store)
    found = store.histograms()
    assert set(found) == {"lock", "append", "commit", "flush", "dispatch_lag", "get"}
    assert found["append"].count >= 1 and found["append"].highest > 0 and found["lock"].count == 0      # one put in 64
    assert found["commit"].count >= 1 and found["flush"].count == store.stats()["flushes"] >= 1
    assert found["dispatch_lag"].count >= 1 and found["get"].count == 1      # one get in 16
    assert 0 < found["commit"].highest <= found["flush"].highest
    assert store.stats()["durations"]["flush"]["max_us"] == found["flush"].highest / 1e3
    for _ in range(32):
        store.get("A", 0, 0)
    assert store.histograms()["get"].count == 3


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_every_way_to_flush_is_timed(tmp_path, write_path, flush_mode):
    """Also io_uring, where flush_backend auto comes to it."""
    with MessageStore.open(tmp_path / "s", write_path=write_path, flush_mode=flush_mode, **SMALL) as s:
        for _ in range(3):
            s.put("T", b"x")
            s.flush()
        assert s.histograms()["flush"].count == s.stats()["flushes"] >= 3 and s.histograms()["flush"].lowest > 0


def test_measured_puts(tmp_path):
    with MessageStore.open(tmp_path / "s", measure_puts=True, **SMALL) as s:
        for _ in range(5):
            s.put("T", b"x")
        s.put_many("T", [b"y"] * 3)
        with pytest.raises(ValueError):
            s.put("T/", b"x")
        assert s.histograms()["put"].count == 7 and isinstance(s, MessageStore)
        assert {"putLatency99", "putLatency999", "putMessageEntireTimeMax"} <= set(s.runtime_info())


@pytest.mark.parametrize("again", ["writing", "readonly"])
def test_runtime_info_has_the_progress_of_delay_levels(tmp_path, again):
    def told(s):
        return {k: v for k, v in s.runtime_info().items() if k.startswith("scheduleMessageOffset_")}

    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        assert told(s) == {}
        for _ in range(2):
            s.put("T", b"x", delay_level=18)
        s.put("T", b"x", delay_level=17)
        assert s.wait_dispatched(30)
        assert told(s) == {"scheduleMessageOffset_17": "0,1", "scheduleMessageOffset_18": "0,2"}
    with MessageStore.open(tmp_path / "s", readonly=again == "readonly", **SMALL) as s:
        assert told(s) == {"scheduleMessageOffset_17": "0,1", "scheduleMessageOffset_18": "0,2"}


def test_the_driver_that_weighs_them_knows_them():
    """bench/load/statistics_cost.py takes them out of a copy: each must be there once, and none be forgotten."""
    room = pathlib.Path(rmq_store.__file__).parent
    assert [(file, text) for file, text, _ in statistics_cost.REMOVED if (room / file).read_text().count(text) != 1] == []
    timed = re.compile(r"rmq_histogram_add\(&\w+\.\w+")
    there = {found for path in room.rglob("*.pyx") for found in timed.findall(path.read_text())}
    assert there == {found for _, text, _ in statistics_cost.REMOVED for found in timed.findall(text)} and len(there) == 5


def test_a_slow_put_says_in_which_phase(tmp_path, caplog):
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", measure_puts=True, slow_put_ms=1, flush_mode="sync", _io=probe, **SMALL) as s:
        s.put("T", b"warm")
        caplog.clear()
        probe.hold("fdatasync", "/commitlog/")
        putter = threading.Thread(target=s.put, args=("T", b"x"))
        putter.start()
        probe.wait_held(1)
        time.sleep(0.01)        # the put takes at least so long: no upper bound is asked for
        probe.release()
        putter.join()
    slow = [r for r in caplog.records if r.event == "PUT_SLOW"]
    assert slow and slow[0].fields["flushes"] >= 1 and slow[0].fields["ms"] >= 10 and slow[0].fields["flush_ms"] >= 10
    assert slow[0].fields["pool_waits"] == 0


def test_an_append_that_waits_for_the_lock_is_timed(tmp_path):
    """Its holder waits in a probe, where it makes the first file."""
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as s:
        s.put("T", b"x")
        probe.hold("map_store", "/commitlog/")
        putters = [threading.Thread(target=s.put, args=("T", bytes(40_000))) for _ in range(2)]     # without the GIL
        for p in putters:
            p.start()
        probe.wait_held(1)
        while not all(sleeping(p) for p in putters):
            time.sleep(0.001)
        probe.release()
        for p in putters:
            p.join()
        found = s.histograms()["lock"]
        assert found.count == 1 and found.highest > 0


def sleeping(thread):
    with open(f"/proc/self/task/{thread.native_id}/wchan") as f:
        return "futex" in f.read()


def test_a_slow_flush_is_said(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("rmq_store.opened.watch.SLOW_FLUSH_NS", 1)
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put("T", b"x")
        s.flush()
    assert [r.fields["count"] for r in caplog.records if r.event == "FLUSH_SLOW"][-1:] >= [1]


def test_runtime_info_has_upstreams_names(store):
    work(store)
    store._rates.take(store, 0.0)
    for _ in range(10):
        store.put("A", b"x")
    store._rates.take(store, 5.0)
    info = store.runtime_info()
    assert info["putMessageTimesTotal"] == "30" and info["commitLogMinOffset"] == "0"
    assert info["commitLogMaxOffset"] == str(store.max_log_offset)
    assert info["putTps"].split()[0] == "2.0" and len(info["putTps"].split()) == 3
    assert 0 <= float(info["commitLogDiskRatio"]) <= 1
    assert re.fullmatch(r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds ]", info["runtime"])
    assert all(isinstance(v, str) for v in info.values())


def test_a_clock_that_jumps_spoils_no_statistics(tmp_path, monkeypatch):
    """A day ahead and back, of the store's clock and of Python's: durations, rates, the run time and the lock's stay."""
    probe, real = ProbeIo(keep_bytes=False), time.time
    with MessageStore.open(tmp_path / "s", _io=probe, measure_puts=True, **SMALL) as s:
        for days in (1, -1, 0):
            probe.set_clock(int(real() * 1000) + days * 86_400_000)
            monkeypatch.setattr(time, "time", lambda days=days: real() + days * 86_400)
            s._rates.take(s)
            s.put("T", b"x")
            s.flush()
            s._rates.take(s)
            info, stats = s.runtime_info(), s.stats()
            assert info["runtime"].startswith("[ 0 days, 0 hours, ") and float(info["putTps"].split()[0]) > 0
            assert stats["put_lock_ms"] == 0 and stats["slow_put_locks"] == 0
            assert all(d["max_us"] < 60_000_000 for name, d in stats["durations"].items() if name != "dispatch_lag")
        monkeypatch.undo()
        probe.set_clock(None)
        assert s.wait_dispatched(30) and s.max_offset("T", 0) == 3


def test_rates_look_back_as_far_as_asked():
    class Counting:
        puts = 0

        def _stats(self):
            return {"puts": self.puts}

        def _get_stats(self):
            return {"gets_found": 0, "gets_missed": 0, "got_messages": 0}

    rates, store = Rates("s"), Counting()
    assert rates.text("puts") == "0.0 0.0 0.0"
    for second in range(700):
        rates.take(store, float(second))
        store.puts += 100 if second >= 690 else 1
    # the last 10 s: 9 of 100 and the one before; the last 60 s; the last 600 s
    assert [round(rates.over("puts", s), 2) for s in (10, 60, 600)] == [
        round((9 * 100 + 1) / 10, 2), round((9 * 100 + 51) / 60, 2), round((9 * 100 + 591) / 600, 2)]


def test_failed_store_still_tells(tmp_path):
    probe = ProbeIo(keep_bytes=False)
    s = MessageStore.open(tmp_path / "s", flush_mode="sync", _io=probe, **SMALL)
    probe.fail("fdatasync", errno=errno.EIO, path="/commitlog/", sticky=True)
    with pytest.raises(OSError):
        s.put("T", b"x")
    assert s.stats()["errno"] == errno.EIO
    with pytest.raises(OSError):
        s.close()


# ---- Prometheus

def test_metrics_text(store):
    pytest.importorskip("prometheus_client")
    from rmq_store import metrics

    work(store)
    store.offsets.commit("G", "A", 1, 1)
    page = metrics.text(store)
    values = dict(re.findall(r"^(\w+\{[^}]*\}) (\S+)$", page, re.MULTILINE))
    where = f'path="{store.path}"'
    assert values[f"rmq_store_puts_total{{{where}}}"] == "20.0"
    assert values[f'rocketmq_messages_in_total{{{where},topic="A"}}'] == "15.0"
    disk = f'{where},storage_medium="disk",storage_type="local"'
    assert float(values[f"rocketmq_storage_size{{{disk}}}"]) == store.stats()["wrote"]
    assert values[f"rocketmq_storage_dispatch_behind_bytes{{{where}}}"] == "0.0"
    assert float(values[f"rmq_store_pool_free_bytes{{{where}}}"]) == store.stats()["pool_bytes"]      # all is committed
    sample = {frozenset(re.findall(r'(\w+)="', name)) | {name.split("{")[0]}: value for name, value in values.items()
              if 'topic="B"' not in name and 'le="' not in name}
    assert float(sample[frozenset({"rocketmq_consumer_lag_messages", "path", "consumer_group", "topic"})]) == 14
    whole = [v for name, v in values.items() if name.startswith("rmq_store_flush_seconds_bucket") and 'le="+Inf"' in name]
    assert whole == [str(float(store.histograms()["flush"].count))]
    # every value with its type and help, as the format asks
    assert page.count("# TYPE") == page.count("# HELP") > 20


def test_metric_names_stay():
    """Dashboards hang on them: a renamed metric keeps its old name for a release."""
    pytest.importorskip("prometheus_client")
    from rmq_store.metrics import _COUNTERS, _GAUGES

    assert sorted([*_GAUGES, *_COUNTERS]) == [
        "rmq_store_bit_map_skips",
        "rmq_store_commits", "rmq_store_disk_full", "rmq_store_failed", "rmq_store_file_waits", "rmq_store_flushes",
        "rmq_store_gets_found", "rmq_store_gets_missed", "rmq_store_got_bytes", "rmq_store_got_disk_bytes",
        "rmq_store_got_disk_messages", "rmq_store_got_messages", "rmq_store_log_files", "rmq_store_log_flushed_bytes",
        "rmq_store_log_min_offset_bytes", "rmq_store_log_wrote_bytes",
        "rmq_store_message_view_leases", "rmq_store_page_cache_busy", "rmq_store_pool_waits",
        "rmq_store_put_bytes", "rmq_store_put_lock_seconds",
        "rmq_store_puts", "rmq_store_queues", "rmq_store_slow_put_locks", "rmq_store_unreadable_records",
        "rmq_store_waiting_readers",
        "rocketmq_storage_dispatch_behind_bytes"]


def test_two_stores_and_one_that_is_opened_again_are_registered(tmp_path):
    """prometheus_client refuses a second collector with the same names."""
    prometheus = pytest.importorskip("prometheus_client")
    from rmq_store import metrics

    registry = prometheus.CollectorRegistry(auto_describe=True)         # as the default one is

    def paths():
        page = prometheus.generate_latest(registry).decode()
        assert page.count("# TYPE rmq_store_puts_total ") <= 1
        return sorted(re.findall(r'^rmq_store_puts_total\{path="([^"]*)"\}', page, re.MULTILINE))

    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with MessageStore.open(two, profile="test") as second:
        with MessageStore.open(one, profile="test") as first:
            metrics.register(first, registry)
            metrics.register(second, registry)
            metrics.register(second, registry)
            assert paths() == [one, two]
        assert paths() == [two]
        with MessageStore.open(one, profile="test") as first:
            collector = metrics.register(first, registry)
            assert paths() == [one, two]
            registry.unregister(collector)
            assert paths() == []
            metrics.register(first, registry)
            assert one in paths()


def test_a_closed_store_has_no_metrics(tmp_path):
    pytest.importorskip("prometheus_client")
    from rmq_store import metrics

    store = MessageStore.open(tmp_path / "s", **SMALL)
    store.close()
    assert metrics.text(store) == ""
