"""What comes again after kill -9 and after a power cut: behind ack(wait=True) nothing, behind ack() what the last write of the
offsets had not."""
import asyncio
import json
import signal
import subprocess
import sys
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.crash.disk import Disk
from tests.crash.states import Scratch, explore, without
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "index_enabled": False, "consumequeue_file_size_bytes": 2000, "delay": "store_only"}
# Each life ends by kill -9, and tells first which messages it has acknowledged.
HEAD = """
import asyncio, json, os, signal, sys, threading, time
from rmq_store import AsyncMessageStore, MessageStore
root, options = sys.argv[1], json.loads(sys.argv[2])
def number(message):
    return int(bytes(message.body))
def die(done):
    print(json.dumps(sorted(done)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
LIVES = {
    "ack": """
with MessageStore.open(root, **options) as store, store.consumer("G", "T") as consumer:
    done = []
    while len(done) < 20:
        batch = consumer.poll(3)
        batch.ack(wait=True)
        done += map(number, batch)
    die(done)
""",
    "threads": """
with MessageStore.open(root, **options) as store, store.consumer("G", "T") as consumer:
    together, done = threading.Barrier(4), []
    def work():
        for _ in range(5):
            batch = consumer.poll(1)
            together.wait()
            batch.ack(wait=True)
            done.append(number(batch[0]))
            together.wait()
    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    die(done)
""",
    "run": """
with MessageStore.open(root, **options) as store, store.consumer("G", "T") as consumer:
    done = []
    def handle(message):
        if len(done) == 20:
            die(done)
        done.append(number(message))
    consumer.run(handle, max_count=1, wait=True)
""",
    "asyncio": """
async def main():
    async with await AsyncMessageStore.open(root, **options) as store, await store.consumer("G", "T") as consumer:
        batches = [await consumer.poll(2) for _ in range(10)]
        await asyncio.gather(*(consumer.ack(batch, wait=True) for batch in reversed(batches)))
        die([number(message) for batch in batches for message in batch])
asyncio.run(main())
""",
    "asyncio run": """
async def main():
    async with await AsyncMessageStore.open(root, **options) as store, await store.consumer("G", "T") as consumer:
        done = []
        def handle(message):
            if len(done) == 20:
                die(done)
            done.append(number(message))
        await consumer.run(handle, max_count=1, wait=True)
asyncio.run(main())
"""}
PLAIN = """
with MessageStore.open(root, **options) as store, store.consumer("G", "T") as consumer:
    done = []
    for number_of in range(2):
        while len(done) < 10 * (number_of + 1):
            batch = consumer.poll(5)
            batch.ack()
            done += map(number, batch)
        while number_of == 0:           # until the store has written by itself
            try:
                with open(root + "/config/consumerOffset.json") as file:
                    if '"T@G":{0:10}' in file.read().replace("\\n", "").replace("\\t", "").replace(" ", ""):
                        break
            except FileNotFoundError:
                pass
            time.sleep(0.005)
    die(done)
