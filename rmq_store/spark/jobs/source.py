"""How a job runs on Spark: planned beside the driver, one native call a part in the workers, small rows back.

A job is a module with plan(arguments) -> parts, work(part, arguments) -> record batches and COLUMNS; arguments and parts are
plain JSON data. Tasks may run twice, at once or one after the other (retry, speculation): work must be idempotent. It goes
through a data source of its own, so it needs no pandas, runs on Connect, and pickles no closure.
"""
import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmq_store.errors import ConfigError
from rmq_store.spark.schema import ddl
from rmq_store.spark.workers import spare_imports

__all__ = ["JOBS", "JobDataSource", "job_module"]

JOBS = {"audit": "audit", "rebuild_queues": "queues", "rebuild_index": "index", "export": "export"}


def job_module(name: str) -> Any:
    """The module of a job."""
    if name not in JOBS:
        raise ConfigError(f"job {name!r} is unknown: known are {', '.join(JOBS)}")
    return importlib.import_module(f"rmq_store.spark.jobs.{JOBS[name]}")


@dataclass
class JobPartition(InputPartition):
    """One part of a job."""

    part: Any = None


class JobReader(DataSourceReader):
    """Runs one job."""

    def __init__(self, job: str, arguments: dict[str, Any]) -> None:
        self.job = job
        self.arguments = arguments

    def partitions(self) -> list[InputPartition]:
        return [JobPartition(part) for part in job_module(self.job).plan(self.arguments)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, JobPartition):
            yield from job_module(self.job).work(partition.part, self.arguments)


class JobDataSource(DataSource):
    """`rocketmq_store_job`, for this package's own jobs."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq_store_job"

    def schema(self) -> str:
        return ddl(job_module(self.options["job"]).COLUMNS)

    def reader(self, schema: StructType) -> JobReader:
        return JobReader(self.options["job"], json.loads(self.options["arguments"]))


spare_imports()
