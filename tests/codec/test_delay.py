"""Delay levels: the waiting form of a message, its delivery time, and levels that are none."""
import pytest

from rmq_store.codec._codec import decode_record, encode_record, tags_code
from rmq_store.codec.delay import (
    DELAY_LEVELS_MS,
    SCHEDULE_TOPIC,
    Rewritten,
    delay_rewrite,
    deliver_timestamp,
    parse_delay_level,
)
from rmq_store.errors import MessageIllegal, PropertiesSizeExceeded


def test_the_default_levels():
    units = {"s": 1000, "m": 60_000, "h": 3_600_000}
    text = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    assert tuple(int(level[:-1]) * units[level[-1]] for level in text.split()) == DELAY_LEVELS_MS


def test_deliver_time():
    """DLY-02: an unknown level is due one second later."""
    assert deliver_timestamp(999, 0) == deliver_timestamp(0, 0) == deliver_timestamp(-1, 0) == 1000
    assert deliver_timestamp(1, 50) == 1050 and deliver_timestamp(18, 0) == 7_200_000
    assert deliver_timestamp(2, 0, (7, 8)) == 8 and deliver_timestamp(3, 0, (7, 8)) == 1000


def test_the_waiting_form():
    assert delay_rewrite("t", 5, b"a\x01b\x02DELAY\x013\x02TAGS\x01x", compat="4.9") == Rewritten(
        SCHEDULE_TOPIC, 2, b"a\x01b\x02DELAY\x013\x02TAGS\x01x\x02REAL_TOPIC\x01t\x02REAL_QID\x015")
    assert delay_rewrite("t", 0, b"DELAY\x0125\x02") == Rewritten(
        SCHEDULE_TOPIC, 17, b"DELAY\x0118\x02REAL_TOPIC\x01t\x02REAL_QID\x010\x02")
    assert delay_rewrite("t", 0, b"DELAY\x013\x02", levels=(1, 2)).properties.startswith(b"DELAY\x012\x02")
    # What upstream's map drops or keeps when it is encoded again.
    rewritten = delay_rewrite("t", 1, b"REAL_QID\x019\x02junk\x02x\x01y\x01z\x02DELAY\x01+2\x02x\x01w")
    assert rewritten == Rewritten(SCHEDULE_TOPIC, 1, b"REAL_QID\x011\x02x\x01w\x02DELAY\x01+2\x02REAL_TOPIC\x01t\x02")
    assert b"x\x01y\x01z\x02" in delay_rewrite("t", 1, b"x\x01y\x01z\x02DELAY\x012").properties


@pytest.mark.parametrize(("properties", "sys_flag"), [
    (b"", 0), (b"TAGS\x01a\x02", 0), (b"DELAY\x010", 0), (b"DELAY\x01-3", 0), (b"DELAY\x01", 0), (b"DELAY\x013", 0x4),
    (b"DELAY\x013", 0xC),
])
def test_what_is_not_delayed(properties, sys_flag):
    assert delay_rewrite("t", 0, properties, sys_flag=sys_flag) is None


def test_a_committed_message_can_be_delayed():
    assert delay_rewrite("t", 0, b"DELAY\x013", sys_flag=0x8).queue_id == 2


@pytest.mark.parametrize("value", ["x", "1.5", "1 ", "+", "-", "٣", "2147483648", "-2147483649", "1_000"])
def test_a_level_that_is_no_number(value):
    with pytest.raises(MessageIllegal, match="DELAY"):
        delay_rewrite("t", 0, f"DELAY\x01{value}".encode())
    assert waiting(value).queue_tags_code() == tags_code("a")


def test_levels_are_java_ints():
    levels = {None: 0, "3": 3, "+3": 3, "-3": -3, "003": 3, "2147483647": 2**31 - 1, "-2147483648": -2**31}
    for value, level in levels.items():
        assert parse_delay_level(value) == level


def waiting(level, topic=SCHEDULE_TOPIC):
    properties = f"TAGS\x01a\x02DELAY\x01{level}\x02".encode()
    return decode_record(encode_record(topic, b"", store_timestamp=5000, properties=properties))


def test_the_queue_entry_of_a_waiting_message():
    assert waiting("1").queue_tags_code() == waiting("+1").queue_tags_code() == 6000
    assert waiting("2147483647").queue_tags_code() == waiting("18").queue_tags_code() == 7_205_000
    assert waiting("2").queue_tags_code((10, 20)) == waiting("3").queue_tags_code((10, 20)) == 5020
    for level in ("0", "-1", "-2147483648"):
        assert waiting(level).queue_tags_code() == tags_code("a")
    assert waiting("1", "other").queue_tags_code() == waiting("1").queue_tags_code(()) == tags_code("a")
    assert decode_record(encode_record(SCHEDULE_TOPIC, b"")).queue_tags_code() == 0


def test_no_room_for_two_more_names():
    with pytest.raises(PropertiesSizeExceeded):
        delay_rewrite("t", 0, b"DELAY\x011\x02a\x01" + b"b" * 32750)
