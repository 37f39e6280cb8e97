"""Listeners that are told of each message, as upstream's MessageArrivingListener is; those that are told of queues are as
ever."""
import struct
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.codec._java_hash import java_hash
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        yield made


def test_it_has_what_upstream_tells(store):
    got = []
    store.add_arriving_listener(got.append, each_message=True)
    first = store.put("T", b"x", queue_id=2, tags="a", keys="k", properties={"p": "q"})
    store.put("T", b"y", queue_id=2)
    until(lambda: len(got) == 2)
    message = got[0]
    assert message == ("T", 2, 1, java_hash("a"), first.store_timestamp, None, {"p": "q", "TAGS": "a", "KEYS": "k"})
    assert (message.offset, message.queue_offset, got[1].offset, got[1].tags_code) == (1, 0, 2, 0)


def test_a_delayed_message_has_its_due_time(tmp_path):
    got = []
    with MessageStore.open(tmp_path / "s", delay="store_only", delay_levels=[60_000], **SMALL) as store:
        store.add_arriving_listener(got.append, each_message=True)
        put = store.put("T", b"x", delay_level=1)
        until(lambda: got)
    assert (got[0].topic, got[0].queue_id, got[0].tags_code) == ("SCHEDULE_TOPIC_XXXX", 0, put.store_timestamp + 60_000)


def test_every_message_of_every_queue_in_its_order_and_only_new_ones(store):
    store.put_many("T", [b"old"] * 50)
    store.put("U", b"old")
    store.wait_dispatched(10)
    got, queues = [], []
    store.add_arriving_listener(lambda *arrival: queues.append(arrival))
    store.add_arriving_listener(got.append, each_message=True)
    for i in range(600):
        store.put("T" if i % 3 else "New", b"x", queue_id=i % 2)
    until(lambda: len(got) == 600)
    for topic, queue_id, begin in (("T", 0, 50), ("T", 1, 0), ("New", 0, 0), ("New", 1, 0)):
        mine = [m.queue_offset for m in got if (m.topic, m.queue_id) == (topic, queue_id)]
        assert mine == list(range(begin, store.max_offset(topic, queue_id)))
    until(lambda: {arrival[:2] for arrival in queues} == {("T", 0), ("T", 1), ("New", 0), ("New", 1)})
    assert all(len(arrival) == 3 for arrival in queues)


def test_an_extension_unit_leads_to_its_tags_code(tmp_path):
    got = []
    with MessageStore.open(tmp_path / "s", consumequeue_ext_enabled=True, **SMALL) as store:
        store.add_arriving_listener(got.append, each_message=True)
        put = store.put("T", b"x", tags="a")
        until(lambda: got)
    assert (got[0].tags_code, got[0].store_timestamp, got[0].bit_map) == (java_hash("a"), put.store_timestamp, None)


