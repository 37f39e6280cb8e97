"""How far each group has consumed each queue: config/consumerOffset.json (RocketMQ: ConsumerOffsetManager).

    {"offsetTable":{"topic@group":{queueId:next offset to consume,…},…}}       5.x adds "dataVersion"

Commits are kept in memory and written every offsets_flush_interval_ms and when the store closes, as RocketMQ does; `flush`
writes them at once, once for all who wait. After a crash a group therefore meets again what it consumed since the last write,
and misses nothing: the log is flushed before the offsets are written, so that no written offset, and no retry that it stands
for, is ahead of what the device has. Where consumers are, a thread of its own writes, which no cleaning holds up.
Thread-safety: every method, one lock. A broker's network thread reads and sets offsets that are there without it (`rows`).
Fork: belongs to the store.
"""
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import ArgumentIllegal, StoreClosed, StoreNotWriteable
from rmq_store.events import Event, emit
from rmq_store.services.consumer._offsets import OffsetCell, OffsetRows
from rmq_store.services.consumer.config_file import ConfigFile

__all__ = ["ConsumerOffsets", "next_version"]

NAME = "consumerOffset.json"
# topic, group -> queue id -> next offset
Table = dict[tuple[str, str], dict[int, int]]
_MAX, QUEUE_ID_MAX = (1 << 63) - 1, (1 << 31) - 1


