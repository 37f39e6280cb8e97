"""One event loop's share of a store: while that closes on a device that takes long, and behind a task that ends the program."""
import asyncio

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.access.waiting.loops import LoopHub
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import PutStatus
from tests.regress.test_lost_wakeup import signals
from tests.soon import until
from tests.waiting.test_asyncio import SMALL

TURNS = 200


@pytest.fixture
def held(tmp_path):
    """held(options) opens a store whose device does not answer, until held.probe.release()."""
    probe = ProbeIo(keep_bytes=False)

    def make(**more):
        store = MessageStore.open(tmp_path / "s", flush_mode="sync", flush_backend="fdatasync", segment_prezero="off",
                                  _io=probe, **SMALL, **more)
        store.put("T", b"warm")
        assert store.wait_dispatched(30)
        probe.hold("fdatasync", "/commitlog/")
        return store

    make.probe = probe
    yield make
    probe.release()


@pytest.mark.parametrize("listens", [False, True])
def test_a_loop_sleeps_while_its_store_closes_on_a_slow_device(held, monkeypatch, listens):
    """The eventfds that tell of the end are read, though the store takes no call any more."""
    ready, looks = LoopHub._ready, []
    monkeypatch.setattr(LoopHub, "_ready", lambda hub: looks.append(hub) or ready(hub))

    async def main():
        s = AsyncMessageStore(held())
        listening = [asyncio.create_task(anext(s.subscribe("Other", offset=-1)))] if listens else []
        waiting = asyncio.create_task(s.put("T", b"x"))
        await asyncio.sleep(0)
        held.probe.wait_held(1)
        closing = asyncio.create_task(s.close())
        while not looks or not s.closed:
            await asyncio.sleep(0)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert len(looks) < TURNS // 10 and not waiting.done() and not closing.done()
        held.probe.release()
        await closing
        assert (await waiting).status is PutStatus.PUT_OK
        for outcome in await asyncio.gather(*listening, return_exceptions=True):
            assert isinstance(outcome, errors.StoreClosed)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_late_task_that_ends_the_program_leaves_the_timer_to_the_others(held):
    async def put(store, ends=False):
        status = (await store.put_async("T", b"x")).status
        if ends:
            raise SystemExit
        return status

    with asyncio.Runner() as runner, held(flush_deadline_ms=50) as store:
        try:
            with pytest.raises(SystemExit):
                runner.run(put(store, ends=True))
            assert runner.run(asyncio.wait_for(put(store), 20)) is PutStatus.FLUSH_DISK_TIMEOUT
        finally:
            held.probe.release()


def test_a_task_that_ends_the_program_takes_no_arrivals_along(held):
    """One signal of the loop's tells of a flush, which wakes that task, and of a message."""
    with asyncio.Runner() as runner, held(visibility="durable") as store:
        listening = []

        async def put():
            await store.put_async("T", b"x")
            raise SystemExit

        async def main():
            s = AsyncMessageStore(store)
            listening.append(asyncio.create_task(anext(s.subscribe("T", queue_id=0, offset=1))))
            ending = asyncio.create_task(put())
            await asyncio.sleep(0)
            held.probe.wait_held(1)
            held.probe.release()
            until(lambda: signals(s._hub()._arrivals.fileno()) == 2, 20_000)
            await asyncio.wait([ending])        # which does not raise what it raises

        with pytest.raises(SystemExit):
            runner.run(main())
        message = runner.run(asyncio.wait_for(listening[0], 20))
        assert bytes(message.body) == b"x"
        del message
        listening.clear()
