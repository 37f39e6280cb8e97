"""A local Spark session for tests; without pyspark, pyarrow or Java they are skipped and say so."""
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def need_spark() -> None:
    """Skips where a session cannot be had."""
    pytest.importorskip("pyspark", reason="pyspark is not installed (pip install 'rmq_store[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'rmq_store[spark]')")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        pytest.skip("there is no java")


@contextmanager
def session(place: Path, master: str = "local[2,3]", **conf: str) -> Iterator[Any]:
    """A session whose workers see this checkout, with its files under `place`. A task has three attempts."""
    need_spark()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    places = (str(ROOT / "tests/spark/site"), str(ROOT), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from rmq_store.spark import local_session

    opened = local_session(
        "rmq_store tests", master, spark__sql__shuffle__partitions="2",
        spark__sql__warehouse__dir=str(place / "warehouse"), spark__local__dir=str(place / "local"),
        spark__driver__extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home=" + str(place), **conf)
    opened.sparkContext.setLogLevel("ERROR")
    try:
        yield opened
    finally:
        opened.stop()
