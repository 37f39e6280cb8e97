"""The same calls on a cluster of two executor processes and through Spark Connect, from the built wheel: in processes of their
own that do not see this checkout.

The wheel is RMQ_WHEEL, or the newest one in dist/ (make wheel). On the cluster executors get a packed environment with it, as
docs/spark.md says; the driver has the same one unpacked where it runs.
"""
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rmq_store import MessageStore
from tests import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
WORK = """
import os, sys
import rmq_store
import rmq_store.spark as rs
from rmq_store.spark import jobs
from pyspark.sql import functions as f
root, out, env, shipped = sys.argv[1:]

def where(i):
    import rmq_store
    return rmq_store.__file__

seen = {r[0] for r in spark.range(0, 4, 1, 4).select(f.udf(where, "string", useArrow=False)("id")).collect()}
assert rmq_store.__file__.startswith(env), rmq_store.__file__
assert all(path.startswith(env) != bool(shipped) and "/env/lib/python" in path for path in seen), seen
assert rs.scan(spark, root, ["topic", "body"], split_size=20_000).count() == 300
assert rs.scan(spark, root, subscribe="T").groupBy("queueId").count().count() == 3
assert spark.read.format("rocketmq_store").load(root).count() == 300
report = jobs.audit(spark, root, split_size=20_000)
assert (report.records, report.findings) == (300, [])
made = jobs.rebuild_queues(spark, root, split_size=20_000)
assert (made.queues, made.entries) == (3, 300)
small = {"segment_size_bytes": 65536, "index_slots": 100, "index_entries_max": 1000}
jobs.replay(spark, root, out, "copy", store=small)
assert rs.scan(spark, out, ["topic"]).count() == 300
jobs.replay(spark, root, out + "-shards", "copy", store=small, shards=2, split_size=20_000)
assert rs.scan(spark, out + "-shards/shard-*", ["topic"]).count() == 300
stream = spark.readStream.format("rocketmq_store").option("path", root).option("startingOffsets", "earliest").load()
query = (stream.writeStream.format("rocketmq_store").option("path", out + "-stream").option("txnAppId", "s")
         .options(**{"store." + name: str(value) for name, value in small.items()})
         .option("checkpointLocation", out + "-checkpoint").trigger(availableNow=True).start())
query.awaitTermination()
assert rs.scan(spark, out + "-stream", ["topic"]).count() == 300
print("WORKED")
spark.stop()
"""
CLUSTER = """
import os
from rmq_store.spark import local_session
spark = local_session("cluster", "local-cluster[2,1,1024]", **{
    "spark__archives": os.environ["PACKED"] + "#env"})
""" + WORK
CONNECT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
""" + WORK


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A directory with `env`, a virtual environment that has the wheel and the packages of this one, not this checkout; and
    with the same packed, env.tar.gz."""
    named = os.environ.get("RMQ_WHEEL")
    wheels = [Path(named)] if named else sorted(ROOT.glob("dist/*.whl"), key=lambda p: p.stat().st_mtime)
    if not wheels:
        pytest.skip("there is no wheel: make wheel, or set RMQ_WHEEL")
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    (packages,) = (place / "env").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(packages)
    others = [p for p in map(Path, sys.path) if p.name in ("site-packages", "dist-packages") or (p / "pandas").is_dir()]
    # Lines of a path file are taken as they are: path files in those directories, which may lead to a checkout, are not read.
    (packages / "others.pth").write_text("".join(f"{p}\n" for p in others))
    with tarfile.open(place / "env.tar.gz", "w:gz") as archive:
        for entry in (place / "env").iterdir():
            archive.add(entry, entry.name)
    return place


@pytest.mark.parametrize("name", ["cluster", "connect"])
def test_elsewhere(name, environment, tmp_path):
    spark_session.need_spark()
    if name == "connect":
        pytest.importorskip("grpc", reason="Spark Connect needs grpcio: the extra spark-test")
        pytest.importorskip("pandas", reason="the client of Spark Connect needs pandas: the extra spark-test")
    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536, index_slots=100, index_entries_max=1000) as store:
        for i in range(300):
            store.put("T", b"x" * 500, queue_id=i % 3)
    (tmp_path / "env").symlink_to(environment / "env")
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON")}
    # Connect runs workers in a directory of its own.
    env |= {"PYSPARK_PYTHON": "./env/bin/python" if name == "cluster" else str(tmp_path / "env" / "bin" / "python"),
            "SPARK_LOCAL_IP": "127.0.0.1", "PACKED": str(environment / "env.tar.gz")}
    script = CLUSTER if name == "cluster" else CONNECT
    done = subprocess.run(["./env/bin/python", "-c", script, str(tmp_path / "s"), str(tmp_path / "out"), str(tmp_path / "env"),
                           "shipped" if name == "cluster" else ""], env=env, cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert "WORKED" in done.stdout, done.stderr[-3000:]
