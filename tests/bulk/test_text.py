"""Text columns, properties and keys over any bytes: what the kernels read in them is what Java does."""
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq_store import MessageStore
from rmq_store.access.bulk._rebuild import count_keys, index_part
from rmq_store.codec._codec import index_key_hash
from rmq_store.codec.properties import decode_properties, decode_text
from rmq_store.services.integrity.verification import verify
from tests.bulk.conftest import rows_of

# Pieces that reach every branch: each length of a character, its bounds, and every way to break it.
PIECES = [b"a", b"\x7f", b"\x80", b"\xbf", b"\xc1\xbf", b"\xc2\x80", b"\xc2", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xe0\x9f\xbf",
          b"\xe0\xa0", b"\xe2\x82\xac", b"\xe2\x82", b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0",
          b"\xef\xbf\xbd", b"\xf0\x90\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80", b"\xf0\x90", b"\xf0", b"\xf4\x8f\xbf\xbf",
          b"\xf4\x90\x80\x80", b"\xf5\x80", b"\xff", "schlüssel値😀".encode()]
TEXTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), max_size=8).map(b"".join)

FILES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)


def clean(data: bytes) -> bytes:
    return data.replace(b"\x01", b"").replace(b"\x02", b"")


@FILES
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


@FILES
@given(raw=st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b"UNIQ_KEY", b" ", b"\xff"])
                    | st.binary(max_size=3), max_size=20).map(b"".join))
def test_the_properties_of_any_bytes_are_those_of_the_parser(log, raw):
    """The same bytes through the map, the scan for the names that the store knows, decode_properties, and a parser here."""
    file = log(size=1 << 12)
    file.add(properties=raw)
    file.end()
    file.write()
    (row,), _ = rows_of(file.split(), ("properties", "propertiesRaw", "tags", "keys", "msgId"))
    parts = [part.partition(b"\x01") for part in raw.split(b"\x02")]
    found = {decode_text(name): decode_text(value) for name, _, value in parts if name and value}
    assert decode_properties(raw) == found
    assert row["propertiesRaw"] == raw and row["properties"] == found
    assert (row["tags"], row["keys"], row["msgId"]) == (found.get("TAGS"), found.get("KEYS"), found.get("UNIQ_KEY"))


@FILES
@given(keys=st.text(" ab", max_size=12), unique=st.sampled_from([None, "u", "u v"]))
def test_keys_are_the_unique_key_and_the_words(log, keys, unique):
    file = log(size=1 << 12)
    given_properties = {name: value for name, value in (("UNIQ_KEY", unique), ("KEYS", keys)) if value}
    file.add(properties=given_properties)
    file.end()
    path = file.write()
    wanted = [unique] * (unique is not None) + keys.split()
    count, _, _ = count_keys(("", str(path), 0, 0, file.size, False, True))
    assert count == len(wanted)
    place = path.parent / "index"
    place.mkdir(exist_ok=True)
    for skip, take in ((0, 9), (1, 9), (1, 1)):
        made = index_part([("", str(path), 0, 0, file.size, False, True)], str(place), str(place), 1, 7, 20, skip, take)
        assert made == len(wanted[skip:skip + take])
        data = (place / f"{1:017d}").read_bytes()
        entries = [int.from_bytes(data[40 + 4 * 7 + 20 * (i + 1):][:4], "big") for i in range(made)]
        assert entries == [index_key_hash("T", key) for key in wanted[skip:skip + take]]


def test_a_key_is_found_whatever_blanks_stand_around_it(tmp_path):
    """What dispatch puts into the index, a query and verify find again; no message carries an empty key."""
    with MessageStore.open(tmp_path, segment_size_bytes=1 << 16, index_slots=100, index_entries_max=200) as store:
        store.put("T", b"body", properties={"KEYS": "  first  second ", "UNIQ_KEY": "unique"})
        store.put("T", b"none")
        assert store.wait_dispatched(10)
        for key in ("first", "second", "unique"):
            assert [m.body for m in store.query_key("T", key).messages] == [b"body"]
        for key in ("", " ", "firs", "first  second"):  # codespell:ignore firs
            assert not store.query_key("T", key).messages
    assert not list(verify(tmp_path))


def test_a_host_is_its_rows_own_whatever_its_neighbours_have(log):
    """A text is kept from row to row: it may serve only where address, port and kind are the same."""
    hosts = ["1.2.3.4:5", "1.2.3.4:5", "1.2.3.4:6", "1.2.3.5:6", "[102:304:0:5::]:7", "1.2.3.4:5", "[102:304:0:5::]:7",
             "[102:304:0:5::]:8", "[102:304:0:5::1]:8", "255.255.255.255:65535", "0.0.0.0:0"]
    file = log()
    for born in hosts:
        for stored in ("10.0.0.1:10911", "[::1]:10911"):
            file.add(born_host=born, store_host=stored)
    file.end()
    file.write()
    rows, _ = rows_of(file.split(), ("bornHost", "storeHost"))
    assert [(row["bornHost"], row["storeHost"]) for row in rows] == [
        (born, stored) for born in hosts for stored in ("10.0.0.1:10911", "[::1]:10911")]
