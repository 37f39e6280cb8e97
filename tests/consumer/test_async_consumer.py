"""The consumer awaited: the same promises, tasks in place of threads, nothing lost by cancellation, the loop never held."""
import asyncio

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.waiting.test_asyncio import loops

SMALL = {"segment_size_bytes": 1 << 18, "index_enabled": False, "delay": "store_only"}


@pytest.fixture(params=list(loops()))
def run(request):
    def run(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, 60))

    return run


def bodies(batch):
    return [int(bytes(m.body)) for m in batch]


async def fill(store, count, **more):
    for i in range(count):
        await store.put("T", b"%d" % i, **more)
    assert await store.wait_dispatched(30)


def test_batches_are_handed_out_remembered_and_given_back(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            await fill(s, 6)
            async with await s.consumer("G", "T") as c:
                assert (c.group, c.topics, c.closed) == ("G", ["T", "%RETRY%G"], False)
                first, second = await c.poll(2), await c.poll(2)
                second.ack()
                first.nack()
                assert bodies(await c.poll(2)) == [0, 1] and s.store.offsets.query("G", "T", 0) == 0
                with pytest.raises(errors.StoreStateError, match="has an open consumer"):
                    await s.consumer("G", "T")
            async with await s.consumer("G", "T", max_retries=3) as c:
                seen = []
                async for batch in c:
                    seen += bodies(batch)
                    if len(seen) == 6:
                        batch.ack()
                        break
                assert seen == list(range(6)) and await c.poll() is None
            del batch, first, second
            assert c.closed
            with pytest.raises(errors.StoreStateError, match="is closed"):
                await c.poll()
        with MessageStore.open(tmp_path / "s", **SMALL) as s:
            assert s.offsets.query("G", "T", 0) == 6

    run(main())


def test_waiting_tasks_are_woken_by_puts_by_what_is_given_back_and_by_closing(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            c = await s.consumer("G", "T")
            waiting = [asyncio.create_task(c.poll(1, timeout=None)) for _ in range(3)]
            await asyncio.sleep(0)
            await s.put("T", b"1")
            done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            (batch,) = (task.result() for task in done)
            assert bodies(batch) == [1] and len(left) == 2
            batch.nack()
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            (again,) = (task.result() for task in done)
            assert bodies(again) == [1]
            again.ack()
            (last,) = left
            await c.close()
            with pytest.raises(errors.StoreStateError, match="is closed"):
                await last
            c = await s.consumer("G", "T")
            waits = asyncio.create_task(c.poll(timeout=None))
            await asyncio.sleep(0)
            del batch, again, done, waiting      # they hold views of messages
            await s.close()
            with pytest.raises(errors.StoreClosed):
                await waits
            await c.close()

    run(main())


def test_a_cancelled_poll_has_taken_nothing(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s, await s.consumer("G", "T") as c:
            seen = []
            for i in range(50):
                task = asyncio.create_task(c.poll(timeout=None))
                await asyncio.sleep(0)
                put = asyncio.create_task(s.put("T", b"%d" % i))
                await asyncio.sleep(0)
                task.cancel()
                await put
                try:
                    batch = await task
                except asyncio.CancelledError:
                    continue
                seen += bodies(batch)
                batch.ack()
            while len(seen) < 50:
                batch = await c.poll(timeout=30)
                seen += bodies(batch)
                batch.ack()
            assert seen == list(range(50))
            assert await c.poll(timeout=0.001) is None
            with pytest.raises(ValueError, match="timeout is nan: give seconds"):
                await c.poll(timeout=float("nan"))
            del batch, task

    run(main())


def test_run_retries_what_raises_and_gives_back_what_is_cancelled(tmp_path, run, caplog):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            await fill(s, 10)
            seen, hangs = [], asyncio.Event()

            async def handle(message):
                number = int(bytes(message.body))
                if number == 3 and message.reconsume_times < 2:
                    raise RuntimeError("not now")
                if number == 7 and not hangs.is_set():
                    hangs.set()
                    await asyncio.sleep(3600)
                seen.append(number)

            async with await s.consumer("G", "T") as c:
                worker = asyncio.create_task(c.run(handle, max_count=4))
                await hangs.wait()
                worker.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await worker
                worker = asyncio.create_task(c.run(handle, max_count=4))
                while len(set(seen)) < 10:
                    await asyncio.sleep(0.001)
                await c.close()
                await worker                # closed: it returns
            assert sorted(set(seen)) == list(range(10)) and seen.count(3) == 1
            assert [r.fields["times"] for r in caplog.records if r.event == "MESSAGE_FAILED"] == [0, 1]
            assert [g["sent_back"] for g in await s.group_stats() if g["topic"] == "T"] == [2]

    run(main())


def test_a_cancelled_future_of_a_handler_is_a_failure_of_the_handler(tmp_path, run, caplog):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s, await s.consumer("G", "T", max_retries=0) as c:
            await fill(s, 2)
            stop, seen = asyncio.Event(), []

            async def handle(message):
                seen.append(int(bytes(message.body)))
                if seen == [0]:
                    future = asyncio.get_running_loop().create_future()
                    future.cancel()
                    await future
                stop.set()

            await c.run(handle, stop=stop)
            assert seen == [0, 1]
            (failed,) = [r for r in caplog.records if r.event == "MESSAGE_FAILED"]
            assert failed.fields["error"] == "CancelledError"

    run(main())


def test_a_retry_waits_for_the_device_and_the_loop_does_not(tmp_path, run):
    async def main():
        probe = ProbeIo(keep_bytes=False)
        store = MessageStore.open(tmp_path / "s", flush_mode="sync", flush_backend="fdatasync", _io=probe, **SMALL)
        async with AsyncMessageStore(store) as s, await s.consumer("G", "T", max_retries=0) as c:
            await fill(s, 1)
            batch = await c.poll(timeout=30)
            probe.hold("fdatasync", "/commitlog/")
            failed = asyncio.create_task(c.retry(batch[0]))
            for _ in range(10):
                await asyncio.sleep(0)
            assert not failed.done()
            probe.release()
            assert await failed == "%DLQ%G"
            batch.ack()
            del batch
            assert await s.wait_dispatched(30) and await s.max_offset("%DLQ%G", 0) == 1

    run(main())


def test_nobody_polls_and_the_loop_sleeps(tmp_path, run):
    """The eventfd stays readable until somebody takes: while nobody waits the loop must not look at it."""
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s, await s.consumer("G", "T") as c:
            assert await c.poll(timeout=0.001) is None
            woken = []
            c._wake = lambda: woken.append(1)
            await fill(s, 20)
            await asyncio.sleep(0.01)
            assert woken == [] and len(await c.poll()) == 20

    run(main())
