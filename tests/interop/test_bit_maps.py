"""Bit maps of SQL92 filters of a real broker (4.9 and 5.3.3): this library continues with its filters and maps, and the other way
round (tools/interop/broker/BitMaps.java)."""
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rmq_store import MessageStore
from rmq_store.filter._bitmap import FilterTable, GroupFilter
from rmq_store.filter._program import SqlFilter
from rmq_store.filter.bloom import BloomFilter
from tests.interop.content import SMALL_FILES
from tests.interop.jvm import FETCH_SECONDS, settings

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "bit_maps_with_rocketmq.sh"
FILES = {**SMALL_FILES, "enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1024}
BLOOM = BloomFilter(20, 32)
pytestmark = pytest.mark.slow        # the jars of two brokers, and a JVM for each question
versions = pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])


def broker(version: str, command: str, path: Path) -> dict[str, Any]:
    done = subprocess.run([SCRIPT, "--rocketmq", version, command, path, *settings(FILES)], capture_output=True, text=True,
                          timeout=FETCH_SECONDS)
    if done.returncode == 77:
        pytest.skip(f"the real broker cannot run here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def opened(path: Path, version: str) -> MessageStore:
    return MessageStore.open(path, compat="4.9" if version.startswith("4.") else "5.x", enableCalcFilterBitMap=True, **FILES)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def put(store: MessageStore, count: int) -> None:
    """What BitMaps.java puts, in a later millisecond than anything before."""
    begun = store.put("ticks", b"").store_timestamp
    while store.put("ticks", b"").store_timestamp <= begun + 1:
        pass
    for i in range(store.max_offset("T", 0), store.max_offset("T", 0) + count):
        store.put("T", b"m%d" % i, tags="odd" if i % 2 else "even",
                  properties={"price": str(i % 10), "at": "seven" if i % 7 == 0 else str(i)})
    assert store.wait_dispatched(30)


def read(store: MessageStore) -> dict[str, list[int]]:
    """Which messages each registered filter returns."""
    found = {}
    for one in store.consumer_filters.list(topic="T"):
        at, got = 0, []
        while at < store.max_offset("T", 0):
            result = store.get("T", 0, at, sql=one.sql)
            got += [m.queue_offset for m in result]
            at = result.next_offset
        found[one.group] = got
    return found


def entries(store: MessageStore) -> list[list[object]]:
    found: list[list[object]] = []
    for i in range(store.max_offset("T", 0)):
        entry = store.raw_entry("T", 0, i)
        assert entry is not None
        known, _, stored, bits = store.ext_unit("T", 0, entry[2])
        assert known
        found.append([stored, bits.hex()])
    return found


def table(store: MessageStore) -> FilterTable:
    return FilterTable([GroupFilter(f.group, "T", SqlFilter(f.sql), BLOOM.group_positions(f.group, "T"), 14, 0)
                        for f in store.consumer_filters.list(topic="T")], 14)


def agrees(store: MessageStore, answer: dict[str, Any]) -> None:
    """Entries and results are those of the broker, and so is how many messages bit maps leave out."""
    assert entries(store) == answer["entries"]
    before = store.stats()["bit_map_skips"]
    assert read(store) == {group: numbers(text) for group, text in answer["matched"].items()}
    assert store.stats()["bit_map_skips"] - before == sum(len(numbers(text)) for text in answer["skipped"].values())


@versions
def test_takes_over_filters_and_maps_of_a_broker(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    answer = broker(version, "write", path)
    assert numbers(answer["skipped"]["late"]) == list(range(56, 100, 7))      # a text, which is no number
    with opened(path, version) as store:
        agrees(store, answer)
        put(store, 20)
        made = table(store)
        assert [bits for _, bits in entries(store)[100:]] == [
            made.bit_map(b"T", m.properties_raw).hex() for m in store.get("T", 0, 100)]
        ours, mine = read(store), entries(store)
    # The broker comes back: it believes our maps, adds its own, and returns what we do.
    answer = broker(version, "put", path)
    assert answer["entries"][:120] == mine
    assert {group: [i for i in numbers(text) if i < 120] for group, text in answer["matched"].items()} == ours
    assert all(any(100 <= i < 120 for i in numbers(text)) for text in answer["skipped"].values())
    with opened(path, version) as store:
        agrees(store, answer)


@versions
def test_a_broker_takes_over_filters_and_maps_of_this_library(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with opened(path, version) as store:
        put(store, 10)
        store.consumer_filters.register("cheap", "T", "price BETWEEN 3 AND 5", version=1)
        put(store, 40)
        store.consumer_filters.register("cheap", "T", "price > 7", version=2)
        store.consumer_filters.register("late", "T", "at > 20", version=1)
        put(store, 50)
        mine, ours = entries(store), read(store)
    answer = broker(version, "put", path)
    assert answer["entries"][:100] == mine
    assert {group: [i for i in numbers(text) if i < 100] for group, text in answer["matched"].items()} == ours
    assert sorted(answer["matched"]) == ["cheap", "late"]
    assert numbers(answer["skipped"]["cheap"])[0] >= 50
    with opened(path, version) as store:
        agrees(store, answer)
        assert [bits for _, bits in answer["entries"][100:]] == [
            table(store).bit_map(b"T", m.properties_raw).hex() for m in store.get("T", 0, 100)]
