"""What every workload puts: the same messages as the Java harness (tools/interop), and the small steps around a measurement.

Messages: a body of seeded noise; `lean` has no properties, `tagged` tags and one key through the arguments of put, `full`
what a Java client sends (KEYS, UNIQ_KEY, WAIT, TAGS) as prepared bytes.
"""
import functools
import mmap
import random
import time
from typing import Any

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.bench.loops import KEYWORDS, ROUND, loops
from rmq_store.store import MessageStore

TOPIC = "BenchTopic0"
QUEUES = 4
POOL = 1 << 16      # so many different messages, then again from the first


def unique_id(i: int) -> str:
    """UNIQ_KEY of message `i` of the kind `full`."""
    return f"C0000214{i * 2654435761 & 0xffffffff:08X}4EF3B4AAC2{i:06X}"


def key(i: int) -> str:
    """KEYS of message `i` of the kinds `full` and `tagged`."""
    return f"order-{100000 + i}"


def bodies(size: int) -> list[bytes]:
    """64 bodies of `size` bytes of noise."""
    rng = random.Random(42)
    return [rng.randbytes(size) for _ in range(64)]


def messages(props: str, size: int, count: int = POOL) -> list[tuple[Any, ...]]:
    """`count` messages as tuples in the order of loops.py: body, queue, and what the kind `props` adds."""
    several = bodies(size)
    if props == "bare":
        return [(several[i % 64],) for i in range(count)]
    if props == "lean":
        return [(several[i % 64], i % QUEUES) for i in range(count)]
    if props == "tagged":
        return [(several[i % 64], i % QUEUES, f"Tag{i & 7}", key(i)) for i in range(count)]
    if props == "full":
        return [(several[i % 64], i % QUEUES, f"KEYS\x01{key(i)}\x02UNIQ_KEY\x01{unique_id(i)}\x02"
                 f"WAIT\x01true\x02TAGS\x01Tag{i & 7}\x02".encode()) for i in range(count)]
    raise ValueError(f"props={props!r}: lean, tagged or full")


@functools.lru_cache(maxsize=2)
def rounds(props: str, size: int, count: int = POOL) -> list[list[tuple[Any, ...]]]:
    """The messages, cut into rounds. Made once: not to be changed."""
    several = messages(props, size, count)
    return [several[i:i + ROUND] for i in range(0, count, ROUND)]


def record_size(store: MessageStore, props: str, size: int) -> int:
    """Puts one message; the bytes it takes in the log."""
    message = messages(props, size, 1)[0]
    return store.put(TOPIC, message[0], **dict(zip(KEYWORDS[props], message[1:], strict=True))).size


def write(store: MessageStore, props: str, size: int, count: int) -> None:
    """Puts at least `count` messages, not measured."""
    loops(props).plain(store.put, TOPIC, rounds(props, size), count, 1 << 62, time.perf_counter_ns, Histogram().add)


def pretouch(mib: int) -> None:
    """Uses so much memory and gives it back: in a virtual machine the host then backs what the page cache will use.

    A file on the disk would do the same, but its write-back and the discards of its deletion last into what is measured.
    Shared memory, so that it is not taken for private memory of the store.
    """
    if mib > 0:
        mmap.mmap(-1, mib << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def drain(store: MessageStore) -> float:
    """Everything durable and in its queue; milliseconds that took."""
    start = time.perf_counter()
    store.flush()
    store.wait_dispatched()
    return (time.perf_counter() - start) * 1e3
