"""The files of the timer: damage, loss, old files, a store that was closed for long."""
import os
import struct

import pytest

from rmq_store import errors, verify
from tests.timer.clock import NOW, Clock, bodies, counted, killed, pending, read_to, taken, until, written

UNIT = struct.Struct(">iqiqiqiiq")


def put_some(path, count, **options):
    clock = Clock()
    with clock.open(path, **options) as s:
        for i in range(count):
            s.put("T", b"%d" % i, deliver_at=NOW + 2000 + 1000 * (i % 5))
        taken(s, count)


@pytest.mark.parametrize("damage", ["torn", "zeros", "foreign"])
def test_what_is_cut_from_the_timer_log_is_copied_first(tmp_path, damage, caplog):
    put_some(tmp_path / "s", 100)
    before = [file.read_bytes() for file in sorted((tmp_path / "s" / "timerlog").iterdir())]
    assert len(before) == 2
    with open(tmp_path / "s" / "timerlog" / f"{0:020d}", "r+b") as file:
        file.seek(52 * 30)
        file.write({"torn": b"\0\0\0\x34" + b"\xff" * 20, "zeros": b"\0" * 52, "foreign": b"not a unit"}[damage])
        file.seek(0)
        damaged = file.read()
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        taken(s, 100)
        assert pending(s) == 100
        clock.set(NOW + 10_000)
        assert sorted(map(int, bodies(s, "T", 100))) == list(range(100))
    kept = {file.name: file.read_bytes() for file in (tmp_path / "s" / ".salvage").iterdir()}
    assert kept == {f"timerlog-{52 * 30:020d}": damaged[52 * 30:], f"timerlog-{4096:020d}": before[1]}
    assert [r.event for r in caplog.records if r.name == "rmq_store.timer"] == ["TIMER_LOG_CUT"]


@pytest.mark.parametrize(("at", "bit"), [(35, 0), (34, 0), (39, 0), (24, 6), (25, 5), (15, 2), (15, 1), (10, 6), (51, 0)])
def test_one_wrong_bit_of_a_unit_loses_no_message(tmp_path, at, bit):
    """Of the log offset, the size, the delay, the flags, the way back, the topic, the checksum. verify finds it, and it changes
    neither which messages wait nor when they come."""
    put_some(tmp_path / "s", 60)
    assert [f.kind for f in verify(tmp_path / "s")] == []
    with open(tmp_path / "s" / "timerlog" / f"{0:020d}", "r+b") as file:
        file.seek(52 * 30 + at)
        byte = file.read(1)[0]
        file.seek(52 * 30 + at)
        file.write(bytes([byte ^ 1 << bit]))
    assert [(f.kind, f.severity, f.offset) for f in verify(tmp_path / "s")] == [("timer_unit", "finding", 52 * 30)]
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        taken(s, 60)
        assert pending(s) == 60 and [f.kind for f in verify(tmp_path / "s") if f.severity != "note"] == []
        for second in range(5):
            clock.set(NOW + 2000 + 1000 * second)
            assert sorted(i % 5 for i in map(int, bodies(s, "T", 12 * (second + 1)))) == sorted([*range(second + 1)] * 12)


@pytest.mark.parametrize("damage", ["gone", "short", "a directory"])
def test_verify_names_a_file_of_the_timer_log_that_is_not_there(tmp_path, damage):
    put_some(tmp_path / "s", 100)
    last = tmp_path / "s" / "timerlog" / f"{4096:020d}"
    if damage == "short":
        os.truncate(last, 52 * 3 + 7)
    else:
        last.unlink()
    if damage == "a directory":
        last.mkdir()
    found = list(verify(tmp_path / "s"))
    assert [(f.kind, f.offset) for f in found] == [("timer_unit", 4096 + (52 * 3 if damage == "short" else 0))]


def test_files_that_no_message_needs_are_deleted(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"first", deliver_at=NOW + 100_000)
        taken(s, 1)
        for round in range(4):
            for i in range(100):
                s.put("T", b"%d" % i, deliver_at=clock.ms + 2000)
            taken(s, 1 + 100 * (round + 1))
            clock.set(clock.ms + 5000)
            read_to(s, clock.ms)
            written(s)
        assert (tmp_path / "s" / "timerlog" / f"{0:020d}").exists()
        clock.set(NOW + 200_000)
        read_to(s, clock.ms)
        for i in range(200):
            s.put("T", b"%d" % i, deliver_at=clock.ms + 2000)
        taken(s, 601)
        until(lambda: len(list((tmp_path / "s" / "timerlog").iterdir())) <= 5)
    with clock.open(tmp_path / "s") as s:
        assert pending(s) == 200
        clock.set(clock.ms + 10_000)
        assert len(bodies(s, "T", 601)) == 601


