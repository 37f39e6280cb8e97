"""Streams: the reader's positions without a session, and queries over stores that a writer is filling."""
import json
import os
import queue
import threading

import pytest

from rmq_store import MessageStore
from rmq_store.errors import CorruptionError
from rmq_store.spark.offsets import places
from rmq_store.spark.options import ReadOptions
from rmq_store.spark.positions import LogPositions

SMALL = {"segment_size_bytes": 16384}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "b", **SMALL) as opened:
        yield opened


def positions(store, **options):
    parsed = ReadOptions.parse({"path": store.path, **options}, stream=True)
    return LogPositions(parsed.brokers[0], parsed)


def fill(store, n, begin=0, size=300):
    return [store.put("T", b"%06d" % (begin + i) + b"x" * size, queue_id=i % 3) for i in range(n)]


def test_the_end_follows_a_live_log_over_its_files(store):
    p = positions(store)
    assert p.end() == p.first() == 0
    for i in range(200):
        last = fill(store, 1, i)[0]
        assert p.end() == last.offset + last.size == store.max_log_offset
    assert len(p.files()) > 4


def test_limits_lead_to_records(store):
    puts = fill(store, 100)
    p = positions(store)
    end = p.end()
    assert p.ahead(0, end, None, None) == end
    for rows in (1, 7, 99, 100, 101):
        last = puts[min(rows, 100) - 1]
        want = puts[rows].offset if rows < 100 else end
        # The rest of a file behind its last record may come along.
        assert p.ahead(0, end, rows, None) in (want, last.offset + last.size)
    size = puts[0].size
    assert p.ahead(0, end, None, 1) == size
    assert p.ahead(0, end, None, size * 3 + 5) == 3 * size
    assert p.ahead(puts[40].offset, end, 10, size * 4) == puts[44].offset
    chosen = positions(store, assign='{"T":[1]}')
    assert chosen.ahead(0, end, 2, None) == puts[5].offset      # the second row of queue 1 is the fifth record


def test_a_time_is_found(store):
    puts = fill(store, 90)
    p = positions(store)
    middle = puts[45].store_timestamp
    assert p.of_time(middle) == next(x.offset for x in puts if x.store_timestamp >= middle)
    assert p.of_time(0) == 0 and p.of_time(middle + 10_000_000) == p.end()


def test_lost_data_is_reported_or_stepped_over(store):
    fill(store, 100)
    p = positions(store)
    files = p.files()
    assert p.check(files[0].start, p.end()) == 0
    with pytest.raises(CorruptionError, match="the log ends at"):
        p.check(p.end() + 1, p.end())
    lenient = positions(store, failOnDataLoss="false")
    assert lenient.check(p.end() + 1, p.end()) == p.end()


def reader_of(path, **options):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rmq_store.spark.schema import columns_of
    from rmq_store.spark.stream import StoreStreamReader

    parsed = ReadOptions.parse({"path": path, "columns": "body", **options}, stream=True)
    return StoreStreamReader(parsed, columns_of(parsed))


def bodies(reader, start, end):
    return [b.as_py()[:6] for part in reader.partitions(start, end) for batch in reader.read(part) for b in batch.column(0)]


def test_batches_by_hand_lose_and_repeat_nothing(store):
    reader = reader_of(store.path, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    at = reader.initialOffset()
    assert places(at) == {"b": 0}
    found = []
    for round_ in range(12):
        fill(store, 5, 5 * round_)
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        found += bodies(reader, at, end)
        at = end
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) is not at:
        assert json.dumps(end) != json.dumps(at)
        found += bodies(reader, at, end)
        at = end
    assert found == [b"%06d" % i for i in range(60)]
    assert reader_of(store.path).initialOffset() == at          # without saying so, a stream begins at the end


def test_where_a_stream_begins(store):
    puts = fill(store, 60)
    middle = puts[30].store_timestamp
    begins = {("startingOffsets", "earliest"): 0, ("startingOffsets", "latest"): store.max_log_offset,
              ("startingPhysicalOffset", puts[7].offset): puts[7].offset,
              ("startingTimestamp", middle): next(x.offset for x in puts if x.store_timestamp >= middle),
              ("startingTimestamp", middle + 10_000_000): store.max_log_offset}
    assert {given: reader_of(store.path, **dict([given])).initialOffset()["b"] for given in begins} == begins


