"""A disk that runs full while producer, consumer, delayed messages and cleaning are at work. A real one, so it needs root."""
import os
import threading
import time

import pytest

from rmq_store import MessageStore, errors, verify
from rmq_store.services.statistics.live import read_live

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")]
OPTIONS = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 20 * 64, "index_enabled": False,
           "message_size_max_bytes": 4096, "delay_levels": (100, 500), "flush_interval_ms": 20, "retention_hours": 1,
           "clean_interval_ms": 20, "clean_forced": False, "disk_full_pct": 100, "clean_pace_ms": 0, "clean_queue_pace_ms": 0,
           "offsets_flush_interval_ms": 20, "delay_offset_flush_interval_ms": 20, "stats_file_interval_ms": 100}
PATIENCE_S = 30


def until(condition, *threads):
    """Waits for what must come; a test that waits in vain fails, and so does one whose threads have failed."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end and all(t.error is None for t in threads), [t.error for t in threads]
        time.sleep(0.002)


class Worker(threading.Thread):
    """Runs step() again and again until it is stopped; keeps what it raised."""

    def __init__(self, step):
        super().__init__()
        self.step, self.error, self.stopped = step, None, threading.Event()
        self.start()

    def run(self):
        try:
            while not self.stopped.is_set():
                self.step()
        except BaseException as error:
            self.error = error

    def stop(self):
        self.stopped.set()
        self.join()
        assert self.error is None, self.error


class Work:
    """Puts numbered messages, with `delayed` every fifth of them for later, and consumes them. A refused one is put again."""

    def __init__(self, store, delayed):
        self.store, self.delayed, self.put, self.refused, self.seen = store, delayed, 0, 0, []
        self.consumer = store.consumer("G", "T")
        self.producing, self.consuming = Worker(self._put), Worker(self._consume)

    def _put(self):
        level = 1 + self.put % 2 if self.delayed and self.put % 5 == 0 else 0
        try:
            self.store.put("T", b"%d" % self.put + b" " * 600, delay_level=level)
            self.put += 1
        except (errors.DiskFull, errors.ServiceNotAvailable):
            self.refused += 1
        time.sleep(0.001)       # a load, not a wait

    def _consume(self):
        batch = self.consumer.poll(8, timeout=0.05)
        if batch is not None:
            self.seen += [int(bytes(m.body)) for m in batch]
            batch.ack()

    def stop(self):
        self.producing.stop()
        until(lambda: set(self.seen) == set(range(self.put)), self.consuming)      # the delayed ones, too
        self.consuming.stop()
        self.consumer.close()


def test_nothing_is_lost_and_it_heals_by_itself(small):
    place, fill, empty = small
    with MessageStore.open(place / "s", **OPTIONS) as store:
        work = Work(store, delayed=True)
        try:
            until(lambda: work.put >= 50, work.producing, work.consuming)
            fill()
            until(lambda: work.refused >= 20, work.producing, work.consuming)
            assert store.stats()["errno"] == 0 and store.min_log_offset == 0        # no fence; nothing young is deleted
            before = work.put
            empty()
            until(lambda: work.put >= before + 50, work.producing, work.consuming)
        finally:
            work.stop()
        assert sorted(work.seen) == list(range(work.put))               # nothing twice either: nobody was killed
        assert store.wait_dispatched(PATIENCE_S) and store.stats()["unreadable_records"] == 0
        until(lambda: read_live(store.path)[0] is not None and read_live(store.path)[0]["stats"]["puts"] >= work.put)
        assert [(r.group, r.behind) for r in store.lag("G", "T")] == [("G", 0)] and store.check_self() == []
        total = store.max_offset("T", 0)
    with MessageStore.open(place / "s", **OPTIONS) as store:
        assert not store.stats()["recovered"] and store.max_offset("T", 0) == total
        assert store.offsets.query("G", "T", 0) == total and sum(level.waiting for level in store.delay_levels()) == 0
    assert [f for f in verify(place / "s", **OPTIONS) if f.severity != "note"] == []


# What dispatch needs room for: a queue file for every eight messages; two pages of an index file for every ten.
DISPATCH_NEEDS = {
    "queues": {"consumequeue_file_size_bytes": 20 * 8},
    "index": {"index_enabled": True, "index_slots": 20, "index_entries_max": 401},
}


@pytest.mark.parametrize("part", DISPATCH_NEEDS)
def test_what_is_freed_goes_to_dispatch_before_the_log(tmp_path, small, part):
    """A producer that tries again all the time would take every file's worth that is freed, and dispatch never get a page."""
    place, fill, empty = small
    refused, taken = [], []
    options = OPTIONS | DISPATCH_NEEDS[part]
    if part == "index":
        options["consumequeue_path"] = str(tmp_path / "queues")         # they have room: it is the index that lacks it

    def put():
        try:
            taken.append(store.put("T", b" " * 600, keys=" ".join(f"k{i}" for i in range(40))).queue_offset)
        except (errors.DiskFull, errors.ServiceNotAvailable) as error:
            refused.append(error)
        time.sleep(0.001)       # a load, not a wait

    with MessageStore.open(place / "s", **options) as store:
        producing = Worker(put)
        try:
            until(lambda: len(taken) >= 50, producing)
            fill()
            until(lambda: len(refused) >= 20 and store.stats()["dispatch_behind_bytes"] > 0, producing)
            before = store.stats()["dispatched"]
            for _ in range(8):
                more = len(refused) + 200
                os.truncate(place / "ballast", os.path.getsize(place / "ballast") - OPTIONS["segment_size_bytes"])
                until(lambda more=more: store.stats()["dispatched"] > before or len(refused) >= more, producing)
            assert store.stats()["dispatched"] > before and store.stats()["errno"] == 0
            empty()
            had = len(taken)
            until(lambda: len(taken) >= had + 50, producing)
        finally:
            producing.stop()
        assert store.wait_dispatched(PATIENCE_S) and store.max_offset("T", 0) == len(taken)
        if part == "index":
            assert len(list(store.query_key("T", "k39", max_count=64))) == 64


def test_cleaning_makes_the_room_that_puts_wait_for(small):
    """What is old enough goes at any hour on a disk that is full: puts go on although nobody else makes room. What
    producers would take disk_full_pct keeps for the queues."""
    place, fill, _ = small
    with MessageStore.open(place / "s", **OPTIONS | {"disk_full_pct": 90}) as store:
        work = Work(store, delayed=False)
        try:
            until(lambda: work.put >= 250, work.producing, work.consuming)
            fill()
            until(lambda: work.refused >= 5, work.producing, work.consuming)
            until(lambda: len(set(work.seen)) == store.max_offset("T", 0), work.producing, work.consuming)
            refused_at = work.put
            for name in sorted(os.listdir(f"{store.path}/commitlog"))[:-2]:
                os.utime(f"{store.path}/commitlog/{name}", (time.time() - 7200,) * 2)
            until(lambda: work.put >= refused_at + 20, work.producing, work.consuming)
            assert store.min_log_offset >= 1 << 14
        finally:
            work.stop()
        assert sorted(set(work.seen)) == list(range(work.put)) and store.check_self() == []
