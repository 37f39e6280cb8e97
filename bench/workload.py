"""What every driver needs: the messages (the same as the Java harness's), a store to put them in, a warm page cache, drain.

Messages: a body of seeded noise; `lean` has no properties, `tagged` tags and one key through the arguments of put, `full`
what a Java client sends (KEYS, UNIQ_KEY, WAIT, TAGS) as prepared bytes.
"""
import argparse
import json
import random
import shutil
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.loops import KEYWORDS, ROUND, loops
from rmq_store import MessageStore

TOPIC = "BenchTopic0"
QUEUES = 4
POOL = 1 << 16      # so many different messages, then again from the first


def unique_id(i: int) -> str:
    return f"C0000214{i * 2654435761 & 0xffffffff:08X}4EF3B4AAC2{i:06X}"


def bodies(size: int) -> list[bytes]:
    rng = random.Random(42)
    return [rng.randbytes(size) for _ in range(64)]


def messages(props: str, size: int, count: int = POOL) -> list[tuple[Any, ...]]:
    """`count` messages as tuples in the order of bench/loops.py: body, queue, and what the kind `props` adds."""
    several = bodies(size)
    if props == "lean":
        return [(several[i % 64], i % QUEUES) for i in range(count)]
    if props == "tagged":
        return [(several[i % 64], i % QUEUES, f"Tag{i & 7}", f"order-{100000 + i}") for i in range(count)]
    if props == "full":
        return [(several[i % 64], i % QUEUES, f"KEYS\x01order-{100000 + i}\x02UNIQ_KEY\x01{unique_id(i)}\x02"
                 f"WAIT\x01true\x02TAGS\x01Tag{i & 7}\x02".encode()) for i in range(count)]
    raise ValueError(f"props={props!r}: lean, tagged or full")


def rounds(props: str, size: int, count: int = POOL) -> list[list[tuple[Any, ...]]]:
    """The messages, cut into rounds."""
    several = messages(props, size, count)
    return [several[i:i + ROUND] for i in range(0, count, ROUND)]


def record_size(store: MessageStore, props: str, size: int) -> int:
    """Puts one message; the bytes it takes in the log."""
    message = messages(props, size, 1)[0]
    return store.put(TOPIC, message[0], **dict(zip(KEYWORDS[props], message[1:], strict=True))).size


def write(store: MessageStore, props: str, size: int, count: int) -> None:
    """Puts at least `count` messages, not measured."""
    several = rounds(props, size)
    samples = array("q", bytes(8 * (count // ROUND + 2)))
    loops(props).plain(store.put, TOPIC, several, count, 1 << 62, time.perf_counter_ns, samples)


@contextmanager
def scratch(base: Path) -> Iterator[Path]:
    """A directory of our own under `base`, removed at the end."""
    base.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="rmqbench.", dir=base))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def pretouch(path: Path, mib: int) -> None:
    """Writes and deletes a file: in a virtual machine the host then backs the memory that the page cache will use."""
    block = b"\1" * (1 << 20)
    with open(path, "wb") as f:
        f.writelines(block for _ in range(mib))
    path.unlink()


def drain(store: MessageStore) -> float:
    """Everything durable and in its queue; milliseconds that took."""
    start = time.perf_counter()
    store.flush()
    if not store.wait_dispatched(300):
        raise TimeoutError("not dispatched within 300 s")
    return (time.perf_counter() - start) * 1e3


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """`--name VALUE` for every default, typed like it; `--dir`, `--smoke`."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="on the disk to be measured, not tmpfs")
    p.add_argument("--smoke", action="store_true", help="seconds instead of minutes: shows that it runs, measures nothing")
    for name, value in defaults.items():
        p.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help=f"default {value}")
    return p


def report(figures: dict[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps(figures), flush=True)