def test_what_cannot_be_read_is_said_once_and_told_later(store, monkeypatch, caplog):
    from rmq_store.access.waiting import listeners

    got, real = [], listeners.arrived_entries

    def fails(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(listeners, "arrived_entries", fails)
    store.add_arriving_listener(got.append, each_message=True)

    def said():
        return [r.fields["task"] for r in caplog.records if getattr(r, "event", "") == "TASK_FAILED"]

    store.put("T", b"x")
    until(said)
    monkeypatch.setattr(listeners, "arrived_entries", real)
    store.put("T", b"y")
    until(lambda: len(got) == 2)
    assert [m.queue_offset for m in got] == [0, 1] and said() == ["telling listeners of messages"]


@pytest.mark.parametrize("error", [RuntimeError("mine"), SystemExit(1), KeyboardInterrupt()])
def test_a_listener_that_raises_is_called_for_the_next(store, caplog, error):
    got, other = [], []

    def listener(message):
        got.append(message.queue_offset)
        raise error

    store.add_arriving_listener(listener, each_message=True)
    store.add_arriving_listener(lambda message: other.append(message.queue_offset), each_message=True)
    store.put_many("T", [b"x"] * 3)
    until(lambda: len(other) == 3)
    assert got == other == [0, 1, 2]
    until(lambda: sum("a message-arriving listener raised" in r.message for r in caplog.records) == 3)


def test_removal_and_arguments(store):
    got, first = [], threading.Event()

    def listener(message):
        got.append(message)
        first.set()

    store.add_arriving_listener(listener, each_message=True)
    store.put("T", b"x")
    assert first.wait(10)
    store.remove_arriving_listener(listener)
    store.put("T", b"y")
    store.wait_dispatched(10)
    with pytest.raises(ValueError, match="was not added"):
        store.remove_arriving_listener(listener)
    again = []
    store.add_arriving_listener(again.append, each_message=True)
    store.put("T", b"z")
    until(lambda: again)
    assert len(got) == 1 and [m.queue_offset for m in again] == [2]
    for bad in (lambda: store.add_arriving_listener(5), lambda: store.add_arriving_listener(print, each_message=1)):
        with pytest.raises(errors.ArgumentIllegal):
            bad()


def test_a_slow_one_holds_nobody_up_and_what_was_deleted_is_left_out(store):
    held, entered, got = threading.Event(), threading.Event(), []

    def slow(message):
        got.append(message.queue_offset)
        entered.set()
        held.wait()

    store.add_arriving_listener(slow, each_message=True)
    store.put("T", b"x")
    assert entered.wait(10)
    for _ in range(1500):
        store.put("T", b"x" * 100)
    store.flush()
    assert store.wait_dispatched(10)
    store.clean(0)
    low = store.min_offset("T", 0)
    held.set()
    until(lambda: got[-1] == 1500)
    assert low > 0 and got == sorted(got) and set(range(low, 1501)) <= set(got)


def test_a_deleted_topic_begins_anew(store):
    got = []
    store.add_arriving_listener(got.append, each_message=True)
    store.put_many("T", [b"x"] * 5)
    until(lambda: len(got) == 5)
    store.delete_topics("T")
    store.put_many("T", [b"new"] * 10)      # more than were there: the end alone does not tell
    until(lambda: len(got) == 15)
    assert [one.queue_offset for one in got[5:]] == list(range(10))


def test_a_listener_is_not_told_of_what_was_taken_before_it_came(store):
    """A round that the thread took earlier names an end below the place where the new listener begins."""
    got = []
    store.put_many("T", [b"x"] * 10)
    assert store.wait_dispatched(10)
    store.add_arriving_listener(got.append, each_message=True)
    store._listeners._tell_each("T", 0, 5)
    assert got == []


def test_close_ends_it(tmp_path):
    store = MessageStore.open(tmp_path / "s", **SMALL)
    done = threading.Event()

    def end(message):
        store.close()
        done.set()

    store.add_arriving_listener(end, each_message=True)
    store.put("T", b"x")
    assert done.wait(10)
    until(lambda: not store._listeners.thread.is_alive())


def test_entries_with_a_bit_map(tmp_path):
    """As a broker with enableCalcFilterBitMap leaves them: the unit is written by hand, by the layout of ConsumeQueueExt."""
    from rmq_store.access.waiting._arrived import arrived_entries

    with MessageStore.open(tmp_path / "s", consumequeue_ext_enabled=True, **SMALL) as store:
        put = store.put("T", b"x", tags="a")
        store.wait_dispatched(10)
        store.flush()
    (file,) = (tmp_path / "s/consumequeue_ext/T/0").iterdir()
    unit = struct.pack(">hqqh", 20 + 32, java_hash("a"), put.store_timestamp, 32) + bytes(range(32))
    with file.open("r+b") as f:
        assert f.read(18) == struct.pack(">hqq", 20, java_hash("a"), put.store_timestamp)
        f.seek(0)
        f.write(unit)
    with MessageStore.open(tmp_path / "s", readonly=True, consumequeue_ext_enabled=True, **SMALL) as store:
        assert arrived_entries(store, "T", 0, 0, 1) == ([(0, put.offset, java_hash("a"), bytes(range(32)))], 1)
        assert arrived_entries(store, "T", 0, 1, 1) == ([], 1) and arrived_entries(store, "Never", 0, 0, 7) == ([], 7)
