"""Properties both ways, upstream's tolerant parser, Java's order, removal of one, and what is refused."""
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_store.codec.properties import decode_properties, decode_text, delete_property, encode_properties, java_hashmap_order
from rmq_store.errors import MessageIllegal, PropertiesSizeExceeded

NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(st.dictionaries(NAMES, NAMES, max_size=20))
def test_round_trip(mapping):
    for compat in ("4.9", "5.x"):
        data = encode_properties(mapping, compat)
        assert decode_properties(data) == mapping
        assert list(decode_properties(data)) == list(mapping)
        assert data.endswith(b"\x02") == (compat == "5.x" and bool(mapping))
    assert encode_properties(mapping, "4.9") + b"\x02" * bool(mapping) == encode_properties(mapping, "5.x")


def text(shorthand):
    return shorthand.replace("<1>", "\x01").replace("<2>", "\x02").encode()


@pytest.mark.parametrize(("shorthand", "found"), [
    # COD-05
    ("", {}), (" ", {}), ("aaa", {}), ("k1<1>", {}), ("<1>v1", {}),
    # COD-06
    ("k1<1>v1", {"k1": "v1"}), ("k1<1>v1<2>", {"k1": "v1"}), ("k1<1>v1<2>k2<1>v2", {"k1": "v1", "k2": "v2"}),
    # COD-07, COD-08
    ("k1<1>v1<2><1>v2", {"k1": "v1"}), ("k1<1>v1<2>k2<1>", {"k1": "v1"}),
    ("<1>v1<2>k2<1>v2", {"k2": "v2"}), ("k1<1><2>k2<1>v2", {"k2": "v2"}),
    # COD-09
    ("1<1>1<2>2<1>2", {"1": "1", "2": "2"}), ("1<1>1<2><1>2", {"1": "1"}), ("1<1>1<2>2<1>", {"1": "1"}),
    ("<1>1<2>2<1>2", {"2": "2"}), ("1<1><2>2<1>2", {"2": "2"}),
    # the first 0x01 splits, the last of a name wins
    ("a<1>b<1>c", {"a": "b\x01c"}), ("a<1>1<2>b<1>2<2>a<1>3", {"a": "3", "b": "2"}), ("<2><2>a<1>b<2><2>", {"a": "b"}),
])
def test_upstreams_tolerant_parser(shorthand, found):
    assert decode_properties(text(shorthand)) == found
    assert decode_properties(bytearray(text(shorthand))) == found
    assert decode_properties(memoryview(text(shorthand))) == found


@given(st.binary(max_size=60))
def test_the_parser_never_fails(data):
    for name, value in decode_properties(data).items():
        assert name and value and "\x02" not in name + value and "\x01" not in name


@pytest.mark.parametrize(("data", "utf16"), [       # what the JDK makes of it
    ("8f415affff", "fffd0041005afffdfffd"), ("edbfbf", "fffd"), ("eda0", "fffd"), ("eda041", "fffd0041"),
    ("ed8041", "fffd0041"), ("e0a0", "fffd"), ("e09f41", "fffdfffd0041"), ("f0908041", "fffd0041"),
    ("f09080bf", "d800dc3f"), ("f48fbfbf", "dbffdfff"),
    ("f4908080", "fffdfffdfffdfffd"), ("c1bf", "fffdfffd"), ("c2", "fffd"), ("efbfbf", "ffff"),
    ("f5808080", "fffdfffdfffdfffd"), ("eda080edb080", "fffdfffd"), ("e6b6", "fffd"),
])
def test_malformed_text_reads_as_in_java(data, utf16):
    assert decode_text(bytes.fromhex(data)).encode("utf-16-be").hex() == utf16


def test_what_a_mapping_may_be():
    assert encode_properties(None) == encode_properties({}) == b""
    assert encode_properties({"a": None, "b": "c", "d": None}) == b"b\x01c\x02"
    assert encode_properties({"a": None}, "4.9") == b""
    assert encode_properties(types.MappingProxyType({"b": "c"}), "4.9") == b"b\x01c"
    assert encode_properties(b"anything \x02\x02") == b"anything \x02\x02"
    assert encode_properties(bytearray(b"a\x01b")) == encode_properties(memoryview(b"a\x01b")) == b"a\x01b"
    assert encode_properties({"Größe": "値😀"}) == "Größe\x01値😀\x02".encode()


@pytest.mark.parametrize(("mapping", "words"), [
    ({"": "v"}, "the property name '' is empty"), ({"n": ""}, "the value of property 'n' is empty"),
    ({"a\x01": "v"}, "0x01 or 0x02"), ({"a\x02": "v"}, "0x01 or 0x02"), ({"n": "\x01"}, "0x01 or 0x02"),
    ({"n": "v\x02"}, "0x01 or 0x02"),
    ({"n": "\udc80"}, "lone surrogate at position 0"), ({"n\ud800": "v"}, "lone surrogate at position 1"),
    ({"n": 5}, "the value of property 'n' is int, not text"), ({5: "v"}, "the property name 5 is int"),
    ({"n": b"v"}, "bytes, not text"), (7, "mapping of str to str, or bytes"), ("a\x01b", "mapping"), ([("a", "b")], "mapping"),
    (memoryview(bytes(4))[::2], "mapping"),
])
def test_what_is_refused(mapping, words):
    with pytest.raises(MessageIllegal, match=words):
        encode_properties(mapping)


