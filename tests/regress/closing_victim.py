"""A store that is closed in the middle of one of its own calls, in a process of its own: `closing_victim HOW CALL DIRECTORY`.

HOW: "argument" = the conversion of an argument closes the store; "trace" = the n-th step of Python code inside the call does,
as a signal handler may; "gc" = the n-th allocation inside the call begins a collection, whose finalizer does. Prints one line
for each try: what the call raised, or "returned".
"""
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rmq_store import MessageStore
from rmq_store.access.waiting._arrivals import Arrivals

SMALL: dict[str, Any] = {"segment_size_bytes": 1 << 16, "index_slots": 100, "index_entries_max": 1000,
                         "duplication_enabled": True, "consumequeue_ext_enabled": True, "close_timeout_ms": 1000}
STEPS = 16      # tries of "trace" and "gc"
BATCH = bytes.fromhex("00000017 00000000 00000000 00000000 00000001 78 0000")


class Number:
    """An integer whose conversion closes the store, as any Python code may."""

    def __init__(self, value: float, close: Callable[[], object]) -> None:
        self.value, self.close = value, close

    def __index__(self) -> int:
        self.close()
        return int(self.value)


class Time(float):
    """Seconds or milliseconds whose comparison closes the store."""

    close: Callable[[], object]

    def __ge__(self, other: float) -> bool:
        self.close()
        return True

    __gt__ = __le__ = __lt__ = __ge__

    def __mul__(self, other: float) -> float:
        self.close()
        return float(self) * other


class Text(str):
    """A str whose methods close the store."""

    close: Callable[[], object]

    def encode(self, *arguments: Any, **keywords: Any) -> bytes:
        self.close()
        return str(self).encode(*arguments, **keywords)

    def __hash__(self) -> int:
        self.close()
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        self.close()
        return str.__eq__(self, other)

    def __bool__(self) -> bool:
        self.close()
        return True

    def startswith(self, *arguments: Any) -> bool:
        self.close()
        return str.startswith(self, *arguments)

    def split(self, *arguments: Any, **keywords: Any) -> list[str]:
        self.close()
        return str.split(self, *arguments, **keywords)

    def strip(self, *arguments: Any) -> str:
        self.close()
        return str.strip(self, *arguments)

    rpartition: Any = None


def _rpartition(self: Text, separator: str) -> tuple[str, str, str]:
    self.close()
    return str.rpartition(self, separator)


Text.rpartition = _rpartition


class Exporter:
    """A body whose buffer closes the store, when it is taken or when it is released. From Python 3.12 on."""

    def __init__(self, when: str, close: Callable[[], object]) -> None:
        self.when, self.close = when, close

    def __buffer__(self, flags: int) -> memoryview:
        if self.when == "taken":
            self.close()
        return memoryview(b"a body")

    def __release_buffer__(self, view: memoryview) -> None:
        if self.when == "released":
            self.close()


class Bodies:
    def __init__(self, close: Callable[[], object]) -> None:
        self.close = close

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        self.close()
        yield b"two"


# call: its arguments as they are without any trick; each of them is then replaced by one that closes the store.
CALLS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "min_offset": (lambda s, *a: s.min_offset(*a), ["T", 0]),
    "max_offset": (lambda s, *a: s.max_offset(*a), ["T", 0]),
    "total": (lambda s, *a: s.total(*a), ["T", 0]),
    "earliest_time": (lambda s, *a: s.earliest_time(*a), ["T", 0]),
    "raw_entry": (lambda s, *a: s.raw_entry(*a), ["T", 0, 0]),
    "ext_unit": (lambda s, *a: s.ext_unit(*a), ["T", 0, -(1 << 63)]),
    "offset_by_time": (lambda s, *a: s.offset_by_time(*a), ["T", 0, 0]),
    "lower_bound": (lambda s, *a: s._lower_bound(*a), ["T", 0, 0]),
    "get": (lambda s, *a: s.get(*a), ["T", 0, 0, 32, "a || b"]),
    "get_many": (lambda s, t, q, o, n: s.get(t, q, o, 100, max_bytes=n), ["T", 0, 0, 1 << 20]),
    "get_wait": (lambda s, t, q, o, n, w: s.get(t, q, o, n, wait=w), ["T", 0, 0, 32, 0.001]),
    "wait_for_message": (lambda s, *a: s.wait_for_message(*a), ["T", 0, 0, 0.001]),
    "wait_dispatched": (lambda s, *a: s.wait_dispatched(*a), [0.001]),
    "message_at": (lambda s, *a: s.message_at(*a), [0]),
    "message_by_id": (lambda s, *a: s.message_by_id(*a), ["7F00000100002A9F0000000000000000"]),
    "log_bytes": (lambda s, *a: s.log_bytes(*a), [0, 100]),
    "log_records": (lambda s, *a: list(s.log_records(*a)), [0, 1 << 16]),
    "query_key": (lambda s, *a: s.query_key(*a), ["T", "k", 10, 0, 1 << 60]),
    "message_by_unique_key": (lambda s, *a: s.message_by_unique_key(*a), ["T", "u"]),
    "scan": (lambda s, t, q, b, e, o: list(s.scan(t, q, begin_time=b, end_time=e, begin=o)), ["T", 0, 0, 1 << 60, 0]),
    "confirm": (lambda s, *a: s.confirm(*a), [0]),
    "queues": (lambda s, *a: s.queues(*a), ["T"]),
    "queue_rows": (lambda s, *a: s._queue_rows(*a), ["T"]),
    "all_queue_rows": (lambda s: s._queue_rows(), []),
    "topics": (lambda s: s.topics(), []),
    "stats": (lambda s: s.stats(), []),
    "notes": (lambda s: s._notes(), []),
    "topic_counts": (lambda s: s.topic_counts(), []),
    "histograms": (lambda s: s.histograms(), []),
    "runtime_info": (lambda s: s.runtime_info(), []),
    "clean": (lambda s, *a: s.clean(*a), [0]),
    "flush": (lambda s: s.flush(), []),
    "reconfigure": (lambda s, a: s.reconfigure(flush_interval_ms=a), [10]),
    "put": (lambda s, t, b, q, tags, keys, p, h: s.put(t, b, queue_id=q, tags=tags, keys=keys, properties=p, born_host=h),
            ["T", b"b", 0, "a", "k", {"n": "v"}, "1.2.3.4:5"]),
    "put_async": (lambda s, t, b, q, n: s.put_async(t, b, queue_id=q, born_timestamp=n, wait=True).result(),
                  ["T", b"b", 0, 1]),
    "put_many": (lambda s, t, b, q, h: s.put_many(t, b, queue_id=q, born_host=h), ["T", [b"x"], 0, "1.2.3.4:6"]),
    "put_mixed": (lambda s, t, b, q, h: s.put_many(t, b, queue_id=q, born_host=h),
                  ["T", [b"x", {"body": b"y", "keys": "k"}], 0, "1.2.3.4:7"]),
    "put_batch": (lambda s, t, b, q, f, h: s.put_batch(t, b, queue_id=q, sys_flag=f, born_host=h),
                  ["T", BATCH, 0, 0, "1.2.3.4:8"]),
    "result": (lambda s, a: s.put_async("T", b"b", wait=True).result(a), [10.0]),
    "watch": (lambda s, *a: Arrivals(s).watch(*a), ["T", 0]),
    "take": (lambda s: _take(s), []),
}


