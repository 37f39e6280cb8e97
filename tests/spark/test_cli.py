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
                                                ("java", "there is no java on PATH"), ("4.2", "this is pyspark 4.1.4")])
def test_what_is_missing_is_named_with_the_cure(tmp_path, missing, words):
    """In a process of its own: imports are for good."""
    if missing == "java":
        pytest.importorskip("pyspark", reason="pyspark is not installed")
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        block = f"os.environ['PATH'] = {str(tmp_path)!r}; os.environ.pop('JAVA_HOME', None)"
    elif missing == "4.2":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        block = "import types; sys.modules['pyspark'] = types.SimpleNamespace(__version__='4.1.4')"
    else:
        block = f"sys.modules[{missing!r}] = None"
    script = f"import os, sys; {block}; from rmq_store.cli.main import main; sys.exit(main(['spark', 'audit', 'x']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def shell(spark, rmqstore, monkeypatch):
    """rmqstore("spark", ...) in the session that is there: it would stop its own."""
    import rmq_store.spark

    monkeypatch.setattr(rmq_store.spark, "local_session", lambda *a, **k: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return rmqstore


@pytest.mark.spark
def test_jobs_print_json_lines(shell, tmp_path):
    rmqstore = shell
    with MessageStore.open(tmp_path / "s", segment_size_bytes=65536) as store:
        for i in range(5):
            store.put("T", b"x", queue_id=i % 2)
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


@pytest.mark.spark
def test_tables_and_copies_from_a_shell(shell, tmp_path):
    """Each job that is not above; test_jobs.py says more of what they do."""
    small = {"segment_size_bytes": 65536, "index_slots": 100, "index_entries_max": 1000}
    for name in ("a", "b"):
        with MessageStore.open(tmp_path / name, **small) as store:
            for i in range(6 + (name == "a")):
                store.put("T", b"%d" % i, keys=f"k{i % 2}", tags="x" if name == "a" and i == 3 else "y")
    sizes = [text for name, value in small.items() for text in ("-o", f"store.{name}={value}")]

    def run(job, *arguments, code=0):
        found, out, err = shell("spark", job, tmp_path / "a", *arguments, "--json")
        assert found == code, err
        return [json.loads(line) for line in out.splitlines()]

    def bodies(name):
        with MessageStore.open(tmp_path / name, readonly=True) as store:
            return [bytes(m.body) for m in store.scan()]

    assert [(row["queueId"], row["messages"]) for row in run("statistics")] == [(0, 7)]
    assert [(row["key"], row["messages"]) for row in run("keys")] == [("k0", 4), ("k1", 3)]
    assert [(row["hours"], row["messages"]) for row in run("retention", "--hours", "1,2")] == [(1, 7), (2, 7)]
    assert [(row["queueOffset"], row["what"]) for row in run("diff", tmp_path / "b", code=1)] == [(3, "content"), (6, "left")]
    run("replay", tmp_path / "r", "--txn", "copy:7", "-o", "tags=y", *sizes)
    assert bodies("r") == [b"0", b"1", b"2", b"4", b"5", b"6"]
    run("merge", tmp_path / "m", "--txn", "copy", "--shards", 1, *sizes)
    assert bodies("m/shard-00000") == bodies("a")
    run("compact", tmp_path / "c", "--txn", "copy", *sizes)
    assert bodies("c") == [b"5", b"6"]
    (exported,) = run("export", tmp_path / "out", "-o", "subscribe=T")
    assert (exported["rows"], len(list((tmp_path / "out").glob("*.parquet")))) == (7, exported["files"])
    (made,) = run("rebuild-index", "--slots", 50, "--entries", 5)
    assert (made["files"], made["keys"]) == (2, 7)
