"""The same calls on a cluster of two executor processes, and through Spark Connect: each in a process of its own."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
WORK = """
import sys
import rmq_store.spark as rs
from rmq_store.spark import jobs
root, out = sys.argv[1:]
assert rs.scan(spark, root, ["topic", "body"], split_size=20_000).count() == 300
assert rs.scan(spark, root, subscribe="T").groupBy("queueId").count().count() == 3
assert jobs.audit(spark, root, split_size=20_000).records == 300
made = jobs.rebuild_queues(spark, root, split_size=20_000)
assert (made.queues, made.entries) == (3, 300)
jobs.replay(spark, root, out, "copy", store={"segment_size_bytes": 65536})
assert rs.scan(spark, out, ["topic"]).count() == 300
print("WORKED")
spark.stop()
"""
CLUSTER = """
from rmq_store.spark import local_session
spark = local_session("cluster", "local-cluster[2,1,1024]")
""" + WORK
CONNECT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
""" + WORK


@pytest.mark.parametrize("name", ["cluster", "connect"])
def test_elsewhere(name, tmp_path):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("there is no java")
    if name == "connect":
        pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
        pytest.importorskip("pandas", reason="the client of Spark Connect needs pandas")
    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        for i in range(300):
            store.put("T", b"x" * 500, queue_id=i % 3)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    script = CLUSTER if name == "cluster" else CONNECT
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "s"), str(tmp_path / "out")], env=env, cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert "WORKED" in done.stdout, done.stderr[-3000:]
