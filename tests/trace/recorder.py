"""Puts what a store tells into the trace of its probe, and has the traces judged: MessageStore's public calls are wrapped here,
and `rmqstore put`; in no production code. A store that a test opens without a probe gets one, and so does a repair; what its
trace has no room for is not judged."""
import functools
import os
import socket
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import rmq_store.cli.put
import rmq_store.services.integrity.repair
import rmq_store.store
import tests.broker.peer
import tests.network.peer
from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.log.recovery.places import Places
from tests.trace.checker import Checker, Store

__all__ = ["Recorder", "described", "flushed"]

CALLS_MAX = 60_000
BYTES_MAX = 48 << 20
PIECE = 20_000


def described(store: MessageStore) -> Store:
    """An open store as the marks name it."""
    places, options = Places(store.path, store.options), store.options
    return Store(root=store.path, log=os.path.abspath(places.commitlog), queues=os.path.abspath(places.consumequeue),
                 index=os.path.abspath(places.index), segment=options.segment_size_bytes,
                 flushed=store._position("flushed"), readonly=store.readonly)


def flushed(store: MessageStore) -> int:
    """The position that everybody may go by; 0 where the store is closed."""
    notes = store._notes()
    return notes["flushed"] if notes is not None else 0


class Recorder:
    """What one test's stores did, and told."""

    def __init__(self) -> None:
        self.process = self.owner = os.getpid()
        self.own: ProbeIo | None = None
        self.probes: list[ProbeIo] = []
        self.stores: weakref.WeakKeyDictionary[MessageStore, tuple[ProbeIo, list[int]]] = weakref.WeakKeyDictionary()
        self.placed: list[tuple[str, int, int]] | None = None       # store, begin, end of what `rmqstore put` has put
        self.told = 0
        self.cut_short = 0

    def table(self) -> ProbeIo:
        """One probe for all stores of the test that bring none: one trace, in which one process follows the other."""
        if self.own is None or self.owner != os.getpid():       # a child of fork has its own: _elsewhere()
            self.owner = os.getpid()
            self.own = ProbeIo(calls_max=CALLS_MAX, bytes_max=BYTES_MAX)
            self.probes.append(self.own)
        return self.own

    def _elsewhere(self) -> bool:
        """True in a child of fork: there a thread that is no more may have the lock of the parent's probe."""
        return self.process != os.getpid()

    def opened(self, store: MessageStore, io: Any) -> None:
        if isinstance(io, ProbeIo) and not store.readonly:
            if not any(io is probe for probe in self.probes):
                self.probes.append(io)
            known = described(store)
            self.stores[store] = (io, [known.flushed])
            io.mark(("opened", known))

    def tell(self, store: MessageStore, *notes: tuple[Any, ...]) -> None:
        """Notes `flushed` where it has moved, and what else was told."""
        if store not in self.stores or self._elsewhere():
            return
        probe, last = self.stores[store]
        if probe.full:
            return
        now = flushed(store)
        if now > last[0]:
            last[0] = now
            probe.mark(("flushed", store.path, now))
        for note in notes:
            probe.mark(note)

    def findings(self, rules: Iterable[str]) -> list[str]:
        out = []
        for probe in self.probes:
            checker, at = Checker(rules), 0
            while at < probe.length:
                checker.feed(probe.trace(at, at + PIECE))
                at += PIECE
            out += checker.findings
            self.told += checker.told
            self.cut_short += probe.full
        return out

    # ---- wrapping

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """From here on stores are recorded."""
        patch.setattr(rmq_store.store, "IoTable", self.table)
        real_open = MessageStore.open.__func__      # type: ignore[attr-defined]

        @functools.wraps(real_open)
        def open_recorded(cls: type[MessageStore], path: Any, **options: Any) -> MessageStore:
            io = options.pop("_io", None)
            io = self.table() if io is None else io
            store: MessageStore = real_open(cls, path, _io=io, **options)
            self.opened(store, io)
            return store

        patch.setattr(MessageStore, "open", classmethod(open_recorded))
        for name, after in (("put", self._after_put), ("put_many", self._after_many), ("put_batch", self._after_many),
                            ("put_async", self._after_any), ("_put_copy", self._after_any), ("flush", self._after_any),
                            ("get", self._after_any), ("wait_dispatched", self._after_any)):
            patch.setattr(MessageStore, name, _wrapped(getattr(MessageStore, name), after))
        patch.setattr(MessageStore, "close", self._closing(MessageStore.close))
        for peer in (tests.broker.peer.Peer, tests.network.peer.Peer):
            patch.setattr(peer, "hear", staticmethod(self.answered))
        self._watch_tools(patch)

    def answered(self, fields: dict[str, str], answer: Any) -> None:
        """A send that came through the network, and was answered: SUCCESS of a synchronous store promises the device."""
        properties = fields.get("i", fields.get("properties", ""))
        if answer.code != 0 or "msgId" not in answer.ext or "WAIT\1false" in properties:
            return
        ids = [bytes.fromhex(one) for one in answer.ext["msgId"].split(",")]
        places = [int.from_bytes(one[-8:], "big") for one in ids]
        found = [store for store in list(self.stores) if _host_of(store) == ids[0][:-8]]
        if len(found) == 1 and found[0].options.flush_mode == "sync":
            self.tell(found[0], ("acked", found[0].path, places[0], places[-1] + 1))

    def _watch_tools(self, patch: pytest.MonkeyPatch) -> None:
        """repair, which writes by itself; and `rmqstore put`, which promises the device by how it ends."""
        patch.setattr(rmq_store.services.integrity.repair, "IoTable", self.table)
        real = rmq_store.cli.put.run

        @functools.wraps(real)
        def put_recorded(args: Any, out: Any) -> int:
            self.placed = []
            try:
                code = real(args, out)
                for place in self.placed:
                    self.table().mark(("acked", *place))
            finally:
                self.placed = None
            return code

        patch.setattr(rmq_store.cli.put, "run", put_recorded)

    def _after_any(self, store: MessageStore, result: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.tell(store)

    def _after_put(self, store: MessageStore, result: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.placed is not None:
            self.placed.append((store.path, result.offset, result.offset + result.size))
        if result.status == 0 and _waited(store, args, keywords):
            self.tell(store, ("acked", store.path, result.offset, result.offset + result.size))
        else:
            self.tell(store)

    def _after_many(self, store: MessageStore, result: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if result.status == 0 and _waited(store, args, keywords) and len(result.offsets):
            self.tell(store, ("acked", store.path, result.offsets[0], result.offsets[-1] + 1))
        else:
            self.tell(store)

    def _closing(self, close: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(close)
        def close_recorded(store: MessageStore, **how: Any) -> None:
            self.tell(store)
            close(store, **how)
            if store in self.stores and not self._elsewhere():
                self.stores.pop(store)[0].mark(("closed", store.path))

        return close_recorded


def _host_of(store: MessageStore) -> bytes:
    """As message ids have it."""
    host, port = store.options.store_host.rsplit(":", 1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host.strip("[]")) + int(port).to_bytes(4, "big")


def _waited(store: MessageStore, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a put that came back is a promise: asked for by the call, or by the store and not waived by the WAIT property."""
    wait = keywords.get("wait")
    if wait is not None:
        return bool(wait)
    return store.options.flush_mode == "sync" and not _waives((args, keywords.get("properties")))


def _waives(value: Any) -> bool:
    if isinstance(value, bytes | bytearray | memoryview):
        return b"WAIT" in bytes(value)
    if isinstance(value, dict):
        return "WAIT" in value or _waives(value.get("properties"))
    if isinstance(value, list | tuple):
        return any(_waives(one) for one in value)
    return value is not None and not isinstance(value, str | int | float)      # what can be read once only, is not looked at


def _wrapped(call: Callable[..., Any], after: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(call)
    def recorded(store: MessageStore, *args: Any, **keywords: Any) -> Any:
        result = call(store, *args, **keywords)
        after(store, result, args, keywords)
        return result

    return recorded
