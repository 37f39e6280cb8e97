"""The views beside messages: what a store says of itself. Each is split by queue or file; the rows are made in the workers."""
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rmq_store.access.bulk._queues import index_columns, queue_columns, record_time
from rmq_store.base.io.files import open_regular
from rmq_store.codec._layout import (
    CHECKPOINT_AT_FLUSHED,
    CHECKPOINT_AT_MASTER_FLUSHED,
    INDEX_AT_BEGIN_TIMESTAMP,
    INDEX_HEADER_SIZE,
    INDEX_SLOT_SIZE,
    UNIT_SIZE,
)
from rmq_store.codec.layout import CHECKPOINT, describe_fields, get64
from rmq_store.errors import CorruptionError
from rmq_store.queues.index.geometry import geometry_of
from rmq_store.services.backup.met import Met
from rmq_store.services.compaction.files import queues_on_disk
from rmq_store.spark.arrow import behind, check_met, open_if_there
from rmq_store.spark.compacted import compaction_rows
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions, snapshot_ends
from rmq_store.spark.schema import arrow_schema
from rmq_store.spark.splits import plan
from rmq_store.spark.stores import Broker, LogFile, index_files, log_files, queue_files, queues

__all__ = ["Task", "plan_view", "read_view"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = 65536


class Task(NamedTuple):
    """Work for one partition of a view: what it reads. Plain data."""

    broker: Broker
    what: tuple[Any, ...] = ()
    head: Met | None = None         # the log's first record, in the file `log`, as the planner met it
    log: LogFile | None = None


def plan_view(options: ReadOptions) -> list[tuple[Any, ...]]:
    """Partitions of any view but messages."""
    if options.view == "errors":
        return [tuple(part) for part in plan(options, snapshot_ends(options, left=True))]
    parts: list[tuple[Any, ...]] = []
    for broker in options.brokers:
        if options.view in ("consumequeue", "queues"):
            wanted = [(t, q, d) for t, q, d in queues(broker.root) if _topic_wanted(options, broker, t, q)]
            each = max(1, -(-len(wanted) // max(16, options.min_partitions or 0)))
            parts += [(Task(broker, tuple(wanted[i:i + each])),) for i in range(0, len(wanted), each)]
        elif options.view == "compaction":
            parts += [(Task(broker, ((topic, queue_id),)),) for topic, queue_id in queues_on_disk(broker.root)
                      if _topic_wanted(options, broker, topic, queue_id)]
        elif options.view == "index":
            paths = index_files(broker.root)
            each = max(1, -(-len(paths) // 16))
            parts += [(Task(broker, tuple(paths[i:i + each])),) for i in range(0, len(paths), each)]
        else:
            parts.append((Task(broker),))
    logs = {broker: next(iter(log_files(broker, holes=True)), None) for broker in options.brokers}
    heads = {broker: None if log is None or (log.newest and _end(broker, options) == log.start) else log.head()
             for broker, log in logs.items()}
    return [tuple(task._replace(head=heads[task.broker], log=logs[task.broker]) for task in part) for part in parts] or [()]


def _end(broker: Broker, options: ReadOptions) -> int:
    return LogPositions(broker, replace(options, on_corrupt="skip")).end(over=True)


def read_view(part: tuple[Any, ...], options: ReadOptions, columns: dict[str, str]) -> Iterator[Any]:
    """Record batches of these columns."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    if options.view == "errors":
        rows = _errors(part, options)
    else:
        makers = {"consumequeue": _consumequeue, "compaction": compaction_rows, "index": _index, "queues": _queues,
                  "files": _files, "checkpoint": _checkpoint}
        rows = (row for task in part for row in makers[options.view](_of_the_store(task), options))
    for made in rows:
        names = list(made)
        count = len(made[names[0]])
        if count:
            yield pa.RecordBatch.from_arrays([pa.array(made[f.name], f.type) if f.name in made else pa.nulls(count, f.type)
                                              for f in schema], schema=schema)


def _of_the_store(task: Task) -> Task:
    """The task, where this machine sees the store that the planner saw. Raises StoreStateError, FileNotFoundError."""
    if task.log is not None and task.head is not None:
        check_met(task.log.path, task.broker.name, task.log.start, task.head)
    return task


def _topic_wanted(options: ReadOptions, broker: Broker, topic: str, queue_id: int) -> bool:
    import re

    if options.subscribe is not None:
        return topic in options.subscribe
    if options.subscribe_pattern is not None:
        return re.fullmatch(options.subscribe_pattern, topic) is not None
    if options.assign is not None:
        return any(t == topic and q == queue_id and b in (None, broker.name) for t, b, q in options.assign)
    return True


def _moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _ints(buffer: Any, code: str) -> Any:
    import pyarrow as pa

    kind = pa.int32() if code == "i" else pa.int64()
    view = memoryview(buffer)
    return pa.Array.from_buffers(kind, len(view) // (4 if code == "i" else 8), [None, pa.py_buffer(buffer)])


def _repeat(value: Any, count: int) -> Any:
    import pyarrow as pa

    return pa.repeat(pa.scalar(value), count)


# ---- consumequeue, queues

def _consumequeue(task: Task, options: ReadOptions) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    for topic, queue_id, directory in task.what:
        for start, path, size in queue_files(directory):
            for begin in range(0, size // UNIT_SIZE, _ROWS):
                found = queue_columns(path, begin, _ROWS)
                if found is None:
                    break
                first, count, physical, sizes, codes = found
                place = start // UNIT_SIZE + first
                yield {"brokerName": _repeat(task.broker.name, count), "topic": _repeat(topic, count),
                       "queueId": _repeat(pa.scalar(queue_id, pa.int32()), count),
                       "queueOffset": list(range(place, place + count)),
                       "physicalOffset": _ints(physical, "q"), "size": _ints(sizes, "i"), "tagsCode": _ints(codes, "q")}


def _queues(task: Task, options: ReadOptions) -> Iterator[dict[str, Any]]:
    logs = log_files(task.broker, holes=True)
    rows: dict[str, list[Any]] = {n: [] for n in ("brokerName", "topic", "queueId", "minOffset", "maxOffset", "count", "bytes",
                                                  "firstTime", "lastTime")}
    for topic, queue_id, directory in task.what:
        low = high = None
        size, first_at, last_at = 0, -1, -1
        for start, path, length in queue_files(directory):
            for begin in range(0, length // UNIT_SIZE, _ROWS):
                found = queue_columns(path, begin, _ROWS)
                if found is None:
                    break
                first, count, physical, sizes, _ = found
                if not count:
                    continue
                places = memoryview(physical).cast("q")
                if low is None:
                    low, first_at = start // UNIT_SIZE + first, places[0]
                high, last_at = start // UNIT_SIZE + first + count, places[count - 1]
                size += sum(memoryview(sizes).cast("i"))
        if low is not None and high is not None:
            values = (task.broker.name, topic, queue_id, low, high, high - low, size, _moment(_time_at(logs, first_at)),
                      _moment(_time_at(logs, last_at)))
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    yield rows


def _time_at(files: list[LogFile], offset: int) -> int | None:
    for file in files:
        if file.start <= offset < file.end:
            return record_time(file.path, offset - file.start)
    return None


# ---- index

def _index(task: Task, options: ReadOptions) -> Iterator[dict[str, Any]]:
    for path in task.what:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            shape = geometry_of(file.fileno())
        if shape is None:
            continue
        slots, entries = shape
        for begin in range(1, entries, _ROWS):
            found = index_columns(path, INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slots, begin, _ROWS)
            if found is None:
                break
            count, hashes, physical, diffs, previous = found
            yield {"brokerName": _repeat(task.broker.name, count), "file": _repeat(path, count),
                   "entry": list(range(begin, begin + count)), "slot": [h % slots for h in memoryview(hashes).cast("i")],
                   "keyHash": _ints(hashes, "i"), "physicalOffset": _ints(physical, "q"), "timeDiff": _ints(diffs, "i"),
                   "prev": _ints(previous, "i")}


# ---- files, checkpoint, errors

def _files(task: Task, options: ReadOptions) -> Iterator[dict[str, Any]]:
    rows: dict[str, list[Any]] = {n: [] for n in ("brokerName", "kind", "path", "base", "size", "wrotePosition", "sealed",
                                                  "firstStoreTime")}

    def add(kind: str, path: str, base: int | None, size: int, wrote: int | None = None, sealed: bool | None = None,
            first: int | None = None) -> None:
        for name, value in zip(rows, (task.broker.name, kind, path, base, size, wrote, sealed, _moment(first)), strict=True):
            rows[name].append(value)

    for file in log_files(task.broker, holes=True):
        wrote = file.size
        if file.newest and file.first_time() is None:
            wrote = 0
        elif file.newest:
            wrote = min(max(0, LogPositions(task.broker, options).end() - file.start), file.size)
        add("commitlog", file.path, file.start, file.size, wrote, not file.newest, file.first_time())
    for _, _, directory in queues(task.broker.root):
        found = queue_files(directory)
        for start, path, size in found:
            add("consumequeue", path, start, size, sealed=path != found[-1][1])
    for path in index_files(task.broker.root):
        with open(path, "rb", buffering=0, opener=open_regular) as handle:
            head = handle.read(INDEX_HEADER_SIZE)
        add("index", path, None, os.path.getsize(path), first=get64(head, INDEX_AT_BEGIN_TIMESTAMP) or None)
    for name in ("checkpoint", "abort", "lock"):
        path = os.path.join(task.broker.root, name)
        if os.path.exists(path):
            add(name, path, None, os.path.getsize(path))
    yield rows


def _checkpoint(task: Task, options: ReadOptions) -> Iterator[dict[str, Any]]:
    path = os.path.join(task.broker.root, "checkpoint")
    if not os.path.exists(path):
        return
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        data = file.read(CHECKPOINT_AT_FLUSHED)
    if len(data) < CHECKPOINT_AT_MASTER_FLUSHED:
        raise CorruptionError(path, 0, "three timestamps", f"{len(data)} bytes")
    row: dict[str, Any] = {"brokerName": [task.broker.name], "abort": [os.path.exists(os.path.join(task.broker.root, "abort"))]}
    for field in describe_fields(CHECKPOINT, data):
        value = int.from_bytes(field.data, "big", signed=True)
        row[field.name] = [_moment(value) if field.name.endswith("Timestamp") else value]
    yield row


def _errors(part: tuple[Any, ...], options: ReadOptions) -> Iterator[dict[str, Any]]:
    for piece in part:
        opened = open_if_there(piece, options, "crc" if options.verify == "none" else None)
        if opened is None:
            continue
        with opened as split:
            regions = []
            while not split.done:
                split.skip()
                regions += split.take_bad()
            if (short := behind(piece, split.position)) is not None:
                raise short
        yield {"brokerName": [piece.broker] * len(regions), "file": [piece.path] * len(regions),
               "offset": [r.begin for r in regions], "endOffset": [r.end for r in regions], "kind": [r.kind for r in regions]}
