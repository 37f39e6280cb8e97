"""What is accepted can be delivered, rolled and taken back: its copies have room, or take a form that fits."""
import collections

import pytest

from rmq_store import MessageStore, errors
from rmq_store.status import PutStatus
from tests.timer.clock import (
    NOW,
    SMALL,
    TIMER,
    Clock,
    bodies,
    counted,
    killed,
    pending,
    read_to,
    roll,
    taken,
    until,
    written,
)

MOST = 32767
MODES = {"plain": {}, "crc": {"record_crc": True}, "4.9": {"compat": "4.9"}, "pool": {"write_path": "pool"}}


def came(store, count):
    store.wait_dispatched(60)
    until(lambda: store.max_offset("T", 0) >= count)
    return collections.Counter(bytes(m.body) for m in store.scan("T", 0))


WAYS = {"put": lambda s, body, properties: s.put("T", body, properties=properties, delay=4),
        "put_many": lambda s, body, properties: s.put_many("T", [body], properties=properties, delay=4),
        "mixed": lambda s, body, properties: s.put_many("T", [{"body": body, "properties": properties, "delay": 4}]),
        "property": lambda s, body, properties: s.put("T", body, properties=properties | {"TIMER_DELAY_SEC": "4"}),
        "put_async": lambda s, body, properties: s.put_async("T", body, properties=properties, delay=4)}


@pytest.mark.parametrize("window", [172_800, 2])
@pytest.mark.parametrize("mode", MODES)
def test_each_length_is_refused_or_comes(tmp_path, mode, window):
    clock, accepted = Clock(), []
    with clock.open(tmp_path / "s", timer_roll_window_slot=window, **MODES[mode]) as s:
        for i, length in enumerate(range(MOST - 400, MOST, 7)):
            try:
                WAYS[[*WAYS][i % len(WAYS)]](s, b"%d" % length, {"k": "x" * length})
                accepted.append(length)
            except errors.PropertiesSizeExceeded as error:
                assert error.status is PutStatus.PROPERTIES_SIZE_EXCEEDED and "32767" in str(error)
        s.wait_dispatched(60)
        taken(s, len(accepted))
        roll(clock, s, NOW + 6000)
        assert came(s, len(accepted)) == {b"%d" % length: 1 for length in accepted} and len(accepted) > 20
        if window == 2:
            assert s.max_offset(TIMER, 0) > len(accepted) + 10


@pytest.mark.parametrize("long", [8000, 16_000, 31_000, 32_000, 32_400])
def test_a_message_with_a_long_key_is_refused_or_can_be_taken_back(tmp_path, long):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        key = {"UNIQ_KEY": "k" * long}
        try:
            put = s.put("T", b"x", properties=key, delay=4)
        except errors.PropertiesSizeExceeded as error:
            assert long > 31_500 and "UNIQ_KEY" in str(error)
            return
        s.recall(s.recall_handle(put.offset))
        taken(s, 2)
        roll(clock, s, NOW + 6000)
        assert bodies(s, "T", 0) == [] and pending(s) == 0


def foreign(store, body, out, size=MOST):
    """A message that another program accepted: its properties are as long as a record can have."""
    text = f"TIMER_DELIVER_MS\x01{out + 1}\x02TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02k\x01".encode()
    return store.put(TIMER, body, properties=text + b"x" * (size - len(text) - 1) + b"\x02")


@pytest.mark.parametrize("out", [NOW - 5000, NOW + 2000, NOW + 7000])
@pytest.mark.parametrize("killing", [False, True])
def test_what_another_program_accepted_comes_in_a_form_that_fits(tmp_path, out, killing, caplog):
    """Late, in its slot, and rolled on its way. Of its own properties none is lost."""
    clock, sizes = Clock(), [*range(MOST - 130, MOST + 1, 10), MOST]
    options = {"timer_roll_window_slot": 2}
    with clock.open(tmp_path / "s", **options) as s:
        s.put("U", b"begins the service", deliver_at=NOW + 1000)
        for size in sizes:
            foreign(s, b"%d" % size, out, size)
        s.wait_dispatched(60)
        taken(s, 1 + len(set(sizes)))
        roll(clock, s, NOW + 3000)
        s.flush()
        counted(s, s.max_offset(TIMER, 0))
        image = killed(tmp_path / "s", tmp_path / "image") if killing else tmp_path / "s"
    clock = Clock(NOW + 3000)
    with clock.open(image, **options) as s:
        roll(clock, s, NOW + 10_000)
        found = came(s, len(sizes))
        assert set(found) == {b"%d" % size for size in sizes} and sum(found.values()) == len(sizes) and pending(s) == 0
        for message in s.scan("T", 0):
            assert message.properties["k"].strip("x") == "" and len(message.properties["k"]) > MOST - 400
        message = None
    assert "TIMER_SKIPPED" not in [r.event for r in caplog.records if r.name == "rmq_store.timer"]


