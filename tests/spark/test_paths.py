"""How a store is named in options of reads and writes, and its options among those of a write: refused before a task runs."""
import json
import os
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError
from rmq_store.spark.stores import brokers_of, local_path
from tests.spark.staging_of import SMALL, bodies


@pytest.mark.parametrize(("given", "path"), [
    ("/data/s", "/data/s"), ("data/s", "data/s"), ("file:/data/s", "/data/s"), ("file:///data/s", "/data/s"),
    ("FILE:///data/s", "/data/s"), ("file://localhost/data/s", "/data/s"), ("file:////data//s", "/data//s"),
    ("file:///data/a%20b", "/data/a%20b"), ("file:///data/*/s", "/data/*/s"), ("a:b", "a:b"), ("./hdfs:/x", "./hdfs:/x"),
    ("/data/file:/x", "/data/file:/x"), ("2026-05-01T12:00/s", "2026-05-01T12:00/s")])
def test_a_path_is_one_of_this_machine(given, path):
    assert local_path(given) == path


@pytest.mark.parametrize(("given", "words"), [
    ("hdfs://name/x", "not over hdfs: mount it"), ("hdfs:/x", "not over hdfs"), ("s3a://bucket/x", "not over s3a"),
    ("dbfs:/x", "not over dbfs"), ("abfss://c@a.dfs.core.windows.net/x", "not over abfss"), ("HTTP://x/y", "not over http"),
    ("file:x", "a whole path of this machine"), ("file:", "a whole path"),
    ("file:x/y", "a whole path"), ("file:localhost/x", "a whole path"),
    ("file://host/x", "a whole path of this machine"),
    ("file://x", "a whole path"), ("file:///", None)])
def test_another_scheme_or_host_is_refused_by_name(given, words):
    if words is None:
        assert local_path(given) == "/"
        return
    with pytest.raises(ConfigError, match=f"option path is '{given}': .*{words}"):
        local_path(given)


def test_reads_name_stores_so(tmp_path):
    for name in ("a", "b"):
        MessageStore.open(tmp_path / name, **SMALL).close()
    both = [(name, str(tmp_path / name)) for name in ("a", "b")]
    for path in (f"file://{tmp_path}/a, file:{tmp_path}/b", f"file://{tmp_path}/[ab]", f"{tmp_path}/a,{tmp_path}/b",
                 f'{{"a": "file://{tmp_path}/a", "b": "{tmp_path}/b"}}'):
        assert [tuple(broker)[:2] for broker in brokers_of(path)] == both
    for path in (f"{tmp_path}/a,hdfs://name/b", '{"a": "s3a://bucket/a"}'):
        with pytest.raises(ConfigError, match="not over"):
            brokers_of(path)


def test_paths_are_whole_wherever_spark_looks_for_them(tmp_path, monkeypatch):
    """Its planners and workers run where the JVM was started, a program may have gone elsewhere since."""
    from rmq_store.spark.options import whole_paths
    from rmq_store.spark.scan import option_texts

    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    for given, whole in (("s", f"{here}/s"), (Path("s"), f"{here}/s"), ("./*/s, /b", f"{here}/*/s,/b"),
                         (["s", "/b"], f"{here}/s,/b"), ("file:/x", "file:/x"), ("hdfs://n/s,s", f"hdfs://n/s,{here}/s"),
                         ('{"a": "s"}', '{"a": "s"}'),
                         ({"a": "s", "b": "/b"}, json.dumps({"a": f"{here}/s", "b": "/b"})), ("", "")):
        assert whole_paths(given) == whole and option_texts({"path": given}) == {"path": whole}


@pytest.fixture
def parse():
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from rmq_store.spark.writer import WriteOptions

    return WriteOptions.parse


def test_writes_name_stores_so(parse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (f"file:{tmp_path}/s", f"file://{tmp_path}/s", f" {tmp_path}/s", "s", "./s", "./x/../s"):
        assert parse({"path": path}).path == f"{tmp_path}/s"
    for path in ("hdfs://name/s", "file://host/s", "s3://bucket/s"):
        with pytest.raises(ConfigError, match=f"option path is '{path}'"):
            parse({"path": path})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("given", "words"), [
    ({"store.segment_size_byte": "65536"}, "store.*segment_size_byte is unknown: did you mean segment_size_bytes"),
    ({"store.Segment_Size_Bytes": "64 KiB or so"}, "segment_size_bytes is '64 KiB or so'"),
    ({"store.segment_size_bytes": "1"}, "segment_size_bytes is '1'"),
    ({"store.write_path": "both"}, "write_path is 'both'"),
    ({"store.mappedfilesizecommitlog": "x"}, "mappedFileSizeCommitLog"),
    ({"store.segment_size_bytes": "65536", "store.mappedfilesizecommitlog": "65536"}, "two names for one option"),
    ({"store.segment_size_bytes": "65536", "store.SEGMENT_SIZE_BYTES": "65536"}, "store.segment_size_bytes is given twice"),
    ({"store.readonly": "true"}, "store.readonly is true"),
    ({"store.profile": "nvmee"}, "nvmee"),
    ({"store.commitlog_path": "hdfs://name/log"}, "option store.commitlog_path is 'hdfs://name/log'"),
    ({"store.commitlog_path": "/log", "store.consumequeue_path": "file:/log"}, "three different directories"),
    ({"store.commitlog_path": "/log", "shards": "2"}, "they cannot share"),
    ({"store.storepathcommitlog": "/log", "shards": "2"}, "they cannot share")])
def test_options_of_the_store_are_checked_before_the_write(parse, tmp_path, given, words):
    for stream in (False, True):
        if stream and "shards" in given:
            continue
        with pytest.raises(ConfigError, match=words):
            parse({"path": str(tmp_path / "s"), **given, **({"txnAppId": "a"} if stream else {})}, stream=stream)


def test_options_of_the_store_keep_their_names(parse, tmp_path, monkeypatch):
    """Spark gives the names of options in small letters."""
    monkeypatch.chdir(tmp_path)
    found = dict(parse({"path": "s", "store.mappedfilesizecommitlog": "65536", "store.index_slots": "100",
                        "store.profile": "nvme", "store.commitlog_path": f"file://{tmp_path}/log"}).store)
    assert found == {"mappedFileSizeCommitLog": "65536", "index_slots": "100", "profile": "nvme",
                     "commitlog_path": f"{tmp_path}/log"}
    assert dict(parse({"path": "s", "store.storepathcommitlog": "log"}).store) == {"storePathCommitLog": f"{tmp_path}/log"}


@pytest.mark.spark
def test_a_write_goes_where_its_path_says(spark, tmp_path, monkeypatch):
    import rmq_store.spark as rs

    monkeypatch.chdir(tmp_path)

    df = spark.range(3).selectExpr("'T' AS topic", "string(id) AS body")
    rs.write_store(df, f"file://{tmp_path}/s", store=SMALL)
    assert sorted(bodies(tmp_path / "s")) == [b"0", b"1", b"2"]
    assert rs.scan(spark, f"file:{tmp_path}/s").count() == 3
    rs.write_store(df, "s", store=SMALL)
    assert len(bodies(tmp_path / "s")) == 6 == rs.scan(spark, "s").count()
    for path, store, words in ((f"{tmp_path}/t", {"segment_size_byte": 65536}, "did you mean segment_size_bytes"),
                               ("hdfs://name/t", SMALL, "not over hdfs")):
        with pytest.raises(Exception, match=words):
            rs.write_store(df, path, store=store)
    assert os.listdir(tmp_path) == ["s"]