"""


def filled(root, count=30, **options):
    with MessageStore.open(root, **SMALL | options) as store:
        for i in range(count):
            store.put("T", b"%d" % i)
        store.flush()
        assert store.wait_dispatched(30)


def killed(root, life, **options):
    """What was acknowledged, and what comes again."""
    filled(root)
    ended = subprocess.run([sys.executable, "-c", HEAD + life, root, json.dumps(SMALL | options)], capture_output=True,
                           text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    with MessageStore.open(root, **SMALL) as store:
        return set(json.loads(ended.stdout)), comes_again(store)


def comes_again(store):
    with store.consumer("G", "T") as consumer:
        found = set()
        while (batch := consumer.poll()) is not None:
            found |= {int(bytes(message.body)) for message in batch}
            batch.ack()
        return found


@pytest.mark.crash
@pytest.mark.parametrize("life", LIVES)
def test_killed_behind_a_durable_ack(tmp_path, life):
    acked, again = killed(tmp_path / "s", LIVES[life])
    assert len(acked) >= 20 and not acked & again and acked | again == set(range(30))


@pytest.mark.crash
def test_killed_behind_a_plain_ack(tmp_path):
    acked, again = killed(tmp_path / "s", PLAIN, offsets_flush_interval_ms=20)
    assert acked == set(range(20)) and not set(range(10)) & again and set(range(20, 30)) <= again


@pytest.mark.crash
def test_power_cut(tmp_path):
    (tmp_path / "s").mkdir()
    probe = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=probe, **SMALL) as store, store.consumer("G", "T") as consumer:
        for i in range(12):
            store.put("T", b"%d" % i)
        assert store.wait_dispatched(30)
        for batch in [consumer.poll(3) for _ in range(3)]:
            batch.retry(batch[1])           # its retry is as durable as what acknowledges it
            batch.ack(wait=True)
            probe.mark(("acked", batch.end))
    trace = probe.trace()

    def judge(image, notes):
        done = max([note[1] for note in notes if note[0] == "acked"], default=0)
        wanted = {place + 1 for place in range(0, done, 3)}         # those that were retried
        try:
            with MessageStore.open(scratch.write(image), **SMALL) as store:
                again = comes_again(store)
        except errors.RmqStoreError as error:
            return str(error)
        return None if again & set(range(done)) == wanted else f"{done} acknowledged, and {sorted(again)} come again"

    with Scratch(tmp_path) as scratch:
        report = explore(Disk(tmp_path / "s"), trace, judge, per_cut=1, seed=1)
        assert report.states > 30 and not report.violations, report
        lost = explore(Disk(tmp_path / "s"), without(trace, "fsync", "consumerOffset.json"), judge, per_cut=8, seed=1,
                       stop_after=1)
        assert lost.violations, "a write without a sync is found"


# ---- the calls

@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        for i in range(30):
            made.put("T", b"%d" % i)
        assert made.wait_dispatched(30)
        yield made


def on_disk(store):
    with MessageStore.open(store.path, readonly=True, **SMALL) as reader:
        return reader.offsets.query("G", "T", 0)


def test_waiters_share_writes(store):
    """While one write is under way, all who come wait for one more."""
    writes, first, go = [], threading.Event(), threading.Event()
    save = store.offsets._file.save

    def slow(content):
        writes.append(content)
        first.set()
        assert go.wait(60)
        save(content)

    store.offsets._file.save = slow
    with store.consumer("G", "T") as consumer:
        batches = [consumer.poll(1) for _ in range(20)]
        batches[0].ack()
        ahead = threading.Thread(target=store.offsets.flush)
        ahead.start()
        assert first.wait(60)
        threads = [threading.Thread(target=batch.ack, kwargs={"wait": True}) for batch in batches[1:]]
        for thread in threads:
            thread.start()
        until(lambda: store.offsets.query("G", "T", 0) == 20)
        go.set()
        for thread in (*threads, ahead):
            thread.join()
        assert 2 <= len(writes) <= 4 and on_disk(store) == 20       # those that had settled and not yet asked


def test_tasks_share_writes(tmp_path):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as store:
            await store.put_many("T", [b"x"] * 40)
            assert await store.wait_dispatched(30)
            offsets, writes = store.store.offsets, []
            save = offsets._file.save
            offsets._file.save = lambda content: (writes.append(1), save(content))
            async with await store.consumer("G", "T") as consumer:
                batches = [await consumer.poll(1) for _ in range(40)]
                await asyncio.gather(*(consumer.ack(batch, wait=True) for batch in batches))
                assert 1 <= len(writes) <= 2 and on_disk(store.store) == 40

    asyncio.run(main())


def test_behind_a_batch_that_is_out(store):
    with store.consumer("G", "T") as consumer:
        first, second = consumer.poll(5), consumer.poll(5)
        second.ack(wait=True)
        assert max(on_disk(store), 0) == 0
        first.ack(wait=True)
        assert on_disk(store) == 10
        third = consumer.poll(5)
        third.ack()
        third.ack(wait=True)                # a second call waits for what the first one did
        assert on_disk(store) == 15
        late = consumer.poll(5)
    with pytest.raises(errors.StoreStateError, match="is closed"):
        late.ack(wait=True)
    assert store.offsets.query("G", "T", 0) == 15


def test_a_write_that_fails_is_told_and_can_be_asked_for_again(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as store:
        store.put("T", b"x")
        assert store.wait_dispatched(30)
        with store.consumer("G", "T") as consumer:
            batch = consumer.poll()
            io.fail("pwrite", errno=28, path="consumerOffset")
            with pytest.raises(errors.DiskFull):
                batch.ack(wait=True)
            batch.ack(wait=True)
            assert on_disk(store) == 1


def test_offsets_are_written_while_the_control_thread_deletes_files(tmp_path):
    held, go = threading.Event(), threading.Event()
    filled(tmp_path / "s")
    with MessageStore.open(tmp_path / "s", offsets_flush_interval_ms=10, **SMALL) as store:
        def long_round(store, stop):
            held.set()
            go.wait(60)

        store._watch._tasks.insert(0, ("cleaning", 0, long_round))
        store._watch._due.insert(0, 0)
        assert held.wait(60)
        with store.consumer("G", "T") as consumer:
            consumer.poll(7).ack()
            until(lambda: on_disk(store) == 7)
        go.set()
    assert "rmq-offsets" not in {thread.name for thread in threading.enumerate()}
