"""Writing a DataFrame or a stream into a store: tasks stage encoded records, one commit beside the driver appends them.

A store has one appender, and Spark may run a task twice, so tasks never touch the log. See staging.py for the commit.
"""
import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyspark.sql.datasource as api
from pyspark import TaskContext

from rmq_store.access.bulk._staged import encode_rows
from rmq_store.codec._codec import java_hash
from rmq_store.errors import ConfigError
from rmq_store.spark.journal import journal_of
from rmq_store.spark.leftovers import missing_here
from rmq_store.spark.options import known
from rmq_store.spark.shards import Shard, build_shard, commit_shards
from rmq_store.spark.staging import Staged, StageFile, abandon, commit_staged, enter, read_journal, sweep
from rmq_store.spark.store_options import store_options
from rmq_store.spark.stores import local_path
from rmq_store.spark.view_columns import REMOVED_COLUMN

__all__ = ["StoreStreamWriter", "StoreWriter", "WriteOptions"]

log = logging.getLogger("rmq_store.spark")

# What a column must be, as Spark's DDL has it. Other columns that a read returns may come along and are not stored.
COLUMNS = {"topic": ("STRING",), "body": ("BINARY", "STRING"), "tags": ("STRING",), "keys": ("STRING",), "queueId": ("INT",),
           "flag": ("INT",), "properties": ("MAP<STRING,STRING>",), "bornTimestamp": ("TIMESTAMP",), "sysFlag": ("INT",),
           "reconsumeTimes": ("INT",)}
READ_ONLY = ("queueOffset", "brokerName", "storeTimestamp", "msgId", "physicalOffset", "storeSize", "bornHost", "storeHost",
             "preparedTransactionOffset", "bodyCrc", "commitLogFile", REMOVED_COLUMN)
_NAMES = {n.lower(): n for n in ("path", "topic", "queueSelector", "queues", "txnAppId", "txnVersion", "fsync",
                                "shards")}


@dataclass(frozen=True)
class WriteOptions:
    """Where rows go. store: options of MessageStore.open, given as `store.<name>`."""

    path: str
    topic: str | None = None
    queue_selector: str = "column"
    queues: int = 4
    app: str | None = None
    version: int | None = None
    fsync: bool = True
    shards: int | None = None
    store: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, Any], stream: bool = False) -> "WriteOptions":
        """From Spark's options. Raises ConfigError."""
        found: dict[str, str] = {}
        store: list[tuple[str, str]] = []
        for raw, value in given.items():
            if raw.lower().startswith("store."):
                store.append((raw[6:], str(value)))
            elif not (stream and raw.lower() == "checkpointlocation"):
                found[known(raw, _NAMES)] = str(value)
        if not found.get("path", "").strip() or "," in found["path"]:
            raise ConfigError("option path: name the root directory of one store to write to (Spark gives the writer of a "
                              "catalog table no options: write with df.write.format('rocketmq_store')"
                              ".mode('append').save(path))")
        selector = found.get("queueSelector", "column").lower()
        if selector not in ("column", "keys", "roundrobin"):
            raise ConfigError(f"option queueSelector is {selector!r}: it is column, keys or roundRobin")
        for name in ("queues", "txnVersion", "shards"):
            text = found.get(name, "1")
            if not (text.isascii() and text.isdigit() and (name == "txnVersion" or int(text))):
                raise ConfigError(f"option {name} is {text!r}: a whole number is needed")
        if found.get("fsync", "true").lower() not in ("true", "false"):
            raise ConfigError(f"option fsync is {found['fsync']!r}: it is true or false")
        if stream:
            if "shards" in found:
                raise ConfigError("option shards is given to a stream: each write with shards makes new stores: use a "
                                  "batch write, or leave the option out")
            if "txnAppId" not in found:
                raise ConfigError("option txnAppId is missing: it identifies a stream's batches across restarts: give a name")
            if "txnVersion" in found:
                raise ConfigError("option txnVersion is given to a stream, whose batch numbers are its versions: leave it out")
        elif ("txnAppId" in found) != ("txnVersion" in found):
            raise ConfigError("options txnAppId and txnVersion go together: give both for a write that may be repeated")
        path = os.path.abspath(local_path(found["path"].strip()))       # tasks may run in other directories
        return cls(path, found.get("topic"), selector, int(found.get("queues", 4)), found.get("txnAppId"),
                   int(found["txnVersion"]) if "txnVersion" in found else None, found.get("fsync", "true").lower() == "true",
                   int(found["shards"]) if "shards" in found else None,
                   tuple(store_options(store, path, "shards" in found).items()))


