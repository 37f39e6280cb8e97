"""Tasks beside each other: on one subscription, beside a look that takes long, with calls that nobody waits for any more."""
import asyncio
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore
from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.base.io._io import ProbeIo
from rmq_store.opened.subscribing import LOOK_ENTRIES
from tests.waiting.test_asyncio import SMALL, loops


@pytest.fixture(params=list(loops()))
def run(request):
    def run(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, 60))

    return run


async def fill(store, topic, count, queue_id=0, **more):
    await store.put_many(topic, [b"%d" % i for i in range(count)], queue_id=queue_id, **more)
    assert await store.wait_dispatched(30)


# ---- one subscription, several tasks

def test_each_message_goes_to_one_of_the_tasks_and_one_that_is_cancelled_takes_no_wake_up_along(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            with s.subscribe("T", 0, offset=0) as subscription:
                seen = []

                async def consume(name):
                    async for message in subscription:
                        seen.append((name, message.queue_offset))

                async def heard(count):
                    while len(seen) < count:
                        await asyncio.sleep(0)

                first, second = (asyncio.create_task(consume(name)) for name in "ab")
                await asyncio.sleep(0)
                for i in range(20):
                    await s.put("T", b"x")
                    await heard(i + 1)
                await asyncio.sleep(0)
                second.cancel()
                await asyncio.gather(second, return_exceptions=True)
                for i in range(5):
                    await s.put("T", b"x")
                    await heard(20 + i + 1)
                assert [offset for _, offset in seen] == list(range(25)) and {name for name, _ in seen[20:]} == {"a"}
                assert subscription.offsets == {0: 25}
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)

    run(main())


