"""Reads of old messages are limited for each group, and reads of recent ones are not."""
import pytest

from rmq_store import MessageStore
from rmq_store.services.consumer.cold import ColdReads

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "delay": "store_only", "manifest_enabled": False}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_bucket():
    clock, limit = Clock(), [1000]
    cold = ColdReads(lambda: limit[0], clock)
    assert not cold.spent() and not cold.took(0) and not cold.spent()
    assert cold.took(999) and not cold.spent()
    assert cold.took(2001) and cold.spent()         # 2,000 too many
    clock.now += 1.999
    assert cold.spent()
    clock.now += 0.002
    assert not cold.spent()
    clock.now += 3600
    assert cold.took(1000) and cold.spent()         # an hour of rest is worth one second
    limit[0] = None
    assert not cold.spent() and cold.took(1 << 40) and not cold.spent()
    limit[0] = 10
    assert not cold.spent() and cold.took(11) and cold.spent()


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", cold_read_bytes_max=1000, **SMALL) as s:
        for i in range(12):
            s.put("T", b"%06d" % i + b"x" * 500)
        assert s.wait_dispatched(30)
        s._setup_get(1)             # a machine with so little memory that all messages are old
        s.reconfigure(memory_ratio_pct=100)
        yield s


def test_a_group_waits_for_its_old_messages(store):
    with store.consumer("G", "T") as c, store.consumer("H", "T") as other:
        c._cold = ColdReads(lambda: store.options.cold_read_bytes_max, clock := Clock())
        first = c.poll(3)
        assert [bytes(m.body[:6]) for m in first] == [b"%06d" % i for i in range(3)]
        size = sum(m.size for m in first)
        assert size > 1000 and c.poll(3) is None and c.poll(3, timeout=0.01) is None
        assert len(other.poll(3)) == 3          # each group has a limit of its own
        clock.now += (size - 1000) / 1000 + 0.001
        second = c.poll(3)
        assert [bytes(m.body[:6]) for m in second] == [b"%06d" % i for i in range(3, 6)] and c.poll(3) is None
        store.reconfigure(cold_read_bytes_max=None)
        assert len(c.poll(3)) == 3 and len(c.poll(3)) == 3 and c.poll(3) is None
        assert {row["group"]: row["disk_messages"] for row in store.group_stats()} == {"G": 12, "H": 3}
        del first, second


def test_recent_messages_do_not_wait(store):
    with store.consumer("G", "T") as c:
        c._cold = ColdReads(lambda: store.options.cold_read_bytes_max, Clock())
        assert len(c.poll(4)) == 4 and c.poll(4) is None
        store._setup_get(1 << 40)       # the next messages would be recent, and nobody knows before a read
        store.reconfigure(memory_ratio_pct=99)
        assert c.poll(4) is None
        store.put("U", b"new")
        assert store.wait_dispatched(30)
    with store.consumer("K", ["T", "U"]) as c:
        c._cold = ColdReads(lambda: 1, Clock())
        assert sum(len(c.poll(32)) for _ in range(2)) == 13 and c.poll(32) is None


def test_what_was_given_back_waits_too_and_is_not_lost(store):
    with store.consumer("G", "T") as c:
        c._cold = ColdReads(lambda: store.options.cold_read_bytes_max, clock := Clock())
        batch = c.poll(5)
        batch.nack()
        assert c.poll(5) is None
        clock.now += 100
        again = c.poll(5)
        assert [m.queue_offset for m in again] == [m.queue_offset for m in batch]
        again.ack()
        assert store.offsets.query("G", "T", 0) == 5
        del batch, again


def test_what_a_filter_reads_and_leaves_out_counts(store):
    got = store.get("T", 0, 0, sql="a IS NOT NULL")
    assert len(got) == got.disk_bytes == 0 and got.passed_disk_bytes == store.max_log_offset > 6000
    assert store.get("T", 0, 0, tags="none").passed_disk_bytes == 0     # the entries tell
    store.put("T", b"rare", properties={"a": "1"})
    assert store.wait_dispatched(30)
    store.reconfigure(filter_bytes_max=60)          # three entries a read
    with store.consumer("G", "T", sql="a IS NOT NULL") as c:
        c._cold = ColdReads(lambda: store.options.cold_read_bytes_max, clock := Clock())
        polls = 0
        while (batch := c.poll(3)) is None:
            assert c.poll(3) is None
            clock.now += 1
            polls += 1
        assert [bytes(m.body) for m in batch] == [b"rare"] and 3 < polls < 20
        batch.ack()


def test_recent_messages_that_a_filter_leaves_out_do_not_count(tmp_path):
    with MessageStore.open(tmp_path / "s", cold_read_bytes_max=1000, **SMALL) as s:
        s.put_many("T", [b"x" * 500] * 12)
        assert s.wait_dispatched(30)
        assert s.get("T", 0, 0, sql="a = '1'").passed_disk_bytes == 0
