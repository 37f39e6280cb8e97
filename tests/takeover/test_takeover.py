"""What real brokers left is taken over: what is due is delivered, what is pending stays pending, what was rolled back or
recalled is never seen. Here without Java; tests/interop has the way back, with the real brokers."""
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.takeover.stores import cases, unpack

HOUR = 3_600_000


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
        _until(lambda: len(list(store.timers())) == 3)      # the recalled one does not wait
    with at_time(path, case, due + 4000) as store:
        assert store.wait_for_message("T", 0, 1, 60)
        assert visible(store) == ["a", "b"]
    with at_time(path, case, due + 4000) as store:
        _until(lambda: [t.deliver_ms for t in store.timers()] == [-(-(due + HOUR) // 1000) * 1000])
        assert visible(store) == ["a", "b"]
    with at_time(path, case, due + HOUR + 2000) as store:
        assert store.wait_for_message("T", 0, 2, 60)
        _until(lambda: list(store.timers()) == [])
        assert visible(store) == ["a", "b", "c"]


def _until(what: Any) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


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
        assert {queue: _light(store, queue) for queue in case["queues"]} == case["queues"]
        (queue, before), *_ = case["queues"].items()
        store.put("T", b"more", light_queues=[queue])
        assert store.wait_dispatched(30)
        assert _light(store, queue) == [*before, f"more {len(before)}"]


def _light(store: MessageStore, name: str) -> list[str]:
    found, at = [], 0
    while result := store.get(name, 0, at, 32):
        found += [f"{bytes(m.body).decode()} {m.properties['INNER_MULTI_QUEUE_OFFSET']}" for m in result]
        at = result.next_offset
    return found


@pytest.mark.parametrize("name", cases("bitmaps"))
def test_bit_maps(name: str, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    answer = case["answer"]
    with opened(path, case, enableCalcFilterBitMap=True) as store:
        filters = store.consumer_filters.list(topic="T")
        assert sorted(f.group for f in filters) == sorted(answer["matched"])
        before, end, found = store.stats()["bit_map_skips"], store.max_offset("T", 0), {}
        for one in filters:
            at, got = 0, []
            while at < end:
                result = store.get("T", 0, at, sql=one.sql)
                got += [m.queue_offset for m in result]
                at = result.next_offset
            found[one.group] = " ".join(map(str, got))
        assert {group: text.strip() for group, text in answer["matched"].items()} == found
        assert store.stats()["bit_map_skips"] - before == sum(len(text.split()) for text in answer["skipped"].values()) > 0
        for i, (stored, bits) in enumerate(answer["entries"]):
            known, _, at, mine = store.ext_unit("T", 0, store.raw_entry("T", 0, i)[2])
            assert (known, at, mine.hex()) == (True, stored, bits)


@pytest.mark.parametrize("name", cases("compaction"))
def test_compaction(name: str, tmp_path: Path) -> None:
    path, case = unpack(name, tmp_path)
    last = {key: (offset, body) for offset, key, body in case["newest"]}
    newest = {key: value for key, value in last.items() if value[1]}       # no body: the key is deleted
    with opened(path, case) as store:           # the real store had no topics.json, the broker has
        store.topic_table.set_cleanup_policy("C", "COMPACTION")
    with opened(path, case) as store:
        assert _newest(store) == _table(store) == newest
        store.compact("C")
        store.clean(hours=0, pace_ms=0)         # what is left of the rest is in the compaction log alone
        assert store._queues_of("C")[0][1] > 0
        assert _newest(store) == _table(store) == newest
    with opened(path, case, readonly=True) as store:
        assert _newest(store) == _table(store) == newest


def _newest(store: MessageStore) -> dict[str, tuple[int, str]]:
    """What a reader has who begins at the first message."""
    found, at, end = {}, store.min_offset("C", 0), store.max_offset("C", 0)
    while at < end:
        result = store.get("C", 0, at, 32)
        found.update({m.keys: (m.queue_offset, bytes(m.body).decode()) for m in result})
        at = result.next_offset
    return {key: value for key, value in found.items() if value[1]}


def _table(store: MessageStore) -> dict[str, tuple[int, str]]:
    return {key: (m.queue_offset, bytes(m.body).decode()) for key, m in store.table("C").items()}


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