def test_what_one_task_leaves_another_that_waited_gets(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            with s.subscribe("T", 0, offset=0) as subscription:
                waiting = [asyncio.create_task(anext(subscription)) for _ in range(3)]
                await asyncio.sleep(0)
                await s.put_many("T", [b"0", b"1", b"2"])
                found = await asyncio.wait_for(asyncio.gather(*waiting), 30)
                assert sorted(bytes(m.body) for m in found) == [b"0", b"1", b"2"]

    run(main())


def test_closing_a_subscription_lets_out_who_waits_in_it(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            await fill(s, "T", 3)
            subscription = s.subscribe("T", 0, offset=0)

            async def consume():
                return [m.queue_offset async for m in subscription]

            tasks = [asyncio.create_task(consume()) for _ in range(2)]
            while subscription.offsets != {0: 3}:
                await asyncio.sleep(0)
            subscription.close()
            first, second = await asyncio.wait_for(asyncio.gather(*tasks), 30)
            assert sorted(first + second) == [0, 1, 2]
            assert [m async for m in subscription] == []

    run(main())


def test_queues_take_turns_also_where_one_of_them_fails(tmp_path, run):
    async def main():
        io = ProbeIo(keep_bytes=False)
        async with await AsyncMessageStore.open(tmp_path / "s", _io=io, **SMALL) as s:
            await fill(s, "T", 100, queue_id=0)
            await fill(s, "T", 1, queue_id=1)
            with s.subscribe("T", offset=0, max_count=10) as subscription:
                seen = [(await anext(subscription)).queue_id for _ in range(11)]
                assert seen.count(1) == 1               # a full queue leaves the others their turn
            await fill(s, "T", 10, queue_id=1)
            with s.subscribe("T", offset=0) as subscription:
                io.fail("pread", errno=5, path="/consumequeue/T/0/")
                with pytest.raises(OSError, match=r"[Ii]nput/output"):
                    await anext(subscription)
                seen = [(await asyncio.wait_for(anext(subscription), 30)).queue_id for _ in range(111)]
                assert seen[:11] == [1] * 11            # and so does one that failed
                assert seen[11:] == [0] * 100           # which is taken again
                assert subscription.offsets == {0: 100, 1: 11}

    run(main())


# ---- looks that take long

ENTRIES = 3 * LOOK_ENTRIES


@pytest.mark.parametrize(("how", "filtered"), [("get", 1 << 24), ("get that waits", 16000), ("get that waits", 1 << 24),
                                               ("subscription", 16000), ("subscription", 1 << 24),
                                               ("consumer", 16000), ("consumer", 1 << 24)])
def test_tags_that_leave_much_out_leave_others_their_turns(tmp_path, run, how, filtered):
    """Both where a get looks at little and is followed by others, and where one looks at everything."""
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", segment_size_bytes=1 << 24, index_enabled=False,
                                                filter_bytes_max=filtered) as s:
            await fill(s, "T", ENTRIES, tags="a")
            await s.put("T", b"this", tags="b")
            assert await s.wait_dispatched(30)
            turns = 0

            async def others():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            async with await s.consumer("G", "T", tags="b") as consumer:
                with s.subscribe("T", 0, offset=0, tags="b") as subscription:
                    beside = asyncio.create_task(others())
                    await asyncio.sleep(0)
                    before = turns
                    if how == "subscription":
                        found = await anext(subscription)
                    elif how == "consumer":
                        batch = await consumer.poll()
                        found = batch[0]
                        batch.ack()
                    else:
                        found = (await s.get("T", 0, 0, tags="b", wait=30 if "waits" in how else None))[0]
                    assert bytes(found.body) == b"this"
                    assert turns - before >= ENTRIES // LOOK_ENTRIES - 1
                    beside.cancel()

    run(main())


def test_a_get_by_tags_looks_as_far_as_the_synchronous_one(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", segment_size_bytes=1 << 24, index_enabled=False,
                                                filter_bytes_max=20 * 2 * LOOK_ENTRIES) as s:
            await fill(s, "T", ENTRIES, tags="a")
            for offset in (0, 1000, LOOK_ENTRIES, ENTRIES - 1, ENTRIES):
                ours, theirs = await s.get("T", 0, offset, tags="b"), s.store.get("T", 0, offset, tags="b")
                assert (ours.status, len(ours), ours.next_offset) == (theirs.status, 0, theirs.next_offset)
                assert ours.next_offset == min(ENTRIES, offset + 2 * LOOK_ENTRIES)

    run(main())


def test_a_walk_for_one_topic_leaves_others_their_turns_while_it_passes_others_by(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            await fill(s, "Other", 2000)
            await s.put("T", b"this")
            assert await s.wait_dispatched(30)
            turns = 0

            async def others():
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.create_task(others())
            await asyncio.sleep(0)
            assert [bytes(m.body) async for m in s.scan("T")] == [b"this"]
            assert turns >= 20
            late = 1 + s.store.message_at(0).store_timestamp + (1 << 40)
            assert [m async for m in s.scan(begin_time=late)] == list(s.store.scan(begin_time=late)) == []
            beside.cancel()

    run(main())


# ---- calls that nobody waits for any more

def test_a_store_that_nobody_waits_for_any_more_is_closed_in_another_thread(tmp_path, run, monkeypatch):
    """Closing takes seconds, which are not the loop's."""
    opened, proceed, closed, where = threading.Event(), threading.Event(), threading.Event(), []
    real_open, real_close = MessageStore.open, MessageStore.close

    def slow_open(*arguments, **options):
        store = real_open(*arguments, **options)
        opened.set()
        assert proceed.wait(60)
        return store

    def close(store):
        where.append(threading.get_ident())
        real_close(store)
        closed.set()

    async def main():
        monkeypatch.setattr(MessageStore, "open", slow_open)
        monkeypatch.setattr(MessageStore, "close", close)
        opening = asyncio.create_task(AsyncMessageStore.open(tmp_path / "s", **SMALL))
        assert await asyncio.to_thread(opened.wait, 60)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        proceed.set()
        assert await asyncio.to_thread(closed.wait, 60)
        return threading.get_ident()

    loops_thread = run(main())
    assert len(where) == 1 and where[0] != loops_thread
    monkeypatch.undo()
    MessageStore.open(tmp_path / "s", **SMALL).close()


def test_what_is_made_before_its_task_is_cancelled_and_not_taken_is_dropped_once_in_another_thread(run):
    dropped, told, where = threading.Event(), threading.Event(), []

    async def main():
        loop = asyncio.get_running_loop()
        settles = []

        class Loop:
            def __getattr__(self, name):
                return getattr(loop, name)

            def call_soon_threadsafe(self, call, *arguments):
                settles.append((call, arguments))
                told.set()

        def drop(made):
            where.append((made, threading.get_ident()))
            dropped.set()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(asyncio, "get_running_loop", Loop)
            task = asyncio.create_task(in_own_thread(lambda: "made", drop))
            await asyncio.sleep(0)
        assert told.wait(60)            # the loop stands still: it is made, and the task does not know
        task.cancel()
        for call, arguments in settles:
            call(*arguments)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(dropped.wait, 60)
        assert [made for made, _ in where] == ["made"] and where[0][1] != threading.get_ident()

    run(main())


def test_a_loop_that_ends_first_leaves_nothing_open():
    proceed, dropped = threading.Event(), threading.Event()

    async def main():
        task = asyncio.create_task(in_own_thread(lambda: proceed.wait(60), lambda made: dropped.set()))
        await asyncio.sleep(0)
        return task

    task = asyncio.run(main())
    assert task.cancelled()
    proceed.set()
    assert dropped.wait(60)


def test_what_a_call_raises_is_raised_to_the_task(run):
    async def main():
        with pytest.raises(OSError, match="no luck"):
            await in_own_thread(lambda: (_ for _ in ()).throw(OSError(5, "no luck")))
        assert await in_own_thread(lambda: None) is None

    run(main())