@pytest.mark.parametrize("written", [0, 4, 40, 100, 200])
def test_a_half_written_tail_waits_for_the_next_batch(tmp_path, written):
    """As a reader finds the log of a live store: the last record is being copied into zeros."""
    with MessageStore.open(tmp_path / "b", **SMALL) as opened:
        puts = fill(opened, 5)
    last = puts[-1]
    log = tmp_path / "b" / "commitlog" / ("0" * 20)
    record = log.read_bytes()[last.offset:last.offset + last.size]
    with log.open("r+b") as file:
        file.seek(last.offset + written)
        file.write(bytes(last.size - written))
    reader = reader_of(str(tmp_path / "b"), startingOffsets="earliest")
    at = reader.latestOffset({"b": 0}, reader.getDefaultReadLimit())
    assert places(at) == {"b": last.offset} and bodies(reader, {"b": 0}, at) == [b"%06d" % i for i in range(4)]
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) is at
    with log.open("r+b") as file:
        file.seek(last.offset)
        file.write(record)
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert places(end) == {"b": last.offset + last.size} and bodies(reader, at, end) == [b"000004"]


def test_two_brokers_share_a_limit(tmp_path):
    paths = {}
    for name, n in (("big", 90), ("small", 9)):
        with MessageStore.open(tmp_path / name, **SMALL) as opened:
            fill(opened, n)
        paths[name] = str(tmp_path / name)
    reader = reader_of(paths, startingOffsets="earliest", maxOffsetsPerTrigger=11)
    end = reader.latestOffset({"big": 0, "small": 0}, reader.getDefaultReadLimit())
    assert len(bodies(reader, {"big": 0, "small": 0}, end)) == 11 and end["small"] > 0


@pytest.mark.spark
def test_a_query_over_a_growing_store_restarts_without_loss_or_repeat(spark, tmp_path):
    """Runs of AvailableNow, each a new query on the same checkpoint, while a thread puts."""
    total, seen = 2000, []

    def run(source):
        stream = (spark.readStream.format("rocketmq_store").option("path", source).option("startingOffsets", "earliest")
                  .option("columns", "body,queueId").option("maxBytesPerTrigger", "400k").load())
        query = (stream.writeStream.foreachBatch(lambda df, i: seen.append((i, [bytes(r.body)[:6] for r in df.collect()])))
                 .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
        query.awaitTermination()
        assert query.exception() is None

    from rmq_store.spark import register

    register(spark)
    with MessageStore.open(tmp_path / "live", segment_size_bytes=65536) as opened:
        fill(opened, 10)
        writer = threading.Thread(target=lambda: fill(opened, total - 10, 10))
        writer.start()
        run(opened.path)
        writer.join()
    run(str(tmp_path / "live"))
    assert [i for i, _ in seen] == list(range(len(seen))) and len(seen) >= 2
    assert [body for _, batch in seen for body in batch] == [b"%06d" % i for i in range(total)]


@pytest.mark.spark
def test_deleted_files_stop_a_query_unless_told_and_progress_lines_tell_rows_and_lag(spark, tmp_path):
    from rmq_store.spark import register
    from rmq_store.spark.progress import ProgressLines

    register(spark)
    said = queue.Queue()        # from a thread of its own; the end of the strict query may still come by
    with MessageStore.open(tmp_path / "b", **SMALL) as opened:
        puts = fill(opened, 100)
        first, second = sorted(positions(opened).files(), key=lambda f: f.start)[:2]
        os.unlink(first.path)

        def run(name, lossy):
            stream = (spark.readStream.format("rocketmq_store").option("path", opened.path)
                      .options(startingPhysicalOffset="0", failOnDataLoss=lossy, maxOffsetsPerTrigger="30").load())
            return (stream.writeStream.format("noop").queryName(name).option("checkpointLocation", str(tmp_path / name))
                    .trigger(availableNow=True).start())

        with pytest.raises(Exception, match=r"bytes were deleted before they were read"):
            run("strict", "true").awaitTermination()
        listener = ProgressLines(said.put)
        spark.streams.addListener(listener)
        try:
            lossy = run("orders", "false")
            lossy.awaitTermination()
            lines = list(iter(lambda: said.get(timeout=60), f"stream {lossy.id}: ended"))
        finally:
            spark.streams.removeListener(listener)
    rest = [x for x in puts if x.offset >= second.start]
    lag = rest[-1].offset + rest[-1].size - rest[30].offset
    assert 30 < len(rest) <= 60
    started, one, two = (line for line in lines if line.startswith("stream orders: "))
    assert started == "stream orders: started"
    assert one.startswith("stream orders: batch 0, 30 rows, ") and one.endswith(f"/s, {lag} bytes behind")
    assert two.startswith(f"stream orders: batch 1, {len(rest) - 30} rows, ") and two.endswith("/s, 0 bytes behind")