class ConsumerOffsets:
    """The offsets of all groups of one store."""

    def __init__(self, file: ConfigFile, *, compat: str, readonly: bool,
                 flush_log: Callable[[], object] = lambda: None) -> None:
        self._file = file
        self._readonly = readonly
        self._flush_log = flush_log
        self._lock = StoreLock(file.path, file.name)
        self._write_lock = StoreLock(file.path, "writing " + file.name)     # taken first; commits do not wait for the device
        self.rows = OffsetRows()                # what native threads see
        self._cells: dict[tuple[str, str], dict[int, OffsetCell]] = {}
        self.most: int | None = None            # of a broker: offsets that commits may make; None for any number
        self._count = 0                         # cells,
        self._light_count = 0                   # and of them those of light queues
        self._more: dict[str, Any] = {}         # what else the file holds: kept as it is
        self._versioned = compat == "5.x"
        self._dirty = self._ended = False
        self._begun = self._written = 0         # writes, and the last one that ended well
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._load()

    def _load(self) -> None:
        self._fill(self._file.load(self._take))

    def _fill(self, found: tuple[Table, dict[str, Any]] | None) -> None:
        if found is None:
            return
        table, self._more = found
        for key, queues in table.items():
            self._cells[key] = {}
            for queue_id, offset in queues.items():
                self._cell(key, queue_id).set(offset)

    def _cell(self, key: tuple[str, str], queue_id: int) -> OffsetCell:
        queues = self._cells.setdefault(key, {})
        found = queues.get(queue_id)
        if found is None:
            topic, group = key
            self._add(key, 1)
            found = queues[queue_id] = self.rows.cell(group, topic, queue_id)
        return found

    def _add(self, key: tuple[str, str], cells: int) -> None:
        self._count += cells
        self._light_count += cells if self._is_light(key) else 0

    def _is_light(self, key: tuple[str, str]) -> bool:
        """Whether clients can make up the topic or the group of such an offset: no table has their names."""
        return False

    def _refuse_more(self, key: tuple[str, str], queue_id: int) -> None:
        topic, group = key
        light = self._is_light(key)
        if self.most is None or queue_id in self._cells.get(key, {}):
            return
        if light and self._light_count >= self.most // 2:       # the other half is for groups and topics that tables name
            what, limit = "offsets of light queues and their groups", self.most // 2
        elif self._count >= self.most:
            what, limit = "offsets", self.most
        else:
            return
        raise ArgumentIllegal(f"the offset of group {group:.255} in queue {queue_id} of {topic:.255} is not kept: the limit is "
                              f"{limit} {what}; delete groups that nobody uses, with their offsets")

    def _now(self) -> Table:
        """Without the queues whose offsets were removed."""
        found: Table = {}
        for key, cells in self._cells.items():
            queues = {queue_id: offset for queue_id, cell in cells.items() if (offset := cell.offset) is not None}
            if queues or not cells:         # a file may have a group of no queue
                found[key] = queues
        return found

    # ---- one queue

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets the next offset of `group` to queue offset `offset`. A lower offset is allowed; the group then consumes again.

        Raises ValueError for names and numbers that the file cannot hold, and for one offset more than `most`, of which light
        queues and their groups have half; StoreNotWriteable on a read-only store.
        """
        if self._readonly:
            raise StoreNotWriteable(self._file.path)
        _check_name("group", group)
        _check_name("topic", topic)
        for what, number, high in (("queue_id", queue_id, QUEUE_ID_MAX), ("offset", offset, _MAX)):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= high:
                raise ArgumentIllegal(f"{what} is {number!r}: give a number from 0 to {high}")
        with self._lock:
            self._refuse_more((topic, group), queue_id)
            if self._cell((topic, group), queue_id).set(offset):
                self._dirty = True

    def take_over(self, content: Any) -> int:
        """Sets the offsets that `content`, the shape of the file, names, as a master told them; others stay. Returns how many
        changed. Durable with the next flush. Raises ValueError. RocketMQ: SlaveSynchronize.syncConsumerOffset."""
        if self._readonly:
            raise StoreNotWriteable(self._file.path)
        try:
            table, _ = _take(content)
        except (AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"the offsets have another shape: {error!r}") from None
        changed = 0
        with self._lock:
            for key, queues in table.items():
                for queue_id, offset in queues.items():
                    changed += bool(self._cell(key, queue_id).set(offset))
            self._dirty = self._dirty or changed > 0
        return changed

    def turn_back(self, end_of: Callable[[str, int], int | None]) -> list[tuple[str, str, int, int, int]]:
        """Sets offsets beyond the end of their queue to that end: end_of(topic, queue id), None for a queue that stays. Returns
        (group, topic, queue id, offset before, end), sorted. What names no queue or no group stays: nobody reads there. Durable
        with the next flush."""
        moved = []
        with self._lock:
            for (topic, group), queues in self._now().items():
                for queue_id, offset in queues.items():
                    if not topic or not group or "@" in group or not 0 <= queue_id <= QUEUE_ID_MAX:
                        continue
                    if (end := end_of(topic, queue_id)) is not None and offset > end:
                        self._cell((topic, group), queue_id).set(end)
                        moved.append((group, topic, queue_id, offset, end))
            self._dirty = self._dirty or bool(moved)
        return sorted(moved)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the next queue offset of `group`; -1 if the group has committed no offset."""
        with self._lock:
            cell = self._cells.get((topic, group), {}).get(queue_id)
            offset = None if cell is None else cell.offset
        return -1 if offset is None else offset

    # ---- all

    def table(self) -> Table:
        """Returns a copy of all offsets: {(topic, group): {queue id: next offset}}."""
        with self._lock:
            return self._now()

    def groups(self) -> list[str]:
        """Returns the names of the groups with committed offsets, sorted."""
        with self._lock:
            return sorted({group for _, group in self._now()})

    def topics(self, group: str) -> list[str]:
        """Returns the topics with committed offsets of `group`, sorted."""
        with self._lock:
            return sorted(topic for topic, name in self._now() if name == group)

    def remove(self, group: str, topic: str | None = None) -> int:
        """Deletes the offsets of a group, or only those of one topic. Returns the number of queues."""
        if self._readonly:
            raise StoreNotWriteable(self._file.path)
        with self._lock:
            keys = [key for key in self._cells if key[1] == group and topic in (None, key[0])]
            count = sum(self._remove(key) for key in keys)
            self._dirty = self._dirty or bool(keys)
        return count

    def _remove(self, key: tuple[str, str]) -> int:
        """How many queues had an offset. A cell that native threads know stays, without one."""
        cells = self._cells.pop(key)
        count = sum(cell.take() for cell in cells.values())
        kept = {queue_id: cell for queue_id, cell in cells.items() if cell.shared}
        self._add(key, len(kept) - len(cells))
        if kept:
            self._cells[key] = kept
        return count

    def flush(self, *, since: int | None = None) -> None:
        """Writes the committed offsets; they are durable when it returns. Calls that wait for the same write share it. Raises
        OSError, StoreClosed: then the offsets stay in memory, and the next flush writes them. since: of `mark`; what was
        committed before that is written."""
        if not self._readonly:
            mark = self.mark() if since is None else since
            with self._write_lock:
                if self.covers(mark):
                    return          # by a write that began while this call waited
                if (self._dirty or self.rows.changed) and self._ended:
                    raise StoreClosed(self._file.path)
                self._write(self._flush_log)

    def mark(self) -> int:
        """Stands for what is committed now, for `flush` and `covers`."""
        with self._lock:
            return self._begun

    def covers(self, mark: int) -> bool:
        """Whether what was committed before `mark` was taken is on the device, by a write that began later."""
        return self._written > mark

    def keep_written(self, interval_ms: int) -> None:
        """Starts the thread that writes every so many ms. The control thread of the store writes, too, but not while it deletes
        files; so if the system gives no thread, only a long round of cleaning delays a write."""
        with self._lock:
            if self._thread is not None or self._readonly or self._ended:
                return
            try:
                self._thread = start_thread(lambda: self._keep(interval_ms / 1000), "rmq-offsets")
            except OSError:
                pass

    def _keep(self, interval_s: float) -> None:
        failed = ""
        while not self._stop.wait(interval_s):
            try:
                self.flush()
                failed = ""
            except StoreClosed:
                return
            except Exception as error:      # it is written the next time
                if str(error) != failed:
                    failed = str(error)
                    emit(Event.TASK_FAILED, task="writing consumer offsets", path=self._file.path, error=failed)

    def end(self, write: bool) -> None:
        """The store closes, its log is flushed: the last write, if any; the directory may be another process's from then on."""
        self._stop.set()
        with self._write_lock:
            try:
                if write and not self._readonly:
                    self._write(lambda: None)
            finally:
                self._ended = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _write(self, flush_log: Callable[[], object]) -> None:
        try:
            with self._lock:
                self._begun = number = self._begun + 1
                if not self.rows.take_changed() and not self._dirty:
                    self._written = number
                    return
                self._dirty = False
                table = {f"{topic}@{group}": queues for (topic, group), queues in self._now().items()}
            flush_log()             # after the offsets were read: what they stand for was put before
            content = dict(self._more)
            if self._versioned:
                content["dataVersion"] = next_version(content.get("dataVersion"))
            self._file.save(dict(sorted((content | self._tables(table)).items())))
        except BaseException:
            self._dirty = True
            raise
        self._more, self._written = content, number

    # ---- the shape of the file

    def _tables(self, table: dict[str, dict[int, int]]) -> dict[str, Any]:
        """The keys of the file that hold offsets."""
        return {"offsetTable": table}

    def _take(self, content: Any) -> tuple[Table, dict[str, Any]]:
        return _take(content)


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name or "@" in name:
        raise ArgumentIllegal(f"{what} is {name!r}: give a name without @")


def _take(content: Any) -> tuple[Table, dict[str, Any]]:
    table: Table = {}
    for key, queues in content.get("offsetTable", {}).items():
        topic, _, group = key.partition("@")
        table[topic, group] = dict(_checked(key, queues))
    return table, {name: value for name, value in content.items() if name != "offsetTable"}


def _checked(key: str, queues: Any) -> Iterator[tuple[int, int]]:
    for queue_id, offset in queues.items():
        if isinstance(offset, bool) or not isinstance(offset, int) or not -_MAX <= offset <= _MAX:
            raise ValueError(f"offset of {key} queue {queue_id} is {offset!r}, no number of 64 bits")
        yield int(queue_id), offset


def next_version(before: Any, *, state: bool = True) -> dict[str, int]:
    """DataVersion.nextVersion; `state`: with the field that 5.x has."""
    known = before if isinstance(before, dict) else {}
    counter, last = known.get("counter", 0), known.get("stateVersion", 0)
    version = {"counter": (counter if isinstance(counter, int) else 0) + 1}
    if state:
        version["stateVersion"] = last if isinstance(last, int) else 0
    return version | {"timestamp": int(time.time() * 1000)}
