"""Timer messages: delivered when due, once, to the real queue; restarts, recall, rolls, flow control, bad input."""
import base64
import datetime
import errno
import os
import struct
import zlib

import pytest

from rmq_store import errors
from rmq_store.status import PutStatus
from tests.timer.clock import NOW, TIMER, Clock, bodies, late, pending, read_to, taken, until


@pytest.mark.parametrize("mode", [{}, {"write_path": "pool", "commit_interval_max_ms": 0}, {"flush_mode": "sync"}])
def test_a_message_is_delivered_when_it_is_due(tmp_path, mode):
    clock = Clock()
    with clock.open(tmp_path / "s", **mode) as s:
        s.put("T", b"later", tags="a", deliver_at=NOW + 5000)
        s.put("T", b"sooner", delay=2)
        taken(s, 2)
        clock.set(NOW + 1999)
        assert s.max_offset("T", 0) == 0 and s._timer.wheel.state()[0] == 2
        clock.set(NOW + 2000)
        assert bodies(s, "T", 1) == [b"sooner"]
        clock.set(NOW + 5000)
        (message,) = s.get("T", 0, 1, tags="a", wait=60)
        assert bytes(message.body) == b"later"
        assert message.properties["TIMER_OUT_MS"] == str(NOW + 4000) and message.properties["REAL_TOPIC"] == "T"
        assert message.properties["TIMER_DELIVER_MS"] == str(NOW + 5000)
        del message
        until(lambda: s._timer.wheel.state()[0] == 0)


def test_a_message_is_delivered_after_a_restart_too(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=datetime.datetime.fromtimestamp(NOW / 1000 + 60, datetime.UTC))
        taken(s, 1)
    with clock.open(tmp_path / "s") as s:
        assert s._timer.wheel.state()[0] == 1
        clock.set(NOW + 60_000)
        assert bodies(s, "T", 1) == [b"x"]
        read_to(s, NOW + 60_000)
    with clock.open(tmp_path / "s") as s:
        clock.set(NOW + 120_000)
        read_to(s, NOW + 120_000)
        assert bodies(s, "T", 1) == [b"x"]


