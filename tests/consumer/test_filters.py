"""ConsumerFilters: the rules of RocketMQ's ConsumerFilterManager (FLT-17), its file, and what a crash between two steps leaves."""
import errno
import json
import os
from pathlib import Path

import pytest

from rmq_store import AsyncMessageStore, MessageStore
from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import resolve
from rmq_store.errors import ArgumentIllegal, FilterIllegal, StoreClosed, StoreNotWriteable
from rmq_store.filter.bloom import BloomFilter
from rmq_store.services.consumer import filters as room
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.filters import ConsumerFilters, open_filters

VECTORS = Path(__file__).parents[1] / "filter" / "vectors"
DAY = 86_400_000


class Dispatch:
    """What takes the tables: keeps them, and the content of the file at that moment."""

    def __init__(self, root):
        self.path = root / "config" / "consumerFilter.json"
        self.tables, self.files = [], []
        self.at, self.newest = 0, 1000

    def __call__(self, table):
        self.tables.append(table)
        self.files.append(json.loads(self.path.read_text()) if self.path.exists() else None)
        self.at, self.newest = self.at + 100, self.newest + 1
        return self.at, self.newest


@pytest.fixture
def clock(monkeypatch):
    now = [1_700_000_000_000]
    monkeypatch.setattr(room, "_now", lambda: now[0])
    return now


def made(root, dispatch=None, bit_maps=True, readonly=False, bloom=BloomFilter(20, 32)):
    return ConsumerFilters(ConfigFile(ControlFiles(IoTable()), str(root), "consumerFilter.json"), bloom,
                           dispatch or Dispatch(root), makes_bit_maps=bit_maps, readonly=readonly, clean_span_ms=DAY)


@pytest.fixture
def filters(tmp_path, clock):
    return made(tmp_path)


def test_versions_decide(filters):              # FLT-17
    assert filters.register("G", "T", "a > 1", version=5) is True
    assert filters.register("G", "T", "a > 2", version=5) is False
    assert filters.register("G", "T", "a > 2", version=4) is False
    assert filters.get("G", "T").sql == "a > 1"
    assert filters.register("G", "T", "a > 2", version=6) is True
    assert (filters.get("G", "T").sql, filters.get("G", "T").version) == ("a > 2", 6)
    born = filters.get("G", "T").born
    assert filters.register("G", "T", "a > 2", version=7) is True
    assert (filters.get("G", "T").born, filters.get("G", "T").version) == (born, 7)
    assert filters.register("G", "T", "a > 3") is True      # without a number it is the latest
    assert filters.get("G", "T").version > 7


def test_death_and_life(filters, clock):        # FLT-17
    filters.register("G", "T", "a > 1", version=5)
    filters.register("G", "U", "a > 1", version=5)
    filters.register("H", "T", "a > 1", version=5)
    filters.unregister("G")
    assert [(f.group, f.topic, f.dead) for f in filters.list()] == [("G", "T", True), ("H", "T", False), ("G", "U", True)]
    died = filters.get("G", "T").died
    clock[0] += 10
    filters.unregister("G")
    assert filters.get("G", "T").died == died
    assert filters.register("G", "T", "a > 1", version=4) is False
    assert filters.register("G", "T", "a > 1", version=5) is True
    assert filters.get("G", "T").dead is False
    assert filters.register("G", "T", "a > 1", version=5) is False      # it lives: nothing to do
    filters.unregister("nobody")


def test_a_bad_expression_takes_the_one_before_away(filters):       # FLT-17
    filters.register("G", "T", "a > 1", version=1)
    with pytest.raises(FilterIllegal):
        filters.register("G", "T", "a >", version=2)
    assert filters.get("G", "T") is None
    with pytest.raises(FilterIllegal):
        filters.register("G", "T", "")
    assert filters.list() == []


def test_subscriptions_by_tags_are_not_registered(filters):         # FLT-17
    for kind in ("TAG", "", None):
        assert filters.register("G", "T", "a || b", expression_type=kind) is False
    assert filters.list() == []


def test_what_a_group_says_as_a_whole(filters):
    filters.register_group("G", {"T": "a > 1", "U": "b > 1", "V": None}, version=1)
    assert [(f.topic, f.dead) for f in filters.list("G")] == [("T", False), ("U", False)]
    filters.register_group("G", {"U": "b > 1", "V": "c > 1"}, version=2)
    assert [(f.topic, f.dead) for f in filters.list("G")] == [("T", True), ("U", False), ("V", False)]
    assert [f.topic for f in filters.list(topic="U")] == ["U"]


