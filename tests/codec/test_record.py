"""One record: the worked example, hosts of both families, versions, limits, and what a mutable or foreign body does."""
import array
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_store.codec import _layout, layout
from rmq_store.codec._codec import (
    Blank,
    body_crc32,
    decode_record,
    encode_blank,
    encode_record,
    record_size,
    verify_record_crc,
)
from rmq_store.codec.message_id import create_message_id
from rmq_store.codec.properties import decode_properties
from rmq_store.errors import CorruptionError, MessageIllegal, PropertiesSizeExceeded

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
PROPERTIES = st.dictionaries(NAMES, NAMES, max_size=8)
INT32 = st.integers(-2**31, 2**31 - 1)
INT64 = st.integers(-2**63, 2**63 - 1)
PORTS = st.integers(0, 65535)
HOSTS = (st.tuples(st.ip_addresses(v=4), PORTS).map("{0[0]}:{0[1]}".format)
         | st.tuples(st.ip_addresses(v=6).filter(lambda ip: ip.ipv4_mapped is None), PORTS).map("[{0[0]}]:{0[1]}".format))


def worked_record(properties, compat):
    """The first message of the worked example (store format, section 25): Topic-01, "Store Msg 1", born 1640832578156."""
    return encode_record("Topic-01", b"Store Msg 1", born_timestamp=0x17E093E326C, born_host="192.168.0.2:50000",
                         store_timestamp=1640832578160, store_host="192.168.0.2:10911", properties=properties, compat=compat)


UNIQ = "7F00000135DC18B4AAC23C8E6C5B0000"       # any id of 32 digits


@pytest.mark.parametrize(("properties", "compat", "properties_size", "size"), [
    ({"UNIQ_KEY": UNIQ, "WAIT": "true", "CLUSTER": "DefaultCluster"}, "5.x", 75, 185),      # <= 4.9.0, >= 5.2.0
    ({"UNIQ_KEY": UNIQ, "WAIT": "true", "CLUSTER": "DefaultCluster"}, "4.9", 74, 184),      # 5.0.0 to 5.1.4
    ({"UNIQ_KEY": UNIQ, "CLUSTER": "DefaultCluster"}, "4.9", 64, 174),                      # 4.9.1 to 4.9.8
])
def test_the_worked_record(properties, compat, properties_size, size):
    record = worked_record(properties, compat)
    assert len(record) == size == _layout.RECORD_FIXED_SIZE + 11 + 8 + properties_size
    assert record[:4] == size.to_bytes(4, "big")
    assert record[4:8].hex() == "daa320a7"
    assert record[8:12].hex() == "16dffb70"                             # its body CRC
    assert record[12:48].hex() == "00" * 28 + "0000017e093e326c"        # queue 0, flag 0, both offsets 0, no sysFlag, born
    assert record[48:56].hex() == "c0a80002" + "0000c350"
    assert record[84:99].hex() == "0000000b" + "53746f7265204d73672031"
    assert record[99:108].hex() == "08" + "546f7069632d3031"
    assert record[108:110] == properties_size.to_bytes(2, "big")
    assert record.endswith(b"\x02") == (compat == "5.x")
    assert decode_record(record).properties == properties


def test_properties_of_a_record_for_both_families():
    """COD-01."""
    given_properties = {"a": "123", "b": "hello", "c": "3.14"}
    for host in ("127.0.0.1:9103", "[1050::5:600:300c:326b]:9103"):
        record = encode_record("abc", b"hello!q!", born_host=host, store_host=host, properties=given_properties)
        assert decode_record(record).properties == given_properties


@pytest.mark.parametrize(("host", "sys_flag", "id_size"), [("127.0.0.1:0", 0, 32), ("[1050::5:600:300c:326b]:0", 48, 56)])
def test_fields_survive(host, sys_flag, id_size):
    """COD-02, COD-03."""
    record = decode_record(encode_record("abc", b"hello!q!", queue_id=1, physical_offset=123456, born_host=host,
                                         store_host=host))
    assert (record.queue_id, record.physical_offset, record.topic, bytes(record.body)) == (1, 123456, "abc", b"hello!q!")
    assert record.sys_flag == sys_flag
    assert record.message_id == create_message_id(host, 123456)
    assert len(record.message_id) == id_size


def test_a_property_without_value_is_left_out():
    """COD-04."""
    record = decode_record(encode_record("abc", b"", properties={"a": "1", "b": None}))
    assert record.properties == {"a": "1"}
    assert record.properties_bytes == b"a\x011\x02"


@given(topic=st.text("abcXYZ019%|_-", min_size=1, max_size=300), body=st.binary(max_size=300), properties=PROPERTIES,
       queue_id=st.integers(0, 2**31 - 1), offsets=st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)), flag=INT32,
       sys_flag=INT32, times=st.tuples(INT64, INT64), born_host=HOSTS, store_host=HOSTS, reconsume_times=INT32, prepared=INT64,
       tags=st.none() | NAMES, crc_property=st.booleans(), v49=st.booleans())
