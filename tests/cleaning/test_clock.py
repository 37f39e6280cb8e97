"""A clock that jumps makes no file old: ahead, back, both, and again; and it delays cleaning by the files' age at most."""
import os

import pytest

from rmq_store import MessageStore
from rmq_store.services.cleaning.clock import JUMP_MS, AgeClock
from tests.cleaning.aged import HOUR_S

HOUR = 3_600_000
DAY = 24 * HOUR
KEEP = 72 * HOUR


class Clocks:
    """A wall clock and a monotonic one; real time passes on both, and somebody sets the first."""

    def __init__(self):
        self.wall, self.mono = 1_795_000_000_000, 5_000_000_000_000

    def passes(self, ms):
        self.wall += ms
        self.mono += ms * 1_000_000

    def wall_ms(self):
        return self.wall

    def mono_ns(self):
        return self.mono


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
def age(clocks):
    return AgeClock(clocks, "store")


def test_time_that_passes_counts(clocks, age, caplog):
    for ms in (0, 10_000, HOUR, DAY, JUMP_MS - 1):
        clocks.passes(ms)
        assert age.now_ms(KEEP) == clocks.wall
    clocks.wall += JUMP_MS      # slewed, or a look that was late
    assert age.now_ms(KEEP) == clocks.wall and not caplog.records


def test_a_jump_ahead_does_not_until_the_files_are_really_that_old(clocks, age, caplog):
    clocks.wall += DAY
    assert age.now_ms(KEEP) == clocks.wall - DAY
    assert [r.event for r in caplog.records] == ["CLOCK_SET_AHEAD"] and "24.0 h ahead" in caplog.text
    clocks.passes(KEEP)
    assert age.now_ms(KEEP) == clocks.wall - DAY
    clocks.passes(1)
    assert age.now_ms(KEEP) == clocks.wall
    assert len(caplog.records) == 1


def test_ahead_and_back_again(clocks, age):
    clocks.wall += DAY
    age.now_ms(KEEP)
    clocks.passes(HOUR)
    clocks.wall -= DAY
    assert age.now_ms(KEEP) == clocks.wall
    clocks.passes(HOUR)
    assert age.now_ms(KEEP) == clocks.wall


def test_back_makes_nothing_old_and_right_again_neither(clocks, age):
    real = clocks.wall
    clocks.wall -= DAY
    assert age.now_ms(KEEP) == real - DAY
    clocks.wall += DAY
    assert age.now_ms(KEEP) <= real


def test_several_jumps_add_up(clocks, age):
    for _ in range(3):
        clocks.wall += DAY
        clocks.passes(HOUR)
        last = age.now_ms(KEEP)
    assert last == clocks.wall - 3 * DAY
    clocks.wall -= 2 * DAY
    assert age.now_ms(KEEP) == clocks.wall - DAY


def test_a_jump_is_remembered_for_whoever_keeps_files_longer(clocks, age):
    """The retention is a live option: short for a while, and then long again."""
    clocks.wall += DAY
    age.now_ms(HOUR)
    clocks.passes(2 * HOUR)
    assert age.now_ms(HOUR) == clocks.wall
    assert age.now_ms(KEEP) == clocks.wall - DAY
    clocks.passes(KEEP - 2 * HOUR)
    assert age.now_ms(KEEP) == clocks.wall - DAY
    clocks.passes(1)
    assert age.now_ms(KEEP) == clocks.wall


def test_each_jump_has_its_own_time(clocks, age):
    clocks.wall += DAY
    age.now_ms(KEEP)
    clocks.passes(KEEP)
    clocks.wall += HOUR
    assert age.now_ms(KEEP) == clocks.wall - DAY - HOUR
    clocks.passes(1)
    assert age.now_ms(KEEP) == clocks.wall - HOUR


def test_an_open_with_a_clock_that_is_wrong_believes_it_after_ten_minutes(clocks):
    """A machine without a clock begins with any time, and the network corrects it."""
    right = clocks.wall
    clocks.wall += DAY
    age = AgeClock(clocks, "store", right - HOUR)       # of the newest message
    assert age.now_ms(KEEP) == right - HOUR
    clocks.passes(JUMP_MS)
    assert age.now_ms(KEEP) == right - HOUR + JUMP_MS
    clocks.passes(1)
    assert age.now_ms(KEEP) == clocks.wall
    clocks.wall -= DAY                                  # too late
    assert age.now_ms(KEEP) == clocks.wall


def test_an_open_with_a_wrong_clock_that_is_put_right_at_once(clocks):
    right = clocks.wall
    clocks.wall += DAY
    age = AgeClock(clocks, "store", right)
    clocks.passes(60_000)
    clocks.wall -= DAY
    assert age.now_ms(KEEP) == clocks.wall == right + 60_000
    clocks.passes(DAY)
    assert age.now_ms(KEEP) == clocks.wall