def check_columns(columns: dict[str, str], options: WriteOptions) -> None:
    """Raises ConfigError for a DataFrame that cannot be stored."""
    names = {n.lower(): n for n in (*COLUMNS, *READ_ONLY)}
    present = set()
    for name, kind in columns.items():
        proper = known(name, names) if name.lower() in names else None
        if proper is None:
            raise ConfigError(f"a message has no column {name!r}: drop it; the columns are {', '.join(COLUMNS)}")
        if proper != name:
            raise ConfigError(f"column {name!r} must be spelt {proper}")
        if proper in COLUMNS and kind not in COLUMNS[proper]:
            raise ConfigError(f"column {name} is {kind}, it must be {' or '.join(COLUMNS[proper])}: cast it")
        present.add(proper)
    if "body" not in present:
        raise ConfigError("column body is missing: add it, because every message has a body")
    if "topic" not in present and options.topic is None:
        raise ConfigError("column topic is missing: add it, or give the option topic")
    if options.queue_selector == "keys" and "keys" not in present:
        raise ConfigError("option queueSelector is keys, but column keys is missing: add it")


@dataclass
class StagedMessage(api.WriterCommitMessage):
    """What a task tells the commit. staged: None where the version was done before. job: whose directory it is in. rows: how
    many the task had. query: the streaming query in one of whose batches it ran, if the version is that batch's number."""

    partition: int
    staged: Staged | None
    job: str
    rows: int
    query: str | None = None


@dataclass
class ShardMessage(api.WriterCommitMessage):
    """What a task that has built a store tells the commit."""

    partition: int
    shard: Shard | None


def encoded(batches: Iterable[Any], options: WriteOptions, turn: int) -> Iterator[tuple[bytes, int]]:
    """Record batches as staged records, and how many. turn: the partition's number, where queues begin to be given out."""
    partition = turn
    topic = None if options.topic is None else options.topic.encode()
    for batch in batches:
        if batch.num_rows:
            columns = _columns(batch, options, turn)
            yield encode_rows(columns, batch.num_rows, topic=topic, now=time.time_ns() // 1_000_000, first=turn - partition,
                              of=f" of partition {partition}"), batch.num_rows
            turn += batch.num_rows


def stage(root: str, job: str, partition: int, batches: Iterable[Any], options: WriteOptions,
          query: str | None = None) -> StagedMessage:
    """Encodes record batches into a staging file of their own."""
    try:
        file = StageFile(root, job, partition)
    except FileNotFoundError as error:
        raise missing_here(error) from None
    try:
        for data, rows in encoded(batches, options, partition):
            file.add(data, rows)
        staged = file.finish()
        return StagedMessage(partition, staged, job, staged.records, query)
    except FileNotFoundError as error:
        file.discard()
        raise missing_here(error) from None
    except BaseException:
        file.discard()
        raise


def build(root: str, job: str, partition: int, batches: Iterable[Any], options: WriteOptions) -> ShardMessage:
    """Encodes record batches into a store of their own."""
    if options.shards is not None and partition >= options.shards:
        raise ConfigError(f"option shards is {options.shards}, and the DataFrame has more partitions: "
                          f"df.coalesce({options.shards}), or rmq_store.spark.write_store, which does that")
    data = (data for data, _ in encoded(batches, options, partition))
    return ShardMessage(partition, build_shard(root, job, partition, data, dict(options.store)))


