"""Client batches both ways, their expansion into records, and bytes that claim to be a batch."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_store.codec._codec import decode_record, encode_record, verify_record_crc
from rmq_store.codec.batch import BatchMessage, check_batch, decode_batch, encode_batch, expand_batch
from rmq_store.codec.properties import decode_properties
from rmq_store.errors import MessageIllegal, PropertiesSizeExceeded

PROPERTIES = st.sampled_from([b"", b"a\x01b", b"a\x01b\x02", b"UNIQ_KEY\x01X\x02TAGS\x01t", b"\x02"])
MESSAGES = st.lists(st.builds(BatchMessage, st.binary(max_size=40), PROPERTIES, st.integers(-2**31, 2**31 - 1)),
                    min_size=1, max_size=12)


def test_one_element():
    """COD-11."""
    batch = encode_batch([{"body": b"body", "properties": {"key": "value"}, "flag": 12}])
    assert batch == bytes.fromhex("00000024 00000000 00000000 0000000c 00000004") + b"body" + b"\0\x0akey\x01value\x02"
    [message] = decode_batch(batch)
    assert (message.flag, message.body, decode_properties(message.properties)) == (12, b"body", {"key": "value"})


def test_a_hundred_elements():
    """COD-12."""
    found = decode_batch(encode_batch({"body": b"body%d" % i, "flag": i} for i in range(100)))
    assert found == [BatchMessage(b"body%d" % i, b"", i) for i in range(100)]


@given(MESSAGES)
def test_round_trip(messages):
    assert decode_batch(encode_batch(messages)) == messages
    assert decode_batch(bytearray(encode_batch([m._asdict() for m in messages]))) == messages


@given(MESSAGES, PROPERTIES, st.booleans(), st.sampled_from(["4.9", "5.x"]))
def test_batch_bytes_equal_one_by_one_bytes(messages, shared, crc_property, compat):
    """Own properties, a separator where one is needed, those of the batch; consecutive offsets, one time."""
    fields = {"queue_id": 3, "sys_flag": 2, "born_timestamp": 11, "store_timestamp": 12, "born_host": "[::5]:6",
              "reconsume_times": 2, "compat": compat, "crc_property": crc_property}
    expanded = expand_batch(encode_batch(messages), "topic", properties=shared, queue_offset=7, physical_offset=1000, **fields)
    singles = b""
    for i, message in enumerate(messages):
        gap = b"\x02" if message.properties and shared and not message.properties.endswith(b"\x02") else b""
        record = encode_record("topic", message.body, properties=message.properties + gap + shared, flag=message.flag,
                               queue_offset=7 + i, physical_offset=1000 + len(singles), **fields)
        assert verify_record_crc(record) is (True if crc_property else None)
        singles += record
    assert expanded == singles


def test_a_batch_goes_to_a_long_topic():
    expanded = expand_batch(encode_batch([b"a", b"b"]), "%RETRY%" + "g" * 150, properties={"CLUSTER": "c"})
    first = decode_record(expanded)
    second = decode_record(expanded, first.size)
    assert (bytes(first.body), bytes(second.body)) == (b"a", b"b")
    assert (second.queue_offset, second.physical_offset, second.properties) == (1, first.size, {"CLUSTER": "c"})
    assert first.magic == second.magic == -626843477


def test_preparing_is_not_for_batches():
    expanded = expand_batch(encode_batch([b"a"]), "t", prepared_transaction_offset=9)
    assert decode_record(expanded).prepared_transaction_offset == 0
    for name in ("tags", "keys"):
        with pytest.raises(TypeError, match="single messages"):
            expand_batch(encode_batch([b"a"]), "t", **{name: "x"})


def test_what_upstreams_clients_refuse():
    """COD-13."""
    check_batch([{"body": b"1", "topic": "t"}, {"body": b"2", "topic": "t", "properties": {"WAIT": "true", "DELAY": "0"}}])
    check_batch([b"1", BatchMessage(b"2", b"", 0)])
    for second, words in (({"topic": "u"}, "different topics"), ({"topic": "t", "properties": {"WAIT": "false"}}, "WAIT"),
                          ({"topic": "t", "properties": {"DELAY": "3"}}, "delay level"), ({"topic": "%RETRY%g"}, "RETRY")):
        with pytest.raises(MessageIllegal, match=words):
            check_batch([{"body": b"1", "topic": "t"}, {"body": b"2", **second}])


@pytest.mark.parametrize(("messages", "words"), [
    ([], "empty"), (["text"], "body of a message of a batch is str"), ([{}], "NoneType"),
    ([{"body": b"", "tag": "x"}], "no 'tag'"), ([{"body": b"", "flag": 2**31}], "flag"),
    ([{"body": b"", "flag": True}], "flag"),
    ([{"body": b"", "properties": {"a": ""}}], "empty"),
])
def test_what_a_batch_cannot_hold(messages, words):
    with pytest.raises(MessageIllegal, match=words):
        encode_batch(messages)


def test_properties_that_are_too_long_together():
    batch = encode_batch([b"fits", {"body": b"", "properties": b"a" * 32767}])
    assert len(expand_batch(batch, "t")) > 32767
    for extra in ({"properties": b"b"}, {"crc_property": True}):
        with pytest.raises(PropertiesSizeExceeded, match="byte 26 of the batch"):
            expand_batch(batch, "t", **extra)


def test_no_batch_at_all():
    for function in (decode_batch, lambda data: expand_batch(data, "t")):
        with pytest.raises(MessageIllegal, match="empty"):
            function(b"")
        with pytest.raises(MessageIllegal, match="cannot be read at byte 0"):
            function(bytes(21))
        with pytest.raises(MessageIllegal, match="cannot be read at byte 22"):
            function(encode_batch([b""]) + bytes(30))


@given(MESSAGES, st.data())
def test_hostile_sizes_are_refused(messages, data):
    """Any change of a length is noticed; any other change is read as what it says."""
    good = encode_batch(messages)
    position = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_batch(bad)
    except MessageIllegal:
        return
    assert len(found) == len(messages)
    again = encode_batch(found)
    assert len(again) == len(good)