def _take(store: MessageStore) -> Any:
    arrivals = Arrivals(store, everything=True)
    for i in range(3):
        store.put("T", b"x", queue_id=i)
    store.wait_dispatched(0.5)
    return arrivals.take()


def tricks(value: Any, close: Callable[[], object]) -> Iterator[Any]:
    """What stands in place of an argument."""
    if isinstance(value, str):
        text = Text(value)
        text.close = close
        yield text
    elif isinstance(value, float):
        time = Time(value)
        time.close = close
        yield time
    elif isinstance(value, int):
        yield Number(value, close)
    elif isinstance(value, bytes):
        yield from (Exporter("taken", close), Exporter("released", close))
    elif isinstance(value, list):
        yield Bodies(close)


def opened(root: Path) -> MessageStore:
    store = MessageStore.open(root, **SMALL)
    store.confirm(1 << 62)
    for i in range(40):
        store.put("T" if i < 30 else f"T{i}", b"x", queue_id=i % 3, tags="ab"[i % 2], keys="k")
    store.wait_dispatched(30)
    return store


def attempt(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "returned"


def by_argument(call: Callable[..., Any], arguments: list[Any], root: Path) -> Iterator[str]:
    for i, value in enumerate(arguments):
        for which in itertools.count():
            store = opened(root)
            trick = next(itertools.islice(tricks(value, store.close), which, None), None)
            if trick is None:
                store.close()
                break
            print(f"argument {i} ({which}): ", end="", flush=True)
            given = [*arguments[:i], trick, *arguments[i + 1:]]
            yield attempt(lambda store=store, given=given: call(store, *given))     # type: ignore[misc]
            store.close()


def by_trace(call: Callable[..., Any], arguments: list[Any], root: Path) -> Iterator[str]:
    for step in range(STEPS):
        store = opened(root)
        left = iter(range(step))

        def tracer(frame: Any, event: str, argument: Any, left: Iterator[int] = left, store: MessageStore = store) -> Any:
            if next(left, None) is None:
                sys.settrace(None)
                store.close()
            return tracer

        print(f"step {step}: ", end="", flush=True)
        sys.settrace(tracer)
        try:
            call(store, *arguments)
        except Exception as error:
            sys.settrace(None)
            yield type(error).__name__
        else:
            sys.settrace(None)
            yield "returned"
        store.close()


class Garbage:
    def __init__(self, store: MessageStore) -> None:
        self.store, self.me = store, self

    def __del__(self) -> None:
        gc.set_threshold(0)
        self.store.close()


def by_gc(call: Callable[..., Any], arguments: list[Any], root: Path) -> Iterator[str]:
    for step in range(1, STEPS):
        gc.disable()
        store = opened(root)
        Garbage(store)
        print(f"step {step}: ", end="", flush=True)
        gc.set_threshold(gc.get_count()[0] + step)
        gc.enable()
        try:
            call(store, *arguments)
        except Exception as error:
            gc.disable()
            yield type(error).__name__
        else:
            gc.disable()
            yield "returned"
        gc.collect()
        store.close()


HOW = {"argument": by_argument, "trace": by_trace, "gc": by_gc}


if __name__ == "__main__":
    for said in HOW[sys.argv[1]](*CALLS[sys.argv[2]], Path(sys.argv[3])):
        print(said, flush=True)
