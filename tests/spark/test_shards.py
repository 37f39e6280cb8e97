"""Bulk loads into stores of their own: built by tasks, named by one commit, once for each version."""
import os

import pytest

from rmq_store import MessageStore
from rmq_store.errors import ConfigError, StoreLocked
from rmq_store.spark import shards, staging
from tests.spark.staging_of import SMALL, batch, expected, staged


def built(root, *counts):
    """Shards as tasks leave them; each task ran twice, as speculation may."""
    assert staging.enter(str(root), "job", "an application that never commits", 0)
    found, first = [], 0
    for i, n in enumerate(counts):
        data = [batch(n - n // 2, first), batch(n // 2, first + n - n // 2)] if n else []
        shards.build_shard(str(root), "job", i, data, SMALL)
        found.append(shards.build_shard(str(root), "job", i, data, SMALL))
        first += n
    return [shard for shard in found if shard is not None]


def content(root):
    """{name: bodies} of the stores of a load."""
    found = {}
    for name in sorted(n for n in os.listdir(root) if n.startswith("shard-")):
        with MessageStore.open(root / name, readonly=True) as store:
            found[name] = [bytes(m.body) for m in store.scan()]
    return found


def test_each_write_adds_stores_and_once(tmp_path):
    made = shards.commit_shards(str(tmp_path), "app", 0, built(tmp_path, 30, 0, 20), "job")
    assert (made.records, made.repeated) == (50, False)
    assert made.stores == (str(tmp_path / "shard-00000"), str(tmp_path / "shard-00001"))
    assert content(tmp_path) == {"shard-00000": expected(30), "shard-00001": expected(50)[30:]}
    assert shards.commit_shards(str(tmp_path), "app", 0, built(tmp_path, 30), "job").repeated
    assert shards.commit_shards(str(tmp_path), "app", 1, built(tmp_path, 5), "job").stores == (str(tmp_path / "shard-00002"),)
    assert sorted(content(tmp_path)) == ["shard-00000", "shard-00001", "shard-00002"]
    assert os.listdir(tmp_path / ".spark" / "journal") and not os.path.exists(tmp_path / ".spark" / "job")


class Crash(BaseException):
    pass


@pytest.mark.parametrize("renamed", [0, 1, 2, 3])
def test_a_commit_that_broke_off_is_completed_by_the_next(tmp_path, monkeypatch, renamed):
    steps = iter(["pending", *["renamed"] * 3, "done"])
    left = renamed

    def die(name):
        nonlocal left
        assert name == next(steps)
        if left == 0:
            raise Crash
        left -= 1

    monkeypatch.setattr(shards, "_step", die)
    with pytest.raises(Crash):
        shards.commit_shards(str(tmp_path), "app", 0, built(tmp_path, 10, 10, 10), "job")
    assert len(content(tmp_path)) == renamed
    monkeypatch.undo()
    if renamed < 3:
        shards.commit_shards(str(tmp_path), "other", 0, [])             # whoever comes next
    assert shards.commit_shards(str(tmp_path), "app", 0, [], "job").repeated
    assert list(content(tmp_path).values()) == [expected(10), expected(20)[10:], expected(30)[20:]]


def test_what_cannot_be_mixed_is_refused(tmp_path):
    with MessageStore.open(tmp_path / "store", **SMALL) as store:
        store.put("T", b"x")
    with pytest.raises(ConfigError, match="is a store itself"):
        shards.build_shard(str(tmp_path / "store"), "job", 0, [batch(1)], SMALL)
    with pytest.raises(ConfigError, match="is a store itself"):
        shards.commit_shards(str(tmp_path / "store"), "app", 0, [], None)
    load = tmp_path / "load"
    shards.commit_shards(str(load), "app", 0, built(load, 3), "job")
    with pytest.raises(ConfigError, match="stores of a bulk load"):
        staging.commit_staged(str(load), "app", 1, staged(load, 1), SMALL)


def test_one_commit_at_a_time(tmp_path, monkeypatch):
    def second(name):
        if name == "pending":
            with pytest.raises(StoreLocked):
                shards.commit_shards(str(tmp_path), "other", 0, [], None)

    monkeypatch.setattr(shards, "_step", second)
    assert shards.commit_shards(str(tmp_path), "app", 0, built(tmp_path, 3), "job").records == 3


@pytest.mark.spark
def test_a_dataframe_becomes_stores_and_is_read_again(spark, tmp_path):
    import rmq_store.spark as rs

    load = str(tmp_path / "load")
    columns = ("'T' AS topic", "CAST(CAST(id AS STRING) AS BINARY) AS body", "CAST(id % 2 AS INT) AS queueId")
    df = spark.range(0, 90, 1, 5).selectExpr(*columns)
    for _ in range(2):          # the second one is done already
        rs.write_store(df, load, shards=3, txn_app_id="load", txn_version=0, store=SMALL)
    assert sorted(os.listdir(load)) == [".spark", "shard-00000", "shard-00001", "shard-00002"]
    read = rs.scan(spark, load + "/shard-*", ["brokerName", "body"])
    assert sorted(bytes(r.body) for r in read.collect()) == sorted(b"%d" % i for i in range(90))
    assert read.select("brokerName").distinct().count() == 3
    with pytest.raises(Exception, match=r"more partitions: df.coalesce\(3\)"):
        df.write.format("rocketmq_store").mode("append").option("shards", "3").save(load)
    assert len(os.listdir(load)) == 4 and os.listdir(os.path.join(load, ".spark", "journal"))