def test_round_trip(topic, body, properties, queue_id, offsets, flag, sys_flag, times, born_host, store_host, reconsume_times,
                    prepared, tags, crc_property, v49):
    compat = "4.9" if v49 and len(topic) <= 127 else "5.x"
    properties.pop("TAGS", None)
    properties.pop("__CRC32#", None)
    fields = {"queue_id": queue_id, "queue_offset": offsets[0], "physical_offset": offsets[1], "flag": flag,
              "sys_flag": sys_flag, "born_timestamp": times[0], "store_timestamp": times[1], "born_host": born_host,
              "store_host": store_host, "reconsume_times": reconsume_times, "prepared_transaction_offset": prepared,
              "properties": properties, "tags": tags, "compat": compat, "crc_property": crc_property}
    data = encode_record(topic, body, **fields)
    assert len(data) == record_size(topic, body, **fields)
    record = decode_record(b"xyz" + data + b"behind", 3)
    assert record.size == len(data)
    assert record.magic == (_layout.MAGIC_V2 if len(topic) > 127 else _layout.MAGIC_V1)
    assert (record.topic, bytes(record.body), record.body_crc) == (topic, body, body_crc32(body))
    assert record.sys_flag & ~0x30 == sys_flag & ~0x30
    for name in ("queue_id", "queue_offset", "physical_offset", "flag", "born_timestamp", "store_timestamp", "born_host",
                 "store_host", "reconsume_times", "prepared_transaction_offset"):
        assert record[name] == fields[name]
    found = record.properties
    crc = found.pop("__CRC32#", None)
    assert (crc is not None) == crc_property
    if tags is not None:
        assert found.pop("TAGS") == tags
    assert found == properties
    assert record.record_crc_ok is (True if crc_property else None)
    rows = layout.describe(data)
    assert [row.number for row in rows] == list(range(1, 21))
    assert b"".join(row.data for row in rows) == data


def test_tags_and_keys_go_behind_the_properties():
    encode = lambda **fields: decode_record(encode_record("t", b"", **fields)).properties_bytes   # noqa: E731
    assert encode(tags="a", keys="k1 k2") == b"TAGS\x01a\x02KEYS\x01k1 k2\x02"
    assert encode(tags="a", keys=["k1", "k2"], compat="4.9") == b"TAGS\x01a\x02KEYS\x01k1 k2"
    assert encode(properties={"p": "q"}, tags="a", compat="4.9") == b"p\x01q\x02TAGS\x01a"
    assert encode(properties={"p": "q"}, tags="a") == b"p\x01q\x02TAGS\x01a\x02"
    assert encode(properties=b"p\x01q", keys="k") == b"p\x01q\x02KEYS\x01k\x02"
    assert encode(properties=b"p\x01q") == b"p\x01q"                    # bytes alone are stored as given
    assert encode(properties=b"p\x01q\x02", compat="4.9") == b"p\x01q\x02"


def test_the_crc_property_replaces_one_that_came_in():
    """COD-19 and store format 6.2: one separator before it, ten digits, the least significant first."""
    record = encode_record("t", b"body", properties=b"a\x01b\x02__CRC32#\x0112\x02c\x01d", crc_property=True)
    tail = record[-20:]
    assert tail[:9] == b"__CRC32#\x01" and tail[19:] == b"\x02" and tail[9:19].isdigit()
    assert list(decode_properties(decode_record(record).properties_bytes)) == ["a", "c", "__CRC32#"]
    assert verify_record_crc(record) is True
    for position in (0, 20, 56, 88, len(record) - 25, len(record) - 5):
        broken = bytearray(record)
        broken[position] ^= 0x10 if position else 0
        broken[30] ^= 0 if position else 1
        assert verify_record_crc(broken) is False
    assert verify_record_crc(encode_record("t", b"body", properties=b"a\x01b\x02x__CRC32#\x010000000000\x02")) is None


def test_any_contiguous_buffer_is_a_body():
    data = bytes(range(64))
    numbers = array.array("q", struct.unpack("8q", data))
    for body in (data, bytearray(data), memoryview(data), memoryview(bytearray(data)), numbers):
        assert bytes(decode_record(encode_record("t", body)).body) == data
    for body in ("text", None, 5, memoryview(data)[::2], [1, 2]):
        with pytest.raises(MessageIllegal, match="body is"):
            encode_record("t", body)


