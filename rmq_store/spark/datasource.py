"""The data source `rocketmq_store`: what Spark calls to learn the schema and to get readers and writers.

Runs beside the driver, in a Python process of its own. Source: pyspark.sql.datasource.

Spark gives the readers of a catalog table no options, but its columns as schema() told them when the table was created. So
schema() notes a table's options in the metadata of its columns.
"""
import json
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rmq_store.errors import ConfigError
from rmq_store.spark.needs import need_pyarrow
from rmq_store.spark.options import ReadOptions, with_paths
from rmq_store.spark.reader import StoreReader
from rmq_store.spark.schema import arrow_schema, columns_of, ddl
from rmq_store.spark.stores import local_path
from rmq_store.spark.stream import StoreStreamReader
from rmq_store.spark.workers import spare_imports
from rmq_store.spark.writer import StoreStreamWriter, StoreWriter, WriteOptions, check_columns

__all__ = ["RocketMQStoreDataSource"]


class RocketMQStoreDataSource(DataSource):
    """`spark.read.format("rocketmq_store")`, `readStream` and the writers."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def schema(self) -> str | StructType:
        need_pyarrow()
        own = _own(self.options)
        columns = columns_of(ReadOptions.parse(_without_limits(own)))
        return _noted(columns, own) if _of_catalog(self.options) else ddl(columns)

    def reader(self, schema: StructType) -> StoreReader:
        options = ReadOptions.parse(_of_table(self.options, schema))
        return StoreReader(options, columns_of(options, given(schema)))

    def streamReader(self, schema: StructType) -> StoreStreamReader:
        options = ReadOptions.parse(_of_table(self.options, schema), stream=True)
        return StoreStreamReader(options, columns_of(options, given(schema)))

    def writer(self, schema: StructType, overwrite: bool) -> StoreWriter:
        if overwrite:
            raise ConfigError("mode overwrite: a store is a log and is never overwritten: use mode append, "
                              "or write to a new path")
        options = WriteOptions.parse(_own(self.options))
        check_columns(given(schema), options)
        return StoreWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoreStreamWriter:
        options = WriteOptions.parse(self.options, stream=True)
        check_columns(given(schema), options)
        return StoreStreamWriter(options)


def given(schema: StructType) -> dict[str, str]:
    """A Spark schema as column names and DDL types."""
    return {field.name: field.dataType.simpleString().upper() for field in schema.fields}


# What Spark's catalog notes of a table (TableCatalog, CatalogTable), and hands over with its options.
_CATALOG = {"owner", "provider", "location", "external", "is_managed_location", "comment", "collation", "table_type",
            "serialization.format", "created_time", "transient_lastddltime"}


def _own(options: Any) -> dict[str, Any]:
    """The options without what a catalog adds for itself: CREATE TABLE ... USING rocketmq_store OPTIONS (path ...)."""
    given = {name.lower(): value for name, value in options.items()}
    own = {name: value for name, value in options.items()
           if name.lower() not in _CATALOG and not name.lower().startswith(("option.", "spark.sql."))}
    place = given.get("option.path") or given.get("location")       # where a table's path stands
    return own if place is None or {"path", "paths"} & given.keys() else {**own, "path": place}


_NOTE = "rocketmq_store.options"    # in the metadata of a column


def _of_catalog(options: Any) -> bool:
    """Whether it is a table that is created, or its columns looked at."""
    return any(name.lower() == "provider" for name in options)


def _noted(columns: dict[str, str], own: dict[str, Any]) -> StructType:
    """The columns of a table, with its options. Raises ConfigError for a path that leads elsewhere from elsewhere."""
    from pyspark.sql.pandas.types import from_arrow_schema

    own = dict(with_paths(own))
    path = next(value for name, value in own.items() if name.lower() == "path")
    roots = path.values() if isinstance(path, dict) else path if isinstance(path, list) else path.split(",")
    for root in roots:
        if not local_path(str(root).strip()).startswith("/"):
            raise ConfigError(f"option path of a table is {root!r}, which another session would look for in its own directory: "
                              "give a whole path, as in OPTIONS (path '/data/broker-a/store')")
    schema: StructType = from_arrow_schema(arrow_schema(columns))
    schema.fields[0].metadata = {_NOTE: json.dumps(own)}
    return schema


def _of_table(options: Any, schema: StructType) -> dict[str, Any]:
    """The options of a read: those given, and of a table those that it was created with. Raises ConfigError where nobody knows
    them."""
    own = _own(options)
    names = {name.lower() for name in own}
    if {"path", "paths"} & names:
        return own
    note = next((field.metadata[_NOTE] for field in schema.fields if _NOTE in (field.metadata or {})), None)
    if note is None:
        raise ConfigError("option path is missing. Spark tells the path of a catalog table only if the table was created with "
                          "the columns that the store has: CREATE TABLE t USING rocketmq_store OPTIONS (path "
                          "'/data/broker-a/store', columns 'topic,body'), without a list of columns, without AS SELECT; or "
                          "read it with SELECT * FROM t WITH (path = '/data/broker-a/store')")
    return {**{name: value for name, value in json.loads(note).items() if name.lower() not in names}, **own}


def _without_limits(options: Any) -> dict[str, Any]:
    """Options that decide the schema: the same source is asked for it before a batch and before a stream."""
    streaming = {"maxoffsetspertrigger", "maxbytespertrigger", "startingoffsets"}
    return {name: value for name, value in options.items() if name.lower() not in streaming}


spare_imports()
