"""Jobs that are queries: statistics, what a retention would keep, differences, and copies into another store.

They read what they need of each message and nothing more; bodies travel only where messages are copied.
"""
from typing import Any

from rmq_store.errors import ConfigError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.scan import is_connect, scan, write_store
from rmq_store.spark.stores import within

__all__ = ["compact", "diff", "key_statistics", "merge", "replay", "retention", "topic_statistics"]


def _refuse_itself(spark: Any, source: Any, target: str, options: dict[str, Any]) -> None:
    """Raises ConfigError for a copy into a store that is read. Under Connect the paths are the server's: nobody looks here."""
    if is_connect(spark):
        return
    for broker in ReadOptions.parse({"path": source, **options}).brokers:
        if within(broker, target):
            raise ConfigError(f"the target {target} is, or lies in, the store that is read ({broker.root}): its messages "
                              "would be there twice: name another directory")


def topic_statistics(spark: Any, path: Any, **options: Any) -> Any:
    """A row for each broker, topic and queue: messages, bytes, first and last store time."""
    from pyspark.sql import functions as f

    df = scan(spark, path, ["brokerName", "topic", "queueId", "storeSize", "storeTimestamp"], **options)
    return (df.groupBy("brokerName", "topic", "queueId")
            .agg(f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"), f.min("storeTimestamp").alias("firstTime"),
                 f.max("storeTimestamp").alias("lastTime")).orderBy("brokerName", "topic", "queueId"))


def key_statistics(spark: Any, path: Any, limit: int = 100, **options: Any) -> Any:
    """The keys with the most messages: topic, key, messages, bytes."""
    from pyspark.sql import functions as f

    df = scan(spark, path, ["topic", "keys", "storeSize"], **options).where("keys is not null")
    each = df.select("topic", f.explode(f.split("keys", " +")).alias("key"), "storeSize").where("key <> ''")
    return (each.groupBy("topic", "key").agg(f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"))
            .orderBy(f.desc("messages"), "topic", "key").limit(limit))


def retention(spark: Any, path: Any, hours: Any = (24, 48, 72, 168), now: int | None = None, **options: Any) -> Any:
    """What a store would keep if it kept so many hours: hours, messages, bytes, and their share. now: ms since 1970, default
    the newest store time."""
    from pyspark.sql import functions as f

    try:
        wanted = [int(h) for h in hours]
    except (TypeError, ValueError):
        wanted = []
    if not wanted:
        raise ConfigError(f"hours is {hours!r}: give whole numbers of hours, as in (24, 48)")
    df = scan(spark, path, ["storeTimestamp", "storeSize"], **options)
    ages = df.select(f.unix_millis("storeTimestamp").alias("ms"), "storeSize")
    top = f.lit(now) if now is not None else f.lit(ages.agg(f.max("ms")).collect()[0][0])

    def keeping(h: int) -> Any:
        inside = f.col("ms") >= top - h * 3_600_000
        return ages.agg(f.lit(h).alias("hours"), f.sum(f.when(inside, 1).otherwise(0)).alias("messages"),
                        f.sum(f.when(inside, f.col("storeSize")).otherwise(0)).alias("bytes"), f.sum("storeSize").alias("all"))

    kept = [keeping(h) for h in wanted]
    whole = kept[0]
    for row in kept[1:]:
        whole = whole.unionAll(row)
    return whole.select("hours", "messages", "bytes", (f.col("bytes") / f.col("all")).alias("share")).orderBy("hours")


def diff(spark: Any, left: Any, right: Any, **options: Any) -> Any:
    """Messages that differ between two stores, by topic, queueId and queueOffset: what is `left`, `right` (only there) or
    `content` (another body, flag or properties). A queue that was removed and made again has an offset more than once in the
    log: the newest of each side are compared, then the ones before them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    key = ["topic", "queueId", "queueOffset"]
    life = f.row_number().over(Window.partitionBy(*key).orderBy(f.desc("physicalOffset")))

    def side(path: Any, name: str) -> Any:
        df = scan(spark, path, [*key, "bodyCrc", "flag", "properties", "physicalOffset"], properties_format="raw", **options)
        content = f.struct("bodyCrc", "flag", f.xxhash64("properties"))
        return df.select(*key, life.alias("life"), content.alias(f"{name}Content"),
                         f.col("physicalOffset").alias(f"{name}PhysicalOffset"))

    both = side(left, "left").join(side(right, "right"), [*key, "life"], "full_outer")
    what = (f.when(f.col("rightContent").isNull(), "left").when(f.col("leftContent").isNull(), "right")
            .when(f.col("leftContent") != f.col("rightContent"), "content"))
    return (both.withColumn("what", what).where("what is not null")
            .select(*key, "what", "leftPhysicalOffset", "rightPhysicalOffset").orderBy(*key))


def replay(spark: Any, source: Any, target: str, txn_app_id: str, txn_version: int = 0, store: dict[str, Any] | None = None,
           shards: int | None = None, **options: Any) -> None:
    """Copies messages into the store at `target`, in the order of the source's log, once for txn_app_id and txn_version.

    options: those of a read, which say which messages (topics, tags, times, offsets). store: options of the target. shards: up
    to so many new stores under `target` in place of one, each with a run of the log. Bodies, flags, properties, tags, keys,
    queue ids and born times stay; places, store times and hosts are the target's.
    """
    _refuse_itself(spark, source, target, options)
    write_store(scan(spark, source, **options), target, txn_app_id=txn_app_id, txn_version=txn_version, store=store,
                shards=shards)


def merge(spark: Any, sources: dict[str, str], target: str, txn_app_id: str, txn_version: int = 0,
          store: dict[str, Any] | None = None, shards: int | None = None, **options: Any) -> None:
    """Copies the messages of several brokers into one store, broker by broker: {"broker name": root}. Else as replay."""
    replay(spark, sources, target, txn_app_id, txn_version, store, shards, **options)


def compact(spark: Any, source: Any, target: str, txn_app_id: str, txn_version: int = 0, store: dict[str, Any] | None = None,
            **options: Any) -> None:
    """Copies the newest message of each topic and KEYS into the store at `target`, in the order of the log; messages without
    keys are left out. The choice is made on metadata; only what survives is read with its body. Else as replay."""
    from pyspark.sql import functions as f

    _refuse_itself(spark, source, target, options)
    keys = scan(spark, source, ["topic", "keys", "brokerName", "physicalOffset", "storeTimestamp"], **options)
    newest = (keys.where("keys is not null").groupBy("topic", "keys")
              .agg(f.max(f.struct("storeTimestamp", "physicalOffset", "brokerName")).alias("last"))
              .select(f.col("last.brokerName").alias("brokerName"), f.col("last.physicalOffset").alias("physicalOffset")))
    whole = scan(spark, source, **options).join(newest, ["brokerName", "physicalOffset"], "left_semi")
    write_store(whole.repartition(1).sortWithinPartitions("brokerName", "physicalOffset"), target, txn_app_id=txn_app_id,
                txn_version=txn_version, store=store)
