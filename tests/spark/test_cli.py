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
    assert done.returncode == 3 and words in done.stderr and "Traceback" not in done.stderr


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
def test_tables_and_copies(shell, spark, tmp_path):
    """Each job that is not above: what it is asked for, and what it makes."""
    from rmq_store.spark.jobs import key_statistics

    small = {"segment_size_bytes": 65536, "index_slots": 100, "index_entries_max": 1000}
    for name, n in (("a", 60), ("b", 40)):
        with MessageStore.open(tmp_path / name, **small) as store:
            for i in range(n):
                tags = "x" if i % 3 or (name, i) == ("b", 3) else "y"
                store.put("T", b"%d" % i, queue_id=i % 2, keys=f"k{i % 10}", tags=tags)
    a, b, both = str(tmp_path / "a"), str(tmp_path / "b"), json.dumps({name: str(tmp_path / name) for name in ("a", "b")})
    sizes = [text for name, value in small.items() for text in ("-o", f"store.{name}={value}")]

    def run(job, *arguments, code=0):
        found, out, err = shell("spark", job, *arguments, "--json")
        assert found == code, err
        return [json.loads(line) for line in out.splitlines()]

    def bodies(name):
        with MessageStore.open(tmp_path / name, readonly=True) as store:
            return [bytes(m.body) for m in store.scan()]

    def copied(job, source, name, *more):
        assert run(job, source, tmp_path / name, "--txn", "copy:7", *more, *sizes) == []

    all_of_both = [b"%d" % i for i in (*range(60), *range(40))]
    assert [(row["topic"], row["queueId"], row["messages"]) for row in run("statistics", a)] == [("T", 0, 30), ("T", 1, 30)]
    assert [(row["key"], row["messages"]) for row in run("keys", a)] == [(f"k{i}", 6) for i in range(10)]
    assert [(row.key, row.messages) for row in key_statistics(spark, a, limit=2).collect()] == [("k0", 6), ("k1", 6)]
    assert [(row["hours"], row["messages"]) for row in run("retention", a, "--hours", "1,2")] == [(1, 60), (2, 60)]
    differences = [(row["queueId"], row["queueOffset"], row["what"]) for row in run("diff", a, b, code=1)]
    assert sorted(differences) == sorted([(1, 1, "content")] + [(i % 2, i // 2, "left") for i in range(40, 60)])
    assert {row["what"] for row in run("diff", b, a, code=1)} == {"content", "right"}
    copied("replay", a, "r", "-o", "tags=y", "-o", 'assign={"T": [1]}')
    assert bodies("r") == [b"%d" % i for i in range(60) if i % 2 == 1 and i % 3 == 0]
    copied("merge", both, "m")
    assert bodies("m") == all_of_both
    copied("merge", both, "shards", "--shards", 2, "-o", "min_partitions=2")
    shards = sorted(path.name for path in (tmp_path / "shards").glob("shard-*"))
    assert len(shards) == 2 and [body for name in shards for body in bodies("shards/" + name)] == all_of_both
    copied("compact", a, "c")
    assert bodies("c") == [b"%d" % i for i in range(50, 60)]
    (exported,) = run("export", a, tmp_path / "out", "-o", "subscribe=T")
    assert (exported["rows"], len(list((tmp_path / "out").glob("*.parquet")))) == (60, exported["files"])
    (made,) = run("rebuild-index", a, "--slots", 50, "--entries", 40)
    assert (made["files"], made["keys"]) == (2, 60)
