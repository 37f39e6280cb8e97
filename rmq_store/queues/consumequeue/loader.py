"""Finds the queues of a store on the disk (RocketMQ: loadConsumeQueue, MappedFileQueue.load).

    <dir>/<topic>/<queue id>/<20 digits>     each file of one size, without gaps

The opening thread runs it once, before recovery. What is not of this shape was not made by a store: it is left alone, with a
warning. A file of the right name and the wrong size is an error, except the last one when it is empty: a crash between making
and sizing it leaves that; 5.x removes it, and so does `remove_empty`, once the store is marked as open.

There may be a hundred thousand queues. Topics in which everything is of this shape are listed natively; what follows here name
by name is for the others, so whatever is said about a file is said here.
"""
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

from rmq_store.errors import CorruptionError, StoreRefusesToLoad, foreign
from rmq_store.events import Event, emit
from rmq_store.fields import NamedTuple
from rmq_store.queues.consumequeue._owner import QueueTableOwner

__all__ = ["Emptied", "batch_dirs", "load_batch_queues", "load_queues", "queue_dirs", "remove_empty"]

_TOPIC = partial(re.fullmatch, rb"[%|A-Za-z0-9_-]+")
_QUEUE_ID = partial(re.fullmatch, rb"0|[1-9][0-9]{0,9}")
_FILE = partial(re.fullmatch, rb"[0-9]{20}")
_QUEUE_ID_MAX = 0x7FFFFFFF
TOPICS_AT_ONCE = 1024
_OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


class Emptied(NamedTuple):
    """A queue whose last file is empty, and that file."""

    topic: bytes
    queue_id: int
    path: bytes


