"""Properties that the put path itself looks at: WAIT, and a checksum that came along."""
import threading

import pytest

from rmq_store import MessageStore, verify
from rmq_store.base.io._io import ProbeIo
from rmq_store.codec.batch import encode_batch

SMALL = {"segment_size_bytes": 1 << 18, "index_slots": 100, "index_entries_max": 1000}
OLD = "__CRC32#"
RAW = b"a\x01b\x02__CRC32#\x010000000000\x02c\x01d"


def put_each_way(store, properties):
    yield store.put("T", b"x", properties=properties).offset
    yield store.put_many("T", [b"x"], properties=properties).offsets[0]
    yield store.put_many("T", [{"body": b"x", "properties": properties}]).offsets[0]
    yield store.put_async("T", b"x", properties=properties).result(30).offset
    yield store.put_batch("T", encode_batch([{"body": b"x", "properties": properties}])).offsets[0]
    yield store.put_batch("T", encode_batch([b"x"]), properties=properties).offsets[0]


@pytest.mark.parametrize("properties", [{"a": "b", OLD: "0000000000", "c": "d"}, RAW], ids=["mapping", "bytes"])
def test_a_checksum_that_came_along_is_replaced(tmp_path, properties):
    with MessageStore.open(tmp_path / "s", record_crc=True, **SMALL) as s:
        for at in put_each_way(s, properties):
            raw = s.message_at(at).properties_raw
            assert raw.count(OLD.encode()) == 1 and raw[-20:-11] == OLD.encode() + b"\x01" and raw[-1:] == b"\x02"
            assert raw[:-20] == b"a\x01b\x02c\x01d\x02"
        only = s.put("T", b"x", properties={OLD: "1"})
        assert len(s.message_at(only.offset).properties_raw) == 20
    (tmp_path / "s" / "abort").touch()
    with MessageStore.open(tmp_path / "s", record_crc_required=True, **SMALL) as s:     # each checksum is right
        assert len(list(s.scan())) == 7 and s.stats()["cut_bytes"] == 0


@pytest.mark.parametrize("end", [b"a\x01b\x02__CRC32#\x010123456789\x02", b"a\x01b\x02__CRC32#\x010123456789"])
def test_without_the_option_none_at_the_end_is_taken_for_the_record_s(tmp_path, end):
    """A client's property would let every reader call the record damaged: no backup, and a slave that stands still."""
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        for at in put_each_way(s, end):
            assert s.message_at(at).properties_raw.rstrip(b"\x02") == b"a\x01b"
        s.backup(tmp_path / "b")
    assert [f for f in verify(tmp_path / "s") if f.severity != "note"] == []


def test_without_the_option_it_stays_as_given_elsewhere(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        for at in put_each_way(s, RAW):
            assert s.message_at(at).properties_raw == RAW


@pytest.mark.parametrize(("properties", "waits"), [
    ({"WAIT": "false"}, False), ({"WAIT": "FALSE"}, False), ({"WAIT": "no"}, False), ({"WAIT": "true"}, True),
    ({"WAIT": "True"}, True), ({"AWAIT": "false"}, True), ({"x": "WAIT"}, True), ({"WAIT": "true ", "y": "z"}, False)])
@pytest.mark.parametrize("name", ["put", "put_many", "put_batch"])
def test_wait_is_read_as_java_reads_it(tmp_path, name, properties, waits):
    io = ProbeIo(keep_bytes=False)
    body = {"put": b"x", "put_many": [b"x"], "put_batch": encode_batch([b"x"])}[name]
    with MessageStore.open(tmp_path / "s", flush_mode="sync", _io=io, **SMALL) as s:
        io.hold("fdatasync", "/commitlog/" + "0" * 20)
        putter = threading.Thread(target=getattr(s, name), args=("T", body), kwargs={"properties": properties})
        putter.start()
        if waits:
            io.wait_held(1)
            assert putter.is_alive()        # inside the sync
        else:
            putter.join(30)
            assert not putter.is_alive()
        io.release()
        putter.join(30)
