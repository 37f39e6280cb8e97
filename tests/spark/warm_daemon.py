"""Spark's daemon for Python workers, with what they need imported before it forks them: for the session of these tests.

Each fork of Spark's own daemon imports all of it again. The clusters and processes of the slow tests run that one.
"""
import importlib

from pyspark import daemon

IMPORTS = ("pyspark.worker", "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source",
           "rmq_store.spark.datasource", "rmq_store.spark.jobs.source", "rmq_store.spark.jobs")

if __name__ == "__main__":
    for name in IMPORTS:
        importlib.import_module(name)
    daemon.manager()
