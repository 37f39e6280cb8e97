"""bench/spark: what its result file says of each goal, and that all of it still runs. Measures nothing."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import spark_session

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {"full_vs_parquet": 0.7, "metadata_mrows_s": 1.9, "kernel_queues_gib_s": 2.5, "queues_vs_shuffle": 3.0,
           "kernel_audit_gib_s": 1.99, "export_vs_parquet_parquet": 2.5, "staged_mib_s": 500.0, "planning_1000_files_ms": 51.0}


@pytest.mark.parametrize("mib", [1024, 64])
def test_each_goal_stands_beside_its_value(mib):
    """A figure on either side of each limit; those of a small log judge nothing."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from bench.spark.__main__ import goals_of

    told = json.loads(json.dumps(goals_of({"mib": mib, "found": FIGURES})))
    goals = {goal["text"]: (goal["goal"], goal["value"], goal["met"]) for goal in told}
    assert len(goals) == len(FIGURES)
    met = [True, False, True, True, False, True, True, False]
    assert [verdict for _, _, verdict in goals.values()] == (met if mib >= 1024 else [None] * len(met))
    assert goals["metadata only"][:2] == (">= 2 M rows/s", 1.9)
    assert goals["planning 1,000 files"][:2] == ("<= 50 ms", 51)


@pytest.mark.spark
@pytest.mark.slow
def test_a_quick_run_prints_all_goals_and_names_no_path(tmp_path):
    spark_session.need_spark()
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1",
           "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    done = subprocess.run([sys.executable, "-m", "bench.spark", "--quick", "--dir", tmp_path / "measured", "--out",
                           tmp_path / "out.json"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    file = tmp_path / "out.json"
    told = json.loads(file.read_text())
    assert all(f"\n{goal['text']} " in done.stdout and goal["value"] > 0 and goal["met"] is None for goal in told["goals"])
    found = told["runs"]["ratios"]["rmq_store"][0].keys()
    assert found >= {"full_vs_snappy", "commit_mib_s", "queues_job_gib_s", "queues_vs_shuffle_without_its_write"}
    assert told["runs"].keys() >= {"scaling: full rows", "scaling: audit", "scaling: rebuild queues", "scaling: export"}
    assert str(tmp_path) not in file.read_text() and str(ROOT) not in file.read_text()
    assert os.listdir(tmp_path / "measured") == []