@contextmanager
def _text_paths() -> Iterator[None]:
    """An OSError names its file in text, as those of all other rooms do: what is listed here has names of bytes."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, bytes):
            error.filename = os.fsdecode(error.filename)
        raise


@_text_paths()
def load_queues(table: QueueTableOwner, on_damage: Callable[[CorruptionError], None] | None = None) -> list[Emptied]:
    """Tells `table` of every queue in its directories; they still have to be recovered. Returns those whose last file is empty:
    after a crash that is nothing, in a store that was closed in order its entries are gone. The table does not have that file,
    which is still there.

    on_damage: is given the CorruptionError of a queue, which is then left out.
    A missing directory holds no queues. Raises CorruptionError (path, expected, found) for a file of another size and for a gap
    between files, OSError where a directory cannot be read.
    """
    ext: dict[tuple[bytes, int], bytes] = {}
    if table.ext_file_size > 0 and table.ext_dir:
        ext = {(topic, queue_id): path for topic, queue_id, path in queue_dirs(os.fsencode(table.ext_dir))}
    emptied: list[Emptied] = []
    for topic, queue_id, path in _queues_in(_odd_topics(table)):
        try:
            beside = ext.get((topic, queue_id))
            ext_starts = [] if beside is None else _files(beside, "consumequeue_ext_file_size_bytes", table.ext_file_size)[0]
            starts, empty = _whole(table, path)
            if empty is not None:
                emptied.append(Emptied(topic, queue_id, empty))
            if table.add_queue(topic, queue_id, starts, ext_starts) >= 0:
                _refuse_gap(os.fsdecode(path), starts, table.file_size)
                _refuse_gap(f"{table.ext_dir}/{os.fsdecode(topic)}/{queue_id}", ext_starts, table.ext_file_size)
        except CorruptionError as error:
            if on_damage is None:
                raise
            on_damage(error)
    return emptied


@_text_paths()
def batch_dirs(directory: str) -> set[bytes]:
    """The topics that have queues under `directory`, consumequeue/ or batchconsumequeue/."""
    return {topic for topic, _, _ in _queues_in(_topic_dirs(os.fsencode(directory)))}


@_text_paths()
def load_batch_queues(table: QueueTableOwner, directory: str, file_size: int, topics: Iterable[bytes],
                      on_damage: Callable[[CorruptionError], None] | None = None) -> None:
    """Tells `table` of the topics that have batch queues, and of these queues, which lie in `directory`: before load_queues.

    As load_queues. Raises StoreRefusesToLoad, too, where a directory has queues of a topic whose queues are of the other kind:
    so does RocketMQ (ConsumeQueueStore.queueTypeShouldBe). An empty last file is deleted where the table is writable."""
    wanted = set(topics)
    found = list(queue_dirs(os.fsencode(directory)))
    others = {topic for topic in wanted if os.path.isdir(os.path.join(os.fsencode(table.dir), topic))}
    for topic, _, path in [*(row for row in found if row[0] not in wanted),
                           *(_queues_in(t for t in _topic_dirs(os.fsencode(table.dir)) if t.name in others) if others else ())]:
        if not any(name.isdigit() for name in os.listdir(path)):        # a kill left it behind: its queue was removed
            continue
        error = StoreRefusesToLoad(os.fsdecode(path), None, f"queues of {os.fsdecode(topic)} as its attribute queue.type in "
                                   "config/topics.json says (" + ("BatchCQ" if topic in wanted else "SimpleCQ") + ")",
                                   "a queue of the other kind")
        error.cure = ("give the topic back its queue.type in config/topics.json, or restore that file from a copy of the "
                      "store; "
                      "if the queue does not belong to the store, move it away")
        if on_damage is None:
            raise error
        on_damage(error)
    if not wanted:
        return
    table.batched(directory, file_size, wanted)
    for topic, queue_id, path in found:
        if topic not in wanted:
            continue
        try:
            starts, empty = _files(path, "batch_consumequeue_file_size_bytes", file_size)
            _refuse_gap(os.fsdecode(path), starts, file_size)
            table.add_queue(topic, queue_id, starts)
            if empty is not None and not table.readonly:
                remove_empty(table, [Emptied(topic, queue_id, empty)])
        except CorruptionError as error:
            if on_damage is None:
                raise
            on_damage(error)


def _odd_topics(table: QueueTableOwner) -> Iterator["os.DirEntry[bytes]"]:
    """Topics to look at name by name; the table is told of the others, some at a time, so that the names of a hundred thousand
    are never all in memory."""
    topics = _topic_dirs(os.fsencode(table.dir))
    if table.ext_file_size > 0:
        yield from topics
    while some := list(islice(topics, TOPICS_AT_ONCE)):
        linked = {topic.name for topic in some if topic.is_symlink()}
        odd = set(table.add_plain([topic.name for topic in some if topic.name not in linked], _highest(table.file_size)))
        yield from (topic for topic in some if topic.name in odd or topic.name in linked)


def _whole(table: QueueTableOwner, path: bytes) -> tuple[list[int], bytes | None]:
    """_files of one queue, without a gap. A listing is of no one moment: files that another process makes and deletes meanwhile
    may look like damage, but not twice like the same one. Raises CorruptionError."""
    said = ""
    while True:
        try:
            starts, empty = _files(path, "consumequeue_file_size_bytes", table.file_size)
            _refuse_gap(os.fsdecode(path), starts, table.file_size)
            return starts, empty
        except CorruptionError as error:
            if not table.readonly or str(error) == said:
                raise
            said = str(error)


def queue_dirs(base: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """The queues that have a directory under `base`: topic, queue id, path. Raises OSError."""
    with _text_paths():
        yield from _queues_in(_topic_dirs(base))


def _topic_dirs(base: bytes) -> Iterator["os.DirEntry[bytes]"]:
    try:
        entries = os.scandir(base)
    except FileNotFoundError:
        return
    with entries:
        for topic in entries:
            if topic.is_dir() and _TOPIC(topic.name):
                yield topic
            else:
                _leave(topic.path, "it is not the directory of a topic")


def _queues_in(topics: Iterable["os.DirEntry[bytes]"]) -> Iterator[tuple[bytes, int, bytes]]:
    for topic in topics:
        for entry in _entries(topic.path):
            name = entry.name
            if not _QUEUE_ID(name) or int(name) > _QUEUE_ID_MAX or not entry.is_dir():
                _leave(entry.path, "it is not the directory of a queue")
                continue
            yield topic.name, int(name), entry.path


def _entries(path: bytes) -> list["os.DirEntry[bytes]"]:
    """What is in a directory; nothing in one that was removed meanwhile."""
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def remove_empty(table: QueueTableOwner, emptied: Iterable[Emptied]) -> None:
    """Deletes the files that load_queues found empty. Raises OSError."""
    for queue in emptied:
        table.remove_file(queue.path)
        emit(Event.QUEUE_FILE_REMOVED, file=os.fsdecode(queue.path))


def _files(path: bytes, option: str, size: int) -> tuple[list[int], bytes | None]:
    """Start offsets of the files of one queue, ascending; the path of an empty one behind them."""
    found = []
    for entry in _entries(path):
        name = entry.name
        if not _FILE(name) or int(name) > _OFFSET_MAX or not entry.is_file(follow_symlinks=False):
            _leave(entry.path, "it is not a file of a queue")
            continue
        try:
            found.append((int(name), entry.stat(follow_symlinks=False).st_size, entry.path))
        except FileNotFoundError:           # deleted meanwhile, by a writer in another process
            continue
    found.sort()
    empty = found.pop()[2] if found and found[-1][1] == 0 else None
    for _, length, file in found:
        if length != size:
            raise foreign(os.fsdecode(file), f"{size} bytes, as {option} says", f"{length} bytes")
    return [start for start, _, _ in found], empty


def _refuse_gap(path: str, starts: list[int], size: int) -> None:
    expected = starts[0] if starts else 0
    if size and expected % size:
        raise CorruptionError(f"{path}/{expected:020d}", None, f"a multiple of {size} in the name", str(expected))
    for start in starts:
        if start != expected:
            raise CorruptionError(f"{path}/{start:020d}", None, f"file {expected:020d} before it", "a gap")
        expected += size
    if starts and starts[-1] > (highest := _highest(size)):
        raise CorruptionError(f"{path}/{starts[-1]:020d}", None, f"at most {highest} as name", f"{starts[-1]}")


def _highest(size: int) -> int:
    """The last place of a file: one behind it has room below what entries_have_place takes. Else puts would get queue offsets
    that no entry can have."""
    return _OFFSET_MAX - 22 * size


def _leave(path: bytes, reason: str) -> None:
    if not os.path.lexists(path):
        return                              # gone, whatever it was
    emit(Event.FOREIGN_FILE_SKIPPED, file=os.fsdecode(path), reason=reason)
