"""Writing: staging files, the commit and its crashes without a session; DataFrames and streams with one."""
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from rmq_store import MessageStore
from rmq_store.access.bulk._staged import COLUMN_ORDER, append_staged, encode_rows, staged_count
from rmq_store.codec._codec import decode_record
from rmq_store.errors import ConfigError, CorruptionError, MessageIllegal, StoreLocked
from rmq_store.spark import staging
from tests.spark.staging_of import SMALL, batch, expected, numbers, staged, text


def bodies(root):
    with MessageStore.open(root, readonly=True) as store:
        return [bytes(m.body) for m in store.scan()]


def test_rows_become_records():
    assert COLUMN_ORDER[:2] == ("topic", "body")
    columns = {"topic": text(b"Orders", b"Other"), "body": text(b"one", b""), "tags": text(b"TagA", None),
               "keys": text(None, b"k1 k2"), "queueId": numbers(3, 0), "flag": numbers(-7, 0),
               "bornTimestamp": numbers(99, 98, code="q"), "sysFlag": numbers(0x3FF, 0),
               "properties": (None, struct.pack("3i", 0, 2, 3), None), "names": text(b"TAGS", b"user", b"n"),
               "values": text(b"old", b"v", b"")}
    data = encode_rows(columns, 2)
    assert staged_count(data) == 2 and staged_count(data[:-1]) == -1
    one = decode_record(data)
    two = decode_record(data, one.size)
    assert (one.topic, bytes(one.body), one.queue_id, one.flag, one.born_timestamp) == ("Orders", b"one", 3, -7, 99)
    assert one.properties == {"user": "v", "TAGS": "TagA"} and two.properties == {"KEYS": "k1 k2"}
    assert one.sys_flag == 0x303 and one.body_crc_ok and one.physical_offset == one.queue_offset == 0


@pytest.mark.parametrize(("columns", "words"), [
    ({"body": text(b"x", b"y")}, "row 0: topic is null"),
    ({"topic": text(b"T", b"a/b"), "body": text(b"x", b"y")}, "row 1: topic is longer .* or has other characters"),
    ({"topic": text(b"T", b"T"), "body": text(b"x", None)}, "row 1: body is null"),
    ({"topic": text(b"T", b"T"), "body": text(b"x", b"y"), "tags": text(b"A", b"\x02")}, "row 1: tags"),
    ({"topic": text(b"T", b"T"), "body": text(b"x", b"y"), "queueId": numbers(0, -1)}, "row 1: queueId is negative"),
])
def test_rows_that_no_record_can_hold_are_named(columns, words):
    with pytest.raises(MessageIllegal, match=words):
        encode_rows(columns, 2)


def test_appended_records_are_those_of_puts(tmp_path):
    with MessageStore.open(tmp_path / "a", **SMALL) as a, MessageStore.open(tmp_path / "b", **SMALL) as b:
        assert append_staged(a, batch(500)) == (500, 0, a.max_log_offset)
        for i in range(500):
            b.put("T", b"body %d" % i, queue_id=i % 2, tags="A", born_timestamp=1234)
        assert a.wait_dispatched(10) and b.wait_dispatched(10)
        for m, n in zip(a.scan("T", 1), b.scan("T", 1), strict=True):
            one, two = bytearray(m.raw), bytearray(n.raw)
            one[56:64] = two[56:64] = bytes(8)          # the store time
            assert one == two
        with pytest.raises(CorruptionError, match="expected a staged record"):
            append_staged(a, b"nonsense" * 20)
        assert a.max_log_offset == b.max_log_offset


def test_a_commit_is_done_once(tmp_path):
    parts = staged(tmp_path / "s", 10, 0, 5)
    done = staging.commit_staged(str(tmp_path / "s"), "app", 3, parts, SMALL, "job")
    assert (done.records, done.begin, done.repeated) == (15, 0, False) and bodies(tmp_path / "s") == expected(15)
    again = staging.commit_staged(str(tmp_path / "s"), "app", 3, staged(tmp_path / "s", 15), SMALL, "job")
    assert again.repeated and again.records == 0 and bodies(tmp_path / "s") == expected(15)
    assert not os.path.exists(tmp_path / "s" / ".spark" / "job")
    assert staging.commit_staged(str(tmp_path / "s"), "other", 0, staged(tmp_path / "s", 1), SMALL, "job").records == 1


