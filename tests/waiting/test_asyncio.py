"""AsyncMessageStore: the same names awaited, one wake-up a batch, no message lost by cancellation; asyncio and uvloop."""
import asyncio
import contextvars
import functools
import inspect
import sys
import threading

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.status import GetStatus, PutStatus

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}


def loops():
    yield pytest.param(asyncio.new_event_loop, id="asyncio")
    try:
        import uvloop
    except ImportError:
        yield pytest.param(None, id="uvloop", marks=pytest.mark.skip("uvloop is not installed"))
    else:
        yield pytest.param(uvloop.new_event_loop, id="uvloop")


@pytest.fixture(params=list(loops()))
def run(request):
    """Runs a coroutine to its end, in a loop of the kind."""
    def run(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(coroutine, 60))

    run.loop_factory = request.param
    return run


@pytest.fixture(params=["sync", "pool", "async"])
def mode(request):
    return {"sync": {"flush_mode": "sync"}, "pool": {"flush_mode": "sync", "write_path": "pool"}, "async": {}}[request.param]


def test_put_get_and_the_rest(tmp_path, run, mode):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **mode, **SMALL) as s:
            result = await s.put("T", b"one", keys="k", wait=True)
            assert result.status is PutStatus.PUT_OK
            assert s.store.stats()["flushed"] >= result.offset + result.size
            many = await s.put_many("T", [b"two", b"three"])
            assert many.queue_offsets == [1, 2]
            assert await s.flush() >= many.offsets[-1]
            assert await s.wait_dispatched(30)
            got = await s.get("T", 0, 0)
            assert [bytes(m.body) for m in got] == [b"one", b"two", b"three"]
            assert len(await s.query_key("T", "k")) == 1
            assert (await s.message_at(result.offset)).body == b"one"
            assert (await s.message_by_id(result.msg_id)).body == b"one"
            assert await s.message_by_unique_key("T", "none") is None
            assert (await s.min_offset("T", 0), await s.max_offset("T", 0), await s.total("T", 0)) == (0, 3, 3)
            assert await s.offset_by_time("T", 0, result.store_timestamp) == 0
            assert await s.earliest_time() == await s.earliest_time("T", 0) == result.store_timestamp
            assert (await s.topics(), await s.queues("T")) == (["T"], [0])
            assert (await s.stats())["puts"] == 3
            del got
        assert s.closed
        with pytest.raises(errors.StoreClosed):
            await s.put("T", b"x")

    run(main())


def test_every_call_of_the_store_is_there():
    """What is left out is no call, or calls back from a thread of the store: `subscribe` takes its place."""
    calls = {name for name in dir(MessageStore) if name[0] != "_" and callable(getattr(MessageStore, name))}
    assert calls - set(dir(AsyncMessageStore)) == {"add_arriving_listener", "remove_arriving_listener"}
    walks = {"scan", "log_records", "subscribe"}
    awaits_nothing = {"transaction", "on_check"}        # the block of the first is awaited; the second sets a callback
    for name in calls & set(dir(AsyncMessageStore)) - walks - awaits_nothing - {"put_async"}:
        assert inspect.iscoroutinefunction(getattr(AsyncMessageStore, name)), name
        ours = [p for p in inspect.signature(getattr(AsyncMessageStore, name)).parameters.values() if p.kind <= 1]
        theirs = [p for p in inspect.signature(getattr(MessageStore, name)).parameters.values() if p.kind <= 1]
        assert [p.name for p in ours] == [p.name for p in theirs][:len(ours)], name
    assert all(inspect.getdoc(getattr(AsyncMessageStore, name)).startswith("As MessageStore.") or "with" in name
               for name in calls & set(dir(AsyncMessageStore)))


