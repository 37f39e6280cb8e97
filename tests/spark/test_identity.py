"""Which log was read: a store that was replaced under the same path, and a worker that sees another store, or an older copy.
Planner and reader are called as Spark does, without a session."""
import json
import os
import shutil

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, CorruptionError, RmqStoreError, StoreStateError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.schema import columns_of
from tests.spark.test_positions import Query, expected, fill

pytest.importorskip("pyspark", reason="pyspark is not installed")

from rmq_store.spark.jobs.export import export
from rmq_store.spark.jobs.exported import MANIFEST, verify_export
from rmq_store.spark.offsets import places
from rmq_store.spark.reader import partitions_of, rows_of


def replaced(root, begin, end, size=0):
    shutil.rmtree(root)
    return fill(root, begin, end, **({"properties": {"more": "x" * size}} if size else {}))


def read(parts, options):
    return [body.as_py() for part in parts for batch in rows_of(part, options, columns_of(options))
            for body in batch.column("body")]


def options_of(path, **given):
    return ReadOptions.parse({"path": str(path), "columns": "brokerName,body", **given})


# ---- the next run

@pytest.mark.parametrize(("begin", "end", "size"), [(0, 100, 0), (50, 150, 0), (5000, 5400, 0), (0, 100, 7), (0, 20, 0)],
                         ids=["same-bodies", "overlap", "longer", "other-sizes", "shorter"])
@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_replaced_store_is_refused_by_a_stream(tmp_path, begin, end, size, lossy):
    root = tmp_path / "s"
    fill(root, 0, 100)
    query = Query(root, failOnDataLoss=lossy)
    query.to_end()
    query.at = json.loads(json.dumps(query.at))
    replaced(root, begin, end, size)
    query.restart(root)
    with pytest.raises(StoreStateError, match=r"broker s.* another store is at this path now.*new checkpoint") as refused:
        query.plan()
    assert str(root) in str(refused.value)


def test_a_batch_that_was_planned_in_another_store_is_not_run(tmp_path):
    root = tmp_path / "s"
    fill(root, 0, 100)
    query = Query(root)
    end = json.loads(json.dumps(query.plan()))
    replaced(root, 0, 300)
    query.restart(root)
    with pytest.raises(StoreStateError, match="another store is at this path now"):
        query.run(end)


@pytest.mark.untraced("the test puts an older image in place of the store")
def test_a_log_that_lost_its_end_and_wrote_on_is_refused(tmp_path):
    """Its beginning is the same: the last record that was read is not."""
    root = tmp_path / "s"
    fill(root, 0, 50)
    shutil.copytree(root, tmp_path / "early")
    fill(root, 50, 60)
    query = Query(root)
    query.to_end()
    shutil.rmtree(root)
    (tmp_path / "early").rename(root)
    fill(root, 50, 80)
    query.restart(root)
    with pytest.raises(StoreStateError, match=r"log offset \d+ .*wrote on"):
        query.plan()


def test_a_checkpoint_without_identity_continues_and_adopts(tmp_path, caplog):
    """One of an earlier release."""
    root = tmp_path / "s"
    fill(root, 0, 10)
    query = Query(root)
    query.to_end()
    query.at = places(query.at)
    query.restart(root)
    assert query.to_end() == expected(("s", 0, 10)) and "taken for it" in caplog.text
    fill(root, 10, 12)
    assert query.to_end() == expected(("s", 0, 12))
    replaced(root, 0, 50)
    query.restart(root)
    with pytest.raises(StoreStateError, match="another store"):
        query.plan()


def test_what_was_cleaned_since_is_not_missed(tmp_path):
    root = tmp_path / "s"
    fill(root, 0, 400)
    query = Query(root)
    query.to_end()
    with MessageStore.open(root) as store:
        assert store.clean(0, pace_ms=0).log_files > 1
    fill(root, 400, 410)
    query.restart(root)
    assert query.to_end() == expected(("s", 0, 410))


@pytest.mark.usefixtures("tasks")
def test_a_replaced_store_is_refused_by_an_export(tmp_path):
    root, out = tmp_path / "s", tmp_path / "x"
    fill(root, 0, 100)
    export(None, str(root), str(out))
    replaced(root, 0, 300)
    with pytest.raises(StoreStateError, match=r"another store is at this path now.*export into a new directory"):
        export(None, str(root), str(out))


@pytest.mark.usefixtures("tasks")
def test_an_export_without_identity_continues_and_adopts(tmp_path, caplog):
    root, out = tmp_path / "s", tmp_path / "x"
    fill(root, 0, 100)
    export(None, str(root), str(out))
    manifest = json.loads((out / MANIFEST).read_text())
    del manifest["logs"]
    (out / MANIFEST).write_text(json.dumps(manifest))
    fill(root, 100, 110)
    assert export(None, str(root), str(out)).rows == 10 and "taken for it" in caplog.text
    assert verify_export(str(out), str(root)) == 2
    replaced(root, 0, 300)
    with pytest.raises(StoreStateError, match="another store"):
        export(None, str(root), str(out))


@pytest.mark.parametrize("identity", [{"brokers": 1}, {"brokers": {"s": 1}}, {"brokers": {"s": {"head": [1]}}}, 7])
def test_an_offset_that_no_stream_wrote(tmp_path, identity):
    fill(tmp_path / "s", 0, 1)
    query = Query(tmp_path / "s")
    query.at[""] = identity
    with pytest.raises(CorruptionError, match="records that tell which logs"):
        query.plan()


