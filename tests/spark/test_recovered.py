"""Of a store that was not closed and that nobody has open, what recovery would keep is read: RocketMQ's own list."""
import json
import shutil

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions
from rmq_store.spark.schema import columns_of
from tests.golden_store import cases
from tests.spark.test_positions import SMALL, Query, fill

pytest.importorskip("pyspark", reason="pyspark is not installed")

from rmq_store.spark.jobs.export import export
from rmq_store.spark.reader import partitions_of, rows_of

CRASHED = [name for name in cases() if "-crash-" in name and "shortfile" not in name]


def batch(root, **given):
    options = ReadOptions.parse({"path": str(root), "columns": "physicalOffset", **given})
    return [at.as_py() for part in partitions_of(options) for b in rows_of(part, options, columns_of(options))
            for at in b.column(0)]


def stream(root, **given):
    return [row[0] for row in Query(root, columns="physicalOffset", **given).to_end()]


def exported(root, out, **given):
    import pyarrow.parquet as pq

    export(None, str(root), str(out), columns="physicalOffset", **given)
    return sorted(at for path in out.glob("*.parquet") for at in pq.read_table(path).column(0).to_pylist())


@pytest.mark.parametrize("name", CRASHED)
@pytest.mark.usefixtures("tasks")
def test_rocketmqs_own_list_of_messages(name, stores, tmp_path):
    case = stores(name)
    want = sorted({line["phyOffset"] for line in case.expected() if line["t"] in ("msg", "unqueued")})
    assert want
    for given in ({}, {"onCorrupt": "skip"}, {"onCorrupt": "skip", "verify": "crc"}, {"onCorrupt": "emit"}, {"io": "pread"}):
        assert batch(case.store, **given) == want, given
        assert stream(case.store, **given) == want, given
    assert exported(case.store, tmp_path / "x") == want


def crashed(root, count=60, **options):
    """A store of several files that a killed writer left."""
    with MessageStore.open(root.with_name("open"), **SMALL, **options) as store:
        puts = [store.put("T", b"%06d" % i + b"x" * 900, queue_id=0) for i in range(count)]
        store.flush()
        shutil.copytree(root.with_name("open"), root, ignore=shutil.ignore_patterns(".alloc"))    # where files are made
    return puts


def spoil(root, put, at=-20):
    """One byte of a record: of its body, or at=24 of its queue offset, which only the CRC of the whole record covers."""
    size = 16384
    path = root / "commitlog" / f"{put.offset - put.offset % size:020d}"
    data = bytearray(path.read_bytes())
    data[put.offset % size + (at if at >= 0 else put.size + at)] ^= 1
    path.write_bytes(data)


@pytest.mark.untraced("the test makes a crashed image by hand")
@pytest.mark.parametrize("which", [-1, -2, -12, -30])
def test_a_record_that_recovery_cuts_ends_the_log(tmp_path, which, caplog):
    """Wherever it lies behind the checkpoint, also in a file before the newest; what is put there later is read."""
    root = tmp_path / "s"
    puts = crashed(root)
    (root / "checkpoint").unlink()
    spoil(root, puts[which])
    want = [put.offset for put in puts[:which]]
    query = Query(root, columns="physicalOffset")
    assert batch(root) == want and [row[0] for row in query.to_end()] == want
    assert "where recovery ends the log" in caplog.text
    with MessageStore.open(root, **SMALL) as store:
        assert store.max_log_offset == puts[which].offset
        more = [store.put("T", b"new", queue_id=0) for _ in range(50)]
    query.restart(root)
    assert [row[0] for row in query.to_end()] == want + [put.offset for put in more] == batch(root)


CRC_OF_RECORDS = {"record_crc": True, "record_crc_required": True}
NO_CRC = {"recover_check_crc": False}


