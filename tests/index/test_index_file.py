"""Goal: one index file as IndexFile.java keeps it, and its rolling: entries, header, limits, the seed of the next file.

Method: keys are put with chosen offsets and times, then bytes and answers are compared with numbers from upstream's own tests
(IDX-01 to IDX-03), with vectors computed by Java, or worked out by hand.
"""
import os
import time

import pytest

from rmq_store.errors import ConfigError
from tests.index.index_data import ENTRY, HEADER, SLOT, Bytes, files_of

FOREVER = 1 << 62
TOPIC = b"FooBar"


def only_file(index, slots):
    files = files_of(index.dir, slots)
    assert len(files) == 1
    return files[0]


def test_idx_01_a_file_holds_one_key_less_than_its_entries(make):
    index = make(100, 400)
    for i in range(399):
        index.put(TOPIC, b"%d" % i, None, i, 1000 + i)
    assert index.file_count == 1
    assert only_file(index, 100).count == 400
    index.put(TOPIC, b"399", None, 399, 2000)
    assert index.file_count == 2


def test_idx_02_one_key_is_found_once(make):
    index = make(100, 400)
    for i in range(399):
        index.put(TOPIC, b"%d" % i, None, i, 1000)
    assert index.query(TOPIC, b"60", 10, 0, FOREVER)[0] == [60]


def test_idx_03_the_result_is_not_sized_by_the_argument(make):
    index = make(100, 400)
    for i in range(70):
        index.put(TOPIC, b"same", None, i, 1000)
    assert index.query(TOPIC, b"same", 2**31 - 1, 0, FOREVER)[0] == list(range(69, 5, -1))
    assert index.query(TOPIC, b"same", 3, 0, FOREVER)[0] == [69, 68, 67]
    assert index.query(TOPIC, b"same", 0, 0, FOREVER)[0] == []


def test_entry_and_slot_bytes(make):
    index = make(100, 400)
    index.put(TOPIC, b"first", None, 1, 10_000)
    index.put(TOPIC, b"key0", None, 4096, 15_999)
    file = only_file(index, 100)
    at = HEADER + SLOT * 100 + ENTRY * 2
    assert file.data[at:at + ENTRY].hex(" ", -4) == "7c011119 00000000 00001000 00000005 00000000"
    assert file.data[428:432] == b"\0\0\0\2"         # slot 97 of 100
    assert file.data[:HEADER].hex(" ", -4) == ("00000000 00002710 00000000 00003e7f 00000000 00000001 "
                                               "00000000 00001000 00000002 00000003")


