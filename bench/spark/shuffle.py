"""Consume queues made without a native call a part: every message's row goes through the JVM, a shuffle by queue and a sort,
and a sink writes the queue files. What the rebuild job stands beside: the same files, byte for byte, and as durable.

Both planes are as fast as this way allows: only the columns that an entry needs are read, rows come and go as Arrow batches,
and the sink turns whole batches into entries. Messages of delay levels, whose code is a time, are not for this.
"""
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from rmq_store.codec._codec import tags_code
from rmq_store.spark import scan

UNIT, FILE_SIZE = 20, 6_000_000
FIELDS = (("physicalOffset", 8, 0), ("storeSize", 4, 8), ("tagsCode", 8, 12))     # name, bytes, place in an entry
QUEUE = ["topic", "queueId"]


def rows(spark: Any, root: str) -> Any:
    """What entries are made of, each queue in one partition and in order."""
    return (scan(spark, root, [*QUEUE, "queueOffset", "physicalOffset", "storeSize", "tags"])
            .repartition(*QUEUE).sortWithinPartitions(*QUEUE, "queueOffset"))


def rebuild(spark: Any, root: str, target: str) -> None:
    """Writes the queue files of the store at `root` under `target`, a directory that is there."""
    spark.dataSource.register(QueueSink)
    rows(spark, root).write.format("bench_queues").mode("append").save(target)


def entries(batch: Any, begin: int, count: int) -> bytearray:
    """Rows of a batch as queue entries: big-endian, 20 bytes each. Byte by byte of all rows at once."""
    made = bytearray(count * UNIT)
    for name, width, place in FIELDS:
        column = batch.column(name).slice(begin, count)
        data = memoryview(column.buffers()[1])[column.offset * width:(column.offset + count) * width]
        for byte in range(width):
            made[place + byte::UNIT] = data[width - 1 - byte::width]
    return made


def with_codes(batch: Any) -> Any:
    """The batch with the hash of each row's tags."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tags = batch.column("tags").dictionary_encode()
    codes = pa.array([tags_code(text) for text in tags.dictionary.to_pylist()], pa.int64())
    return batch.append_column("tagsCode", pc.fill_null(codes.take(tags.indices), 0))


def runs(batch: Any) -> Iterator[tuple[int, int]]:
    """(first row, rows) of each queue in a sorted batch."""
    import pyarrow.compute as pc

    ends = sorted({end for name in QUEUE for end in pc.run_end_encode(batch.column(name)).run_ends.to_pylist()})
    for begin, end in zip([0, *ends], ends, strict=False):
        yield begin, end - begin


class QueueFiles:
    """The files of one task, open until they are synced."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.open: dict[str, int] = {}

    def add(self, topic: str, queue_id: int, position: int, data: bytearray) -> None:
        """Writes entries from `position` on, a byte of the queue."""
        while data:
            start = position - position % FILE_SIZE
            size = min(len(data), start + FILE_SIZE - position)
            os.pwrite(self._file(os.path.join(self.target, topic, str(queue_id), f"{start:020d}")), data[:size],
                      position - start)
            data, position = data[size:], position + size

    def _file(self, path: str) -> int:
        if path not in self.open:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self.open[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(self.open[path], FILE_SIZE)
        return self.open[path]

    def close(self) -> None:
        """Syncs and closes them."""
        for fd in self.open.values():
            os.fsync(fd)
            os.close(fd)


class QueueWriter(DataSourceArrowWriter):
    """Tasks write and sync the files; the commit syncs the directories."""

    def __init__(self, target: str) -> None:
        self.target = target

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        files = QueueFiles(self.target)
        for batch in map(with_codes, iterator):
            for begin, count in runs(batch):
                topic, queue_id, first, last = (batch.column(name)[row].as_py() for name, row in (
                    ("topic", begin), ("queueId", begin), ("queueOffset", begin), ("queueOffset", begin + count - 1)))
                assert last - first + 1 == count, f"{topic}/{queue_id} has holes or doubles"
                files.add(topic, queue_id, first * UNIT, entries(batch, begin, count))
        files.close()
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        for place in (Path(self.target), *(p for p in Path(self.target).rglob("*") if p.is_dir())):
            fd = os.open(place, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


class QueueSink(DataSource):
    """`bench_queues`: rows() as queue files under the path."""

    @classmethod
    def name(cls) -> str:
        return "bench_queues"

    def writer(self, schema: Any, overwrite: bool) -> QueueWriter:
        return QueueWriter(self.options["path"])
