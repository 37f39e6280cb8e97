"""Spark's own speculation: two attempts of one task run at once, one wins, the other is killed while it works. Whatever it is,
the result is there once and right, and when all is over nothing else is.

Spark starts no second attempt on the host of the first, and local masters have one host: so this is a cluster of its own, with
two workers that go by two of the addresses of the loopback. See straggler.py for how an attempt is made to hang.
"""
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests import spark_session
from tests.spark.staging_of import SMALL, expected

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
LOSERS = ("first", "second")
SCRIPT = """
import sys
import rmq_store.spark as rs
from rmq_store.spark import jobs
from pyspark.sql import functions as f
from tests.spark import straggler
from tests.spark.staging_of import SMALL

master, root, out = sys.argv[1:]
spark = rs.local_session("speculation", master, **{
    "spark__driver__host": "127.0.0.1", "spark__speculation": "true", "spark__speculation__interval": "50ms",
    "spark__speculation__quantile": "0.5", "spark__speculation__multiplier": "1.1",
    "spark__speculation__minTaskRuntime": "10ms", "spark__sql__shuffle__partitions": "2",
    "spark__sql__execution__arrow__maxRecordsPerBatch": "10"})
spark.sparkContext.setLogLevel("ERROR")


def body(i):
    if i == 250:            # of the first task: what UDFs made before, a hundred at a time, is staged
        straggler.straggle()
    return b"body %d" % i


slow = f.udf(body, "binary", useArrow=False)
rows = spark.range(0, 1200, 1, 4).select(f.lit("T").alias("topic"), slow("id").alias("body"))
store = {"store." + name: str(value) for name, value in SMALL.items()}
for loser in ("first", "second"):
    straggler.begin("write-" + loser, loser)
    rs.write_store(rows, f"{out}/write-{loser}", store=SMALL)
    straggler.begin("shards-" + loser, loser)
    rs.write_store(rows, f"{out}/shards-{loser}", shards=4, store=SMALL)
    straggler.begin("stream-" + loser, loser)
    stream = spark.readStream.format("rocketmq_store").options(path=root, startingOffsets="earliest", splitSize="50000").load()
    stream = stream.select(f.lit("T").alias("topic"), slow(f.substring("body", 6, 4).cast("string").cast("int")).alias("body"))
    query = (stream.writeStream.format("rocketmq_store").option("path", f"{out}/stream-{loser}").option("txnAppId", "s")
             .options(**store).option("checkpointLocation", f"{out}/checkpoint-{loser}").trigger(availableNow=True).start())
    query.awaitTermination()
    straggler.begin("rebuild-" + loser, loser)
    jobs.rebuild_queues(spark, root, split_size=5000, file_size=800)
    straggler.begin("export-" + loser, loser)
    jobs.export(spark, root, f"{out}/export-{loser}", split_size=5000, batch_rows=10)
print("WORKED")
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Address of a master with two workers of one core each, and the environment that reaches it."""
    spark_session.need_spark()
    from pyspark.find_spark_home import _find_spark_home

    place = tmp_path_factory.mktemp("cluster")
    (place / "meeting").mkdir()
    (place / "site").mkdir()
    (place / "site" / "sitecustomize.py").write_text("from tests.spark import straggler\nstraggler.install()\n")
    home = _find_spark_home()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "RMQ_STRAGGLER": str(place / "meeting"), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path,
           "SPARK_HOME": home, "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(place / "local"),
           "SPARK_LOCAL_IP": "127.0.0.1"}
    worker_path = os.pathsep.join((str(place / "site"), path))

    def start(name, *arguments, **more):
        log = open(place / f"{arguments[1]}.log", "wb")     # noqa: SIM115 (closed below)
        with log:
            return subprocess.Popen([os.path.join(home, "bin", "spark-class"), f"org.apache.spark.deploy.{name}", *arguments,
                                     "--webui-port", "0"], env=env | more, stdout=log, stderr=subprocess.STDOUT)

    running = [start("master.Master", "--host", "127.0.0.1", "--port", str(port))]
    try:
        end = time.monotonic() + 60
        while True:         # a worker that comes too early tries again only after seconds
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert running[0].poll() is None and time.monotonic() < end, (place / "127.0.0.1.log").read_text()
                time.sleep(0.1)
        running += [start("worker.Worker", "--host", f"127.0.0.{2 + i}", "--cores", "1", "--memory", "1g", "--work-dir",
                          str(place / f"work{i}"), f"spark://127.0.0.1:{port}",
                          SPARK_LOCAL_IP=f"127.0.0.{2 + i}", PYTHONPATH=worker_path) for i in range(2)]
        yield f"spark://127.0.0.1:{port}", env, running
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(60)