@pytest.mark.parametrize("days", [3, 20, 400])
def test_a_store_that_was_closed_for_long_delivers_what_was_due(tmp_path, days):
    put_some(tmp_path / "s", 20)
    clock = Clock(NOW + days * 86_400_000)
    with clock.open(tmp_path / "s") as s:
        assert [int(b) for b in bodies(s, "T", 20)] == sorted(range(20), key=lambda i: i % 5) or days > 6
        until(lambda: pending(s) == 0)
        assert sorted(map(int, bodies(s, "T", 20))) == list(range(20))


@pytest.mark.parametrize(("first", "then"), [(1000, 10), (10, 1000), (10, 60_000)])
def test_another_precision_loses_nothing(tmp_path, first, then):
    clock = Clock()
    with clock.open(tmp_path / "s", timer_precision_ms=first) as s:
        for i in range(50):
            s.put("T", b"%d" % i, deliver_at=NOW + 1000 + 730 * i)
        s.put("T", b"50", deliver_at=NOW + 100_000_000)
        taken(s, 51)
    with clock.open(tmp_path / "s", timer_precision_ms=then) as s:
        assert pending(s) == 51 and bodies(s, "T", 0) == []
        clock.set(NOW + 200_000)
        read_to(s, NOW + 120_000)
        assert sorted(map(int, bodies(s, "T", 50))) == list(range(50))
        for ms in (NOW + 20_000_000, NOW + 60_000_000, NOW + 110_000_000):      # it may be rolled on its way
            clock.set(ms)
            read_to(s, ms // then * then)
            s.wait_dispatched(60)
            taken(s, s.max_offset("rmq_sys_wheel_timer", 0))
        assert bodies(s, "T", 51)[50] == b"50"


def test_a_clock_set_ahead_turns_the_wheel_first(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        for i in range(10):
            s.put("T", b"%d" % i, deliver_at=NOW + 3000)
        taken(s, 10)
        clock.set(NOW + 30 * 86_400_000)
        s.put("T", b"new", deliver_at=clock.ms + 3000)
        assert len(bodies(s, "T", 10)) == 10
        taken(s, 11)
        clock.set(clock.ms + 3000)
        assert bodies(s, "T", 11)[10] == b"new"


@pytest.mark.parametrize("content", [b"short", b"\xff" * 4096])
def test_a_damaged_timercheck_is_named(tmp_path, content):
    put_some(tmp_path / "s", 1)
    (tmp_path / "s" / "config" / "timercheck").write_bytes(content)
    with pytest.raises(errors.CorruptionError, match="timercheck"):
        Clock().open(tmp_path / "s")
    (tmp_path / "s" / "config" / "timercheck").unlink()
    with Clock(NOW + 10_000).open(tmp_path / "s") as s:
        assert bodies(s, "T", 1) == [b"0"]


@pytest.mark.parametrize("killing", [False, True])
def test_a_shorter_slot_delivers_nothing_before_its_time(tmp_path, killing):
    """A message has the begin of its slot alone: the end of a shorter one comes too early."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=NOW + 5900)
        taken(s, 1)
        if killing:
            killed(tmp_path / "s", tmp_path / "t")
    root = tmp_path / ("t" if killing else "s")
    with clock.open(root, timer_precision_ms=100) as s:
        assert (s.options.timer_precision_ms, s.options.origin("timer_precision_ms")) == (1000, "files")
        assert [t.deliver_ms for t in s.timers()] == [NOW + 6000]
        clock.set(NOW + 5800)
        read_to(s, NOW + 5000)
        assert bodies(s, "T", 0) == []
        clock.set(NOW + 6000)
        assert bodies(s, "T", 1) == [b"x"]
        counted(s, 1)
    with clock.open(root, timer_precision_ms=100) as s:       # none waits
        assert s.options.timer_precision_ms == 100
        s.put("T", b"y", deliver_at=NOW + 7900)
        clock.set(NOW + 7900)
        assert bodies(s, "T", 2) == [b"x", b"y"]


def test_a_tool_that_puts_a_timer_message_says_how_long_its_slot_is(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=NOW + 1900)
        clock.set(NOW + 2000)
        assert bodies(s, "T", 1) == [b"x"]
    with clock.open(tmp_path / "s", _services=False, timer_precision_ms=500) as s:
        s.put("T", b"y", deliver_at=NOW + 5400)
    with clock.open(tmp_path / "s", timer_precision_ms=10) as s:
        assert s.options.timer_precision_ms == 500
