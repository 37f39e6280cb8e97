"""String.hashCode over str and over UTF-8 bytes, and what the store makes of it."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_store.codec._codec import index_key_hash, java_hash, tags_code
from rmq_store.codec.properties import decode_text

KNOWN = {"TagA": 2598919, "TAG1": 2567159, "abc": 96354, "hello": 99162322, "polygenelubricants": -2147483648, "": 0,
         "Aa": 2112, "BB": 2112}


def reference(units):
    h = 0
    for unit in units:
        h = (31 * h + unit) & 0xFFFFFFFF
    return h - (h >> 31 << 32)


@pytest.mark.parametrize("text", KNOWN)
def test_known_values(text):
    assert java_hash(text) == java_hash(text.encode()) == tags_code(text) == KNOWN[text]


@given(st.text())
def test_over_utf16_units(text):
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[i:i + 2], "big") for i in range(0, len(data), 2)]
    assert java_hash(text) == reference(units)
    if not any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        assert java_hash(text.encode()) == reference(units)


@pytest.mark.parametrize(("data", "code"), [        # hashCode of what the JDK decodes
    ("8f415affff", 395679510), ("edbfbf", 65533), ("eda041", 2031588), ("e09f41", 65008801), ("f09080bf", 1770559),
    ("f4908080", 2017367872), ("eda080edb080", 2097056),
])
def test_malformed_bytes_hash_as_java_decodes_them(data, code):
    assert java_hash(bytes.fromhex(data)) == code


@given(st.binary(max_size=40))
def test_any_bytes_hash_as_their_java_text(data):
    assert java_hash(data) == java_hash(decode_text(data))


def test_tags_code_of_nothing():
    assert tags_code() == tags_code(None) == tags_code("") == 0


def test_index_key_hash():
    assert index_key_hash("topic", "Aa") == index_key_hash("topic", "BB") == abs(java_hash("topic#Aa"))
    assert index_key_hash("", "") == ord("#")
    assert java_hash("topic#cna1czf") == -2147483648        # whose absolute value is no int
    assert index_key_hash("topic", "cna1czf") == 0
