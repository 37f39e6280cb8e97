"""Delay messages: delivered when due, once, to the real queue, with the bytes upstream gives them; restarts, clocks, damage."""
import errno
import json
import os
import re
import time

import pytest

from rmq_store import MessageStore, errors, verify
from rmq_store.base.io._io import ProbeIo

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
NOW = 1_795_000_000_000
MODES = {"mmap": {}, "pool": {"write_path": "pool", "commit_interval_max_ms": 0}, "sync": {"flush_mode": "sync"}}


class Clock:
    """A wall clock that stands, and is set."""

    def __init__(self, ms=NOW):
        self.ms, self.io, self.store = ms, ProbeIo(keep_bytes=False), None
        self.io.set_clock(ms, 0)

    def open(self, path, **options):
        self.store = MessageStore.open(path, _io=self.io, **SMALL | options)
        return self.store

    def set(self, ms):
        self.ms = ms
        self.io.set_clock(ms, 0)
        if self.store is not None and not self.store.closed and self.store._delay is not None:
            self.store._delay.timer.poke()


def delivered_meanwhile(store):
    """How many the timer delivers now that it should not: one too many would be seen, none does not depend on the time."""
    before = store._delay.timer.state()[0]
    for _ in range(20):
        store._delay.timer.poke()
        time.sleep(0.002)
    return store._delay.timer.state()[0] - before


def bodies(store, topic, queue_id, count):
    assert store.wait_for_message(topic, queue_id, count - 1, 60)
    return [bytes(m.body) for m in store.scan(topic, queue_id)]


def delivered(store, count):
    """The timer moves a level's offset behind the message that it has put on: a reader may be quicker."""
    deadline = time.monotonic() + 60
    while sum(level.offset for level in store.delay_levels()) < count and time.monotonic() < deadline:
        time.sleep(0.001)
    return store.delay_levels()


def offsets(root):
    text = (root / "config" / "delayOffset.json").read_text()
    return {int(k): int(v) for k, v in re.findall(r"(\d+):(\d+)", text[text.index("offsetTable"):])}


