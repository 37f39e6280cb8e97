"""Dispatchers: functions that get every dispatched record of the log, in the log's order, each at its own pace.

    config/dispatchers.json      {"offsetTable":{name:log offset of the next record,…}}

Each has a thread that reads the log behind the store's own dispatch, and nobody waits for it: a slow one falls behind, and
takes memory for one batch. Its position moves when the function returns. The control thread and close() write it, behind a
flush of the log: after a crash records come again, and none is left out. RocketMQ: CommitLogDispatcher.
"""
import re
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rmq_store.access.reader._checked import whole
from rmq_store.access.reader._message import Message
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.callbacks import check_callback, refuse_unrun
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.threads import start_thread
from rmq_store.errors import CorruptionError, StoreClosed, StoreStateError, illegal
from rmq_store.events import Event, emit, named
from rmq_store.fields import NamedTuple
from rmq_store.services.consumer.config_file import ConfigFile

if TYPE_CHECKING:
    from rmq_store.access.waiting._wait import StoreWait

__all__ = ["Dispatch", "DispatcherState", "Dispatchers"]

Dispatch = Callable[[list[Message]], object]
NAME = "dispatchers.json"
BATCH_MESSAGES, BATCH_BYTES = 256, 1 << 20
LOOK_S = 0.02               # how often a dispatcher that has everything looks for more
_OFFSET_MAX = (1 << 63) - 1
_NAMED = partial(re.fullmatch, r"[A-Za-z0-9_.-]{1,120}")


class DispatcherState(NamedTuple):
    """How far a dispatcher is."""

    name: str
    offset: int             # log offset of the next record that it gets
    behind_bytes: int       # from there to what the store has dispatched
    messages: int           # that it got since it was added
    running: bool
    error: str | None       # why it stopped


class _Dispatcher:
    """One of them: its thread, and where it is. Holds the store weakly, so that a forgotten store can be collected."""

    def __init__(self, store: "StoreWait", name: str, dispatch: Dispatch, offset: int) -> None:
        self.name, self.offset = name, offset
        self.messages = 0
        self.error: str | None = None
        self._dispatch = dispatch
        self._store = weakref.ref(store)
        self._path = store.path
        self._stop = threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = start_thread(self._run, "rmq-dispatcher")

    @property
    def running(self) -> bool:
        return self.error is None and not self._stop.is_set()

    def stop(self) -> None:
        """Waits for the call that is under way, unless it is the one that stops it."""
        self._stop.set()
        if self.thread is not None and threading.current_thread() is not self.thread:
            self.thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            store = self._store()
            if store is None:
                return
            try:
                more = self._step(store)
            except BaseException as error:      # of whatever kind: this one stops, the store and the others continue
                if isinstance(error, StoreStateError) and store.closed:
                    return
                text = named(error)
                emit(Event.DISPATCHER_STOPPED, error, name=self.name, path=self._path, offset=self.offset, error=text)
                self.error = text       # who sees that it does not run finds why in the log
                return
            del store
            if not more:
                self._stop.wait(LOOK_S)

    def _step(self, store: "StoreWait") -> bool:
        """One batch. False: there is nothing now."""
        limit, first = store._position("dispatched"), store.min_log_offset
        if self.offset < first <= limit:
            emit(Event.DISPATCHER_LOST, name=self.name, path=self._path, size=first - self.offset, begin=self.offset, end=first)
            self.offset = first
        messages: list[Message] = []
        at, size = self.offset, 0
        try:
            while (len(messages) < BATCH_MESSAGES and size < BATCH_BYTES
                   and (found := store._next_record(at, limit)) is not None):
                _, _, length, message, at = found
                if message is not None:
                    messages.append(message)
                    size += length
        except CorruptionError:
            if not messages:
                raise               # else those before the damage first, and this error with the next batch
        if at == self.offset:
            return False
        if messages:
            refuse_unrun("dispatch", self._dispatch, self._dispatch(messages))
        self.messages += len(messages)
        self.offset = at            # one store: the control thread reads it at any moment
        return True


