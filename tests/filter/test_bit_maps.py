"""Bit maps of SQL92 filters: made by dispatch, used by get, and equal to those that a real broker has made (vectors/)."""
import json
import os
import shutil
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.codec._properties import encode_properties
from rmq_store.errors import ConfigFileCorrupted
from rmq_store.filter._bitmap import FilterTable, GroupFilter
from rmq_store.filter._program import SqlFilter
from rmq_store.filter.bloom import BloomFilter
from rmq_store.status import GetStatus

MAPS = {"consumequeue_ext_enabled": True, "enable_calc_filter_bit_map": True}
BLOOM = BloomFilter(20, 32)
VECTORS = Path(__file__).parent / "vectors"
CHEAP = "price BETWEEN 3 AND 5"


def opened(path, **options):
    return MessageStore.open(path, profile="test", **(MAPS | options))


def put(store, count, topic="T", queue_id=0):
    """Messages with price 0 to 9 again and again; their store times are later than that of what was registered before."""
    tick(store)
    for i in range(count):
        store.put(topic, b"%d" % i, queue_id=queue_id, tags="odd" if i % 2 else "even",
                  properties={"price": str(i % 10), "at": f"r{i}"})
    assert store.wait_dispatched(30)


def tick(store):
    """Until a put gets a later store time than anything has yet: a bit map speaks for later milliseconds only."""
    begun = store.put("ticks", b"").store_timestamp
    while store.put("ticks", b"").store_timestamp <= begun + 1:
        pass


def offsets(result):
    return [message.queue_offset for message in result]


def skips(store, *arguments, **how):
    before = store.stats()["bit_map_skips"]
    return store.get(*arguments, **how), store.stats()["bit_map_skips"] - before


def units(store, topic="T", queue_id=0):
    """(store time, bit map) of each entry."""
    found = []
    for offset in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
        code = store.raw_entry(topic, queue_id, offset)[2]
        known, _, stored, bits = store.ext_unit(topic, queue_id, code)
        assert known
        found.append((stored, bits))
    return found


