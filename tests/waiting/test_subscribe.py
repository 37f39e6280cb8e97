"""MessageStore.subscribe: the blocking iterator, of the same meaning as that of AsyncMessageStore."""
import asyncio
import os
import threading
from contextlib import suppress

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 2000, "index_enabled": False}
LIGHT = SMALL | {"enable_lmq": True, "enable_multi_dispatch": True}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **LIGHT) as s:
        yield s


def eventfds():
    """How many this process has; other descriptors come and go with the store's threads."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found += "eventfd" in os.readlink(f"/proc/self/fd/{fd}")
    return found


def bodies(messages):
    return [bytes(m.body) for m in messages]


def test_a_queue_in_its_order_and_on_where_it_ended(store):
    for i in range(100):
        store.put("T", b"%d" % i)
    with store.subscribe("T", 0, max_count=7, timeout=0) as messages:
        store.wait_dispatched()
        assert bodies(messages) == [b"%d" % i for i in range(100)] and messages.offsets == {0: 100}
        store.put("T", b"more")
        store.wait_dispatched()
        assert bodies(messages) == [b"more"] and messages.offsets == {0: 101}
    assert bodies(messages) == []


def test_queues_take_turns_and_new_ones_come_in(store):
    for queue_id in (0, 1):
        store.put_many("T", [b"%d" % queue_id] * 5, queue_id=queue_id)
    store.wait_dispatched()
    with store.subscribe("T", max_count=2, timeout=0) as messages:
        store.put("T", b"2", queue_id=2)
        store.put("U", b"of another topic")
        store.wait_dispatched()
        found = bodies(messages)
        assert sorted(found) == [b"0"] * 5 + [b"1"] * 5 + [b"2"] and found[:4] == [b"0", b"0", b"1", b"1"]
        assert messages.offsets == {0: 5, 1: 5, 2: 1}


@pytest.mark.parametrize(("filter", "expected"), [
    ({"tags": "a || c"}, [0, 2, 3, 5]), ({"sql": "price BETWEEN 2 AND 3"}, [2, 3]), ({"sql": "missing = 1"}, [])])
def test_filters(store, filter, expected):
    for i in range(6):
        store.put("T", b"%d" % i, tags="abc"[i % 3], properties={"price": str(i)})
    store.wait_dispatched()
    with store.subscribe("T", 0, timeout=0, **filter) as messages:
        assert bodies(messages) == [b"%d" % i for i in expected] and messages.offsets[0] >= (expected or [5])[-1] + 1


def test_where_it_begins(store):
    store.put_many("T", [b"0", b"1", b"2"])
    store.wait_dispatched()
    every = [b"0", b"1", b"2"]
    for offset, expected in ((None, every), (1, every[1:]), (-1, []), ({0: 2}, every[2:]), ({5: 2}, every)):
        with store.subscribe("T", 0, offset=offset, timeout=0) as messages:
            assert bodies(messages) == expected


def test_it_waits_in_a_thread_and_others_run(store):
    found = []
    with store.subscribe("T", offset=-1) as messages:
        thread = threading.Thread(target=lambda: [found.append(bytes(m.body)) for m in messages])
        thread.start()
        for i in range(3):
            store.put("T", b"%d" % i, queue_id=i)
            until(lambda n=i: len(found) == n + 1)
        messages.close()
        thread.join(10)
        assert not thread.is_alive() and found == [b"0", b"1", b"2"]
    messages.close()


def test_each_message_goes_to_one_thread(store):
    found = []
    messages = store.subscribe("T", timeout=None)
    threads = [threading.Thread(target=lambda: [found.append(m.queue_offset) for m in messages]) for _ in range(4)]
    for thread in threads:
        thread.start()
    store.put_many("T", [b"x"] * 500)
    until(lambda: len(found) == 500)
    messages.close()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == list(range(500)) and not any(thread.is_alive() for thread in threads)


def test_it_ends_with_the_store(tmp_path):
    store, ends = MessageStore.open(tmp_path, **SMALL), []
    before = eventfds()
    messages = store.subscribe("T")

    def wait():
        try:
            next(messages)
        except errors.StoreClosed as error:
            ends.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    store.close()
    thread.join(10)
    assert len(ends) == 1
    messages.close()
    with pytest.raises(errors.StoreClosed):
        next(messages)
    with pytest.raises(errors.StoreClosed):
        store.subscribe("T")
    assert eventfds() <= before


@pytest.mark.parametrize(("arguments", "error", "says"), [
    ({"offset": 4}, ValueError, "offsets 0 to 3"), ({"offset": "1"}, errors.ArgumentIllegal, "offset is '1'"),
    ({"sql": "price >"}, errors.FilterIllegal, "price >"),
    ({"sql": "a = 1", "tags": "b"}, errors.ArgumentIllegal, "either tags or sql"),
    ({"timeout": "1"}, errors.ArgumentIllegal, "timeout"), ({"timeout": -1}, errors.ArgumentIllegal, "timeout")])
def test_bad_arguments(store, arguments, error, says):
    store.put_many("T", [b"0", b"1", b"2"])
    store.wait_dispatched()
    before = eventfds()
    with pytest.raises(error, match=says):
        store.subscribe("T", 0, **arguments)
    assert eventfds() == before


def test_a_light_queue_counts_its_own_offsets(store):
    store.put_many("T", [b"x"] * 3, queue_id=4)
    for i in range(3):
        store.put("T", b"%d" % i, queue_id=4, light_queues=["a"])
    store.wait_dispatched()
    with store.subscribe("%LMQ%a", timeout=0) as messages:
        assert bodies(messages) == [b"0", b"1", b"2"] and messages.offsets == {0: 3}

    async def main():
        with AsyncMessageStore(store).subscribe("%LMQ%a", 0) as subscription:
            assert bytes((await anext(subscription)).body) == b"0" and subscription.offsets == {0: 1}

    asyncio.run(main())


def test_a_follower_sees_what_another_store_puts(store, tmp_path):
    with (MessageStore.open(tmp_path / "s", readonly=True, follow=True, **LIGHT) as follower,
          follower.subscribe("T", 0, offset=0) as messages):
        store.put("T", b"there")
        assert bytes(next(messages).body) == b"there"


def test_nothing_arrives_in_a_store_that_is_open_read_only(store, tmp_path):
    store.put("T", b"x")
    store.close()
    with MessageStore.open(tmp_path / "s", readonly=True) as there:
        for queues in (0, None):
            with there.subscribe("T", queues) as messages:
                assert bytes(next(messages).body) == b"x"
                with pytest.raises(errors.StoreStateError, match="open it with readonly=True, follow=True"):
                    next(messages)

        async def main():
            async_store = AsyncMessageStore(there)
            with async_store.subscribe("T", 0) as messages:
                assert bytes((await anext(messages)).body) == b"x"
                with pytest.raises(errors.StoreStateError, match="open it with readonly=True, follow=True"):
                    await anext(messages)
            for call in (lambda: async_store.wait_for_message("T", 0, 1), lambda: async_store.get("T", 0, 1, wait=True)):
                with pytest.raises(errors.StoreStateError, match="open it with readonly=True, follow=True"):
                    await call()

        asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("queue", ["x", b"0", 1.5, -1, [0, "x"], 1 << 31])
def test_a_queue_that_is_none(store, queue):
    store.put("T", b"x")

    async def main():
        AsyncMessageStore(store).subscribe("T", queue)

    for call in (lambda: store.subscribe("T", queue), lambda: asyncio.run(main())):
        with pytest.raises(errors.ArgumentIllegal, match="queue_id is "):
            call()


def test_a_timeout_ends_the_iteration_of_a_task_and_a_later_one_continues(store):
    async def main():
        async with AsyncMessageStore(store) as there:
            await there.put("T", b"0")
            with there.subscribe("T", 0, timeout=0) as messages:
                await there.wait_dispatched()
                assert [bytes(m.body) async for m in messages] == [b"0"]
                await there.put("T", b"1")
                await there.wait_dispatched()
                assert [bytes(m.body) async for m in messages] == [b"1"] and messages.offsets == {0: 2}
            with pytest.raises(errors.ArgumentIllegal, match="timeout is -1"):
                there.subscribe("T", 0, timeout=-1)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_errors_of_calls_name_the_store(store):
    for call, name in ((lambda: store.prepare(), "MessageStore.prepare"), (lambda: store.timers(1), "MessageStore.timers"),
                       (lambda: store.add_put_hook(), "MessageStore.add_put_hook"),
                       (lambda: AsyncMessageStore(store).on_check(), "AsyncMessageStore.on_check")):
        with pytest.raises(TypeError, match=name.replace(".", r"\.")):
            call()
    for wrong in (5, "", None):
        with pytest.raises(errors.ArgumentIllegal, match="id is "):
            store.transaction_by_id(wrong)
