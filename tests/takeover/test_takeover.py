"""What real brokers left is taken over: what is due is delivered, what is pending stays pending, what was rolled back or
recalled is never seen. Here without Java; tests/interop has the way back, with the real brokers."""
import functools
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests import soon
from tests.interop import test_bit_maps as maps
from tests.interop import test_compaction as compaction
from tests.interop import test_light_queues as light
from tests.takeover.stores import cases, unpack

HOUR = 3_600_000
until = functools.partial(soon.until, looks=60_000)


def opened(path: Path, case: dict[str, Any], **options: Any) -> MessageStore:
    compat = "4.9" if case["version"].startswith("4.") else "5.x"
    return MessageStore.open(path, compat=compat, **{**case["options"], **options})


def at_time(path: Path, case: dict[str, Any], now: int, **options: Any) -> MessageStore:
    io = ProbeIo(keep_bytes=False)
    io.set_clock(now, 0)
    return opened(path, case, _io=io, **options)


def visible(store: MessageStore, topic: str = "T") -> list[str]:
    assert store.wait_dispatched(30)
    return [bytes(m.body).decode() for m in store.scan(topic)]


@pytest.mark.parametrize("name", cases("transactions"))
def test_half_messages(name: str, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    with opened(path, case, delay="store_only") as store:
        assert sorted(p.id for p in store.transactions()) == case["pending"] and sorted(visible(store)) == case["visible"]
        for rolled_back in case["rolled_back"]:
            with pytest.raises(errors.TransactionDecided, match="rolled back"):
                store.transaction_by_id(rolled_back).commit()
        store.transaction_by_id(case["pending"][0]).commit()
        store.transaction_by_id(case["pending"][1]).rollback()
    with opened(path, case, delay="store_only") as store:
        assert sorted(p.id for p in store.transactions()) == case["pending"][2:]
        assert sorted(visible(store)) == sorted([*case["visible"], case["pending"][0]])


@pytest.mark.parametrize("lost", [None, "timerwheel", "timerlog"])
@pytest.mark.parametrize("name", cases("timers"))
def test_timers(name: str, lost: str | None, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    due = case["due"]
    if lost == "timerwheel":
        (path / "timerwheel").unlink()
    elif lost == "timerlog":
        for file in (path / "timerlog").iterdir():
            file.unlink()
    with at_time(path, case, due - 2000) as store:
        assert visible(store) == []
        until(lambda: len(list(store.timers())) == 3)      # the recalled one does not wait
    with at_time(path, case, due + 4000) as store:
        assert store.wait_for_message("T", 0, 1, 60)
        assert visible(store) == ["a", "b"]
    with at_time(path, case, due + 4000) as store:
        until(lambda: [t.deliver_ms for t in store.timers()] == [-(-(due + HOUR) // 1000) * 1000])
        assert visible(store) == ["a", "b"]
    with at_time(path, case, due + HOUR + 2000) as store:
        assert store.wait_for_message("T", 0, 2, 60)
        until(lambda: list(store.timers()) == [])
        assert visible(store) == ["a", "b", "c"]


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("name", cases("light"))
def test_light_queues(name: str, rebuilt: bool, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    if rebuilt:         # as if the queues' files had not reached the device
        for queue in case["queues"]:
            for file in (path / "consumequeue" / queue / "0").iterdir():
                file.unlink()
        (path / "checkpoint").unlink()
        (path / "abort").touch()
    with opened(path, case) as store:
        assert {queue: light.ours(store, queue) for queue in case["queues"]} == case["queues"]
        (queue, before), *_ = case["queues"].items()
        store.put("T", b"more", light_queues=[queue])
        assert store.wait_dispatched(30)
        assert light.ours(store, queue) == [*before, f"more {len(before)}"]


@pytest.mark.parametrize("name", cases("bitmaps"))
def test_bit_maps(name: str, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    with opened(path, case, enableCalcFilterBitMap=True) as store:
        assert sorted(f.group for f in store.consumer_filters.list(topic="T")) == sorted(case["answer"]["matched"])
        maps.agrees(store, case["answer"])
        assert store.stats()["bit_map_skips"] > 0


@pytest.mark.parametrize("name", cases("compaction"))
def test_compaction(name: str, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    newest = compaction.last_of(case["newest"])
    with opened(path, case) as store:           # the real store had no topics.json, the broker has
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
    with opened(path, case) as store:
        assert compaction.last_of(compaction.ours(store)) == compaction.table(store) == newest
        store.compact("C")
        store.clean(hours=0, pace_ms=0)         # what is left of the rest is in the compaction log alone
        assert store._queues_of("C")[0][1] > 0
        assert compaction.last_of(compaction.ours(store)) == compaction.table(store) == newest
    with opened(path, case, readonly=True) as store:
        assert compaction.last_of(compaction.ours(store)) == compaction.table(store) == newest


@pytest.mark.parametrize("name", cases("dirs"))
def test_two_directories(name: str, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    where = ",".join(str(path / each) for each in ("commitlog", "commitlog2"))
    for _ in range(2):
        with opened(path, case, storePathCommitLog=where) as store:
            for topic, queue_id, queue_offset, msg_id, checksum in case["puts"]:
                (message,) = store.get(topic, queue_id, queue_offset, 1)
                assert (message.msg_id, zlib.crc32(message.body)) == (msg_id, checksum)
            assert store.check_self() == []
            store.put("Ours", b"more")
    (path / "commitlog2").rename(path / "away")
    with pytest.raises(errors.LogDirectoryMissing):
        opened(path, case, storePathCommitLog=where)
    with opened(path, case, storePathCommitLog=where, readonly=True) as store:
        assert 0 < sum(1 for _ in store.scan()) < len(case["puts"])
