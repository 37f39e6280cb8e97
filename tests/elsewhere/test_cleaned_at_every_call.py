"""A writer rolls and cleans between any two calls of a reader in another process: the reader never meets an error for it, and
reads what is there, in order.

What the writer does is prepared: two images of its store. The reader stands at its nth call for the files, for each n, while
one becomes the other: files grow in place, new ones come, old ones go in the writer's order (log, queues, index).
"""
import os
import shutil
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.opened.following import look_at_files
from rmq_store.status import GetStatus

SIZES = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 200, "index_slots": 50, "index_entries_max": 100,
         "batch_consumequeue_file_size_bytes": 230, "manifest_enabled": False}
KINDS = ["open", "pread", "next_data", "modified_ms"]
FIRST, MORE = 60, 200           # messages of each image in each of the two queues


def put(store, numbers, batches):
    for n in numbers[::2] if batches else numbers:
        for queue_id in range(2):
            if batches:
                store.put_inner_batch("T", [b"%d" % i + bytes(300) for i in (n, n + 1)], queue_id=queue_id)
            else:
                store.put("T", b"%d" % n + bytes(300), queue_id=queue_id, keys=f"k{n}")
    assert store.wait_dispatched(30)


@pytest.fixture(scope="module", params=["some-plain", "all-plain", "some-batches", "all-batches"])
def images(request, tmp_path_factory):
    """(before, grown, after): after it some of the files that were there before are left, or none."""
    top = tmp_path_factory.mktemp("images")
    some, batches = request.param.startswith("some"), request.param.endswith("batches")
    with MessageStore.open(top / "live", **SIZES) as store:
        if batches:
            store.topic_table.set_queue_type("T", "BatchCQ")
        put(store, range(FIRST), batches)
    shutil.copytree(top / "live", top / "before")
    with MessageStore.open(top / "live", **SIZES) as store:
        put(store, range(FIRST, FIRST + (10 if some else MORE)), batches)
        store.flush()
    shutil.copytree(top / "live", top / "grown")
    with MessageStore.open(top / "live", **SIZES) as store:         # again: now its queues are known to be on the device
        while store.min_offset("T", 0) < (FIRST // 2 if some else FIRST + MORE // 2):
            store.clean(0, files_max=1, pace_ms=0)
    (top / "live").rename(top / "after")
    return top / "before", top / "grown", top / "after"


def files(root):
    rank = {"commitlog": 0, "consumequeue": 1}
    found = [str(f.relative_to(root)) for f in root.rglob("*") if f.is_file() and f.name not in ("lock", "abort")]
    return sorted(found, key=lambda name: (rank.get(name.split("/")[0], 2), name))


def become(root: Path, after: Path, *folders: str) -> None:
    there = files(after)
    for name in [name for name in there if not folders or name.startswith(folders)]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with open(root / name, "r+b" if (root / name).exists() else "w+b") as f:
            f.write((after / name).read_bytes())
    for name in files(root):
        if name not in there:
            os.unlink(root / name)


class Reader:
    """A thread that runs `act`; it can be stopped at its nth call for the files."""

    def __init__(self, io, act):
        self.io, self.act, self.error, self.found = io, act, None, None
        self.ready, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        self.ready.wait()

    def run(self):
        self.id = threading.get_native_id()
        self.ready.set()
        self.go.wait()
        try:
            self.found = self.act()
        except BaseException as error:
            self.error = error

    def stands_at(self, n):
        """False: it has ended with fewer calls."""
        self.io.gate("|".join(KINDS), thread=self.id)
        self.go.set()
        for step in range(n + 1):
            while not (standing := self.io.standing()):
                self.thread.join(0.001)
                if not self.thread.is_alive() and not self.io.standing():
                    return False
            if step < n:
                self.io.let(standing[0].ticket)
        return True

    def goes_on(self):
        self.io.ungate()
        self.thread.join()
        if self.error is not None:
            raise self.error
        return self.found


def looked_at(store):
    """What a reader does with two queues: everything that asks for their files."""
    found = []
    for queue_id in range(2):
        low, end = store.min_offset("T", queue_id), store.max_offset("T", queue_id)
        at, seen = low, []
        while at < end:
            result = store.get("T", queue_id, at)
            seen += [int(bytes(m.body).split(b"\0")[0]) for m in result]
            if result.next_offset <= at:        # nothing is left of what it knows of; the follower's next look tells more
                break
            at = result.next_offset
        assert seen == sorted(set(seen)), seen
        scanned = [int(bytes(m.body).split(b"\0")[0]) for m in store.scan("T", queue_id)]
        assert scanned == sorted(set(scanned)), scanned
        for offset in (0, (low + end) // 2, end - 1):
            assert store.get("T", queue_id, offset).status in GetStatus
        for when in (0, 1 << 42):
            assert 0 <= store.offset_by_time("T", queue_id, when) <= store.max_offset("T", queue_id)
        found.append(seen)
    return found


def opened(root, io):
    with MessageStore.open(root, readonly=True, _io=io, **SIZES) as store:
        return looked_at(store)


EVERY = [pytest.param(7, id="7th"), pytest.param(1, id="1st", marks=pytest.mark.slow)]


def each_call(tmp_path, images, begin, step):
    """begin(root, io) gives (act, end): act is interrupted at each step-th call, end comes behind it. How many calls it has."""
    before, _, after = images
    n, more = 0, True
    while more:
        root, io = tmp_path / str(n), ProbeIo(keep_bytes=False)
        shutil.copytree(before, root)
        act, end = begin(root, io)
        reader = Reader(io, act)
        more = reader.stands_at(n)
        become(root, after)
        try:
            reader.goes_on()
        except Exception as error:
            raise AssertionError(f"the writer came before call {n}") from error
        finally:
            end()
        shutil.rmtree(root)
        n += step
    return n


@pytest.mark.parametrize("step", EVERY)
def test_a_readonly_open(tmp_path, images, step):
    assert each_call(tmp_path, images, lambda root, io: (lambda: opened(root, io), lambda: None), step) > 50


def held(root, io):
    store = MessageStore.open(root, readonly=True, _io=io, **SIZES)
    return lambda: looked_at(store), store.close


@pytest.mark.parametrize("step", EVERY)
def test_a_readonly_store_that_is_held(tmp_path, images, step):
    assert each_call(tmp_path, images, held, step) > 20


def sees_it_all(store, last):
    return all(store.max_offset("T", queue_id) > last for queue_id in range(2))


def catches_up(store, last):
    """In the end it sees what the writer has. Closes it."""
    with store:
        look_at_files(store, threading.Event())
        for queue_id in range(2):
            while (known := store.max_offset("T", queue_id)) <= last:
                assert store.wait_for_message("T", queue_id, known, 20), (queue_id, known)
        look_at_files(store, threading.Event())
        with MessageStore.open(store.path, readonly=True, **SIZES) as fresh:
            assert looked_at(store) == looked_at(fresh)
            assert [store.min_offset("T", n) for n in range(2)] == [fresh.min_offset("T", n) for n in range(2)]


@pytest.fixture
def last(images):
    with MessageStore.open(images[-1], readonly=True, **SIZES) as store:
        return store.max_offset("T", 0) - 1


@pytest.mark.parametrize("step", EVERY)
def test_a_store_that_is_followed(tmp_path, images, last, step):
    def begin(root, io):
        store = MessageStore.open(root, readonly=True, follow=True, _io=io, **SIZES)
        return lambda: looked_at(store), lambda: catches_up(store, last)

    assert each_call(tmp_path, images, begin, step) > 20


def test_a_follower_that_reads_on(tmp_path, images, last):
    """The thread that follows stands at its nth call: it has seen the log grow, and some of the new entries."""
    n, more = 0, True
    while more:
        root, io = tmp_path / str(n), ProbeIo(keep_bytes=False)
        shutil.copytree(images[0], root)
        store = MessageStore.open(root, readonly=True, follow=True, _io=io, **SIZES)
        io.gate("|".join(KINDS), root / "consumequeue")
        become(root, images[1])
        for _ in range(n):
            while more and not io.standing():
                more = not sees_it_all(store, last)
            if more:
                io.let(io.standing()[0].ticket)
        become(root, images[2])
        io.ungate()
        catches_up(store, last)
        shutil.rmtree(root)
        n += 1
    assert n > 1


@pytest.mark.parametrize("waits", [False, True], ids=["nobody-waits", "somebody-waits"])
def test_queues_that_come_behind_their_records(tmp_path, images, waits):
    """The thread that follows has passed records of a queue that it does not know, and stands at its nth call, when the files
    come, or somebody asks for the queue: its first messages are not lost."""
    with MessageStore.open(images[0], readonly=True, **SIZES) as fresh:
        last = fresh.max_offset("T", 0) - 1
    for n in range(8):                      # a walk over the log asks once for each queue that it does not know
        root, io = tmp_path / str(n), ProbeIo(keep_bytes=False)
        (root / "commitlog").mkdir(parents=True)
        store = MessageStore.open(root, readonly=True, follow=True, _io=io, **SIZES)
        io.gate("open", root)
        become(root, images[0], "commitlog")
        for _ in range(n):
            io.wait_standing(1)
            io.let(io.standing()[0].ticket)
        io.wait_standing(1)
        if waits:
            assert not store.wait_for_message("T", 0, 0, 0) and not store.wait_for_message("T", 1, 0, 0)
        become(root, images[0])
        io.ungate()
        catches_up(store, last)
        shutil.rmtree(root)
