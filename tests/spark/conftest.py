"""One local Spark session for all tests of this folder; without pyspark or Java they are skipped and say so."""
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests import golden_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'rmq_store[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'rmq_store[spark]')")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        pytest.skip("there is no java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from rmq_store.spark import local_session

    place = tmp_path_factory.mktemp("spark")
    session = local_session(
        "rmq_store tests", "local[2]", spark__sql__shuffle__partitions="2",
        spark__sql__warehouse__dir=str(place / "warehouse"), spark__local__dir=str(place / "local"),
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -Dderby.system.home=" + str(place))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """stores("v5-plain") -> a golden case unpacked once, for tests that only read it."""
    done: dict[str, golden_store.GoldenCase] = {}

    def unpacked(name):
        if name not in done:
            done[name] = golden_store.unpack(name, tmp_path_factory.mktemp(name))
        return done[name]

    return unpacked
