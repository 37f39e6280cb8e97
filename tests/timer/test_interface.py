"""What a program sees: properties of a client, put_many, put_async, asyncio, the list, recall, hooks, commands."""
import asyncio
import datetime
import json

import pytest

from rmq_store import MessageStore, errors
from rmq_store.aio import AsyncMessageStore
from rmq_store.cli.main import main
from rmq_store.codec.batch import encode_batch
from rmq_store.codec.timer import recall_handle, recall_of
from tests.timer.clock import NOW, SMALL, TIMER, Clock, bodies, taken, written

TIMES = [("TIMER_DELIVER_MS", NOW + 3000, NOW + 2000), ("TIMER_DELIVER_MS", NOW + 3001, NOW + 3000),
         ("TIMER_DELAY_MS", 1500, NOW + 1000), ("TIMER_DELAY_SEC", 60, NOW + 59_000)]


@pytest.mark.parametrize("how", ["mapping", "bytes", "many", "async"])
def test_the_properties_of_a_client_are_a_time_of_delivery(tmp_path, how):
    with Clock().open(tmp_path / "s") as s:
        for name, value, _ in TIMES:
            properties = {name: str(value), "UNIQ_KEY": "u"}
            if how == "many":
                s.put_many("T", [b"x"], queue_id=3, properties=properties)
            elif how == "async":
                s.put_async("T", b"x", queue_id=3, properties=properties).result()
            elif how == "bytes":
                s.put("T", b"x", queue_id=3, properties=f"{name}\1{value}\2UNIQ_KEY\1u\2".encode())
            else:
                s.put("T", b"x", queue_id=3, properties=properties)
        s.wait_dispatched(60)
        assert [m.properties for m in s.scan(TIMER)] == [
            {name: str(value), "UNIQ_KEY": "u", "TIMER_OUT_MS": str(out), "REAL_TOPIC": "T", "REAL_QID": "3"}
            for name, value, out in TIMES]
        assert [(t.topic, t.queue_id, t.deliver_ms) for t in s.timers()] == [("T", 3, out + 1000) for _, _, out in TIMES]