@pytest.mark.untraced("the test makes a crashed image by hand")
@pytest.mark.parametrize(("written", "given", "at", "kept"), [
    (CRC_OF_RECORDS, {}, 24, 48), (CRC_OF_RECORDS, {}, -60, 48), ({}, {}, 24, 60), ({}, {}, -60, 48), ({}, NO_CRC, -60, 60),
    ({"record_crc": True}, {}, 24, 60), ({"record_crc": True}, {"record_crc_required": True}, 24, 48),
    ({}, {"record_crc_required": True}, None, 0), (CRC_OF_RECORDS, {"record_crc_required": False}, 24, 60),
    ({"compat": "4.9"}, {}, -60, 48)])
def test_what_is_read_is_what_the_next_open_keeps(tmp_path, written, given, at, kept):
    """By the options that the writer recorded, and above them those that the read and the open are given."""
    root = tmp_path / "s"
    puts = crashed(root, **written)
    (root / "checkpoint").unlink()
    if at is not None:
        spoil(root, puts[48], at)
    want = [put.offset for put in puts[:kept]]
    options = {f"store.{name}": value for name, value in given.items()}
    assert batch(root, **options) == stream(root, **options) == batch(root, store=given) == want
    with MessageStore.open(root, **given) as store:
        assert store.max_log_offset == (puts[kept].offset if kept < len(puts) else puts[-1].offset + puts[-1].size)
    assert batch(root) == want


def test_an_option_of_a_store_that_says_nothing_of_recovery_is_refused(tmp_path):
    crashed(tmp_path / "s", 3)
    options = ReadOptions.parse({"path": str(tmp_path / "s"), "store.checkcrconrecover": "false"})      # RocketMQ's name
    assert options.store == (("checkCRCOnRecover", "false"),)
    for name, text in (("segment_size_bytes", "no effect on a read"), ("recover_chek_crc", "did you mean recover_check_crc")):
        with pytest.raises(ConfigError, match=text):
            ReadOptions.parse({"path": str(tmp_path / "s"), f"store.{name}": "100000"})


@pytest.mark.untraced("the test makes a crashed image by hand")
def test_a_live_store_is_read_as_far_as_it_is_whole(tmp_path):
    """The abort file is there while a writer has the store: its lock tells."""
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        puts = [store.put("T", b"%06d" % i, queue_id=0) for i in range(10)]
        assert batch(tmp_path / "s") == [put.offset for put in puts]
        options = ReadOptions.parse({"path": str(tmp_path / "s")})
        log = LogPositions(options.brokers[0], options)
        assert log._crashed.end(log.files()) is None


@pytest.mark.untraced("the test makes a crashed image by hand")
def test_a_writer_whose_lock_is_not_seen_is_followed(tmp_path, monkeypatch):
    """One on another machine. What was walked is not walked again."""
    from rmq_store.spark import recovered

    monkeypatch.setattr(recovered, "in_use", lambda root: False)
    walked = []
    scan = recovered.scan_bytes
    monkeypatch.setattr(recovered, "scan_bytes", lambda data, start, begin, **rules: walked.append(begin) or scan(
        data, start, begin, **rules))
    with MessageStore.open(tmp_path / "s", **SMALL) as store:
        query, offsets = Query(tmp_path / "s", columns="physicalOffset"), []
        for i in range(40):
            offsets.append(store.put("T", b"%06d" % i + b"x" * 900, queue_id=0).offset)
            assert [row[0] for row in query.to_end()] == offsets
        ends = len(walked)
        query.plan()
        assert len(walked) == ends and walked[-1] >= offsets[-2]


@pytest.mark.untraced("the test makes a crashed image by hand")
def test_the_errors_view_still_shows_what_will_be_cut(tmp_path):
    root = tmp_path / "s"
    puts = crashed(root)
    spoil(root, puts[-2])
    options = ReadOptions.parse({"path": str(root), "view": "errors"})
    rows = [row for part in partitions_of(options) for b in rows_of(part, options, columns_of(options))
            for row in b.to_pylist()]
    assert [row["offset"] for row in rows] == [puts[-2].offset]


def test_a_closed_store_is_read_whatever_its_checkpoint_says(tmp_path):
    puts = fill(tmp_path / "s", 0, 20)
    (tmp_path / "s" / "checkpoint").unlink()
    assert batch(tmp_path / "s") == [put.offset for put in puts] == json.loads(json.dumps(stream(tmp_path / "s")))