@pytest.mark.parametrize(("fields", "error", "words"), [
    ({"topic": ""}, MessageIllegal, "topic is empty"),
    ({"topic": "a" * 32768}, MessageIllegal, "32767"),
    ({"topic": "a" * 128, "compat": "4.9"}, MessageIllegal, "127"),
    ({"topic": "\ud800"}, MessageIllegal, "surrogate"),
    ({"topic": 5}, MessageIllegal, "not text"),
    ({"queue_id": -1}, MessageIllegal, "queue_id is -1"),
    ({"queue_id": 2**31}, MessageIllegal, "queue_id is 2147483648"),
    ({"queue_id": "3"}, MessageIllegal, "queue_id is str"),
    ({"flag": 2**31}, MessageIllegal, "flag"),
    ({"queue_offset": 2**63}, MessageIllegal, "queue_offset"),
    ({"physical_offset": -1}, MessageIllegal, "physical_offset"),
    ({"born_host": "localhost:1"}, MessageIllegal, "localhost"),
    ({"store_host": "1.2.3.4"}, MessageIllegal, "1.2.3.4"),
    ({"properties": 5}, MessageIllegal, "mapping"),
    ({"properties": {"a": ""}}, MessageIllegal, "'a' is empty"),
    ({"tags": ""}, MessageIllegal, "tags is empty"),
    ({"tags": "a\x02b"}, MessageIllegal, "0x01 or 0x02"),
    ({"keys": ["a b"]}, MessageIllegal, "blank"),
    ({"keys": []}, MessageIllegal, "empty list"),
    ({"keys": 7}, MessageIllegal, "keys are int"),
    ({"properties": {"TAGS": "a"}, "tags": "b"}, MessageIllegal, "twice"),
    ({"properties": b"KEYS\x01a", "keys": "b"}, MessageIllegal, "twice"),
    ({"properties": b"a" * 32768}, PropertiesSizeExceeded, "32767"),
    ({"properties": b"a" * 32767, "crc_property": True}, PropertiesSizeExceeded, "32788"),
    ({"properties": {"a": "b" * 32767}}, PropertiesSizeExceeded, "32770"),
    ({"tags": "a" * 32763}, PropertiesSizeExceeded, "32769"),
    ({"compat": "6"}, ValueError, "compat"),
])
def test_what_a_record_cannot_hold_is_refused(fields, error, words):
    topic = fields.pop("topic", "t")
    with pytest.raises(error, match=words):
        encode_record(topic, b"body", **fields)


def test_the_largest_properties_fit():
    record = decode_record(encode_record("t", b"", properties=b"a\x01" + b"b" * 32765))
    assert len(record.properties_bytes) == 32767
    assert len(decode_record(encode_record("t", b"", tags="a" * 32761)).properties_bytes) == 32767


def test_version_two_begins_above_127_bytes():
    for size, magic, length in ((127, _layout.MAGIC_V1, 1), (128, _layout.MAGIC_V2, 2), (32767, _layout.MAGIC_V2, 2)):
        data = encode_record("a" * size, b"")
        assert decode_record(data).magic == magic
        assert len(data) == 90 + length + size


def test_the_end_of_a_file():
    data = encode_blank(4096)
    assert data.hex() == "00001000" + "cbd43194"
    blank = decode_record(data + bytes(20))
    assert isinstance(blank, Blank) and blank.size == 4096 and "4096" in repr(blank)
    for rest in (7, 2**31):
        with pytest.raises(MessageIllegal, match="rest of the file"):
            encode_blank(rest)


def test_a_record_is_a_mapping_of_its_fields():
    data = bytearray(encode_record("t", b"body", queue_id=3, properties={"a": "b"}))
    record = decode_record(data)
    as_dict = dict(record)
    assert as_dict["queue_id"] == 3 and as_dict["properties"] == {"a": "b"} and len(as_dict) == len(record)
    assert "topic" in record and "nothing" not in record and list(record) == list(record.keys())
    assert "queue_id=3" in repr(record)
    with pytest.raises(KeyError):
        record["nothing"]
    body = record.body
    data[88:92] = b"BODY"
    assert bytes(body) == b"BODY"           # a view, not a copy
    with pytest.raises(BufferError):
        data.append(0)


def test_bad_records_say_what_is_wrong():
    good = encode_record("topic", b"body", properties={"a": "b"})
    cases = {
        good[:7]: "7 bytes",
        good[:-1]: f"size {len(good)} with {len(good) - 1} bytes",
        good[:4] + b"\xda\xa3\x20\xa8" + good[8:]: "0xdaa320a8",
        (len(good) + 2).to_bytes(4, "big") + good[4:] + b"xx": "another sum",
        good[:84] + (10**6).to_bytes(4, "big") + good[88:]: "with",
        bytes(100): "0x00000000",
    }
    for data, words in cases.items():
        with pytest.raises(CorruptionError, match=words) as error:
            decode_record(data, path="log/0")
        assert error.value.path == "log/0" and error.value.offset == 0
    with pytest.raises(IndexError):
        decode_record(good, len(good) + 1)
    with pytest.raises(IndexError):
        decode_record(good, -1)


def test_negative_lengths_count_as_none_where_upstream_has_it_so():
    """calMsgLength takes a negative body or properties length for 0, so such a record is whole if the rest adds up."""
    plain = encode_record("topic", b"")
    for position, size in ((84, 4), (94, 2)):
        data = bytearray(plain)
        data[position:position + size] = (-5).to_bytes(size, "big", signed=True)
        record = decode_record(data)
        assert (record.topic, bytes(record.body), record.properties) == ("topic", b"", {})
    data = bytearray(plain)
    data[88] = 0xFF                         # a topic of -1 bytes never is
    with pytest.raises(CorruptionError):
        decode_record(data)
