"""Options, paths and repeats of a pipeline, each by direct calls: what has no effect is refused by name, and what would lose
rows is an error with the place."""
import json
import zlib

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, CorruptionError, MessageIllegal, StoreStateError
from rmq_store.spark import shards, staging
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.schema import columns_of
from rmq_store.spark.stores import brokers_of
from tests.spark.staging_of import SMALL, bodies, staged
from tests.spark.test_positions import fill

pytest.importorskip("pyspark", reason="pyspark is not installed")

from rmq_store.spark.datasource import RocketMQStoreDataSource
from rmq_store.spark.jobs.export import export
from rmq_store.spark.jobs.exported import verify_export
from rmq_store.spark.jobs.index import rebuild_index
from rmq_store.spark.jobs.tables import compact, replay, retention
from rmq_store.spark.reader import partitions_of, rows_of
from rmq_store.spark.writer import WriteOptions, encoded


def batches(path, **given):
    options = ReadOptions.parse({"path": str(path), "decompress": "true", **given})
    return [b for part in partitions_of(options) for b in rows_of(part, options, columns_of(options))]


# ---- versions

def test_a_lower_version_that_was_never_stored_is_refused(tmp_path):
    root = tmp_path / "s"
    for version in (3, 7):
        staging.commit_staged(str(root), "app", version, staged(root, 5), SMALL, "job", rows=5)
    for version in (3, 7):          # these come again
        assert staging.commit_staged(str(root), "app", version, [], SMALL, "job", rows=5).repeated
    with pytest.raises(StoreStateError, match=r"version 7 of txnAppId 'app'.* version 5, .*its 4 rows would be lost.*higher"):
        staging.commit_staged(str(root), "app", 5, [], SMALL, "job", rows=4)
    assert staging.commit_staged(str(root), "app", 5, [], SMALL, "job", rows=0).repeated
    assert len(bodies(root)) == 10


def test_a_lower_version_of_a_bulk_load_is_refused(tmp_path):
    from tests.spark.test_shards import built

    for version in (3, 7):
        shards.commit_shards(str(tmp_path), "app", version, built(tmp_path, 3), "job")
    assert shards.commit_shards(str(tmp_path), "app", 3, [], "job").repeated
    with pytest.raises(StoreStateError, match="version 5, which is lower"):
        shards.commit_shards(str(tmp_path), "app", 5, [], "job")


def test_a_journal_of_an_earlier_release_knows_its_last_version(tmp_path):
    root = tmp_path / "s"
    staging.commit_staged(str(root), "app", 7, staged(root, 5), SMALL, "job", rows=5)
    path = next((root / ".spark" / "journal").glob("*.json"))
    entry = json.loads(path.read_text())
    del entry["stored"]
    path.write_text(json.dumps(entry))
    assert staging.commit_staged(str(root), "app", 7, [], SMALL, "job", rows=5).repeated
    with pytest.raises(StoreStateError, match="version 6"):
        staging.commit_staged(str(root), "app", 6, [], SMALL, "job", rows=5)


# ---- decompress

def test_batches_are_bounded_by_what_their_bodies_become(tmp_path):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20) as store:
        for _ in range(200):
            store.put("T", zlib.compress(b"a" * 100_000, 9), sys_flag=0x301)
    made = batches(tmp_path / "s", batchBytes="1m")
    assert sum(b.num_rows for b in made) == 200 and max(b.column("body").nbytes for b in made) < 2 << 20
    assert {body for b in made for body in b.column("body").to_pylist()} == {b"a" * 100_000}
    assert {flag & 1 for b in made for flag in b.column("sysFlag").to_pylist()} == {0}
    assert sum(b.num_rows for b in batches(tmp_path / "s", columns="sysFlag")) == 200


@pytest.mark.parametrize("flag", [1, 0x101, 0x201, 0x301, 0x701])
def test_a_body_that_does_not_inflate_follows_on_corrupt(tmp_path, flag):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", zlib.compress(b"one"), sys_flag=1)
        bad = store.put("T", b"not compressed", sys_flag=flag)
        store.put("T", b"two")
    if flag in (0x101, 0x201):
        pytest.importorskip("lz4" if flag == 0x101 else "zstandard")
    with pytest.raises(CorruptionError, match=rf"0{{20}} at offset {bad.offset}: .*sysFlag 0x{flag:x}.*onCorrupt=skip"):
        batches(tmp_path / "s")
    rows = [row for b in batches(tmp_path / "s", onCorrupt="skip") for row in b.to_pylist()]
    assert [row["body"] for row in rows] == [b"one", b"two"]
    rows = [row for b in batches(tmp_path / "s", onCorrupt="emit") for row in b.to_pylist()]
    assert sorted(row["body"] or b"" for row in rows) == [b"", b"one", b"two"]
    assert [row["physicalOffset"] for row in rows if row["error"]] == [bad.offset]


# ---- options

@pytest.mark.parametrize(("view", "name", "value"), [
    ("messages", "endingOffsets", "earliest"), ("consumequeue", "startingOffsets", '{"T":{"s":{"0":90}}}'),
    ("consumequeue", "tags", "A"), ("queues", "startingTimestamp", "2035-01-01"), ("queues", "sql", "a = 1"),
    ("files", "subscribe", "T"), ("index", "endingPhysicalOffset", "5"), ("checkpoint", "tags", "A"), ("errors", "tags", "A"),
    ("compaction", "endingTimestamp", "5"), ("queues", "endingOffsets", "earliest")])
