"""What consumers got, group by group, and the same under upstream's names; counters outlive the consumers."""
import re

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "delay": "store_only"}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        yield s


def fill(store, count, topic="T", queues=2):
    for i in range(count):
        store.put(topic, b"%d" % i, queue_id=i % queues)
    assert store.wait_dispatched(30)


def drain(consumer, count):
    found = 0
    while (batch := consumer.poll(count)) is not None:
        found += len(batch)
        batch.ack()
    return found


def rows(store):
    return {(r["group"], r["topic"]): r for r in store.group_stats()}


def test_what_a_group_got_is_counted(store):
    fill(store, 10)
    fill(store, 3, "U", 1)
    sizes = {t: sum(m.size for m in store.scan(t)) for t in "TU"}
    assert store.group_stats() == []
    with store.consumer("G", ["T", "U"]) as c:
        assert drain(c, 2) == 13
    with store.consumer("other", "U") as c:
        assert len(c.poll(1)) == 1
    found = rows(store)
    assert set(found) == {("G", "T"), ("G", "U"), ("other", "U")}
    assert [found[key]["messages"] for key in sorted(found)] == [10, 3, 1]
    assert {t: found["G", t]["bytes"] for t in "TU"} == sizes
    assert found["G", "T"]["gets"] == found["G", "T"]["get_times"]["count"] == 6          # 5 of each queue, 2 a time
    with store.consumer("G", ["T", "U"]) as c:
        fill(store, 1)
        assert drain(c, 2) == 1
    assert rows(store)["G", "T"]["messages"] == 11


def test_how_far_behind_the_last_get_was(store):
    fill(store, 8, queues=1)
    with store.consumer("G", "T") as c:
        for number, batch in enumerate(iter(lambda: c.poll(2), None)):
            last = batch[-1]
            assert rows(store)["G", "T"]["fall_bytes"] == store.max_log_offset - last.offset - last.size
            assert (rows(store)["G", "T"]["fall_bytes"] == 0) == (number == 3)
            assert rows(store)["G", "T"]["fall_ms"] >= 0
            batch.ack()
            del last, batch


def test_what_was_far_from_the_end_counts_as_from_the_disk(store):
    """Upstream's rule: (end of the log - offset) > memory * ratio. The memory is set, so that it cuts through what is there."""
    fill(store, 12)
    messages = [(m.offset, m.size) for m in store.scan("T")]
    far = sorted(size for offset, size in messages if store.max_log_offset - offset > 1000)
    assert 0 < len(far) < 12
    store._setup_get(1000)
    store.reconfigure(memory_ratio_pct=100)
    with store.consumer("G", "T") as c:
        assert drain(c, 32) == 12
    (row,) = store.group_stats()
    stats = store.stats()
    assert (row["messages"], row["disk_messages"], row["disk_bytes"]) == (12, len(far), sum(far))
    assert (stats["got_messages"], stats["got_disk_messages"], stats["got_disk_bytes"]) == (12, len(far), sum(far))
    found = store.broker_stats()
    assert found["GROUP_GET_FROM_DISK_NUMS"] == {"T@G": len(far)} and found["GROUP_GET_FROM_DISK_SIZE"] == {"T@G": sum(far)}
    store.reconfigure(memory_ratio_pct=0)
    result = store.get("T", 0, 4, 2)        # as by hand: all of it now
    assert (result.disk_messages, result.disk_bytes) == (len(result), result.total_bytes) == (2, sum(m.size for m in result))


def test_failed_ones_and_dead_letters(store):
    fill(store, 1)
    with store.consumer("G", "T", max_retries=1) as c:
        for expected in ("%RETRY%G", "%DLQ%G"):
            batch = c.poll(1, timeout=30)
            assert batch.retry(batch[0]) == expected
            batch.ack()
            assert store.wait_dispatched(30)
    row = rows(store)["G", "T"]
    assert (row["sent_back"], row["dead_letters"]) == (2, 1)        # both count for the topic it was first put into


def test_upstreams_names_and_keys(store):
    fill(store, 5)
    with store.consumer("G", "T") as c:
        batch = c.poll(32)
        batch.retry(batch[0])
        batch.ack()
        assert store.wait_dispatched(30)        # the one that is tried again is in its queue
        drain(c, 32)
    found = store.broker_stats()
    sizes = [sum(m.size for m in store.scan("T", q)) for q in (0, 1)]
    assert found["QUEUE_PUT_NUMS"] == {"%RETRY%G@0": 1, "T@0": 3, "T@1": 2}
    assert {k: v for k, v in found["QUEUE_PUT_SIZE"].items() if k[0] == "T"} == {"T@0": sizes[0], "T@1": sizes[1]}
    assert found["TOPIC_PUT_NUMS"] == {"%RETRY%G": 1, "T": 5} and found["TOPIC_PUT_SIZE"]["T"] == sum(sizes)
    assert found["GROUP_GET_NUMS"]["T@G"] == 5 and found["GROUP_GET_SIZE"]["T@G"] == sum(sizes)
    assert {k: v for k, v in found["QUEUE_GET_NUMS"].items() if k[0] == "T"} == {"T@0@G": 3, "T@1@G": 2}
    assert {k: v for k, v in found["QUEUE_GET_SIZE"].items() if k[0] == "T"} == {"T@0@G": sizes[0], "T@1@G": sizes[1]}
    assert found["GROUP_GET_FROM_DISK_NUMS"] == found["GROUP_GET_FROM_DISK_SIZE"] == {}
    assert found["GROUP_GET_LATENCY"]["T@G"] > 0 and found["SNDBCK_PUT_NUMS"] == {"T@G": 1}
    assert {k for k in found["GROUP_GET_FALL_SIZE"] if k.endswith("@T@G")} == {"0@T@G", "1@T@G"}
    assert found["GROUP_GET_FALL_SIZE"].keys() == found["GROUP_GET_FALL_TIME"].keys()


def test_metrics_of_groups(store):
    pytest.importorskip("prometheus_client")
    from rmq_store import metrics

    fill(store, 4)
    with store.consumer("G", "T") as c:
        batch = c.poll(1)
        batch.retry(batch[0], delay_level=-1)
        batch.ack()
        assert drain(c, 32) == 3
    page = metrics.text(store)
    values = dict(re.findall(r"^(\w+)\{[^}]*consumer_group=\"G\"[^}]*topic=\"T\"[^}]*\} (\S+)$", page, re.MULTILINE))
    assert float(values["rocketmq_messages_out_total"]) == 4 and float(values["rocketmq_send_to_dlq_messages_total"]) == 1
    assert float(values["rocketmq_throughput_out_total"]) == sum(m.size for m in store.scan("T"))
    assert float(values["rmq_store_sent_back_messages_total"]) == 1
