"""All processes of a streaming query are killed, again and again, in the middle of a batch and behind one; it goes on from its
checkpoint, and each message is there once: in a store that the stream fills, and in files that it writes out of one."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
TOTAL, BATCH = 1500, 60
SCRIPT = """
import sys
from rmq_store.spark import local_session, register
sink, source, target, checkpoint = sys.argv[1:]
spark = local_session("killed", "local[2]", spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1",
                      spark__sql__shuffle__partitions="2")
register(spark)
stream = (spark.readStream.format("rocketmq_store").option("path", source).option("startingOffsets", "earliest")
          .option("maxOffsetsPerTrigger", "60").option("splitSize", "3000").load())
writer = stream.writeStream.format(sink).option("checkpointLocation", checkpoint).option("path", target)
if sink == "rocketmq_store":
    writer = writer.option("txnAppId", "copy").option("store.segment_size_bytes", "65536").option("store.index_slots", "100")
    writer = writer.option("store.index_entries_max", "1000")
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
"""


def processes_of(session):
    """Processes of a session, those that are dead but not reaped left out."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, _, _, sid = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(sid) == session and state != "Z":
            found.append(int(name))
    return found


def kill_all(process):
    """Driver, JVM and Python workers at once; returns when they are gone."""
    for number in processes_of(process.pid):
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
    end = time.monotonic() + 60
    while left := processes_of(process.pid):        # workers that were forked meanwhile
        assert time.monotonic() < end, left
        for number in left:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


def written(checkpoint, what):
    """Numbers of the batches that were begun ("offsets") or are over ("commits")."""
    directory = checkpoint / what
    return sorted(int(n) for n in os.listdir(directory) if n.isdigit()) if directory.is_dir() else []


@pytest.mark.parametrize("sink", ["rocketmq_store", "parquet"])
def test_a_stream_goes_on_where_it_was_killed(tmp_path, sink):
    spark_session.need_spark()
    with MessageStore.open(tmp_path / "from", segment_size_bytes=65536) as store:
        for i in range(TOTAL):
            store.put("T", b"%06d" % i + b"x" * (i % 50), queue_id=0)
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
           "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
           "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    checkpoint, target = tmp_path / "checkpoint", tmp_path / "to"
    arguments = [sys.executable, "-c", SCRIPT, sink, str(tmp_path / "from"), str(target), str(checkpoint)]
    last = TOTAL // BATCH - 1
    for what, number in (("offsets", 2), ("commits", 6), ("offsets", 12)):
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(arguments, env=env, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
            try:
                while not [n for n in written(checkpoint, what) if n >= number]:
                    assert process.poll() is None, (tmp_path / "log").read_text()[-5000:]
                    time.sleep(0.005)
            finally:
                kill_all(process)
        assert number <= max(written(checkpoint, "offsets")) < last, "it was over before it was killed"
    subprocess.run(arguments, env=env, cwd=tmp_path, check=True, capture_output=True)
    assert written(checkpoint, "commits")[-1] >= last
    want = [b"%06d" % i + b"x" * (i % 50) for i in range(TOTAL)]
    if sink == "parquet":
        assert parquet_bodies(target) == want
        return
    with MessageStore.open(target, readonly=True) as store:
        assert [bytes(m.body) for m in store.scan()] == want
    assert os.listdir(target / ".spark") == ["journal"]


def parquet_bodies(directory):
    """Bodies in the files that Spark's sink counts: those its log names, as Spark reads them."""
    import json

    import pyarrow.parquet as pq

    names = set()
    for log in (directory / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            names |= {json.loads(line)["path"].removeprefix("file://") for line in log.read_text().splitlines()[1:]}
    return sorted(body for name in names for body in pq.read_table(name, columns=["body"])["body"].to_pylist())
