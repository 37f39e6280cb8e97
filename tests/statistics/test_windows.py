"""The last minute, hour and day of RocketMQ's items, by a clock that the test moves; and what runtime_info says beside them."""
import re

import pytest

import rmq_store
from rmq_store import MessageStore
from rmq_store.base.histogram._histogram import Histogram
from rmq_store.services.statistics.report import _distribution
from rmq_store.services.statistics.windows import NAMES, Windows, human_bytes

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "delay": "store_only", "enable_lmq": True,
         "enable_multi_dispatch": True}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s._windows = Windows(s.path, "DefaultCluster", at=0.0)
        yield s


def read(store, at, day=None):
    store._windows.take(store, store._consuming.counts(), at, day)


def put(store, count, topic="T", size=10):
    sizes = [store.put(topic, b"x" * size).size for _ in range(count)]
    assert store.wait_dispatched(30)
    return sum(sizes)


def window(store, name="TOPIC_PUT_NUMS", key="T", of="statsMinute"):
    w = store.stats_item(name, key)[of]
    return w["sum"], w["tps"], w["avgpt"]


def test_a_minute_has_seven_readings(store):
    """StatsItem.samplingInSeconds: the first reading counts from ten seconds before on; the eighth pushes the first one out."""
    assert store.stats_item("TOPIC_PUT_NUMS", "T") is None
    for i in range(1, 10):
        put(store, i)
        read(store, 10.0 * i)
        counted = range(max(i - 5, 1), i + 1)
        assert window(store) == (sum(counted), sum(counted) / (10 * len(counted)), 1.0)
    read(store, 100.0)
    assert window(store) == (5 + 6 + 7 + 8 + 9, 35 / 60, 1.0)
    for i in range(6):
        read(store, 110.0 + 10 * i)
    assert window(store) == (0, 0.0, 0.0)


def test_the_hour_and_the_day_are_read_more_seldom(store):
    put(store, 6)
    for at in range(10, 600, 10):
        read(store, float(at))
    assert window(store, of="statsHour") == (0, 0.0, 0.0)      # RocketMQ reads for the hour every ten minutes
    read(store, 600.0)
    assert window(store, of="statsHour") == (6, 6 / 600, 1.0) and window(store, of="statsDay")[0] == 0
    assert window(store)[0] == 0
    for hour in range(1, 31):
        put(store, 1)
        read(store, 3600.0 * hour)
    assert window(store, of="statsDay") == (24, 24 / 86400, 1.0)
    assert window(store, of="statsHour") == (6, 6 / (6 * 3600), 1.0)      # seven readings, however late they were taken


def test_a_late_reading_divides_by_the_time_that_passed(store):
    put(store, 30)
    read(store, 25.0)
    assert window(store) == (30, 30 / 25, 1.0)
    put(store, 10)
    read(store, 29.0)           # not due yet: the next one is at 30
    assert window(store) == (30, 30 / 25, 1.0)
    read(store, 30.0)
    assert window(store) == (40, 40 / 30, 1.0)


def test_sizes_groups_and_the_whole_store(store):
    size = put(store, 4, size=100) + put(store, 1, "RMQ_SYS_TRACE_TOPIC")
    of_t = sum(m.size for m in store.scan("T"))
    with store.consumer("G", "T") as c:
        for _ in range(2):
            batch = c.poll(2)
            batch.ack()
    read(store, 10.0)
    assert window(store, "TOPIC_PUT_SIZE") == (of_t, of_t / 10, of_t / 4) and size > of_t
    assert window(store, "GROUP_GET_NUMS", "T@G") == (4, 0.4, 2.0)         # for each get that found messages
    assert window(store, "GROUP_GET_SIZE", "T@G") == (of_t, of_t / 10, of_t / 2)
    assert window(store, "BROKER_PUT_NUMS", "DefaultCluster") == (5, 0.5, 0.0)
    assert window(store, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "DefaultCluster") == (4, 0.4, 0.0)
    assert window(store, "BROKER_GET_NUMS", "DefaultCluster")[0] == store.stats()["got_messages"] == 4
    found = store.stats_items()
    assert tuple(found) == NAMES and set(found["TOPIC_PUT_NUMS"]) == {"T", "RMQ_SYS_TRACE_TOPIC"}
    assert found["TOPIC_PUT_NUMS"]["T"] == store.stats_item("TOPIC_PUT_NUMS", "T") and found["SNDBCK_PUT_NUMS"] == {}
    with pytest.raises(rmq_store.errors.ArgumentIllegal, match="TOPIC_PUT_NUMS"):
        store.stats_item("TOPIC_PUT", "T")


