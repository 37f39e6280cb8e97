"""Each message once, whatever a kill or a power loss leaves: late messages, equal ones, lost units, damage, idle stores."""
import collections
import shutil
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.services.timer import service
from tests.timer.clock import (
    NOW,
    SMALL,
    TIMER,
    Clock,
    bodies,
    counted,
    killed,
    late,
    pending,
    read_to,
    roll,
    taken,
    until,
    written,
)

FILES = ("timerlog", "timerwheel", "config/timercheck")


def tool(clock, path):
    """A store that delivers nothing."""
    return MessageStore.open(path, _io=clock.io, _services=False, **SMALL)


def put_back(path, before, names=FILES):
    """Files of the timer as they were."""
    for name in names:
        if (path / name).is_dir():
            shutil.rmtree(path / name)
            shutil.copytree(before / name, path / name)
        else:
            shutil.copy(before / name, path / name)


def delivered(store):
    store.wait_dispatched(60)
    return collections.Counter(bytes(m.body) for m in store.scan("T", 0))


def mark_of(path):
    return service.load_mark(str(path))[0]


def test_a_late_message_before_one_that_has_a_unit_is_not_passed_over(tmp_path):
    """Its copy is lost with the power, and the unit of the message behind it is not."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"first", deliver_at=NOW + 60_000)
        counted(s, 1)
    with tool(clock, tmp_path / "s") as s:
        late(s, b"late")
        s.put("T", b"behind", deliver_at=NOW + 70_000)
    image = killed(tmp_path / "s", tmp_path / "image")
    with clock.open(tmp_path / "s") as s:
        taken(s, 3)
    put_back(image, tmp_path / "s", ["timerlog"])
    with clock.open(image) as s:
        assert bodies(s, "T", 1) == [b"late"]
        taken(s, 3)
        assert pending(s) == 2
        clock.set(NOW + 80_000)
        read_to(s, NOW + 80_000)
        assert delivered(s) == dict.fromkeys([b"late", b"first", b"behind"], 1)


def test_equal_messages_that_are_late_do_not_pay_for_one_another(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"waits", deliver_at=NOW + 60_000)
        late(s, b"x")
        assert bodies(s, "T", 1) == [b"x"]
        counted(s, 2)
        written(s)
        image = killed(tmp_path / "s", tmp_path / "image")
    with tool(clock, image) as s:
        late(s, b"x")
    with clock.open(image) as s:
        taken(s, 3)
        assert delivered(s) == {b"x": 2}


def test_what_timercheck_may_say_is_one_state(tmp_path):
    """The copies below the mark are those of the messages that reading time and offset count, whenever somebody asks."""
    clock, samples, stop = Clock(), set(), threading.Event()
    with clock.open(tmp_path / "s") as s:
        slots = {b"slot %d" % i: NOW + 1000 * (i // 8 + 1) for i in range(160)}
        for body, out in slots.items():
            s.put("T", body, deliver_at=out + 1000)
        counted(s, 160)
        wheel = s._timer.wheel

        def sample():
            while not stop.is_set():
                samples.add(wheel.counted()[:4])

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            delayed = {}
            for i in range(20):
                delayed[b"late %d" % i] = late(s, b"late %d" % i).queue_offset
                clock.set(NOW + 1000 * (i + 2))
                read_to(s, clock.ms)
            counted(s, 180)
        finally:
            stop.set()
            thread.join()
        s.wait_dispatched(60)
        copies = {bytes(m.body): m.offset for m in s.scan("T")}
    assert copies.keys() == slots.keys() | delayed.keys() and len({sample[0] for sample in samples}) > 2
    for read_ms, _, offset, mark in samples:
        assert {body for body, at in copies.items() if at < mark} == {
            *(body for body, out in slots.items() if out < read_ms), *(body for body, at in delayed.items() if at < offset)}


def test_the_mark_of_an_idle_store_moves_with_the_log(tmp_path, monkeypatch, caplog):
    clock = Clock()
    monkeypatch.setattr(service, "MARK_STEP", 1 << 16)
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=NOW + 2000)
        taken(s, 1)
        clock.set(NOW + 2000)
        assert bodies(s, "T", 1) == [b"x"]
        for _ in range(200):
            s.put("U", b"x" * 1000)
        s.flush()
        until(lambda: mark_of(tmp_path / "s") > s.max_log_offset - (1 << 16))
        image = killed(tmp_path / "s", tmp_path / "image")
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as s:
        assert mark_of(tmp_path / "s") == s.max_log_offset          # a store that was closed reads nothing
    monkeypatch.setattr(service, "LEARN_MAX", 1 << 16)
    with clock.open(image) as s:
        read_to(s, NOW + 2000)
        assert delivered(s) == {b"x": 1}
    assert not [r for r in caplog.records if r.name == "rmq_store.timer"]


def test_more_than_can_be_read_behind_the_mark_is_told(tmp_path, monkeypatch, caplog):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=NOW + 60_000)
        counted(s, 1)
        written(s)
        for _ in range(100):
            s.put("U", b"x" * 1000)
        image = killed(tmp_path / "s", tmp_path / "image")
        behind = s.max_log_offset - mark_of(image)
    monkeypatch.setattr(service, "LEARN_MAX", 1 << 16)
    with clock.open(image) as s:
        assert pending(s) == 1
        counted(s, 1)
    assert [(r.event, r.fields["bytes"]) for r in caplog.records if r.name == "rmq_store.timer"] == [
        ("TIMER_COPIES_UNREAD", behind)]


def test_a_stuck_recovery_counts_again_before_too_much_is_to_be_read(tmp_path, monkeypatch):
    """The clock was set back: who could claim the copies is not due for long. Meanwhile the log grows."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=NOW + 50_000)
        counted(s, 1)
    shutil.copytree(tmp_path / "s", tmp_path / "before")
    with clock.open(tmp_path / "s") as s:
        clock.set(NOW + 60_000)
        assert bodies(s, "T", 1) == [b"x"]
    put_back(tmp_path / "s", tmp_path / "before")
    clock.set(NOW)
    monkeypatch.setattr(service, "LEARN_MAX", 1 << 17)
    with clock.open(tmp_path / "s") as s:
        mark = s._timer.wheel.counted()[3]
        s.put("T", b"y", deliver_at=NOW + 55_000)
        taken(s, 2)
        assert s._timer.wheel.counted()[2:4] == (1, mark)
        for _ in range(80):
            s.put("U", b"x" * 1000)
        s._timer.wheel.poke()
        counted(s, 2)
        assert s._timer.wheel.counted()[3] == mark
        clock.set(NOW + 70_000)
        read_to(s, NOW + 70_000)
        assert delivered(s) == {b"x": 1, b"y": 1}
        until(lambda: s._timer.wheel.counted()[3] == s.max_log_offset)


