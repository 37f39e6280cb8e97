"""readonly=True, follow=True: what another process puts becomes readable here, whole, in order, and with nobody told of it."""
import asyncio
import contextlib
import logging
import os
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.aio import AsyncMessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import ConfigError, StoreClosed, StoreRefusesToLoad, StoreStateError
from rmq_store.opened.following import look_at_files
from rmq_store.status import GetStatus
from tests.images import take_image
from tests.soon import until

SIZES = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "index_slots": 50, "index_entries_max": 200,
         "manifest_enabled": False}

WRITER = """
import sys
from rmq_store import MessageStore
with MessageStore.open(sys.argv[1], **eval(sys.argv[2])) as store:
    print("open", flush=True)
    for line in sys.stdin:
        begin, end = map(int, line.split())
        for n in range(begin, end):
            store.put("T", b"%d " % n * 20, queue_id=n % 3, keys=f"k{n}")
        assert store.wait_dispatched(60)
        print("put", flush=True)
"""


class Writer:
    """A process that has the store open for writing and puts what it is told to."""

    def __init__(self, root: Path, **options: object) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, str(root), repr(SIZES | options)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "open\n"

    def put(self, begin: int, end: int) -> None:
        self.process.stdin.write(f"{begin} {end}\n")
        self.process.stdin.flush()

    def done(self) -> None:
        assert self.process.stdout.readline() == "put\n"

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def writer(tmp_path):
    started = Writer(tmp_path / "s")
    yield started
    started.end()


@pytest.fixture
def follower(writer, tmp_path):
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
        yield store


def read(store, queue_id, offset, until):
    """Numbers of the messages of that queue, waiting for each until there is one of number `until` or more."""
    found = []
    while not found or found[-1] < until:
        result = store.get("T", queue_id, offset, wait=60)
        assert result.status is GetStatus.FOUND
        found += [int(bytes(m.body).split()[0]) for m in result]
        offset = result.next_offset
    return found


@pytest.mark.parametrize("options", [{}, {"write_path": "pool"}, {"flush_mode": "sync", "write_path": "pool"}],
                         ids=["mmap", "pool", "sync"])
def test_all_that_comes_comes_once_and_in_order(tmp_path, options):
    writer = Writer(tmp_path / "s", **options)
    try:
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
            writer.put(0, 3000)
            for queue_id in range(3):
                assert read(store, queue_id, 0, 2997 + queue_id) == list(range(queue_id, 3000, 3))
            writer.done()
            assert store.topics() == ["T"] and store.queues("T") == [0, 1, 2]
    finally:
        writer.end()


def test_a_writer_that_is_killed_and_comes_again(tmp_path):
    writer = Writer(tmp_path / "s")
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
        writer.put(0, 300)
        writer.done()
        assert len(read(store, 0, 0, 297)) == 100
        writer.kill()
        assert store.get("T", 0, 100).status is GetStatus.OFFSET_OVERFLOW_ONE
        writer = Writer(tmp_path / "s")
        writer.put(300, 600)
        assert read(store, 0, 100, 597) == list(range(300, 600, 3))
        writer.done()
        writer.end()
        assert [int(bytes(m.body).split()[0]) for m in store.scan("T", 1)] == list(range(1, 600, 3))


def test_opened_before_there_is_anything(tmp_path):
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
        writer = Writer(tmp_path / "s")
        writer.put(0, 30)
        assert read(store, 2, 0, 29) == list(range(2, 30, 3))
        writer.end()


def test_a_live_store_is_told_so_and_nothing_is_warned_of(writer, tmp_path, caplog):
    writer.put(0, 30)
    writer.done()
    with caplog.at_level(logging.WARNING, logger="rmq_store"):
        for follow in (False, True):
            with MessageStore.open(tmp_path / "s", readonly=True, follow=follow, **SIZES) as store:
                stats = store.stats()
                assert (stats["in_use"], stats["writer_pid"], stats["needs_recovery"]) == (True, writer.process.pid, False)
    assert caplog.records == []
    writer.kill()
    with MessageStore.open(tmp_path / "s", readonly=True, **SIZES) as store:
        stats = store.stats()
        assert (stats["in_use"], stats["writer_pid"], stats["needs_recovery"]) == (False, None, True)


