"""Transactions of AsyncMessageStore."""
import asyncio
import threading

import pytest

from rmq_store import AsyncMessageStore, errors

SMALL = {"segment_size_bytes": 1 << 20, "index_slots": 100, "index_entries_max": 1000}


def run(path, body):
    async def main():
        async with await AsyncMessageStore.open(path, **SMALL) as store:
            await body(store)
            assert await store.wait_dispatched(30)
            return [bytes(m.body) async for m in store.scan("T")]

    return asyncio.run(main())


def test_the_block_decides(tmp_path):
    async def body(store):
        async with store.transaction("T", b"1", group="P") as t:
            assert t.state == "pending" and [p.id for p in await store.transactions(group="P")] == [t.id]
            assert await store.transactions(group="Q") == []
        assert t.state == "committed" and t.transaction.topic == "T"
        with pytest.raises(KeyError):
            async with store.transaction("T", b"2", group="P") as t:
                raise KeyError
        assert t.state == "rolled back"
        async with store.transaction("T", b"3", group="P") as t:
            await t.rollback()
        assert await store.transactions() == []

    assert run(tmp_path, body) == [b"1"]


def test_prepared_and_decided_later(tmp_path):
    async def body(store):
        t = await store.prepare("T", b"1", group="P", queue_id=2)
        again = await store.transaction_by_id(t.id)
        first = await again.commit(wait=True)
        assert await t.commit() is first
        with pytest.raises(errors.TransactionDecided):
            await t.rollback()
        with pytest.raises(errors.TransactionUnknown):
            await store.transaction_by_id("nobody")
        with pytest.raises(RuntimeError, match="not prepared"):
            _ = store.transaction("T", b"", group="P").id
        with pytest.raises(errors.MessageIllegal):
            await store.prepare("", b"", group="P")

    assert run(tmp_path, body) == [b"1"]


def test_a_cancelled_block_rolls_back(tmp_path):
    async def body(store):
        begun = asyncio.Event()

        async def block():
            async with store.transaction("T", b"1", group="P"):
                begun.set()
                await asyncio.sleep(3600)

        task = asyncio.create_task(block())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.transactions() == []

    assert run(tmp_path, body) == []


def test_the_group_is_asked(tmp_path):
    async def body(store):
        loop, asked = asyncio.get_running_loop(), asyncio.Event()

        def callback(transaction):
            loop.call_soon_threadsafe(asked.set)
            return "commit"

        await store.reconfigure(transaction_timeout_ms=1, transaction_check_interval_ms=1)
        t = await store.prepare("T", b"1", group="P")
        store.on_check("P", callback)
        await asyncio.wait_for(asked.wait(), 60)
        while t.state == "pending":
            await asyncio.sleep(0)

    assert run(tmp_path, body) == [b"1"]


def test_cancelled_while_it_commits(tmp_path):
    """It is committed all the same, and the task is cancelled: the block's roll-back, which comes too late, does not say so in
    its place."""
    async def body(store):
        committing, go_on = asyncio.Event(), threading.Event()
        loop, commit = asyncio.get_running_loop(), store.store._transactions._commit

        def held(*arguments):
            loop.call_soon_threadsafe(committing.set)
            assert go_on.wait(60)
            commit(*arguments)

        store.store._transactions._commit = held

        async def block():
            async with store.transaction("T", b"1", group="P") as transaction:
                await transaction.commit()

        task = asyncio.create_task(block())
        await committing.wait()
        task.cancel()
        await asyncio.sleep(0)          # the block has begun to roll back
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert run(tmp_path, body) == [b"1"]


def test_a_block_of_what_is_prepared(tmp_path):
    async def body(store):
        async with await store.prepare("T", b"1", group="P") as transaction:
            assert [row.id for row in await store.transactions()] == [transaction.id]
        assert transaction.state == "committed" and await store.transactions() == []

    assert run(tmp_path, body) == [b"1"]
