"""MessageStore: the public class of a store. It opens the rooms in order and closes them in reverse order.

Thread-safety: every method may be called from any thread. Durability: docs/is-my-message-safe.md. Signal handlers may call
close(); io/_lock.pyx has the rule for that. Fork: every call in a child raises ForkedProcess, and the parent's store stays
unchanged.
"""
import os
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from rmq_store.access.waiting.listeners import ArrivingListener, Listeners, MessageListener
from rmq_store.access.writer._future import Completer
from rmq_store.base.io._io import IoTable
from rmq_store.base.io._lock import StoreLock, put_off
from rmq_store.base.io.callbacks import check_callback
from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.wants import limits_named
from rmq_store.base.machine.sizing import say_large
from rmq_store.config.load import Default, Options, changed, resolve
from rmq_store.config.typed import LiveOptions, OpenOptions
from rmq_store.errors import (
    ArgumentIllegal,
    CorruptionError,
    DiskFull,
    DurabilityError,
    ForkedProcess,
    RmqStoreError,
    StoreClosed,
    ViewsAlive,
    illegal,
)
from rmq_store.events import Event, emit
from rmq_store.log.flush.backend import check_backend
from rmq_store.log.recovery import lockfile
from rmq_store.log.recovery.places import Places, fit_sizes, infer_sizes, root_of
from rmq_store.opened.ending import close_at_end_of_worker, close_on_signals, need_main_thread, open_stores
from rmq_store.opened.entering import Entering
from rmq_store.opened.following import LOOK_MS, look_at_files
from rmq_store.opened.measured import measured
from rmq_store.opened.naming import whole_names
from rmq_store.opened.opening import open_store
from rmq_store.opened.paths import NOT_ALLOWED, plainly, refuse_path
from rmq_store.opened.publishing import Publisher
from rmq_store.opened.serving import StoreServes
from rmq_store.opened.tasks import (
    batch_taker,
    filter_setter,
    known_offsets,
    log_flusher,
    policy_taker,
    release_task,
    save_values,
    tasks_of,
)
from rmq_store.opened.watch import Watch
from rmq_store.replication.service import Replication, need_master
from rmq_store.services.cleaning.cleaner import Cleaner
from rmq_store.services.compaction.service import Compactions
from rmq_store.services.consumer.filters import open_filters
from rmq_store.services.consumer.room import Consuming
from rmq_store.services.delay.service import DelayService
from rmq_store.services.dispatchers.dispatcher import Dispatchers
from rmq_store.services.integrity.sealing import Sealer
from rmq_store.services.statistics.report import Rates
from rmq_store.services.statistics.windows import Windows
from rmq_store.services.timer.service import TimerService, kept_precision
from rmq_store.services.transaction.checking import Checker
from rmq_store.services.transaction.service import Transactions

if TYPE_CHECKING:
    import asyncio

    from rmq_store.access.waiting.loops import LoopHub
    from rmq_store.services.backup.backup import BackupInfo
    from rmq_store.services.integrity.scrubbing import ScrubResult

__all__ = ["MessageStore"]