def test_keys_of_index_files_that_come(writer, follower):
    writer.put(0, 900)          # more than four index files
    writer.done()
    follower.wait_dispatched()
    look_at_files(follower, threading.Event())
    for n in (0, 450, 899):
        assert [m.keys for m in follower.query_key("T", f"k{n}").messages] == [f"k{n}"]


def test_what_the_writer_deletes(tmp_path):
    with MessageStore.open(tmp_path / "s", **SIZES) as store:
        for n in range(2000):
            store.put("T", b"%d " % n * 20)
        store.wait_dispatched()
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as follower:
            assert follower.min_log_offset == 0
            store.flush()
            store.clean(0)
            look_at_files(follower, threading.Event())
            assert follower.min_log_offset == store.min_log_offset > 0
            assert follower.min_offset("T", 0) == store.min_offset("T", 0) > 0
            first = follower.get("T", 0, 0)
            assert first.status is GetStatus.OFFSET_TOO_SMALL and first.next_offset == store.min_offset("T", 0)
            held = [link for link in (os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.is_symlink())
                    if str(tmp_path) in link and "commitlog" in link and "(deleted)" in link]
            assert held == []


def test_a_topic_that_begins_anew(tmp_path):
    with MessageStore.open(tmp_path / "s", **SIZES) as store:
        for n in range(100):
            store.put("T", b"old %d" % n)
        store.wait_dispatched()
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as follower:
            assert follower.max_offset("T", 0) == 100
            store.delete_topics("T")
            store.put("T", b"new")
            store.wait_dispatched()
            follower.wait_dispatched()
            assert (follower.min_offset("T", 0), follower.max_offset("T", 0)) == (0, 1)
            assert [bytes(m.body) for m in follower.scan("T", 0)] == [b"new"]


def entries_of(root: Path) -> list[tuple[int, Path, int, bytes]]:
    """(log offset, file, position, bytes) of every queue entry, in the log's order."""
    found = []
    for file in sorted((root / "consumequeue").glob("*/*/*")):
        data = file.read_bytes()
        found += [(int.from_bytes(data[at:at + 8], "big"), file.relative_to(root), at, data[at:at + 20])
                  for at in range(0, len(data), 20) if any(data[at:at + 20])]
    return sorted(found)


