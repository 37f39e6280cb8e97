"""Text columns over any bytes: what the kernel copies is what Java reads, character by character."""
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq_store.codec.properties import decode_properties, decode_text
from tests.bulk.conftest import rows_of

# Pieces that reach every branch: each length of a character, its bounds, and every way to break it.
PIECES = [b"a", b"\x7f", b"\x80", b"\xbf", b"\xc1\xbf", b"\xc2\x80", b"\xc2", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xe0\x9f\xbf", b"\xe0\xa0",
          b"\xe2\x82\xac", b"\xe2\x82", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0", b"\xef\xbf\xbd",
          b"\xf0\x90\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80", b"\xf0\x90", b"\xf0", b"\xf4\x8f\xbf\xbf",
          b"\xf4\x90\x80\x80", b"\xf5\x80", b"\xff", "schlüssel値😀".encode()]
TEXTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), max_size=8).map(b"".join)


def clean(data: bytes) -> bytes:
    return data.replace(b"\x01", b"").replace(b"\x02", b"")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts=st.lists(TEXTS.map(clean).filter(bool), min_size=1, max_size=9))
def test_a_text_column_is_java_text(log, texts):
    file = log(size=1 << 16)
    for text in [*PIECES, *texts]:
        file.add(properties=b"TAGS\x01" + text)
    file.end()
    file.write()
    rows, bad = rows_of(file.split(), ("tags", "properties"))
    assert not bad
    assert [row["tags"] for row in rows] == [decode_text(text) for text in [*PIECES, *texts]]
    assert [row["properties"] for row in rows] == [{"TAGS": decode_text(text)} for text in [*PIECES, *texts]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(raw=st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b"UNIQ_KEY", b" ", b"\xff"]) | st.binary(max_size=3),
                    max_size=20).map(b"".join))
def test_the_properties_of_any_bytes_are_those_of_the_parser(log, raw):
    """The same bytes through the map, the scan for the names that the store knows, and decode_properties."""
    file = log(size=1 << 12)
    file.add(properties=raw)
    file.end()
    file.write()
    (row,), _ = rows_of(file.split(), ("properties", "propertiesRaw", "tags", "keys", "msgId"))
    found = decode_properties(raw)
    assert row["propertiesRaw"] == raw and row["properties"] == found
    assert (row["tags"], row["keys"], row["msgId"]) == (found.get("TAGS"), found.get("KEYS"), found.get("UNIQ_KEY"))
