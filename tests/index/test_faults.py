"""Goal: a failed call is told and loses nothing, a kill at any call leaves usable files, a failed sync stays failed.

Method: the real code runs on a probe that fails, freezes or holds the n-th call of a kind, for every n; each time the outcome
is compared with an index that met no fault.
"""
import os
import shutil
import threading
from array import array
from typing import NamedTuple

import pytest

from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import DiskFull, DurabilityError, SyncFailed
from tests.index.index_data import files_of

ENOSPC, EIO = 28, 5
FOREVER = 1 << 62
TOPIC = b"T"
SLOTS, ENTRIES = 3, 6
RECORDS = [(i * 10, 1000 + i * 400, b"u%d" % i, b"k%d all" % (i % 4)) for i in range(1, 9)]
OFFSETS, TIMES = (array("q", [r[i] for r in RECORDS]) for i in (0, 1))


def put(index, records=RECORDS):
    for offset, time, uniq, keys in records:
        index.put(TOPIC, uniq, keys, offset, time)


def data(index):
    return [f.data for f in files_of(index.dir, SLOTS)]


def answers(index):
    keys = {k for r in RECORDS for k in [r[2], *r[3].split()]}
    return {key: sorted(set(index.query(TOPIC, key, 64, 0, FOREVER)[0])) for key in keys}


def used(path):
    return [f.used for f in files_of(path, SLOTS)]


class Truth(NamedTuple):
    """What an index of all records is, closed again."""

    dir: str
    data: list[bytes]
    answers: dict[bytes, list[int]]


@pytest.fixture
def truth(make):
    index = make(SLOTS, ENTRIES)
    put(index)
    assert index.file_count == 5
    return Truth(index.dir, data(index), answers(index))


@pytest.mark.parametrize("kind", ["open", "fallocate", "pwrite", "fsync", "mmap", "rename", "mkdir", "sync_dir"])
@pytest.mark.parametrize("errno", [ENOSPC, EIO])
def test_any_failed_call_of_a_roll_is_told_and_can_be_made_up_for(make, truth, tmp_path, kind, errno):
    for nth in range(1, 20):
        io = ProbeIo()
        index = make(SLOTS, ENTRIES, io=io)
        io.fail(kind, nth, errno)
        failed = 0
        for record in RECORDS:
            try:
                put(index, [record])
            except DurabilityError as e:
                assert e.errno == errno and isinstance(e, DiskFull) == (errno == ENOSPC)
                failed += 1
                put(index, [record])
        assert failed == io.hits
        assert data(index) == truth.data
        assert os.listdir(tmp_path / ".alloc") == []
        del index
        counts = io.counts()
        assert counts["mmap"] - (kind == "mmap" and failed) == counts["munmap"]
        assert counts["open"] - (kind == "open" and failed) == counts["close"]
        if not failed:
            break
    assert nth > 1


def test_a_failed_sync_is_never_made_good(make):
    io = ProbeIo()
    index = make(SLOTS, ENTRIES, io=io)
    put(index)
    io.fail("msync", 3, EIO)
    for _ in range(3):
        with pytest.raises(SyncFailed) as e:
            index.sync()
        assert e.value.errno == EIO
        io.clear()
    assert io.counts()["msync"] == 3
    assert answers(index)[b"all"] == list(OFFSETS)


def test_only_changed_files_are_synced(make):
    io = ProbeIo()
    index = make(SLOTS, ENTRIES, io=io)
    put(index)
    assert index.sync(all=False) == index.sync(all=False)
    assert io.counts()["msync"] == 4
    index.sync()
    index.sync()
    assert io.counts()["msync"] == 5
    put(index, [(1000, 9000, b"x", None)])
    index.sync()
    assert io.counts()["msync"] == 6


def test_every_store_into_a_map_is_announced(make):
    io = ProbeIo()
    index = make(SLOTS, ENTRIES, io=io)
    put(index)
    index.truncate(65, OFFSETS, TIMES)
    put(index, RECORDS[6:])
    replayed = {}
    for call in io.trace():
        if call.kind in ("pwrite", "map_store") and call.result >= 0:
            file = replayed.setdefault(os.path.basename(call.path), bytearray(index.file_size))
            file[call.offset:call.offset + call.length] = call.data
        elif call.kind == "unlink":
            del replayed[os.path.basename(call.path)]
    names = sorted(os.listdir(index.dir))
    assert [bytes(replayed[n]) if n in replayed else bytes(index.file_size) for n in names] == data(index)


def test_a_kill_at_any_call_of_dispatch_leaves_what_was_put(make, truth):
    for nth in range(1, 500):
        io = ProbeIo()
        index = make(SLOTS, ENTRIES, io=io)
        io.freeze("mutate", nth)
        try:
            put(index)
        except DurabilityError:
            assert io.frozen         # a file that was never made cannot be mapped
        over = not io.frozen
        path = index.dir
        del index
        # The records after the kill are dispatched again, from the start as recovery may do.
        again = make(SLOTS, ENTRIES, dir=path)
        put(again)
        assert answers(again) == truth.answers, nth
        if over:
            break
    else:
        pytest.fail("dispatch never ended")
    assert nth > 90


@pytest.mark.parametrize("cut", [5, 20, 45, 65])
def test_a_kill_at_any_call_of_a_cut_is_finished_by_the_next(make, truth, tmp_path, cut):
    expected = make(SLOTS, ENTRIES)
    put(expected, [r for r in RECORDS if r[0] < cut])
    for nth in range(1, 200):
        io = ProbeIo()
        path = tmp_path / f"cut{nth}"
        shutil.copytree(truth.dir, path)
        index = make(SLOTS, ENTRIES, dir=path, io=io)
        io.freeze("mutate|msync|sync_dir", nth)
        index.truncate(cut, OFFSETS, TIMES)
        over = not io.frozen
        del index
        again = make(SLOTS, ENTRIES, dir=path)
        again.truncate(cut, OFFSETS, TIMES)
        assert used(path) == used(expected.dir), nth
        put(again, [r for r in RECORDS if r[0] >= cut])
        assert used(path) == used(truth.dir), nth
        if over:
            break
    assert nth > 4


def test_a_cut_syncs_slots_before_the_header_and_the_header_before_the_entries(make, truth, tmp_path):
    io = ProbeIo()
    path = tmp_path / "cut"
    shutil.copytree(truth.dir, path)
    index = make(SLOTS, ENTRIES, dir=path, io=io)
    start = len(io.trace())
    index.truncate(25, OFFSETS, TIMES)
    steps = []
    for call in io.trace(start):
        what = call.kind
        if what == "map_store":
            what = "header" if call.offset == 0 else "slots" if call.offset < 40 + 4 * SLOTS else "entries"
        if what not in ("munmap", "close") and steps[-1:] != [what]:
            steps.append(what)
    assert steps == ["unlink", "sync_dir"] * 3 + ["slots", "msync", "header", "msync", "entries", "msync"]


def test_queries_go_on_while_the_next_file_is_made(make):
    io = ProbeIo()
    index = make(SLOTS, ENTRIES, io=io)
    put(index, RECORDS[:1])
    io.hold("fallocate")
    writer = threading.Thread(target=put, args=(index, RECORDS[1:]))
    writer.start()
    try:
        io.wait_held()
        assert index.query(TOPIC, b"all", 64, 0, FOREVER)[0] == [10]
        assert index.query(TOPIC, b"u2", 64, 0, FOREVER)[0] == [20]
        assert index.sync(all=False) == 1800
    finally:
        io.release()
        writer.join()
    assert answers(index)[b"all"] == list(OFFSETS)