def test_the_calls_that_take_long_leave_the_loop_alone(tmp_path, run):
    async def main():
        probe = ProbeIo(keep_bytes=False)
        small = SMALL | {"segment_size_bytes": 1 << 16, "manifest_enabled": False}
        async with AsyncMessageStore(MessageStore.open(tmp_path / "s", _io=probe, **small)) as s:
            await s.put_many("T", [bytes(1000)] * 200)
            await s.flush()
            assert await s.wait_dispatched(30)
            assert [m.queue_offset async for m in s.scan("T", 0)] == list(range(200))
            kinds = [kind async for kind, _, _, _ in s.log_records()]
            assert (kinds.count("msg"), kinds.count("blank")) == (200, 3)
            assert (await s.raw_entry("T", 0, 0))[0] == 0
            s.store.offsets.commit("G", "T", 0, 5)
            assert [x.behind for x in await s.lag("G")] == [195]
            assert await s.reset_offset("G", "T", offset=7) == {0: 7}
            with pytest.raises(ValueError, match="goes from 0 to 200"):
                await s.reset_offset("G", "T", offset=201)
            assert await s.delay_levels() == [] and await s.check_self() == []
            assert (await s.scrub(bytes_per_s=None)).files == 3
            assert await s.cleanable(0, files_max=1) == [0]
            probe.hold("unlink", "/commitlog/")
            cleaning = asyncio.create_task(s.clean(0, pace_ms=0))
            await asyncio.to_thread(probe.wait_held)
            assert (await s.put("T", b"meanwhile")).queue_offset == 200
            probe.release()
            assert (await cleaning).log_files == 3
            assert [x.removed for x in (await s.clean_expired_queues(), await s.clean_unused_topics(["T"]))] == [[], []]
            assert (await s.delete_topics("T")).removed == [("T", 0)]
            await s.reconfigure(memory_ratio_pct=7)
            assert s.store.options.memory_ratio_pct == 7
            with pytest.raises(errors.StoreStateError, match="duplication_enabled"):
                await s.confirm(0)
            assert (await s.topic_counts())["T"][0] == 201 and (await s.runtime_info())["putMessageTimesTotal"] == "201"
            assert (await s.histograms()).keys() >= {"flush", "get"}
            assert (await s.broker_stats())["TOPIC_PUT_NUMS"] == {"T": 201}
            assert await s.group_stats() == [] and "put lock" in await s.dump_threads()

    run(main())


def test_many_tasks_share_flushes(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL) as s:
            async def produce(queue_id):
                return [(await s.put("T", b"x", queue_id=queue_id)).queue_offset for _ in range(20)]

            assert await asyncio.gather(*map(produce, range(100))) == [list(range(20))] * 100
            assert (await s.stats())["flushes"] < 1000
            assert not [t.name for t in threading.enumerate() if t.name.startswith(("asyncio_", "ThreadPool", "rmq-complete"))]

    run(main())


def test_a_waiting_get_holds_the_task_and_not_the_loop(tmp_path, run, mode):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **mode, **SMALL) as s:
            gets = [asyncio.create_task(s.get("T", i, 0, wait=60)) for i in range(50)]
            await asyncio.sleep(0)
            for i in range(50):
                await s.put("T", b"%d" % i, queue_id=i)
            assert [bytes((await g)[0].body) for g in gets] == [b"%d" % i for i in range(50)]
            assert (await s.get("T", 0, 1, wait=0.001)).status is GetStatus.OFFSET_OVERFLOW_ONE
            assert (await s.get("T", 0, 9, wait=60)).status is GetStatus.OFFSET_OVERFLOW_BADLY
            tagged = asyncio.create_task(s.get("T", 0, 1, tags="b", wait=60))
            await s.put("T", b"x", tags="a")
            await s.put("T", b"y", tags="b")
            assert bytes((await tagged)[0].body) == b"y"
            assert await s.wait_for_message("T", 0, 2, 60)
            assert not await s.wait_for_message("T", 0, 3, 0.001)
            for bad in (-1, "1", float("nan")):
                with pytest.raises(ValueError, match=f"{bad!r}: give seconds"):
                    await s.get("T", 0, 3, wait=bad)
                with pytest.raises(ValueError, match=f"{bad!r}: give seconds"):
                    await s.wait_for_message("T", 0, 3, bad)
            gets.clear()
            del tagged

    run(main())


def test_subscription_hands_out_every_message_in_order(tmp_path, run, mode):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **mode, **SMALL) as s:
            async def consume():
                seen = []
                with s.subscribe("T", queue_id=0, offset=0) as subscription:
                    async for message in subscription:
                        seen.append(int(bytes(message.body)))
                        if len(seen) == 3000:
                            return seen, subscription.offsets

            task = asyncio.create_task(consume())
            for i in range(3000):
                future = s.put_async("T", b"%d" % i)
                if i % 100 == 0:
                    await future
            assert await task == (list(range(3000)), {0: 3000})

    run(main())


