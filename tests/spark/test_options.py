"""Options and planning without a session: what is refused and how it is named, what a plan looks at."""
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, CorruptionError, LogDirectoryMissing
from rmq_store.spark import stores
from rmq_store.spark.options import ReadOptions, parse_size
from rmq_store.spark.schema import columns_of
from rmq_store.spark.splits import plan
from rmq_store.spark.stores import brokers_of, log_files


@pytest.fixture
def root(tmp_path):
    """A store directory with three files of 4 KiB, each with something in it."""
    log = tmp_path / "broker-a" / "commitlog"
    log.mkdir(parents=True)
    for i in range(3):
        (log / f"{i * 4096:020d}").write_bytes(b"\0\0\0\x5b" + bytes(4092))
    return tmp_path / "broker-a"


@pytest.mark.parametrize(("options", "words"), [
    ({"starting_offset": "earliest"}, "did you mean startingOffsets"),
    ({"splitSize": "0"}, "splitSize"),
    ({"verify": "perhaps"}, "none, header, crc"),
    ({"failOnDataLoss": "yes"}, "true or false"),
    ({"subscribe": "a", "assign": '{"a":[0]}'}, "exclude each other"),
    ({"startingOffsets": '{"t":{"other":{"0":1}}}'}, "names broker 'other'"),
    ({"startingOffsets": '{"t":5}'}, "startingOffsets"),
    ({"startingOffsets": "earlist"}, "startingOffsets: give earliest, latest or .*, not 'earlist'"),  # codespell:ignore earlist
    ({"startingOffsets": "latest"}, "use a stream"),
    ({"startingTimestamp": "noon"}, "startingTimestamp"),
    ({"startingTimestamp": "1800000000"}, "startingTimestamp is 1800000000, .* give ms since 1970"),
    ({"endingTimestamp": 1800000000}, "endingTimestamp is 1800000000, .* give ms since 1970"),
    ({"startingTimestamp": 5, "endingTimestamp": 4}, "behind endingTimestamp"),
    ({"subscribePattern": "("}, "not a regular expression"),
    ({"maxOffsetsPerTrigger": 5}, "for streams"),
    ({"sql": "price =="}, "option sql is not a SQL92 filter: .*write = for equal"),
    ({"view": "message"}, "one of messages"),
])
def test_wrong_options_are_named_with_a_cure(root, options, words):
    with pytest.raises(ConfigError, match=words):
        ReadOptions.parse({"path": str(root), **options})


