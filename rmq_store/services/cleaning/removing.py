"""Removing whole queues: those whose messages are all gone, and those of topics that nobody uses any more (RocketMQ:
cleanExpiredConsumerQueue, cleanUnusedTopic, deleteTopics).

A removed queue begins at offset 0 again, while older records of it may still be in the log. RocketMQ warns of the
consequence: if a recovery after a crash dispatches those again, the queue continues at the old offset, and newer messages with
lower offsets never get an entry. So config/removedQueues.json, which RocketMQ does not know, keeps how far the log was when a
queue was removed, and records below that place get no entry any more. The consumers' offsets of the queue are set back first,
and durably.

Thread-safety: any; calls take turns, as each writes anew what those before it have removed. Crash-safety: a queue is there
with all its files, or without some of the newest, or it is gone; what is left can be removed again.

A call that lacks something (descriptors, memory, room) before the bounds are written has removed nothing, and raises it. From
then on the queues are removed: nobody reads them, and files that cannot be deleted go when the want is over (_clean.deleting).
A process that ends before leaves them to the next open, which finds them by their bounds.
"""
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from rmq_store.access.waiting._wait import StoreWait
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.wants import is_want, want
from rmq_store.codec._layout import UNIT_FILLER
from rmq_store.errors import ArgumentIllegal, DiskFull, DurabilityError
from rmq_store.events import Event, emit
from rmq_store.fields import Fields
from rmq_store.services.cleaning import _clean
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.room import Consuming
from rmq_store.services.consumer.tables import OWN_TOPICS

__all__ = ["Bounds", "RemovedQueues", "bound_removed", "expired_queues", "finish_removals", "finish_removed", "is_system_topic",
           "remove_expired", "remove_mirrored", "remove_topics", "removed_queues"]

FILE = "removedQueues.json"
OFFSET_MAX, QUEUE_ID_MAX = (1 << 63) - 1, (1 << 31) - 1
SYSTEM = OWN_TOPICS | {"RMQ_SYS_SELF_TEST_TOPIC", "TBW102", "BenchmarkTest"}
COUNTED = frozenset(("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"))


Row = tuple[int, str, int, int, int]        # as _clean.queue_ends
Bounds = dict[tuple[str, int], int]         # (topic, queue id): no record below this log offset gets an entry


class RemovedQueues(Fields):
    """(topic, queue id) of what went; and of what stays: an open consumer has its topic, or messages came meanwhile. pending:
    of what went, queues whose files are still on the disk for want of something; the store deletes them by itself."""

    __slots__ = ("kept", "pending", "removed")

    def __init__(self, removed: Collection[tuple[str, int]] = ()) -> None:
        self.removed = list(removed)
        self.kept: list[tuple[str, int]] = []
        self.pending: list[tuple[str, int]] = []


def is_system_topic(topic: str) -> bool:
    """Topics that RocketMQ never takes for unused: its own, and light message queues (%LMQ%...)."""
    return topic in SYSTEM or topic.startswith(("rmq_sys_", "%LMQ%"))


def expired_queues(store: StoreWait, compacted: Collection[str] = ()) -> list[Row]:
    """Queues all of whose messages are deleted; never those of delayed messages and transactions, whose progress is counted in
    queue offsets, nor those of compaction topics, whose compaction logs have messages."""
    low = store.min_log_offset
    return [row for row in _clean.queue_ends(store) if row[3] <= low and row[1] not in COUNTED and row[1] not in compacted]


def remove_expired(store: StoreWait, consuming: Consuming, files: ControlFiles, compacted: Collection[str]) -> RemovedQueues:
    return _run(store, consuming, files, lambda done, before: _remove(
        store, consuming, files, expired_queues(store, compacted), done, before))


def remove_topics(store: StoreWait, consuming: Consuming, files: ControlFiles, topics: Iterable[str],
                  gone: Callable[[str, int], object]) -> RemovedQueues:
    """gone: called for each queue that was removed, also where the call then raises."""
    wanted = set(topics)
    return _run(store, consuming, files, lambda done, before: _remove_topics(
        store, consuming, files, wanted, done, before), gone, wanted)


