"""RocketMQ stores in Apache Spark: read, stream, write, and jobs. `pip install rmq_store[spark]` brings what this needs.

    import rmq_store.spark as rs
    df = rs.scan(spark, "/mnt/broker-a/store", columns=["topic", "storeSize"], subscribe="Orders")
    df = spark.read.format("rocketmq_store").load("/mnt/broker-a/store")

`import rmq_store.spark` works without pyspark; functions that need it raise SparkUnavailable with the cure. Reads open a store
read-only and without a lock, live or dead, of a Java broker or of this library. Docs: docs/spark.md.
"""
import logging
import os

from rmq_store.spark.needs import SparkUnavailable
from rmq_store.spark.scan import local_session, read_store, register, scan, write_store

__all__ = ["SparkUnavailable", "local_session", "read_store", "register", "scan", "write_store"]

if "PYSPARK_SPARK_SESSION_UUID" in os.environ:      # a worker whose log Spark collects: SELECT * FROM python_worker_logs()
    logging.getLogger(__name__).setLevel(logging.INFO)