def bits_of(*names, topic="T"):
    found = bytearray(BLOOM.bits // 8)
    for name in names:
        for p in BLOOM.group_positions(name, topic):
            found[p // 8] |= 1 << p % 8
    return bytes(found)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3"])
def test_bits_are_those_of_a_real_broker(version):
    """FLT-18, over what a broker has dispatched: BitMaps.java says when it registered which filter."""
    answer = json.loads((VECTORS / f"bit_maps-{version}.json").read_text())
    cheap = ("cheap", CHEAP)
    even, late, dear = ("even", "TAGS = 'even'"), ("late", "at > 20"), ("cheap", "price > 7")
    stages = [(0, 10, []), (10, 50, [cheap, even]), (50, 80, [cheap, even, late]), (80, 100, [dear, even, late])]
    for begin, end, filters in stages:
        table = FilterTable([GroupFilter(group, "T", SqlFilter(sql), BLOOM.group_positions(group, "T"), 14, 0)
                             for group, sql in filters], 14)
        for i in range(begin, end):
            properties = encode_properties({"TAGS": "odd" if i % 2 else "even", "price": str(i % 10),
                                            "at": "seven" if i % 7 == 0 else str(i)})
            assert table.bit_map(b"T", properties).hex() == answer["entries"][i][1], (version, i)
    registered = json.loads(answer["consumerFilter.json"])["filterDataByTopic"]["T"]["groupFilterData"]
    for group, bean in registered.items():
        assert tuple(bean["bloomFilterData"]["bitPos"]) == BLOOM.group_positions(group, "T")


def test_dispatch_makes_them_and_get_uses_them(tmp_path):
    with opened(tmp_path / "s") as store:
        put(store, 5)
        assert store.consumer_filters.register("G", "T", CHEAP) is True
        put(store, 40)
        assert [bits for _, bits in units(store)] == [b""] * 5 + [
            bits_of("G") if 3 <= i % 10 <= 5 else bits_of() for i in range(40)]
        result, skipped = skips(store, "T", 0, 0, sql=CHEAP)
        assert offsets(result) == [3, 4] + [5 + i for i in range(40) if 3 <= i % 10 <= 5]
        assert skipped == 28
        assert result.next_offset == 45
        # What no group has registered is evaluated as before.
        assert skips(store, "T", 0, 0, sql="price = 3")[1] == 0
        assert [bits for _, bits in units(store, "ticks")] == [b""] * store.max_offset("ticks", 0)


def test_another_topic_and_no_filter(tmp_path):
    with opened(tmp_path / "s") as store:
        store.consumer_filters.register("G", "T", "TRUE")
        put(store, 3, "U")
        put(store, 3)
        assert [bits for _, bits in units(store, "U")] == [b""] * 3
        assert [bits for _, bits in units(store)] == [bits_of("G")] * 3
        assert store.consumer_filters.remove("G") == 1
        put(store, 2)
        assert [bits for _, bits in units(store)][3:] == [b"", b""]


def test_get_does_not_read_what_a_bit_map_leaves_out(tmp_path):
    """The records that do not fulfil the filter are spoilt: a get that looked at them would count them as unreadable."""
    with opened(tmp_path / "s", flush_mode="sync") as store:
        store.consumer_filters.register("G", "T", CHEAP)
        put(store, 20)
        spoilt = [store.raw_entry("T", 0, i)[0] for i in range(20) if not 3 <= i % 10 <= 5]
        log = os.path.join(store.path, "commitlog", "0" * 20)
        with open(log, "r+b") as file:
            for position in spoilt:
                file.seek(position + 4)
                file.write(b"spoilt")
        result, skipped = skips(store, "T", 0, 0, sql=CHEAP)
        assert (offsets(result), result.unreadable, skipped) == ([3, 4, 5, 13, 14, 15], 0, 14)
        assert store.get("T", 0, 0, sql="price IN ('3', '4', '5')").unreadable == 14
        result = store.get("T", 0, 6, 5, sql=CHEAP)
        assert (result.status, offsets(result), result.next_offset) == (GetStatus.FOUND, [13, 14, 15], 20)


def test_a_filter_that_changes_never_hides_a_message(tmp_path):
    """FLT-19: the bits of the first expression do not count for the second, nor those of the second for the first."""
    with opened(tmp_path / "s") as store:
        filters = store.consumer_filters
        filters.register("G", "T", CHEAP)
        put(store, 20)
        assert filters.register("G", "T", "price > 7") is True
        put(store, 20)
        wanted = [i for i in range(40) if i % 10 > 7]
        result, skipped = skips(store, "T", 0, 0, 40, sql="price > 7")
        assert (offsets(result), skipped) == (wanted, 16)
        assert offsets(store.get("T", 0, 0, 40, sql=CHEAP)) == [i for i in range(40) if 3 <= i % 10 <= 5]
        filters.register("G", "T", CHEAP)
        put(store, 20)
        result, skipped = skips(store, "T", 0, 0, 60, sql=CHEAP)
        assert (offsets(result), skipped) == ([i for i in range(60) if 3 <= i % 10 <= 5], 14)
        assert offsets(store.get("T", 0, 0, tags="odd", max_count=60)) == list(range(1, 60, 2))


def test_many_queues_files_and_groups(tmp_path):
    with opened(tmp_path / "s", consumequeue_ext_file_size_bytes=4096, consumequeue_fd_max=4, segment_size_bytes=65536,
                filter_bytes_max=20 * 600) as store:
        for n in range(12):
            store.consumer_filters.register(f"G{n}", "T", f"price = {n}")
        for queue_id in range(8):
            put(store, 500, queue_id=queue_id)
        assert len(os.listdir(os.path.join(store.path, "consumequeue_ext", "T", "0"))) > 3
        for queue_id in range(8):
            for n in (0, 7, 11):
                at, got, skipped = 0, [], 0
                while at < 500:
                    result, more = skips(store, "T", queue_id, at, sql=f"price = {n}")
                    got, skipped, at = got + offsets(result), skipped + more, result.next_offset
                assert got == [i for i in range(500) if i % 10 == n]
                assert skipped > 300
            assert [bits for _, bits in units(store, "T", queue_id)] == [bits_of(f"G{i % 10}") for i in range(500)]


def test_taken_up_again(tmp_path):
    path = tmp_path / "s"
    with opened(path) as store:
        store.consumer_filters.register("G", "T", CHEAP)
        put(store, 20)
    with opened(path) as store:
        assert [f.dead for f in store.consumer_filters.list()] == [True]
        put(store, 20)
        assert [bits for _, bits in units(store)] == 2 * [bits_of("G") if 3 <= i % 10 <= 5 else bits_of() for i in range(20)]
        result, skipped = skips(store, "T", 0, 0, 40, sql=CHEAP)
        assert (offsets(result), skipped) == ([i for i in range(40) if 3 <= i % 10 <= 5], 28)
    with opened(path, enable_calc_filter_bit_map=False) as store:      # who makes none trusts none
        put(store, 10)
        assert [bits for _, bits in units(store)][40:] == [b""] * 10
        result, skipped = skips(store, "T", 0, 0, 50, sql=CHEAP)
        assert (offsets(result), skipped) == ([i for i in range(50) if 3 <= i % 10 <= 5], 0)
    with opened(path) as store:
        result, skipped = skips(store, "T", 0, 0, 50, sql=CHEAP)
        assert (offsets(result), skipped) == ([i for i in range(50) if 3 <= i % 10 <= 5], 28)


def test_queues_that_are_built_again_get_them_again(tmp_path):
    path = tmp_path / "s"
    with opened(path) as store:
        store.consumer_filters.register("G", "T", CHEAP)
        put(store, 300)
        before = units(store)
    for lost in ("consumequeue", "consumequeue_ext"):
        shutil.rmtree(path / lost)
    with opened(path) as store:
        assert units(store) == before
        assert skips(store, "T", 0, 0, 32, sql=CHEAP)[1] == 73      # of 105 entries


def test_without_extension_nothing_is_made(tmp_path):
    with MessageStore.open(tmp_path / "s", profile="test", enableCalcFilterBitMap="true") as store:
        assert not store.consumer_filters.makes_bit_maps
        store.consumer_filters.register("G", "T", CHEAP)
        put(store, 20)
        result, skipped = skips(store, "T", 0, 0, sql=CHEAP)
        assert (offsets(result), skipped) == ([3, 4, 5, 13, 14, 15], 0)


def test_a_reader_of_the_files_evaluates_itself(tmp_path):
    with opened(tmp_path / "s") as store:
        store.consumer_filters.register("G", "T", CHEAP)
        put(store, 20)
        store.consumer_filters.flush()
        with opened(tmp_path / "s", readonly=True, follow=True) as reader:
            result, skipped = skips(reader, "T", 0, 0, sql=CHEAP)
            assert (offsets(result), skipped) == ([3, 4, 5, 13, 14, 15], 0)
            assert [f.group for f in reader.consumer_filters.list()] == ["G"]


def test_other_parameters_drop_the_filters(tmp_path, caplog):
    path = tmp_path / "s"
    with opened(path) as store:
        store.consumer_filters.register("G", "T", CHEAP)
        put(store, 20)
    with opened(path, bloom_filter_groups=300) as store:
        assert store.consumer_filters.list() == []
        assert "dropped the 1 filters" in caplog.text
        assert json.loads((path / "config" / "consumerFilter.json").read_text()) == {"filterDataByTopic": {}}
        store.consumer_filters.register("G", "T", CHEAP)
        put(store, 20)
        assert {len(bits) for _, bits in units(store)} == {14, BloomFilter(20, 300).bits // 8}
        result, skipped = skips(store, "T", 0, 0, 40, sql=CHEAP)
        assert (offsets(result), skipped) == ([i for i in range(40) if 3 <= i % 10 <= 5], 14)


def test_a_damaged_table_is_told_before_anything_is_dispatched(tmp_path):
    path = tmp_path / "s"
    with opened(path) as store:
        store.consumer_filters.register("G", "T", CHEAP)
    (path / "config" / "consumerFilter.json").write_text("{")
    with pytest.raises(ConfigFileCorrupted, match=r"consumerFilter\.json"):
        opened(path)
    with opened(path, enable_calc_filter_bit_map=False) as store:
        put(store, 1)
    (path / "config" / "consumerFilter.json").unlink()
    with opened(path) as store:
        assert store.consumer_filters.list() == []


def test_light_queues_have_none(tmp_path):
    """Their topic is another than the record's, so its filters are, too."""
    with opened(tmp_path / "s", enable_lmq=True, enable_multi_dispatch=True) as store:
        store.consumer_filters.register("G", "T", "price = 1")
        store.consumer_filters.register("G", "%LMQ%a", "price = 2")
        tick(store)
        store.put("T", b"", properties={"price": "2", "INNER_MULTI_DISPATCH": "%LMQ%a"})
        store.wait_dispatched(30)
        assert units(store) == [(units(store)[0][0], bits_of())]
        assert units(store, "%LMQ%a")[0][1] == b""
        assert len(store.get("%LMQ%a", 0, 0, sql="price = 2")) == 1


def test_a_consumer_registers_its_filter(tmp_path):
    with opened(tmp_path / "s") as store:
        with store.consumer("G", ["T", "U"], sql=CHEAP) as consumer:
            assert [(f.group, f.topic, f.sql, f.dead) for f in store.consumer_filters.list()] == [
                ("G", "T", CHEAP, False), ("G", "U", CHEAP, False)]
            put(store, 20)
            before = store.stats()["bit_map_skips"]
            got = []
            while (batch := consumer.poll(4)) is not None:
                got += offsets(batch)
                batch.ack()
            assert got == [3, 4, 5, 13, 14, 15]
            assert store.stats()["bit_map_skips"] - before >= 14
        store._consuming.flush()
        assert [f.dead for f in store.consumer_filters.list()] == [True, True]
        with store.consumer("G", "T", sql=CHEAP):
            store._consuming.flush()
            assert [f.dead for f in store.consumer_filters.list()] == [False, True]
        with store.consumer("H", "T"):
            assert len(store.consumer_filters.list()) == 2
