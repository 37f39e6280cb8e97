"""Where logs end, where streams begin, and brokers that go, come and change their names. Without a session."""
import os
import re
import time
from itertools import pairwise

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.errors import ConfigError, CorruptionError
from rmq_store.spark.offsets import places
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions
from rmq_store.spark.schema import columns_of
from rmq_store.spark.splits import plan

SMALL = {"segment_size_bytes": 16384, "index_slots": 100, "index_entries_max": 1000}


def fill(root, begin, end, **fields):
    with MessageStore.open(root, **SMALL) as store:
        return [store.put("T", b"%06d" % i, queue_id=0, **fields) for i in range(begin, end)]


def positions(root, **given):
    options = ReadOptions.parse({"path": str(root), **given}, stream=True)
    return LogPositions(options.brokers[0], options)


def rows(root, **given):
    """Bodies of a batch read."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from rmq_store.spark.arrow import read_pieces

    options = ReadOptions.parse({"path": str(root), "columns": "body", **given})
    return [body.as_py() for part in plan(options) for batch in read_pieces(part, options, columns_of(options))
            for body in batch.column(0)]


class Query:
    """A stream as Spark runs it: batches planned from the checkpoint's position, run, and only then committed."""

    def __init__(self, path, **given):
        pytest.importorskip("pyspark", reason="pyspark is not installed")
        self.given = {"columns": "brokerName,body", "startingOffsets": "earliest", **given}
        self.restart(path)
        self.at = self.reader.initialOffset()
        self.rows = []

    def restart(self, path):
        from rmq_store.spark.stream import StoreStreamReader

        options = ReadOptions.parse({"path": path if isinstance(path, dict) else str(path), **self.given}, stream=True)
        self.reader = StoreStreamReader(options, columns_of(options))

    def plan(self):
        return self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())

    def run(self, end):
        return [tuple(row.values()) for part in self.reader.partitions(self.at, end) for batch in self.reader.read(part)
                for row in batch.to_pylist()]

    def to_end(self):
        while (end := self.plan()) is not self.at:
            self.rows += self.run(end)
            self.at = end
        return self.rows


def expected(*ranges):
    return sorted((name, b"%06d" % i) for name, begin, end in ranges for i in range(begin, end))


# ---- the end of a log

@pytest.mark.parametrize("properties", [{"k": "x\0y"}, {"k": "\0"}])
def test_zeros_in_the_last_records_properties_do_not_hide_it(tmp_path, properties):
    puts = fill(tmp_path / "s", 0, 1) + fill(tmp_path / "s", 1, 2, properties=properties)
    assert rows(tmp_path / "s") == [b"000000", b"000001"]
    assert positions(tmp_path / "s").end() == puts[-1].offset + puts[-1].size
    assert Query(tmp_path / "s").to_end() == expected(("s", 0, 2))


def test_zeros_in_properties_beside_a_writer(tmp_path):
    """They may be what it has not written yet; not so where a checksum covers them, nor after a while."""
    clock, now = ProbeIo(keep_bytes=False), time.time_ns() // 1_000_000
    with MessageStore.open(tmp_path / "s", _io=clock, **SMALL) as store:
        clock.set_clock(now - 20_000)
        put = store.put("T", b"000000", properties={"k": "x\0y"})
        assert positions(tmp_path / "s").end() == put.offset + put.size
        clock.set_clock(now + 3_600_000)        # as if just now, however long the test takes
        put = store.put("T", b"000001", properties={"k": "x\0y"})
        assert positions(tmp_path / "s").end() == put.offset and rows(tmp_path / "s") == [b"000000"]
        clock.set_clock(None)
    with MessageStore.open(tmp_path / "c", record_crc=True, **SMALL) as store:
        last = store.put("T", b"000001", properties={"k": "x\0y"})
        assert positions(tmp_path / "c").end() == last.offset + last.size
        assert rows(tmp_path / "c") == [b"000001"]


def zero(root, put):
    with open(next((root / "commitlog").iterdir()), "r+b") as file:
        file.seek(put.offset)
        file.write(bytes(put.size))


@pytest.mark.parametrize("corrupt", ["fail", "skip"])
def test_the_log_ends_where_nothing_was_written_whatever_lies_behind(tmp_path, corrupt, caplog):
    """A power cut kept records behind one that it lost: the store's next writer goes on where that one was."""
    root = tmp_path / "s"
    puts = fill(root, 0, 6)
    zero(root, puts[3])
    assert positions(root, onCorrupt=corrupt).end() == puts[3].offset
    query, late = Query(root, onCorrupt=corrupt), Query(root, startingOffsets="latest", onCorrupt=corrupt)
    assert query.to_end() == expected(("s", 0, 3)) and places(late.at) == {"s": puts[3].offset}
    assert f"the log ends at {puts[3].offset}" in caplog.text and f"at {puts[4].offset}" in caplog.text
    with pytest.raises(CorruptionError, match=f"at offset {puts[3].offset}"):
        rows(root)                                      # a batch read refuses
    fill(root, 3, 9)                                    # recovered, and written over
    query.restart(root)
    late.restart(root)
    assert query.to_end() == expected(("s", 0, 9)) and late.to_end() == expected(("s", 3, 9))


