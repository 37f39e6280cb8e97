"""Consume queues rebuilt from the log: map-only, because an entry's place is its record's queueOffset.

Tasks write disjoint slots of new files in a directory of this run; the driver closes it to attempts that are late by renaming
it, checks that the parts met and that no queue has a hole or two records for one place, writes the fillers before a queue's
first message, gives each file the time of its newest message, syncs, and swaps the directories under the store's lock.
Queues that were removed on purpose (rmq_store.services.cleaning.removing) begin where they began anew.
"""
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rmq_store.access.bulk._queues import record_time
from rmq_store.access.bulk._rebuild import queue_part
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec._layout import UNIT_AT_PHYSICAL_OFFSET, UNIT_AT_SIZE, UNIT_FILLER, UNIT_SIZE
from rmq_store.codec.layout import get64
from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.log.recovery import lockfile
from rmq_store.services.cleaning.removing import removed_queues
from rmq_store.spark.identity import Identity
from rmq_store.spark.jobs.pieces import PART_SIZE, check_chain, check_log, reached, seen, store_with_log, whole_log
from rmq_store.spark.leftovers import drop, sync, work_directory
from rmq_store.spark.schema import arrow_schema
from rmq_store.spark.stores import Broker, LogFile, log_files, queue_files, queues

__all__ = ["RebuiltQueues", "rebuild_queues"]

COLUMNS = {"path": "STRING", "begin": "BIGINT", "first": "BIGINT", "position": "BIGINT", "topic": "STRING", "queueId": "INT",
           "low": "BIGINT", "high": "BIGINT", "entries": "BIGINT"}
_SYNCS = 16
_FILLER = UNIT_FILLER.to_bytes(UNIT_AT_SIZE + 4, "big").ljust(UNIT_SIZE, b"\0")


@dataclass(frozen=True)
class RebuiltQueues:
    """What a rebuild made. directory: where the queues are now."""

    directory: str
    queues: int
    entries: int


def plan(arguments: dict[str, Any]) -> list[Any]:
    return list(arguments["pieces"])


def work(part: Any, arguments: dict[str, Any]) -> Iterator[Any]:
    import pyarrow as pa

    rows, first, position = queue_part(seen(part), arguments["directory"], arguments["fileSize"], removed=arguments["removed"])
    reached(part, position)
    place = {"path": part[1], "begin": part[3], "first": first, "position": position}
    made = [{**place, "topic": t, "queueId": q, "low": low, "high": high, "entries": n} for t, q, low, high, n in rows]
    yield pa.RecordBatch.from_pylist(made or [place], schema=arrow_schema(COLUMNS))


def rebuild_queues(spark: Any, root: str, install: bool = False, split_size: int = PART_SIZE,
                   file_size: int | None = None, commitlog_path: Any = None) -> RebuiltQueues:
    """Makes the consume queues of the store at `root` from its log.

    commitlog_path: the directories of the log where it is not in the root, or in several: text with commas between them, or a
    sequence of paths. All have to be there; files between others as well. If the oldest files are lost, the queues begin later,
    as after cleaning: nothing on the disk tells the one from the other.
    install=False leaves them in <root>/.spark/rebuild/consumequeue; True puts them in place, under the store's lock, and what
    was there into <root>/.spark/replaced-<time>. What config/removedQueues.json says was removed stays away. Raises
    CorruptionError (damage in the log or that file, or a queue whose offsets have holes or doubles: such a store wants
    recovery), LogDirectoryMissing, StoreLocked, ConfigError (a store with extension files).
    """
    from rmq_store.spark.jobs.run import collect

    if os.path.isdir(os.path.join(root, "consumequeue_ext")):
        raise ConfigError(f"{root} has consume-queue extension files, which hold what a log does not: they cannot be rebuilt")
    store = store_with_log(root, commitlog_path)
    place = os.path.join(store.root, ".spark", "rebuild")
    target = os.path.join(place, "consumequeue")
    size = file_size or present_file_size(root)
    removed = [(topic, queue_id, below) for (topic, queue_id), below in removed_queues(ControlFiles(IoTable()), root).items()]
    pieces, known = whole_log(store, split_size)
    with work_directory(place, "consumequeue") as work:
        rows = collect(spark, "rebuild_queues", {"pieces": pieces, "directory": work, "fileSize": size, "removed": removed})
        check_chain({(r.path, r.begin, r.first, r.position) for r in rows})
        found = _chained(rows)
        check_log(store, known)
        drop(target)
        os.rename(work, target)
    logs = log_files(store)
    for (topic, queue_id), (low, high) in found.items():
        directory = os.path.join(target, topic, str(queue_id))
        _fillers(directory, low, size)
        _times(directory, high, logs)
    _sync_all(target)
    directory = target
    if install:
        directory = put_in_place(store, known, target, "consumequeue")
    return RebuiltQueues(directory, len(found), sum(high - low + 1 for low, high in found.values()))