# ---- the worker

@pytest.mark.parametrize("size", [0, 7])
def test_a_worker_that_sees_another_store(tmp_path, size):
    root = tmp_path / "s"
    fill(root, 0, 400)
    options = options_of(root)
    parts = partitions_of(options)
    replaced(root, 0, 400, size)
    with pytest.raises(StoreStateError, match=r"another store is at this path on this machine.*every node"):
        read(parts, options)
    query = Query(tmp_path / "s", splitSize="1k")
    end = query.plan()
    parts = query.reader.partitions(query.at, end)
    replaced(root, 0, 400, size)
    for part in parts:              # each of them, in whatever file
        with pytest.raises(RmqStoreError, match="another store is at this path on this machine"):
            list(query.reader.read(part))


@pytest.mark.parametrize("view", ["queues", "consumequeue", "files"])
def test_a_worker_that_sees_another_store_for_a_view(tmp_path, view):
    root = tmp_path / "s"
    fill(root, 0, 100)
    options = ReadOptions.parse({"path": str(root), "view": view})
    parts = partitions_of(options)
    replaced(root, 0, 90)
    with pytest.raises(StoreStateError, match="another store is at this path on this machine"):
        [list(rows_of(part, options, columns_of(options))) for part in parts]


@pytest.mark.parametrize("how", ["newest-missing", "newest-behind", "newest-short", "all-missing", "nothing"])
@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_worker_whose_copy_is_behind(tmp_path, how, lossy):
    """As a directory cache of NFS, or an rsync that runs."""
    root = tmp_path / "s"
    fill(root, 0, 400)
    options = options_of(root, failOnDataLoss=lossy)
    parts = partitions_of(options)
    newest = max(path for path in (root / "commitlog").iterdir() if path.read_bytes()[:8].strip(b"\0"))
    if how == "newest-missing":
        for path in (root / "commitlog").iterdir():
            if path.name >= newest.name:
                path.unlink()
    elif how == "newest-behind":
        data = newest.read_bytes()
        with newest.open("r+b") as file:
            file.seek(int.from_bytes(data[:4], "big") * 2)
            file.write(bytes(len(data) - file.tell()))
    elif how == "newest-short":
        os.truncate(newest, int.from_bytes(newest.read_bytes()[:4], "big") * 2)
    elif how == "all-missing":
        shutil.rmtree(root / "commitlog")
        (root / "commitlog").mkdir()
    else:
        shutil.rmtree(root)
        root.mkdir()
    if lossy == "false" and how in ("newest-behind", "newest-short"):
        there = read(parts, options)
        assert 0 < len(there) < 400 and there == [b"%06d" % i for i in range(len(there))]
        return
    with pytest.raises((CorruptionError, FileNotFoundError), match=r"every node|copy that is behind"):
        read(parts, options)


def test_a_file_that_was_cleaned_after_the_plan(tmp_path, caplog):
    root = tmp_path / "s"
    puts = fill(root, 0, 400)
    options, lossy = options_of(root), options_of(root, failOnDataLoss="false")
    parts = partitions_of(options)
    with MessageStore.open(root) as store:
        store.clean(0, pace_ms=0)
        first = store.min_log_offset
    with pytest.raises(CorruptionError, match=r"deleted by cleaning since.*failOnDataLoss=false"):
        read(parts, options)
    left = [b"%06d" % i for i, put in enumerate(puts) if put.offset >= first]
    assert 0 < len(left) < 400 and read(parts, lossy) == left
    assert "bytes of the log, from offset 0 on, are left out" in caplog.text


# ---- topics

@pytest.mark.parametrize(("before", "now", "wider"), [
    ({"subscribe": "A"}, {"subscribe": "A,B"}, True), ({"subscribe": "A,B"}, {"subscribe": "B"}, False),
    ({"subscribe": "A"}, {}, True), ({}, {"subscribe": "A"}, False), ({"subscribe": "A"}, {"subscribe": "B"}, True),
    ({"subscribePattern": "A.*"}, {"subscribePattern": ".*"}, True),
    ({"subscribePattern": "A"}, {"subscribePattern": "A"}, False),
    ({"assign": '{"A":[0]}'}, {"assign": '{"A":[0,1]}'}, True), ({"assign": '{"A":[0,1]}'}, {"assign": '{"A":[1]}'}, False),
    ({"subscribe": "A"}, {"assign": '{"A":[0]}'}, True)])
def test_topics_that_are_added_to_a_checkpoint(tmp_path, before, now, wider):
    root = tmp_path / "s"
    with MessageStore.open(root) as store:
        for topic in ("A", "B"):
            store.put(topic, b"000001", queue_id=0)
    query = Query(root, **before)
    query.to_end()
    query.at = json.loads(json.dumps(query.at))
    for name in before:
        del query.given[name]
    query.given.update(now)
    query.restart(root)
    if not wider:
        query.to_end()
        return
    with pytest.raises(ConfigError, match=r"the checkpoint was written with .*A.*second stream"):
        query.plan()
    with pytest.raises(ConfigError, match="second stream"):
        query.run(query.at)
