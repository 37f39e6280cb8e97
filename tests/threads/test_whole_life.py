"""A whole life of a store with everybody at work at once: producers of every kind, readers, cleaning, reconfiguring, flushing.

Goal: whatever the threads do to each other, each queue holds what was acknowledged in it, in order, also after a crash and a
close. Under tools/races the same lives show races between threads that the figures here would not.
"""
import shutil
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.status import GetStatus
from tests.crash import scenario
from tests.threads.test_producers import together

CONFIGS = [("mmap", "async", "fdatasync"), ("mmap", "sync", "msync"), ("pool", "async", "fdatasync"),
           ("pool", "sync", "fdatasync")]
if scenario.RING_HERE:
    CONFIGS += [("pool", "async", "io_uring"), ("pool", "sync", "io_uring"), ("pool", "sync", "io_uring-dsync"),
                ("pool", "async", "io_uring-buffered")]
SMALL = {"segment_size_bytes": 1 << 20, "consumequeue_file_size_bytes": 20 * 100, "index_slots": 50, "index_entries_max": 400,
         "pool_window_size_bytes": 64 << 10, "message_size_max_bytes": 100_000, "flush_interval_ms": 5,
         "manifest_interval_ms": 20, "consumequeue_flush_interval_ms": 20, "clean_queue_pace_ms": 0, "delay_levels": "1s",
         "delay_offset_flush_interval_ms": 20}
COUNT = 240
LARGE = 40_000          # such puts work without the GIL


def body(queue_id, i):
    return b"%d-%d-" % (queue_id, i) + bytes(LARGE if i % 8 == 0 else 300 + i)


class Life:
    """One open store, and what was acknowledged in each of its queues: {queue offset: body}."""

    def __init__(self, store):
        self.store = store
        self.sent = {}
        self.told = []
        self.done = threading.Event()
        store.add_arriving_listener(lambda topic, queue_id, high: self.told.append((topic, queue_id, high)))

    def acknowledged(self, queue_id, offset, i):
        self.sent.setdefault(queue_id, {})[offset] = body(queue_id, i)

    def put(self):
        for i in range(COUNT):
            self.acknowledged(0, self.store.put("T", body(0, i), queue_id=0, keys=f"k{i}", tags="a").queue_offset, i)
            if i % 80 == 0:
                self.store.put("D", b"later", delay_level=1)

    def put_and_wait(self):
        for i in range(COUNT // 8):
            self.acknowledged(1, self.store.put("T", body(1, i), queue_id=1, wait=True).queue_offset, i)

    def put_async(self):
        futures = [self.store.put_async("T", body(2, i), queue_id=2, keys=f"k{i}", wait=True) for i in range(COUNT)]
        for i, future in enumerate(futures):
            self.acknowledged(2, future.result().queue_offset, i)

    def put_many(self):
        for begin in range(0, COUNT, 30):
            result = self.store.put_many("T", [body(3, begin + i) for i in range(30)], queue_id=3)
            for i, offset in enumerate(result.queue_offsets):
                self.acknowledged(3, offset, begin + i)

    def produce(self):
        try:
            together(self.put, self.put_and_wait, self.put_async, self.put_many)
        finally:
            self.done.set()

    def follow(self, queue_id, last):
        """Reads a queue while it grows, up to its last message; where cleaning is faster, from where the queue begins then."""
        at = 0
        while at < last:
            result = self.store.get("T", queue_id, at, wait=10)
            for message in result:
                assert bytes(message.body) == body(queue_id, message.queue_offset)
                assert message.queue_offset >= at
            assert result or result.next_offset > at or result.status is GetStatus.NO_MESSAGE_IN_QUEUE, result
            at = result.next_offset

    def wait_for_last(self, queue_id, last):
        assert self.store.wait_for_message("T", queue_id, last - 1, timeout=100)

    def again_and_again(self, *calls):
        while not self.done.wait(0.001):
            for call in calls:
                call()

    def look(self):
        self.store.stats()
        self.store.query_key("T", "k8")
        self.store.delay_levels()
        self.store.histograms()

    def whole(self):
        """What each queue holds is what was acknowledged in it, from wherever cleaning has left its beginning."""
        for queue_id, sent in self.sent.items():
            low = self.store.get("T", queue_id, 0).min_offset
            found = [(m.queue_offset, bytes(m.body)) for m in self.store.scan("T", queue_id)]
            assert found == sorted((offset, text) for offset, text in sent.items() if offset >= low)

    def live(self):
        turn = iter(range(1 << 30))
        together(self.produce,
                 lambda: self.follow(0, COUNT), lambda: self.follow(3, COUNT), lambda: self.wait_for_last(2, COUNT),
                 lambda: self.again_and_again(lambda: self.store.clean(0, files_max=1, pace_ms=0)),
                 lambda: self.again_and_again(lambda: self.store.reconfigure(flush_interval_ms=1 + next(turn) % 9)),
                 lambda: self.again_and_again(self.store.flush, self.look))
        self.store.put("L", b"last", delay_level=1)     # those before it are delivered before it, if cleaning has left them
        assert self.store.wait_for_message("L", 0, 0, timeout=100)
        assert self.store.wait_dispatched(60)
        self.whole()
        assert {queue_id for topic, queue_id, _ in self.told if topic == "T"} <= {0, 1, 2, 3}


def copy_of_the_living(root, to):
    """What a killed process would leave: nobody puts any more, and what is on the way into `config` is not looked at."""
    to.mkdir()
    for name in ("commitlog", "consumequeue", "index"):
        shutil.copytree(root / name, to / name)
    for name in ("abort", "checkpoint"):
        shutil.copy(root / name, to / name)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: "-".join(c))
def test_each_queue_holds_what_was_acknowledged_in_it(tmp_path, config):
    options = {**SMALL, **scenario.config_options(config)}
    with MessageStore.open(tmp_path / "s", **options) as store:
        first = Life(store)
        first.live()
        store.flush()
        copy_of_the_living(tmp_path / "s", tmp_path / "crashed")
    for root in ("crashed", "s"):
        with MessageStore.open(tmp_path / root, **options) as store:
            again = Life(store)
            again.sent = first.sent
            together(again.whole, again.whole)
            assert store.put("T", b"on it goes", wait=True).status == 0