@pytest.mark.parametrize("seed", range(12))
def test_a_writer_whose_steps_come_in_any_order_it_may_take(tmp_path, seed):
    """The log's bytes grow in pieces, also in the middle of a record; entries come behind their records, each queue for itself
    and late; a look may come between any two. Nothing half is ever seen, and in the end nothing lacks."""
    rng = random.Random(seed)
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    bodies: dict[tuple[str, int], list[bytes]] = {}
    with MessageStore.open(whole, **SIZES, index_enabled=False) as store:
        for n in range(rng.randrange(200, 1500)):
            topic, queue_id, body = rng.choice("ABC"), rng.randrange(3), b"%d:" % n + rng.randbytes(rng.randrange(200))
            bodies.setdefault((topic, queue_id), []).append(body)
            store.put(topic, body, queue_id=queue_id, properties={"n": str(n)})
        store.flush()
        store.wait_dispatched()
        end = store.max_log_offset
        take_image(whole, tmp_path / "image")
    entries, log = entries_of(tmp_path / "image"), tmp_path / "image" / "commitlog"
    shutil.copytree(tmp_path / "image", grown, ignore=shutil.ignore_patterns("commitlog", "consumequeue", "lock", "checkpoint"))
    (grown / "commitlog").mkdir()

    def to_file(file: Path, size: int, at: int, data: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "r+b" if file.exists() else "w+b") as f:
            f.truncate(size)
            f.seek(at)
            f.write(data)

    written = 0

    def grow(to: int) -> None:
        nonlocal written
        while written < to:
            start = written - written % SIZES["segment_size_bytes"]
            stop = min(to, start + SIZES["segment_size_bytes"])
            data = (log / f"{start:020d}").read_bytes()
            to_file(grown / "commitlog" / f"{start:020d}", len(data), written - start, data[written - start:stop - start])
            written = stop

    def check(store: MessageStore) -> None:
        for (topic, queue_id), expected in bodies.items():
            known = store.max_offset(topic, queue_id)
            got = [bytes(m.body) for m in store.scan(topic, queue_id)]
            assert got == expected[:len(got)]       # the thread that follows may have looked meanwhile
            assert known <= len(got) <= store.max_offset(topic, queue_id)

    with MessageStore.open(grown, readonly=True, follow=True, **SIZES, index_enabled=False) as store:
        late: list[tuple[int, Path, int, bytes]] = []
        while entries or late:
            grow(min(end, written + rng.randrange(1, 3000)))
            while entries and entries[0][0] + int.from_bytes(entries[0][3][8:12], "big") <= written:
                late.append(entries.pop(0))
                if not (file := grown / late[-1][1]).exists():      # a writer makes the file before it has more to dispatch
                    to_file(file, SIZES["consumequeue_file_size_bytes"], 0, b"")
            if rng.random() < 0.5:
                queues = sorted({entry[1].parent for entry in late})
                for queue in rng.sample(queues, rng.randrange(len(queues) + 1)):    # each queue in order, queues in any
                    mine = [entry for entry in late if entry[1].parent == queue]
                    for entry in mine[:rng.randrange(len(mine) + 1)] if rng.random() < 0.3 else mine:
                        to_file(grown / entry[1], SIZES["consumequeue_file_size_bytes"], entry[2], entry[3])
                        late.remove(entry)
            if rng.random() < 0.5:
                store._look_on()
                check(store)
        for _ in range(130):        # a queue that waited in vain for long has its turn in one look of 64
            store._look_on()
        check(store)
        assert {key: store.max_offset(*key) for key in bodies} == {key: len(value) for key, value in bodies.items()}
        assert store.max_log_offset == end


def test_waiting_ends_with_the_store(follower):
    said = []

    def wait() -> None:
        try:
            follower.wait_for_message("T", 0, 10, timeout=60)
        except StoreClosed as error:
            said.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    while not follower.stats()["waiting_readers"]:
        pass
    follower.close()
    waiter.join()
    assert len(said) == 1


def test_subscriptions_and_listeners(writer, tmp_path):
    async def go() -> list[bytes]:
        got: list[bytes] = []
        arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with await AsyncMessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
            store.store.add_arriving_listener(lambda topic, queue_id, end: loop.call_soon_threadsafe(arrived.set))
            writer.put(0, 30)
            async for message in store.subscribe("T", queue_id=0, offset=0):
                got.append(bytes(message.body).split()[0])
                if len(got) == 10:
                    break
            await arrived.wait()
        return got

    assert asyncio.run(go()) == [b"%d" % n for n in range(0, 30, 3)]


def test_a_writer_with_other_sizes(tmp_path):
    MessageStore.open(tmp_path / "s", **SIZES).close()
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, segment_size_bytes=1 << 17) as store:
        writer = Writer(tmp_path / "s")
        with pytest.raises(StoreRefusesToLoad, match="65536 bytes: the writer has other sizes than this reader"):
            store.get("T", 0, 0, wait=60)
        with pytest.raises(StoreRefusesToLoad, match="65536 bytes: the writer has other sizes than this reader"):
            store.wait_for_message("T", 0, 0)
        writer.end()


