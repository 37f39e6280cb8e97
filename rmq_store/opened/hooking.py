"""What a program, or another package, hangs into an open store: put hooks and dispatchers; and the
running flags. A part of MessageStore."""
from typing import Any

from rmq_store.access.writer._hooks import hook_of_capsule
from rmq_store.access.writer.hooks import PutHook
from rmq_store.base.io._lock import StoreLock
from rmq_store.base.io.callbacks import check_callback
from rmq_store.config.offered import offered
from rmq_store.errors import ArgumentIllegal, StoreNotWriteable, illegal
from rmq_store.opened.walking import StoreWalks
from rmq_store.services.dispatchers.dispatcher import Dispatch, Dispatchers, DispatcherState
from rmq_store.status import RunningFlags

__all__ = ["StoreHooks"]


class StoreHooks(StoreWalks):
    """The part of a store that calls code of others. Thread-safety: any. A closed store raises StoreClosed."""

    _hooks: tuple[tuple[str, Any, PutHook], ...] = ()       # name, what was added, what is called
    _hooks_lock: StoreLock

    _dispatchers: Dispatchers

    # ---- put hooks

    def add_put_hook(self, hook: Any, name: str | None = None) -> None:
        """Calls hook(message) before every later put, in the thread that puts; `message` is a PutMessage.

        The hook returns None or PutStatus.PUT_OK to let the message pass. It returns another PutStatus, or (status, reason), to
        refuse it: the put stores nothing and raises PutRefused with that status. A hook may also raise a PutError of its own;
        any other exception refuses the message with UNKNOWN_ERROR. A hook may change the properties of the message. Hooks are
        called in the order in which they were added; put_many asks for all messages before it stores the first, and put_batch
        asks once for the whole batch. hook: a function, or a PyCapsule over a C function (rmq_put_hook.h). name: for errors.
        Puts that the store makes for transactions and consumers are asked for too; the delivery of delayed messages is not.
        Raises StoreNotWriteable, ArgumentIllegal. Thread-safety: any. RocketMQ: PutMessageHook, getPutMessageHookList.
        """
        self._check_open()
        if self.readonly:
            raise StoreNotWriteable(self.path)
        if callable(hook):
            check_callback("hook", hook, "of a PutMessage")
        called: PutHook = hook if callable(hook) else hook_of_capsule(hook)
        if name is not None and (not isinstance(name, str) or not name):
            raise illegal("name", name, "give a text, or None for the name of the function")
        said = name or str(getattr(hook, "__qualname__", None) or type(hook).__name__)
        with self._hooks_lock:
            self._use_hooks((*self._hooks, (said, hook, called)))

    def remove_put_hook(self, hook: Any) -> None:
        """Removes a hook, the last one that was added if it was added twice. A call in progress still ends. Raises
        ArgumentIllegal if the hook was not added."""
        self._check_open()
        with self._hooks_lock:
            for i in reversed(range(len(self._hooks))):
                if self._hooks[i][1] == hook:       # a bound method is made anew each time
                    self._use_hooks(self._hooks[:i] + self._hooks[i + 1:])
                    return
        raise ArgumentIllegal("this put hook was not added: remove only a hook that add_put_hook got")

    @property
    def put_hooks(self) -> list[str]:
        """The names of the put hooks, in the order of their calls: list of str."""
        return [name for name, _, _ in self._hooks]

    def _use_hooks(self, hooks: tuple[tuple[str, Any, PutHook], ...]) -> None:
        self._hooks = hooks
        self._set_hooks(tuple((name, called) for name, _, called in hooks))

    # ---- running flags

    @property
    def running_flags(self) -> RunningFlags:
        """Why the store refuses puts or gets now; RunningFlags(0) if it does not. RocketMQ: RunningFlags."""
        return RunningFlags(self._running_flags())

    def set_readable(self, readable: bool) -> bool:
        """False: every later get raises StoreNotReadable, as do consumers, subscriptions, scans and tables, which stand on it.
        As in RocketMQ, queries, message_at, log_records and timers continue; transactions do if they need not read their topics
        first, as the first call of a store does. True takes that back. Returns whether the store was readable. It holds until
        the store is closed. Thread-safety: any. RocketMQ: getAndMakeReadable, getAndMakeNotReadable."""
        return not self._set_flag(RunningFlags.NOT_READABLE, not flag(readable, "readable"))

    def set_writeable(self, writeable: bool) -> bool:
        """False: every later put raises ServiceNotAvailable, and delayed messages wait; gets continue, and so do flush and
        dispatch. True takes that back. Returns whether the store was writeable. It holds until the store is closed. Raises
        StoreNotWriteable if the store is open with readonly=True. Thread-safety: any. RocketMQ: getAndMakeWriteable,
        getAndMakeNotWriteable."""
        return not self._set_own_flag(RunningFlags.NOT_WRITEABLE, not flag(writeable, "writeable"))

    def set_fenced(self, fenced: bool) -> bool:
        """True: every later put raises ServiceNotAvailable, as set_writeable(False). The flag is for what decides which of
        several stores may write, so that it and an operator do not undo each other. False takes it back. Returns whether the
        store was fenced. Thread-safety: any. RocketMQ: makeFenced."""
        return self._set_own_flag(RunningFlags.FENCED, flag(fenced, "fenced"))

    def _set_own_flag(self, which: RunningFlags, on: bool) -> bool:
        self._check_open()
        if self.readonly:
            raise StoreNotWriteable(self.path)
        return self._set_flag(which, on)

    # ---- dispatchers

    def add_dispatcher(self, name: str, dispatch: Dispatch, *, from_offset: int | None = None) -> None:
        """Calls dispatch(messages) for every record of the log, in the log's order; `messages` is a list of Message.

        A thread of the dispatcher makes the calls, behind the store's own dispatch: neither puts nor readers wait for it. It
        gets all records, also half messages, delayed messages and those that were rolled back. Its position moves when the call
        returns; it is written to config/dispatchers.json every offsets_flush_interval_ms and at close, so that a dispatcher of
        the same name continues there. After a crash, records since the last write come again; none is left out. If the call
        raises, this dispatcher stops at that batch (event DISPATCHER_STOPPED), and add_dispatcher starts it again. Cleaning
        does not wait for it: records that cleaning deleted are skipped (event DISPATCHER_LOST). from_offset: the log offset
        where a name without a position begins; None means the start of the log. close() waits for the call in progress.
        Raises StoreStateError if the name is running, StoreNotWriteable, ArgumentIllegal, CorruptionError if the position does
        not fit the log. Thread-safety: any. RocketMQ: CommitLogDispatcher.
        """
        self._check_open()
        if self.readonly:
            raise StoreNotWriteable(self.path)
        self._dispatchers.add(self, name, dispatch, from_offset)

    def remove_dispatcher(self, name: str, *, forget: bool = False) -> None:
        """Stops a dispatcher, waits for its call in progress, and writes its position. forget: removes the position instead, so
        that the name begins anew. Raises ArgumentIllegal for an unknown name, OSError. Thread-safety: any."""
        self._check_open()
        if self.readonly:
            raise StoreNotWriteable(self.path)
        self._dispatchers.remove(name, forget)

    def dispatchers(self) -> list[DispatcherState]:
        """Returns the dispatchers of this store, and the positions of those that were not added since the opening: list of
        (name, offset, behind_bytes, messages, running, error). Works on a read-only store too. Raises ConfigFileCorrupted."""
        self._check_open()
        return self._dispatchers.listed(self)

    # ---- what other packages offer

    def _add_offered_hooks(self) -> None:
        """Those that the option put_hooks names. Raises ConfigError, ArgumentIllegal."""
        for name in self.options.put_hooks:
            self.add_put_hook(offered("put_hooks", name), name)

    def _add_offered_dispatchers(self) -> None:
        """Those that the option dispatchers names. Raises ConfigError, ArgumentIllegal, StoreStateError, CorruptionError."""
        for name in self.options.dispatchers:
            self.add_dispatcher(name, offered("dispatchers", name))


def flag(value: object, name: str) -> bool:
    """Raises ArgumentIllegal for what is neither True nor False."""
    if not isinstance(value, bool):
        raise illegal(name, value, "give True or False")
    return value