def test_a_time_without_a_zone_is_utc(root, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        times = {ReadOptions.parse({"path": str(root), "startingTimestamp": given}).starting_timestamp for given in (
            1767225600000, "2026-01-01T00:00:00", "2026-01-01T01:00:00+01:00", datetime(2026, 1, 1),
            datetime(2026, 1, 1, tzinfo=UTC))}
    finally:
        monkeypatch.undo()
        time.tzset()
    assert times == {1767225600000}


def test_missing_paths_are_named(tmp_path, root):
    with pytest.raises(ConfigError, match="path is missing"):
        ReadOptions.parse({})
    with pytest.raises(FileNotFoundError, match="no such store directory"):
        ReadOptions.parse({"path": str(tmp_path / "nowhere")})
    with pytest.raises(FileNotFoundError, match="no commitlog directory"):
        ReadOptions.parse({"path": str(tmp_path)})
    with pytest.raises(FileNotFoundError, match="no directory matches"):
        ReadOptions.parse({"path": str(tmp_path / "x*")})


def test_brokers_by_directory_json_and_glob(tmp_path, root):
    assert [b.name for b in brokers_of(str(root))] == ["broker-a"]
    assert [b.name for b in brokers_of(str(root), "mine")] == ["mine"]
    assert [b.name for b in brokers_of(json.dumps({"x": str(root), "y": str(root)}))] == ["x", "y"]
    assert [b.root for b in brokers_of(str(tmp_path / "broker-*"))] == [str(root)]
    assert [b.root for b in brokers_of(str(root / "commitlog"))] == [str(root / "commitlog")]
    with pytest.raises(ConfigError, match="both called 'broker-a'"):
        brokers_of(f"{root},{root}")


def test_columns_by_name_and_by_schema(root):
    options = ReadOptions.parse({"path": str(root), "columns": "TOPIC, storesize"})
    assert columns_of(options) == {"topic": "STRING", "storeSize": "INT"}
    assert columns_of(options, {"body": "BINARY"}) == {"body": "BINARY"}
    with pytest.raises(ConfigError, match="as STRING, it is BINARY"):
        columns_of(options, {"body": "STRING"})
    with pytest.raises(ConfigError, match="unknown in view messages"):
        columns_of(options, {"boddy": "BINARY"})  # codespell:ignore boddy


def test_sizes():
    assert [parse_size("x", t) for t in ("1", "2k", "128m", "1 GiB", "3MB")] == [1, 2048, 128 << 20, 1 << 30, 3 << 20]


def test_a_plan_covers_every_byte_once_and_packs_small_files(root):
    def parts(**options):
        return plan(ReadOptions.parse({"path": str(root), **options}))

    for size in (1, 100, 4096, 5000, 1 << 20):
        pieces = [p for part in parts(splitSize=size) for p in part]
        assert pieces[0].begin == 0 and pieces[-1].end == 12288
        assert all(a.end == b.begin for a, b in pairwise(pieces))
        assert all(p.start <= p.begin < p.end <= p.start + 4096 and p.size <= size for p in pieces)
    assert [len(p) for p in parts()] == [3] and len(parts(minPartitions=4)) >= 4
    clipped = [p for part in parts(startingPhysicalOffset=5000, endingPhysicalOffset=6000) for p in part]
    assert [(p.begin, p.end) for p in clipped] == [(5000, 6000)]
    assert [p.newest for part in parts(splitSize=4096) for p in part] == [False, False, True]


def test_a_hole_in_the_log_is_reported(root):
    os.unlink(root / "commitlog" / f"{4096:020d}")
    with pytest.raises(CorruptionError, match="at offset 8192"):
        log_files(str(root))
    assert len(plan(ReadOptions.parse({"path": str(root), "onCorrupt": "skip"}))) == 1


def test_planning_a_thousand_files_looks_into_the_newest_only(tmp_path, monkeypatch):
    log = tmp_path / "commitlog"
    log.mkdir()
    for i in range(1000):
        with open(log / f"{i << 30:020d}", "wb") as f:
            f.truncate(1 << 30)
    with open(log / f"{999 << 30:020d}", "r+b") as f:
        f.write(b"\0\0\0\x5b")
    opened = []

    def note(path, *how, **more):
        opened.append(path)
        return open(path, *how, **more)

    monkeypatch.setattr(stores, "open", note, raising=False)
    assert len(plan(ReadOptions.parse({"path": str(tmp_path)}))) == 8000
    assert opened == [str(log / f"{999 << 30:020d}")]       # does the log end there, or is it made ahead?


def test_files_made_ahead_do_not_end_the_log_too_early(root):
    for i in (3, 4):
        (root / "commitlog" / f"{i * 4096:020d}").write_bytes(bytes(4096))
    assert [f.newest for f in log_files(str(root))] == [False, False, True, True, True]


@pytest.mark.parametrize(("given", "mapped"), [({}, True), ({"io": "mmap"}, True), ({"io": "pread"}, False)])
def test_files_are_mapped_unless_told(root, given, mapped):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from rmq_store.spark.arrow import open_piece

    options = ReadOptions.parse({"path": str(root), **given})
    piece = plan(options)[0][0]
    with open_piece(piece, options), open("/proc/self/maps") as maps:
        assert (piece.path in maps.read()) == mapped


def test_batches_are_as_long_as_told(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rmq_store.spark.arrow import read_pieces

    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        sizes = [store.put("T", b"x" * 900).size for _ in range(50)]

    def lengths(**given):
        options = ReadOptions.parse({"path": str(tmp_path / "s"), **given})
        return [b.num_rows for part in plan(options) for b in read_pieces(part, options, columns_of(options))]

    assert lengths() == [50] and lengths(batchRows=20) == [20, 20, 10]
    assert lengths(batchBytes=10 * sizes[0]) == [10] * 5


@pytest.mark.parametrize("module", ["datasource", "jobs.run"])
@pytest.mark.parametrize("worker", [True, False])
def test_imports_are_left_out_of_collections_in_workers_only(module, worker):
    """In a process of its own: Spark's workers, which collect after each task, and not the program of a user."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    env = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"} | {"PYTHONPATH": os.getcwd()}
    script = f"import gc, rmq_store.spark.{module}; print(gc.get_freeze_count())"
    frozen = subprocess.run([sys.executable, "-c", script], env=env | ({"SPARK_REUSE_WORKER": "1"} if worker else {}),
                            capture_output=True, text=True, check=True).stdout
    assert (int(frozen) > 10_000) == worker


def in_two_directories(root):
    """The log of a root moved to two directories beside it, by turns."""
    places = [root.parent / name for name in ("disk1", "disk2")]
    for place in places:
        place.mkdir()
    for i, file in enumerate(sorted((root / "commitlog").iterdir())):
        file.rename(places[i % 2] / file.name)
    (root / "commitlog").rmdir()
    return places


def test_a_log_in_several_directories(root):
    before = [(p.start, p.begin, p.end, p.newest) for part in plan(ReadOptions.parse({"path": str(root)})) for p in part]
    one, two = in_two_directories(root)
    both = f"{one}, file://{two}"
    for given in (both, json.dumps({root.name: both})):
        pieces = [p for part in plan(ReadOptions.parse({"path": str(root), "commitLogPath": given})) for p in part]
        assert [(p.start, p.begin, p.end, p.newest) for p in pieces] == before
        assert {os.path.dirname(p.path) for p in pieces} == {str(one), str(two)}
    two.rename(root.parent / "gone")
    with pytest.raises(LogDirectoryMissing, match="onCorrupt=skip"):
        plan(ReadOptions.parse({"path": str(root), "commitLogPath": both}))
    skip = ReadOptions.parse({"path": str(root), "commitLogPath": both, "onCorrupt": "skip"})
    left = [p for part in plan(skip) for p in part]
    assert left and {os.path.dirname(p.path) for p in left} == {str(one)}
    one.rename(root.parent / "gone, too")
    with pytest.raises(FileNotFoundError, match="option commitLogPath"):
        ReadOptions.parse({"path": str(root), "commitLogPath": both})


@pytest.mark.parametrize(("given", "words"), [
    ("{", "option commitLogPath"), ('{"other": "/a"}', "has no store 'other'"), ("/a,/a", "each directory once"),
    ('{"broker-a": 1}', "expected text"), ("hdfs://x/a", "mount it there")])
def test_a_wrong_commit_log_path(root, given, words):
    with pytest.raises(ConfigError, match=words):
        ReadOptions.parse({"path": str(root), "commitLogPath": given})


def test_offsets_without_a_broker_are_those_of_every_broker(tmp_path):
    with MessageStore.open(tmp_path / "s") as store:
        store.put("T", b"x", queue_id=0)
    for name, place in (("startingOffsets", 2), ("endingOffsets", 3)):
        given = ReadOptions.parse({"path": str(tmp_path / "s"), name: '{"T": {"0": 90, "1": -1}}'})
        named = ReadOptions.parse({"path": str(tmp_path / "s"), name: '{"T": {"s": {"0": 90, "1": -1}}}'})
        assert given.selectors("s") == named.selectors("s") and given.selectors("other") == given.selectors("s")
        assert given.selectors("s")[0][place] == 90
    with pytest.raises(ConfigError, match="give earliest, latest"):
        ReadOptions.parse({"path": str(tmp_path / "s"), "startingOffsets": '{"T": {"s": {"0": 9}, "0": 90}}'})
