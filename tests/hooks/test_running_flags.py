"""Running flags, and a busy page cache: what each is set by, and what puts and gets then return."""
import asyncio
import errno
import threading
import time

import pytest

from rmq_store import AsyncMessageStore, MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.codec.batch import encode_batch
from rmq_store.status import PutStatus, RunningFlags
from tests.soon import until

SMALL = {"segment_size_bytes": 1 << 18, "consumequeue_file_size_bytes": 2000, "index_slots": 100, "index_entries_max": 1000}
PUTS = [lambda store: store.put("T", b"x"), lambda store: store.put_async("T", b"x"), lambda store: store.put_many("T", [b"x"]),
        lambda store: store.put_many("T", [{"body": b"x", "tags": "a"}]),
        lambda store: store.put_batch("T", encode_batch([{"body": b"x"}]))]


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as made:
        yield made


def test_the_bits_are_those_of_upstream():
    assert {f.name: f.value for f in RunningFlags} == {
        "NOT_READABLE": 1, "NOT_WRITEABLE": 2, "WRITE_LOGICS_QUEUE_ERROR": 4, "WRITE_INDEX_FILE_ERROR": 8, "DISK_FULL": 16,
        "FENCED": 32, "LOGIC_DISK_FULL": 64}


def refused(store, said, status=PutStatus.SERVICE_NOT_AVAILABLE, kind=errors.ServiceNotAvailable):
    end = store.max_log_offset
    for put in PUTS:
        with pytest.raises(kind, match=said) as error:
            put(store)
        assert error.value.status is status
    assert store.max_log_offset == end


@pytest.mark.parametrize("hooked", [False, True])
def test_not_writeable(store, hooked):
    asked = []
    if hooked:
        store.add_put_hook(asked.append)
    store.put("T", b"0")
    assert store.running_flags == RunningFlags(0) and store.stats()["running_flags"] == []
    assert store.set_writeable(False) is True and store.set_writeable(False) is False
    assert store.running_flags is RunningFlags.NOT_WRITEABLE and store.stats()["running_flags"] == ["NOT_WRITEABLE"]
    refused(store, r"set_writeable\(False\) was called: call set_writeable\(True\)")
    assert len(asked) == hooked         # a put that is refused anyway is not asked for
    assert store.wait_dispatched(10) and bytes(store.get("T", 0, 0)[0].body) == b"0" and store.flush() > 0
    assert store.set_writeable(True) is False and store.running_flags == RunningFlags(0)
    assert store.put("T", b"1").queue_offset == 1


def test_fenced_and_not_writeable_do_not_undo_each_other(store):
    assert store.set_fenced(True) is False and store.set_fenced(True) is True
    store.set_writeable(False)
    store.set_writeable(True)
    assert store.running_flags is RunningFlags.FENCED
    refused(store, r"set_fenced\(True\) was called")
    assert store.set_fenced(False) is True
    store.put("T", b"x")


def test_not_readable(store):
    store.put("T", b"0")
    store.wait_dispatched(10)
    assert store.set_readable(False) is True
    assert store.running_flags is RunningFlags.NOT_READABLE
    for read in (lambda: store.get("T", 0, 0), lambda: store.get("T", 0, 5, wait=0), lambda: list(store.scan("T", 0)),
                 lambda: store.consumer("g", "T").poll()):
        with pytest.raises(errors.StoreNotReadable, match=r"call set_readable\(True\)"):
            read()
    assert store.put("T", b"1").status is PutStatus.PUT_OK
    assert store.set_readable(True) is False and store.wait_dispatched(10)
    assert [bytes(m.body) for m in store.scan("T", 0)] == [b"0", b"1"]


def test_who_waits_for_a_message_is_told(store):
    got = []

    def wait():
        try:
            store.get("T", 0, 0, wait=30)
        except errors.StoreNotReadable as error:
            got.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: store.stats()["waiting_readers"] == 1)
    store.set_readable(False)
    store.put("T", b"x")
    thread.join()
    assert len(got) == 1


async def _async(path):
    async with await AsyncMessageStore.open(path, **SMALL) as store:
        await store.put("T", b"x")
        assert await store.set_readable(False) and await store.set_fenced(False) is False
        with pytest.raises(errors.StoreNotReadable):
            await store.get("T", 0, 0)
        assert await store.set_writeable(False)
        with pytest.raises(errors.ServiceNotAvailable):
            await store.put("T", b"x")


def test_asyncio(tmp_path):
    asyncio.run(_async(tmp_path / "s"))


def test_what_runs_in_the_background_goes_on_behind_it(tmp_path):
    """A store that nobody may read for a while keeps its control thread, its transactions, and closes as ever."""
    with MessageStore.open(tmp_path / "s", transaction_op_interval_ms=1, **SMALL) as store:
        store.prepare("T", b"x", group="g").commit()
        store.set_readable(False)
        store.set_readable(True)
        store.prepare("T", b"x", group="g").commit()
        store.set_readable(False)
        assert store._watch.thread.is_alive()
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        assert not store.stats()["recovered"] and store.running_flags == RunningFlags(0)       # they end with the store
        assert store.max_offset("T", 0) == 2


