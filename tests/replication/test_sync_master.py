"""Puts that wait for a slave: what they return, by every way of putting."""
import asyncio
import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.access.writer._future import PutFuture, WaitedFutures
from rmq_store.aio import AsyncMessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import DurabilityError, SyncFailed, WriteFailed
from rmq_store.status import PutStatus
from tests.regress.hooks import clock_hook
from tests.replication.pairs import caught_up, connected, joined, master, same_log, slave
from tests.soon import until

SYNC = {"role": "sync_master", "slave_timeout_ms": 20_000}


def acknowledged(m: MessageStore, end: int) -> bool:
    return any(r.offset >= end for r in m.replicas())


@pytest.mark.parametrize("how", [{}, {"write_path": "pool"}, {"flush_mode": "sync"}])
def test_a_put_returns_when_a_slave_has_it(tmp_path: Path, how: dict) -> None:
    with master(tmp_path / "m", **SYNC, **how) as m, slave(tmp_path / "s", m) as s:
        joined(m)
        for i in range(30):
            result = m.put("T", b"%d" % i)
            assert result.status == PutStatus.PUT_OK
            assert acknowledged(m, result.offset + result.size)
            assert s.max_log_offset >= result.offset + result.size
        many = m.put_many("T", [b"a", b"b"])
        assert many.status == PutStatus.PUT_OK
        assert s.max_log_offset == m.max_log_offset
        assert m.put("T", b"durable too", wait=True).status == PutStatus.PUT_OK
        futures = [m.put_async("T", b"%d" % i) for i in range(100)]
        assert {f.result().status for f in futures} == {PutStatus.PUT_OK}
        assert s.max_log_offset == m.max_log_offset
        same_log(m, s)


def test_no_slave(tmp_path: Path) -> None:
    with master(tmp_path / "m", **SYNC) as m:
        assert m.put("T", b"x").status == PutStatus.SLAVE_NOT_AVAILABLE
        assert m.put_many("T", [b"x"]).status == PutStatus.SLAVE_NOT_AVAILABLE
        assert m.put_async("T", b"x").result().status == PutStatus.SLAVE_NOT_AVAILABLE
        assert m.put("T", b"x", wait=False).status == PutStatus.PUT_OK
        assert m.put("T", b"x", properties={"WAIT": "false"}).status == PutStatus.PUT_OK
        assert m.put("T", b"x", wait=True).status == PutStatus.SLAVE_NOT_AVAILABLE
        assert m.max_offset("T", 0) in range(7)
        with slave(tmp_path / "s", m) as s:
            joined(m)
            assert m.put("T", b"x").status == PutStatus.PUT_OK
            caught_up(s, m)


def test_the_first_word_of_a_slave_acknowledges_nothing(tmp_path: Path) -> None:
    """Nothing was compared yet: its log may be another."""
    with master(tmp_path / "m", role="sync_master", slave_timeout_ms=500) as m, connected(m) as slow, connected(m) as other:
        slow.report(0)
        joined(m)
        future = m.put_async("T", b"x")
        other.report(m.max_log_offset)
        assert future.result().status == PutStatus.FLUSH_SLAVE_TIMEOUT


def test_a_slave_that_repeats_where_it_began_acknowledges_nothing(tmp_path: Path) -> None:
    """A slave that compares nothing says so as a heartbeat, also with the log of another master: what it was not sent on this
    connection counts only behind something that it was sent."""
    with master(tmp_path / "m", role="sync_master", slave_timeout_ms=500) as m, connected(m) as slow, connected(m) as other:
        slow.report(0)
        joined(m)
        future = m.put_async("T", b"x")
        until(lambda: m.max_log_offset > 0)
        end = m.max_log_offset
        for _ in range(3):
            other.report(end)
        until(lambda: acknowledged(m, end))
        assert future.result().status == PutStatus.FLUSH_SLAVE_TIMEOUT
        future = m.put_async("T", b"y")
        at, data = other.read_frame()
        while not data:
            at, data = other.read_frame()
        other.report(at + len(data))
        assert future.result().status == PutStatus.PUT_OK


