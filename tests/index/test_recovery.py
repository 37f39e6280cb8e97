"""Goal: after a stop of any kind the index says no more than the log, and loading trusts nothing it should not.

Method: for cuts, an index of everything is truncated at each record's offset and compared, whole files, with one built from the
records before the cut. For loading, directories are prepared by hand.
"""
import logging
import os
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq_store.errors import CorruptionError
from tests.index.index_data import files_of

FOREVER = 1 << 62
TOPIC = b"FooBar"


def snapshot(index, slots):
    return [f.data for f in files_of(index.dir, slots)]


def columns(records):
    return array("q", [r[0] for r in records]), array("q", [r[1] for r in records])


@pytest.mark.parametrize("name", ["v4-roll", "v5-batch"])
def test_a_cut_log_leaves_the_index_of_the_cut_log(indexed, make, name):
    g = indexed(name)
    whole = make(g.slots, g.entries)
    g.put_all(whole)
    step = 23
    for at in range(len(g.records) - 1, -1, -step):
        cut = g.records[at].physical_offset
        whole.truncate(cut, g.offsets, g.times)
        expected = make(g.slots, g.entries)
        g.put_all(expected, end=cut)
        assert snapshot(whole, g.slots) == snapshot(expected, g.slots), cut
    g.put_all(whole, start=cut)
    assert [f.used for f in files_of(whole.dir, g.slots)] == [f.used for f in files_of(g.index_dir, g.slots)]


RECORD = st.tuples(st.integers(1, 300), st.integers(0, 5000), st.lists(st.sampled_from("abcdefgh"), max_size=4))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(RECORD, min_size=1, max_size=40), where=st.integers(0, 40), slots=st.integers(1, 6),
       entries=st.integers(2, 12))
def test_any_cut_equals_a_rebuilt_index(make, steps, where, slots, entries):
    records, at, now = [], 0, 1_700_000_000_000
    for size, pause, keys in steps:
        at, now = at + size, now + pause
        records.append((at, now, " ".join(keys).encode()))
    whole, rebuilt = make(slots, entries), make(slots, entries)
    cut = records[where][0] if where < len(records) else at + 1
    for offset, time, keys in records:
        whole.put(TOPIC, None, keys, offset, time)
        if offset < cut:
            rebuilt.put(TOPIC, None, keys, offset, time)
    whole.truncate(cut, *columns(records))
    assert snapshot(whole, slots) == snapshot(rebuilt, slots)
    loaded = make(slots, entries, dir=whole.dir)
    assert loaded.file_count == whole.file_count == rebuilt.file_count
    for index in (loaded, rebuilt):
        for offset, time, keys in records:
            if offset >= cut:
                index.put(TOPIC, None, keys, offset, time)
    assert snapshot(loaded, slots) == snapshot(rebuilt, slots)


def test_without_store_times_the_end_is_known_to_the_second(make):
    index = make(10, 100)
    for i in range(5):
        index.put(TOPIC, b"k", None, i * 10, 10_500 + i * 1300)
    index.truncate(30)
    file = files_of(index.dir, 10)[0]
    assert (file.count, file.end, file.end_physical) == (4, 12_500, 20)
    assert index.query(TOPIC, b"k", 32, 0, FOREVER) == ([20, 10, 0], 12_500, 20)
    index.truncate(1)
    assert files_of(index.dir, 10)[0].end == 10_500


def test_a_cut_broken_off_after_its_slots_is_finished_by_the_next(make):
    """A power failure may leave any of the new slots with the old header."""
    slots, entries = 3, 40
    records = [(i * 10, 1_000 + i, b"abcdefgh"[i % 7:i % 7 + 1]) for i in range(30)]
    index, cut = make(slots, entries), make(slots, entries)
    for offset, time, key in records:
        for x in (index, cut) if offset < 150 else (index,):
            x.put(TOPIC, key, None, offset, time)
    path = os.path.join(index.dir, os.listdir(index.dir)[0])
    old, new = snapshot(index, slots)[0], snapshot(cut, slots)[0]
    for choice in range(1 << slots):
        with open(path, "r+b") as file:
            file.write(old)
            for slot in range(slots):
                if choice >> slot & 1:
                    at = 40 + 4 * slot
                    file.seek(at)
                    file.write(new[at:at + 4])
        again = make(slots, entries, dir=index.dir)
        again.truncate(150, *columns(records))
        assert snapshot(again, slots)[0] == new


