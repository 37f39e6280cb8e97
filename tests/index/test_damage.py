"""Goal: whatever the bytes of an index file say, queries end, nothing outside the map is touched, and keys are taken again.

Method: files are damaged at random and on purpose (loops, numbers out of range, counts out of range), then used in every way.
A walk that did not end would hang the test, one that left the map would end the process.
"""
import os
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FOREVER = 1 << 62
TOPIC = b"T"
SLOTS, ENTRIES = 4, 12
KEYS = [b"a", b"b", b"c", b"d", b"e"]
SIZE = 40 + 4 * SLOTS + 20 * ENTRIES


def build(make, count=9):
    index = make(SLOTS, ENTRIES)
    for i in range(count):
        index.put(TOPIC, KEYS[i % len(KEYS)], None, 100 + i, 1_000_000 + i * 700)
    return index, os.path.join(index.dir, os.listdir(index.dir)[0])


def patch(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)
    assert os.path.getsize(path) == SIZE


def use(make, path):
    """Every operation; the numbers do not matter, that they come does."""
    for readonly in (True, False):
        index = make(SLOTS, ENTRIES, dir=os.path.dirname(path), readonly=readonly)
        for key in KEYS:
            assert len(index.query(TOPIC, key, 64, 0, FOREVER)[0]) <= 2 * ENTRIES
            index.query(TOPIC, key, 64, -(1 << 63), (1 << 63) - 1)
    for i in range(2 * ENTRIES):
        index.put(TOPIC, KEYS[i % len(KEYS)], None, (1 << 61) + i, 2_000_000)
    for key in KEYS:
        index.query(TOPIC, key, 64, 0, FOREVER)
    assert index.sync() >= 0
    index.truncate(104)
    index.truncate(0)
    index.drop_after(0)
    index.destroy()
    index.put(TOPIC, b"a", None, 5, 2_000_000)
    assert index.query(TOPIC, b"a", 64, 0, FOREVER)[0] == [5]


NUMBERS = st.sampled_from([0, 1, 2, 5, 9, 10, 11, 12, 13, 200, -1, 2**31 - 1, -2**31, 2**30])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.tuples(st.integers(0, SIZE // 4 - 1), NUMBERS), max_size=8),
       noise=st.lists(st.tuples(st.integers(0, SIZE - 1), st.binary(min_size=1, max_size=1)), max_size=8))
def test_random_damage(make, words, noise):
    _, path = build(make)
    for word, number in words:
        patch(path, word * 4, struct.pack(">i", number))
    for at, byte in noise:
        patch(path, at, byte)
    use(make, path)


@pytest.mark.parametrize("data", [b"\xff" * SIZE, b"\x7f" * SIZE, b"\0\0\0\1" * (SIZE // 4), b"\x80\0\0\0" * (SIZE // 4),
                                  bytes(SIZE)])
def test_a_file_of_one_pattern(make, data):
    _, path = build(make)
    patch(path, 0, data)
    use(make, path)


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, ENTRIES, ENTRIES + 1, 2**31 - 1])
def test_a_count_out_of_range(make, count):
    _, path = build(make)
    patch(path, 36, struct.pack(">i", count))
    use(make, path)


@pytest.mark.parametrize("where", ["header", "last entry"])
def test_a_damaged_end_does_not_stop_indexing(make, where):
    """What is below the end is skipped: of two ends that differ, the smaller one is believed."""
    index, path = build(make, 5)
    patch(path, 24 if where == "header" else entry_at(5) + 4, b"\x7f")
    again = make(SLOTS, ENTRIES, dir=index.dir)
    again.put(TOPIC, b"new", None, 105, 1_004_000)
    assert again.query(TOPIC, b"new", 64, 0, FOREVER)[0] == [105]


def entry_at(number):
    return 40 + 4 * SLOTS + 20 * number


@pytest.mark.parametrize("readonly", [True, False])
def test_loops_end_and_keep_what_comes_before(make, readonly):
    index = make(SLOTS, ENTRIES)
    for i in range(1, 6):
        index.put(TOPIC, b"same", None, i, 1_000_000)
    path = os.path.join(index.dir, os.listdir(index.dir)[0])
    for prev, found in ((3, [5, 4, 3]), (5, [5, 4, 3]), (4, [5, 4, 3]), (11, [5, 4, 3]), (-1, [5, 4, 3]), (1, [5, 4, 3, 1])):
        patch(path, entry_at(3) + 16, struct.pack(">i", prev))
        look = make(SLOTS, ENTRIES, dir=index.dir, readonly=readonly)
        assert look.query(TOPIC, b"same", 64, 0, FOREVER)[0] == found


def test_every_single_bit(make):
    """Each bit of the used part flipped alone: a query says nothing that was never put, except through the flipped field."""
    index, path = build(make, 5)
    with open(path, "rb") as file:
        whole = file.read()
    truth = {key: index.query(TOPIC, key, 64, 0, FOREVER)[0] for key in KEYS}
    look = make(SLOTS, ENTRIES, dir=index.dir, readonly=True)
    for bit in range(8 * entry_at(6)):
        at = bit // 8
        patch(path, at, bytes([whole[at] ^ 1 << bit % 8]))
        for key in KEYS:
            found = look.query(TOPIC, key, 64, 0, FOREVER)[0]
            offsets = [p for p in found if p not in truth[key]]
            in_entry = at >= entry_at(1)
            assert not offsets or in_entry, (at, bit % 8)
        patch(path, at, whole[at:at + 1])
    assert {key: look.query(TOPIC, key, 64, 0, FOREVER)[0] for key in KEYS} == truth
