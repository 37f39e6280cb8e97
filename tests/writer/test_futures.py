"""put_async: futures complete when their message is as durable as asked, in batches, for threads and for asyncio."""
import asyncio
import contextlib
import os
import threading

import pytest

from rmq_store import MessageStore, errors
from rmq_store.access.writer._future import WaitedFutures
from rmq_store.access.writer.callbacks import Callbacks
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import PutStatus
from tests.reader.test_fork_views import in_child
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}


@pytest.fixture(params=["mmap", "pool"])
def store(request, tmp_path):
    with MessageStore.open(tmp_path / "s", flush_mode="sync", write_path=request.param, **SMALL) as s:
        yield s


def test_results_are_durable_and_in_order(store):
    futures = [store.put_async("T", b"%d" % i) for i in range(500)]
    for i, future in enumerate(futures):
        result = future.result(30)
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, i)
        assert store.stats()["flushed"] >= result.offset + result.size
        assert future.done() and future.exception() is None
    assert store.stats()["flushes"] < 500


def test_callbacks_run_once_each(store):
    seen, all_seen = [], threading.Event()

    def callback(future):
        seen.append(future.result().queue_offset)
        if len(seen) == 100:
            all_seen.set()

    for _ in range(100):
        store.put_async("T", b"x").add_done_callback(callback)
    assert all_seen.wait(30) and sorted(seen) == list(range(100))


def test_asyncio_awaits_in_batches(store):
    async def main():
        async def one(i):
            return (await store.put_async("T", b"%d" % i)).queue_offset

        return await asyncio.gather(*[one(i) for i in range(512)])

    assert sorted(asyncio.run(main())) == list(range(512))
    assert store.stats()["flushes"] < 512


def test_done_at_once_where_nobody_has_to_wait(tmp_path):
    with MessageStore.open(tmp_path / "a", flush_mode="async", **SMALL) as s:
        assert s.put_async("T", b"x").done()
        assert s.put_async("T", b"x", wait=True).result(30).status is PutStatus.PUT_OK


def test_close_completes_what_waits(tmp_path):
    s = MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL)
    futures = [s.put_async("T", b"x") for _ in range(100)]
    s.close()
    assert all(f.result(30).status is PutStatus.PUT_OK for f in futures)


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_a_callback_that_raises_is_logged_not_lost(store, caplog, error):
    done = threading.Event()

    def fails(future):
        raise error

    first = store.put_async("T", b"x", wait=True)
    with contextlib.suppress(SystemExit, KeyboardInterrupt):    # where it is done already, this is the thread
        first.add_done_callback(fails)
    second = store.put_async("T", b"y", wait=True)
    second.add_done_callback(lambda f: done.set())
    assert done.wait(30)


@pytest.fixture
def silent(tmp_path):
    """A store whose device does not answer, until the test is over; nobody who waits makes the sync."""
    probe = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", flush_mode="sync", flush_backend="fdatasync", flush_deadline_ms=3_600_000,
                           segment_prezero="off", _io=probe, **SMALL) as s:
        s.put("T", b"warm")
        probe.hold("fdatasync", "/commitlog/")
        try:
            s.put_async("T", b"x")
            probe.wait_held()
            yield s
        finally:
            probe.release()


def test_the_wait_of_another_counts_only_where_it_was_long_enough(silent):
    """result() that is late was the wait of all messages there were, until reconfigure() gives them more time."""
    silent.reconfigure(flush_deadline_ms=50)
    first, other = silent.put_async("T", b"x"), silent.put_async("T", b"y")
    assert first.result().status is PutStatus.FLUSH_DISK_TIMEOUT
    silent.reconfigure(flush_deadline_ms=3_600_000)
    with pytest.raises(TimeoutError, match="not durable"):
        other.result(timeout=0)
    silent.reconfigure(flush_deadline_ms=50)
    assert other.result(timeout=0).status is PutStatus.FLUSH_DISK_TIMEOUT


def test_a_shorter_deadline_reaches_the_thread_of_callbacks_that_sleeps_until_a_longer_one(silent):
    told = []
    callbacks = Callbacks(lambda fd: WaitedFutures(silent._completer, fd))
    assert callbacks.waited.add(silent.put_async("T", b"x"), told.append)
    until(lambda: callbacks.waited.watched, 20_000)
    silent.reconfigure(flush_deadline_ms=50)
    assert callbacks.waited.add(silent.put_async("T", b"y"), told.append)
    until(lambda: len(told) == 2, 20_000)
    assert {f.result().status for f in told} == {PutStatus.FLUSH_DISK_TIMEOUT}
    callbacks.close()


def test_a_shorter_deadline_reaches_the_timer_of_a_loop_that_waits_for_a_longer_one(silent):
    async def put():
        return (await silent.put_async("T", b"x")).status

    async def main():
        first = asyncio.create_task(put())
        await asyncio.sleep(0)
        silent.reconfigure(flush_deadline_ms=50)
        assert await asyncio.wait_for(put(), 20) is PutStatus.FLUSH_DISK_TIMEOUT
        assert await asyncio.wait_for(first, 20) is PutStatus.FLUSH_DISK_TIMEOUT

    asyncio.run(main())


def test_a_look_that_fails_forgets_nobody(silent):
    """As it does in a child of fork."""
    fd = os.eventfd(0)
    waited = WaitedFutures(silent._completer, fd)
    for _ in range(3):
        assert waited.add(silent.put_async("T", b"x"), None)

    def look():
        for _ in range(2):
            with pytest.raises(errors.ForkedProcess):
                waited.take()
            assert waited.waiting == 3

    assert in_child(look) == 0
    assert waited.waiting == 3
    waited.close()
    os.close(fd)
