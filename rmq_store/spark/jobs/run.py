"""Running a job: its rows as a DataFrame, or collected. How it runs: source.py."""
import json
from typing import Any

from pyspark.errors import PySparkException

from rmq_store.spark.jobs.source import job_module
from rmq_store.spark.scan import register
from rmq_store.spark.told import told

__all__ = ["collect", "run_job"]


def run_job(spark: Any, job: str, arguments: dict[str, Any]) -> Any:
    """A DataFrame with the rows of a job; each action on it runs the job again."""
    job_module(job)
    register(spark)
    return spark.read.format("rocketmq_store_job").options(job=job, arguments=json.dumps(arguments)).load()


def collect(spark: Any, job: str, arguments: dict[str, Any]) -> list[Any]:
    """The rows of a job. What a task or its planner raised comes as it was raised there, from Spark's."""
    try:
        return list(run_job(spark, job, arguments).collect())
    except PySparkException as error:
        ours = told(error)
        if ours is None:
            raise
        raise ours from error