class Dispatchers:
    """Those of one store, and the file of their positions. Thread-safety: any."""

    def __init__(self, files: ControlFiles, root: str, flush_log: Callable[[], object]) -> None:
        """flush_log: makes durable what was put, before positions are written."""
        self._file = ConfigFile(files, root, NAME)
        self._flush_log = flush_log
        self._lock = StoreLock(root, "the dispatchers")
        self._write_lock = StoreLock(root, "writing the positions of dispatchers")      # taken first
        self._ended = False
        self._known: dict[str, int] | None = None       # positions of those that are not here
        self._here: dict[str, _Dispatcher] = {}
        self._written: dict[str, int] = {}
        self._stopping = False

    def add(self, store: "StoreWait", name: str, dispatch: Dispatch, from_offset: int | None) -> None:
        if not isinstance(name, str) or not _NAMED(name):
            raise illegal("name", name, "give a name of up to 120 characters A-Z a-z 0-9 _ . -")
        check_callback("dispatch", dispatch, "of a list of Message")
        if from_offset is not None:
            whole(from_offset, "from_offset", 0, _OFFSET_MAX)
        with self._lock:
            if self._stopping:
                raise StoreClosed(store.path)
            before = self._here.get(name)
            if before is not None and before.running:
                raise StoreStateError(f"dispatcher {name} of {store.path} is running: remove it first, or choose another name")
            known = self._positions().get(name) if before is None else before.offset
            offset = self._begin(store, name, known, from_offset)
            self._here[name] = _Dispatcher(store, name, dispatch, offset)       # known before it runs: it may close the store
            self._here[name].start()

    def _begin(self, store: "StoreWait", name: str, known: int | None, from_offset: int | None) -> int:
        """Where it begins: at a record, or at the end of the log, whatever the file or the caller says."""
        first, end, dispatched = store.min_log_offset, store.max_log_offset, store._position("dispatched")
        offset = known if known is not None else first if from_offset is None else from_offset
        if offset < first:
            return offset if known is not None else first       # what was deleted meanwhile is said
        try:
            if offset > end:
                raise CorruptionError(store.path, offset, f"an offset up to {end}, the end of the log", str(offset))
            if offset < dispatched:         # else it is found out when the store gets there
                store._next_record(offset, dispatched)
        except CorruptionError as error:
            if known is None:
                raise illegal("from_offset", offset, "give the log offset of a record, such as Message.offset, or the end of "
                              "the log") from error
            error.cure = (f"this is the position of dispatcher {name} in {self._file.path}, and the log was replaced or "
                          f"damaged: open the store without {name} in the option dispatchers, remove_dispatcher({name!r}, "
                          "forget=True), and add it with from_offset")
            raise
        return offset

    def remove(self, name: str, forget: bool) -> None:
        with self._lock:
            found = self._here.get(name)
            if found is None and name not in self._positions():
                raise illegal("name", name, "there is no dispatcher of that name, dispatchers() lists them")
        if found is not None:
            found.stop()            # without the lock: its function may ask for a list
        with self._lock:
            known = self._positions()
            if found is not None:
                known[name] = found.offset
                if self._here.get(name) is found:
                    del self._here[name]
            if forget:
                known.pop(name, None)
        self.write()

    def listed(self, store: "StoreWait") -> list[DispatcherState]:
        end = store._position("dispatched")
        with self._lock:
            here, known = dict(self._here), dict(self._positions())
        found = [DispatcherState(d.name, d.offset, max(end - d.offset, 0), d.messages, d.running, d.error)
                 for d in here.values()]
        found += [DispatcherState(name, offset, max(end - offset, 0), 0, False, None) for name, offset in known.items()
                  if name not in here]
        return sorted(found)

    def own_thread(self) -> bool:
        """True in a thread that stop() joins."""
        return any(d.thread is threading.current_thread() for d in list(self._here.values()))

    def stop(self) -> None:
        """The store closes: no more calls. Positions are written by the `write` that follows."""
        with self._lock:
            self._stopping = True
            here = list(self._here.values())
        for one in here:
            one.stop()

    def write(self) -> None:
        """Writes the positions, where one of them changed, behind a flush of the log. Durable when it returns. Raises OSError,
        and StoreClosed where the store has closed: the directory may be another process's."""
        with self._write_lock:
            self._write(self._flush_log)

    def end(self, write: bool = True) -> None:
        """The store closes, its log is flushed: the last write, if any."""
        with self._write_lock:
            try:
                if write:
                    self._write(lambda: None)
            finally:
                self._ended = True

    def _write(self, flush_log: Callable[[], object]) -> None:
        with self._lock:
            if self._known is None:
                return              # nobody asked for one: the file is not even read
            table = dict(sorted({**self._known, **{d.name: d.offset for d in self._here.values()}}.items()))
        if table == self._written:
            return
        if self._ended:
            raise StoreClosed(self._file.path)
        flush_log()
        self._file.save({"offsetTable": table})
        self._written = table

    def _positions(self) -> dict[str, int]:
        """Raises ConfigFileCorrupted. The lock is held."""
        if self._known is None:
            self._known = self._file.load(_take) or {}
            self._written = dict(self._known)
        return self._known


def _take(content: Any) -> dict[str, int]:
    table = content["offsetTable"]
    for name, offset in table.items():
        if not _NAMED(name) or isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= _OFFSET_MAX:
            raise ValueError(f"position of dispatcher {name!r:.100} is {offset!r:.100}, not a log offset")
    return dict(table)
