"""`rmqstore spark`: arguments and exit codes without a session, one job with one."""
import json
import os
import subprocess
import sys

import pytest

from rmq_store import MessageStore


def test_without_a_job_and_with_help(rmqstore):
    assert rmqstore("spark")[0] == 64
    code, out, _ = rmqstore("spark", "--help")
    assert code == 0 and all(job in out for job in ("audit", "rebuild-queues", "export", "replay", "query"))


@pytest.mark.parametrize(("missing", "words"), [("pyspark", "pip install 'rmq_store"), ("pyarrow", "pip install 'rmq_store"),
                                                ("java", "there is no java on PATH")])
def test_what_is_missing_is_named_with_the_cure(tmp_path, missing, words):
    """In a process of its own: imports are for good."""
    if missing == "java":
        pytest.importorskip("pyspark", reason="pyspark is not installed")
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        block = f"os.environ['PATH'] = {str(tmp_path)!r}; os.environ.pop('JAVA_HOME', None)"
    else:
        block = f"sys.modules[{missing!r}] = None"
    script = f"import os, sys; {block}; from rmq_store.cli.main import main; sys.exit(main(['spark', 'audit', 'x']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.spark
def test_jobs_print_json_lines(spark, rmqstore, tmp_path, monkeypatch):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        for i in range(5):
            store.put("T", b"x", queue_id=i % 2)
    import rmq_store.spark

    monkeypatch.setattr(rmq_store.spark, "local_session", lambda *a, **k: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    code, out, err = rmqstore("spark", "query", tmp_path / "s",
                              "SELECT queueId, count(*) AS n FROM messages GROUP BY 1 ORDER BY 1", "--json")
    assert code == 0, err
    assert [json.loads(line) for line in out.splitlines()] == [{"queueId": 0, "n": 3}, {"queueId": 1, "n": 2}]
    code, out, err = rmqstore("spark", "rebuild-queues", tmp_path / "s", "--file-size", 2000, "--json")
    made = json.loads(out)
    assert code == 0 and (made["queues"], made["entries"]) == (2, 5), err
    assert os.path.getsize(os.path.join(made["directory"], "T", "0", "0" * 20)) == 2000
    code, out, _ = rmqstore("spark", "audit", tmp_path / "s", "--json")
    found = json.loads(out)
    assert code == 0 and (found["records"], found["bytes"], found["findings"]) == (5, 5 * 93, 0)