def test_delayed_messages_wait_while_it_is_not_writeable(tmp_path):
    with MessageStore.open(tmp_path / "s", delay_levels=[1], **SMALL) as store:
        store.set_writeable(False)
        with pytest.raises(errors.ServiceNotAvailable):
            store.put("T", b"x", delay_level=1)
        store.set_writeable(True)
        store.put("T", b"x", delay_level=1)
        until(lambda: store.max_offset("T", 0) == 1)


@pytest.mark.parametrize(("path", "flag"), [("/consumequeue/", RunningFlags.WRITE_LOGICS_QUEUE_ERROR),
                                            ("/.alloc/2", RunningFlags.WRITE_INDEX_FILE_ERROR)])
def test_a_queue_or_the_index_that_cannot_be_written(tmp_path, path, flag):
    io = ProbeIo()
    store = MessageStore.open(tmp_path / "s", _io=io, **SMALL)
    store.put("T", b"0", keys="k")
    assert store.wait_dispatched(10)
    io.fail("pwrite|open|fallocate|rename|mmap", 1, errno.EIO, path=path, sticky=True)
    for i in range(2500):
        try:
            store.put("T", b"%d" % i, keys=f"k{i}")
        except errors.DurabilityError:
            break
    until(lambda: store.running_flags == flag | RunningFlags.FENCED)
    refused(store, "failed with errno 5", kind=errors.DurabilityError)
    assert bytes(store.get("T", 0, 0)[0].body) == b"0"
    io.clear()
    with pytest.raises(errors.DurabilityError):
        store.close()


def test_no_space_for_the_queues(tmp_path):
    io = ProbeIo()
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL) as store:
        store.put("T", b"0")
        assert store.wait_dispatched(10)
        io.fail("pwrite", 1, errno.ENOSPC, path="/consumequeue/", sticky=True)
        store.put("T", b"1")
        until(lambda: store.running_flags is RunningFlags.LOGIC_DISK_FULL)
        store.put("T", b"2")            # the present file has room
        io.clear()
        assert store.wait_dispatched(10)
        until(lambda: store.running_flags == RunningFlags(0))


def test_a_failed_sync_is_a_fence(tmp_path):
    io = ProbeIo()
    store = MessageStore.open(tmp_path / "s", _io=io, flush_backend="fdatasync", **SMALL)
    store.put("T", b"0")
    io.fail("fdatasync", 1, errno.EIO, path="/commitlog/0")
    with pytest.raises(errors.DurabilityError):
        store.flush()
    assert store.running_flags & RunningFlags.FENCED and store.set_fenced(False) is False
    assert store.running_flags & RunningFlags.FENCED          # it cannot be taken back
    refused(store, "failed with errno 5", kind=errors.DurabilityError)
    with pytest.raises(errors.DurabilityError):
        store.close()


def test_a_reader_and_a_closed_store(store, tmp_path):
    store.put("T", b"x")
    store.flush()
    with MessageStore.open(tmp_path / "s", readonly=True, **SMALL) as reader:
        assert reader.running_flags is RunningFlags.NOT_WRITEABLE
        for call in (reader.set_writeable, reader.set_fenced):
            with pytest.raises(errors.StoreNotWriteable):
                call(True)
        reader.set_readable(False)
        with pytest.raises(errors.StoreNotReadable):
            reader.get("T", 0, 0)
    for call in (store.set_writeable, store.set_readable, store.set_fenced):
        with pytest.raises(errors.ArgumentIllegal):
            call(1)
    store.close()
    for call in (store.set_writeable, store.set_readable, store.set_fenced, lambda _: store.running_flags,
                 lambda _: store.page_cache_busy):
        with pytest.raises(errors.StoreClosed):
            call(True)


def test_page_cache_busy(tmp_path):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, index_enabled=False, segment_size_bytes=1 << 21) as store:
        body = b"x" * 100_000
        store.put("T", body)
        io.hold("map_store")
        holder = threading.Thread(target=store.put, args=("T", body))
        holder.start()
        io.wait_held(1)
        assert not store.page_cache_busy
        io.set_clock(int(time.time() * 1000) + 3000)
        assert store.page_cache_busy and store.stats()["page_cache_busy"]
        with pytest.raises(errors.OsPageCacheBusy) as refusal:
            store.put("T", b"no")
        assert refusal.value.status is PutStatus.OS_PAGE_CACHE_BUSY
        store.reconfigure(osPageCacheBusyTimeOutMills=10_000)
        assert not store.page_cache_busy
        io.release()
        holder.join()
        io.set_clock(None)
        assert not store.page_cache_busy


def test_what_continues_while_a_store_is_not_readable(store):
    """As in RocketMQ, where getMessage alone asks the flag."""
    put = store.put("T", b"x", keys="k")
    store.wait_dispatched()
    store.set_readable(False)
    for refused in (lambda: store.get("T", 0, 0), lambda: list(store.scan("T", 0)), lambda: next(store.subscribe("T", 0)),
                    lambda: store.table("T"), store.transactions):      # which reads its topics first
        with pytest.raises(errors.StoreNotReadable):
            refused()
    assert len(store.query_key("T", "k")) == 1 and bytes(store.message_at(put.offset).body) == b"x"
    assert len(list(store.log_records())) > 0 and list(store.timers()) == []
    store.set_readable(True)
    assert store.transactions() == []
    store.set_readable(False)
    with store.transaction("T", b"y", group="G"):
        pass
    store.set_readable(True)
    store.wait_dispatched()
    assert [bytes(m.body) for m in store.scan("T", 0)] == [b"x", b"y"]
