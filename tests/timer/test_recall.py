"""A recall that was acknowledged is never undone, whatever lies between it and the time of its message."""
import errno
import shutil

import pytest

from rmq_store import MessageStore, errors, promote
from tests.timer.clock import NOW, SMALL, TIMER, Clock, bodies, counted, killed, pending, read_to, roll, taken, until

DAY = 86_400_000


def tool(clock, path, **options):
    """A store that delivers nothing."""
    return MessageStore.open(path, _io=clock.io, _services=False, **SMALL | options)


def put_two(store, due):
    """One message that stays, and one that is taken back."""
    store.put("T", b"kept", deliver_at=due)
    back = store.put("T", b"taken back", deliver_at=due)
    assert store.recall(store.recall_handle(back.offset)).status.name == "PUT_OK"


def all_of(store, clock):
    """What was delivered, when nothing waits any more."""
    until(lambda: store.wait_dispatched(60) and store._timer.wheel.position()[2] >= store.max_offset(TIMER, 0)
          and store._timer.wheel.position()[0] >= clock.ms // 1000 * 1000 and pending(store) == 0)
    store.wait_dispatched(60)
    return bodies(store, "T", 0)


@pytest.mark.parametrize("pause", [5_000, 8 * DAY, 400 * DAY])
@pytest.mark.parametrize("more", [0, 200])
def test_both_were_put_by_a_tool(tmp_path, pause, more):
    """The first open that delivers comes after the time. Others stand between message and recall."""
    clock = Clock()
    with tool(clock, tmp_path / "s") as s:
        s.put("T", b"kept", deliver_at=NOW + 4000)
        back = s.put("T", b"taken back", deliver_at=NOW + 4000)
        for i in range(more):
            s.put("U", b"%d" % i, deliver_at=NOW + 3000)
        s.recall(s.recall_handle(back.offset))
    clock = Clock(NOW + pause)
    with clock.open(tmp_path / "s") as s:
        assert all_of(s, clock) == [b"kept"]
        assert len(bodies(s, "U", more)) == more and list(s.timers()) == []
    with clock.open(tmp_path / "s") as s:
        assert all_of(s, clock) == [b"kept"]


def test_two_messages_with_one_key_and_another_time(tmp_path):
    """A recall takes back the one of its time."""
    clock = Clock()
    with tool(clock, tmp_path / "s") as s:
        puts = [s.put("T", b"%d" % i, properties={"UNIQ_KEY": "k"}, deliver_at=NOW + 4000 + 3000 * i) for i in range(2)]
        s.recall(s.recall_handle(puts[1].offset))
    clock = Clock(NOW + 20_000)
    with clock.open(tmp_path / "s") as s:
        assert all_of(s, clock) == [b"0"]


@pytest.mark.parametrize("check", ["none", "old"])
def test_a_slave_is_promoted_after_the_time(tmp_path, check):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        if check == "old":
            s.put("T", b"before", deliver_at=NOW + 1000)
            clock.set(NOW + 1000)
            assert bodies(s, "T", 1) == [b"before"]
        put_two(s, NOW + 6000)
        counted(s, s.max_offset(TIMER, 0))
        image = killed(tmp_path / "s", tmp_path / "image")
    shutil.rmtree(image / "timerlog")
    if check == "none":
        (image / "config" / "timercheck").unlink()
    clock = Clock(NOW + 9000)
    promote(image, force=True, _io=clock.io, **SMALL)
    with clock.open(image) as s:
        assert all_of(s, clock) == [b"before", b"kept"][check == "none":]


@pytest.mark.parametrize(("precision", "pause"), [(1000, 8 * DAY), (1000, 30 * DAY), (10, 7_200_000)])
def test_the_store_was_closed_for_over_half_a_wheel(tmp_path, precision, pause):
    """The message has its place in the wheel, and a tool puts the recall."""
    clock = Clock()
    with clock.open(tmp_path / "s", timer_precision_ms=precision) as s:
        s.put("T", b"kept", deliver_at=NOW + 60_000)
        handle = s.recall_handle(s.put("T", b"taken back", deliver_at=NOW + 60_000).offset)
        taken(s, 2)
    with tool(clock, tmp_path / "s", timer_precision_ms=precision) as s:
        s.recall(handle)
    clock = Clock(NOW + pause)
    with clock.open(tmp_path / "s", timer_precision_ms=precision) as s:
        assert all_of(s, clock) == [b"kept"]


def test_nobody_knows_how_far_delivery_was(tmp_path):
    """timercheck is lost: all units wait, in the oldest slot of the wheel. A recall of one of them is late itself."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"kept", deliver_at=NOW + 60_000)
        handle = s.recall_handle(s.put("T", b"taken back", deliver_at=NOW + 60_000).offset)
        taken(s, 2)
    with tool(clock, tmp_path / "s") as s:
        s.recall(handle)
    (tmp_path / "s" / "config" / "timercheck").unlink()
    clock = Clock(NOW + 30 * DAY)
    with clock.open(tmp_path / "s") as s:
        assert all_of(s, clock) == [b"kept"]


def test_the_disk_of_the_queues_is_full_when_the_recall_comes(tmp_path):
    """The wheel waits for dispatch: the recall is in the log, and in no queue. It turns when the queues have room."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"kept", deliver_at=NOW + 4000)
        back = s.put("T", b"taken back", deliver_at=NOW + 4000)
        taken(s, 2)
        for kind in ("open", "mkdir", "fallocate", "ftruncate", "rename"):
            clock.io.fail(kind, 1, errno.ENOSPC, path="consumequeue", sticky=True)
        s.put("NEW", b"holds up dispatch")
        s.recall(s.recall_handle(back.offset))
        clock.set(NOW + 10_000)
        until(lambda: s._timer.wheel.closing() == NOW + 10_000)
        assert s._timer.wheel.position()[0] <= NOW + 3000
        clock.io.clear()
        assert all_of(s, clock) == [b"kept"]


@pytest.mark.parametrize("killing", [False, True])
@pytest.mark.parametrize(("window", "recalled"), [(4, 3000), (6, 4000), (2, 1000), (3, 6000)])
def test_the_store_is_down_over_the_last_hop(tmp_path, window, recalled, killing):
    """The message is rolled when the recall comes, and either is in the wheel on its way, or the recall in its last slot."""
    clock = Clock()
    options = {"timer_roll_window_slot": window}
    with clock.open(tmp_path / "s", **options) as s:
        s.put("T", b"kept", deliver_at=NOW + 10_000)
        handle = s.recall_handle(s.put("T", b"taken back", deliver_at=NOW + 10_000).offset)
        taken(s, 2)
        roll(clock, s, NOW + recalled)
        s.recall(handle)
        s.wait_dispatched(60)
        taken(s, s.max_offset(TIMER, 0))
        image = killed(tmp_path / "s", tmp_path / "image") if killing else tmp_path / "s"
    clock = Clock(NOW + 20_000)
    with clock.open(image, **options) as s:
        assert all_of(s, clock) == [b"kept"]


def test_a_recall_of_a_slot_that_the_wheel_has_passed_is_refused(tmp_path):
    """The clock was ahead, and is set back: what is due before the furthest time is delivered, so nothing can be taken back."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        handle = s.recall_handle(s.put("T", b"x", deliver_at=NOW + 5000).offset)
        taken(s, 1)
        clock.set(NOW + 3_600_000)
        assert bodies(s, "T", 1) == [b"x"]
        read_to(s, NOW + 3_600_000)
        clock.set(NOW + 1000)
        with pytest.raises(errors.WheelTimerMsgIllegal, match="cannot be taken back"):
            s.recall(handle)
        counted(s, 1)
    with tool(clock, tmp_path / "s") as s, pytest.raises(errors.WheelTimerMsgIllegal, match="cannot be taken back"):
        s.recall(handle)


def test_a_recall_whose_put_takes_too_long_is_refused(tmp_path, monkeypatch):
    """The slot is over when the recall is in the log. Nobody knows whether it came in time, so nobody is told that it did."""
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        handle = s.recall_handle(s.put("T", b"x", deliver_at=NOW + 5000).offset)
        taken(s, 1)
        put = s._put_copy

        def slow(*args, **keywords):
            result = put(*args, **keywords)
            clock.set(NOW + 6000)
            until(lambda: s._timer.wheel.closing() == NOW + 6000)
            return result

        monkeypatch.setattr(type(s), "_put_copy", lambda self, *args, **keywords: slow(*args, **keywords))
        with pytest.raises(errors.WheelTimerMsgIllegal, match="cannot be taken back"):
            s.recall(handle)


def test_what_waits_in_the_queue_alone_is_listed_although_its_time_is_over(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"first", deliver_at=NOW + 2000)
        clock.set(NOW + 3000)
        assert bodies(s, "T", 1) == [b"first"]
        counted(s, 1)
    with tool(clock, tmp_path / "s") as s:
        s.put("T", b"waits", deliver_at=NOW + 5000)
    clock.set(NOW + 60_000)
    with clock.open(tmp_path / "s") as s:
        assert len(bodies(s, "T", 2)) == 2
        clock.set(NOW + 61_000)
        read_to(s, NOW + 61_000)
    clock.set(NOW + 10_000)
    with tool(clock, tmp_path / "s") as s:
        s.put("T", b"early", deliver_at=NOW + 30_000)      # before the furthest time of the clock
        assert [t.deliver_ms for t in s.timers()] == [NOW + 30_000]
