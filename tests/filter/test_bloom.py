"""The bloom filter of bit maps: what RocketMQ's own says (vectors/bloom.json, made by make_vectors), and FLT-01 to FLT-05."""
import json
import random
from pathlib import Path

import pytest

from rmq_store.filter._bitmap import FilterTable, GroupFilter
from rmq_store.filter._program import SqlFilter
from rmq_store.filter.bloom import BloomFilter, murmur3

VECTORS = json.loads((Path(__file__).parent / "vectors" / "bloom.json").read_text())


def test_parameters_are_those_of_rocketmq():
    assert len(VECTORS["parameters"]) == 99 * 7
    for error, groups, hashes, bits in VECTORS["parameters"]:
        made = BloomFilter(error, groups)
        assert (made.hashes, made.bits) == (hashes, bits), (error, groups)


def test_positions_are_those_of_rocketmq():
    for error, groups, text, positions in VECTORS["positions"]:
        assert list(BloomFilter(error, groups).positions(text)) == positions, (error, groups, text)
    assert BloomFilter(10, 20).positions("CID_abc_efg") == (49, 17, 78, 14)
    assert BloomFilter(20, 32).group_positions("GroupA", "TopicTest") == (105, 17, 70)
    assert murmur3(b"hello") == 0xCBD8A7B341BD9B02


def test_equal_by_parameters():         # FLT-02
    assert BloomFilter(10, 20) == BloomFilter(10, 20) != BloomFilter(10, 21)
    assert len(BloomFilter(10, 20).positions("x")) == BloomFilter(10, 20).hashes == 4
    assert BloomFilter(10, 20).positions("x") == BloomFilter(10, 20).positions("x")


@pytest.mark.parametrize(("error", "groups"), [(0, 1), (100, 1), (20, 0), (-1, 5)])
def test_refuses_parameters(error, groups):
    with pytest.raises(ValueError, match="give 1 to 99"):
        BloomFilter(error, groups)


def made(bloom, group, sql="TRUE", topic="T"):
    program = None if sql is None else SqlFilter(sql)
    return GroupFilter(group, topic, program, bloom.group_positions(group, topic), bloom.bits // 8, 0)


def bits_of(bit_map):
    return {8 * i + n for i, byte in enumerate(bit_map) for n in range(8) if byte >> n & 1}


def test_bits_of_a_map():               # FLT-01, FLT-03: as BitsArray, bit p is 1 << p % 8 of byte p // 8
    bloom = BloomFilter(10, 20)
    only = FilterTable([made(bloom, "CID")], bloom.bits // 8).bit_map(b"T", b"")
    assert len(only) == 12
    assert bits_of(only) == set(bloom.group_positions("CID", "T"))
    both = FilterTable([made(bloom, "CID"), made(bloom, "other")], bloom.bits // 8).bit_map(b"T", b"")
    assert bits_of(both) == set(bloom.group_positions("CID", "T")) | set(bloom.group_positions("other", "T"))
    assert BloomFilter(20, 1).bits == 8
    assert len(FilterTable([made(BloomFilter(20, 1), "G")], 1).bit_map(b"T", b"")) == 1
    assert BloomFilter(20, 3).bits == 16


def test_a_filter_of_other_parameters_does_not_fit():       # FLT-04
    with pytest.raises(ValueError, match="not the bits of a group"):
        GroupFilter("G", "T", None, (128,), 16, 0)
    with pytest.raises(ValueError, match="not the bits of a group"):
        GroupFilter("G", "T", None, range(8), 16, 0)
    with pytest.raises(ValueError, match="have 16 bytes, not 14"):
        FilterTable([GroupFilter("G", "T", None, (127,), 16, 0)], 14)


def test_false_hits():                  # FLT-05: 300 groups at 1 %
    bloom, chance = BloomFilter(1, 300), random.Random(5)
    names = ["".join(chance.choices("abcdefghijklmnop", k=8)) for _ in range(600)]
    table = FilterTable([made(bloom, name) for name in names[:300]], bloom.bits // 8)
    bits = bits_of(table.bit_map(b"T", b""))
    assert all(set(bloom.group_positions(name, "T")) <= bits for name in names[:300])
    # RocketMQ's test allows 3 of 300 here; this seed has 2.
    assert sum(set(bloom.group_positions(name, "T")) <= bits for name in names[300:]) <= 6


def test_each_topic_has_its_own_filters():
    bloom = BloomFilter(20, 32)
    topics = [f"topic{i}" for i in range(200)]
    table = FilterTable([made(bloom, f"G{n}", f"n > {n}", topic) for topic in topics for n in (1, 5)], bloom.bits // 8)
    for topic in topics:
        one, five = (set(bloom.group_positions(f"G{n}", topic)) for n in (1, 5))
        assert bits_of(table.bit_map(topic.encode(), b"n\x013\x02")) == one
        assert bits_of(table.bit_map(topic.encode(), b"n\x019\x02")) == one | five
        assert table.bit_map(topic.encode(), b"n\x010\x02") == bytes(14)
    assert table.bit_map(b"topic", b"n\x019\x02") == b""
    assert FilterTable([], 14).bit_map(b"T", b"") == b""


def test_what_cannot_be_compared_and_what_is_not_understood():
    bloom = BloomFilter(20, 32)
    table = FilterTable([made(bloom, "fails", "n > 3"), made(bloom, "unknown", None)], 14)
    for properties in (b"n\x01x\x02", b"", b"n\x013.5"):
        assert bits_of(table.bit_map(b"T", properties)) == set(bloom.group_positions("unknown", "T"))
