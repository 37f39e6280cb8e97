"""The entries from Python: register(), scan(), read_store(), and a local session that fits.

scan() goes through the data source, with a plan of its own for each call: that is what keeps it right when a DataFrame is used
twice. mapInArrow would do as well, but pyspark 4.3 refuses it without pandas, which this package does not need.
"""
import json
import os
import weakref
from typing import Any

from rmq_store.spark.asked import warn_of_unknown_topics
from rmq_store.spark.needs import need_java, need_pyspark, worker_python
from rmq_store.spark.options import ReadOptions, camel, flat, whole_paths
from rmq_store.spark.told import told

__all__ = ["is_connect", "local_session", "read_store", "register", "scan", "write_store"]

_registered: "weakref.WeakSet[Any]" = weakref.WeakSet()


def register(spark: Any) -> None:
    """Registers format("rocketmq_store") with a session, if Spark does not find the package pyspark_rocketmq_store by itself.

    Thread-safety: any. The session becomes the active session of the calling thread, as with createDataFrame, because Spark
    asks the active session for the source of a write.
    """
    need_pyspark()
    from rmq_store.spark.datasource import RocketMQStoreDataSource
    from rmq_store.spark.jobs.source import JobDataSource

    if spark not in _registered:
        spark.dataSource.register(RocketMQStoreDataSource)
        spark.dataSource.register(JobDataSource)
        _registered.add(spark)
    if not is_connect(spark):
        type(spark)._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def is_connect(spark: Any) -> bool:
    """True for a session of Spark Connect, whose driver is on another machine."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def scan(spark: Any, path: Any, columns: Any = None, **options: Any) -> Any:
    """Returns a DataFrame over one or many stores.

    path: a root, a comma list or glob of roots, or a mapping {"broker name": root}. columns: the columns to make; Spark does
    not tell a source which of them a query uses, so name few: scan(spark, path, ["storeSize"]).count() reads no body,
    scan(spark, path).count() reads them all. options: those of docs/spark.md, in camelCase or snake_case: subscribe, tags,
    starting_timestamp, verify, ... The DataFrame is one snapshot, which its first action takes. Works on a local session, a
    cluster and Spark Connect; the paths are those of the driver and the workers. Raises ConfigError, FileNotFoundError (here,
    but from the first action under Connect), SparkUnavailable, and CorruptionError inside the tasks.
    """
    need_pyspark()
    given = {name: value for name, value in {"path": path, "columns": columns, **options}.items() if value is not None}
    if not is_connect(spark):
        warn_of_unknown_topics(ReadOptions.parse(given))
    return read_store(spark, given.pop("path"), **given)


def read_store(spark: Any, path: Any, **options: Any) -> Any:
    """`spark.read.format("rocketmq_store")` with the source registered and options in snake_case or camelCase."""
    register(spark)
    return spark.read.format("rocketmq_store").options(**option_texts(options)).load(whole_paths(path))


def write_store(df: Any, path: str, **options: Any) -> None:
    """Appends a DataFrame to the store at `path`, or with shards=N makes up to N new stores under it, one for each task.

    options: those of a write in docs/spark.md, in snake_case or camelCase: topic, txn_app_id, txn_version, queue_selector, ...;
    store={"segment_size_bytes": ...} has options of the store. Rows are written in the order of their partitions: sort before.
    With shards, partitions are joined into N. Raises ConfigError, and the errors of tasks and of the commit.
    """
    register(df.sparkSession)
    texts = option_texts(options)
    if "shards" in texts:
        df = df.coalesce(int(texts["shards"]))
    try:
        df.write.format("rocketmq_store").mode("append").options(**texts).save(whole_paths(path))
    except Exception as error:
        ours = told(error)
        if ours is None or ours is error:
            raise
        raise ours from error


def option_texts(options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark takes them: names in camelCase, values as text."""
    return {name if name.startswith("store.") else camel(name): whole_paths(value) if name == "path" else option_text(value)
            for name, value in flat(options) if value is not None}


def option_text(value: Any) -> str:
    """One option value as text."""
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def local_session(app: str = "rmq_store", master: str | None = None, **conf: str) -> Any:
    """Returns a session on this machine (master None: local[*]) with the settings that this package needs. conf: more settings,
    with __ instead of dots.

    In a process that spark-submit started, the session has spark-submit's master, name and settings, except those given here.
    """
    need_pyspark()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ        # of the JVM that started this process
    if not submitted:
        need_java()
    worker_python()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    settings: dict[str, str] = {}
    if not submitted:
        builder = builder.appName(app)
        master = master or "local[*]"
        settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "1g",
                    "spark.sql.session.timeZone": "UTC", "spark.sql.execution.arrow.pyspark.enabled": "true"}
    if master:
        builder = builder.master(master)
    settings.update({name.replace("__", "."): value for name, value in conf.items()})
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
