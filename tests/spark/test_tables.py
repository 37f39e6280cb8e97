"""Tables of a catalog: CREATE TABLE ... USING rocketmq_store, and what Spark gives a reader of them."""
import json

import pytest

from rmq_store.errors import ConfigError
from tests.spark.test_positions import fill

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql.types import StructField, StructType

from rmq_store.spark.datasource import RocketMQStoreDataSource


def created(**options):
    """The columns of a table, as the catalog keeps them."""
    schema = RocketMQStoreDataSource({"owner": "me", "provider": "rocketmq_store", **options}).schema()
    return StructType.fromJson(json.loads(schema.json()))


@pytest.mark.parametrize("place", ["path", "paths", "option.path", "location"])
def test_a_table_keeps_the_options_that_it_was_created_with(tmp_path, place):
    fill(tmp_path / "s p", 0, 3)
    path = {"path": str(tmp_path / "s p"), "paths": json.dumps({"s p": str(tmp_path / "s p")}),
            "option.path": str(tmp_path / "s p"), "location": f"file:{tmp_path}/s p"}[place]
    schema = created(**{place: path, "columns": "topic,body", "option.columns": "topic,body", "subscribe": "T"})
    assert schema.names == ["topic", "body"]
    reader = RocketMQStoreDataSource({}).reader(schema)
    assert [b.root for b in reader.options.brokers] == [str(tmp_path / "s p")] and reader.options.subscribe == ("T",)
    reader = RocketMQStoreDataSource({"Subscribe": "U"}).reader(schema)         # of this read, above those of the table
    assert reader.options.subscribe == ("U",) and reader.options.brokers[0].root == str(tmp_path / "s p")
    stream = RocketMQStoreDataSource({"startingoffsets": "earliest"}).streamReader(schema)
    assert stream.options.starting_offsets == "earliest" and stream.options.subscribe == ("T",)


def test_the_columns_of_a_table_decide_nothing_for_another_store(tmp_path):
    """DataFrames hand them on."""
    fill(tmp_path / "a", 0, 3)
    fill(tmp_path / "b", 0, 3)
    schema = created(path=str(tmp_path / "a"), columns="topic,body", subscribe="T")
    options = RocketMQStoreDataSource({"path": str(tmp_path / "b")}).reader(schema).options
    assert [b.root for b in options.brokers] == [str(tmp_path / "b")] and options.subscribe is None
    with pytest.raises(ConfigError, match=r"catalog table no options: write with df\.write"):
        RocketMQStoreDataSource({}).writer(schema, overwrite=False)


def test_forms_that_cannot_work_name_one_that_does(tmp_path, monkeypatch):
    fill(tmp_path / "s", 0, 3)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"path of a table is 's'.* a whole path"):
        created(path="s")
    listed = StructType([StructField("topic", created(path=str(tmp_path / "s")).fields[0].dataType)])
    for reader in (RocketMQStoreDataSource({}).reader, RocketMQStoreDataSource({}).streamReader):
        with pytest.raises(ConfigError, match=r"CREATE TABLE t USING .*, without a list of columns.* SELECT \* FROM t WITH"):
            reader(listed)


@pytest.mark.spark
def test_a_table_is_created_and_read(spark, tmp_path):
    root = tmp_path / "a b"
    fill(root, 0, 30)
    try:
        spark.sql(f"CREATE TABLE rmq_t USING rocketmq_store OPTIONS (path '{root}', columns 'queueOffset,body')")
        spark.sql(f"CREATE TABLE rmq_u (topic STRING) USING rocketmq_store LOCATION '{root}'")
        found = spark.sql("SELECT body FROM rmq_t WHERE queueOffset > 5").collect()
        assert {bytes(row.body) for row in found} <= {b"%06d" % i for i in range(30)} and found
        fill(root, 30, 34)              # a table is no snapshot: each query reads what is there
        assert spark.sql("SELECT count(*) FROM rmq_t").collect()[0][0] == 34
        with pytest.raises(Exception, match="without a list of columns"):
            spark.sql("SELECT count(*) FROM rmq_u").collect()
        assert spark.sql(f"SELECT count(*) FROM rmq_u WITH (path = '{root}')").collect()[0][0] == 34
    finally:
        for name in ("rmq_t", "rmq_u"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")
    assert (root / "commitlog").is_dir()