def test_a_log_that_cannot_be_read(tmp_path):
    with MessageStore.open(tmp_path / "s", **SIZES) as store:
        io = ProbeIo(keep_bytes=False)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, _io=io, **SIZES) as follower:
            io.fail("pread", errno=5, path=tmp_path / "s" / "consumequeue" / "T" / "0" / f"{0:020d}", sticky=True)
            store.put("T", b"x")
            with pytest.raises(OSError, match="Input/output error"):
                follower.get("T", 0, 0, wait=60)
            io.clear()
            follower.wait_dispatched()
            look_at_files(follower, threading.Event())
            assert follower.get("T", 0, 0, wait=60).status is GetStatus.FOUND


def test_what_it_is_not_for(tmp_path):
    with pytest.raises(ConfigError, match="follow=True is for a store that another process writes: give readonly=True"):
        MessageStore.open(tmp_path / "s", follow=True)
    assert not (tmp_path / "s").exists()
    MessageStore.open(tmp_path / "s", **SIZES).close()
    with (MessageStore.open(tmp_path / "s", readonly=True, **SIZES) as store,
          pytest.raises(StoreStateError, match="readonly=True, follow=True")):
        store.wait_for_message("T", 0, 0, 1)


@pytest.mark.parametrize("count", [10, 65, 20_000])
@pytest.mark.parametrize("opened", ["before", "behind"])
def test_more_records_without_an_entry_than_one_look_sees(tmp_path, opened, count):
    """The newest messages of the log are of a topic that was deleted: what comes behind them comes, of whichever topic."""
    sizes = {**SIZES, "segment_size_bytes": 16 << 20}
    with MessageStore.open(tmp_path / "s", **sizes) as writer, contextlib.ExitStack() as stack:
        writer.put("K", b"known")

        def follow():
            return stack.enter_context(MessageStore.open(tmp_path / "s", readonly=True, follow=True, **sizes))

        assert writer.wait_dispatched(30)
        if opened == "before":
            reader = follow()
            probe = reader.get("K", 0, 0, wait=60)
            assert probe.status is GetStatus.FOUND
        writer.put_many("U", [b"x" * 100] * count, wait=True)
        writer.delete_topics("U")
        if opened == "behind":
            reader = follow()
        for topic in ("X", "K", "U"):           # a new one, one that it knows, and the one that begins anew
            writer.put(topic, b"new")
            assert writer.wait_dispatched(30)
            at = int(topic == "K")
            until(lambda: [bytes(m.body) for m in reader.get(topic, 0, at)] == [b"new"], 20_000)  # noqa: B023 (at once)


@pytest.mark.parametrize("batches", [False, True])
def test_topics_that_begin_anew_while_it_looks(tmp_path, batches):
    """Entries of several queues come in any order: those of one let the follower pass over the first record of another."""
    r = random.Random(1)
    sizes = {**SIZES, "segment_size_bytes": 1 << 20, "batch_consumequeue_file_size_bytes": 460}

    def content(store, topic, queue_id):
        try:
            return [(m.queue_offset, bytes(m.body)) for m in store.scan(topic, queue_id)]
        except OSError as error:
            return str(error)

    with (MessageStore.open(tmp_path / "s", **sizes) as writer,
          MessageStore.open(tmp_path / "s", readonly=True, follow=True, **sizes) as reader):
        for n in range(15):
            for topic in "TUV":
                if n > 0:
                    writer.delete_topics(topic)
                if batches:
                    writer.topic_table.set_queue_type(topic, "BatchCQ")
                for i in range(r.randrange(1, 80)):
                    body = b"%d-%d" % (n, i) + bytes(r.choice((0, 900)))
                    if batches:
                        writer.put_inner_batch(topic, [body] * 2, queue_id=i % 2, wait=False)
                    else:
                        writer.put(topic, body, queue_id=i % 2, wait=False)
                writer.wait_dispatched(30)
            if n % 3 == 2:
                for queue in [(topic, queue_id) for topic in "TUV" for queue_id in range(2)]:
                    until(lambda: content(reader, *queue) == content(writer, *queue), 20_000)  # noqa: B023 (at once)
