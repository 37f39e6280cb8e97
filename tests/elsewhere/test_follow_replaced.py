"""A follower whose writer makes files anew under the names of those that the follower has seen: by a restart, by a recovery."""
import os
import shutil
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import StoreRefusesToLoad, StoreStateError
from rmq_store.opened.following import look_at_files
from tests.elsewhere.test_follow import SIZES, Writer
from tests.golden_store import unpack
from tests.images import take_image
from tests.soon import until


def look_on(store: MessageStore) -> None:
    for _ in range(200):        # a queue that waited in vain for long has its turn in one look of 64
        store._look_on()
    look_at_files(store, threading.Event())


def deleted(root: Path) -> list[str]:
    """Deleted files below `root` that this process has open or mapped."""
    opened = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    mapped = [line.split(None, 5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [name for name in opened + mapped if str(root) in name and "(deleted)" in name]


@pytest.mark.parametrize("count", [0, 10], ids=["empty", "some"])
def test_log_files_made_ahead(tmp_path, count):
    """A writer makes the next file of the log ahead, takes it away when it closes, and makes another one when it comes."""
    writer = MessageStore.open(tmp_path / "s", **SIZES)
    for n in range(count):
        writer.put("T", b"%d" % n)
    writer.wait_dispatched()
    until(lambda: len(os.listdir(tmp_path / "s" / "commitlog")) == 1 + (count > 0))
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
        look_on(store)
        writer.close()
        with MessageStore.open(tmp_path / "s", **SIZES) as writer:
            for n in range(count, 1000):
                writer.put("T", b"%d" % n)
            writer.wait_dispatched()
            look_on(store)
            assert [int(bytes(m.body)) for m in store.scan("T", 0)] == list(range(1000))


@pytest.mark.parametrize("size", [400, 6_000_000], ids=["small", "default"])
def test_queue_files_made_anew_by_a_recovery(tmp_path, size):
    sizes = SIZES | {"consumequeue_file_size_bytes": size}
    writer = Writer(tmp_path / "s", **sizes)
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **sizes) as store:
        writer.put(0, 315)
        writer.done()
        look_on(store)
        assert [store.max_offset("T", queue_id) for queue_id in range(3)] == [105, 105, 105]
        writer.kill()
        writer = Writer(tmp_path / "s", **sizes)
        writer.put(315, 330)
        writer.done()
        look_on(store)
        assert [store.max_offset("T", queue_id) for queue_id in range(3)] == [110, 110, 110]
        assert [int(bytes(m.body).split()[0]) for m in store.scan("T", 1)] == list(range(1, 330, 3))
        writer.end()


def test_index_files_made_anew_by_a_recovery(tmp_path):
    writer = Writer(tmp_path / "s")
    with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
        writer.put(0, 30)
        writer.done()
        look_on(store)
        assert len(store.query_key("T", "k3").messages) == 1
        writer.kill()
        writer = Writer(tmp_path / "s")
        writer.put(30, 60)
        writer.done()
        look_on(store)
        assert [len(store.query_key("T", f"k{n}").messages) for n in (3, 29, 30, 59)] == [1, 1, 1, 1]
        assert [name for name in deleted(tmp_path) if "/index/" in name] == []
        writer.end()


def test_the_log_file_that_was_the_last_one_at_the_open(tmp_path):
    """Its space comes back, too, when the writer deletes it."""
    with MessageStore.open(tmp_path / "s", **SIZES) as writer:
        writer.put("T", b"x")
        writer.wait_dispatched()
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
            for _ in range(2000):
                writer.put("T", b"y" * 100)
            writer.wait_dispatched()
            look_on(store)
            writer.flush()
            writer.clean(0)
            look_on(store)
            assert store.min_log_offset == writer.min_log_offset > 0
            assert [name for name in deleted(tmp_path) if "/commitlog/" in name] == []


@pytest.mark.parametrize("how", ["zeroed", "deleted"])
def test_a_reader_while_a_recovery_writes_queues_again(tmp_path, how):
    """A recovery takes entries away that no checkpoint calls safe, and brings them back. Who reads meanwhile has come to
    the end for now; nothing is passed over."""
    with MessageStore.open(tmp_path / "s", **SIZES) as writer:
        for n in range(110):
            writer.put("T", b"%d" % n)
        writer.wait_dispatched()
        take_image(tmp_path / "s", tmp_path / "i")
    queue = tmp_path / "i" / "consumequeue" / "T" / "0"
    with MessageStore.open(tmp_path / "i", readonly=True, follow=True, consumequeue_fd_max=2, **SIZES) as store:
        assert store.max_offset("T", 0) == 110
        whole = {file: file.read_bytes() for file in sorted(queue.iterdir())[2:]}       # from number 40 on
        for number, (file, data) in enumerate(whole.items()):
            if how == "deleted" or number > 0:
                file.unlink()
            else:
                file.write_bytes(data[:100] + bytes(300))
        found, at = [], 35
        for _ in range(3):
            result = store.get("T", 0, at)
            found += [int(bytes(m.body)) for m in result]
            at = result.next_offset
        assert found == list(range(35, at))
        waited: list[int] = []

        def wait() -> None:
            nonlocal at
            while at < 110:
                result = store.get("T", 0, at, wait=60)
                waited.extend(int(bytes(m.body)) for m in result)
                at = result.next_offset

        waiter = threading.Thread(target=wait)
        waiter.start()
        until(lambda: store.stats()["waiting_readers"])
        for file, data in whole.items():
            file.write_bytes(data)
        waiter.join()
        assert found + waited == list(range(35, 110))
        assert [int(bytes(m.body)) for m in store.scan("T", 0)] == list(range(110))


@pytest.mark.parametrize("count", [0, 1, 2000], ids=["gone", "shorter", "longer"])
def test_a_store_that_was_replaced(tmp_path, count):
    """Removed, and perhaps made anew: what is mapped is the old one, for ever. Who waits is told."""
    with MessageStore.open(tmp_path / "s", **SIZES) as writer:
        for _ in range(1000):
            writer.put("T", b"old")
        writer.wait_dispatched()
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, **SIZES) as store:
            look_on(store)
            writer.close()
            shutil.rmtree(tmp_path / "s")
            if count:
                with MessageStore.open(tmp_path / "s", **SIZES) as other:
                    for _ in range(count):
                        other.put("T", b"new")
                    other.wait_dispatched()
            for _ in range(2):
                with pytest.raises(StoreRefusesToLoad, match="was replaced, or cut, since this reader opened it: open it"):
                    look_at_files(store, threading.Event())
            with pytest.raises(StoreRefusesToLoad, match="was replaced"):
                store.wait_for_message("T", 0, 1000, 60)