def _chained(rows: list[Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """The first and last offset of each queue. Parts have no hole and no double in them; raises CorruptionError where one is
    between them."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for row in sorted((row for row in rows if row.topic is not None), key=lambda row: int(row.first)):
        queue = row.topic, row.queueId
        low, high = found.get(queue, (row.low, row.low - 1))
        if row.low != high + 1:
            raise CorruptionError(row.path, row.first, f"queue offset {high + 1} of {row.topic}/{row.queueId} from there on",
                                  row.low)
        found[queue] = low, row.high
    return found


def present_file_size(root: str) -> int:
    """Bytes of the consume-queue files that are there; RocketMQ's 6,000,000 where there is none."""
    for _, _, directory in queues(root):
        for _, _, size in queue_files(directory):
            return size
    return 6_000_000


def _fillers(directory: str, low: int, file_size: int) -> None:
    """What dispatch writes before the first message of a queue that does not begin at 0."""
    begin = low * UNIT_SIZE - low * UNIT_SIZE % file_size
    if begin < low * UNIT_SIZE:
        with open(os.path.join(directory, f"{begin:020d}"), "r+b", opener=open_regular) as file:
            file.write(_FILLER * (low - begin // UNIT_SIZE))


def _times(directory: str, high: int, logs: list[LogFile]) -> None:
    """RocketMQ 4.9 finds the queue file of a time by when files were modified: after their newest message was stored."""
    for start, path, size in queue_files(directory):
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            newest = os.pread(file.fileno(), UNIT_SIZE, min(high * UNIT_SIZE, start + size - UNIT_SIZE) - start)
        offset = get64(newest, UNIT_AT_PHYSICAL_OFFSET)
        log = next((f for f in logs if f.start <= offset < f.end), None)        # None: cleaned meanwhile
        stored = None if log is None else record_time(log.path, offset - log.start)
        if stored is not None:
            os.utime(path, ns=(stored * 1_000_000, stored * 1_000_000))


def put_in_place(store: Broker, known: Identity, made: str, name: str) -> str:
    """Swaps a directory of a store for a new one, under the store's lock; returns its path. known: which log it was made of."""
    files, root = ControlFiles(IoTable()), store.root
    place = os.path.join(root, name)
    lock = lockfile.acquire(files, root)
    try:
        check_log(store, known)
        sync(made)
        if os.path.isdir(place):
            os.rename(place, os.path.join(root, ".spark", f"replaced-{name}-{time.time_ns()}"))
        os.rename(made, place)
        sync(root)
        sync(os.path.join(root, ".spark"))
    finally:
        lockfile.release(files, lock)
    return place


def _sync_all(directory: str) -> None:
    """A directory with all that is in it, many at once: a device, or a server, makes several durable in the time of one."""
    paths = [os.path.join(place, name) for place, _, names in os.walk(directory) for name in [*names, ""]]
    with ThreadPoolExecutor(_SYNCS) as threads:
        for _ in threads.map(sync, paths):
            pass