def test_a_damaged_staging_file_stops_the_commit_before_the_store_is_touched(tmp_path):
    parts = staged(tmp_path / "s", 10, 5)
    with open(parts[1].path, "r+b") as f:
        f.seek(40)
        f.write(b"!")
    with pytest.raises(CorruptionError, match="crc32c"):
        staging.commit_staged(str(tmp_path / "s"), "app", 0, parts, SMALL)
    assert not os.path.exists(tmp_path / "s" / "commitlog")


def test_a_store_that_somebody_has_open_is_refused(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL), pytest.raises(StoreLocked):
        staging.commit_staged(str(tmp_path / "s"), "app", 0, staged(tmp_path / "s", 1), SMALL)


class Crash(BaseException):
    pass


@pytest.mark.parametrize("step", staging._STEPS)
def test_a_crash_behind_any_step_is_made_good_by_the_next_commit(tmp_path, monkeypatch, step):
    root = tmp_path / "s"

    def die(name):
        if name == step:
            raise Crash(name)

    monkeypatch.setattr(staging, "_step", die)
    with pytest.raises(Crash):
        staging.commit_staged(str(root), "app", 0, staged(root, 8, 7), SMALL, "job")
    monkeypatch.undo()
    if step not in ("verified", "opened", "recovered"):
        # Decided: another application's commit finishes it first, or finds it done.
        staging.commit_staged(str(root), "other", 0, [], SMALL)
        assert bodies(root) == expected(15)
    result = staging.commit_staged(str(root), "app", 0, staged(root, 8, 7), SMALL, "job")
    assert bodies(root) == expected(15) and result.repeated == (step not in ("verified", "opened", "recovered"))


@pytest.mark.parametrize("kept", [0, 1, 8, 11, 15])
def test_a_crash_in_the_middle_of_the_append_leaves_no_gap_and_no_double(tmp_path, monkeypatch, kept):
    root = tmp_path / "s"

    def some(store, data, path):
        for i in range(kept):
            store.put("T", b"body %d" % i, queue_id=(i if i < 8 else i - 8) % 2, tags="A", born_timestamp=1234)
        raise Crash

    staging.commit_staged(str(root), "before", 0, staged(root, 3), SMALL, "job")
    monkeypatch.setattr(staging, "append_staged", some)
    with pytest.raises(Crash):
        staging.commit_staged(str(root), "app", 0, staged(root, 8, 7), SMALL, "job")
    monkeypatch.undo()
    assert staging.commit_staged(str(root), "app", 0, staged(root, 8, 7), SMALL, "job").repeated
    assert bodies(root) == expected(3) + expected(15)


def test_options_of_a_write_are_checked():
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rmq_store.spark.writer import WriteOptions, check_columns

    for given, words in (({"path": "x", "txnAppId": "a"}, "go together"), ({"path": ""}, "path"),
                         ({"path": "x", "queueSelector": "any"}, "queueSelector"), ({"path": "x", "topics": "a"}, "mean topic"),
                         ({"path": "x", "queues": "0"}, "queues")):
        with pytest.raises(ConfigError, match=words):
            WriteOptions.parse(given)
    with pytest.raises(ConfigError, match="txnAppId is missing"):
        WriteOptions.parse({"path": "x"}, stream=True)
    options = WriteOptions.parse({"path": "x"})
    for columns, words in (({"topic": "STRING"}, "body is missing"), ({"body": "BINARY"}, "topic is missing"),
                           ({"body": "INT", "topic": "STRING"}, "must be BINARY or STRING"),
                           ({"bodi": "INT"}, "has no column")):
        with pytest.raises(ConfigError, match=words):
            check_columns(columns, options)


