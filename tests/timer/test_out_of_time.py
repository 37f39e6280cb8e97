"""Timers whose time is no longer what it was when they were put: long pauses, a clock that is set, a slave that is promoted."""
import collections
import shutil

import pytest

from rmq_store import MessageStore, promote
from rmq_store.base.io.files import ControlFiles
from rmq_store.services.timer import service
from tests.timer.clock import NOW, SMALL, TIMER, Clock, bodies, counted, killed, pending, read_to, roll, taken, until

HOUR, DAY = 3_600_000, 86_400_000


def delivered(store):
    store.wait_dispatched(60)
    return collections.Counter(bytes(m.body) for m in store.scan("T", 0))


@pytest.mark.parametrize(("precision", "pause"), [(1000, 6 * DAY), (1000, 8 * DAY), (1000, 40 * DAY), (100, 20 * HOUR),
                                                  (10, 2 * HOUR), (10, 9 * DAY)])
def test_what_was_delivered_comes_not_again_after_a_long_pause(tmp_path, precision, pause):
    """Messages that wait lie before and behind it in the timer log, so it is read when they are due."""
    clock = Clock()
    with clock.open(tmp_path / "s", timer_precision_ms=precision) as s:
        s.put("T", b"waits 1", deliver_at=NOW + 100_000)
        for i in range(3):
            s.put("T", b"soon %d" % i, deliver_at=NOW + 3000)
        s.put("T", b"waits 2", deliver_at=NOW + 100_000)
        taken(s, 5)
        clock.set(NOW + 5000)
        assert len(bodies(s, "T", 3)) == 3
        read_to(s, NOW + 5000)
    clock.set(NOW + pause)
    with clock.open(tmp_path / "s", timer_precision_ms=precision) as s:
        assert len(bodies(s, "T", 5)) == 5
        read_to(s, clock.ms)
        assert pending(s) == 0
        assert delivered(s) == dict.fromkeys([b"waits 1", b"waits 2", b"soon 0", b"soon 1", b"soon 2"], 1)


def test_another_slot_has_no_messages_that_were_delivered(tmp_path):
    """The first slot of the longer precision was half over. Its delivered units lie between those that wait."""
    clock = Clock()
    with clock.open(tmp_path / "s", timer_precision_ms=10) as s:
        for i in range(10):
            s.put("T", b"%d" % i, deliver_at=NOW + 1100 + 100 * (i if i % 2 else 9 - i))
        taken(s, 10)
        clock.set(NOW + 1500)
        read_to(s, NOW + 1500)
        before = delivered(s)
    assert 0 < len(before) < 10
    data = (tmp_path / "s" / "config" / "timercheck").read_bytes()
    data = data[:service.AT_PRECISION] + bytes(8) + data[service.AT_PRECISION + 8:]
    (tmp_path / "s" / "config" / "timercheck").write_bytes(data)
    with clock.open(tmp_path / "s", timer_precision_ms=1000) as s:
        clock.set(NOW + 5000)
        read_to(s, NOW + 5000)
        assert delivered(s) == {b"%d" % i: 1 for i in range(10)}


@pytest.mark.parametrize("back", [DAY, 5 * DAY // 2, 10 * DAY, 360 * DAY])
@pytest.mark.parametrize("window", [172_800, 2, 1000])
def test_a_clock_that_was_behind_and_is_put_right_loses_nothing(tmp_path, back, window):
    """The message is put, or taken from the queue, while the clock is behind the wheel."""
    clock = Clock()
    options = {"timer_roll_window_slot": window, "timer_max_delay_sec": 366 * 86_400}
    with clock.open(tmp_path / "s", **options) as s:
        s.put("T", b"first", deliver_at=NOW + HOUR)
        taken(s, 1)
        clock.set(NOW + 2000)
        read_to(s, NOW + 2000)
    with MessageStore.open(tmp_path / "s", _io=clock.io, _services=False, **SMALL | options) as s:
        s.put("T", b"by a tool", deliver_at=NOW + HOUR)
    clock.set(NOW - back)
    with clock.open(tmp_path / "s", **options) as s:
        s.put("T", b"second", deliver_at=NOW + HOUR)
        s.wait_dispatched(60)
        taken(s, s.max_offset(TIMER, 0))
        clock.set(NOW + 10_000)
        read_to(s, NOW + 10_000)
        assert delivered(s) == {}
        clock.set(NOW + HOUR)
        until(lambda: s.wait_dispatched(60) and sum(delivered(s).values()) == 3)
        read_to(s, clock.ms)
        assert delivered(s) == dict.fromkeys([b"first", b"by a tool", b"second"], 1) and pending(s) == 0


def test_a_wheel_that_is_far_behind_takes_what_is_far_ahead(tmp_path):
    """The clock jumps by more than the wheel is long, while the queue has messages for both ends."""
    clock = Clock()
    with clock.open(tmp_path / "s", timer_precision_ms=10) as s:
        s.put("T", b"0", deliver_at=NOW + 60_000)
        taken(s, 1)
    with MessageStore.open(tmp_path / "s", _io=clock.io, _services=False, timer_precision_ms=10, **SMALL) as s:
        for i in range(1, 5):
            s.put("T", b"%d" % i, deliver_at=NOW + 60_000 + 10 * HOUR * (i % 3))
    clock.set(NOW + DAY)
    with clock.open(tmp_path / "s", timer_precision_ms=10) as s:
        until(lambda: sum(delivered(s).values()) == 5)
        assert delivered(s) == {b"%d" % i: 1 for i in range(5)} and pending(s) == 0


@pytest.mark.parametrize("check", ["none", "old", "new"])
@pytest.mark.parametrize("rolls", [1, 3])
def test_a_promoted_slave_delivers_nothing_twice_that_its_master_rolled(tmp_path, check, rolls):
    """The slave has the log alone, or a timercheck of its master as well. It dies while it takes the queue again, too."""
    clock = Clock()
    options = {"timer_roll_window_slot": 2}
    with clock.open(tmp_path / "s", **options) as s:
        for i in range(3):
            s.put("T", b"%d" % i, deliver_at=NOW + 12_000)
        taken(s, 3)
        counted(s, 3)
        numbers = service.load_check(str(tmp_path / "s"))
        roll(clock, s, NOW + 3000 * rolls)
        assert s.max_offset(TIMER, 0) > 3 * rolls
        if check == "new":
            numbers = s._timer.wheel.counted()
            numbers = numbers[0], 0, numbers[2], numbers[2], 0, 0, 1
        image = killed(tmp_path / "s", tmp_path / "image")
    shutil.rmtree(image / "timerlog")
    (image / "config" / "timercheck").unlink()
    if check != "none":
        service.copy_check(ControlFiles(clock.io), str(image), numbers)
    promote(image, force=True, _io=clock.io, **SMALL)
    with clock.open(image, **options) as s:
        taken(s, s.max_offset(TIMER, 0))
        again = killed(image, tmp_path / "again")
    with clock.open(again, **options) as s:
        roll(clock, s, NOW + 14_000)
        assert delivered(s) == {b"%d" % i: 1 for i in range(3)}
