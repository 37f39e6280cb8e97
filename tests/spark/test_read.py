"""spark.read.format("rocketmq_store") and scan() over stores of the real RocketMQ, against what it read from them itself."""
import json

import pytest

from rmq_store import MessageStore
from rmq_store.codec._java_hash import java_hash
from rmq_store.spark import read_store, scan
from tests import golden_store

pytestmark = pytest.mark.spark
GOOD = [c for c in golden_store.cases() if "crash" not in c]
NINE = ["topic", "queueId", "queueOffset", "brokerName", "flag", "body", "properties", "bornTimestamp", "storeTimestamp"]


def expected_messages(case, unqueued=False):
    return sorted((line for line in case.expected()
                   if line["t"] == "msg" or (unqueued and line["t"] == "log" and line["kind"] == "unqueued")),
                  key=lambda line: line["phyOffset"])


def as_read(row):
    return (row.topic, row.queueId, row.queueOffset, row.flag, bytes(row.body).hex(), row.properties,
            milliseconds(row.bornTimestamp), milliseconds(row.storeTimestamp), row.physicalOffset,
            row.storeSize, row.sysFlag, row.reconsumeTimes, row.preparedTransactionOffset, row.bodyCrc)


def milliseconds(moment):
    return round(moment.timestamp() * 1000)


def as_expected(line):
    return (line["topic"], line["queueId"], line["queueOffset"], line["flag"], line["body"], line["props"], line["bornTs"],
            line["storeTs"], line["phyOffset"], line["size"], line["sysFlag"], line["reconsume"], line["prepOffset"],
            line["bodyCrc"])


def test_golden_stores_equal_readback(spark, stores):
    paths = {name: str(stores(name).store) for name in GOOD}
    df = scan(spark, paths, include_transactional=True, verify="crc")
    assert df.columns[:9] == NINE
    found = {}
    for row in df.collect():
        found.setdefault(row.brokerName, []).append(as_read(row))
    for name in GOOD:
        assert sorted(found[name], key=lambda r: r[8]) == [as_expected(x) for x in expected_messages(stores(name), True)], name


def test_the_data_source_reads_the_same_rows(spark, stores):
    case = stores("v5-roll")
    rows = read_store(spark, case.store, split_size="100000").collect()
    assert sorted(map(as_read, rows), key=lambda r: r[8]) == [as_expected(x) for x in expected_messages(case)]
    assert {r.brokerName for r in rows} == {"store"}


def test_prepared_and_rollback_messages_only_when_asked(spark, stores):
    case = stores("v5-delaytx")
    assert scan(spark, case.store, ["topic"]).count() == len(expected_messages(case))
    assert (scan(spark, case.store, ["topic"], include_transactional=True).count() == len(expected_messages(case, True))
            > len(expected_messages(case)))


def test_every_split_size_gives_the_same_rows(spark, stores):
    case = stores("v5-batch")
    whole = sorted(r.physicalOffset for r in scan(spark, case.store, ["physicalOffset"]).collect())
    df = scan(spark, case.store, ["physicalOffset"], split_size=150_000)     # smaller ones: tests/bulk
    assert sorted(r.physicalOffset for r in df.collect()) == whole


def test_a_schema_by_the_user_prunes(spark, stores):
    rows = (spark.read.format("rocketmq_store").schema("storeSize INT, topic STRING")
            .load(str(stores("v5-plain").store)).collect())
    assert rows[0].asDict().keys() == {"storeSize", "topic"} and len(rows) == len(expected_messages(stores("v5-plain")))


