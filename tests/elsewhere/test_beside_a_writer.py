"""Readers in other processes while a writer rolls, cleans, removes topics and repairs: nobody dies, nobody reads another
message's bytes, and no tool calls a healthy store damaged."""
import itertools
import json
import os
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.services.integrity.repair import repair

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_slots": 50, "index_entries_max": 400,
         "manifest_interval_ms": 5, "consumequeue_flush_interval_ms": 10}
READERS = ["reopened", "held", "followed", "verify", "scrub", "mmap", "pread"]


class Writer:
    """Works on a store until it is told to stop: one step after the other, round and round."""

    def __init__(self, root, steps, **options):
        self.root, self.options = root, {**SIZES, **options}
        self.numbers = itertools.count()
        self.store = MessageStore.open(root, **self.options)
        self.put()
        self.error = None
        self.stop, self.seen = threading.Event(), threading.Event()     # seen: a reader has looked once
        self.thread = threading.Thread(target=self.work, args=(steps,))

    def work(self, steps):
        try:
            for step in itertools.cycle(steps):
                if self.stop.is_set():
                    return
                getattr(self, step)()
        except Exception as error:
            self.error = error

    def put(self):
        for n in itertools.islice(self.numbers, 150):
            topic, queue_id, payload = "TU"[n % 2], n % 3, b"%d " % n * 80
            self.store.put(topic, f"{topic}/{queue_id}/{n}|{zlib.crc32(payload)}|".encode() + payload, queue_id=queue_id,
                           keys=str(n))

    def clean(self):
        """Not before the first look: a reader that holds what there was when it came would find nothing of it any more."""
        if not self.seen.is_set():
            return
        self.store.flush()
        self.store.wait_dispatched(10)
        self.store.clean(0, files_max=3, pace_ms=0)

    def remove(self):
        self.store.delete_topics("U")
        self.store.clean_expired_queues()

    def reopen(self):
        self.store.close()
        self.store = MessageStore.open(self.root, **self.options)

    def mend(self):
        """A byte of a sealed file and one of a queue rot, as on another device: who reads the old ones goes on doing so,
        and who opens the new ones before they are mended is told."""
        self.store.close()
        file = sorted((self.root / "commitlog").iterdir())[0]
        data = file.read_bytes()
        queue = sorted((self.root / "consumequeue/T/0").iterdir())[-1]
        for path, at in ((file, data.index(b"T/0/") + 60), (queue, 3)):
            damaged = bytearray(path.read_bytes())
            damaged[at] ^= 0xFF
            path.with_suffix(".rotten").write_bytes(damaged)
            path.with_suffix(".rotten").rename(path)
        assert not repair(self.root, dry_run=False, open_store=MessageStore.open).left
        self.store = MessageStore.open(self.root, **self.options)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.thread.join()
        self.store.close()
        if self.error is not None:
            raise self.error


class Reader:
    def __init__(self, root, how):
        self.child = subprocess.Popen([sys.executable, Path(__file__).with_name("reader.py"), root, how], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def looks(self, count, writer):
        """(seen, problems, damaged) of so many looks; then it ends, or has died."""
        found = []
        for line in itertools.islice(self.child.stdout, count):
            found.append(json.loads(line))
            writer.seen.set()
        self.child.stdin.close()
        self.child.stdin = None
        _, errors = self.child.communicate(timeout=120)
        assert self.child.returncode == 0, f"died of {self.child.returncode}: {errors[-2000:]}"
        return found

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.child.kill()
        self.child.communicate()


def run(root, how, steps, count, healthy=True, **options):
    with Writer(root, steps, **options) as writer, Reader(root, how) as reader:
        found = reader.looks(count, writer)
    assert len(found) == count and sum(seen for seen, _, _ in found) > 0
    assert [problem for _, problems, _ in found for problem in problems] == []
    if healthy:
        assert [damage for _, _, damaged in found for damage in damaged] == []


@pytest.mark.parametrize("how", READERS)
def test_rolling_cleaning_and_removing(tmp_path, how):
    run(tmp_path / "s", how, ["put", "clean", "put", "remove"], 12)


@pytest.mark.parametrize("how", READERS)
def test_repairing_and_rebuilding(tmp_path, how):
    run(tmp_path / "s", how, ["put", "reopen", "put", "mend", "clean"], 6, healthy=False)


@pytest.mark.slow
@pytest.mark.parametrize("how", READERS)
@pytest.mark.parametrize("options", [{"write_path": "pool"}, {"flush_mode": "sync"}, {"write_path": "pool",
                                     "flush_backend": "io_uring"}], ids=["pool", "sync", "io_uring"])
def test_all_of_it_for_long(tmp_path, how, options):
    if "flush_backend" in options and os.environ.get("RMQ_STORE_NO_RING"):
        pytest.skip("no io_uring here")
    run(tmp_path / "s", how, ["put", "clean", "put", "remove", "put", "reopen"], 200, **options)


ADDS = """
import sys
import time
from rmq_store import MessageStore
with MessageStore.open(sys.argv[1], index_slots=1000, index_entries_max=40_000, segment_size_bytes=1 << 20) as store:
    n = 0
    while True:
        store.put("T", b"x", keys=f"key{n}")
        n += 1
        if n % 100 == 0:
            time.sleep(0.002)       # else the log grows by a gigabyte
        if n == 200:
            store.wait_dispatched(10)
            print("open", flush=True)
"""


def test_readers_are_told_sizes_by_an_index_that_grows(tmp_path):
    """A reader that is not told the geometry of the index finds it in a file that gets entries at that moment."""
    with subprocess.Popen([sys.executable, "-c", ADDS, tmp_path / "s"], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout.readline()
            for _ in range(60):
                with MessageStore.open(tmp_path / "s", readonly=True) as store:
                    assert store.options.index_slots == 1000
        finally:
            writer.kill()
