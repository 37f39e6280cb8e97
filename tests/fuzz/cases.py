"""The stores that are damaged, and what is done to each: all of it told by a seed and a case's number.

A case's damages have generators of their own, so that each can be done alone when a finding is made smaller.
"""
import os
import pickle
import shutil
import stat
import struct
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rmq_store import MessageStore, scrub
from rmq_store.errors import RmqStoreError
from tests.fuzz import damage, hostile, odd, small
from tests.golden_store import GoldenCase, cases, unpack

# Whole pages: what is read behind the end of a file meets the guard and not the rest of a page.
OURS = {"segment_size_bytes": 16384, "consumequeue_file_size_bytes": 4000, "index_slots": 110, "index_entries_max": 1000}
OUR_KINDS = ("ours", "ours-pool-crc", "ours-ext-crash", "ours-delay", "ours-4.9-crash", "ours-consumed-manifests",
             "ours-ext-roll", "ours-cleaned")
KINDS: list[tuple[float, list[Callable[[Random, Path], str]]]] = [
    (0.25, damage.KINDS), (0.40, hostile.KINDS), (0.15, small.KINDS), (0.20, odd.KINDS)]
Place = tuple[str, int, int]            # topic, queue id, queue offset
What = tuple[int, int, int]             # log offset, size, CRC-32 of the record


@dataclass
class Base:
    """An undamaged store, how it is opened, and what it gives once it was."""

    name: str
    root: Path
    options: dict[str, Any]
    messages: dict[Place, What] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, Any]:
        """Options for whoever only reads."""
        return {k: v for k, v in self.options.items() if k not in ("write_path", "record_crc", "delay")}


def make_ours(root: Path, kind: str) -> dict[str, Any]:
    """A store of ours; returns its options."""
    options: dict[str, Any] = OURS | {
        "write_path": "pool" if "pool" in kind else "mmap", "record_crc": "crc" in kind, "delay": "store_only",
        "consumequeue_ext_enabled": "ext" in kind, "compat": "4.9" if "4.9" in kind else "5.x"}
    if "roll" in kind:
        options["consumequeue_ext_file_size_bytes"] = 400
    random = Random(kind)
    with MessageStore.open(root, **options) as s:
        for i in range(400):
            level = {"delay_level": 1 + i % 4} if "delay" in kind and i % 3 == 0 else {}
            s.put(random.choice(["T", "topic-2", "%RETRY%x"]), random.randbytes(random.choice([0, 10, 100, 300])),
                  queue_id=i % 3, keys=f"k{i} Aa" if i % 2 else None, tags="t" if i % 3 else None,
                  properties={"UNIQ_KEY": f"u{i}"} if i % 5 else {"a": "b"}, **level)
        s.put_many("T", [b"many"] * 50, queue_id=1)
        s.wait_dispatched()
        if "consumed" in kind:
            with s.consumer("g", ["T", "topic-2"]) as c:
                for _ in range(6):
                    batch = c.poll(timeout=0)
                    if batch is not None and len(batch) > 3:
                        batch.retry(next(iter(batch)))
                    if batch is not None:
                        batch.ack()
            s.topic_table.set("T", readQueueNums=3)
            s.offsets.flush()
        if "cleaned" in kind:
            s.flush()
            s.clean(hours=0, files_max=3, pace_ms=0)
            s.put("T", b"last")
            s.delete_topics("topic-2")
        if "crash" in kind:
            s.flush()
            shutil.copytree(root, f"{root}.image", ignore=shutil.ignore_patterns(".alloc"))
    if "crash" in kind:
        shutil.rmtree(root)
        Path(f"{root}.image").rename(root)
    if "manifests" in kind:
        scrub(root, bytes_per_s=None, make_manifests=True)
    return options


def contents(base: Base, scratch: Path) -> dict[Place, What]:
    """What a copy of the base gives, queue by queue, once it was opened."""
    shutil.copytree(base.root, scratch)
    options = {**base.options, "delay": "store_only"}
    found: dict[Place, What] = {}
    try:
        MessageStore.open(scratch, **options).close()
        with MessageStore.open(scratch, readonly=True, **base.sizes) as s:
            for topic in s.topics():
                for queue in s.queues(topic):
                    at, high = s.min_offset(topic, queue), s.max_offset(topic, queue)
                    while at < high:
                        got = s.get(topic, queue, at, 32)
                        found |= {(topic, queue, m.queue_offset): (m.offset, m.size, zlib.crc32(m.raw)) for m in got}
                        at = max(got.next_offset, at + 1)
    except RmqStoreError:       # a golden store that RocketMQ refuses, too
        pass
    shutil.rmtree(scratch)
    return found


def names() -> list[str]:
    """Of all stores that are damaged."""
    return [*cases(), *OUR_KINDS]


def make_base(directory: Path, name: str) -> None:
    """Makes one: <directory>/<name>/store, and what it holds. In a process of its own: stores have threads."""
    place = directory / name
    place.mkdir(parents=True)
    if name in OUR_KINDS:
        base = Base(name, place / "store", make_ours(place / "store", name))
    else:
        case: GoldenCase = unpack(name, place)
        base = Base(name, case.store, {**case.config, "compat": case.compat, "delay": "store_only"})
    base.messages = contents(base, place / "scratch")
    (place / "base").write_bytes(pickle.dumps(base))


def load_base(directory: Path, name: str) -> Base | None:
    """None where it is still to be made."""
    try:
        found: Base = pickle.loads((directory / name / "base").read_bytes())
    except FileNotFoundError:
        return None
    return found


def wipe(place: Path) -> None:
    """Removes a tree whatever its modes are; follows no link."""
    def again(function: Callable[[str], object], path: str, _: object) -> None:
        os.chmod(os.path.dirname(path), 0o700)
        if not os.path.islink(path):
            os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) and not os.path.islink(path) else function(path)

    if place.exists():
        shutil.rmtree(place, onerror=again)


def choose(seed: str, n: int) -> str:
    """The name of the store that case `n` damages."""
    return Random(f"{seed}:{n}").choice(names())


def build(seed: str, n: int, base: Base, place: Path, only: Collection[int] | None = None) -> list[str]:
    """Case `n` in `place`: store/ with its damage, decoys/ beside it. What was done, in words. only: these damages alone."""
    wipe(place)
    place.mkdir()
    shutil.copytree(base.root, place / "store", symlinks=True)
    odd.make_decoys(place / "decoys")
    random = Random(f"{seed}:{n}:how many")
    done = []
    for i in range(random.choice([1, 1, 1, 2, 3])):
        if only is None or i in only:
            done.append(_one(Random(f"{seed}:{n}:{i}"), place / "store"))
    return done


def _one(random: Random, root: Path) -> str:
    (kinds,) = random.choices([k for _, k in KINDS], [w for w, _ in KINDS])
    kind = random.choice(kinds)
    name = f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
    try:
        return f"{name}: {kind(random, root)}"
    except (IndexError, OSError, OverflowError, struct.error) as error:     # a damage before this one left nothing to damage
        return f"{name}: nothing to damage ({type(error).__name__})"


def regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