def test_a_damaged_record_does_not_hide_the_copies_behind_it(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        for i in range(50):
            s.put("T", b"%d" % i, deliver_at=NOW + 2000)
        counted(s, 50)
    shutil.copytree(tmp_path / "s", tmp_path / "before")
    with clock.open(tmp_path / "s") as s:
        places = [s.put("U", b"rotten").offset for _ in range(2)]
        clock.set(NOW + 3000)
        read_to(s, NOW + 3000)
        for _ in range(50):
            s.put("U", b"x" * 100_000)          # the files that an open looks at are others
    put_back(tmp_path / "s", tmp_path / "before")
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(places[0] + 4)
        file.write(b"\xff" * 4)                 # a magic code
        file.seek(places[1])
        file.write(b"\x7f")                     # a size
    with clock.open(tmp_path / "s") as s:
        read_to(s, NOW + 3000)
        assert delivered(s) == {b"%d" % i: 1 for i in range(50)}


def test_a_property_of_a_user_does_not_hold_the_mark(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=NOW + 60_000)
        counted(s, 1)
    with tool(clock, tmp_path / "s") as s:
        s.put("U", b"y", properties={"TIMER_DEQUEUE_MS": str(10 ** 17)})
    with clock.open(tmp_path / "s") as s:
        clock.set(NOW + 2000)
        until(lambda: s._timer.wheel.counted()[3] == s.max_log_offset)


def test_a_longer_precision_delivers_nothing_twice(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s", timer_precision_ms=10) as s:
        for i in range(10):
            s.put("T", b"%d" % i, deliver_at=NOW + 1100 + 100 * i)
        taken(s, 10)
        clock.set(NOW + 1500)
        read_to(s, NOW + 1500)
        assert len(bodies(s, "T", 5)) == 5
    with clock.open(tmp_path / "s", timer_precision_ms=1000) as s:
        assert pending(s) == 5
        late(s, b"late", NOW + 1200)            # the slot that has it now is half over
        until(lambda: delivered(s)[b"late"] == 1)
        clock.set(NOW + 5000)
        read_to(s, NOW + 5000)
        assert delivered(s) == {b"late": 1, **{b"%d" % i: 1 for i in range(10)}}


@pytest.mark.parametrize("lost", ["all", "last"])
def test_units_of_rolled_messages_that_are_lost_are_not_made_again(tmp_path, lost):
    clock = Clock()
    options = {"timer_roll_window_slot": 2}
    with clock.open(tmp_path / "s", **options) as s:
        for i in range(3):
            s.put("T", b"%d" % i, deliver_at=NOW + 9000)
        s.put("T", b"soon", deliver_at=NOW + 2000)
        taken(s, 4)
        roll(clock, s, NOW + 4000)
        assert s.max_offset(TIMER, 0) > 6
        units = s._timer.wheel.position()[1]
        counted(s, s.max_offset(TIMER, 0))
    if lost == "all":
        shutil.rmtree(tmp_path / "s" / "timerlog")
    else:
        with open(tmp_path / "s" / "timerlog" / f"{0:020d}", "r+b") as file:
            file.seek(units - 52 * 2)
            file.write(bytes(104))
    with clock.open(tmp_path / "s", **options) as s:
        taken(s, s.max_offset(TIMER, 0))
        assert pending(s) == 3
        roll(clock, s, NOW + 12_000)
        assert delivered(s) == dict.fromkeys([b"0", b"1", b"2", b"soon"], 1)


def test_a_unit_whose_record_is_gone_does_not_bring_the_others_twice(tmp_path):
    """The last unit that is left leads to a record that nobody can read, and the timer log is damaged behind it."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        places = [s.put("T", b"%d" % i, deliver_at=NOW + 5000).offset for i in range(20)]
        counted(s, 20)
        for _ in range(50):
            s.put("U", b"x" * 100_000)
    with open(tmp_path / "s" / "timerlog" / f"{0:020d}", "r+b") as file:
        file.seek(52 * 15)
        file.write(bytes(52 * 5))
    with open(tmp_path / "s" / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(places[14] + 4)
        file.write(b"\xff" * 4)
    with clock.open(tmp_path / "s") as s:
        counted(s, 20)
        assert pending(s) == 20
        clock.set(NOW + 6000)
        read_to(s, NOW + 6000)
        assert delivered(s) == {b"%d" % i: 1 for i in range(20) if i != 14}
