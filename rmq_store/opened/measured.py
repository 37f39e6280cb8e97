"""A store whose puts are timed (option measure_puts): a class of its own, so that a store without it pays nothing for it."""
import time
from typing import Any, TypeVar

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.events import Event, emit
from rmq_store.opened.serving import StoreServes
from rmq_store.services.statistics._counts import flush_times

__all__ = ["measured"]

Kind = TypeVar("Kind", bound=StoreServes)
_KINDS: dict[type, type] = {}


class _PutTimes(StoreServes):
    """Of a store: put, put_many, put_batch and put_inner_batch count how long they take, durability included where they
    wait for it.

    put_async is not measured: its future is. Thread-safety and all else as StoreServes.
    """

    _put_times: Histogram
    _phases: dict[str, int]

    def _opened(self) -> None:
        self._put_times = Histogram()
        self._phases = {}
        super()._opened()

    def put(self, topic: str, *args: Any, **keywords: Any) -> Any:
        begun = time.monotonic_ns()
        try:
            return super().put(topic, *args, **keywords)
        finally:
            self._count(topic, time.monotonic_ns() - begun)

    def put_many(self, topic: str, *args: Any, **keywords: Any) -> Any:
        begun = time.monotonic_ns()
        try:
            return super().put_many(topic, *args, **keywords)
        finally:
            self._count(topic, time.monotonic_ns() - begun)

    def put_batch(self, topic: str, *args: Any, **keywords: Any) -> Any:
        begun = time.monotonic_ns()
        try:
            return super().put_batch(topic, *args, **keywords)
        finally:
            self._count(topic, time.monotonic_ns() - begun)

    def put_inner_batch(self, topic: str, *args: Any, **keywords: Any) -> Any:
        begun = time.monotonic_ns()
        try:
            return super().put_inner_batch(topic, *args, **keywords)
        finally:
            self._count(topic, time.monotonic_ns() - begun)

    put.__doc__ = StoreServes.put.__doc__
    put_many.__doc__ = StoreServes.put_many.__doc__
    put_batch.__doc__ = StoreServes.put_batch.__doc__
    put_inner_batch.__doc__ = StoreServes.put_inner_batch.__doc__

    def histograms(self) -> dict[str, Histogram]:
        copy = Histogram()
        copy.merge(self._put_times)
        return super().histograms() | {"put": copy}

    histograms.__doc__ = StoreServes.histograms.__doc__

    def _count(self, topic: str, ns: int) -> None:
        self._put_times.add(ns)
        if ns > self.options.slow_put_ms * 1_000_000 and not self.closed:
            before, notes = self._phases, self._notes() or {}
            now = {name: count for name, count in self._stats().items() if name in ("pool_waits", "file_waits", "flushes")}
            now["slow_locks"] = notes.get("slow_locks", 0)
            self._phases = now
            emit(Event.PUT_SLOW, topic=topic, ms=ns / 1e6, phase=notes.get("slow_lock_phase", "none"),
                 flush_ms=flush_times(self).highest / 1e6,
                 **{name: count - before.get(name, 0) for name, count in now.items()})


def measured(kind: type[Kind]) -> type[Kind]:
    """The class of stores `kind` with puts that are timed."""
    if kind not in _KINDS:
        _KINDS[kind] = type("MeasuredStore", (_PutTimes, kind), {"__module__": __name__, "__doc__": kind.__doc__})
    return _KINDS[kind]
