"""Messages that are read and stored again, without a session: what a copy must change, and what a put would have taken."""
import pytest

from rmq_store import MessageStore
from rmq_store.access.bulk._staged import append_staged, check_staged, encode_rows
from rmq_store.codec import compression
from rmq_store.codec._layout import FLAG_COMPRESSED, FLAG_COMPRESSION_TYPE
from rmq_store.errors import MessageIllegal
from tests.spark.staging_of import SMALL, numbers, text


@pytest.fixture
def copied(tmp_path):
    """copied(source, **options of a read) -> the messages of another store that was written from what a read gives."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from rmq_store.spark.arrow import read_pieces
    from rmq_store.spark.options import ReadOptions
    from rmq_store.spark.schema import columns_of
    from rmq_store.spark.splits import plan
    from rmq_store.spark.writer import WriteOptions, encoded

    def copy(source, **given):
        options = ReadOptions.parse({"path": str(source), **given})
        batches = [batch for part in plan(options) for batch in read_pieces(part, options, columns_of(options))]
        with MessageStore.open(tmp_path / "copy", **SMALL) as target:
            for data, _ in encoded(batches, WriteOptions("unused"), 0):
                append_staged(target, data)
            assert target.wait_dispatched(10)
            return [(m.topic, bytes(m.body), m.sys_flag, m.properties) for m in target.scan()]

    return copy


def put(root, *messages):
    with MessageStore.open(root, **SMALL) as store:
        for body, more in messages:
            store.put("T", body, queue_id=0, **more)
    return root


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "ZSTD"])
def test_bodies_that_were_inflated_are_stored_as_not_compressed(tmp_path, copied, kind):
    if kind != "ZLIB":
        pytest.importorskip(*{"LZ4": ("lz4",), "ZSTD": ("zstandard",)}[kind], reason="the library is not installed")
    body, flags = compression.deflate(b"hello " * 500, kind)
    source = put(tmp_path / "s", (body, {"sys_flag": flags}), (b"plain", {}),
                 (b"old client", {"sys_flag": FLAG_COMPRESSION_TYPE}))
    found = copied(source, decompress="true")
    assert [(b, f & FLAG_COMPRESSED) for _, b, f, _ in found] == [(b"hello " * 500, 0), (b"plain", 0), (b"old client", 0)]
    assert [f for _, _, f, _ in found] == [0, 0, FLAG_COMPRESSION_TYPE]
    assert [compression.inflate(b, f) for _, b, f, _ in found] == [b"hello " * 500, b"plain", b"old client"]


def test_bodies_that_were_not_inflated_stay_compressed(tmp_path, copied):
    body, flags = compression.deflate(b"hello " * 500, "ZLIB")
    ((_, stored, stored_flags, _),) = copied(put(tmp_path / "s", (body, {"sys_flag": flags})))
    assert (stored, stored_flags) == (body, flags)


def test_the_flag_goes_also_where_a_read_has_no_bodies(tmp_path):
    """It may be joined to the bodies of another read."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from rmq_store.spark.arrow import read_pieces
    from rmq_store.spark.options import ReadOptions
    from rmq_store.spark.schema import columns_of
    from rmq_store.spark.splits import plan

    body, flags = compression.deflate(b"hello " * 500, "ZLIB")
    options = ReadOptions.parse({"path": str(put(tmp_path / "s", (body, {"sys_flag": flags}))), "columns": "sysFlag",
                                 "decompress": "true"})
    (batch,) = [batch for part in plan(options) for batch in read_pieces(part, options, columns_of(options))]
    assert batch.column("sysFlag").to_pylist() == [0]


@pytest.mark.parametrize("level", ["0", "-1", "-0", "+0", "-2147483648"])
def test_a_message_whose_delay_is_none_is_copied_as_a_put_stores_it(tmp_path, copied, level):
    source = put(tmp_path / "s", (b"a", {"properties": {"DELAY": level, "k": "v"}}), (b"b", {}))
    assert copied(source) == [("T", b"a", 0, {"DELAY": level, "k": "v"}), ("T", b"b", 0, {})]


@pytest.mark.parametrize("level", ["1", "+3", "x", "", " 1", "2147483648", "1.0"])
def test_a_delay_that_a_copy_cannot_arrange_is_named(level):
    """So is what is no number, which a put refuses. An empty value is no property."""
    columns = {"topic": text(b"T"), "body": text(b"x"), "properties": (None, numbers(0, 1)[2], None), "names": text(b"DELAY"),
               "values": text(level.encode())}
    if not level:
        assert encode_rows(columns, 1)
        return
    with pytest.raises(MessageIllegal, match="row 0: the property DELAY asks for a delay"):
        encode_rows(columns, 1)


def test_a_staged_record_that_asks_for_a_delay_stops_the_commit(tmp_path):
    columns = {"topic": text(b"T"), "body": text(b"x"), "properties": (None, numbers(0, 1)[2], None), "names": text(b"DELAY"),
               "values": text(b"0")}
    data = encode_rows(columns, 1)
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert check_staged(store, data) == 1
        with pytest.raises(MessageIllegal, match="record 0: the property DELAY"):
            check_staged(store, data.replace(b"DELAY\x010", b"DELAY\x013"))