def test_what_is_left_behind_a_shorter_record_is_no_log(tmp_path):
    """Java leaves bytes behind the tail: a new record of another size does not meet them."""
    root = tmp_path / "s"
    puts = fill(root, 0, 6)
    log = next((root / "commitlog").iterdir())
    with MessageStore.open(tmp_path / "other", **SMALL) as store:
        for i in range(3):
            store.put("T", b"%06d" % i, queue_id=0)
        short = store.put("T", b"3", queue_id=0)
    record = (tmp_path / "other" / "commitlog" / log.name).read_bytes()[short.offset:short.offset + short.size]
    assert short.offset == puts[3].offset and short.size < puts[3].size
    with log.open("r+b") as file:
        file.seek(short.offset)
        file.write(record)
    late = Query(root, startingOffsets="latest")
    assert places(late.at) == {"s": short.offset + short.size}
    with pytest.raises(CorruptionError, match=f"at offset {short.offset + short.size}: .* good records follow at"):
        late.plan()


# ---- where a stream begins

def test_a_place_inside_a_record_is_the_next_one(tmp_path):
    puts = fill(tmp_path / "s", 0, 400)
    files = {put.offset // 16384 for put in puts}
    assert len(files) > 2
    for one, two in pairwise(puts):
        if one.offset % 5 == 0 or two.offset // 16384 != one.offset // 16384:
            for place in (one.offset + 1, one.offset + one.size - 1, two.offset):
                assert positions(tmp_path / "s").of_place(place) == two.offset, place
    query = Query(tmp_path / "s", startingPhysicalOffset=puts[5].offset + 3)
    assert places(query.at) == {"s": puts[6].offset} and query.to_end() == expected(("s", 6, 400))
    assert rows(tmp_path / "s", startingPhysicalOffset=puts[5].offset + 3) == [b"%06d" % i for i in range(6, 400)]
    assert positions(tmp_path / "s").of_place(puts[-1].offset + 1) == puts[-1].offset + puts[-1].size
    with pytest.raises(CorruptionError, match="the log ends at"):
        Query(tmp_path / "s", startingPhysicalOffset=1 << 40).plan()


# ---- brokers

def test_a_broker_that_is_away_keeps_its_position(tmp_path):
    for name in ("a", "b"):
        fill(tmp_path / name, 0, 10)
    query = Query(f"{tmp_path}/?")
    query.to_end()
    os.rename(tmp_path / "b", tmp_path / "b-away")
    fill(tmp_path / "a", 10, 12)
    query.restart(f"{tmp_path}/?")
    assert query.to_end() == expected(("a", 0, 10), ("b", 0, 10)) + expected(("a", 10, 12))
    os.rename(tmp_path / "b-away", tmp_path / "b")
    fill(tmp_path / "b", 10, 13)
    query.restart(f"{tmp_path}/?")
    assert sorted(query.to_end()) == expected(("a", 0, 12), ("b", 0, 13))


def test_a_batch_of_a_broker_that_is_away_waits_for_it(tmp_path):
    """It was planned, and not committed: without the broker it would lose its rows."""
    for name in ("a", "b"):
        fill(tmp_path / name, 0, 10)
    query = Query(f"{tmp_path}/?")
    end = query.plan()
    os.rename(tmp_path / "b", tmp_path / "b-away")
    query.restart(f"{tmp_path}/?")
    with pytest.raises(ConfigError, match=r"broker b .* not in option path"):
        query.run(end)
    os.rename(tmp_path / "b-away", tmp_path / "b")
    fill(tmp_path / "c", 0, 4)                          # one that the batch does not know is no matter
    query.restart(f"{tmp_path}/?")
    assert sorted(query.run(end)) == expected(("a", 0, 10), ("b", 0, 10))


def test_a_store_under_another_name_is_not_read_again(tmp_path):
    fill(tmp_path / "old", 0, 10)
    query = Query(tmp_path / "old")
    query.to_end()
    os.rename(tmp_path / "old", tmp_path / "new")
    fill(tmp_path / "new", 10, 12)
    query.restart(tmp_path / "new")
    with pytest.raises(ConfigError, match=r"(?s)broker new .*old is missing.*newBrokers"):
        query.plan()
    query.restart({"old": str(tmp_path / "new")})
    assert query.to_end() == expected(("old", 0, 12))


@pytest.mark.parametrize(("given", "begin"), [({}, 0), ({"newBrokers": "earliest"}, 0), ({"newBrokers": "latest"}, 10)])
def test_a_new_broker_beside_known_ones_begins_where_told(tmp_path, given, begin):
    fill(tmp_path / "a", 0, 10)
    query = Query(f"{tmp_path}/?", **given)
    query.to_end()
    fill(tmp_path / "b", 0, 10)
    query.restart(f"{tmp_path}/?")
    end = query.plan()                          # put down, and run twice, as after a crash
    assert query.run(end) == query.run(end) == []
    query.at = end
    fill(tmp_path / "b", 10, 15)
    assert query.to_end() == expected(("a", 0, 10)) + expected(("b", begin, 15))
    query.given["newBrokers"] = "fail"
    fill(tmp_path / "c", 0, 1)
    query.restart(f"{tmp_path}/?")
    with pytest.raises(ConfigError, match=r"broker c \(.*\) was not read before"):
        query.plan()


def test_a_log_that_was_cut_under_a_planned_batch_is_told(tmp_path):
    puts = fill(tmp_path / "s", 0, 10)
    query = Query(tmp_path / "s")
    end = query.plan()
    for put in puts[7:]:
        zero(tmp_path / "s", put)
    query.restart(tmp_path / "s")
    with pytest.raises(CorruptionError, match=re.escape(f"the log ends at {puts[7].offset}")):
        query.run(end)