def test_a_hash_without_absolute_value_becomes_zero(make):
    index = make(100, 400)
    # A key of eight characters from "!" on, solved for: "t#" + key has the hash code -2147483648, as "polygenelubricants" has.
    prefix = ord("t") * 31 + ord("#")
    rest = (-2**31 - prefix * 31**8 - sum(33 * 31**i for i in range(8))) % 2**32
    key = bytes(33 + rest // 31**i % 31 for i in range(7, -1, -1))
    index.put(b"t", key, None, 5, 1000)
    assert only_file(index, 100).entry(1)[0] == 0
    assert index.query(b"t", key, 32, 0, FOREVER)[0] == [5]


@pytest.mark.parametrize("uniq, keys, found", [
    (None, b"a b", [b"a", b"b"]),
    (None, b"  a   b ", [b"a", b"b"]),
    (b"u", b"a", [b"u", b"a"]),
    (b"with blank", None, [b"with blank"]),
    (b"u", b" ", [b"u"]),
    (None, b"   ", []),
    (None, "ключ 钥".encode(), ["ключ".encode(), "钥".encode()]),
    (b"x", b"x x", [b"x", b"x", b"x"]),
])
def test_uniq_key_first_then_each_word_of_keys(make, uniq, keys, found):
    index = make(100, 400)
    index.put(TOPIC, uniq, keys, 7, 1000)
    expected = make(100, 400)
    for key in found:
        expected.put(TOPIC, key, None, 7, 1000)
    if not found:
        assert index.file_count == 0 and not os.path.exists(index.dir)
        return
    assert only_file(index, 100).data == only_file(expected, 100).data
    assert only_file(index, 100).count == 1 + len(found)


def test_topics_do_not_share_keys_and_long_topics_work(make):
    index = make(100, 400)
    topics = [b"A", b"B", b"A", b"x" * 300, b"x" * 299, b"x" * 300, b"B"]
    for offset, topic in enumerate(topics, 1):
        index.put(topic, b"k", None, offset, 1000)
    for topic in set(topics):
        assert index.query(topic, b"k", 32, 0, FOREVER)[0] == [i for i in range(7, 0, -1) if topics[i - 1] == topic]


def test_records_before_the_end_are_skipped_and_an_equal_one_is_not(make):
    index = make(100, 400)
    index.put(TOPIC, b"a", None, 100, 1000)
    index.put(TOPIC, b"b", None, 99, 1000)
    index.put(TOPIC, b"c", None, 100, 1000)
    assert [p for _, p, _, _ in only_file(index, 100).entries()] == [100, 100]
    assert index.query(TOPIC, b"b", 32, 0, FOREVER)[0] == []


@pytest.mark.parametrize("begin, end, found", [
    (0, 9_999, []),
    (0, 10_000, [1]),
    (10_000, 12_000, [2, 1]),               # 12 999 is indexed as 12 000
    (12_000, 12_998, [2]),
    (12_001, 12_999, []),
    (12_001, FOREVER, []),
    (0, FOREVER, [2, 1]),
    (20_000, 30_000, []),
])
def test_time_is_known_to_the_second(make, begin, end, found):
    index = make(100, 400)
    index.put(TOPIC, b"k", None, 1, 10_000)
    index.put(TOPIC, b"k", None, 2, 12_999)
    assert index.query(TOPIC, b"k", 32, begin, end)[0] == found


@pytest.mark.parametrize("begin, then, seconds", [
    (10_000, 9_000, 0), (10_000, 10_999, 0), (0, 5_000, 0), (-5, 5_000, 0), (1, 2**31 * 1000, 2**31 - 1),
    (1, 2**63 - 1, 2**31 - 1), (1, -2**63, 2**31 - 1),          # Java's long wraps; -2**63 - 1 is 2**63 - 1
])
def test_time_differences_are_clamped(make, begin, then, seconds):
    index = make(100, 400)
    index.put(TOPIC, b"a", None, 1, begin)
    index.put(TOPIC, b"b", None, 2, then)
    assert only_file(index, 100).entry(2)[2] == seconds


def test_the_next_file_begins_where_the_full_one_ends(make):
    index = make(4, 3)
    index.put(TOPIC, b"a", None, 100, 1_000)
    index.put(TOPIC, b"b", b"c", 200, 5_000)        # b fills the file, c goes into the next
    first, second = files_of(index.dir, 4)
    assert (first.begin, first.end, first.begin_physical, first.end_physical, first.count) == (1_000, 5_000, 100, 200, 3)
    assert (second.begin, second.end, second.begin_physical, second.end_physical, second.count) == (5_000, 5_000, 200, 200, 2)
    assert second.entry(1)[2] == 0
    index.put(TOPIC, b"d", None, 300, 6_000)
    index.put(TOPIC, b"e", None, 400, 99_000)
    third = files_of(index.dir, 4)[2]
    # Upstream's quirk: the first entry of a seeded file counts its seconds from the seed, then the begin moves.
    assert third.entry(1)[2] == 93
    assert (third.begin, third.begin_physical, third.slot_count) == (99_000, 400, 1)


def test_names_are_local_time_and_rise(make):
    before = time.time()
    index = make(4, 2)
    for i in range(20):
        index.put(TOPIC, b"k", None, i, 1000)
    after = time.time()
    names = sorted(os.listdir(index.dir))
    assert len(names) == 20 and all(len(n) == 17 and n.isdigit() for n in names)
    low, high = (time.strftime("%Y%m%d%H%M%S", time.localtime(t)) for t in (before - 1, after + 2))
    assert low <= names[0][:14] <= high
    assert index.query(TOPIC, b"k", 32, 0, FOREVER)[0] == list(range(19, -1, -1))


def test_a_clock_that_went_back_does_not_reorder_files(make):
    index = make(4, 2)
    index.put(TOPIC, b"k", None, 1, 1000)
    name = os.listdir(index.dir)[0]
    os.rename(os.path.join(index.dir, name), os.path.join(index.dir, "9998" + name[4:]))
    index = make(4, 2, dir=index.dir)
    index.put(TOPIC, b"k", None, 2, 2000)
    assert sorted(os.listdir(index.dir)) == ["9998" + name[4:], str(int("9998" + name[4:]) + 1)]
    assert index.query(TOPIC, b"k", 32, 0, FOREVER) == ([2, 1], 2000, 2)


def test_a_roll_that_failed_half_way_repeats_no_key(make, tmp_path):
    broken, whole = make(4, 3), make(4, 3)
    for index in (broken, whole):
        index.put(TOPIC, b"a", None, 100, 1_000)
    os.rmdir(tmp_path / ".alloc")
    for _ in range(2):
        with pytest.raises(OSError, match="errno 2"):
            broken.put(TOPIC, b"b", b"c d e", 200, 5_000)
    os.mkdir(tmp_path / ".alloc")
    for index in (broken, whole):
        index.put(TOPIC, b"b", b"c d e", 200, 5_000)
    assert [f.data for f in files_of(broken.dir, 4)] == [f.data for f in files_of(whole.dir, 4)]
    assert os.listdir(tmp_path / ".alloc") == []


def test_the_geometry_must_make_a_file(tmp_path, make):
    for slots, entries in ((0, 10), (10, 1), (-1, 10)):
        with pytest.raises(ConfigError, match="at least 1 and 2"):
            make(slots, entries)


def test_a_new_file_is_reserved(make):
    index = make(1000, 10_000)
    index.put(TOPIC, b"k", None, 1, 1000)
    path = os.path.join(index.dir, os.listdir(index.dir)[0])
    status = os.stat(path)
    assert status.st_size == index.file_size == HEADER + SLOT * 1000 + ENTRY * 10_000
    assert status.st_blocks * 512 >= status.st_size
    with open(path, "rb") as file:
        data = file.read()
    used = Bytes(data, 1000).used
    assert not any(data[len(used):])