def test_drop_after_deletes_what_is_newer_than_the_checkpoint(make):
    index = make(4, 3)
    for i in range(7):
        index.put(TOPIC, b"k", None, i * 10, 1000 * (i + 1))
    assert index.file_count == 4                    # they end at 2000, 4000, 6000, 7000
    assert index.drop_after(7000) == 0
    assert index.drop_after(4000) == 2
    assert len(os.listdir(index.dir)) == index.file_count == 2
    assert index.end_physical == 30
    assert index.query(TOPIC, b"k", 32, 0, FOREVER) == ([30, 20, 10, 0], 4000, 30)
    index.put(TOPIC, b"k", None, 40, 5000)
    assert index.file_count == 3
    assert index.drop_after(0) == 3
    assert os.listdir(index.dir) == [] and index.end_physical == -1


def test_destroy_leaves_an_index_that_begins_anew(make):
    index = make(4, 3)
    for i in range(5):
        index.put(TOPIC, b"k", None, i * 10, 1000)
    index.destroy()
    assert os.listdir(index.dir) == [] and index.file_count == 0
    index.put(TOPIC, b"k", None, 0, 1000)
    assert index.query(TOPIC, b"k", 32, 0, FOREVER)[0] == [0]


def test_sync_reports_the_newest_full_file(make):
    index = make(4, 3)
    assert index.sync() == 0
    index.put(TOPIC, b"k", None, 10, 1000)
    assert index.sync() == 0
    index.put(TOPIC, b"k", None, 20, 2000)
    assert index.sync(all=False) == 2000
    for i in range(3):
        index.put(TOPIC, b"k", None, 30 + i, 3000 + i)
    assert index.sync() == 3001
    assert make(4, 3, dir=index.dir).sync(all=False) == 3001


def test_foreign_names_are_left_alone_with_a_warning(make, caplog):
    index = make(4, 3)
    index.put(TOPIC, b"k", None, 10, 1000)
    for name in ("notes.txt", "123", "2026112102333349x", "202611210233334931"):
        with open(os.path.join(index.dir, name), "w") as file:
            file.write("mine")
    os.mkdir(os.path.join(index.dir, "20261121023333493"))
    with caplog.at_level(logging.WARNING):
        again = make(4, 3, dir=index.dir)
    assert again.file_count == 1 and len(caplog.records) == 5
    assert len(os.listdir(index.dir)) == 6


@pytest.mark.parametrize("size", [0, 39, 111, 113, 4096])
def test_a_file_of_another_size_is_refused(make, size):
    index = make(4, 3)
    index.put(TOPIC, b"k", None, 10, 1000)
    name = os.listdir(index.dir)[0]
    path = os.path.join(index.dir, name)
    other = os.path.join(index.dir, "30000101000000000")
    with open(other, "wb") as file:
        file.write(b"\1" * size)
    with pytest.raises(CorruptionError) as e:
        make(4, 3, dir=index.dir)
    assert e.value.path == other and f"{size} bytes" in str(e.value) and "116 bytes" in str(e.value)
    assert os.path.getsize(other) == size and os.path.getsize(path) == 116


def test_readonly_changes_nothing(make):
    index = make(4, 3)
    for i in range(5):
        index.put(TOPIC, b"k", None, i * 10, 1000)
    before = snapshot(index, 4)
    look = make(4, 3, dir=index.dir, readonly=True)
    with pytest.raises(OSError, match="errno 30"):
        look.put(TOPIC, b"k", None, 500, 2000)
    with pytest.raises(OSError, match="errno 30"):
        look.destroy()
    look.truncate(0)
    assert look.sync() == 0
    assert look.query(TOPIC, b"k", 32, 0, FOREVER)[0] == [40, 30, 20, 10, 0]
    assert look.drop_after(0) == 3 and look.file_count == 0
    assert snapshot(index, 4) == before


def test_readonly_sees_what_another_process_adds(make):
    index = make(4, 100)
    index.put(TOPIC, b"k", None, 10, 1000)
    look = make(4, 100, dir=index.dir, readonly=True)
    index.put(TOPIC, b"k", None, 20, 2000)
    assert look.query(TOPIC, b"k", 32, 0, FOREVER) == ([20, 10], 2000, 20)
    assert look.end_physical == 20