def test_limits():
    assert len(encode_properties({"n": "v" * 32765}, "4.9")) == 32767
    assert len(encode_properties(bytes(32767))) == 32767
    for mapping, compat in (({"n": "v" * 32765}, "5.x"), ({"n": "é" * 16384}, "4.9"), (bytes(32768), "5.x")):
        with pytest.raises(PropertiesSizeExceeded, match="32767"):
            encode_properties(mapping, compat)
    with pytest.raises(ValueError, match="compat"):
        encode_properties({}, "5")


@pytest.mark.parametrize(("before", "after"), [     # COD-18
    ("", ""), ("KeyA<1>ValueA", ""), ("KeyA<1>ValueA<2>", ""), ("KeyA<1>ValueA<2>KeyA<1>ValueA", ""),
    ("KeyA<1>ValueA<2>KeyA<1>ValueA<2>", ""), ("KeyB<1>ValueB<2>KeyA<1>ValueA", "KeyB<1>ValueB<2>"),
    ("KeyB<1>ValueB<2>KeyA<1>ValueA<2>", "KeyB<1>ValueB<2>"),
    ("KeyB<1>ValueB<2>KeyA<1>ValueA<2>KeyB<1>ValueB<2>", "KeyB<1>ValueB<2>KeyB<1>ValueB<2>"),
    ("KeyA<1>ValueA<2>KeyB<1>ValueB", "KeyB<1>ValueB"), ("KeyA<1>ValueA<2>KeyB<1>ValueB<2>", "KeyB<1>ValueB<2>"),
    ("KeyA<1>ValueA<2>KeyB<1>ValueBKeyA<1>ValueA<2>", "KeyB<1>ValueBKeyA<1>ValueA<2>"),
    ("KeyA<1>ValueA<2>KeyB<1>ValueBKeyA<1>", "KeyB<1>ValueBKeyA<1>"),
    ("KeyA<1>ValueA<2>KeyB<1>ValueBKeyA", "KeyB<1>ValueBKeyA"), ("KeyB<1>ValueB", "KeyB<1>ValueB"),
])
def test_delete_property(before, after):
    assert delete_property(text(before), b"KeyA") == text(after)
    assert delete_property(text(before).decode(), "KeyA") == text(after).decode()


def test_delete_the_crc_property():
    """COD-19."""
    assert delete_property("__CRC32#\x01", "__CRC32#") == ""
    assert delete_property("__CRC32#", "__CRC32#") == "__CRC32#"


def test_java_order_of_the_common_names():
    """Store format 4.1: bucket by bucket, and in one bucket in the order of insertion."""
    names = ["TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "WAIT"]
    assert java_hashmap_order(names) == ["KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", "TAGS"]
    assert java_hashmap_order(names, 128) == ["UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT"]
    assert java_hashmap_order(["CLUSTER", "UNIQ_KEY", "CLUSTER"]) == ["CLUSTER", "UNIQ_KEY"]
    buckets = {"UNIQ_KEY": (12, 28), "WAIT": (13, 93), "DELAY": (13, 61), "REAL_TOPIC": (1, 113), "REAL_QID": (15, 127),
               "TRAN_MSG": (9, 73), "PGROUP": (13, 29), "MSG_REGION": (7, 23), "TRACE_ON": (4, 100), "INSTANCE_ID": (15, 15)}
    for column, table in ((0, 16), (1, 128)):
        assert java_hashmap_order(buckets, table) == sorted(buckets, key=lambda name: buckets[name][column])


def test_java_order_of_a_map_that_grows():
    """More than 12 names double a table of 16, and so does a ninth name in one bucket. Orders from the JDK."""
    names = [f"k{i * 7919 % 1000}" for i in range(15)]
    assert java_hashmap_order(names) == ["k947", "k838", "k0", "k919", "k190", "k271", "k28", "k352", "k595", "k433", "k676",
                                         "k514", "k866", "k109", "k757"]
    same = ["p127", "p116", "p105", "p59", "p48", "p37", "p26", "p15", "p5"]  # one bucket of 16; of 32 two
    assert java_hashmap_order([*same[:8], "x", "q"]) == ["q", "p127", "p116", "p105", "p59", "p48", "p37", "p26", "p15", "x"]
    assert java_hashmap_order([*same, "x", "q"]) == ["p5", "q", "p127", "p116", "p105", "p59", "p48", "p37", "p26", "p15", "x"]
    with pytest.raises(ValueError, match="power of two"):
        java_hashmap_order([], 24)
