"""Backups of stores with timer messages: what waits is delivered once, whatever was delivered while the backup was made."""
import collections

import pytest

from rmq_store import backup, check_backup, copy_messages, restore
from rmq_store.services.backup import image
from tests.timer.clock import NOW, SMALL, Clock, pending, read_to, taken, until, written


def put(s, name, count, due):
    for i in range(count):
        s.put("T", b"%s %d" % (name, i), deliver_at=due)


def restored(clock, tmp_path, after):
    """What a store that was restored has delivered by then, and how often."""
    restore(tmp_path / "backups", tmp_path / "restored")
    assert check_backup(tmp_path / "backups") == []
    clock.set(NOW + after)
    with clock.open(tmp_path / "restored") as s:
        read_to(s, clock.ms)
        s.wait_dispatched(60)
        return collections.Counter(bytes(m.body) for m in s.scan("T")), pending(s)


@pytest.mark.parametrize(("step", "from_outside"), [
    ("_timers", False), ("_log", True), pytest.param("_timers", True, marks=pytest.mark.slow),
    pytest.param("_log", False, marks=pytest.mark.slow)])
def test_messages_that_are_delivered_while_it_is_made(tmp_path, monkeypatch, from_outside, step):
    """A slot is delivered before a step of the backup, another one while it goes on."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        put(s, b"before", 20, NOW + 2000)
        put(s, b"during", 300, NOW + 4000)
        put(s, b"after", 20, NOW + 60_000)
        taken(s, 340)
        clock.set(NOW + 3000)
        read_to(s, NOW + 3000)
        written(s)
        if from_outside:
            s.flush()
        real = getattr(image.Image, step)

        def delivering(self):
            clock.set(NOW + 5000)
            until(lambda: s.max_offset("T", 0) > 20)
            real(self)

        with monkeypatch.context() as patch:
            patch.setattr(image.Image, step, delivering)
            if from_outside:
                backup(tmp_path / "s", tmp_path / "backups")
            else:
                s.backup(tmp_path / "backups")
        read_to(s, NOW + 5000)
    due = [b"before %d" % i for i in range(20)] + [b"during %d" % i for i in range(300)]
    assert restored(clock, tmp_path, 10_000) == (dict.fromkeys(due, 1), 20)
    with clock.open(tmp_path / "restored") as s:
        clock.set(NOW + 70_000)
        read_to(s, clock.ms)
        s.wait_dispatched(60)
        assert collections.Counter(bytes(m.body) for m in s.scan("T")) == dict.fromkeys(
            due + [b"after %d" % i for i in range(20)], 1)


def test_all_files_of_the_timer_are_in_it(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        put(s, b"x", 100, NOW + 60_000)
        taken(s, 100)
    backup(tmp_path / "s", tmp_path / "backups")
    restore(tmp_path / "backups", tmp_path / "restored")
    for name in ("timerwheel", "config/timercheck", "config/timermetrics", f"timerlog/{0:020d}", f"timerlog/{4096:020d}"):
        assert (tmp_path / "restored" / name).read_bytes() == (tmp_path / "s" / name).read_bytes(), name
    with clock.open(tmp_path / "restored", **SMALL) as s:
        assert pending(s) == 100


def test_a_copy_as_it_is_goes_on_with_what_waits(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        put(s, b"early", 20, NOW + 2000)
        put(s, b"late", 20, NOW + 60_000)
        taken(s, 40)
        clock.set(NOW + 3000)
        read_to(s, NOW + 3000)
    copy_messages(tmp_path / "s", tmp_path / "copy", as_is=True, _io=clock.io)
    with clock.open(tmp_path / "copy") as s:
        until(lambda: pending(s) == 20)
        clock.set(NOW + 70_000)
        read_to(s, clock.ms)
        s.wait_dispatched(60)
        assert collections.Counter(bytes(m.body) for m in s.scan("T")) == dict.fromkeys(
            [b"%s %d" % (name, i) for name in (b"early", b"late") for i in range(20)], 1)
