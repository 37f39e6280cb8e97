"""What `run` is given: it handles each message or says at once that it cannot, ends when it is told to, and does several at
once."""
import asyncio
import functools
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.consumer.test_async_consumer import SMALL, fill
from tests.waiting.test_asyncio import loops


@pytest.fixture(params=list(loops()))
def run(request):
    def run(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, 60))

    return run


async def coroutine(message):
    raise AssertionError("nobody awaits it")


def generator(message):
    yield message


async def async_generator(message):
    yield message


class Calls:
    """An object with a call of its own."""

    async def __call__(self, message):
        await asyncio.sleep(0)
        self.seen = message.queue_offset


@pytest.fixture
def filled(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        for i in range(6):
            store.put("T", b"%d" % i)
        assert store.wait_dispatched(30)
        yield store


def number(message):
    return int(bytes(message.body))


# ---- handlers that would not be run

@pytest.mark.parametrize(("handle", "words"), [
    (coroutine, "coroutine function"), (functools.partial(coroutine), "coroutine function"),
    (Calls(), "coroutine function"), (generator, "generator function"), (async_generator, "generator function"),
    (None, "handle is None"), ("f", "handle is 'f'")])
def test_what_calling_would_not_run_is_refused_at_the_call(filled, handle, words):
    with filled.consumer("G", "T") as consumer:
        with pytest.raises(TypeError, match=words):
            consumer.run(handle, stop=threading.Event())
        assert len(consumer.poll()) == 6        # nothing was taken
    assert filled.offsets.query("G", "T", 0) <= 0 and filled.max_offset("%DLQ%G", 0) == 0


@pytest.mark.parametrize("hidden", [lambda m: coroutine(m), lambda m: generator(m), lambda m: async_generator(m)],
                         ids=["coroutine", "generator", "async generator"])
@pytest.mark.filterwarnings("error")
def test_what_returns_something_that_has_not_run_ends_the_run_and_its_message_is_not_done(filled, hidden):
    with filled.consumer("G", "T") as consumer:
        with pytest.raises(TypeError, match="of which nothing has run"):
            consumer.run(hidden, stop=threading.Event())
        assert [number(m) for m in consumer.poll()] == list(range(6))
    assert filled.max_offset("%RETRY%G", 0) == filled.max_offset("%DLQ%G", 0) == 0


def test_the_awaited_run_takes_plain_functions_and_whatever_returns_an_awaitable(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            await fill(s, 4)
            seen, stop, calls = [], asyncio.Event(), Calls()

            async def slow(message):
                await asyncio.sleep(0)
                seen.append(number(message))

            def plain(message):
                seen.append(number(message))

            async with await s.consumer("G", "T") as c:
                for handle in (slow, plain, lambda m: slow(m), calls):
                    stop.clear()

                    def handle_one(message, handle=handle):
                        stop.set()
                        return handle(message)

                    await c.run(handle_one, stop=stop)
                assert seen == [0, 1, 2] and calls.seen == 3
                for handle in (generator, async_generator, None):
                    with pytest.raises(TypeError, match="handle is "):
                        await c.run(handle)
                assert await c.poll() is None
                await fill(s, 1)
                with pytest.raises(TypeError, match="of which nothing has run"):
                    await c.run(lambda m: generator(m))
                assert len(await c.poll()) == 1
            assert s.store.offsets.query("G", "T", 0) == 4
            assert await s.max_offset("%RETRY%G", 0) == await s.max_offset("%DLQ%G", 0) == 0

    run(main())


def test_a_batch_retries_each_of_its_messages_once_and_before_its_ack(filled):
    with filled.consumer("g", "T") as consumer:
        batch, other = consumer.poll(2), consumer.poll(1)
        with pytest.raises(errors.ArgumentIllegal, match=r"not of Batch\('T', queue_id=0, offsets 0 to 2.*: give a message"):
            batch.retry(other[0])
        with pytest.raises(errors.ArgumentIllegal, match="delay_level is"):
            batch.retry(batch[0], delay_level="2")
        assert batch.retry(batch[0]) == "%RETRY%g"          # the error before has put nothing
        for again in (batch[0], batch[0].copy()):
            with pytest.raises(errors.ArgumentIllegal, match="this batch has retried: give each message once"):
                batch.retry(again)
        batch.ack()
        other.nack()
        for late in (batch, other):
            with pytest.raises(errors.StoreStateError, match=r"is acknowledged or given back: call retry before ack\(\)"):
                late.retry(late[-1])
        again = other = late = None
    assert filled.wait_dispatched(10)
    assert max(filled.max_offset("%RETRY%g", 0), filled.max_offset("SCHEDULE_TOPIC_XXXX", 2)) == 1     # waits, or is delivered


# ---- ending

def test_stop_lets_out_who_waits_and_gives_back_what_is_not_begun(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s, await s.consumer("G", "T") as c:
            stop, seen = asyncio.Event(), []
            idle = asyncio.create_task(c.run(coroutine, stop=stop))
            for _ in range(3):
                await asyncio.sleep(0)
            stop.set()
            await asyncio.wait_for(idle, 30)
            stop.clear()
            await fill(s, 6)

            async def handle(message):
                seen.append(number(message))
                if len(seen) == 3:
                    stop.set()

            await c.run(handle, stop=stop)
            assert seen == [0, 1, 2] and s.store.offsets.query("G", "T", 0) == 3
            assert [number(m) for m in await c.poll()] == [3, 4, 5]
            stop.set()
            await c.run(coroutine, stop=stop)       # set before: nothing is taken
            with pytest.raises(TypeError, match=r"give an asyncio\.Event"):
                await c.run(handle, stop=threading.Event())

    run(main())


def test_stop_of_the_synchronous_run_gives_back_what_is_not_begun(filled):
    stop, seen = threading.Event(), []

    def handle(message):
        seen.append(number(message))
        if len(seen) == 3:
            stop.set()

    with filled.consumer("G", "T") as consumer:
        consumer.run(handle, stop=stop)
        assert seen == [0, 1, 2] and filled.offsets.query("G", "T", 0) == 3
        assert [number(m) for m in consumer.poll()] == [3, 4, 5]


def test_what_was_handled_before_a_message_that_ends_the_run_is_done(filled):
    def handle(message):
        if number(message) == 2:
            raise KeyboardInterrupt

    with filled.consumer("G", "T") as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.run(handle)
        assert filled.offsets.query("G", "T", 0) == 2 and [number(m) for m in consumer.poll()] == [2, 3, 4, 5]


def test_a_handler_that_never_waits_leaves_others_their_turns(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s, await s.consumer("G", "T") as c:
            await s.put_many("T", [b"x"] * 1000)
            assert await s.wait_dispatched(30)
            turns, done, stop = 0, 0, asyncio.Event()

            async def others():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            async def handle(message):
                nonlocal done
                done += 1
                if done == 1000:
                    stop.set()

            beside = asyncio.create_task(others())
            await c.run(handle, stop=stop, max_count=4)
            assert turns >= 20
            beside.cancel()

    run(main())


# ---- several at once

def test_so_many_messages_of_one_queue_are_under_way_and_no_offset_passes_one_that_is(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s, await s.consumer("G", "T") as c:
            await fill(s, 20)
            together, stop, held = asyncio.Barrier(4), asyncio.Event(), asyncio.Event()
            under_way, most, done = 0, 0, []

            async def handle(message):
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                if number(message) < 4:
                    await together.wait()           # all four, or none
                if number(message) == 2:
                    await held.wait()
                await asyncio.sleep(0)
                under_way -= 1
                done.append(number(message))
                if len(done) == 19 and not held.is_set():
                    assert s.store.offsets.query("G", "T", 0) == 2
                    held.set()
                if len(done) == 20:
                    stop.set()

            await c.run(handle, stop=stop, concurrency=4)
            assert (most, sorted(done), done[-1]) == (4, list(range(20)), 2)
            assert s.store.offsets.query("G", "T", 0) == 20

    run(main())


def test_threads_handle_so_many_at_once(filled):
    together, stop, seen = threading.Barrier(3, timeout=60), threading.Event(), []

    def handle(message):
        together.wait()
        seen.append((number(message), threading.get_ident()))
        if len(seen) == 6:
            stop.set()

    with filled.consumer("G", "T") as consumer:
        before = threading.active_count()
        consumer.run(handle, stop=stop, concurrency=3)
        assert sorted(n for n, _ in seen) == list(range(6)) and len({thread for _, thread in seen}) == 3
        assert filled.offsets.query("G", "T", 0) == 6 and threading.active_count() == before


def test_what_one_thread_ends_with_ends_all_and_is_raised(filled):
    together, others = threading.Barrier(2, timeout=60), []

    def handle(message):
        if threading.current_thread() is not threading.main_thread():
            others.append((threading.current_thread(), number(message)))
            together.wait()
            raise SystemExit(7)
        together.wait()
        others[0][0].join()         # it has ended when this message is through

    with filled.consumer("G", "T") as consumer:
        with pytest.raises(SystemExit):
            consumer.run(handle, concurrency=2)
        assert [number(m) for m in consumer.poll(1)] == [others[0][1]] == [filled.offsets.query("G", "T", 0)]
        assert [number(m) for m in consumer.poll()] == [2, 3, 4, 5]


def test_what_one_task_cannot_read_ends_all_and_what_was_under_way_is_given_back(tmp_path, run):
    async def main():
        io = ProbeIo(keep_bytes=False)
        async with await AsyncMessageStore.open(tmp_path / "s", _io=io, **SMALL) as s, await s.consumer("G", "T") as c:
            await fill(s, 2)

            async def handle(message):
                io.fail("pread", errno=5, path="/consumequeue/T/")      # the next look meets it
                await asyncio.sleep(3600)

            with pytest.raises(OSError, match=r"[Ii]nput/output"):
                await c.run(handle, concurrency=2)
            assert sorted([number(m) for _ in range(2) for m in await c.poll(1)]) == [0, 1]

    run(main())


def test_a_run_of_several_that_is_cancelled_gives_back_what_is_under_way(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s, await s.consumer("G", "T") as c:
            await fill(s, 3)
            begun = []

            async def handle(message):
                begun.append(number(message))
                await asyncio.sleep(3600)

            worker = asyncio.create_task(c.run(handle, concurrency=2))
            while len(begun) < 2:
                await asyncio.sleep(0)
            worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await worker
            assert begun == [0, 1]
            assert sorted([number(m) for _ in range(3) for m in await c.poll(1)]) == [0, 1, 2]

    run(main())


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, None])
def test_a_concurrency_that_is_none_is_refused(filled, count):
    with filled.consumer("G", "T") as consumer, pytest.raises(ValueError, match=r"concurrency is .*, 1 to 10000"):
        consumer.run(print, concurrency=count)


def test_a_stop_that_is_none_and_an_offset_that_is_none(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        store.put("T", b"x")
        with store.consumer("g", "T") as consumer, pytest.raises(errors.ArgumentIllegal, match="stop is True: give a"):
            consumer.run(print, stop=True)

    async def wrong():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as store:
            for offset in ("x", True, {0: 1.5}):
                with pytest.raises(errors.ArgumentIllegal, match=r"offset is .*: give a queue offset, -1 for the end"):
                    store.subscribe("T", queue_id=0, offset=offset)

    asyncio.run(wrong())