def test_subscription_to_all_queues_and_those_to_come(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            await s.put("T", b"old", queue_id=1, tags="a")
            await s.wait_dispatched()
            seen = set()
            with s.subscribe("T", offset=-1, tags="a || c") as subscription:
                for queue_id, tag in [(1, "a"), (2, "b"), (2, "c"), (3, "a")]:
                    await s.put("T", tag.encode(), queue_id=queue_id, tags=tag)
                await s.put("Other", b"x", tags="a")
                async for message in subscription:
                    seen.add((message.queue_id, message.tags))
                    if len(seen) == 3:
                        break
                del message
            assert seen == {(1, "a"), (2, "c"), (3, "a")}
            assert subscription.offsets == {1: 2, 2: 2, 3: 1}

    run(main())


def test_a_subscription_that_the_loop_refuses_leaves_nothing_behind_that_the_next_one_waits_for(tmp_path, monkeypatch):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            s.subscribe("T", queue_id=0, offset=0)      # makes what the loop has of the store
            loop = asyncio.get_running_loop()
            with monkeypatch.context() as refusing:
                refusing.setattr(loop, "add_reader", lambda *_: (_ for _ in ()).throw(OSError(28, "no more watches")))
                with pytest.raises(OSError, match="no more watches"), s.subscribe("T", offset=-1) as subscription:
                    await anext(subscription)
            with s.subscribe("T", offset=-1) as subscription:
                waiting = asyncio.create_task(anext(subscription))
                await asyncio.sleep(0)
                await s.put("T", b"new")
                assert bytes((await waiting).body) == b"new"

    asyncio.run(asyncio.wait_for(main(), 20))


def test_cancellation_loses_nothing(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL) as s:
            seen = []
            subscription = s.subscribe("T", queue_id=0, offset=0)

            async def consume():
                async for message in subscription:
                    seen.append(message.queue_offset)

            for _ in range(100):
                task = asyncio.create_task(consume())
                puts = [asyncio.create_task(s.put("T", b"x")) for _ in range(10)]
                await asyncio.sleep(0)
                puts[3].cancel()        # appended: cancelled is only the waiting
                await puts[9]
                task.cancel()
                await asyncio.gather(task, *puts, return_exceptions=True)
            await s.wait_dispatched()
            end = await s.max_offset("T", 0)
            assert end == 1000
            while len(seen) < end:
                seen.append((await anext(subscription)).queue_offset)
            assert seen == list(range(end)) and subscription.offsets == {0: end}
            await subscription.aclose()

    run(main())


def test_a_put_that_waits_can_be_cancelled_timed_out_and_keeps_its_context(tmp_path, run):
    """What asyncio.Task asks of a future: cancel with its message, timeouts, contexts, gather; a done one needs no turn."""
    name = contextvars.ContextVar("name", default="")

    async def main():
        probe = ProbeIo(keep_bytes=False)
        store = MessageStore.open(tmp_path / "s", flush_mode="sync", flush_backend="fdatasync", _io=probe, **SMALL)
        async with AsyncMessageStore(store) as s:
            async def put(mine):
                name.set(mine)
                result = await s.put("T", mine.encode())
                return mine, name.get(), result.queue_offset

            assert await put("first") == ("first", "first", 0)
            probe.hold("fdatasync", "/commitlog/")
            tasks = [asyncio.create_task(put(f"task {i}")) for i in range(5)]
            await asyncio.sleep(0)          # they have put: from Python 3.12 on the next one does so without a turn of the loop
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(put("late"), 0.01)
            tasks[1].cancel("not this one")
            with pytest.raises(asyncio.CancelledError, match="not this one"):
                await tasks[1]
            assert not any(t.done() for i, t in enumerate(tasks) if i != 1)
            probe.release()
            rest = await asyncio.gather(*(t for i, t in enumerate(tasks) if i != 1))
            assert rest == [(f"task {i}", f"task {i}", i + 1) for i in (0, 2, 3, 4)]
            assert await s.wait_dispatched(30) and await s.max_offset("T", 0) == 7      # the cancelled ones are stored

    run(main())


def test_a_task_that_ends_the_program_leaves_the_others_waking(tmp_path, run):
    """SystemExit in a task goes through the loop's reader that woke it; who was to wake after it does when the loop goes on."""
    if run.loop_factory is not asyncio.new_event_loop:
        pytest.skip("uvloop hands no exception of a reader on")
    probe = ProbeIo(keep_bytes=False)
    store = MessageStore.open(tmp_path / "s", flush_mode="sync", flush_backend="fdatasync", _io=probe, **SMALL)
    with store, asyncio.Runner() as runner:
        s, woken = AsyncMessageStore(store), []

        async def put(i):
            await s.put("T", b"x")
            woken.append(i)
            if i == 1:
                raise SystemExit

        async def start():
            probe.hold("fdatasync", "/commitlog/")
            tasks = [asyncio.create_task(put(i)) for i in range(4)]
            await asyncio.sleep(0)
            return tasks

        tasks = runner.run(start())
        probe.release()
        with pytest.raises(SystemExit):
            runner.run(asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30))
        runner.run(asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30))
        assert sorted(woken) == [0, 1, 2, 3]