def test_what_can_never_be_delivered_is_told_by_its_place(tmp_path, caplog):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put("T", b"x", deliver_at=NOW + 1000)
        taken(s, 1)
        bad = s.put(TIMER, b"no topic", properties={"TIMER_OUT_MS": str(NOW), "REAL_QID": "0"})
        clock.set(NOW + 2000)
        until(lambda: [r.fields["offset"] for r in caplog.records
                       if getattr(r, "event", "") == "TIMER_SKIPPED"] == [bad.offset])
        assert bytes(s.message_at(bad.offset).body) == b"no topic"


@pytest.mark.parametrize("kind", ["timer", "rolled", "level"])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_limit_that_is_lowered_later_holds_up_nothing(tmp_path, kind, reopened):
    clock = Clock()
    options = {"timer_roll_window_slot": 2} if kind == "rolled" else {}
    delay = {"delay_level": 2} if kind == "level" else {"delay": 5}
    large, topic = b"x" * 50_000, "T" * 200
    before = {"message_size_max_bytes": 100_000, "topic_size_max_bytes": 200, "timer_max_delay_sec": 1000,
              "delay_levels": "1s 5s"}
    with clock.open(tmp_path / "s", **options | before) as s:
        handle = s.recall_handle(s.put(topic, large, delay=5).offset)
        s.put(topic, large, **delay)
        s.put(topic, b"small", **delay)
        s.wait_dispatched(60)
        taken(s, s.max_offset(TIMER, 0))
        s.recall(handle)
        if not reopened:
            s.reconfigure(message_size_max_bytes=1000)
            finish(clock, s, topic, large)
    if reopened:
        with clock.open(tmp_path / "s", **options | {"message_size_max_bytes": 1000, "timer_max_delay_sec": 1}) as s:
            finish(clock, s, topic, large)


def finish(clock, store, topic, large):
    with pytest.raises(errors.MessageIllegal, match="body size"):
        store.put(topic[:100], large)
    while clock.ms < NOW + 6000:
        clock.set(clock.ms + 1000)
        if store._delay is not None:
            store._delay.timer.poke()
        read_to(store, clock.ms)
        store.wait_dispatched(60)
        taken(store, store.max_offset(TIMER, 0))
    until(lambda: store.max_offset(topic, 0) == 2)
    assert sorted(bytes(m.body) for m in store.scan(topic, 0)) == [b"small", large]


@pytest.mark.parametrize(("before", "after"), [({"compat": "4.9"}, {"compat": "5.x"}), ({}, {"record_crc": True}),
                                               ({"compat": "4.9"}, {"compat": "5.x", "record_crc": True})])
def test_a_delayed_message_comes_though_its_copy_has_a_longer_end(tmp_path, before, after):
    """The properties are as long as they can be, and the store writes more of them since."""
    clock = Clock()
    with MessageStore.open(tmp_path / "s", _io=clock.io, delay="store_only", **SMALL | before) as s:
        sizes, size = [], MOST - 60
        while True:
            try:
                s.put("T", b"%d" % size, properties={"k": "x" * size}, delay_level=1)
                sizes.append(size)
                size += 1
            except errors.PropertiesSizeExceeded:
                break
        assert len(sizes) > 10
        s.wait_dispatched(60)
    clock = Clock(NOW + 2000)
    with clock.open(tmp_path / "s", **after) as s:
        assert came(s, len(sizes)) == {b"%d" % size: 1 for size in sizes}
        assert {len(m.properties["k"]) for m in s.scan("T", 0)} == set(sizes)


def test_what_has_no_room_to_roll_and_gets_another_unit_comes_once_after_a_kill(tmp_path):
    """timercheck is as it was before the slot: what the slot did is done again."""
    clock, options, day = Clock(), {"timer_roll_window_slot": 100_000}, 86_400_000
    out = NOW + 12 * day                # farther than the wheel takes such a message
    with clock.open(tmp_path / "s", **options) as s:
        s.put("U", b"begins the service", deliver_at=NOW + 1000)
        foreign(s, b"far", out)
        s.wait_dispatched(60)
        taken(s, 2)
        clock.set(NOW + 2000)
        read_to(s, NOW + 2000)
        s.flush()
        counted(s, 2)
        written(s)
        before = (tmp_path / "s" / "config" / "timercheck").read_bytes()
        clock.set(NOW + 100_001_000)
        read_to(s, NOW + 100_001_000)
        s.flush()
        assert pending(s) == 1 and s.max_offset("T", 0) == 0
        image = killed(tmp_path / "s", tmp_path / "image")
    (image / "config" / "timercheck").write_bytes(before)
    clock = Clock(NOW + 100_001_000)
    with clock.open(image, **options) as s:
        read_to(s, clock.ms)
        assert pending(s) == 1
        while clock.ms < out + 2000:
            clock.set(clock.ms + 100_001_000)
            read_to(s, clock.ms // 1000 * 1000)
            s.wait_dispatched(60)
        assert came(s, 1) == {b"far": 1} and pending(s) == 0
