"""Queues against a model, by seed: stores of any history (idle queues, cleaning, new and deleted topics, files that roll), then
a power cut, or one bit of an entry that rots; opened again and again, cleanly and not.

What must hold: every message that the log still has is in its queue, at its number, but for the one whose entry rotted; the
next message gets the next number; nothing comes back.
"""
import random
import shutil

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests.images import take_image

SECTOR = 512
QUEUES = [("A", 0), ("A", 1), ("B", 0), ("C", 0)]
pytestmark = pytest.mark.untraced       # files are changed behind the trace's back
SEEDS = [*range(12), 167, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 600) if seed != 167)]


class History:
    """A store, and where each message that was put lies: queue -> queue offset -> (log offset, size, body)."""

    def __init__(self, root, seed):
        self.root, self.random, self.count = root, random.Random(seed), 0
        self.sizes = {"segment_size_bytes": self.random.choice([1 << 12, 1 << 14]), "index_enabled": False,
                      "consumequeue_file_size_bytes": self.random.choice([400, 1000, 1200]),
                      "consumequeue_flush_interval_ms": 3_600_000, "consumequeue_flush_interval_max_ms": 3_600_000}
        if seed % 3 == 0:
            self.sizes |= {"consumequeue_ext_enabled": True, "consumequeue_ext_file_size_bytes": 400}
        self.clock = ProbeIo(keep_bytes=False)
        self.clock.set_clock(1_700_000_000_000, 10_000)         # a checkpoint covers all but the newest messages
        self.sent = {}

    def open(self, root=None, **more):
        return MessageStore.open(root or self.root, **self.sizes, **more)

    def put(self, store, queue):
        body = b"%06d" % self.count * self.random.randrange(1, 12)
        self.count += 1
        put = store.put(queue[0], body, queue_id=queue[1], tags=f"t{self.count}", wait=True)
        self.sent.setdefault(queue, {})[put.queue_offset] = put.offset, put.size, body

    def put_some(self, store, most, queues):
        hot = self.random.sample(queues, self.random.randrange(1, len(queues)))
        for _ in range(self.random.randrange(most)):
            self.put(store, self.random.choice(hot))

    def clean(self, store):
        store.flush()
        store.wait_dispatched(10)
        store.clean(0, files_max=self.random.randrange(1, 5), pace_ms=0)

    def is_right(self, store, life, rotten=None):
        low = store.min_log_offset
        for queue, sent in self.sent.items():
            want = {n: body for n, (offset, _, body) in sent.items() if offset >= low}
            have = {m.queue_offset: bytes(m.body) for m in store.scan(*queue)} if queue[0] in store.topics() else {}
            missing, more = set(want) - set(have), set(have) - set(want)
            if rotten and queue == rotten[0]:
                missing.discard(rotten[1])
            assert not missing and not more, (life, queue, missing, more)
            assert all(have[n] == want[n] for n in have), (life, queue)
            if sent:
                assert store.max_offset(*queue) == max(sent) + 1, (life, queue)

    def lives(self, root, rotten=None):
        for life in range(3):
            with self.open(root) as store:
                self.is_right(store, life, rotten)
                for queue in self.random.sample(list(self.sent), min(3, len(self.sent))):
                    self.put(store, queue)
                store.flush()
                store.wait_dispatched(10)
            if self.random.random() < 0.6:
                (root / "abort").touch()


def cut_sectors(history, path, old, begin):
    """Each sector behind `begin` may be what it was before; a file that was not there was zeros."""
    data, share = bytearray(path.read_bytes()), history.random.choice([0, 0.1, 0.5, 0.9, 1])
    for at in range(0, len(data), SECTOR):
        if at + SECTOR > begin and history.random.random() < share:
            start, end = max(at, begin), min(at + SECTOR, len(data))
            data[start:end] = old[start:end].ljust(end - start, b"\0")
    path.write_bytes(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut(tmp_path, seed):
    h = History(tmp_path / "s", seed)
    with h.open(_io=h.clock) as store:
        h.put_some(store, 250, QUEUES)
        if h.random.random() < 0.7:
            h.clean(store)
        h.put_some(store, 60, QUEUES)
    take_image(h.root, tmp_path / "old")
    with h.open() as store:
        h.put_some(store, 150, [*QUEUES, ("New", 1)])
        if seed % 2 == 0:
            topic = h.random.choice("ABC")
            store.delete_topics(topic)
            h.sent = {queue: sent for queue, sent in h.sent.items() if queue[0] != topic}
            shutil.rmtree(tmp_path / "old" / "consumequeue" / topic, ignore_errors=True)
            shutil.rmtree(tmp_path / "old" / "consumequeue_ext" / topic, ignore_errors=True)
            h.put_some(store, 30, QUEUES)
        flushed = store.flush()
        h.put_some(store, 60, [*QUEUES, ("Last", 0)])
        store.wait_dispatched(10)
        take_image(h.root, tmp_path / "image")
    image, old = tmp_path / "image", tmp_path / "old"
    shutil.copy(old / "checkpoint", image / "checkpoint")
    for path in sorted(p for name in ("commitlog", "consumequeue", "consumequeue_ext") for p in (image / name).rglob("0*")):
        if path.is_file():
            before = old / path.relative_to(image)
            in_log = path.parent.name == "commitlog"
            cut_sectors(h, path, before.read_bytes() if before.exists() and not in_log else b"",
                        max(0, flushed - int(path.name)) if in_log else 0)
    with h.open(image) as store:
        end = store.max_log_offset
        assert end >= flushed
    h.sent = {queue: {n: what for n, what in sent.items() if what[0] + what[1] <= end} for queue, sent in h.sent.items()}
    h.lives(image)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bit_of_an_entry_rots(tmp_path, seed):
    h = History(tmp_path / "s", seed)
    with h.open(_io=h.clock) as store:
        for _ in range(3):
            h.put_some(store, 120, QUEUES)
            store.flush()
            store.wait_dispatched(10)
            if h.random.random() < 0.5:
                h.clean(store)
        h.put(store, QUEUES[0])
        low, end = store.min_log_offset, store.max_log_offset
    queue = h.random.choice(list(h.sent))
    there = [n for n, (offset, _, _) in h.sent[queue].items() if offset >= low]
    if not there:
        pytest.skip("all of that queue was cleaned")
    number = h.random.choice([there[-1], h.random.choice(there)])
    size = h.sizes["consumequeue_file_size_bytes"]
    path = h.root / "consumequeue" / queue[0] / str(queue[1]) / f"{number * 20 // size * size:020d}"
    data, at, byte = bytearray(path.read_bytes()), number * 20 % size, h.random.randrange(12)
    data[at + byte] ^= 1 << h.random.randrange(8)
    path.write_bytes(data)
    behind = int.from_bytes(data[at:at + 8], "big", signed=True) >= end
    if h.random.random() < 0.6 and not behind:      # else it looks like what a power cut took: docs/faults.md
        (h.root / "abort").touch()
    h.lives(h.root, (queue, number))