def test_a_slave_that_went_makes_no_other_usable(tmp_path: Path) -> None:
    with master(tmp_path / "m", **SYNC, ha_slave_fallbehind_max_bytes=10_000) as m:
        for _ in range(30):
            m.put("T", bytes(900), wait=False)
        with connected(m) as peer:
            peer.report(m.max_log_offset)
            peer.report(m.max_log_offset)
            until(lambda: acknowledged(m, m.max_log_offset))
        until(lambda: m.replicas() == [])
        with connected(m) as far_behind:
            far_behind.report(0)
            joined(m)
            assert m.put("T", b"x").status == PutStatus.SLAVE_NOT_AVAILABLE


def test_a_slave_that_acknowledges_nothing(tmp_path: Path) -> None:
    with master(tmp_path / "m", role="sync_master", slave_timeout_ms=50) as m, connected(m) as peer:
        peer.report(0)
        joined(m)
        assert m.put("T", b"x").status == PutStatus.FLUSH_SLAVE_TIMEOUT
        future = m.put_async("T", b"x")
        assert future.result().status == PutStatus.FLUSH_SLAVE_TIMEOUT
        told: list[PutStatus] = []
        m.put_async("T", b"x").add_done_callback(lambda f: told.append(f.result().status))
        until(lambda: told == [PutStatus.FLUSH_SLAVE_TIMEOUT], 20_000)


def test_puts_that_gather_behind_a_slave_that_says_nothing(tmp_path: Path) -> None:
    """It gets all of them, each is late at its time, and a word of the slave's lets the next ones out."""
    with master(tmp_path / "m", role="sync_master", slave_timeout_ms=50, write_path="pool") as m, connected(m) as peer:
        peer.report(0)
        joined(m)
        futures = [m.put_async("T", bytes(1024)) for _ in range(1000)]
        end, got = m.max_log_offset, 0
        while got < end:
            offset, data = peer.read_frame()
            assert offset == got or not data
            got += len(data)
        assert futures[0].result().status == PutStatus.FLUSH_SLAVE_TIMEOUT
        assert {f.result(timeout=0).status for f in futures} == {PutStatus.FLUSH_SLAVE_TIMEOUT}
        told: list[PutStatus] = []
        late = m.put_async("T", b"x")
        late.add_done_callback(lambda f: told.append(f.result().status))
        until(lambda: told == [PutStatus.FLUSH_SLAVE_TIMEOUT], 20_000)
        end = late.result().offset + late.result().size
        until(lambda: m.max_log_offset == end)
        peer.report(end)
        until(lambda: acknowledged(m, end))
        after = m.put_async("T", b"x")
        until(lambda: m.max_log_offset > end)
        with pytest.raises(TimeoutError, match="not with a slave"):
            after.result(timeout=0)
        peer.report(m.max_log_offset)
        until(lambda: acknowledged(m, m.max_log_offset))
        assert after.result().status == PutStatus.PUT_OK


def test_a_slave_that_is_too_far_behind(tmp_path: Path) -> None:
    with master(tmp_path / "m", **SYNC, ha_slave_fallbehind_max_bytes=1000) as m, connected(m) as peer:
        peer.report(0)
        joined(m)
        m.put("T", b"x" * 2000, wait=False)
        assert m.put("T", b"x").status == PutStatus.SLAVE_NOT_AVAILABLE


@pytest.mark.parametrize("count", [1, 300])
def test_close_lets_puts_out(tmp_path: Path, count: int) -> None:
    m = master(tmp_path / "m", **SYNC)
    with connected(m) as peer:
        peer.report(0)
        joined(m)
        futures = [m.put_async("T", bytes(1000)) for _ in range(count)]
        m.close()
        assert {future.result().status for future in futures} == {PutStatus.FLUSH_SLAVE_TIMEOUT}
        assert peer.closed_by_peer()


def test_tasks_wait_for_a_slave(tmp_path: Path) -> None:
    async def run(m: MessageStore) -> None:
        store = AsyncMessageStore(m)
        results = await asyncio.gather(*(store.put("T", b"%d" % i) for i in range(50)))
        assert {r.status for r in results} == {PutStatus.PUT_OK}
        many = await store.put_many("T", [b"a", b"b"])
        assert many.status == PutStatus.PUT_OK
        assert acknowledged(m, m.max_log_offset)

    with master(tmp_path / "m", **SYNC) as m, slave(tmp_path / "s", m):
        joined(m)
        asyncio.run(run(m))


