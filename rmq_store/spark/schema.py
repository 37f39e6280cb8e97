"""The columns of a read: their Spark types by name, and what the kernel has to make for them. Without pyspark."""
from typing import Any

from rmq_store.errors import ConfigError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.unwrapping import NEEDED
from rmq_store.spark.view_columns import ERROR_COLUMN, REMOVED_COLUMN, VIEWS

__all__ = ["columns_of", "ddl", "kernel_columns"]


def columns_of(options: ReadOptions, given: dict[str, str] | None = None) -> dict[str, str]:
    """Name -> type of the columns of a read, in order. given: a user's schema, which may name a part of them.

    Raises ConfigError for an unknown column or another type.
    """
    whole = dict(VIEWS[options.view])
    if options.view == "messages":
        whole["properties"] = {"map": "MAP<STRING,STRING>", "json": "STRING", "raw": "BINARY"}[options.properties_format]
        if options.on_corrupt == "emit":
            whole[ERROR_COLUMN] = "STRING"
    kinds = whole | ({REMOVED_COLUMN: "BOOLEAN"} if options.view == "messages" else {})
    lower = {name.lower(): name for name in kinds}
    if given is not None:
        for name, kind in given.items():
            proper = _column(name, lower, options.view)
            if kind.upper().replace(" ", "") != kinds[proper]:
                raise ConfigError(f"column {name} is asked for as {kind}, it is {kinds[proper]}: cast it after the read")
        return {name: kinds[_column(name, lower, options.view)] for name in given}
    if options.columns is not None:
        return {proper: kinds[proper] for proper in (_column(name, lower, options.view) for name in options.columns)}
    return whole


def _column(name: str, lower: dict[str, str], view: str) -> str:
    if name.lower() not in lower:
        raise ConfigError(f"column {name!r} is unknown in view {view}: it has {', '.join(lower.values())}")
    return lower[name.lower()]


def ddl(columns: dict[str, str]) -> str:
    """Columns as a DDL string, which Spark takes for a schema."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_schema(columns: dict[str, str]) -> Any:
    """The Arrow schema that Spark expects for these columns: nullable, timestamps in microseconds UTC."""
    import pyarrow as pa

    kinds = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BINARY": pa.binary(), "BOOLEAN": pa.bool_(),
             "TIMESTAMP": pa.timestamp("us", tz="UTC"), "MAP<STRING,STRING>": pa.map_(pa.string(), pa.string())}
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns.items()])


def kernel_columns(columns: dict[str, str], options: ReadOptions) -> list[str]:
    """What the kernel has to make for these columns of view messages."""
    wanted = [name for name in columns if name not in ("brokerName", "commitLogFile", ERROR_COLUMN, REMOVED_COLUMN)]
    if options.properties_format == "raw":
        wanted = ["propertiesRaw" if name == "properties" else name for name in wanted]
    needed = (*NEEDED, *(("topic",) if options.subscribe_pattern is not None else ()),
              *(("topic", "queueId") if REMOVED_COLUMN in columns else ()))
    return wanted + [name for name in dict.fromkeys(needed) if name not in wanted]
