"""Small runs of a MessageStore on a probe, and the judge of what a power cut or a kill leaves of them.

What must hold (the rules of docs/is-my-message-safe.md):
- Ack rule: what a note says is durable is returned byte for byte, at its offset and queue offset.
- Prefix rule: the log holds the first k messages put, for some k; nothing invented, nothing out of order, each message whole,
  its topic and properties too, which upstream's checksum does not cover.
- The queues and the index lead to exactly these, and the store takes messages again.
"""
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import RmqStoreError
from rmq_store.log.flush._uring import uring_probe
from tests.crash.disk import Image
from tests.crash.states import Scratch

# Small files, so that a run rolls, and no thread of the store that acts by the clock: every run makes the same calls.
SMALL: dict[str, Any] = {
    "segment_size_bytes": 16384, "index_slots": 20, "index_entries_max": 40, "consumequeue_file_size_bytes": 20 * 64,
    "pool_window_size_bytes": 4096, "message_size_max_bytes": 8192, "flush_interval_ms": 3_600_000,
    "flush_interval_max_ms": 3_600_000, "consumequeue_flush_interval_ms": 3_600_000,
    "consumequeue_flush_interval_max_ms": 3_600_000,
}
CONFIGS = [(w, m, b) for w in ("mmap", "pool") for m in ("sync", "async") for b in ("msync", "fdatasync")
           if (w, b) != ("pool", "msync")] + [("pool", "sync", "msync")]
# The kinds of io_uring, by a name that is longer than the option's value.
URING = {"io_uring": {"flush_backend": "io_uring", "uring_durability": "fdatasync"},
         "io_uring-dsync": {"flush_backend": "io_uring", "uring_durability": "dsync", "segment_prezero": "off"},
         "io_uring-buffered": {"flush_backend": "io_uring", "uring_durability": "fdatasync", "uring_direct": "off"}}
RING_HERE = uring_probe(tempfile.gettempdir())["setup"] == 0
if RING_HERE:
    CONFIGS += [("pool", "sync", "io_uring"), ("pool", "async", "io_uring"), ("pool", "sync", "io_uring-dsync")]


def durable_call(config: tuple[str, str, str]) -> str:
    """The kind of call that makes the log of a synchronous store durable; with dsync that is the write itself."""
    return "pwrite|ring_write" if config[2] == "io_uring-dsync" else "msync|fdatasync|ring_sync"


def config_options(config: tuple[str, str, str]) -> dict[str, Any]:
    """The options of a store: write path, flush mode, back end (one of URING, or the option's own value)."""
    return {"write_path": config[0], "flush_mode": config[1], **URING.get(config[2], {"flush_backend": config[2]})}


@dataclass(frozen=True)
class Sent:
    """One message as it was put."""

    topic: str
    queue_id: int
    body: bytes
    key: str

    def put(self, store: MessageStore, **more: Any) -> Any:
        return store.put(self.topic, self.body, queue_id=self.queue_id, keys=self.key, tags="tag", **more)


def message(i: int, size: int = 700) -> Sent:
    return Sent("T", i % 2, (b"%04d" % i) + bytes([97 + i % 26]) * (size - 4), f"key{i}")


class Run:
    """A store on a probe, whose notes say what was put and what is durable."""

    def __init__(self, root: str, probe: ProbeIo, write_path: str, flush_mode: str, flush_backend: str, **more: Any) -> None:
        self.root, self.probe = root, probe
        self.sync = flush_mode == "sync"
        self.options = {**SMALL, **config_options((write_path, flush_mode, flush_backend)), **more}
        self.sent: list[Sent] = []
        self.store = MessageStore.open(root, _io=probe, **self.options)

    def put(self, size: int = 700, queue_id: int | None = None) -> Any:
        one = message(len(self.sent), size)
        if queue_id is not None:
            one = replace(one, queue_id=queue_id)
        self.sent.append(one)
        self.probe.mark(("put", one))
        result = one.put(self.store)
        self._acknowledged(result.status == 0, [(result.offset, result.queue_offset)])
        return result

    def put_many(self, count: int, size: int = 700) -> Any:
        """All in one queue."""
        some = [Sent("T", 0, message(len(self.sent) + i, size).body, f"key{len(self.sent) + i}") for i in range(count)]
        for one in some:
            self.sent.append(one)
            self.probe.mark(("put", one))
        result = self.store.put_many("T", [{"body": s.body, "keys": s.key, "tags": "tag"} for s in some])
        self._acknowledged(result.status == 0, list(zip(result.offsets, result.queue_offsets, strict=True)))
        return result

    def _acknowledged(self, ok: bool, places: list[tuple[int, int]]) -> None:
        for place in places:
            self.probe.mark(("place", place))
        if ok and self.sync:
            self.probe.mark(("durable", len(self.sent)))

    def flush(self) -> None:
        self.store.flush()
        self.probe.mark(("durable", len(self.sent)))

    def again(self, **more: Any) -> None:
        self.close()
        self.options |= more
        self.store = MessageStore.open(self.root, _io=self.probe, **self.options)

    def close(self) -> None:
        self.store.close()
        self.probe.mark(("durable", len(self.sent)))


# ---- the runs