def test_a_queue_that_cannot_be_read_for_a_while(tmp_path):
    """The others go on, and none of them is taken for one that has begun anew."""
    with MessageStore.open(tmp_path / "s", **SIZES) as writer:
        for n in range(20):
            writer.put("T", b"%d" % n, queue_id=n % 4)
        writer.wait_dispatched()
        io = ProbeIo(keep_bytes=False)
        with MessageStore.open(tmp_path / "s", readonly=True, follow=True, _io=io, **SIZES) as store:
            io.fail("pread", errno=5, path=tmp_path / "s" / "consumequeue" / "T" / "2" / f"{0:020d}", sticky=True)
            for n in range(20, 80):
                writer.put("T", b"%d" % n, queue_id=n % 4)
            writer.wait_dispatched()
            for _ in range(3):
                with pytest.raises(OSError, match="Input/output error"):
                    store._look_on()
            for queue_id in (0, 1, 3):
                assert [int(bytes(m.body)) for m in store.scan("T", queue_id)] == list(range(queue_id, 80, 4))
            io.clear()
            look_on(store)
            for queue_id in range(4):
                assert [int(bytes(m.body)) for m in store.scan("T", queue_id)] == list(range(queue_id, 80, 4))


def test_a_log_that_the_next_writer_will_cut(tmp_path):
    """Other messages come to lie where records are that the queues lead to: none of those is shown before."""
    root = unpack("v5-crash-torncrc", tmp_path).store
    with pytest.raises(StoreStateError, match="the next writer cuts them off"):
        MessageStore.open(root, readonly=True, follow=True)
    with MessageStore.open(root) as writer, MessageStore.open(root, readonly=True, follow=True) as store:
        for n in range(50):
            writer.put("T", b"%d" % n)
        writer.wait_dispatched()
        look_on(store)
        assert [int(bytes(m.body)) for m in store.scan("T", 0)] == list(range(50))