def test_sql_view_and_filters(spark, stores):
    case = stores("v4-plain")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING rocketmq_store OPTIONS (path '{case.store}', tags 'TagA')")
    expected = [x for x in expected_messages(case) if x["props"].get("TAGS") == "TagA"]
    assert spark.sql("SELECT count(*) AS n FROM v").collect()[0].n == len(expected) > 0
    topic = expected[0]["topic"]
    got = spark.sql(f"SELECT physicalOffset FROM v WHERE topic = '{topic}' AND queueId >= 0 ORDER BY 1").collect()
    assert [r.physicalOffset for r in got] == [x["phyOffset"] for x in expected if x["topic"] == topic]


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_a_dataframe_used_twice_with_two_filters_is_right(spark, stores, pushdown):
    """The trap of pushed-down filters: Spark keeps one plan for all uses. Nothing is pushed, so the setting changes nothing."""
    case = stores("v5-plain")
    count = {}
    for line in expected_messages(case):
        count[line["queueId"]] = count.get(line["queueId"], 0) + 1
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        for df in (read_store(spark, case.store), scan(spark, case.store, ["queueId", "topic"])):
            assert df.filter("queueId = 0").count() == count[0]
            assert df.count() == sum(count.values())
            both = df.filter("queueId = 0").unionAll(df.filter("queueId = 1"))
            assert both.count() == count[0] + count[1]
            assert sorted({r.queueId for r in both.select("queueId").collect()}) == [0, 1]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_a_loaded_dataframe_is_a_snapshot(spark, tmp_path):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=8192) as store:
        store.put("T", b"x" * 3000)
        df, scanned = read_store(spark, tmp_path / "s"), scan(spark, tmp_path / "s", ["topic"])
        assert df.count() == scanned.count() == 1
        for _ in range(9):
            store.put("T", b"x" * 3000)
        assert scan(spark, tmp_path / "s", ["topic"]).count() == read_store(spark, tmp_path / "s").count() == 10
        # Files that came later are not in the plan; what the files of then hold now may be seen.
        assert df.count() == scanned.count() < 10


