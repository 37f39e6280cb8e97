"""The view `messages` of a store with batch queues: one row for each message, as a consumer gets it. Without Spark."""
import zlib

import pytest

pa = pytest.importorskip("pyarrow")

from rmq_store import MessageStore  # noqa: E402
from rmq_store.spark.arrow import read_pieces  # noqa: E402
from rmq_store.spark.options import ReadOptions  # noqa: E402
from rmq_store.spark.schema import columns_of  # noqa: E402
from rmq_store.spark.splits import plan  # noqa: E402
from tests.batchqueue.test_batch_queues import bodies, fill, make  # noqa: E402

pytestmark = pytest.mark.untraced


def rows(root, **more):
    options = ReadOptions.parse({"path": str(root), **more})
    found = [batch for part in plan(options) for batch in read_pieces(part, options, columns_of(options))]
    return pa.Table.from_batches(found).to_pylist()


@pytest.fixture
def root(tmp_path):
    with make(tmp_path / "s") as store:
        store.put("P", b"first", tags="x")
        fill(store, 30)
        store.put_inner_batch("B", [{"body": b"a", "flag": 7, "properties": {"TAGS": "red", "n": "1"}},
                                    {"body": b"b", "properties": {"TAGS": "red"}}])
    return tmp_path / "s"


def test_every_message_is_a_row(root):
    with MessageStore.open(root, readonly=True) as store:
        expected = [(m.queue_offset, bytes(m.body), dict(m.properties), m.flag, m.offset) for m in store.scan("B")]
    found = [row for row in rows(root) if row["topic"] == "B"]
    assert [(r["queueOffset"], r["body"], dict(r["properties"]), r["flag"], r["physicalOffset"]) for r in found] == expected
    assert [r["body"] for r in found] == [*bodies(30), b"a", b"b"]
    assert all(r["sysFlag"] & 0xC0 == 0 and r["bodyCrc"] == zlib.crc32(r["body"]) & 0x7FFFFFFF for r in found)
    assert (found[-2]["tags"], found[-2]["keys"], found[0]["keys"], found[-1]["flag"]) == ("red", None, "k0", 0)
    assert [r["body"] for r in rows(root) if r["topic"] == "P"] == [b"first", *[b"plain"] * 30]


@pytest.mark.parametrize("form", ["map", "json", "raw"])
def test_columns_alone_and_every_form_of_properties(root, form):
    found = rows(root, columns="queueOffset,properties", subscribe="B", propertiesFormat=form)
    assert [r["queueOffset"] for r in found] == list(range(len(bodies(30)) + 2))
    expected = {"map": [("TAGS", "red"), ("n", "1")], "json": '{"TAGS":"red","n":"1"}',
                "raw": b"TAGS\x01red\x02n\x011\x02"}[form]
    assert found[-2]["properties"] == expected
    assert {tuple(row) for row in rows(root, columns="topic", subscribePattern="B|Q")} == {("topic",)}
    assert len(rows(root, columns="topic", subscribePattern="B|Q")) == len(bodies(30)) + 2
    assert len(rows(root, columns="body", subscribePattern="P")) == 31


def test_a_batch_that_cannot_be_decoded_is_one_row(root):
    with MessageStore.open(root, readonly=True) as store:
        first = store.get("B", 0, 0)[0]
        log, at = min((root / "commitlog").iterdir()), first.offset
        raw = store.message_at(at).raw
        del first
    data = bytearray(log.read_bytes())
    body = data.index(b"0-0", at) - 20          # its head: sizes that no message has
    data[body:body + 4] = b"\x7f\xff\xff\xff"
    log.write_bytes(data)
    assert bytes(raw) != bytes(data[at:at + len(raw)])
    found = [row for row in rows(root, verify="header") if row["topic"] == "B"]
    assert found[0]["sysFlag"] & 0x80 and len(found) == len(bodies(30)) + 2