@pytest.mark.parametrize("arguments", [("", "T", "a > 1"), ("G", "", "a > 1"), (5, "T", "a > 1"), ("G", None, "a > 1"),
                                       ("G", "T", 5), ("G", "T", None)])
def test_wrong_arguments(filters, arguments):
    with pytest.raises(ArgumentIllegal):
        filters.register(*arguments)
    with pytest.raises(ArgumentIllegal, match="'SQL92' or 'TAG'"):
        filters.register("G", "T", "a > 1", expression_type="XPATH")
    with pytest.raises(ValueError, match="version"):
        filters.register("G", "T", "a > 1", version="x")


def test_persisted_and_dead_when_loaded(tmp_path, filters, clock):      # FLT-17
    filters.register("G", "T", "a > 1", version=5)
    filters.register("H", "T", "b > 1", version=5)
    filters.unregister("H")
    died = filters.get("H", "T").died
    filters.flush()
    clock[0] += 3_600_000
    again = made(tmp_path)
    assert [(f.group, f.sql, f.version, f.dead) for f in again.list()] == [("G", "a > 1", 5, True), ("H", "b > 1", 5, True)]
    assert again.get("G", "T").died == clock[0] - 30_000
    assert again.get("H", "T").died == died
    assert again.get("G", "T").born == filters.get("G", "T").born
    assert again.register("G", "T", "a > 1", version=5) is True     # it says that it is there


def test_the_long_dead_go(tmp_path, filters, clock):        # FLT-17
    filters.register("G", "T", "a > 1", version=5)
    filters.unregister("G")
    filters.flush()
    clock[0] += DAY - 1
    filters.flush()
    assert len(filters.list()) == 1
    clock[0] += 1
    again = made(tmp_path)
    again.flush()
    assert again.list() == []
    assert json.loads((tmp_path / "config" / "consumerFilter.json").read_text()) == {"filterDataByTopic": {}}


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_the_file_of_a_real_broker(tmp_path, version, clock):
    """It is taken as it is, and written again as RocketMQ writes it, but for the order of the groups."""
    text = json.loads((VECTORS / f"bit_maps-{version}.json").read_text())["consumerFilter.json"]
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerFilter.json").write_text(text)
    clock[0] = 1_795_604_000_000
    filters = made(tmp_path)
    assert [(f.group, f.sql, f.dead, f.version) for f in filters.list()] == [
        ("cheap", "price > 7", True, 2), ("even", "TAGS = 'even'", True, 1), ("late", "at > 20", True, 1)]
    filters.register("cheap", "T", "price > 7", version=3)
    filters.flush()
    written = (tmp_path / "config" / "consumerFilter.json").read_text()
    theirs, ours = json.loads(text), json.loads(written)
    for group, (number, died) in {"cheap": (3, 0), "late": (1, filters.get("late", "T").died)}.items():
        bean = theirs["filterDataByTopic"]["T"]["groupFilterData"][group]
        bean |= {"clientVersion": number, "deadTime": died, "dead": died > 0}
    assert ours == theirs
    assert [line.split(":")[0] for line in written.splitlines()][:12] == [line.split(":")[0] for line in (
        text.replace('"late"', '"cheap"').splitlines())][:12]
    assert '\n\t\t\t\t\t\t"bitPos":[103,84,48]\n' in written
    assert "\n\t\t\t\t\t\"bornTime\":" in text and "\n\t\t\t\t\t\"bornTime\":" in written


def test_the_file_forgets_a_filter_before_dispatch_does(tmp_path, clock):
    """A crash at any moment leaves no bornTime in the file for which messages lack their bits."""
    dispatch = Dispatch(tmp_path)
    filters = made(tmp_path, dispatch)
    filters.register("G", "T", "a > 1")
    filters.flush()
    assert filters.get("G", "T").born == 1001       # what dispatch said when it had the table
    filters.register("G", "T", "a > 2")
    # Two tables: without the old filter, when the file had forgotten it, and with the new one.
    assert [f and f["filterDataByTopic"] for f in dispatch.files] == [None, {}, {}]
    assert [t.bit_map(b"T", b"a\x019\x02") != b"" for t in dispatch.tables] == [True, False, True]
    assert json.loads(dispatch.path.read_text())["filterDataByTopic"] == {}
    filters.flush()
    assert "a > 2" in dispatch.path.read_text()
    filters.remove("G")
    assert dispatch.files[-1] == {"filterDataByTopic": {}}


