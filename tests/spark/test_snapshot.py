"""A DataFrame is one snapshot; topics that nobody has are told; errors come out of Spark as they were raised."""
import warnings

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, CorruptionError, StoreLocked
from rmq_store.spark.asked import unknown_topics
from rmq_store.spark.options import ReadOptions

SMALL = {"segment_size_bytes": 16384, "index_slots": 100, "index_entries_max": 1000}


def fill(store, count, topic="T"):
    return [store.put(topic, b"x" * 300, queue_id=0) for _ in range(count)]


def read(options, parts):
    from rmq_store.spark.reader import rows_of
    from rmq_store.spark.schema import columns_of

    return sum(batch.num_rows for part in parts for batch in rows_of(part, options, columns_of(options)))


@pytest.mark.parametrize("given", [{}, {"minPartitions": 5}, {"splitSize": 3000}, {"io": "pread"}])
@pytest.mark.parametrize("first", [0, 1, 20, 200])
def test_what_is_put_after_the_plan_is_not_read(tmp_path, first, given):
    """Whether it comes into the newest file, or into later ones, some of them made ahead when the read was planned."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rmq_store.spark.reader import partitions_of

    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, first)
        options = ReadOptions.parse({"path": store.path, "columns": "physicalOffset", **given})
        parts = partitions_of(options)
        for more in (1, 30, 200):
            assert read(options, parts) == first
            fill(store, more)
        assert read(options, parts) == first and read(options, partitions_of(options)) == first + 231


@pytest.mark.spark
def test_a_data_frame_counts_the_same_on_a_growing_store(spark, tmp_path):
    from rmq_store.spark import scan

    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 100)
        df = scan(spark, store.path, ["topic"])
        counts = []
        for _ in range(3):
            counts.append(df.count())
            fill(store, 60)
        assert counts == [100] * 3
        assert scan(spark, store.path, ["topic"]).count() == 280


# ---- topics

@pytest.fixture
def root(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        fill(store, 1, "Orders")
        fill(store, 1, "Bills")
    return tmp_path / "s"


@pytest.mark.parametrize(("given", "words"), [
    ({"subscribe": "Orders,Order"}, ["topic 'Order' has no queue in .*: did you mean Orders"]),
    ({"subscribe": "x"}, ["topic 'x' has no queue in .*`rmqstore stat` lists the 2 there are"]),
    ({"assign": '{"Orders": [0], "order": [0]}'}, ["'order'"]), ({"subscribePattern": "Order"}, ["fits subscribePattern"]),
    ({"startingOffsets": '{"bills": {"s": {"0": 1}}}'}, ["'bills'"]), ({"subscribePattern": "Order.*"}, []),
    ({"subscribe": "Orders,Bills"}, []), ({}, []), ({"startingOffsets": "earliest"}, [])])
def test_a_topic_that_no_store_has_is_told(root, given, words):
    import re

    found = unknown_topics(ReadOptions.parse({"path": str(root), **given}))
    assert len(found) == len(words) and all(re.search(w, f) for w, f in zip(words, found, strict=True)), found
    assert unknown_topics(ReadOptions.parse({"path": str(root / "commitlog"), "subscribe": "x"})) == []


@pytest.mark.spark
def test_scan_and_planner_warn(spark, root):
    from rmq_store.spark import scan
    from rmq_store.spark.reader import partitions_of

    with pytest.warns(UserWarning, match="did you mean Orders"):
        assert scan(spark, root, ["topic"], subscribe="Order").count() == 0
    with pytest.warns(UserWarning, match="did you mean Orders"):
        partitions_of(ReadOptions.parse({"path": str(root), "subscribe": "Order"}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scan(spark, root, ["topic"], subscribe="Orders").count() == 1


# ---- errors

def test_errors_are_found_in_sparks_words():
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rmq_store.spark.told import told

    real = CorruptionError("/s/commitlog/0", 7, "a whole record", "none before 9: audit it")
    words = f"Job aborted:\nTraceback (most recent call last):\n  File \"x\"\nrmq_store.errors.CorruptionError: {real}\n\tat x"
    found = told(RuntimeError(words))
    assert type(found) is CorruptionError and str(found) == str(real) and (found.path, found.offset) == ("/s/commitlog/0", 7)
    found = told(RuntimeError("x\nrmq_store.errors.ConfigError: option 'a' is unknown\n SQLSTATE: 38000"))
    assert isinstance(found, ConfigError) and str(found) == "option 'a' is unknown"
    found = told(RuntimeError(f"rmq_store.errors.StoreLocked: {StoreLocked('/s', 5)}"))
    assert isinstance(found, StoreLocked) and str(found) == str(StoreLocked("/s", 5))
    found = told(RuntimeError("FileNotFoundError: [Errno 2] option path: no such directory: '/nowhere'\n SQLSTATE: 38000"))
    assert isinstance(found, FileNotFoundError) and found.filename == "/nowhere"
    assert told(RuntimeError("java.lang.OutOfMemoryError")) is None


@pytest.fixture
def damaged(tmp_path):
    with MessageStore.open(tmp_path / "d", **SMALL) as store:
        place = fill(store, 100)[3].offset
    with open(tmp_path / "d" / "commitlog" / ("0" * 20), "r+b") as file:
        file.seek(place)
        file.write(b"\1" * 20)
    return tmp_path / "d"


@pytest.mark.spark
@pytest.mark.parametrize("job", ["export", "rebuild-queues", "rebuild-index", "statistics", "replay"])
def test_a_job_on_a_damaged_store_exits_with_a_sentence(shell, damaged, tmp_path, job):
    more = {"export": [tmp_path / "out"], "replay": [tmp_path / "to", "--txn", "a"]}.get(job, [])
    code, out, err = shell("spark", job, damaged, *more)
    lines = [line for line in err.splitlines() if line.startswith("rmqstore spark:")]
    assert code == 4 and out == "" and len(lines) == 1, err
    assert f"{damaged}/commitlog/" in lines[0] and "expected a whole record, found" in lines[0] and "Traceback" not in err


@pytest.mark.spark
def test_wrong_sql_and_topics_are_told_in_a_line(shell, root):
    code, _, err = shell("spark", "query", root, "SELEC 1")
    assert code == 64 and "rmqstore spark: Spark: [PARSE_SYNTAX_ERROR]" in err and "Traceback" not in err
    code, _, err = shell("spark", "statistics", root, "-o", "subscribe=Order")
    assert code == 0 and "rmqstore spark: topic 'Order' has no queue in" in err
