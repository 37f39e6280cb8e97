"""The batch reader of the data source, and the partitions it hands to tasks. Plain data only: Spark pickles both.

There is no pushFilters and no column pruning on purpose: with filters pushed down, Spark 4.3 returns wrong rows when a
DataFrame is used twice (it keeps one mutable plan for a source). What prunes is the schema given by the user, the option
`columns`, the other options, or rmq_store.spark.scan.
"""
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmq_store.spark.arrow import read_pieces
from rmq_store.spark.asked import warn_of_unknown_topics
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import snapshot_ends
from rmq_store.spark.splits import plan
from rmq_store.spark.views import plan_view, read_view

__all__ = ["StorePartition", "StoreReader", "partitions_of", "rows_of"]

log = logging.getLogger("rmq_store.spark")


@dataclass
class StorePartition(InputPartition):
    """What one task reads: pieces of the log, or the task of a view."""

    part: tuple[Any, ...] = ()


def partitions_of(options: ReadOptions) -> list[tuple[Any, ...]]:
    """The partitions of a batch read of any view. They end where the logs end now: whoever reads them again, as each action on
    a DataFrame does, gets the same messages."""
    warn_of_unknown_topics(options)
    parts = plan(options, snapshot_ends(options)) if options.view == "messages" else plan_view(options)
    log.info("view %s of %s: %d partitions", options.view, ", ".join(b.root for b in options.brokers), len(parts))
    return [tuple(p) for p in parts]


def rows_of(part: tuple[Any, ...], options: ReadOptions, columns: dict[str, str]) -> Iterator[Any]:
    """The record batches of one partition."""
    if options.view == "messages":
        return read_pieces(part, options, columns)
    return read_view(part, options, columns)


class StoreReader(DataSourceReader):
    """Reads one view of one or many stores."""

    def __init__(self, options: ReadOptions, columns: dict[str, str]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        return [StorePartition(part) for part in partitions_of(self.options)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        part = partition.part if isinstance(partition, StorePartition) else ()
        return rows_of(part, self.options, self.columns)