@pytest.fixture(scope="module")
def done(cluster, tmp_path_factory):
    """Everything below was run, and every process of the cluster is gone: what is left now stays."""
    master, env, running = cluster
    place = tmp_path_factory.mktemp("speculation")
    (place / "out").mkdir()
    with MessageStore.open(place / "from", consumequeue_file_size_bytes=800, **SMALL) as store:
        for i in range(1200):
            store.put("T", b"body %-4d" % i + b"x" * 90, queue_id=i % 3)
    ran = subprocess.run([sys.executable, "-c", SCRIPT, master, str(place / "from"), str(place / "out")], env=env, cwd=ROOT,
                         capture_output=True, text=True, check=False)
    assert "WORKED" in ran.stdout, ran.stderr[-5000:]
    for process in running:
        process.terminate()
        process.wait(60)
    yield place, Path(env["RMQ_STRAGGLER"])
    shutil.rmtree(place)


@pytest.fixture(params=LOSERS)
def loser(request):
    """Which of the two attempts is killed: the one that was there first, or Spark's second one."""
    return request.param


def both_ran(meeting, case):
    return (meeting / f"{case}.first").exists() and (meeting / f"{case}.second").exists()


def bodies(root):
    with MessageStore.open(root, readonly=True) as store:
        return sorted(bytes(m.body) for m in store.scan())


@pytest.mark.parametrize("what", ["write", "stream"])
def test_a_store_has_each_row_once(done, what, loser):
    place, meeting = done
    assert both_ran(meeting, f"{what}-{loser}")
    root = place / "out" / f"{what}-{loser}"
    assert bodies(root) == sorted(expected(1200))
    assert os.listdir(root / ".spark") == ["journal"]


def test_a_bulk_load_has_each_row_once(done, loser):
    place, meeting = done
    assert both_ran(meeting, f"shards-{loser}")
    root = place / "out" / f"shards-{loser}"
    assert sorted(os.listdir(root)) == [".spark", *(f"shard-0000{i}" for i in range(4))]
    assert sorted(body for i in range(4) for body in bodies(root / f"shard-0000{i}")) == sorted(expected(1200))
    assert not [name for name in os.listdir(root / ".spark") if name not in ("journal", "lock")]


def test_rebuilt_queues_are_right(done, loser):
    place, meeting = done
    assert both_ran(meeting, f"rebuild-{loser}")
    made, own = place / "from" / ".spark" / "rebuild", place / "from" / "consumequeue"
    assert os.listdir(made) == ["consumequeue"]
    found = sorted(path.relative_to(own) for path in own.rglob("*") if path.is_file())
    assert found == sorted(p.relative_to(made / "consumequeue") for p in made.rglob("*") if p.is_file())
    assert all((own / path).read_bytes() == (made / "consumequeue" / path).read_bytes() for path in found)


def test_an_export_has_each_row_once(done, loser):
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    from rmq_store.spark.jobs import verify_export

    place, meeting = done
    assert both_ran(meeting, f"export-{loser}")
    out = place / "out" / f"export-{loser}"
    assert verify_export(str(out)) == len(os.listdir(out)) - 1 > 4
    rows = [body for path in sorted(out.glob("*.parquet"))
            for body in pq.read_table(path, columns=["body"])["body"].to_pylist()]
    assert rows == [b"body %-4d" % i + b"x" * 90 for i in range(1200)]