def three(run: Run) -> None:
    """Three messages, a flush in between, a clean close."""
    run.put()
    run.put()
    run.flush()
    run.put()
    run.store.wait_dispatched(10)
    run.close()


def batch(run: Run) -> None:
    """One message, a batch that spans many sectors, a clean close."""
    run.put()
    run.put_many(4)
    run.store.wait_dispatched(10)
    run.close()


def roll(run: Run) -> None:
    """Messages that close one file and begin the next, twice."""
    for _ in range(5):
        run.put(5000)
    run.flush()
    for _ in range(2):
        run.put(5000)
    run.store.wait_dispatched(10)
    run.close()


def idle(run: Run) -> None:
    """A queue gets messages, nothing for several files of the log and a life, and some at the end."""
    run.probe.set_clock(1_700_000_000_000, 5000)
    run.again(index_entries_max=10)     # the first life fills a file of the index, else the index has all dispatched again
    for _ in range(3):
        run.put(100, queue_id=1)
    for _ in range(7):
        run.put(5000, queue_id=0)
    run.again()
    for _ in range(4):
        run.put(600, queue_id=1)
    run.store.wait_dispatched(10)
    run.put(100, queue_id=0)
    run.close()


RUNS: dict[str, Callable[[Run], None]] = {"three": three, "batch": batch, "roll": roll, "idle": idle}


# ---- the judge

def judge(root: str, notes: list[Any], options: dict[str, Any], *, go_on: bool = False) -> str | None:
    """Opens the directory and says what is wrong with what is in it, or None. go_on: puts one more and opens once more."""
    sent = [note[1] for note in notes if note[0] == "put"]
    places = [note[1] for note in notes if note[0] == "place"]
    durable = max([note[1] for note in notes if note[0] == "durable"], default=0)
    options = {**options, "flush_mode": "async", "write_path": "mmap", "flush_backend": "auto"}
    try:
        with damage() as said, MessageStore.open(root, **options) as store:
            wrong = inspect(store, sent, places, durable)
            if wrong is None and said:
                wrong = f"what a power cut leaves is called damage: {said[0]}"
            if wrong is None and go_on:
                kept = len(list(store.scan()))
                message(kept).put(store)
                store.wait_dispatched(10)
        if wrong is None and go_on:
            with MessageStore.open(root, **options) as store:
                wrong = inspect(store, [*sent[:kept], message(kept)], places[:kept], kept + 1)
                if wrong:
                    wrong = f"after one more put and a reopening: {wrong}"
    except (RmqStoreError, OSError, ValueError, KeyError) as e:
        return f"{type(e).__name__}: {e}"
    return wrong


@contextmanager
def damage() -> Iterator[list[str]]:
    """What is said of damaged queues meanwhile."""
    said: list[str] = []

    def heard(record: logging.LogRecord) -> bool:
        if getattr(record, "event", "") == "QUEUES_SPOILT":
            said.append(record.getMessage())
        return True

    log = logging.getLogger("rmq_store.recovery")
    log.addFilter(heard)
    try:
        yield said
    finally:
        log.removeFilter(heard)


def inspect(store: MessageStore, sent: list[Sent], places: list[tuple[int, int]], durable: int) -> str | None:
    """What is wrong with an open store."""
    found = [(m.topic, m.queue_id, bytes(m.body), m.keys, m.offset, m.queue_offset) for m in store.scan()]
    if len(found) < durable:
        return f"{durable} messages were durable, {len(found)} are left"
    if len(found) > len(sent):
        return f"{len(found)} messages, only {len(sent)} were put"
    counts: dict[tuple[str, int], int] = {}
    for i, (topic, queue_id, body, keys, offset, queue_offset) in enumerate(found):
        one = sent[i]
        if (topic, queue_id, body, keys) != (one.topic, one.queue_id, one.body, one.key):
            return f"message {i} is not what was put: {topic} {queue_id} {body[:8]!r} ({len(body)} bytes) {keys}"
        if i < len(places) and (offset, queue_offset) != places[i]:
            return f"message {i} is at {(offset, queue_offset)}, acknowledged at {places[i]}"
        nth = counts.get((topic, queue_id), 0)
        counts[topic, queue_id] = nth + 1
        if queue_offset != nth:
            return f"message {i} has queue offset {queue_offset}, it is number {nth} of its queue"
        # As upstream, an index that was built again may name a message twice.
        if {m.offset for m in store.query_key(topic, keys)} != {offset}:
            return f"the index does not lead to message {i} by {keys}"
    for (topic, queue_id), count in counts.items():
        if store.max_offset(topic, queue_id) != count:
            return f"queue {queue_id} ends at {store.max_offset(topic, queue_id)}, it has {count} messages"
        got = [(m.offset, m.queue_offset) for m in store.scan(topic, queue_id)]
        if got != [(f[4], f[5]) for f in found if (f[0], f[1]) == (topic, queue_id)]:
            return f"queue {queue_id} leads to {got}"
    return None


def judge_images(scratch: Scratch, options: dict[str, Any], go_on_every: int = 7) -> Callable[[Image, list[Any]], str | None]:
    """The judge for `explore`: writes each image out and opens it."""
    judged = 0

    def one(image: Image, notes: list[Any]) -> str | None:
        nonlocal judged
        judged += 1
        return judge(scratch.write(image), notes, options, go_on=judged % go_on_every == 0)

    return one