def test_an_option_without_effect_is_refused_by_name(tmp_path, view, name, value):
    fill(tmp_path / "s", 0, 3)
    with pytest.raises(ConfigError, match=f"option {name} "):
        ReadOptions.parse({"path": str(tmp_path / "s"), "view": view, name: value})
    ReadOptions.parse({"path": str(tmp_path / "s"), "view": view, "startingOffsets": "earliest", "endingOffsets": "latest"})


def test_lists_of_paths(tmp_path):
    roots = [str(tmp_path / name) for name in ("a", "b")]
    for root in roots:
        fill(tmp_path / root, 0, 2)
    for given in ({"path": roots}, {"path": tuple(roots)}, {"paths": json.dumps(roots)}, {"Paths": roots}):
        assert [b.root for b in ReadOptions.parse(given).brokers] == roots
    with pytest.raises(ConfigError, match="comma"):
        ReadOptions.parse({"path": ["/a,b"]})
    with pytest.raises(ConfigError, match="both given"):
        ReadOptions.parse({"path": roots[0], "paths": json.dumps(roots)})


def test_stores_of_one_name_are_called_after_what_differs(tmp_path):
    for name in ("x/a/store", "x/b/store"):
        (tmp_path / name).mkdir(parents=True)
        fill(tmp_path / name, 0, 1)
    assert [b.name for b in brokers_of(f"{tmp_path}/x/*/store")] == ["a", "b"]
    assert [b.name for b in brokers_of(f"{tmp_path}/x/a/store")] == ["store"]
    with pytest.raises(ConfigError, match="both called"):
        brokers_of(f"{tmp_path}/x/a/store,{tmp_path}/x/a/store")


def test_what_a_catalog_adds_is_no_option_of_a_read(tmp_path):
    fill(tmp_path / "s", 0, 1)
    own = {"owner": "me", "provider": "rocketmq_store", "location": "/x", "option.path": "y", "path": str(tmp_path / "s")}
    assert "queueOffset" in RocketMQStoreDataSource(own).schema().names
    for place in ({"location": f"file:{tmp_path}/s"}, {"option.path": str(tmp_path / "s"), "location": "/x"}):
        assert "queueOffset" in RocketMQStoreDataSource({"owner": "me", **place}).schema()
    with pytest.raises(ConfigError, match="unknown"):
        RocketMQStoreDataSource({**own, "ownr": "x"}).schema()


# ---- jobs

def test_a_store_is_no_target_of_its_own_copy(tmp_path):
    fill(tmp_path / "s", 0, 3)
    (tmp_path / "link").symlink_to(tmp_path / "s")
    for target in ("s", "link", "s/more"):
        for job in (replay, compact):
            with pytest.raises(ConfigError, match="would be there twice"):
                job(None, str(tmp_path / "s"), str(tmp_path / target), "app")
        with pytest.raises(ConfigError, match="the store that is exported"):
            export(None, str(tmp_path / "s"), str(tmp_path / target))
    assert not any("manifest" in path.name for path in (tmp_path / "s").iterdir())


def test_wrong_arguments_of_jobs(tmp_path):
    fill(tmp_path / "s", 0, 3)
    with pytest.raises(ConfigError, match="compression is 'zsdt'"):
        export(None, str(tmp_path / "s"), str(tmp_path / "x"), compression="zsdt")
    for hours in ("x", [], None):
        with pytest.raises(ConfigError, match="whole numbers of hours"):
            retention(None, str(tmp_path / "s"), hours=hours)


@pytest.mark.usefixtures("tasks")
def test_a_damaged_export_is_not_the_stores_fault(tmp_path):
    fill(tmp_path / "s", 0, 3)
    export(None, str(tmp_path / "s"), str(tmp_path / "x"))
    path = next((tmp_path / "x").glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="says nothing of the store") as wrong:
        verify_export(str(tmp_path / "x"))
    assert "repair" not in str(wrong.value)


@pytest.mark.usefixtures("tasks")
def test_a_rebuilt_index_tells_its_sizes(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x", keys="k")
    made = rebuild_index(None, str(tmp_path / "s"), slots=10, entries=100)
    assert (made.slots, made.entries) == (10, 100)


def test_a_refused_row_is_numbered_in_its_partition():
    pa = pytest.importorskip("pyarrow")
    good = pa.RecordBatch.from_pydict({"topic": ["T"] * 4, "body": [b"x"] * 4})
    bad = pa.RecordBatch.from_pydict({"topic": ["T"] * 2, "body": [b"x", None]})
    with pytest.raises(MessageIllegal, match=r"row 9 of partition 3: body is null .*give an empty one"):
        list(encoded([good, good, bad], WriteOptions.parse({"path": "/tmp/x"}), 3))


def test_a_task_without_the_drivers_directory_names_the_cure(tmp_path):
    from rmq_store.spark.writer import stage

    with pytest.raises(FileNotFoundError, match="every node"):
        stage(str(tmp_path / "none"), "job", 0, [], WriteOptions.parse({"path": str(tmp_path / "none")}))