def test_light_queues_are_not_counted_again(store):
    for _ in range(3):
        store.put("T", b"x", light_queues=["a", "b"])
    assert store.wait_dispatched(30)
    assert len(store.get("%LMQ%a", 0, 0)) == 3
    read(store, 10.0)
    assert set(store.stats_items()["TOPIC_PUT_NUMS"]) == {"T"}
    assert window(store, "BROKER_PUT_NUMS", "DefaultCluster")[0] == 3


def test_more_queues_than_one_look_takes(store, monkeypatch):
    monkeypatch.setattr("rmq_store.services.statistics.windows.CHUNK", 3)
    for i in range(8):
        store.put(f"T{i % 2}", b"x", queue_id=i // 2)
    assert store.wait_dispatched(30)
    read(store, 10.0)
    assert {k: i["statsMinute"]["sum"] for k, i in store.stats_items()["TOPIC_PUT_NUMS"].items()} == {"T0": 4, "T1": 4}
    assert len(store.broker_stats()["QUEUE_PUT_NUMS"]) == 8


def test_totals_of_yesterday_and_today(store):
    def totals(kind):
        info = store.runtime_info()
        return [int(info[f"msg{kind}Total{when}"]) for when in ("YesterdayMorning", "TodayMorning", "TodayNow")]

    read(store, 1.0, "2026-11-24")
    put(store, 3)
    read(store, 10.0, "2026-11-24")
    mornings = totals("Put")[:2]
    assert totals("Put")[2] == 3
    put(store, 4)
    assert len(store.get("T", 0, 0, 7)) == 7
    read(store, 20.0, "2026-11-25")
    assert totals("Put") == [mornings[1], 3, 7] and totals("Get") == [0, 0, 7]
    read(store, 30.0, "2026-11-26")
    assert totals("Put") == [3, 7, 7] and totals("Get") == [0, 7, 7]


def test_messages_that_the_log_does_not_take_are_counted(tmp_path):
    def failed():
        return int(s.runtime_info()["putMessageFailedTimes"])

    with MessageStore.open(tmp_path / "s", message_size_max_bytes=1000, **SMALL) as s:
        s.put("T", b"x")
        assert failed() == 0
        for count, call in enumerate((lambda: s.put("T", b"x" * 1001), lambda: s.put_async("T", b"x" * 1001),
                                      lambda: s.put_many("T", [b"x", b"x" * 1001]),
                                      lambda: s.put("T", b"x", properties={"P": "x" * 32768})), 1):
            with pytest.raises(rmq_store.errors.PutError):
                call()
            assert failed() == min(count, 3)        # properties are refused before the store is asked to take the message
        s.put("T", b"x")
        assert failed() == 3 and s.runtime_info()["putMessageTimesTotal"] == "2"


def test_runtime_info_has_the_keys_of_a_broker(store):
    put(store, 2)
    store.flush()
    info = store.runtime_info()
    assert info[f"commitLogDiskRatio_{store.path}/commitlog"] == info["commitLogDiskRatio"]
    assert info["earliestMessageTimeStamp"] == str(store.earliest_time()) and info["dispatchBehindBytes"] == "0"
    assert info["remainHowManyDataToFlush"] == "0 B" and info["remainTransientStoreBufferNumbs"] == str(2**31 - 1)
    assert re.fullmatch(r"Total : [\d.]+ [KMGTPE]iB, Free : [\d.]+ [KMGTPE]?i?B\.", info["commitLogDirCapacity"])
    assert not {"remainHowManyDataToCommit", "putMessageDistributeTime"} & info.keys()


def test_puts_by_how_long_they_took(tmp_path):
    with MessageStore.open(tmp_path / "s", measure_puts=True, write_path="pool", **SMALL) as s:
        s.put("T", b"x")
        info = s.runtime_info()
        texts = re.findall(r"(\[\S+\]):(\d+) ", info["putMessageDistributeTime"])
        assert [t for t, _ in texts] == ["[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]",
                                         "[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"]
        assert sum(int(n) for _, n in texts) == 1 and re.fullmatch(r"\d+\.\d\d", info["putLatency99"])
        assert int(info["remainTransientStoreBufferNumbs"]) <= s.options.pool_window_count
        assert re.fullmatch(r"\d+ B", info["remainHowManyDataToCommit"])
    times = Histogram()
    for ms in (20, 60, 150, 300, 700, 1500, 20_000):
        times.add(ms * 1_000_000)
    counts = dict(re.findall(r"(\[\S+\]):(\d+) ", _distribution(times)))
    assert [counts[k] for k in ("[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]",
                                "[10s~]")] == ["1"] * 7


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"),
                                             (5 << 30, "5.0 GiB"), (3 << 60, "3.0 EiB")])
def test_sizes_as_rocketmq_prints_them(count, text):
    assert human_bytes(count) == text