def test_a_machine_without_a_clock_cleans_though_it_never_runs_for_long(clocks, caplog):
    """Each life begins in 1970, is put right after a minute, and lasts for an hour."""
    right = clocks.wall
    for life in range(1, 4):
        clocks.wall = 5_000
        age = AgeClock(clocks, "store", right)          # of the newest message
        assert age.now_ms(KEEP) == clocks.wall
        clocks.passes(60_000)
        clocks.wall = right + life * DAY
        assert age.now_ms(KEEP) == right and age.was_unset
        clocks.passes(JUMP_MS + 1)
        assert age.now_ms(KEEP) == clocks.wall
        clocks.wall += DAY                              # a jump as any other
        assert age.now_ms(KEEP) == clocks.wall - DAY
    assert [r.event for r in caplog.records] == ["CLOCK_SET_AHEAD"] * 3


def test_a_clock_that_is_set_for_the_first_time_to_what_is_wrong(clocks):
    right = clocks.wall
    clocks.wall = 5_000
    age = AgeClock(clocks, "store", right)
    clocks.wall = right + DAY
    assert age.now_ms(KEEP) == right
    clocks.passes(60_000)
    clocks.wall -= DAY
    assert age.now_ms(KEEP) == clocks.wall == right + 60_000


def test_transactions_of_before_a_clock_was_set_do_not_grow_old_by_it(clocks):
    clocks.wall = 5_000
    age = AgeClock(clocks, "store", tells=False)
    clocks.wall += 10 * 365 * DAY * 6
    assert age.now_ms(KEEP) == 5_000 and not age.was_unset


@pytest.mark.parametrize("last", [0, 1 << 61])
def test_an_open_that_does_not_know_when_the_newest_message_came(clocks, last):
    assert AgeClock(clocks, "store", last).now_ms(KEEP) == clocks.wall


def test_no_message_goes_with_a_clock_that_is_ahead_at_the_open(aged):
    """All 12 files are young; the store is opened with a clock that is a day ahead, and the clock is put right."""
    a = aged(files=12, hour=4, retention_hours=24)
    for name in a.names():
        os.utime(a.root / "commitlog" / name)
    a.store.close()
    a.now += 3 * DAY            # since yesterday
    a.probe.set_clock(a.now)
    a.store = MessageStore.open(a.root, _io=a.probe, **a.options)
    a.store._cleaner.used = lambda path: 80
    assert a.tick().log_files == 0 and a.numbers() == list(range(12))
    a.now -= 3 * DAY
    assert a.tick().log_files == 0 and a.numbers() == list(range(12))


def test_files_that_were_made_before_a_clock_was_set_are_young(aged, caplog):
    """Five of 12 files are old. The store opens in 1970, makes four more, and then the clock is set."""
    a = aged(files=12, old=5, hour=4, retention_hours=1)
    a.store.close()
    a.probe.set_clock(5_000)
    a.store = MessageStore.open(a.root, _io=a.probe, **a.options)
    a.store._cleaner.used = lambda path: 80
    for i in range(12, 16):
        a.store.put("T", b"x" * 6996 + b"%4d" % i, queue_id=0)
    a.settle()
    for name in a.names()[12:]:
        os.utime(a.root / "commitlog" / name, (5, 5))
    caplog.set_level("INFO", "rmq_store")
    right, a.now = a.now, 65_000
    assert a.tick().log_files == 0
    a.now = right               # a day before the newest message, so that it counts at once
    assert a.tick().log_files == 5 and a.numbers() == list(range(5, 16))
    assert a.tick().log_files == 0 and [r.event for r in caplog.records].count("CLOCK_FIRST_SET") == 1


@pytest.mark.parametrize("hour", [4, 12])
def test_no_message_goes_with_a_clock_that_is_a_day_ahead(aged, hour, caplog):
    """Two hours old are 5 of 12 files, and 24 h are kept: with the clock a day ahead all of them look old enough."""
    a = aged(files=12, old=5, hour=hour, retention_hours=24)
    assert a.tick().log_files == 0
    a.now += DAY
    a.store._cleaner.used = lambda path: 80         # at any hour
    assert a.tick().log_files == 0 and a.numbers() == list(range(12))
    assert "CLOCK_SET_AHEAD" in [r.event for r in caplog.records]
    a.now -= DAY
    assert a.tick().log_files == 0 and a.numbers() == list(range(12))
    for name in a.names()[:5]:
        a.age(name, 25 * HOUR_S)
    assert a.tick().log_files == 5 and a.numbers() == list(range(5, 12))


def test_a_store_of_before_a_clock_was_set_that_is_opened_when_it_is(clocks):
    """The process did not see the clock being set."""
    assert AgeClock(clocks, "store", 5 * HOUR).was_unset
    assert not AgeClock(clocks, "store", clocks.wall_ms()).was_unset and not AgeClock(clocks, "store").was_unset
    year_2025 = 1_750_000_000_000
    assert not AgeClock(clocks, "store", year_2025).was_unset       # an old store: the times of its files stay
