"""The data source `rocketmq_store`: what Spark calls to learn the schema and to get readers and writers.

Runs beside the driver, in a Python process of its own. Source: pyspark.sql.datasource.
"""
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from rmq_store.errors import ConfigError
from rmq_store.spark.needs import need_pyarrow
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.reader import StoreReader
from rmq_store.spark.schema import columns_of, ddl
from rmq_store.spark.stream import StoreStreamReader
from rmq_store.spark.workers import spare_imports
from rmq_store.spark.writer import StoreStreamWriter, StoreWriter, WriteOptions, check_columns

__all__ = ["RocketMQStoreDataSource"]


class RocketMQStoreDataSource(DataSource):
    """`spark.read.format("rocketmq_store")`, `readStream` and the writers."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store"

    def schema(self) -> str:
        need_pyarrow()
        return ddl(columns_of(ReadOptions.parse(_without_limits(_own(self.options)))))

    def reader(self, schema: StructType) -> StoreReader:
        options = ReadOptions.parse(_own(self.options))
        return StoreReader(options, columns_of(options, given(schema)))

    def streamReader(self, schema: StructType) -> StoreStreamReader:
        options = ReadOptions.parse(self.options, stream=True)
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


def _without_limits(options: Any) -> dict[str, Any]:
    """Options that decide the schema: the same source is asked for it before a batch and before a stream."""
    streaming = {"maxoffsetspertrigger", "maxbytespertrigger", "startingoffsets"}
    return {name: value for name, value in options.items() if name.lower() not in streaming}


spare_imports()