def test_each_future_is_late_at_its_own_time(tmp_path: Path) -> None:
    """One waits for slaves alone, the other for the device as well, which takes long."""
    probe = ProbeIo(keep_bytes=False)
    with master(tmp_path / "m", _io=probe, role="sync_master", slave_timeout_ms=50, flush_deadline_ms=3_600_000) as m, \
            connected(m) as peer:
        peer.report(0)
        joined(m)
        told: list[str] = []
        probe.hold("fdatasync|msync", "/commitlog/")
        try:
            both, short = m.put_async("T", b"x", wait=True), m.put_async("T", b"x")
            both.add_done_callback(lambda f: told.append("both"))
            short.add_done_callback(lambda f: told.append("short"))
            assert short.result().status == PutStatus.FLUSH_SLAVE_TIMEOUT
            until(lambda: told == ["short"], 20_000)
            with pytest.raises(TimeoutError, match="not durable"):
                both.result(timeout=0)
            end = short.result().offset + short.result().size
            until(lambda: m.replicas()[0].sent_bytes == end, 20_000)
            peer.report(end)
            until(lambda: acknowledged(m, end), 20_000)
            assert not both.done()
        finally:
            probe.release()
        assert both.result().status == PutStatus.PUT_OK
        until(lambda: told == ["short", "both"], 20_000)


@pytest.mark.parametrize("how", ["result", "polled", "callback", "task"])
def test_slaves_have_their_own_time_behind_the_device(tmp_path: Path, how: str) -> None:
    """The device has the message soon, and may take an hour; the slave says nothing."""
    with master(tmp_path / "m", role="sync_master", flush_mode="sync", slave_timeout_ms=50,
                flush_deadline_ms=3_600_000) as m, connected(m) as peer:
        peer.report(0)
        joined(m)
        future = m.put_async("T", b"x")
        told: list[object] = []

        async def wait() -> None:
            await future

        if how == "callback":
            future.add_done_callback(told.append)
            until(lambda: told == [future], 20_000)
        elif how == "polled":
            until(future.done, 20_000)
        elif how == "task":
            asyncio.run(wait())
        assert future.result().status == PutStatus.FLUSH_SLAVE_TIMEOUT
        assert m._position("flushed") == m.max_log_offset


def test_a_wait_counts_only_the_time_that_passed(tmp_path: Path) -> None:
    """The flush of a put that waits for both comes long before the slave's word; on a clock that stands still, nothing is
    late."""
    probe = ProbeIo(keep_bytes=False)
    with master(tmp_path / "m", _io=probe, role="sync_master", slave_timeout_ms=50, write_path="mmap") as m, \
            connected(m) as peer:
        peer.report(0)
        joined(m)
        slot = ctypes.c_void_p.from_address(probe.clock_slot)
        ticks, slot.value = slot.value, ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
        try:
            future, end = m.put_async("T", b"x", wait=True), m.max_log_offset

            def acknowledges() -> None:
                until(lambda: m._position("flushed") >= end, 20_000)
                peer.report(end)

            thread = threading.Thread(target=acknowledges)
            thread.start()
            assert future.result().status == PutStatus.PUT_OK
            thread.join()
        finally:
            slot.value = ticks


def test_a_slave_on_its_device(tmp_path: Path) -> None:
    """With flush_mode=sync a slave acknowledges what it has flushed."""
    with master(tmp_path / "m", **SYNC) as m, slave(tmp_path / "s", m, flush_mode="sync") as s:
        joined(m)
        for i in range(20):
            result = m.put("T", b"%d" % i)
            assert result.status == PutStatus.PUT_OK
            assert s.stats()["flushed"] >= result.offset + result.size


