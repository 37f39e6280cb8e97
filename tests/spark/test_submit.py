"""spark-submit runs the jobs: with its own master and settings, and their exit codes."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.cli import submit
from rmq_store.cli.exits import CORRUPT
from tests import spark_session

ROOT = Path(__file__).resolve().parents[2]


def test_modules_beside_the_script_hide_no_others(rmqstore, monkeypatch):
    """rmq_store/cli has a spark.py, say, and a script's directory comes first."""
    here = os.path.dirname(submit.__file__)
    monkeypatch.setattr(sys, "path", [here, *sys.path])
    monkeypatch.setattr(sys, "argv", [submit.__file__, "--help"])
    with pytest.raises(SystemExit) as end:
        submit.main()
    assert end.value.code == 0 and here not in sys.path


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit(tmp_path):
    spark_session.need_spark()
    from pyspark.find_spark_home import _find_spark_home

    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536, index_slots=100, index_entries_max=1000) as store:
        places = [store.put("T", b"x" * 100, queue_id=i % 2) for i in range(50)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": _find_spark_home(),
           "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}

    def run(*arguments):
        command = [os.path.join(env["SPARK_HOME"], "bin", "spark-submit"), "--master", "local[2]", "--name", "nightly",
                   "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
                   submit.__file__, *map(str, arguments), "--json"]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return done.returncode, rows, done.stderr

    code, rows, err = run("query", tmp_path / "s", "SELECT queueId, count(*) AS n FROM messages GROUP BY 1 ORDER BY 1")
    assert (code, rows) == (0, [{"queueId": 0, "n": 25}, {"queueId": 1, "n": 25}]), err
    code, rows, err = run("query", tmp_path / "s", "SET")       # spark-submit's, and none of local_session's own
    settings = {row["key"]: row["value"] for row in rows}
    assert code == 0, err
    assert (settings["spark.master"], settings["spark.app.name"]) == ("local[2]", "nightly")
    assert "spark.driver.memory" not in settings
    log = tmp_path / "s" / "commitlog" / ("0" * 20)
    with log.open("r+b") as file:
        file.seek(places[3].offset + 95)
        file.write(b"\xff")
    code, rows, err = run("audit", tmp_path / "s")
    assert code == CORRUPT and {row.get("kind") for row in rows} == {"body_crc", None}, err