@pytest.mark.spark
def test_a_store_copied_through_spark_is_the_same_messages(spark, stores, tmp_path):
    from rmq_store.spark import register, scan

    register(spark)
    case = stores("v5-plain")
    once = {"txnAppId": "copy", "txnVersion": "0", "store.segment_size_bytes": "1048576",
            "store.index_slots": "100", "store.index_entries_max": "1000"}
    (scan(spark, case.store, split_size=100_000).write.format("rocketmq_store").mode("append").options(**once)
     .save(str(tmp_path / "c")))

    def content(root):
        return sorted((r.topic, r.queueId, bytes(r.body), sorted(r.properties.items()), r.flag, r.sysFlag, r.reconsumeTimes,
                       r.bornTimestamp) for r in scan(spark, root).collect())

    assert content(tmp_path / "c") == content(case.store)
    df = spark.createDataFrame([("T", b"x")], "topic STRING, body BINARY")
    df.write.format("rocketmq_store").mode("append").options(**once).save(str(tmp_path / "c"))
    assert len(content(tmp_path / "c")) == len(content(case.store))
    df.write.format("rocketmq_store").mode("append").save(str(tmp_path / "c"))
    assert len(content(tmp_path / "c")) == len(content(case.store)) + 1
    with pytest.raises(Exception, match="never overwritten"):
        df.write.format("rocketmq_store").mode("overwrite").save(str(tmp_path / "c"))
    assert not [n for n in os.listdir(tmp_path / "c" / ".spark") if n != "journal"]


@pytest.mark.spark
def test_a_thread_that_made_no_session_writes(spark, tmp_path):
    """Spark asks the session that is active in a thread for the source of a write."""
    import rmq_store.spark as rs

    df = spark.range(3).selectExpr("'T' AS topic", "string(id) AS body")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(rs.write_store, df, str(tmp_path / "to"), store=SMALL).result()
    assert sorted(bodies(tmp_path / "to")) == [b"0", b"1", b"2"]


@pytest.mark.spark
@pytest.mark.parametrize("shards", [None, 2])
def test_a_task_that_fails_at_first_stores_its_rows_once(spark, tmp_path, shards):
    """The first attempt dies with part of its rows staged; the session allows three."""
    import rmq_store.spark as rs

    flag = str(tmp_path / "failed")

    def once(i):
        if i == 150:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return b"body %d" % i
            raise RuntimeError("the first attempt")
        return b"body %d" % i

    from pyspark.sql import functions as f

    df = spark.range(0, 200, 1, 2).select(f.lit("T").alias("topic"), f.udf(once, "binary", useArrow=False)("id").alias("body"))
    rows = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        rs.write_store(df, str(tmp_path / "to"), shards=shards, store=SMALL)
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", rows)
    assert os.path.exists(flag)
    path = str(tmp_path / "to") + ("" if shards is None else "/shard-*")
    assert sorted(bytes(r.body) for r in rs.scan(spark, path, ["body"]).collect()) == sorted(expected(200))
    assert os.listdir(tmp_path / "to" / ".spark" / "journal")
    assert not [name for name in os.listdir(tmp_path / "to" / ".spark") if name not in ("journal", "lock")]


@pytest.mark.spark
def test_a_stream_into_a_store_is_idempotent_by_batch(spark, tmp_path):
    from rmq_store.spark import register

    register(spark)
    with MessageStore.open(tmp_path / "from", **SMALL) as source:
        for i in range(60):
            source.put("T", b"body %d" % i, queue_id=0)

    def run(checkpoint):
        stream = (spark.readStream.format("rocketmq_store").option("path", str(tmp_path / "from"))
                  .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "35").load())
        query = (stream.writeStream.format("rocketmq_store").option("path", str(tmp_path / "to")).option("txnAppId", "s")
                 .option("store.segment_size_bytes", "65536").option("checkpointLocation", str(tmp_path / checkpoint))
                 .trigger(availableNow=True).start())
        query.awaitTermination()

    run("one")
    assert bodies(tmp_path / "to") == expected(60)
    for name in ("1", ".1.crc"):        # as if killed behind the commit into the store: the last batch comes again
        (tmp_path / "one" / "commits" / name).unlink()
    run("one")
    assert bodies(tmp_path / "to") == expected(60)
    with pytest.raises(Exception, match=r"has versions of query .* under this name.* this write a txnAppId of its own"):
        run("two")      # another checkpoint: batches of the same numbers, and nobody knows with which rows
    assert bodies(tmp_path / "to") == expected(60)
    assert os.listdir(tmp_path / "to" / ".spark") == ["journal"]