@pytest.mark.parametrize("mode", MODES)
def test_a_message_is_delivered_when_it_is_due(tmp_path, mode):
    clock = Clock()
    with clock.open(tmp_path / "s", **MODES[mode]) as s:
        waiting = s.put("T", b"later", queue_id=3, tags="a", keys="k", flag=7, born_timestamp=5, reconsume_times=2,
                        born_host="10.0.0.1:99", delay_level=2)
        assert waiting.queue_offset == 0 and s.wait_for_message(SCHEDULE, 1, 0, 60)
        clock.set(NOW + 4999)
        assert delivered_meanwhile(s) == 0 and s.max_offset("T", 3) == 0
        assert s.delay_levels() == [(2, 5000, 0, 1, 1, NOW + 5000)]
        clock.set(NOW + 5000)
        (message,) = s.get("T", 3, 0, tags="a", wait=60)
        assert (message.topic, message.queue_id, bytes(message.body), message.flag) == ("T", 3, b"later", 7)
        assert (message.born_timestamp, message.born_host, message.reconsume_times) == (5, "10.0.0.1:99", 2)
        assert message.store_timestamp == NOW + 5000
        assert message.properties == {"TAGS": "a", "KEYS": "k", "DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "3"}
        del message
        assert delivered_meanwhile(s) == 0 and s.max_offset("T", 3) == 1
        assert delivered(s, 1) == [(2, 5000, 1, 1, 0, None)]
        assert s.wait_dispatched(60) and len(s.query_key("T", "k")) == 1


def test_levels_are_cut_and_refused(tmp_path):
    with Clock().open(tmp_path / "s", delay_levels="1s 1m") as s:
        s.put("T", b"x", delay_level=99)
        assert s.put("T", b"x", delay_level=0).queue_offset == 0
        s.put_async("T", b"x", properties=b"a\x01b", delay_level=1).result(60)
        assert s.wait_dispatched(60)
        assert [s.max_offset(SCHEDULE, i) for i in (0, 1)] == [1, 1] and s.max_offset("T", 0) == 1
        assert s.get(SCHEDULE, 0, 0)[0].properties == {"a": "b", "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
        for bad in (-1, "3", True, 1 << 31):
            with pytest.raises(errors.MessageIllegal, match="level"):
                s.put("T", b"x", delay_level=bad)
        with pytest.raises(errors.MessageIllegal, match="two names"):
            s.put("T", b"x", delay_level=1, properties={"DELAY": "1"})


def test_order_and_number_at_one_moment(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        for i in range(999):
            s.put("T", b"%d" % i, delay_level=1 + i % 3)
        assert s.wait_dispatched(60)
        clock.set(NOW + 10_000)
        found = bodies(s, "T", 0, 999)
        assert len(found) == 999
        for k in range(3):
            assert [b for b in found if int(b) % 3 == k] == [b"%d" % i for i in range(k, 999, 3)]


def test_the_real_clock_wakes_the_timer(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        put = s.put("T", b"x", delay_level=1)
        assert s.get("T", 0, 0, wait=60)[0].store_timestamp >= put.store_timestamp + 1000


@pytest.mark.parametrize("compat", ["4.9", "5.x"])
def test_a_restart_goes_on_behind_what_was_delivered(tmp_path, compat):
    root, clock = tmp_path / "s", Clock()
    with clock.open(root, compat=compat) as s:
        for i in range(10):
            s.put("T", b"%d" % i, delay_level=1 + i // 5)
        s.wait_dispatched(60)
        clock.set(NOW + 1000)
        assert bodies(s, "T", 0, 5) == [b"%d" % i for i in range(5)]
    text = (root / "config" / "delayOffset.json").read_text()
    assert offsets(root) == {1: 5}
    if compat == "4.9":
        assert text == '{\n\t"offsetTable":{1:5\n\t}\n}'
    else:
        assert json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', text))["dataVersion"]["counter"] == 1
    with clock.open(root, compat=compat) as s:
        assert delivered_meanwhile(s) == 0 and s.max_offset("T", 0) == 5
        clock.set(NOW + 5000)
        assert bodies(s, "T", 0, 10) == [b"%d" % i for i in range(10)]
    assert offsets(root) == {1: 5, 2: 5}


def test_what_became_due_while_nobody_was_there(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", delay_level=18)
    clock.set(NOW + 86_400_000)
    with clock.open(tmp_path / "s") as s:
        assert bodies(s, "T", 0, 1) == [b"x"]


def test_how_far_it_is_is_written_by_itself(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s", delay_offset_flush_interval_ms=1) as s:
        s.put("T", b"x", delay_level=1)
        assert s.wait_dispatched(60)
        clock.set(NOW + 1000)
        while not (tmp_path / "s" / "config" / "delayOffset.json").exists():
            time.sleep(0.001)
        assert offsets(tmp_path / "s") == {1: 1}


@pytest.mark.parametrize("mode", MODES)
def test_the_file_never_runs_ahead_of_the_device(tmp_path, mode):
    clock = Clock()
    with clock.open(tmp_path / "s", **MODES[mode]) as s:
        s.put("T", b"x", delay_level=1)
        s.wait_dispatched(60)
        clock.set(NOW + 1000)
        assert bodies(s, "T", 0, 1)
        s._delay.write()
        copy = s.get("T", 0, 0)[0]
        assert s.stats()["flushed"] >= copy.offset + copy.size and offsets(tmp_path / "s") == {1: 1}
        del copy


# ---- clocks

def test_a_clock_set_back_delivers_what_would_wait_too_long(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", delay_level=5)
    clock.set(NOW - 86_400_000)
    with clock.open(tmp_path / "s") as s:       # upstream's rule: due in a day and a minute, more than the level's minute
        assert bodies(s, "T", 0, 1) == [b"x"]


def test_a_message_put_after_the_clock_was_set_back_waits_its_delay(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"now")
        clock.set(NOW - 86_400_000)
        assert s.put("T", b"x", delay_level=9).store_timestamp == NOW       # store times never run backwards
        s.put("T", b"y", delay_level=1)
        begun = time.monotonic()
        assert bodies(s, "T", 0, 2) == [b"now", b"y"]       # after a second of the monotonic clock; x waits five minutes
        assert time.monotonic() - begun > 0.5
        assert [(level.level, level.waiting) for level in delivered(s, 1)] == [(1, 0), (9, 1)]


def test_a_clock_set_forward_delivers(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", delay_level=18)
        s.wait_dispatched(60)
        clock.set(NOW + 86_400_000)
        assert bodies(s, "T", 0, 1) == [b"x"]


@pytest.mark.parametrize("closed", [False, True])
def test_put_while_the_clock_was_wrong_and_put_right(tmp_path, closed):
    """Ahead: it would wait for a day longer than its level, and comes at once. Behind: it is over. Each comes once."""
    for wrong in (86_400_000, -86_400_000):
        clock, root = Clock(NOW + wrong), tmp_path / f"{wrong}"
        with clock.open(root) as s:
            s.put("T", b"x", delay_level=5)
            assert s.wait_dispatched(60) and delivered_meanwhile(s) == 0
            if not closed:
                clock.set(NOW)
                assert bodies(s, "T", 0, 1) == [b"x"] and delivered(s, 1)[0].waiting == 0
        clock.set(NOW)
        with clock.open(root) as s:
            assert bodies(s, "T", 0, 1) == [b"x"] and delivered_meanwhile(s) == 0 and s.max_offset("T", 0) == 1


# ---- what cannot be delivered

def test_a_full_disk_delays_and_loses_nothing(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s", segment_size_bytes=8192) as s:
        s.put("T", b"0" + bytes(3000), delay_level=1)       # there is a file
        clock.io.fail("fallocate", errno=errno.ENOSPC, path="/.alloc/", sticky=True)
        count = 1
        with pytest.raises(errors.DiskFull):
            while True:
                s.put("T", b"%d" % count + bytes(3000), delay_level=1)
                count += 1
        assert s.wait_dispatched(60)
        clock.set(NOW + 1000)
        while s._delay.timer.state()[3] == 0:       # failed tries
            time.sleep(0.001)
        before = s.max_offset("T", 0)
        assert before < count
        clock.io.clear()
        assert [int(b.rstrip(bytes(1))) for b in bodies(s, "T", 0, count)] == list(range(count))
        delivered(s, count)
        assert delivered_meanwhile(s) == 0 and s.max_offset("T", 0) == count


def test_what_leads_nowhere_is_passed_over_and_said(tmp_path, caplog):
    with Clock().open(tmp_path / "s") as s:
        s.put(SCHEDULE, b"nowhere", queue_id=0)
        s.put(SCHEDULE, b"half", queue_id=0, properties={"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"})
        for itself in (SCHEDULE, "rmq_sys_wheel_timer"):        # delivery fed itself for ever
            s.put(SCHEDULE, b"itself", queue_id=0, properties={"REAL_TOPIC": itself, "REAL_QID": "0"})
        s.put(SCHEDULE, b"out", queue_id=0, properties={"REAL_TOPIC": "../x", "REAL_QID": "0"})
        s.put(SCHEDULE, b"no name", queue_id=0, properties={"REAL_TOPIC": "x" * 256, "REAL_QID": "0"})
        s.put(SCHEDULE, b"no queue", queue_id=0, properties={"REAL_TOPIC": "T", "REAL_QID": "-1"})
        s.put(SCHEDULE, b"good", queue_id=0, properties={"REAL_TOPIC": "T", "REAL_QID": "0"})
        assert bodies(s, "T", 0, 1) == [b"good"]
        s._delay.write()
        assert "7 delayed messages" in caplog.text and s.max_offset(SCHEDULE, 0) == 8


def test_a_message_larger_than_the_pool_waits_for_a_larger_one(tmp_path, caplog):
    """It was put before the pool was made smaller. The timer does not spin on it, close() does not wait, and it is not lost."""
    clock, large, small = Clock(), {"message_size_max_bytes": 1 << 19}, {"message_size_max_bytes": 1 << 12}
    pool = {"write_path": "pool", "pool_window_size_bytes": 4096, "pool_window_count": 1}
    with clock.open(tmp_path / "s", **pool | large) as s:
        s.put("T", bytes(1 << 18), delay_level=1)
        assert s.wait_dispatched(60)
    clock.set(NOW + 1000)
    with clock.open(tmp_path / "s", **pool | small) as s:
        assert s.stats()["pool_bytes"] < 1 << 18
        deadline = time.monotonic() + 60
        while s._delay.timer.state()[3] == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert s._delay.timer.state()[4] == errno.EMSGSIZE
        s._delay.write()
        assert s.delay_levels()[0].waiting == 1
        assert f"errno {errno.EMSGSIZE}" in caplog.text
    with clock.open(tmp_path / "s", **pool | large) as s:
        assert bodies(s, "T", 0, 1) == [bytes(1 << 18)]


def test_store_only_refuse_and_readonly_deliver_nothing(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s", delay="store_only") as s:
        s.put("T", b"x", delay_level=1)
    clock.set(NOW + 10_000)
    with clock.open(tmp_path / "s", delay="refuse") as s, pytest.raises(errors.ServiceNotAvailable, match="refuse"):
        s.put("T", b"x", delay_level=1)
    with clock.open(tmp_path / "s", readonly=True) as s:
        assert s.delay_levels() == [(1, 1000, 0, 1, 1, None)]
        assert s.max_offset("T", 0) == 0
    with clock.open(tmp_path / "s") as s:
        assert bodies(s, "T", 0, 1) == [b"x"]


def test_a_damaged_file_falls_back_to_its_copy(tmp_path, caplog):
    root, clock = tmp_path / "s", Clock()
    with clock.open(root) as s:
        for i in range(2):
            s.put("T", b"%d" % i, delay_level=1)
            s.wait_dispatched(60)
            clock.set(clock.ms + 1000)
            assert bodies(s, "T", 0, i + 1)
            s._delay.write()
    file = root / "config" / "delayOffset.json"
    file.write_text("{broken")
    with clock.open(root) as s:
        assert "delayOffset.json.bak" in caplog.text
        assert bodies(s, "T", 0, 3) == [b"0", b"1", b"1"]       # the copy is one delivery behind: again, not never
    file.write_text("{broken")
    os.unlink(f"{file}.bak")
    with pytest.raises(errors.CorruptionError, match=r"delayOffset\.json"):
        clock.open(root)


def test_offsets_outside_the_queues_are_corrected(tmp_path):
    root, clock = tmp_path / "s", Clock()
    with clock.open(root, delay="store_only") as s:
        s.put("T", b"x", delay_level=1)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "delayOffset.json").write_text('{"offsetTable":{1:-5,2:77,19:3}}')
    clock.set(NOW + 1000)
    with clock.open(root) as s:
        assert bodies(s, "T", 0, 1) == [b"x"]
    assert offsets(root)[1] == 1


def test_a_checksum_of_the_record_that_waited_does_not_come_along(tmp_path):
    """Put with record_crc, delivered without: every reader would call the copy damaged."""
    clock = Clock()
    with clock.open(tmp_path / "s", record_crc=True) as s:
        s.put("T", b"x", delay_level=1)
    clock.set(NOW + 1000)
    with clock.open(tmp_path / "s", record_crc=False) as s:
        assert bodies(s, "T", 0, 1) == [b"x"]
        assert s.get("T", 0, 0)[0].properties == {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
        s.backup(tmp_path / "b")
    assert [f for f in verify(tmp_path / "s") if f.severity != "note"] == []


# ---- stores of the real RocketMQ

@pytest.mark.parametrize("name", ["v4-delaytx", "v5-delaytx"])
def test_a_golden_store_is_delivered_when_we_take_over(golden, name):
    case = golden(name)
    waiting = [line for line in case.expected() if line["t"] == "msg" and line["topic"] == SCHEDULE]
    before = {(line["topic"], line["queueId"]): line["max"] for line in case.expected() if line["t"] == "queue"}
    clock = Clock(max(line["tagsCode"] for line in waiting))
    wanted = {}
    for line in waiting:
        wanted.setdefault((line["props"]["REAL_TOPIC"], int(line["props"]["REAL_QID"])), []).append(line)
    with MessageStore.open(case.store, compat=case.compat, _io=clock.io, **case.config) as s:
        for (topic, queue_id), lines in wanted.items():
            start = before.get((topic, queue_id), 0)
            assert s.wait_for_message(topic, queue_id, start + len(lines) - 1, 60)
            got = {(m.body.hex(), m.properties_raw.hex()): m for m in s.scan(topic, queue_id, begin=start)}
            assert len(got) == len(lines) and s.max_offset(topic, queue_id) == start + len(lines)
            for line in lines:
                m = got[line["body"], line["propsHex"]]         # properties to the byte, DELAY and REAL_* among them
                assert (m.flag, m.sys_flag, m.born_timestamp, m.reconsume_times) == (
                    line["flag"], line["sysFlag"], line["bornTs"], line["reconsume"])
                assert m.born_host == f"{line['bornIp']}:{line['bornPort']}"
                assert m.store_host == f"{line['storeIp']}:{line['storePort']}"
                assert m.prepared_transaction_offset == 0 and m.body_crc == line["bodyCrc"]
            del got, m
    assert sum(offsets(case.store).values()) == len(waiting)