def test_who_asks_when_to_look_again_hears_of_the_slaves_time_alone_once_the_device_has_it(tmp_path: Path) -> None:
    """Timers ask so: one that adds the device's time to a wait which that has ended tells of late slaves too late."""
    probe, later = ProbeIo(keep_bytes=False), 0
    with master(tmp_path / "m", _io=probe, role="sync_master", flush_mode="sync", slave_timeout_ms=600_000,
                flush_deadline_ms=3_600_000) as m, connected(m) as peer:
        peer.report(0)
        joined(m)
        fd = os.eventfd(0)
        waited = WaitedFutures(m._completer, fd)
        with clock_hook(probe, lambda: later):
            future = m.put_async("T", b"x")
            assert waited.add(future, None)
            until(lambda: m._position("flushed") == m.max_log_offset, 20_000)
            assert waited.take() == []          # it sees that the device has it: the slaves' time begins
            later = 500_000_000_000
            assert waited.overdue_in is not None and waited.overdue_in <= 100
            later = 600_000_000_000
            assert waited.take() == [(future, None)]
        assert future.result().status == PutStatus.FLUSH_SLAVE_TIMEOUT
        waited.close()
        os.close(fd)


def test_a_limit_of_the_callers_holds_when_slaves_get_their_time(tmp_path: Path) -> None:
    """It lies beyond the device's time and the slaves' together; the device has the message just before that is over."""
    probe, here, reads = ProbeIo(keep_bytes=False), threading.get_ident(), 0
    with master(tmp_path / "m", _io=probe, role="sync_master", flush_mode="sync", slave_timeout_ms=3_000,
                flush_deadline_ms=5_000) as m, connected(m) as peer:
        peer.report(0)
        joined(m)
        probe.hold("fdatasync|msync", "/commitlog/")
        future = m.put_async("T", b"x")
        probe.wait_held()

        def clock() -> int:
            nonlocal reads
            if threading.get_ident() != here:
                return 0
            reads += 1
            if reads == 2:                      # the wait has begun
                probe.release()
                until(lambda: m._position("flushed") == m.max_log_offset, 20_000)
            return 0 if reads < 2 else 7_900_000_000 if reads < 5 else 8_600_000_000

        with clock_hook(probe, clock), pytest.raises(TimeoutError, match=r"not with a slave after 8\.5 s"):
            future.result(timeout=8.5)
        assert not future.done()


def by_callback(m: MessageStore) -> None:
    told: list[PutFuture] = []
    m.put_async("T", b"x").add_done_callback(told.append)
    until(lambda: told != [], 20_000)
    told[0].result()


def by_task(m: MessageStore) -> None:
    async def wait() -> None:
        await asyncio.wait_for(AsyncMessageStore(m).put("T", b"x"), 20)

    asyncio.run(wait())


def polled(m: MessageStore) -> None:
    future = m.put_async("T", b"x")
    until(future.done, 20_000)
    future.result()


def after_the_end(m: MessageStore) -> None:
    future = m.put_async("T", b"x")
    with pytest.raises(DurabilityError):
        m.close()
    future.result()


WAYS: dict[str, Callable[[MessageStore], object]] = {
    "put": lambda m: m.put("T", b"x"), "put_many": lambda m: m.put_many("T", [b"x", b"y"]),
    "result": lambda m: m.put_async("T", b"x").result(), "polled": polled, "callback": by_callback, "task": by_task,
    "after the end": after_the_end}


@pytest.mark.parametrize("step", ["write", "sync"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_failed_master_keeps_from_its_slaves_is_no_matter_of_slaves(tmp_path: Path, way: str, step: str) -> None:
    """The put waits for slaves alone. The device fails before they may have it, and so they never will."""
    probe = ProbeIo(keep_bytes=False)
    how = {"write_path": "pool"} if step == "write" else {"visibility": "durable"}
    m = master(tmp_path / "m", _io=probe, role="sync_master", slave_timeout_ms=60_000, segment_prezero="off",
               flush_backend="fdatasync", **how)
    with connected(m) as peer:
        try:
            peer.report(0)
            joined(m)
            probe.fail("pwrite" if step == "write" else "fdatasync", errno=errno.EIO, path="/commitlog/")
            with pytest.raises(WriteFailed if step == "write" else SyncFailed):
                WAYS[way](m)
            assert probe.hits == 1
        finally:
            with contextlib.suppress(DurabilityError):
                m.close()