def _columns(batch: Any, options: WriteOptions, turn: int) -> dict[str, Any]:
    """A record batch as the encoder takes it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, Any] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name not in COLUMNS or (name == "queueId" and options.queue_selector != "column"):
            continue
        if array.offset:
            array = pa.concat_arrays([array, array.slice(0, 0)])
        if name == "bornTimestamp":
            array = pc.divide(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()), 1000)
        elif name == "properties":
            validity, ends = array.buffers()[:2]
            found[name] = (validity, ends, None)
            found["names"] = _text(array.keys)
            found["values"] = _text(array.items)
            continue
        elif pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
            array = array.cast(pa.binary())
        buffers = array.buffers()
        found[name] = (buffers[0], buffers[1], buffers[2]) if len(buffers) == 3 else (buffers[0], None, buffers[1])
    if options.queue_selector == "roundrobin" or (options.queue_selector == "column" and "queueId" not in found):
        ids = [(turn + i) % options.queues for i in range(batch.num_rows)]
    elif options.queue_selector == "keys":
        ids = [turn % options.queues if k is None else java_hash(k) % options.queues for k in batch.column("keys").to_pylist()]
    else:
        return found
    found["queueId"] = (None, None, pa.array(ids, pa.int32()).buffers()[1])
    return found


def _text(array: Any) -> tuple[Any, Any, Any]:
    import pyarrow as pa

    if array.offset:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    validity, ends, data = array.buffers()
    return validity, ends, data


def _commit(options: WriteOptions, job: str | None, app: str, version: int, messages: list[Any]) -> None:
    told = sorted((m for m in messages if m is not None), key=lambda m: m.partition)
    if options.shards is not None:
        made = commit_shards(options.path, app, version, [m.shard for m in told if m.shard is not None], job)
        log.info("%s: %s version %d: %d records in %d new stores%s", options.path, app, version, made.records,
                 len(made.stores), ", done before" if made.repeated else "")
        return
    parts = [m.staged for m in told if m.staged is not None]
    queries = {m.query for m in told}
    if not told and (read_journal(journal_of(options.path, app)) or {}).get("query"):
        log.info("%s: %s version %d: no task told whose batch it is, and there is nothing to store", options.path, app, version)
        return
    result = commit_staged(options.path, app, version, parts, dict(options.store), job, options.fsync,
                           queries.pop() if len(queries) == 1 else None, sum(m.rows for m in told))
    log.info("%s: %s version %d: %d records%s", options.path, app, version, result.records,
             ", done before" if result.repeated else f" at [{result.begin}, {result.end})")


class StoreWriter(api.DataSourceArrowWriter):
    """`df.write.format("rocketmq_store").mode("append").save(root)`."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.job = uuid.uuid4().hex     # the same in all tasks: they get this object pickled

    def write(self, iterator: Iterator[Any]) -> api.WriterCommitMessage:
        options = self.options
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        query, batch = _batch_of(context)
        if options.app is None or batch != options.version:
            query = None        # in foreachBatch, with versions of the user's own, or in no stream at all
        if not enter(options.path, self.job, *self._transaction()):
            rows = _drain(iterator)
            if options.shards is not None:
                return ShardMessage(partition, None)
            return StagedMessage(partition, None, self.job, rows, query)
        if options.shards is not None:
            return build(options.path, self.job, partition, iterator, options)
        return stage(options.path, self.job, partition, iterator, options, query)

    def commit(self, messages: list[Any]) -> None:
        _commit(self.options, self.job, *self._transaction(), messages)

    def abort(self, messages: list[Any]) -> None:
        abandon(self.options.path, self.job)

    def _transaction(self) -> tuple[str, int]:
        return self.options.app or self.job, self.options.version or 0


class StoreStreamWriter(api.DataSourceStreamArrowWriter):
    """`df.writeStream.format("rocketmq_store").option("txnAppId", ...)`: the number of a batch is its version."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> StagedMessage:
        options, context = self.options, TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        query, batch = _batch_of(context)
        job = _job_of_batch(query, batch)
        # Where Spark does not tell the batch, it is not known to be done.
        if not enter(options.path, job, str(options.app), (1 << 63) - 1 if batch is None else batch):
            return StagedMessage(partition, None, job, _drain(iterator), query)
        return stage(options.path, job, partition, iterator, options, query)

    def commit(self, messages: list[Any], batchId: int) -> None:
        jobs = _jobs(messages)
        _commit(self.options, next(iter(jobs), None), str(self.options.app), batchId, messages)
        for job in jobs:
            sweep(self.options.path, job)

    def abort(self, messages: list[Any], batchId: int) -> None:
        for job in _jobs(messages):
            abandon(self.options.path, job)


def _jobs(messages: list[Any]) -> set[str]:
    return {message.job for message in messages if message is not None}


def _batch_of(context: Any) -> tuple[str | None, int | None]:
    """The streaming query that a task runs for, by the id that its checkpoint keeps, and the number of the batch."""
    query = batch = None
    if context is not None:
        query, batch = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("streaming.sql.batchId")
    return (query, int(batch)) if query and batch else (None, None)


def _job_of_batch(query: str | None, batch: int | None) -> str:
    """The directory that all attempts at a batch of a query stage in, also those after a restart.

    A writer lives for one call, so nothing of its own could name what the attempts of a batch have in common. Spark tells tasks
    the query and the batch; where it does not, an attempt has a directory of its own.
    """
    return uuid.uuid4().hex if query is None else uuid.uuid5(uuid.NAMESPACE_OID, f"{query} {batch}").hex


def _drain(batches: Iterable[Any]) -> int:
    """Takes rows that are not wanted: Spark is in the middle of sending them. How many they are."""
    return sum(batch.num_rows for batch in batches)
