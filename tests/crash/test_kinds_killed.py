"""Lives of a store with plain, light and batch queues, each killed at a change that the seed chooses; then the next one begins.

The model is the sequence of puts. A kill leaves the first puts of it, at least those that were acknowledged, and each queue of
each kind has exactly what these say, at consecutive offsets. In the end verification finds nothing. There is no index: a trace
that begins in the second life would find files of it that it did not see made.
"""
import contextlib
import os
import random
from collections import defaultdict
from pathlib import Path

import pytest

from rmq_store import MessageStore, errors, verify
from rmq_store.base.io._io import ProbeIo

pytestmark = pytest.mark.crash
SEED = int(os.environ.get("RMQ_SEED", "1"))
SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 400, "batch_consumequeue_file_size_bytes": 46 * 4,
         "index_enabled": False, "message_size_max_bytes": 4096, "enable_lmq": True,
         "enable_multi_dispatch": True, "write_path": "mmap", "manifest_enabled": False, "consumequeue_flush_interval_ms": 50}
LIFE = 25

# topic and queue of the record, its bodies (several: an inner batch), and its light queues
Put = tuple[str, int, list[bytes], list[str]]


def chosen(rnd: random.Random, number: int) -> Put:
    body = b"%05d" % number + bytes(rnd.randrange(900))
    match rnd.randrange(3):
        case 0:
            return "P", rnd.randrange(2), [body], []
        case 1:
            return "L", 0, [body], rnd.sample(["a", "b", "c"], rnd.randrange(1, 4))
        case _:
            return "B", rnd.randrange(2), [body + b"-%d" % k for k in range(rnd.randrange(1, 5))], []


def do(store: MessageStore, put: Put) -> None:
    topic, queue_id, bodies, lights = put
    if topic == "B":
        store.put_inner_batch(topic, bodies, queue_id=queue_id)
    else:
        store.put(topic, bodies[0], queue_id=queue_id, keys="k", light_queues=lights or None)


def queues_of(puts: list[Put]) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = defaultdict(list)
    for topic, queue_id, bodies, lights in puts:
        found[topic, queue_id] += bodies
        for name in lights:
            found[f"%LMQ%{name}", 0] += bodies
    return found


def wrong(store: MessageStore, puts: list[Put]) -> str | None:
    store.wait_dispatched(30)
    for (topic, queue_id), bodies in queues_of(puts).items():
        got = [(m.queue_offset if not topic.startswith("%LMQ%") else n, bytes(m.body))
               for n, m in enumerate(store.scan(topic, queue_id))]
        if got != list(enumerate(bodies)) or store.max_offset(topic, queue_id) != len(bodies):
            return f"{topic}/{queue_id} has {len(got)} to {store.max_offset(topic, queue_id)}, the log {len(bodies)}"
    return None


def life(root: Path, puts: list[Put], rnd: random.Random, kill_at: int) -> tuple[int, bool]:
    """Puts more, on what is there. Returns how many of `puts` were acknowledged before the kill, and whether it came."""
    probe, acknowledged = ProbeIo(keep_bytes=False), len(puts)
    with contextlib.suppress(errors.RmqStoreError, OSError), MessageStore.open(root, _io=probe, **SMALL) as store:
        probe.freeze("mutate", kill_at)
        for number in range(len(puts), len(puts) + LIFE):
            puts.append(chosen(rnd, number))
            do(store, puts[-1])
            acknowledged = acknowledged if probe.frozen else len(puts)
            if rnd.randrange(6) == 0:
                store.flush()
                store.wait_dispatched(2)
    return acknowledged, probe.frozen


@pytest.mark.parametrize("seed", [*range(SEED, SEED + 3), *(pytest.param(n, marks=pytest.mark.slow)
                                                             for n in range(SEED + 3, SEED + 40))])
def test_killed_lives(memory_disk: Path, seed: int) -> None:
    rnd, puts, kills = random.Random(seed), list[Put](), 0
    root = memory_disk / "s"
    with MessageStore.open(root, **SMALL) as store:
        store.topic_table.set_queue_type("B", "BatchCQ")
    for number in range(6):
        acknowledged, killed = life(root, puts, rnd, rnd.randrange(1, 60))
        kills += killed
        with MessageStore.open(root, **SMALL) as store:
            there = sum(kind == "msg" for kind, _, _, _ in store.log_records())
            assert acknowledged <= there <= len(puts), f"life {number}: {there} records, {acknowledged} were acknowledged"
            del puts[there:]
            assert (found := wrong(store, puts)) is None, f"life {number}: {found}"
    assert kills > 1 and len(puts) > LIFE
    assert not [finding for finding in verify(root) if finding.severity == "corrupt"]