def test_the_files_have_rocketmqs_layout(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        first = s.put("T", b"1", deliver_at=NOW + 3500)
        second = s.put("T", b"2", deliver_at=NOW + 3600)
        taken(s, 2)
        read_to(s, NOW)
    log = (tmp_path / "s" / "timerlog" / f"{0:020d}").read_bytes()
    assert len(log) == 4096
    unit, seal = struct.Struct(">iqiqiqiiii"), 0x554E4954     # in 8 bytes that RocketMQ reserves and never reads
    first_crc, second_crc = (zlib.crc32(log[at:at + 44]) & 0x7FFFFFFF for at in (0, 52))
    assert unit.unpack_from(log, 0) == (52, -1, 1, NOW, 3000, first.offset, first.size, ord("T"), seal, first_crc)
    assert unit.unpack_from(log, 52) == (52, 0, 1, NOW, 3000, second.offset, second.size, ord("T"), seal, second_crc)
    wheel = tmp_path / "s" / "timerwheel"
    assert wheel.stat().st_size == 38_707_200
    with open(wheel, "rb") as file:
        file.seek((NOW + 3000) // 1000 % 1_209_600 * 32)
        assert struct.unpack(">qqqii", file.read(32)) == ((NOW + 3000) // 1000, 0, 52, 2, 0)
    check = (tmp_path / "s" / "config" / "timercheck").read_bytes()
    assert len(check) == 4096 and struct.unpack_from(">qqqq", check) == (NOW, 104, 2, 2)


@pytest.mark.parametrize("damage", ["gone", "zeros", "short"])
def test_a_lost_or_damaged_wheel_is_made_again_from_the_log(tmp_path, damage):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        for i in range(250):
            s.put("T", b"%d" % i, deliver_at=NOW + 1000 * (i % 7 + 2))
        taken(s, 250)
    wheel = tmp_path / "s" / "timerwheel"
    if damage == "gone":
        wheel.unlink()
    else:
        os.truncate(wheel, 0 if damage == "zeros" else 777)
    with clock.open(tmp_path / "s") as s:
        assert s._timer.wheel.state()[0] == 250
        clock.set(NOW + 10_000)
        assert sorted(map(int, bodies(s, "T", 250))) == list(range(250))


def test_a_lost_timer_log_is_made_again_from_the_queue(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"early", deliver_at=NOW + 2000)
        s.put("T", b"late", deliver_at=NOW + 60_000)
        taken(s, 2)
        clock.set(NOW + 5000)
        assert bodies(s, "T", 1) == [b"early"]
        read_to(s, NOW + 5000)
    (tmp_path / "s" / "timerlog" / f"{0:020d}").unlink()
    with clock.open(tmp_path / "s") as s:
        taken(s, 2)
        clock.set(NOW + 60_000)
        assert bodies(s, "T", 2) == [b"early", b"late"]


def test_recall_takes_one_message_back(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        handles = [s.recall_handle(s.put("T", b"%d" % i, delay=5).offset) for i in range(5)]
        assert base64.urlsafe_b64decode(handles[0]).decode().split(" ")[:4] == ["v1", "T", "DEFAULT_BROKER", str(NOW + 4001)]
        s.recall(handles[0])
        unknown = base64.urlsafe_b64encode(b"v1 T b %d unknown" % (NOW + 4001)).decode()
        s.recall(unknown)
        taken(s, 7)
        clock.set(NOW + 5000)
        read_to(s, NOW + 5000)
        assert bodies(s, "T", 4) == [b"1", b"2", b"3", b"4"]
        with pytest.raises(errors.WheelTimerMsgIllegal):
            s.recall(handles[1])
        for bad in ("", "x", None, "djIgYSBiIDEgYw=="):
            with pytest.raises(errors.MessageIllegal):
                s.recall(bad)


def test_a_long_delay_is_rolled(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s", timer_roll_window_slot=2) as s:
        s.put("T", b"x", deliver_at=NOW + 5000)
        taken(s, 1)
        for second in range(1, 6):
            assert s.max_offset("T", 0) == 0
            clock.set(NOW + 1000 * second)
            read_to(s, NOW + 1000 * second)
            s.wait_dispatched(60)
            taken(s, s.max_offset(TIMER, 0))
        assert bodies(s, "T", 1) == [b"x"]
        (message,) = s.get("T", 0, 0)
        assert int(message.properties["TIMER_ROLL_TIMES"]) >= 1
        del message


def test_a_full_slot_refuses(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s", timer_congest_num_each_slot=10) as s:
        for _ in range(11):
            s.put("T", b"", deliver_at=NOW + 60_000)
        taken(s, 11)
        refused, i = 0, 11
        for _ in range(200):
            try:
                s.put("T", b"", deliver_at=NOW + 60_000)
                i += 1
                taken(s, i)
            except errors.WheelTimerFlowControl as error:
                assert error.status == PutStatus.WHEEL_TIMER_FLOW_CONTROL
                refused += 1
        assert i <= 20 and refused == 211 - i
        s.put("T", b"", deliver_at=NOW + 61_000)


def test_past_times_and_wrong_ones(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s", timer_max_delay_sec=100) as s:
        assert s.put("T", b"now", deliver_at=NOW).queue_offset == 0 and s.put("T", b"now", delay=0).queue_offset == 1
        assert s.wait_for_message("T", 0, 1, 60) and not (tmp_path / "s" / "timerlog").exists()
        for wrong in ({"delay": 101}, {"deliver_at": NOW + 100_001}, {"delay": 1e308}, {"delay": 10**400}):
            with pytest.raises(errors.WheelTimerMsgIllegal, match="timer_max_delay_sec") as refused:
                s.put("T", b"", **wrong)
            assert refused.value.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL
        for wrong in ({"delay": -1}, {"delay": "1"}, {"deliver_at": "x"}, {"deliver_at": -1}, {"delay": True},
                      {"delay": 1, "deliver_at": NOW}, {"delay": 1, "delay_level": 2}, {"delay": float("nan")},
                      {"deliver_at": datetime.datetime(2030, 1, 1)}, {"delay": 1, "properties": {"TIMER_DELAY_MS": "1"}}):
            with pytest.raises(errors.MessageIllegal):
                s.put("T", b"", **wrong)
    with clock.open(tmp_path / "s", timer_wheel_enable=False) as s:
        with pytest.raises(errors.WheelTimerNotEnable) as refused:
            s.put("T", b"", delay=1)
        assert refused.value.status is PutStatus.WHEEL_TIMER_NOT_ENABLE


def test_levels_and_timers_work_side_by_side(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"level", delay_level=1)
        s.put("T", b"timer", delay=1)
        taken(s, 1)
        assert s.wait_dispatched(60)
        clock.set(NOW + 1000)
        s._delay.timer.poke()
        assert sorted(bodies(s, "T", 2)) == [b"level", b"timer"]


@pytest.mark.parametrize("itself", [TIMER, "SCHEDULE_TOPIC_XXXX"])
def test_no_message_is_delivered_to_a_topic_of_delivery(tmp_path, caplog, itself):
    """It would be due there at once, and be delivered again, until the disk is full."""
    with Clock().open(tmp_path / "s") as s:
        s.put("T", b"", deliver_at=NOW + 60_000)
        s.put(TIMER, b"itself", properties={"TIMER_OUT_MS": "1000", "REAL_TOPIC": itself, "REAL_QID": "0"})
        late(s, b"behind it")
        assert bodies(s, "T", 1) == [b"behind it"]
        until(lambda: s._timer.wheel.state()[1:3] == (1, 1) and "skipped 1 timer messages" in caplog.text)
        assert s.max_offset(TIMER, 0) == 3 and s.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 0
        with pytest.raises(errors.MessageIllegal, match="never delivered"):
            s.put("SCHEDULE_TOPIC_XXXX", b"", delay=5)


@pytest.mark.parametrize(("kind", "path"), [("mkdir", "timerlog"), ("open", "timercheck"), ("ftruncate", "timerwheel")])
def test_the_first_timer_message_on_a_full_disk(tmp_path, kind, path):
    """As a put that finds no room for its file; when there is some, the next one begins the service."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        clock.io.fail(kind, 1, errno.ENOSPC, path=path, sticky=True)
        with pytest.raises(errors.DiskFull, match=f"making the files of timer messages of .*{tmp_path.name}"):
            s.put("T", b"refused", delay=5)
        with pytest.raises(errors.DiskFull):
            s.put_many("T", [b"refused"], delay=5)
        clock.io.clear()
        s.put("T", b"stored", delay=5)
        taken(s, 1)
        clock.set(NOW + 6000)
        assert bodies(s, "T", 1) == [b"stored"]


def test_a_clock_that_jumps_forward_and_back(tmp_path):
    """The wheel does not turn back, as docs/timers.md says."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"there is a wheel", deliver_at=NOW + 1000)
        taken(s, 1)
        clock.set(NOW + 3_600_000)
        read_to(s, NOW + 3_600_000)
        clock.set(NOW + 2000)
        s.put("T", b"early", deliver_at=NOW + 1_800_000)
        assert bodies(s, "T", 2) == [b"there is a wheel", b"early"]
    with Clock(NOW + 3000).open(tmp_path / "s") as s:
        s.put("T", b"early too", deliver_at=NOW + 1_800_000)
        s.put("T", b"in its time", deliver_at=NOW + 3_700_000)
        taken(s, 4)
        assert bodies(s, "T", 3)[2:] == [b"early too"] and pending(s) == 1


def test_a_clock_before_1970(tmp_path):
    """Its times are below 0: no slot is there, and an index from one lay before the wheel."""
    clock = Clock(-5000)
    with clock.open(tmp_path / "s") as s:
        with pytest.raises(errors.WheelTimerMsgIllegal, match="set the clock"):
            s.put("T", b"", delay=5)
        s.put("T", b"stored", delay=10)
        taken(s, 1)
        assert pending(s) == 1
        clock.set(6000)
        assert bodies(s, "T", 1) == [b"stored"]
    with Clock(-5000).open(tmp_path / "s") as s:
        assert bodies(s, "T", 1) == [b"stored"]