def test_choosing_by_queue_offset_time_and_place(spark, stores):
    case = stores("v4-roll")
    lines = expected_messages(case)
    topic = lines[0]["topic"]
    start = {topic: {"store": {"0": 3, "1": -2}}}
    df = scan(spark, case.store, ["topic", "queueId", "queueOffset"], subscribe=topic, starting_offsets=json.dumps(start),
              ending_offsets=json.dumps({topic: {"store": {"0": 7}}}))
    got = {(r.queueId, r.queueOffset) for r in df.collect()}
    assert got == {(x["queueId"], x["queueOffset"]) for x in lines if x["topic"] == topic
                   and (x["queueId"] != 0 or 3 <= x["queueOffset"] < 7)}
    times = sorted(x["storeTs"] for x in lines)
    low, high = times[len(times) // 3], times[2 * len(times) // 3]
    assert (scan(spark, case.store, ["topic"], starting_timestamp=low, ending_timestamp=high).count()
            == sum(low <= x["storeTs"] < high for x in lines))
    a, b = lines[10]["phyOffset"], lines[20]["phyOffset"]
    assert scan(spark, case.store, ["topic"], starting_physical_offset=a, ending_physical_offset=b).count() == 10
    assigned = scan(spark, case.store, ["queueId"], assign=json.dumps({topic: [1]})).collect()
    assert {r.queueId for r in assigned} == {1}
    patterned = scan(spark, case.store, ["queueId"], subscribe_pattern=topic[:3] + ".*")
    assert patterned.count() == sum(x["topic"].startswith(topic[:3]) for x in lines) and patterned.columns == ["queueId"]


def test_properties_as_json_and_raw_and_inflated_bodies(spark, stores):
    import zlib

    case = stores("v4-plain")
    lines = {x["phyOffset"]: x for x in expected_messages(case)}
    for row in scan(spark, case.store, ["physicalOffset", "properties", "body"], properties_format="json",
                    decompress=True).collect():
        line = lines[row.physicalOffset]
        body = bytes.fromhex(line["body"])
        assert json.loads(row.properties) == line["props"]
        assert bytes(row.body) == (zlib.decompress(body) if line["sysFlag"] & 1 else body)
    for row in scan(spark, case.store, ["physicalOffset", "properties"], properties_format="raw").collect():
        assert bytes(row.properties).hex() == lines[row.physicalOffset]["propsHex"]


def test_views_say_what_readback_says(spark, stores):
    case = stores("v5-roll")
    lines = expected_messages(case)
    entries = read_store(spark, case.store, view="consumequeue").collect()
    assert sorted((r.topic, r.queueId, r.queueOffset, r.physicalOffset, r.size, r.tagsCode) for r in entries) == sorted(
        (x["topic"], x["queueId"], x["cqOffset"], x["cqPhyOffset"], x["cqSize"], x["tagsCode"]) for x in lines)
    queues = read_store(spark, case.store, view="queues").collect()
    assert {(r.topic, r.queueId, r.minOffset, r.maxOffset, r["count"]) for r in queues} == {
        (x["topic"], x["queueId"], x["min"], x["max"], x["total"]) for x in case.expected() if x["t"] == "queue"}
    files = read_store(spark, case.store, view="files").collect()
    logs = sorted((r.base, r.size, r.wrotePosition) for r in files if r.kind == "commitlog")
    assert len(logs) > 3 and logs[-1][0] + logs[-1][2] == next(x["maxPhyOffset"] for x in case.expected() if x["t"] == "store")
    for kind in ("commitlog", "consumequeue", "index"):
        there = {str(p): p.stat().st_size for p in (case.store / kind).rglob("*") if p.is_file()}
        assert there and {r.path: r.size for r in files if r.kind == kind} == there
        newest = {max(p for p in there if p.startswith(d)) for d in {p.rpartition("/")[0] for p in there}}
        assert kind == "index" or {r.path for r in files if r.kind == kind and not r.sealed} == newest
    stored = {x["phyOffset"]: x["storeTs"] for x in lines}
    assert {stored[r.base] for r in files if r.kind == "commitlog"} == {
        milliseconds(r.firstStoreTime) for r in files if r.kind == "commitlog"}
    index = read_store(spark, case.store, view="index").collect()
    assert len(index) > 100 and sorted((r.keyHash, r.physicalOffset) for r in index) == sorted(
        (abs(java_hash(f"{x['topic']}#{key}")), x["phyOffset"]) for x in lines
        for key in [*x["props"].get("KEYS", "").split(), *filter(None, [x["props"].get("UNIQ_KEY")])])
    begun = {r.path: milliseconds(r.firstStoreTime) for r in files if r.kind == "index"}
    last = {}
    for r in sorted(index, key=lambda r: (r.file, r.entry)):
        assert r.prev == last.get((r.file, r.slot), 0) and r.timeDiff == (stored[r.physicalOffset] - begun[r.file]) // 1000
        last[r.file, r.slot] = r.entry
    assert len(last) < len(index)       # some keys share a slot: the chain was seen
    checkpoint = read_store(spark, case.store, view="checkpoint").collect()
    assert len(checkpoint) == 1 and checkpoint[0].physicMsgTimestamp.year > 2000
    assert read_store(spark, case.store, view="errors").count() == 0


def test_corrupt_records_fail_are_skipped_or_emitted(spark, tmp_path):
    case = golden_store.unpack("v5-crash-torncrc", tmp_path)
    (case.store / "abort").unlink()     # as if it had been closed: no recovery cuts the record
    whole = scan(spark, case.store, ["physicalOffset", "body"]).count()
    with pytest.raises(Exception, match=r"commitlog/\d{20} at offset \d+: expected a whole record, found wrong checksum"):
        scan(spark, case.store, ["physicalOffset"], verify="crc").collect()
    assert scan(spark, case.store, ["physicalOffset"], verify="crc", on_corrupt="skip").count() == whole - 1
    emitted = scan(spark, case.store, verify="crc", on_corrupt="emit").filter("error is not null").collect()
    assert len(emitted) == 1 and emitted[0].error == "wrong checksum" and emitted[0].topic is None
    errors = read_store(spark, case.store, view="errors").collect()
    assert [(r.offset, r.kind) for r in errors] == [(emitted[0].physicalOffset, "wrong checksum")]


def test_heads_are_verified_on_request(spark, tmp_path):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        for i in range(3):
            place = store.put("Orders", b"x", queue_id=i).offset
    log = tmp_path / "s" / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    at = data.index(b"Orders", place)
    data[at] = ord("!")                 # no topic has one; no checksum covers it
    log.write_bytes(data)
    assert [r.topic for r in scan(spark, tmp_path / "s", ["topic"]).collect()] == ["Orders", "Orders", "!rders"]
    with pytest.raises(Exception, match=rf"commitlog/\d{{20}} at offset {place}: expected a whole record"):
        scan(spark, tmp_path / "s", ["topic"], verify="header").collect()
    assert scan(spark, tmp_path / "s", ["topic"], verify="header", on_corrupt="skip").count() == 2


def test_an_empty_store_has_no_rows(spark, tmp_path):
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    for view in ("messages", "consumequeue", "index", "queues", "checkpoint", "errors"):
        assert read_store(spark, tmp_path / "s", view=view).collect() == [], view
