"""The view of compaction logs: the messages in them, which the log of the store may have no more. In the workers."""
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.codec._codec import Blank, decode_record
from rmq_store.errors import CorruptionError
from rmq_store.services.compaction import files as disk
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.view_columns import VIEWS

__all__ = ["compaction_rows"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS, _BYTES = 4096, 16 << 20      # of one batch


def compaction_rows(task: Any, options: ReadOptions) -> Iterator[dict[str, Any]]:
    """Messages of the queues of one task, in the order of their offsets. Raises CorruptionError unless onCorrupt says
    otherwise, OSError."""
    files = ControlFiles(IoTable())
    rows: dict[str, list[Any]] = {name: [] for name in VIEWS["compaction"]}
    size = 0
    for topic, queue_id in task.what:
        places = disk.Places(task.broker.root, topic, queue_id)
        if os.path.exists(places.unfed):        # its values may be old
            continue
        for record in _records(files, places, options):
            for name, value in _row(task.broker.name, record).items():
                rows[name].append(value)
            size += len(record.body)
            if len(rows["topic"]) == _ROWS or size > _BYTES:
                yield rows
                rows, size = {name: [] for name in rows}, 0
    yield rows


def _records(files: ControlFiles, places: disk.Places, options: ReadOptions) -> Iterator[Any]:
    segments = disk.load(files, places, 230, 46, True)
    for pair in range(segments.pair_count):
        start, count, _, _ = segments.pair(pair)
        for index in range(count):
            raw = segments.raw(pair, index)
            record = None if raw is None else decode_record(raw, path=places.log)
            if record is not None and not isinstance(record, Blank):
                yield record
            elif options.on_corrupt == "fail":
                raise CorruptionError(os.path.join(places.log, f"{start:020d}"), None, "the record of each entry",
                                      f"something else at entry {index}")


def _row(broker: str, record: Any) -> dict[str, Any]:
    return {"brokerName": broker, "topic": record.topic, "queueId": record.queue_id, "queueOffset": record.queue_offset,
            "keys": record.properties.get("KEYS"), "tags": record.properties.get("TAGS"), "body": bytes(record.body),
            "properties": list(record.properties.items()), "bornTimestamp": _moment(record.born_timestamp),
            "storeTimestamp": _moment(record.store_timestamp), "flag": record.flag, "sysFlag": record.sys_flag,
            "reconsumeTimes": record.reconsume_times, "bodyCrc": record.body_crc, "storeSize": record.size}


def _moment(milliseconds: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
