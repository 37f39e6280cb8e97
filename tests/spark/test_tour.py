"""docs/examples/spark_tour.py, from end to end over a small store, and what docs/spark.md says of sessions and of logs."""
import importlib.util
import logging
import re
import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest

from rmq_store import MessageStore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
TOUR = PAGE.parent / "examples" / "spark_tour.py"


@pytest.fixture
def small(tmp_path):
    with MessageStore.open(tmp_path / "store", segment_size_bytes=65536, index_slots=100, index_entries_max=1000) as store:
        for i in range(40):
            store.put(("Orders", "Bills")[i % 2], b"x" * 100, queue_id=i % 4, tags="t")
    return tmp_path / "store"


@pytest.mark.spark
def test_the_tour(spark, small, tmp_path, monkeypatch, capsys):
    """In the session that is there: it would stop its own. Without matplotlib all but the picture is looked at."""
    import rmq_store.spark as rs

    drawn = importlib.util.find_spec("matplotlib") is not None
    if not drawn:
        pyplot = mock.MagicMock(subplots=lambda **_: (mock.MagicMock(),) * 2)
        monkeypatch.setitem(sys.modules, "matplotlib", mock.MagicMock(pyplot=pyplot))
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    picture = tmp_path / "out.png"
    stopped = []
    monkeypatch.setattr(rs, "local_session", lambda app: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: stopped.append(self))
    monkeypatch.setattr(sys, "argv", [str(TOUR), str(small), str(picture)])
    runpy.run_path(str(TOUR))
    told = capsys.readouterr().out
    assert stopped == [spark] and "40 records, 0 findings" in told and f"saved {picture}" in told
    assert [row.split("|")[1:3] for row in told.splitlines() if "|commitlog" in row.replace(" ", "")]
    assert "|Orders|0      |0        |10       |10   |" in told, told
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" if drawn else not picture.exists()


@pytest.mark.spark
@pytest.mark.slow
def test_the_examples_of_the_page(spark, small, tmp_path, monkeypatch):
    """They go on from one another; their paths and tags are a broker's."""
    import rmq_store.spark as rs

    monkeypatch.setattr(rs, "local_session", lambda: spark)
    known = {name: str(tmp_path / name) for name in ("out", "checkpoint", "root", "c")}
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)):
        for there, here in (("/data/broker-a/store", small), ("/data/new/store", tmp_path / "new"), ("TagA", "t")):
            code = code.replace(there, str(here))
        exec(compile(code, f"spark.md-{number}", "exec"), known)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
    assert number == 2 and spark.table("m").count() == 40 and spark.catalog.dropTempView("m")
    assert spark.read.parquet(known["out"]).count() == 40
    for store in ("new", "root"):
        assert rs.scan(spark, tmp_path / store, ["topic"]).count() == 40


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_that_was_told_nothing_finds_the_source_and_its_workers_logs(spark, small):
    """Spark itself imports pyspark_rocketmq_store. A new session and new settings each cost new workers: here both at once."""
    fresh = spark.newSession()
    fresh.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    assert fresh.read.format("rocketmq_store").option("columns", "topic").load(str(small)).count() == 40
    logs = fresh.sql("SELECT level, msg, logger FROM python_worker_logs()").collect()
    found = [row.msg for row in logs if row.logger == "rmq_store.spark" and row.level == "INFO"]
    assert found == [f"view messages of {small}: 1 partitions"], logs


def test_what_a_read_has_planned_is_logged(small, caplog):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rmq_store.spark.options import ReadOptions
    from rmq_store.spark.reader import partitions_of

    caplog.set_level(logging.INFO, "rmq_store.spark")
    partitions_of(ReadOptions.parse({"path": str(small)}))
    assert caplog.messages == [f"view messages of {small}: 1 partitions"]