@whole_names
class MessageStore(StoreServes):
    """An Apache RocketMQ message store in a directory. It stores messages, says when they are durable, and reads them by queue,
    key, time and id.

    `MessageStore.open` makes one. Lifetime: until close(), the end of its `with` block, or interpreter exit.
    """

    _lock_fd: int | None = None
    _completer: Completer
    _close_lock: StoreLock
    _listeners_lock: StoreLock
    _options_lock: StoreLock
    _watch: Watch | None = None
    _follows_later = False          # a slave whose broker learns the address of its master
    _sealer: Sealer | None = None
    _publisher: Publisher | None = None
    _listeners: Listeners | None = None
    _loop_hubs: "dict[asyncio.AbstractEventLoop, LoopHub]"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        name = type(self).__name__
        raise ArgumentIllegal(f"{name} is not made by a call: {name}.open(path, ...) opens a store, or makes it")

    @classmethod
    @limits_named()
    def open(cls, path: str | bytes | os.PathLike[Any], *, must_exist: bool = False,
             profile: str | os.PathLike[str] | None = None, config: str | os.PathLike[str] | None = None,
             readonly: bool | str = Default("False"), compat: str = Default("5.x"), write_path: str = Default("mmap"),
             flush_mode: str = Default("async"), flush_backend: str = Default("auto"),
             store_host: str = Default("127.0.0.1:10911"), _io: IoTable | None = None, _services: bool | None = True,
             _environment: Mapping[str, str] | None = None, _obeyed: Collection[str] | None = None,
             _check: Callable[[Options], object] | None = None, **options: Unpack[OpenOptions]) -> "MessageStore":
        """Opens the store in directory `path`, or makes a new one. Returns when recovery and dispatch are done.

        must_exist: raise FileNotFoundError instead of making a store (for a misspelt path, or a disk that is not mounted).
        profile: a built-in profile ("nvme", "durable", ...), the name of a user's profile, or a path. None: RMQ_STORE_PROFILE,
        else the profile that the configuration file names, else no profile. config: a TOML file or RocketMQ's broker.conf;
        None: RMQ_STORE_CONFIG. Order: default < profile < file < environment (RMQ_STORE_<OPTION>) < keyword;
        `options.origin(name)` says which source won. readonly: the open writes no byte, and shows a live or a dead store as it
        is; with follow=True it also shows the messages that another process puts later. compat: "4.9" or "5.x".
        write_path: "mmap" or "pool". flush_mode: "async" or "sync". flush_backend: "auto" (the best that works here; see
        docs/choosing-a-backend.md), "msync", "fdatasync", "io_uring".
        store_host: "ip:port" in every record. options: see docs/options.md; RocketMQ's names are accepted.
        Raises ConfigError; StoreLocked (another opener, with its pid); StoreRefusesToLoad, CorruptionError (damaged
        directories); BackendUnavailable; DiskFull; OSError. RocketMQ: DefaultMessageStore.load, start.
        """
        keywords = dict(options, readonly=readonly, compat=compat, write_path=write_path, flush_mode=flush_mode,
                        flush_backend=flush_backend, store_host=store_host)
        root = root_of(path)
        environment = os.environ if _environment is None else _environment
        chosen = resolve(profile, keywords, root, config=config, environment=environment, obeyed=_obeyed)
        check_backend(chosen)
        if _services:
            (_check or need_master)(chosen)
        refuse_path(root, chosen, must_exist)
        if chosen.signals:
            need_main_thread()
        fresh = not os.path.isdir(Places(root, chosen).commitlog)
        while True:
            try:
                sizes = infer_sizes(root, chosen) | kept_precision(root)
                store = cls._open_once(root, fit_sizes(root, chosen.inferred(sizes)), _io, _services, _check is not None)
                break
            except CorruptionError:         # files told nothing yet, and now they do: a writer in another process made them
                if not chosen.readonly or infer_sizes(root, chosen) | kept_precision(root) == sizes:
                    raise
            except OSError as error:
                if isinstance(error, RmqStoreError) or error.errno not in NOT_ALLOWED:
                    raise
                raise plainly(error, root) from error
        if fresh:
            say_large(store.options, root)
        if chosen.given("timer_precision_ms") and (kept := store.options.timer_precision_ms) != chosen.timer_precision_ms:
            emit(Event.TIMER_PRECISION_KEPT, path=root, kept=kept, given=chosen.timer_precision_ms)
        emit(Event.OPENED, path=root, min_offset=store.min_log_offset, max_offset=store.max_log_offset,
             queues=store._queue_total(), write_path=store.options.write_path, flush_mode=store.options.flush_mode,
             flush_backend=store.options.flush_backend)
        return store

    @classmethod
    def _open_once(cls, root: str, chosen: Options, _io: IoTable | None, services: bool | None, later: bool) -> "MessageStore":
        store = cls.__new__(measured(cls) if chosen.measure_puts else cls)
        store._follows_later = later
        store.open_begun, io = time.monotonic(), _io or IoTable()
        try:
            store._lock_fd = open_store(store, root, chosen, io, services)
            store._serve(io, bool(services))
            close_at_end_of_worker()
        except BaseException as error:
            store._abandon(io)
            if isinstance(error, OSError) and error.errno in DiskFull.codes:
                raise DiskFull.at_open(error, root) from error
            raise
        return store

    def _serve(self, io: IoTable, services: bool) -> None:
        """services: whether what is due is delivered and what is old is deleted, which a tool must not do."""
        self._files = ControlFiles(io)
        self._completer = Completer(self)
        self._loop_hubs = {}
        self._close_lock = StoreLock(self.path, "closing")
        self._listeners_lock = StoreLock(self.path, "the listeners")
        self._options_lock = StoreLock(self.path, "reconfigure")
        self._hooks_lock = StoreLock(self.path, "the put hooks")
        self._rates = Rates(self.path)
        self._windows = Windows(self.path, "DefaultCluster")
        ready = self._filters
        filters = (lambda: ready) if ready is not None else partial(
            open_filters, self._files, self.path, self.options, filter_setter(self))
        self._consuming = Consuming(self._files, self.path, self.options.compat, self.readonly, log_flusher(self), filters,
                                    light=self.options.enable_lmq, topics_changed=policy_taker(self),
                                    batches=batch_taker(self))
        consuming = self._consuming
        self._compactions = Compactions(self, self._files, services)
        self._transactions = Transactions(self.path, lambda: consuming.offsets)
        self._checker = Checker(self, self._transactions, self._files)
        self._dispatchers = Dispatchers(self._files, self.path, log_flusher(self))
        places = Places(self.path, self.options)
        self._cleaner = Cleaner(self._files, places, known_offsets, save_values)
        if not self.readonly:
            self._watch = Watch(self, tasks_of(self, services))
        elif self.options.follow:
            self._watch = Watch(self, [("following the files of another process", LOOK_MS, look_at_files),
                                       *release_task(self.options)])
        delivers = services and not self.readonly and self.options.role != "slave"
        if delivers and self.options.delay == "deliver":
            self._delay = DelayService(self, self._files)
        self._timer_serves = delivers
        if delivers and TimerService.wanted(self):
            self._timer = TimerService(self, self._files)
        if self.options.signals:
            close_on_signals()
        self._opened()
        self._take_config()
        if services and not self.readonly and self.options.role != "slave":      # a slave's topics are its master's
            self._entering = Entering(self)
        if services and not self.readonly:
            self._add_offered_hooks()
            self._add_offered_dispatchers()
        open_stores.add(self)
        if not self.readonly and self.options.manifest_enabled:
            self._sealer = Sealer(self, self._files, Places(self.path, self.options))
        if not self.readonly:
            self._replication = Replication(self, self.options, self._files)
            if services or self.options.role == "slave":        # whose queues may have to begin anew
                self._replication.start(self, self.options, later=self._follows_later or not services)
        if not self.readonly and self.options.stats_file_interval_ms is not None:
            self._publisher = Publisher(self, self._files)

    # ---- durability and visibility

    def scrub(self, **how: Any) -> "ScrubResult":
        """Compares the sealed files of the log with their manifests. See rmq_store.scrub for the arguments and the result.

        Thread-safety: any thread, also during puts; takes no lock. Raises OSError. The result lists the damage.
        """
        self._check_open()      # before the import: in a child of fork another thread may have had its lock, and keeps it
        from rmq_store.services.integrity.scrubbing import scrub  # here, as few call this

        sizes = {name: getattr(self.options, name) for name in ("segment_size_bytes", "commitlog_path",
                                                             "commitlog_paths_readonly", "record_crc_required")
                 if getattr(self.options, name) is not None}
        try:
            return scrub(self.path, _limit=self._position("flushed"), **sizes | how)
        except FileNotFoundError:
            self._check_open()      # close() removes what it has made ahead
            raise

    def backup(self, directory: Any, *, progress: Callable[[int], None] | None = None) -> "BackupInfo":
        """Backs this store up into a directory of backups, during puts and reads. A later backup copies new log files only.

        The backup has every message that was put before the call. When the call returns, the backup is on the device, and both
        this library and RocketMQ can open it as a store. Before that it does not exist, and earlier backups never change. The
        call takes no lock that puts take; the calling thread completes queues and index in the copy. See rmq_store.backup and
        docs/backup.md. Thread-safety: any thread, one call at a time for a directory. Raises ConfigError, StoreStateError,
        CorruptionError, DiskFull, OSError.
        """
        self._check_open()      # before the import, as in scrub
        from rmq_store.services.backup.backup import backup_source  # who makes none loads nothing for it
        from rmq_store.services.backup.source import Source

        least = self.max_log_offset if self.readonly else self._flush()
        if not self.readonly:
            self.offsets.flush()
            self._consuming.flush()
        return backup_source(Source.of(self.path, self.options), directory, least, MessageStore.open, progress, None)

    # ---- arrivals

    def add_arriving_listener(self, listener: ArrivingListener | MessageListener, *, each_message: bool = False) -> None:
        """Calls listener(topic, queue_id, max_offset) when a queue got messages; max_offset is one past the newest message.

        One thread of the store makes all calls, one call for each queue and wake-up, however many messages came. So a listener
        must be short. each_message: call listener(message) instead, for each message that arrives from now on; it gets a
        MessageArrived: topic, queue_id, offset, tags_code, store_timestamp, bit_map, properties. Messages of a queue come in
        their order; those that cleaning deletes before are left out. The thread then reads each message, and a slow listener
        falls behind; no put waits for it. The store logs what a listener raises. Thread-safety: any. RocketMQ:
        MessageArrivingListener."""
        self._check_open()
        check_callback("listener", listener, "of (topic, queue_id, max_offset), or of a MessageArrived")
        if not isinstance(each_message, bool):
            raise illegal("each_message", each_message, "give True or False")
        with self._listeners_lock:
            if self._listeners is None:
                self._listeners = Listeners(self)
        self._check_open()      # a close() that was put off until here
        add: Any = self._listeners.add_each if each_message else self._listeners.add
        add(listener)

    def remove_arriving_listener(self, listener: ArrivingListener | MessageListener) -> None:
        """Removes a listener. A call in progress still ends. Raises ValueError if the listener was not added."""
        if self._listeners is None:
            raise ArgumentIllegal("this listener was not added: remove only a listener that add_arriving_listener got")
        self._listeners.remove(listener)

    def _forget_arrivals(self, topics: tuple[str, ...]) -> None:
        if self._listeners is not None:
            self._listeners.forget(topics)

    def _loop_hub(self, loop: "asyncio.AbstractEventLoop") -> "LoopHub | None":
        """What wakes tasks of this event loop; None where the store closes. In the loop's thread, beside loops of others."""
        hub = self._loop_hubs.get(loop)
        if hub is not None:
            return hub
        if self._forked():          # before the import, whose lock another thread may have had at the fork
            raise ForkedProcess(self.path)
        from rmq_store.access.waiting.loops import LoopHub  # needs asyncio, which whoever has a loop has loaded

        for other in list(self._loop_hubs):
            if other.is_closed() and (gone := self._loop_hubs.pop(other, None)) is not None:
                gone.close()
        try:
            hub = self._loop_hubs[loop] = LoopHub(self, self._completer, loop)
        except StoreClosed:
            return None
        return hub

    # ---- options

    def reconfigure(self, **options: Unpack[LiveOptions]) -> None:
        """Changes live options (docs/options.md) while the store is open. Calls that begin later use the new values.

        options: names and values as for open; RocketMQ's names are accepted. Either all of them change, or none.
        `store.options` has the new values; their origin becomes `reconfigure`. Thread-safety: any. Raises ConfigError if an
        option needs a reopen, a value is out of range, or the pool is too small for message_size_max_bytes. RocketMQ: the
        broker's UPDATE_BROKER_CONFIG.
        """
        self._check_open()
        with self._options_lock:
            self._reconfigure(changed(self.options, options))

    # ---- closing

    def close(self, *, strict: bool = False) -> None:
        """Flushes, waits up to close_timeout_ms for dispatch, stops every thread, releases the lock. Idempotent.

        close() removes the abort file only if nothing failed and dispatch is done. Message views stay valid: their files stay
        mapped until the last view is gone, and `leases` counts the views. strict: if views are alive, close() raises ViewsAlive
        after everything else is done; use it before an unmount, and in tests. Raises DurabilityError if the last flush, or
        another write or sync, failed; everything is released all the same. Raises ForkedProcess in a child of fork.

        Thread-safety: any thread. A callback or a listener may call it too; if another thread is closing, the call returns at
        once, because that thread waits for the callback to end. A signal handler may call it too; if the signal interrupted a
        call that holds a lock of the store, close() returns at once, and the store closes when that call releases the lock.
        """
        if self._forked():
            raise ForkedProcess(self.path)
        if put_off(self.close):
            return
        open_stores.discard(self)
        try:
            with self._close_lock.attempt(wait=not self._own_thread()) as mine:
                if not mine or not self._unfinished():
                    if mine and strict and self.leases:
                        raise ViewsAlive(self.path, self.leases)
                    return
                problems, behind = self._shut_reader() if self.readonly else self._shut()
                leases = self.leases
                self._end()
        except BaseException:       # Ctrl-C: another close(), at exit at the latest, continues where this one stopped
            if self._unfinished():
                open_stores.add(self)
            raise
        if leases:
            emit(Event.CLOSED_WITH_LEASES, path=self.path, leases=leases)
        if problems:
            raise problems[0]
        if behind:
            warnings.warn(behind, RuntimeWarning, stacklevel=2)
        if leases and strict:
            raise ViewsAlive(self.path, leases)

    def _own_thread(self) -> bool:
        """True in a thread that close() joins."""
        here = threading.current_thread()
        parts = (self._sealer, self._listeners, self._watch, self._publisher, self._checker, self._compactions)
        return (any(part is not None and part.thread is here for part in parts) or self._dispatchers.own_thread()
                or self._completer.in_callback())

    def _shut_reader(self) -> tuple[list[BaseException], None]:
        """What a read-only store has begun: nothing, or to follow another process."""
        if self.options.follow:
            self._refuse_calls()
            for part in (self._listeners, self._watch):
                if part is not None:
                    part.stop()
            self._completer.close()
            self._stop_following()
        self._compactions.close()
        return [], None

    def _shut(self) -> tuple[list[BaseException], str | None]:
        """What failed, and what to warn of. Whatever fails, the other steps are taken: above all the lock is released."""
        for part in (self._sealer, self._publisher, self._checker, self._dispatchers, self._compactions, self._replication):
            if part is not None:
                part.stop()
        early: list[BaseException] = []
        self._attempt(early, "writing op messages", self._transactions.end_all, self)
        self._compactions.finish(self)
        self._refuse_calls()
        if self._delay is not None:
            self._delay.stop()
        if self._timer is not None:
            self._timer.stop()
        if self._listeners is not None:
            self._listeners.stop()
        if self._watch is not None:
            self._watch.stop()
        self._completer.close()
        self._compactions.close()
        problems, lag = self._stop(self.options.close_timeout_ms)
        problems = early + problems
        if not problems:        # else the log may have less than the offsets would say
            if self._entering is not None:
                entering = self._entering
                self._attempt(problems, "entering topics", lambda: entering.enter(self))
            self._attempt(problems, "writing consumer offsets", self._consuming.end)
            self._attempt(problems, "writing the positions of dispatchers", self._dispatchers.end)
            if self._delay is not None:
                self._attempt(problems, "writing delay offsets", self._delay.write)
        else:
            self._consuming.end(write=False)
            self._dispatchers.end(write=False)
        if self._timer is not None:
            self._attempt(problems, "writing timer messages' state", self._timer.end, not problems)
        self._attempt(problems, "deleting an old commit-log file", self._cleaner.finish)
        behind = None
        if self.checkpoint_fd >= 0:         # else an interrupted close() has come further than this
            if not problems:
                self._attempt(problems, "the last checkpoint", self._final_checkpoint)
            if not problems and lag <= 0:
                self._attempt(problems, "removing the abort file", lockfile.clear_abort, self._files, self.path)
        wrote, dispatched = self._position("wrote"), self._position("dispatched")
        if problems:
            emit(Event.CLOSED_FAILED, path=self.path, what="write or sync", errno=getattr(problems[0], "errno", 0) or 0,
                 flushed=self._position("flushed"), max_offset=wrote)
        elif lag <= 0:
            emit(Event.CLOSED, path=self.path, max_offset=wrote)
        else:
            behind = (f"closed {self.path} with dispatch at offset {dispatched}, the log ends at {wrote}: the abort file "
                      "stays, the next open recovers")
            emit(Event.CLOSED_BEHIND, path=self.path, dispatched=dispatched, max_offset=wrote)
        if self._publisher is not None:
            self._publisher.remove()
        self._let_go(problems, self._files)
        return problems, behind

    def _let_go(self, problems: list[BaseException], files: ControlFiles) -> None:
        checkpoint, self.checkpoint_fd = self.checkpoint_fd, -1
        lock, self._lock_fd = self._lock_fd, None
        if checkpoint >= 0:
            self._attempt(problems, "closing the checkpoint", files.close, checkpoint)
        if lock is not None:
            self._attempt(problems, "releasing the lock", lockfile.release, files, lock)

    def _attempt(self, problems: list[BaseException], what: str, step: Callable[..., object], *arguments: object) -> None:
        try:
            step(*arguments)
        except OSError as error:
            problems.append(DurabilityError(error.errno or 0, what, error.filename or self.path))

    def _abandon(self, io: IoTable) -> None:
        """After a failed open: nothing was served yet, and nothing is left for a close() to do."""
        open_stores.discard(self)
        later = [getattr(self, name, None) for name in ("_dispatchers", "_compactions")]
        for part in (self._replication, self._publisher, self._sealer, self._watch, *later):
            if part is not None:
                part.stop()
        if self._delay is not None:
            self._delay.stop()
        if self._timer is not None:
            self._timer.stop()
            self._timer.end(False)
        if hasattr(self, "_compactions"):
            self._compactions.close()
        self._end_failed_open()
        self._let_go([], ControlFiles(io))

    def __del__(self) -> None:
        """A store that nobody closed, and nobody can any more: its threads must not outlive it."""
        if self._unfinished() and not self._forked():
            warnings.warn(f"the store at {self.path} was not closed", ResourceWarning, stacklevel=1, source=self)
            self.close()

    def __enter__(self) -> "MessageStore":
        return self

    def __exit__(self, *exc: object) -> None:
        """close(). In a child of fork that leaves the block there is nothing to close."""
        try:
            self.close()
        except ForkedProcess:
            pass

    def __reduce__(self) -> Any:
        raise TypeError("a MessageStore cannot be pickled: send its path, and open it there (with readonly=True)")