def test_what_is_no_time_of_delivery(tmp_path):
    with Clock().open(tmp_path / "s", timer_max_delay_sec=100) as s:
        for value in ("", "x", "1.5", "9" * 20, "١"):
            with pytest.raises((errors.WheelTimerMsgIllegal, errors.MessageIllegal)):
                s.put("T", b"", properties={"TIMER_DELAY_MS": value})
        for past in ({"TIMER_DELIVER_MS": "-5"}, {"TIMER_DELAY_SEC": "0"}, {"TIMER_DELAY_MS": "5000", "TIMER_OUT_MS": "1"}):
            s.put("T", b"now", properties=past)
        level = s.put("T", b"level", delay_level=18, properties={"TIMER_DELAY_MS": "1000"})
        assert s.message_at(level.offset).properties == {"DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "0"}
        assert bodies(s, "T", 3) == [b"now"] * 3 and not (tmp_path / "s" / "timerlog").exists()
        with pytest.raises(errors.MessageIllegal, match="delay"):
            s.put_batch("T", encode_batch([b"x"]), properties={"TIMER_DELAY_MS": "1000"})
        with pytest.raises(errors.MessageIllegal, match="a transaction has no delay"):
            s.prepare("T", b"x", group="g", properties={"TIMER_DELAY_MS": "1000"})
        assert s.message_at(s.put("T", b"p", sys_flag=4, properties={"TIMER_DELAY_MS": "1000"}).offset).topic == "T"


@pytest.mark.parametrize("seconds", [NOW // 1000 + 5, 100_000_000, 99_999_999_999])
def test_a_time_in_seconds_is_refused(tmp_path, seconds):
    with Clock().open(tmp_path / "s") as s:
        for call in (lambda: s.put("T", b"", deliver_at=seconds),
                     lambda: s.put_many("T", [{"body": b"", "deliver_at": seconds}]),
                     lambda: s.put_async("T", b"", deliver_at=seconds).result(30)):
            with pytest.raises(errors.MessageIllegal, match="give ms since 1970, so seconds times 1000"):
                call()
        assert s.topics() == []


def test_two_ways_to_delay_are_named_as_they_were_given(tmp_path):
    with Clock().open(tmp_path / "s") as s:
        for name, value in (("delay", 1), ("deliver_at", NOW + 5000)):
            with pytest.raises(errors.MessageIllegal, match=f"delay_level and {name} are two ways .*: give one of them"):
                s.put("T", b"", delay_level=1, **{name: value})


def test_put_many_takes_times_for_all_and_for_each(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put_many("T", [b"0", {"body": b"1", "delay": 5}, {"body": b"2", "deliver_at": NOW, "tags": "t"}, b"3"], delay=2)
        with pytest.raises(errors.WheelTimerMsgIllegal):
            s.put_many("T", [b"4", {"body": b"5", "delay": 1e6}])
        assert bodies(s, "T", 1) == [b"2"]
        taken(s, 3)
        assert len({t.handle for t in s.timers()}) == 3
        clock.set(NOW + 2000)
        assert bodies(s, "T", 3) == [b"2", b"0", b"3"]
        clock.set(NOW + 5000)
        assert bodies(s, "T", 4)[3] == b"1"


def test_put_many_with_times_stores_what_single_puts_do(tmp_path):
    """The bytes of both logs are the same but for the unique keys, and nothing is stored where one message is wrong."""
    logs = []
    for how in ("many", "single"):
        with Clock().open(tmp_path / how, delay_levels="1s 2s") as s:
            each = [{"body": b"%d" % i, "tags": "t", "properties": {"UNIQ_KEY": f"u{i}", "TIMER_DELAY_MS": f"{2000 + i}"}}
                    for i in range(1100)]
            each[7] = {"body": bytearray(b"now"), "keys": ["a", "b"], "properties": {"p": "q"}}
            each[8] = {"body": memoryview(b"level"), "properties": {"DELAY": "1"}}
            if how == "many":
                with pytest.raises(errors.WheelTimerMsgIllegal):
                    s.put_many("T", [*each, {"body": b"", "delay": 1e9}])
                assert s.max_log_offset == 0
                done = s.put_many("T", each, flag=5)
                places = list(zip(done.offsets, done.queue_offsets, strict=True))
            else:
                places = [(r.offset, r.queue_offset) for r in (s.put("T", m.pop("body"), flag=5, **m) for m in each)]
            taken(s, 1098)
            logs.append((places, (tmp_path / how / "commitlog" / f"{0:020d}").read_bytes()[:places[-1][0]]))
    assert logs[0] == logs[1]


def test_a_hook_sees_and_changes_the_time(tmp_path):
    with Clock().open(tmp_path / "s") as s:
        seen = []
        s.add_put_hook(lambda m: seen.append(dict(m.properties)))
        s.put("T", b"x", delay=5)
        assert seen[0]["TIMER_DELAY_MS"] == "5000"
        s.add_put_hook(lambda m: m.put_property("TIMER_DELAY_MS", "9000"))
        s.put("T", b"y", delay=5)
        s.wait_dispatched(60)
        assert [m.properties["TIMER_OUT_MS"] for m in s.scan(TIMER)] == [str(NOW + 4000), str(NOW + 8000)]


def test_a_light_queue_and_a_time_exclude_each_other(tmp_path):
    with (Clock().open(tmp_path / "s", enable_lmq=True, enable_multi_dispatch=True) as s,
          pytest.raises(errors.MessageIllegal, match="time of delivery")):
        s.put("T", b"x", delay=5, light_queues=["a"])


def test_the_list_leaves_out_what_is_delivered_or_recalled(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        handles = [s.recall_handle(s.put("T", b"%d" % i, delay=2 + i).offset, "broker-a") for i in range(4)]
        assert recall_of(handles[1])[:3] == ("T", "broker-a", NOW + 2001)
        s.recall(handles[1])
        s.wait_dispatched(60)
        assert [t.deliver_ms for t in s.timers()] == [NOW + 2000, NOW + 4000, NOW + 5000]
        assert len(list(s.timers(topic="T"))) == 3 and list(s.timers(topic="U")) == []
        taken(s, 5)
        clock.set(NOW + 2000)
        assert bodies(s, "T", 1) == [b"0"]
        while len(list(s.timers())) > 2:
            pass
        written(s)
        with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as other:
            assert [t.deliver_ms for t in other.timers()] == [NOW + 4000, NOW + 5000]
        with pytest.raises(errors.WheelTimerMsgIllegal, match="no timer message"):
            s.recall_handle(s.put("T", b"x").offset)
        with pytest.raises(errors.WheelTimerMsgIllegal, match="due at"):
            s.recall(handles[0])


def test_many_recalls_in_one_slot(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        handles = [s.recall_handle(s.put("T", b"%d" % i, delay=5).offset) for i in range(300)]
        for handle in handles[::3]:
            s.recall(handle)
        taken(s, 400)
        clock.set(NOW + 5000)
        assert [int(b) for b in bodies(s, "T", 200)] == [i for i in range(300) if i % 3]


def test_asyncio(tmp_path):
    async def use():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            put = await s.put("T", b"x", deliver_at=datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1))
            await s.put_many("T", [b"y"], delay=3600)
            s.store.wait_dispatched(60)
            assert len(await s.timers()) == 2 and await s.timers(topic="U") == []
            await s.recall(await s.recall_handle(put.offset))
            s.store.wait_dispatched(60)
            assert len(await s.timers()) == 1
            with pytest.raises(errors.MessageIllegal):
                await s.recall("none")
    asyncio.run(use())


def test_the_commands(tmp_path, capsys):
    store, lines = str(tmp_path / "s"), tmp_path / "lines"
    lines.write_bytes(b"a\nb\n")
    with MessageStore.open(store, **SMALL) as s:        # whose files the commands find
        s.put("U", b"")
    assert main(["put", store, str(lines), "-t", "T", "--delay", "3600"]) == 0
    assert "stored 2 messages in rmq_sys_wheel_timer, where they wait for T/0: queue" in capsys.readouterr().out
    assert main(["put", store, str(lines), "-t", "T", "--deliver-at", "1"]) == 0
    assert "stored 2 messages in T/0, as their time is past: queue" in capsys.readouterr().out
    assert main(["put", store, str(lines), "-t", "P", "--deliver-at", "2020-01-01T00:00:00"]) == 0
    with pytest.raises(SystemExit, match="64"):
        main(["put", store, str(lines), "-t", "T", "--deliver-at", "1795000000"])
    assert main(["put", store, str(lines), "-t", "T", "--delay", "1e9"]) == 1
    capsys.readouterr()
    assert main(["timers", store, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["topic"], row["queue_offset"]) for row in rows] == [("T", 0), ("T", 1)]
    assert main(["timers", store, "--recall", rows[0]["handle"]]) == 0
    capsys.readouterr()
    assert main(["timers", store]) == 0
    assert rows[1]["handle"] in (text := capsys.readouterr().out) and rows[0]["handle"] not in text
    assert "1 timer message waits" in text
    assert main(["timers", store, "-t", "U"]) == 0
    past = recall_handle("T", "b", 1, "u")
    assert main(["timers", store, "--recall", past]) == 1 and main(["timers", store, "--recall", "none"]) == 64
    capsys.readouterr()