def test_a_failed_write_changes_nothing(tmp_path, clock, monkeypatch):
    dispatch = Dispatch(tmp_path)
    filters = made(tmp_path, dispatch)
    filters.register("G", "T", "a > 1", version=1)
    filters.flush()

    def fail(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(filters._file, "save", fail)
    for change in (lambda: filters.register("G", "T", "a > 2", version=2), lambda: filters.remove("G")):
        with pytest.raises(OSError, match="No space"):
            change()
        assert filters.get("G", "T").sql == "a > 1"
        assert len(dispatch.tables) == 1


def test_what_is_not_understood_stays(tmp_path, clock):
    """RocketMQ accepts what stands behind an expression: it keeps its place, and bit maps leave the choice to whoever reads."""
    filters = made(tmp_path)
    filters.register("G", "T", "a > 1")
    filters.flush()
    path = tmp_path / "config" / "consumerFilter.json"
    path.write_text(path.read_text().replace("a > 1", "a > 1 b"))
    dispatch = Dispatch(tmp_path)
    again = made(tmp_path, dispatch)
    assert again.get("G", "T").sql == "a > 1 b"
    bits = dispatch.tables[-1].bit_map(b"T", b"")
    assert all(bits[p // 8] >> p % 8 & 1 for p in BloomFilter(20, 32).group_positions("G", "T"))


@pytest.mark.parametrize("content", [
    '{"filterDataByTopic":[]}', '{"filterDataByTopic":{"T":{"groupFilterData":{"G":5}}}}',
    '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bornTime":"x","expression":"a"}}}}}',
    '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bornTime":1}}}}}',
    '{"filterDataByTopic":{"T":{"groupFilterData":{"G":{"bornTime":1,"expression":5}}}}}', "[]"])
def test_a_damaged_file(tmp_path, content):
    from rmq_store.errors import ConfigFileCorrupted
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerFilter.json").write_text(content)
    with pytest.raises(ConfigFileCorrupted):
        made(tmp_path)


def test_readonly_and_closed(tmp_path, clock):
    made(tmp_path).register("G", "T", "a > 1")
    reader = made(tmp_path, bit_maps=False, readonly=True)
    for change in (lambda: reader.register("G", "T", "a"), lambda: reader.unregister("G"), lambda: reader.remove("G")):
        with pytest.raises(StoreNotWriteable):
            change()
    reader.flush()
    filters = made(tmp_path)
    filters.register("G", "T", "a > 1")
    filters.end(True)
    with pytest.raises(StoreClosed):
        filters.register("G", "T", "a > 2")
    filters.flush()
    with pytest.raises(StoreClosed):
        filters.remove("G")
    assert made(tmp_path).get("G", "T").sql == "a > 1"


def test_of_a_store(tmp_path):
    with MessageStore.open(tmp_path / "s", profile="test") as store:
        stored = store.put("T", b"").store_timestamp
        assert store.consumer_filters.register("G", "T", "a > 1") is True
        assert store.consumer_filters.get("G", "T").born >= stored
        assert not store.consumer_filters.makes_bit_maps
    with MessageStore.open(tmp_path / "s", readonly=True) as store:
        assert [(f.group, f.dead) for f in store.consumer_filters.list()] == [("G", False)]
    with pytest.raises(StoreClosed):
        _ = store.consumer_filters


def test_asyncio(tmp_path):
    import asyncio

    async def main():
        async with await AsyncMessageStore.open(tmp_path / "s", profile="test") as store:
            assert await store.register_filter("G", "T", "a > 1") is True
            assert [f.sql for f in await store.consumer_filters()] == ["a > 1"]
            await store.unregister_filters("G")
            assert [f.dead for f in await store.consumer_filters("G")] == [True]

    asyncio.run(main())


def test_options_by_the_names_of_a_broker(tmp_path):
    options = resolve(None, {"maxErrorRateOfBloomFilter": "10", "expectConsumerNumUseFilter": 20, "filterDataCleanTimeSpan": 5,
                             "enableCalcFilterBitMap": True, "enableConsumeQueueExt": True}, str(tmp_path), environment={})
    filters = open_filters(ControlFiles(IoTable()), str(tmp_path), options, Dispatch(tmp_path))
    assert filters.makes_bit_maps
    filters.register("CID", "T", "a > 1")
    assert filters.get("CID", "T").bits == 96
