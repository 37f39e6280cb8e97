"""Rows of queues that were removed, and of those that began anew: told apart by a column, and by a comparison of stores."""
import shutil

import pytest

from rmq_store import MessageStore
from rmq_store.errors import CorruptionError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.schema import columns_of
from tests.spark.test_positions import Query

pytest.importorskip("pyspark", reason="pyspark is not installed")

from rmq_store.spark.jobs.export import export
from rmq_store.spark.jobs.exported import verify_export
from rmq_store.spark.reader import partitions_of, rows_of
from rmq_store.spark.writer import WriteOptions, check_columns


def rows(root, columns, **given):
    options = ReadOptions.parse({"path": str(root), "columns": columns, "splitSize": "20000", **given})
    return [row for part in partitions_of(options) for batch in rows_of(part, options, columns_of(options))
            for row in batch.to_pylist()]


@pytest.mark.parametrize("columns", ["removed", "body,removed", "removed,queueId,topic,body"])
def test_a_column_tells_the_lives_of_a_queue_apart(store_with_removed_queues, columns):
    root = store_with_removed_queues
    told = [row["removed"] for row in rows(root, columns)]
    want = [row["topic"] == "Gone" and row["body"][:3] == b"old" for row in rows(root, "topic,body")]
    assert told == want and 0 < sum(want) < len(want)
    assert [row[0] for row in Query(root, columns="removed").to_end()] == want
    live = [(row["topic"], row["queueId"], row["queueOffset"]) for row in rows(root, "topic,queueId,queueOffset,removed")
            if not row["removed"]]
    assert len(live) == len(set(live))
    assert "removed" not in rows(root, None)[0]       # nobody gets it unasked
    assert not any(row["removed"] for row in rows(root / "commitlog", "removed", subscribe="Kept"))
    assert [row["removed"] for row in rows(root / "commitlog", "removed")] == want


def test_it_is_what_the_file_says(store_with_removed_queues, tmp_path):
    root = store_with_removed_queues
    shutil.copytree(root, tmp_path / "java")
    (tmp_path / "java" / "config" / "removedQueues.json").unlink()
    assert {row["removed"] for row in rows(tmp_path / "java", "removed")} == {False}
    (root / "config" / "removedQueues.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"removedQueues\.json"):
        rows(root, "removed")
    assert rows(root, "topic")                  # of no other read


@pytest.mark.usefixtures("tasks")
def test_an_export_with_the_column_is_verified_after_more_was_removed(store_with_removed_queues, tmp_path):
    root = store_with_removed_queues
    assert export(None, str(root), str(tmp_path / "x"), columns="topic,body,removed").rows == 700
    with MessageStore.open(root) as store:
        store.delete_topics("Kept")
    assert verify_export(str(tmp_path / "x"), str(root)) > 0


def test_a_dataframe_with_the_column_is_written(tmp_path):
    check_columns({"topic": "STRING", "body": "BINARY", "removed": "BOOLEAN"}, WriteOptions(str(tmp_path / "s")))


@pytest.mark.spark
def test_an_exact_copy_does_not_differ(spark, store_with_removed_queues, tmp_path):
    from rmq_store.spark.jobs import diff

    root = store_with_removed_queues
    shutil.copytree(root, tmp_path / "copy")
    assert diff(spark, str(root), str(tmp_path / "copy")).collect() == []
    with MessageStore.open(tmp_path / "copy") as store:
        store.put("Gone", b"more", queue_id=0)
    assert [(row.queueOffset, row.what) for row in diff(spark, str(root), str(tmp_path / "copy")).collect()] == [(150, "right")]