def _run(store: StoreWait, consuming: Consuming, files: ControlFiles, remove: Callable[[RemovedQueues, Bounds], object],
         gone: Callable[[str, int], object] | None = None, wanted: Collection[str] = ()) -> RemovedQueues:
    """Deletion is what makes room, so where its own small files find none, they get what the store has kept for them. What was
    done before that is not done again: a removed queue is not found."""
    done = RemovedQueues()
    with consuming.removing:
        try:
            before = _known(store, ConfigFile(files, store.path, FILE))
            try:
                remove(done, before)
            except DiskFull:
                if not consuming.reserve.give():
                    raise
                done.kept.clear()
                remove(done, before)
        except OSError as error:
            if isinstance(error, DurabilityError) or not is_want(error):
                raise
            raise want(error.errno or 0, "removing queues", error.filename or store.path, "make the call again") from error
        finally:
            consuming.reserve.keep()
            if gone is not None:
                for queue in done.removed:
                    gone(*queue)
        pending = _clean.deleting(store)
        done.pending = sorted(queue for queue in pending if queue in done.removed or queue[0] in wanted)
    _tell(store, done)
    return done


def finish_removed(store: StoreWait, consuming: Consuming) -> None:
    """Deletes the files that a removal has left for want of something, and then the entries of topics with batch queues, which
    stay as long as these have files. Called again and again. Raises OSError, but for such a want."""
    _clean.delete_files(store)
    if consuming.unfinished:
        with consuming.removing:
            pending = {topic for topic, _ in _clean.deleting(store)}
            for topic, seen in list(consuming.unfinished.items()):
                if topic in pending:
                    continue
                del consuming.unfinished[topic]
                changed = consuming.topics.changes_since(seen)[1]
                if changed is not None and topic not in changed:    # else it was made anew meanwhile, or may have been
                    with suppress(ArgumentIllegal):     # messages came meanwhile: it stays
                        consuming.topics.remove(topic)


def _remove_topics(store: StoreWait, consuming: Consuming, files: ControlFiles, wanted: set[str], done: RemovedQueues,
                   before: Bounds) -> None:
    offsets, table = consuming.offsets, consuming.topics
    rows = _clean.topic_ends(store, wanted)
    _remove(store, consuming, files, rows, done, before)
    stay, pending = {topic for topic, _ in done.kept}, {topic for topic, _ in _clean.deleting(store)}
    for topic, group in offsets.table():
        if topic in wanted - stay:
            offsets.remove(group, topic)
    for topic in wanted - stay:
        try:
            table.remove(topic)
        except ArgumentIllegal:         # its batch queues need the entry: they have files still, or messages came meanwhile
            if topic in pending:
                consuming.unfinished[topic] = table.changes
                continue
            done.kept.extend((topic, queue_id) for _, other, queue_id, *_ in rows if other == topic)
    table.flush()
    offsets.flush()


def remove_mirrored(store: StoreWait, consuming: Consuming, files: ControlFiles, rows: list[tuple[int, str, int, int]]) -> None:
    """Removes queues of a slave as its master has: (number, topic, queue id, log offset of the record that begins it anew).
    Whoever reads them keeps reading. Durable. Raises OSError, CorruptionError, DurabilityError."""
    store._flush()
    with consuming.removing:
        _begin_at_zero(consuming, {(topic, queue_id) for _, topic, queue_id, _ in rows})
        file = ConfigFile(files, store.path, FILE)
        _save(file, _known(store, file) | {(topic, queue_id): at for _, topic, queue_id, at in rows})
        for number, _, _, at in rows:
            _clean.remove_queue(store, number, at)


def finish_removals(store: Any, files: ControlFiles, root: str, table: Any) -> None:
    """While a store opens: a queue that was to be removed, and has nothing that came later, goes. A crash was in between. The
    bound of a queue that stays as it was, as a message came before it was removed, is taken back, durably."""
    known, stay = removed_queues(files, root), []
    for (topic, queue_id), offset in known.items():
        name = topic.encode("utf-8", "surrogatepass")
        if 0 <= table.max_physical_offset(name, queue_id) <= offset:
            table.destroy(name, queue_id)
        elif not table.is_batched(name) and 0 <= _first_entry(table, name, queue_id) < offset:
            stay.append((topic, queue_id))
            _clean.note_removed(store, topic, queue_id, 0)
    if stay:
        _save(ConfigFile(files, root, FILE), {key: offset for key, offset in known.items() if key not in stay})


