"""Where a delayed message goes is checked when it is put: once it waits, nobody can be told that there is no such place."""
import asyncio
import enum

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from tests.delay.test_delay import NOW, SCHEDULE, SMALL, Clock, bodies

BAD = {"topic": ({"topic": "a/b"}, "topic is 'a/b'"), "no topic": ({"topic": ""}, "topic is empty"),
       "long": ({"topic": "x" * 128}, "topic size is 128 bytes"), "type": ({"topic": 7}, "topic is a int"),
       "half": ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "never delivered"),
       "level": ({"topic": SCHEDULE}, "never delivered"), "timer": ({"topic": "rmq_sys_wheel_timer"}, "never delivered"),
       "queue": ({"queue_id": -1}, "queue_id is -1"), "queue type": ({"queue_id": "0"}, "queue_id is '0'"),
       "far queue": ({"queue_id": 1 << 31}, "queue_id is 2147483648")}
DELAYED = {"DELAY": "1"}


def put_coroutine(store, topic, queue_id):
    async def run():
        await AsyncMessageStore(store).put(topic, b"x", queue_id=queue_id, delay_level=1)
    asyncio.run(run())


WAYS = {"put": lambda s, t, q: s.put(t, b"x", queue_id=q, delay_level=1),
        "property": lambda s, t, q: s.put(t, b"x", queue_id=q, properties=b"DELAY\x011"),
        "put_async": lambda s, t, q: s.put_async(t, b"x", queue_id=q, delay_level=1),
        "put_many": lambda s, t, q: s.put_many(t, [b"x", b"y"], queue_id=q, properties=DELAYED),
        "put_many of mappings": lambda s, t, q: s.put_many(t, [b"x", {"body": b"y", "properties": DELAYED}], queue_id=q),
        "aio": put_coroutine}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", BAD)
def test_a_place_that_cannot_be_is_refused(tmp_path, way, bad):
    given, words = BAD[bad]
    with MessageStore.open(tmp_path / "s", compat="4.9", **SMALL) as s:
        with pytest.raises(errors.MessageIllegal, match=words):
            WAYS[way](s, given.get("topic", "T"), given.get("queue_id", 0))
        assert s.stats()["wrote"] == 0 and s.topics() == []


def test_a_batch_with_a_delay_is_refused_whatever_its_place(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s, pytest.raises(errors.MessageIllegal, match="nor delayed"):
        s.put_batch("a/b", bytes.fromhex("00000017 00000000 00000000 00000000 00000001 78 0000"), properties=DELAYED)


def test_a_waiting_topic_that_4_9_cannot_read_is_passed_over(tmp_path):
    """Put under 5.x, delivered under 4.9: a record of version 2 would end the log for it."""
    clock = Clock()
    with clock.open(tmp_path / "s", topic_size_max_bytes=200) as s:
        s.put("x" * 200, b"long", delay_level=1)
        s.put("T", b"short", delay_level=1)
        assert s.wait_dispatched(60)
        clock.set(NOW)
    clock.set(NOW + 1000)
    with clock.open(tmp_path / "s", compat="4.9") as s:
        assert bodies(s, "T", 0, 1) == [b"short"]
        assert s._delay.timer.state()[1] == 1 and [t for t in s.topics() if s.max_offset(t, 0)] == [SCHEDULE, "T"]


class Name(str, enum.Enum):     # noqa: UP042 (it is about this kind)
    """As services keep their topics: what it prints is not what it is."""

    PAID = "T"

    def __str__(self):
        return "Name.PAID"

    __format__ = str.__format__


def test_names_and_numbers_of_other_types_are_delivered(tmp_path):
    clock = Clock()
    with clock.open(tmp_path / "s") as s:
        s.put(Name.PAID, b"x", queue_id=True, delay_level=1)
        s.wait_dispatched(60)
        assert s.get(SCHEDULE, 0, 0)[0].properties == {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "1"}
        clock.set(NOW + 1000)
        assert bodies(s, "T", 1, 1) == [b"x"]


def test_a_message_must_fit_as_it_is_delivered(tmp_path):
    """Its record grows with the real topic's name: one that only just fits while it waits would never be delivered."""
    clock, options = Clock(), SMALL | {"segment_size_bytes": 1 << 16}
    with clock.open(tmp_path / "s", **options) as s:
        size = 60_000
        while True:
            try:
                s.put("t" * 100, bytes(size), delay_level=1)
            except errors.MessageIllegal as error:
                assert "record size" in str(error)
                break
            size += 16
        assert s.wait_dispatched(60)
        waiting = s.max_offset(SCHEDULE, 0)
        clock.set(NOW + 1000)
        assert s.wait_for_message("t" * 100, 0, waiting - 1, 60)