def test_close_ends_gets_and_subscriptions(tmp_path, run):
    async def main():
        s = await AsyncMessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL)
        waiting = [asyncio.create_task(s.get("T", 0, 0, wait=3600)), asyncio.create_task(anext(s.subscribe("T", [1, 2]))),
                   asyncio.create_task(anext(s.subscribe("U"))), asyncio.create_task(s.wait_for_message("T", 0, 0))]
        puts = [s.put_async("V", b"x") for _ in range(10)]
        await asyncio.sleep(0.01)
        await s.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(o) for o in outcomes] == [errors.StoreClosed] * 4
        assert [(await f).queue_offset for f in puts] == list(range(10))
        with pytest.raises(errors.StoreClosed):
            s.subscribe("T")

    run(main())


def test_offsets_outside_the_queue_are_refused(tmp_path, run):
    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as s:
            await s.put("T", b"x")
            await s.wait_dispatched()
            for bad in (2, -2, {0: 7}):
                with pytest.raises(ValueError, match="offsets 0 to 1"):
                    s.subscribe("T", queue_id=0, offset=bad)
            assert (await anext(s.subscribe("T", queue_id=0, offset={0: 0}))).queue_offset == 0

    run(main())


def test_a_late_device_is_a_status_and_two_tasks_may_await_one_put(tmp_path, run):
    async def main():
        probe = ProbeIo(keep_bytes=False)
        store = MessageStore.open(tmp_path / "s", flush_mode="sync", flush_backend="fdatasync", flush_deadline_ms=50, _io=probe,
                                  **SMALL)
        async with AsyncMessageStore(store) as s:
            assert (await s.put("T", b"x")).status is PutStatus.PUT_OK
            probe.hold("fdatasync", "/commitlog/")
            future = s.put_async("T", b"y")

            async def wait():
                return await future

            results = await asyncio.gather(wait(), wait())
            assert {r.status for r in results} == {PutStatus.FLUSH_DISK_TIMEOUT}
            probe.release()
            assert await s.flush() >= results[0].offset + results[0].size

    run(main())


def test_a_loop_that_ended_does_not_hold_the_store(tmp_path):
    with MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL) as store:
        for i in range(3):
            async def main():
                s = AsyncMessageStore(store)
                abandoned = asyncio.create_task(s.get("T", 9, 0, wait=3600))
                await asyncio.sleep(0)
                del abandoned
                return (await s.put("T", b"x")).queue_offset

            assert asyncio.run(main()) == i
        store.put("T", b"x", queue_id=9)
        assert store.wait_dispatched(30)


def test_loops_of_several_threads_share_a_store(tmp_path, run, request):
    """Each task is woken in its own thread and context, however their turns meet."""
    request.addfinalizer(functools.partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)         # also while one wakes its tasks
    name = contextvars.ContextVar("name")
    wrong, durable, failed = [], [], []
    with MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL) as store:
        async def produce(me):
            name.set(me)
            for _ in range(200):
                result = await store.put_async("T", b"x")
                if store.stats()["flushed"] < result.offset + result.size:
                    wrong.append(result)
                if name.get() != me or threading.get_ident() != me[0]:
                    wrong.append(me)
                durable.append(result.offset)

        async def main():
            await asyncio.gather(*(produce((threading.get_ident(), i)) for i in range(8)))

        def body():
            try:
                run(main())
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=body) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not failed and not wrong
    assert len(set(durable)) == 3 * 8 * 200


def test_loops_that_begin_and_end_in_several_threads(tmp_path, run, request):
    """Each thread has one loop after the other, and each loop's first put forgets those that have ended, of any thread."""
    request.addfinalizer(functools.partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    wrong, failed = [], []
    with MessageStore.open(tmp_path / "s", flush_mode="sync", **SMALL) as store:
        async def main():
            me = threading.get_ident()
            for _ in range(2):
                result = await store.put_async("T", b"x")
                if store.stats()["flushed"] < result.offset + result.size or threading.get_ident() != me:
                    wrong.append(result)

        def body():
            try:
                for _ in range(60):
                    run(main())
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=body) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failed and not wrong
        assert len(store._loop_hubs) <= 4
        assert store.stats()["puts"] == 4 * 60 * 2


def test_a_look_that_fails_is_taken_again(tmp_path, run):
    """A subscription forgets a queue that has something only once it has read it."""
    async def main():
        io = ProbeIo(keep_bytes=False)
        async with await AsyncMessageStore.open(tmp_path / "s", _io=io, **SMALL) as s:
            await s.put("T", b"x")
            assert await s.wait_dispatched(30)
            with s.subscribe("T", 0, offset=0) as subscription:
                io.fail("pread", errno=5, path="/consumequeue/T/")
                with pytest.raises(OSError, match=r"[Ii]nput/output"):
                    await subscription.__anext__()
                assert bytes((await asyncio.wait_for(subscription.__anext__(), 30)).body) == b"x"

    run(main())