def _first_entry(table: Any, name: bytes, queue_id: int) -> int:
    """Log offset of the first message of a queue; -1: none."""
    at, end, _ = table.offsets(name, queue_id)
    while at < end and (entries := table.read(name, queue_id, at, end - at)):
        for physical, size, _ in entries:
            if size != UNIT_FILLER:
                return int(physical)
        at += len(entries)
    return -1


def removed_queues(files: ControlFiles, root: str) -> dict[tuple[str, int], int]:
    """What config/removedQueues.json says: log offset below which a queue was removed. Raises CorruptionError."""
    return ConfigFile(files, root, FILE).load(_take) or {}


def bound_removed(store: Any, files: ControlFiles, end: int) -> None:
    """While a store opens whose log ends at `end` now: what was removed is never a reason to give no entry to what is still to
    come. Durable. Raises CorruptionError, OSError."""
    known = removed_queues(files, store.path)
    beyond = {key for key, offset in known.items() if offset > end}
    if beyond:
        _save(ConfigFile(files, store.path, FILE), {key: min(offset, end) for key, offset in known.items()})
    for topic, queue_id in beyond:
        _clean.note_removed(store, topic, queue_id, end)


def _take(content: Any) -> dict[tuple[str, int], int]:
    found = {}
    for key, offset in content["removed"].items():
        topic, _, queue_id = key.rpartition("@")
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX:
            raise ValueError(f"offset of {key} is {offset!r}, no place in a log")
        if not 0 <= int(queue_id) <= QUEUE_ID_MAX:
            raise ValueError(f"{key} names queue {queue_id}, ids go from 0 to {QUEUE_ID_MAX}")
        found[topic, int(queue_id)] = offset
    return found


def _remove(store: StoreWait, consuming: Consuming, files: ControlFiles, rows: list[Row], done: RemovedQueues,
            before: Bounds) -> None:
    """before: the bounds before the first try. A try that failed may have written one for a queue that stays."""
    store._flush()       # what the bounds speak of is on the device before they are: else new messages may come to lie below
    consumed = consuming.topics_consumed()
    going = {(topic, queue_id): end for _, topic, queue_id, end, _ in rows if topic not in consumed}
    _begin_at_zero(consuming, going)
    file = ConfigFile(files, store.path, FILE)
    tried, begins = _known(store, file), _clean.begins_on_disk(store)
    known = before | {key: tried[key] for key in done.removed if key in tried}
    _save(file, known | going)
    for number, topic, queue_id, end, following in rows:
        gone = (topic, queue_id) in going and _clean.remove_queue(store, number, end, following)
        (done.removed if gone else done.kept).append((topic, queue_id))
    pending = _clean.deleting(store)
    if done.kept or any(end <= begins for end in going.values()):
        _save(file, known | {key: end for key, end in going.items()
                             if key in pending or (key in done.removed and end > begins)})


def _begin_at_zero(consuming: Consuming, queues: Collection[tuple[str, int]]) -> None:
    """Sets the groups' offsets of these queues to 0. Durable."""
    offsets = consuming.offsets
    for (topic, group), found in offsets.table().items():
        for queue_id, offset in found.items():
            if offset > 0 and (topic, queue_id) in queues:
                offsets.commit(group, topic, queue_id, 0)
    offsets.flush()


def _known(store: StoreWait, file: ConfigFile) -> dict[tuple[str, int], int]:
    """What counts still: the log has records below it, or would have them if it were opened again now; or the queue has files
    still."""
    begins, pending = _clean.begins_on_disk(store), _clean.deleting(store)
    return {key: end for key, end in (file.load(_take) or {}).items() if end > begins or key in pending}


def _save(file: ConfigFile, known: dict[tuple[str, int], int]) -> None:
    if known or os.path.exists(file.path):
        file.save({"removed": {f"{topic}@{queue_id}": end for (topic, queue_id), end in sorted(known.items())}})


def _tell(store: StoreWait, done: RemovedQueues) -> None:
    if done.removed:
        emit(Event.QUEUES_REMOVED, path=store.path, count=len(done.removed), kept=len(done.kept),
             topics=", ".join(sorted({topic for topic, _ in done.removed})))
